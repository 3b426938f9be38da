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

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.execution.long_columns import LongColumns
from collector.queries.request_table import NAMED, class_name, size_bytes
from collector.queries.row_parts import DistinctRows, parts_of, slices_of
from collector.queries.slowness import FEWEST
from collector.queries.timeline.windows import bins_of
from collector.requests.outcomes import is_abandoned
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


_OF_SERVED = ("server_host", "outcome", "end", "duration_ns", "request_bytes", "response_bytes", *NAMED)
"""Columns of spans that bands are made of."""


class Served:
    """The requests of a trace by the lane of the host that served them.

    Arguments: `spans`, as `SpanTrees.frame`; the hosts of the lanes; where files go that hold what does not fit in
    memory.
    Memory: 45 bytes an exchange, of long tables in files. Raises: `ResourceError` if there is no room.
    """

    def __init__(self, spans: pl.DataFrame, lanes: Sequence[str], spill: Path | None = None) -> None:
        self._spill = spill
        hosts, kinds = DistinctRows(), DistinctRows()
        with LongColumns(spill) as kept:
            for part in parts_of(spans.select(_OF_SERVED)):
                rows = part.filter(pl.col("server_host").is_not_null()).with_columns(bytes=size_bytes())
                kept.add(
                    host=hosts.numbers(rows.select("server_host")),
                    kind=kinds.numbers(rows.select(class_name())),
                    end=rows["end"].to_numpy(),
                    took=rows["duration_ns"].to_numpy(),
                    abandoned=rows.select(is_abandoned()).to_series().to_numpy(),
                )
            lane_of = {host: lane for lane, host in enumerate(lanes)}
            lane_of_host = np.array([lane_of.get(host, -1) for (host,) in hosts.frame().rows()], np.int32)
            order, self._first = _by_lane(lane_of_host[kept.whole("host")], len(lanes))
            kind, end, took, abandoned = (kept.whole(name) for name in ("kind", "end", "took", "abandoned"))
            measured = np.where(abandoned, 0, took)
            usual = _usual(kind, measured)
            for some in slices_of(len(order)):
                at = order[some]
                ratio = np.where(measured[at] > 0, measured[at] / usual[kind[at]], np.nan)
                # A client's pause is no part of its request, so it is not under way from its start on, but for its
                # duration.
                begun = end[at] - np.maximum(took[at], 1)
                kept.add(begun=begun, ended=end[at], ratio=ratio, level=level_of(ratio))
            self._begin, self._end = kept.whole("begun"), kept.whole("ended")
            self._ratio, self._level = kept.whole("ratio"), kept.whole("level")

    @cached_property
    def served_lanes(self) -> frozenset[int]:
        """The lanes whose hosts served a request."""
        return frozenset(int(lane) for lane in np.flatnonzero(np.diff(self._first)))

    @cached_property
    def most_at_once(self) -> int:
        """The most requests that a host served at once, in the whole trace."""
        return max((int(self._edges([lane]).at_once.max(initial=0)) for lane in self.served_lanes), default=0)

    def bands(self, rows: Rows, from_ns: int, to_ns: int, most_bins: int) -> LaneBands:
        """What each row's hosts served, in at most `most_bins` (≥ 2) bins that cover [from_ns, to_ns)."""
        shift, first, last = bins_of(from_ns, to_ns, most_bins)
        made = [self._band(row, shift, first, last) for row in rows]
        requests, at_once, ratio = (np.stack(each) for each in zip(*made, strict=True))
        served = np.array([any(lane in self.served_lanes for lane in row) for row in rows])
        return LaneBands(first << shift, 1 << shift, requests, at_once, ratio, served)

    def within(self, lanes: Sequence[int], from_ns: int, to_ns: int) -> ServedRequests:
        """What some hosts served in [from_ns, to_ns)."""
        found = list(self._under_way(lanes, from_ns, to_ns))
        took = np.concatenate([np.zeros(0, np.int64), *(self._end[at] - self._begin[at] for at in found)])
        ratio = np.concatenate([np.zeros(0), *(self._ratio[at] for at in found)])
        known = ratio[~np.isnan(ratio)]
        took.sort()
        known.sort()
        return ServedRequests(
            requests=len(took),
            at_once=int(self._edges(lanes).most(np.array([from_ns, to_ns]))[0]),
            p50_ns=int(took[_place(0.5, len(took))]) if len(took) else None,
            p99_ns=int(took[_place(HIGH, len(took))]) if len(took) else None,
            ratio=float(known[_place(HIGH, len(known))]) if len(known) else None,
        )

    def _band(
        self, lanes: Sequence[int], shift: int, first: int, last: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float64]]:
        bins = last - first
        width = LEVELS + 1  # and those without a ratio
        steps = np.zeros((bins + 1) * width, np.int64)
        for at in self._under_way(lanes, first << shift, last << shift):
            begun = np.maximum((self._begin[at] >> shift) - first, 0)
            ended = np.minimum(((self._end[at] - 1) >> shift) - first, bins - 1)
            level = self._level[at]
            steps += np.bincount(begun * width + level, minlength=len(steps))
            steps -= np.bincount((ended + 1) * width + level, minlength=len(steps))
        counts = np.cumsum(steps.reshape(bins + 1, width), axis=0)[:-1]
        most = self._edges(lanes).most(np.arange(first, last + 1) << shift)
        return counts.sum(axis=1).astype(np.uint32), most.astype(np.uint32), _high_ratio(counts[:, 1:])

    def _under_way(self, lanes: Sequence[int], from_ns: int, to_ns: int) -> Iterator[NDArray[np.intp]]:
        """The rows of the requests that were under way in a stretch, some at a time."""
        for lane in lanes:
            low, high = (int(each) for each in self._first[lane : lane + 2])
            for part in slices_of(high - low):
                rows = slice(low + part.start, low + part.stop)
                inside = (self._begin[rows] < to_ns) & (self._end[rows] > from_ns)
                yield np.flatnonzero(inside) + rows.start

    def _edges(self, lanes: Sequence[int]) -> "_Edges":
        if len(lanes) == 1:
            return self._edges_of_lane[lanes[0]]
        return self._edges_of(lanes)

    @cached_property
    def _edges_of_lane(self) -> list["_Edges"]:
        return [self._edges_of([lane]) for lane in range(len(self._first) - 1)]

    def _edges_of(self, lanes: Sequence[int]) -> "_Edges":
        rows = [slice(*self._first[lane : lane + 2]) for lane in lanes]
        with LongColumns(self._spill) as kept:
            begin, end = (kept.keep(_in_order([times[each] for each in rows])) for times in (self._begin, self._end))
            at_once = np.arange(1, len(begin) + 1, dtype=np.int32)
            for part in slices_of(len(begin)):
                at_once[part] -= np.searchsorted(end, begin[part], side="right").astype(np.int32)
            return _Edges(begin, end, kept.keep(at_once))


