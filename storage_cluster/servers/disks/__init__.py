"""The disks of a host: where things lie on a device, objects' files, and a model of how long transfers take."""
