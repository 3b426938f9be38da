"""How slow the requests were that hosts served, and how many at once: over time, for rows of one or more hosts.

A request is any exchange that a host of the row answered, a client's or another host's. Its ratio is its duration over
the median of its class (`collector.queries.request_table`), over all hosts; of a class with fewer than
`slowness.FEWEST` nothing is usual. Abandoned requests count as under way, but have no ratio, as in the strip of the
whole trace. Streams are no requests.

A request counts in each bin that it was under way in, so that a server that answers nothing is seen while it does so.

Algorithm: ratios are sorted into `LEVELS` classes, eight for each factor of two. For each class, +1 stands in the bin
in which a request begins and -1 after that in which it ends; the running sums are how many of the class were under way
in each bin. So the cost is that of the requests in view and of bins × levels, however long requests are. `at_once` is
the largest of the running counts of begins and ends, which are sorted once.

Invariants: at_once <= requests; ratio == 0 where no request with a ratio was under way; the ratio of a band is at most
1/16 octave (4.4 %) from that of the request which it stands for, where that is between 1/16 and 2^15.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.queries.request_table import class_name
from collector.queries.slowness import FEWEST
from collector.queries.timeline.windows import bins_of
from collector.requests.outcomes import Outcome
from collector.trace.time_columns import Int64Array

PER_OCTAVE, LOWEST_OCTAVE, OCTAVES = 8, -4, 19
LEVELS = PER_OCTAVE * OCTAVES
HIGH = 0.99
"""The share of the requests under way that were at most so slow as a band shows."""
Rows = Sequence[Sequence[int]]
"""Lanes, row by row."""


class LaneBands(Struct, frozen=True):
    """[row, bin] of requests that each row's hosts served; bins begin at multiples of their width."""

    from_ns: int
    bin_ns: int
    requests: NDArray[np.uint32]  # under way in the bin
    at_once: NDArray[np.uint32]  # the most
    ratio: NDArray[np.float64]  # how many times as long as usual, at the percentile `HIGH`; 0 for none
    served: NDArray[np.bool_]  # [row]: whether its hosts served any request in the whole trace


class ServedRequests(Struct, frozen=True):
    """The requests that some hosts served in a stretch of time, exactly; times in ns, None where there is none."""

    requests: int
    at_once: int
    p50_ns: int | None
    p99_ns: int | None
    ratio: float | None  # at the percentile `HIGH`


