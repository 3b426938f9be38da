"""The routing proxy: one S3 store to its clients, whose objects lie in two others, by size."""
