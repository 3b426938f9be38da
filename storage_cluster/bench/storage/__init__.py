"""Stores that load can be put on, Swift's and S3's, behind one small protocol (`Storage`)."""

from storage_cluster.bench.storage.protocol import Order, Request, Send, Step, StepError, Storage

__all__ = ("Order", "Request", "Send", "Step", "StepError", "Storage")
