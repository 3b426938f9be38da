"""The proxy: the one server clients talk to; it knows the ring and keeps no data."""
