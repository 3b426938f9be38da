"""Overlays the packets of many requests, aligned at the requests' starts.

The picture has lanes × time since each request's start. A packet covers the rows between its two lanes. Packets that
all requests send at the same time after their start add up; those of only some requests stay faint. Nothing is sampled:
each packet that was seen at both ends is counted. Most take less time than a column is wide, so they are counted by
pair of lanes and column first, and then added to the rows in between; the others are added row by row.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

STEPS = 10
"""Rows from one lane to the next."""


class Overlay(Struct, frozen=True):
    """Packets of some requests by place and time since their request's start."""

    lanes: tuple[str, ...]
    requests_count: int
    packets_count: int  # of those requests, seen at both ends
    beyond_count: int  # of these, before `from_ns` or after `to_ns`
    from_ns: int
    to_ns: int
    counts: NDArray[np.uint32]  # [STEPS * (lanes - 1) + 1, column]; lane n is row n * STEPS


class WholeHops(Struct, frozen=True):
    """Hops that were seen at both ends, as columns; lanes are those of the timeline."""

    source: NDArray[np.uint16]
    target: NDArray[np.uint16]
    sent_ns: NDArray[np.int64]
    received_ns: NDArray[np.int64]
    request: NDArray[np.int32]  # -1 for none


class LaneGroups(Struct, frozen=True):
    """The line of the picture on which each lane of the timeline is drawn."""

    names: tuple[str, ...]
    of_lane: NDArray[np.intp]

    @classmethod
    def of(cls, names: Sequence[str]) -> "LaneGroups":
        """Lanes with the same name share a line; lines in order of their first lane."""
        distinct = tuple(dict.fromkeys(names))
        places = {name: at for at, name in enumerate(distinct)}
        return cls(distinct, np.array([places[name] for name in names], dtype=np.intp))


def overlay(
    hops: Iterable[WholeHops],
    zero_ns: NDArray[np.int64],
    requests_count: int,
    groups: LaneGroups,
    window: tuple[int, int, int],
) -> Overlay:
    """The picture of the hops of so many requests, which come some at a time.

    Arguments: `zero_ns`, by request, is the time that becomes 0; `window` is the first time, the last, and the number
    of columns between them.
    Cost: about 40 ns for each hop.
    """
    from_ns, to_ns, bins = window
    lanes, scale = len(groups.names), bins / max(1, to_ns - from_ns)
    counts = np.zeros((STEPS * max(0, lanes - 1) + 1, bins), dtype=np.int64)
    all_count = inside_count = 0
    for some in hops:
        zero = zero_ns[some.request] + from_ns
        begin = np.floor((some.sent_ns - zero) * scale).astype(np.int64)
        end = np.floor((some.received_ns - zero) * scale).astype(np.int64)
        inside = (begin >= 0) & (begin < bins)
        pair = groups.of_lane[some.source[inside]] * lanes + groups.of_lane[some.target[inside]]
        _add(counts, pair, begin[inside], end[inside], lanes)
        all_count, inside_count = all_count + len(inside), inside_count + int(inside.sum())
    beyond = all_count - inside_count
    return Overlay(groups.names, requests_count, all_count, beyond, from_ns, to_ns, counts.astype(np.uint32))


def _add(
    counts: NDArray[np.int64], pair: NDArray[np.intp], begin: NDArray[np.int64], end: NDArray[np.int64], lanes: int
) -> None:
    """Add packets, each from the column where it begins to the one where it ends."""
    bins, upright = counts.shape[1], begin == end
    uprights = np.bincount(pair[upright] * bins + begin[upright], minlength=lanes * lanes * bins)
    for number, columns in enumerate(uprights.reshape(lanes * lanes, bins)):
        first, last = sorted(divmod(number, lanes))
        if columns.any():
            counts[first * STEPS : last * STEPS + 1] += columns
    slanted = np.flatnonzero(~upright)
    for number in np.unique(pair[slanted]).tolist():
        some = slanted[pair[slanted] == number]
        _add_slanted_lines(counts, number // lanes, number % lanes, begin[some], end[some])


def _add_slanted_lines(
    counts: NDArray[np.int64], source: int, target: int, begin: NDArray[np.int64], end: NDArray[np.int64]
) -> None:
    """Add packets from one lane to another that cross several columns, row by row."""
    steps, bins = abs(target - source) * STEPS, counts.shape[1]
    way = 1 if target > source else -1
    for step in range(steps + 1):
        column = begin + (end - begin) * step // max(1, steps)
        seen = column[(column >= 0) & (column < bins)]
        counts[source * STEPS + way * step] += np.bincount(seen, minlength=bins)