class Served:
    """The requests of a trace by the lane of the host that served them."""

    def __init__(self, spans: pl.DataFrame, lanes: Sequence[str]) -> None:
        numbers = pl.DataFrame({"server_host": list(lanes), "lane": np.arange(len(lanes), dtype=np.int32)})
        rows = spans.lazy().filter(pl.col("server_host").is_not_null())
        took, known = pl.col("duration_ns"), pl.col("outcome").fill_null("") != Outcome.ABANDONED
        size = pl.max_horizontal(pl.col("request_bytes").fill_null(0), pl.col("response_bytes").fill_null(0))
        measured = pl.when(known & (took > 0)).then(took)
        named = rows.with_columns(bytes=size).with_columns(kind=class_name().cast(pl.Categorical))
        usual = pl.when(measured.count().over("kind") >= FEWEST).then(measured.median().over("kind"))
        found = (
            named.select("server_host", "end", took=took.clip(lower_bound=1), ratio=measured / usual)
            .join(numbers.lazy(), on="server_host")
            .sort("lane", maintain_order=True)
            .collect()
        )
        self._end = found["end"].to_numpy()
        self._took = found["took"].to_numpy()
        # A client's pause is no part of its request, so it is not under way from its start on, but for its duration.
        self._begin = self._end - self._took
        self._ratio = found["ratio"].fill_null(np.nan).to_numpy()
        self._level = level_of(self._ratio)
        self._first = np.searchsorted(found["lane"].to_numpy(), np.arange(len(lanes) + 1))

    @cached_property
    def served_lanes(self) -> frozenset[int]:
        """The lanes whose hosts served a request."""
        return frozenset(int(lane) for lane in np.flatnonzero(np.diff(self._first)))

    @cached_property
    def most_at_once(self) -> int:
        """The most requests that a host served at once, in the whole trace."""
        return max((int(self._edges([lane])[1].max(initial=0)) for lane in self.served_lanes), default=0)

    def bands(self, rows: Rows, from_ns: int, to_ns: int, most_bins: int) -> LaneBands:
        """What each row's hosts served, in at most `most_bins` (≥ 2) bins that cover [from_ns, to_ns)."""
        shift, first, last = bins_of(from_ns, to_ns, most_bins)
        made = [self._band(row, shift, first, last) for row in rows]
        requests, at_once, ratio = (np.stack(each) for each in zip(*made, strict=True))
        served = np.array([any(lane in self.served_lanes for lane in row) for row in rows])
        return LaneBands(first << shift, 1 << shift, requests, at_once, ratio, served)

    def within(self, lanes: Sequence[int], from_ns: int, to_ns: int) -> ServedRequests:
        """What some hosts served in [from_ns, to_ns)."""
        at = self._under_way(lanes, from_ns, to_ns)
        took, ratio = np.sort(self._took[at]), np.sort(self._ratio[at])
        known = ratio[~np.isnan(ratio)]
        times, running = self._edges(lanes)
        low, high = np.searchsorted(times, (from_ns, to_ns), side="left")
        at_first = int(_count_at(times, running, np.array([from_ns]))[0])
        return ServedRequests(
            requests=len(at),
            at_once=max(at_first, int(running[low:high].max(initial=0))),
            p50_ns=int(took[_place(0.5, len(took))]) if len(took) else None,
            p99_ns=int(took[_place(HIGH, len(took))]) if len(took) else None,
            ratio=float(known[_place(HIGH, len(known))]) if len(known) else None,
        )

    def _band(
        self, lanes: Sequence[int], shift: int, first: int, last: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float64]]:
        bins = last - first
        at = self._under_way(lanes, first << shift, last << shift)
        begun = np.maximum((self._begin[at] >> shift) - first, 0)
        ended = np.minimum(((self._end[at] - 1) >> shift) - first, bins - 1)
        width = LEVELS + 1  # and those without a ratio
        level = self._level[at]
        steps = np.bincount(begun * width + level, minlength=(bins + 1) * width)
        steps -= np.bincount((ended + 1) * width + level, minlength=(bins + 1) * width)
        counts = np.cumsum(steps.reshape(bins + 1, width), axis=0)[:-1]
        return counts.sum(axis=1).astype(np.uint32), self._most(lanes, shift, first, last), _high_ratio(counts[:, 1:])

    def _most(self, lanes: Sequence[int], shift: int, first: int, last: int) -> NDArray[np.uint32]:
        """The most requests at once in each bin."""
        times, running = self._edges(lanes)
        edges = np.searchsorted(times, np.arange(first, last + 1) << shift, side="left")
        at_first = _count_at(times, running, np.arange(first, last) << shift)
        inside = np.zeros(last - first, np.int64)
        filled = np.flatnonzero(np.diff(edges))
        if len(filled):
            inside[filled] = np.maximum.reduceat(running[: edges[-1]], edges[filled])
        return np.maximum(at_first, inside).astype(np.uint32)

    def _under_way(self, lanes: Sequence[int], from_ns: int, to_ns: int) -> NDArray[np.intp]:
        found = [np.zeros(0, np.intp)]
        for lane in lanes:
            low, high = self._first[lane], self._first[lane + 1]
            inside = (self._begin[low:high] < to_ns) & (self._end[low:high] > from_ns)
            found.append(np.flatnonzero(inside) + low)
        return np.concatenate(found)

    def _edges(self, lanes: Sequence[int]) -> tuple[Int64Array, Int64Array]:
        """The times at which requests begin or end, ascending, and how many are under way from each on."""
        if len(lanes) == 1:
            return self._edges_of_lane[lanes[0]]
        return _running(*(np.concatenate([self._times(lane)[at] for lane in lanes]) for at in (0, 1)))

    @cached_property
    def _edges_of_lane(self) -> list[tuple[Int64Array, Int64Array]]:
        return [_running(*self._times(lane)) for lane in range(len(self._first) - 1)]

    def _times(self, lane: int) -> tuple[Int64Array, Int64Array]:
        part = slice(self._first[lane], self._first[lane + 1])
        return self._begin[part], self._end[part]


def level_of(ratio: NDArray[np.float64]) -> NDArray[np.int64]:
    """The class of each ratio, from 1 on; 0 for none (NaN)."""
    known = np.where(np.isnan(ratio), 1.0, ratio)
    octave = np.log2(known) - LOWEST_OCTAVE
    level = np.clip(np.floor(octave * PER_OCTAVE).astype(np.int64), 0, LEVELS - 1) + 1
    return np.where(np.isnan(ratio), 0, level)


def _running(begin: Int64Array, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    times = np.concatenate((end, begin))
    order = np.argsort(times, kind="stable")
    times, running = times[order], np.cumsum(np.where(order < len(end), -1, 1))
    last = np.flatnonzero(np.append(times[1:] != times[:-1], len(times) > 0))  # of the changes at a time
    return times[last], running[last]


def _count_at(times: Int64Array, running: Int64Array, at_ns: Int64Array) -> Int64Array:
    """How many are under way at each of some times."""
    place = np.searchsorted(times, at_ns, side="right")
    return np.concatenate((np.zeros(1, np.int64), running))[place]


def _high_ratio(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of counts [bin, level], the ratio in the middle of the level of the percentile `HIGH`."""
    total = np.cumsum(counts, axis=1)
    wanted = np.ceil(HIGH * total[:, -1])
    level = np.argmax(total >= np.maximum(wanted, 1)[:, None], axis=1)
    return np.where(total[:, -1] > 0, np.exp2((level + 0.5) / PER_OCTAVE + LOWEST_OCTAVE), 0.0)


def _place(share: float, count: int) -> int:
    """The place of a percentile among so many sorted values: the nearest rank."""
    return max(0, int(np.ceil(share * count)) - 1)
