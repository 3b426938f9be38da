"""Stores that load can be put on, behind one small protocol (`Storage`): what S3 will have to offer, too."""

from storage_cluster.bench.storage.protocol import Order, Request, Storage

__all__ = ("Order", "Request", "Storage")
