"""Errors that an operator of the load generator can correct."""

from storage_cluster.errors import ClusterError


class WorkloadError(ClusterError):
    """A workload cannot be used as it is written; names the place."""


class RunError(ClusterError):
    """A run's folder cannot be read or written."""
