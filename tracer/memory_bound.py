"""What an agent may take of its host's memory, and how that is divided among what grows in it.

| part | of the bound | beyond it |
|---|---|---|
| the program, and a segment that is packed and sent | a quarter | segments are smaller |
| rings, all interfaces together | 3/8 | packets are dropped, and counted; interfaces that fit a pattern are left out |
| segments in memory while the disk is full | 3/16 | the oldest are lost, and counted |
| the list of segments that wait or are kept | 3/16 | the oldest are lost, or deleted, and counted |

The parts of the core are bounded by themselves: directions of connections that are followed, ends whose owners are
looked for (`tracer/core/capture/src/connections.rs`, `…/owners/watch.rs`).
"""

from dataclasses import dataclass

from tracer.errors import InputError

MIB = 1 << 20
DEFAULT_MIB = 256
LEAST_MIB = 96
USUAL_RING_BYTES = 32 * MIB
"""Of each interface, where there is room."""
LARGEST_SEGMENT_BYTES = 16 * MIB
LISTED_BYTES = 640
"""Of a segment in a list: most of it is its path."""


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """What each part may take."""

    ring_bytes: int  # of each interface that is named
    rings_bytes: int  # of all, also of those that fit a pattern and come later
    segment_bytes: int
    overflow_bytes: int  # segments in memory while the disk is full
    listed_count: int  # segments that wait, and segments of a history


def divide_memory(bound_bytes: int, interfaces_count: int, ring_bytes: int | None = None) -> MemoryShares:
    """The shares of an agent that captures so many interfaces.

    Arguments: `ring_bytes` of each interface, if the operator gave them.
    Raises: InputError if these rings take more than 3/8 of the bound.
    """
    room = bound_bytes * 3 // 8 // max(1, interfaces_count)
    if ring_bytes is not None and ring_bytes > room:
        what = f"{interfaces_count} rings of {ring_bytes // MIB} MiB take more than 3/8 of {bound_bytes // MIB} MiB"
        raise InputError(what, f"give --ring-mib {max(1, room // MIB)} or less, or a larger --memory-mib")
    return MemoryShares(
        ring_bytes=ring_bytes or max(MIB, min(USUAL_RING_BYTES, room)),
        rings_bytes=bound_bytes * 3 // 8,
        segment_bytes=min(LARGEST_SEGMENT_BYTES, bound_bytes // 16),
        overflow_bytes=bound_bytes * 3 // 16,
        listed_count=bound_bytes * 3 // 16 // LISTED_BYTES,
    )
