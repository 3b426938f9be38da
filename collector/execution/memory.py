"""Returns free memory to the system: otherwise the process would keep the arenas that a stage has grown."""

import ctypes

import pyarrow as pa


def give_back() -> None:
    """Return freed memory to the system. Cost: some milliseconds for each GiB."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