class _Edges(Struct, frozen=True):
    """When requests begin and when they end, each ascending, and how many are under way when each has begun. Of those
    that begin at the same time the last one has the number of all."""

    begin: Int64Array
    end: Int64Array
    at_once: NDArray[np.int32]

    def most(self, edges_ns: Int64Array) -> Int64Array:
        """The most requests at once between each two successive edges: at the first of both, or when one begins."""
        at_edge = np.searchsorted(self.begin, edges_ns, side="right") - np.searchsorted(
            self.end, edges_ns, side="right"
        )
        place = np.searchsorted(self.begin, edges_ns, side="left")
        inside = np.zeros(len(edges_ns) - 1, np.int64)
        filled = np.flatnonzero(np.diff(place))
        if len(filled):
            inside[filled] = np.maximum.reduceat(self.at_once[: place[-1]], place[filled])
        return np.maximum(at_edge[:-1], inside)


def _by_lane(lane: NDArray[np.int32], lanes_count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows in the order of their lanes, without those of no lane (-1); and where each lane begins."""
    order = np.argsort(lane, kind="stable")[np.count_nonzero(lane < 0) :]
    return order, np.searchsorted(lane, np.arange(lanes_count + 1), sorter=order)


def _usual(kind: NDArray[np.int32], measured_ns: Int64Array) -> NDArray[np.float64]:
    """The median of each kind; NaN of fewer than `FEWEST`. Arguments: kind and duration of each request, 0 for none."""
    rows = pl.DataFrame({"kind": kind, "took": measured_ns}).lazy().filter(pl.col("took") > 0)
    found = rows.group_by("kind").agg(pl.col("took").median(), count=pl.len()).filter(pl.col("count") >= FEWEST)
    usual = np.full(int(kind.max(initial=-1)) + 1, np.nan)
    of = found.collect()
    usual[of["kind"].to_numpy()] = of["took"].to_numpy()
    return usual


def _in_order(parts: Sequence[Int64Array]) -> Int64Array:
    values = np.concatenate(parts)
    values.sort(kind="stable")  # nearly in order: quick
    return values


def level_of(ratio: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The class of each ratio, from 1 on; 0 for none (NaN)."""
    known = np.where(np.isnan(ratio), 1.0, ratio)
    octave = np.log2(known) - LOWEST_OCTAVE
    level = np.clip(np.floor(octave * PER_OCTAVE), 0, LEVELS - 1) + 1
    return np.where(np.isnan(ratio), 0, level).astype(np.uint8)


def _high_ratio(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of counts [bin, level], the ratio in the middle of the level of the percentile `HIGH`."""
    total = np.cumsum(counts, axis=1)
    wanted = np.ceil(HIGH * total[:, -1])
    level = np.argmax(total >= np.maximum(wanted, 1)[:, None], axis=1)
    return np.where(total[:, -1] > 0, np.exp2((level + 0.5) / PER_OCTAVE + LOWEST_OCTAVE), 0.0)


def _place(share: float, count: int) -> int:
    """The place of a percentile among so many sorted values: the nearest rank."""
    return max(0, int(np.ceil(share * count)) - 1)
