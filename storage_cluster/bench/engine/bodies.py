"""What objects contain: bytes drawn from their name, at no cost.

Random bytes are dear (MiB per ms), so one pool of them is made once and every object is a run of the pool, over and
over, that begins where its name says. So two generators, on any hosts, agree on what an object of that name and size
holds, and a read can be checked without anything written down. Equal runs in two objects are possible: a store that
compresses within an object sees randomness, one that finds duplicates across objects could find some.
"""

import functools
import hashlib
import random
import zlib

POOL_BYTES = 1 << 20
_SEED = 20_181_120

Body = list[memoryview]
"""An object's bytes, in order, as parts of a pool."""


def body(name: str, size_bytes: int, *, zeros: bool = False, start: int = 0) -> Body:
    """So many bytes of the object of that name, from `start` on, without a copy."""
    view = _pool(zeros)
    parts: Body = []
    offset = (zlib.crc32(name.encode()) + start) % POOL_BYTES
    while size_bytes > 0:
        part = view[offset : offset + size_bytes]
        parts.append(part)
        size_bytes -= len(part)
        offset = 0
    return parts


def digest(parts: Body) -> bytes:
    """MD5, as a store's ETag has it."""
    made = hashlib.md5(usedforsecurity=False)
    for part in parts:
        made.update(part)
    return made.digest()


@functools.cache
def _pool(zeros: bool) -> memoryview:
    return memoryview(bytes(POOL_BYTES) if zeros else random.Random(_SEED).randbytes(POOL_BYTES))
