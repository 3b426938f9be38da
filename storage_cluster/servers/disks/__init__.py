"""The disks of a host: the layout of a device, objects' files, and a model of the duration of transfers."""
