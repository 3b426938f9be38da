"""Memory that is free, given back to the system: arenas that a stage grew would otherwise stay with the process."""

import ctypes

import pyarrow as pa


def give_back() -> None:
    """Give the system back what was freed. Cost: some milliseconds for each GiB."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
