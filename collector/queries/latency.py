"""Durations of requests, exchanges and packets: percentiles, histograms, over time, and by concurrency.

Percentiles are by nearest rank, so each is a measured duration. All histograms have the same bins, ten for each factor
of ten, so that microseconds and minutes fit on one axis and groups can be compared.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.queries.row_parts import parts_of, slices_of
from collector.requests.outcomes import Outcome, measured_ns
from collector.trace.time_columns import Int64Array

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
BINS_PER_DECADE = 10
FINE_PER_DECADE = 500
FINE_BINS = 13 * FINE_PER_DECADE
"""From 1 ns to three hours."""
GRID = (160, 60)
"""Columns (time) and rows (logarithm of the duration) of the grid that counts many requests."""
MOST_DOTS = 2_000
"""More requests than this are counted in a grid; the slowest and failed ones are still dots."""
DOTS_OF_MANY = 400


OF_SCATTER = ("number", "start_ns", "duration_ns", "ended", "outcome", "failed")
OF_CONCURRENCY = ("outermost", "in_flight", "duration_ns", "outcome", "failed")
OF_FLIGHT = ("outermost", "end_ns", "duration_ns", "failed")
"""Columns of `collector.queries.request_table` that `scatter`, `by_concurrency` and `in_flight` read."""


class Durations(Struct, frozen=True):
    """Durations of one kind of thing, ns; of requests, without abandoned ones if there are others."""

    name: str
    count: int  # of durations
    failed_count: int
    abandoned_count: int  # requests that their clients abandoned
    unknown_count: int  # requests with an unknown outcome
    percentiles_ns: tuple[int, ...]  # as PERCENTILES
    longest_ns: int
    edges_ns: NDArray[np.float64]  # of the histogram, one more than bins
    bins: NDArray[np.int64]


class Scatter(Struct, frozen=True):
    """Requests by beginning and duration; `grid` counts those that are no dots, if there are many."""

    numbers: Int64Array
    start_ns: Int64Array
    duration_ns: Int64Array
    ended: NDArray[np.bool_]  # otherwise the duration is at least so long
    outcome: NDArray[np.object_]  # as `collector.requests.outcomes` has them
    grid: NDArray[np.uint32] | None  # [row, column]
    time_edges_ns: NDArray[np.float64]
    duration_edges_ns: NDArray[np.float64]


class AtConcurrency(Struct, frozen=True):
    """Requests that began while so many were in flight."""

    from_count: int
    to_count: int
    requests_count: int
    failed_count: int
    p50_ns: int  # this and the next two without abandoned ones, if there are others
    p90_ns: int
    p99_ns: int


class Flight(Struct, frozen=True):
    """Requests in flight over time; one element a bin, each of `bin_ns`."""

    bin_ns: int
    most: Int64Array  # the most at once
    begun: Int64Array
    failed: Int64Array  # of those that ended in this bin


def durations(name: str, values_ns: Int64Array, outcomes: pl.Series | None = None) -> Durations:
    """A summary of some durations, of which there is at least one, and of the outcomes of all requests of that kind.

    Cost: a sort.
    """
    named = pl.Series([], dtype=pl.String) if outcomes is None else outcomes
    counted = (Outcome.FAILED, Outcome.ABANDONED, Outcome.UNKNOWN)
    failed, abandoned, unknown = (int((named == str(each)).sum()) for each in counted)
    values = np.sort(values_ns)
    ranks = [max(0, int(np.ceil(share / 100 * len(values))) - 1) for share in PERCENTILES]
    least, longest = max(1, int(values[0])), max(1, int(values[-1]))
    low, high = (int(np.floor(np.log10(each) * BINS_PER_DECADE)) for each in (least, longest))
    edges = 10 ** (np.arange(low, high + 2) / BINS_PER_DECADE)
    bins = np.zeros(high - low + 1, np.int64)
    for part in slices_of(len(values)):
        place = np.floor(np.log10(np.maximum(values[part], 1)) * BINS_PER_DECADE).astype(np.int64) - low
        bins += np.bincount(place, minlength=len(bins))
    percentiles = tuple(int(values[at]) for at in ranks)
    return Durations(name, len(values), failed, abandoned, unknown, percentiles, int(values[-1]), edges, bins)


def by_group(rows: pl.DataFrame, column: str) -> tuple[Durations, ...]:
    """Durations of each group, the most time in all first.

    Arguments: `rows` with `duration_ns`, perhaps `outcome`, and the column that names the group.
    """
    found = []
    columns = [name for name in (column, "duration_ns", "outcome") if name in rows.columns]
    for (name,), group in rows.select(columns).drop_nulls([column, "duration_ns"]).group_by(column):
        outcomes = group["outcome"] if "outcome" in group.columns else None
        took = group["duration_ns"] if outcomes is None else group.select(measured_ns()).to_series()
        found.append((int(group["duration_ns"].sum()), durations(str(name), took.to_numpy(), outcomes)))
    return tuple(each for _, each in sorted(found, key=lambda item: (-item[0], item[1].name)))


def scatter(requests: pl.DataFrame, duration_ns: int) -> Scatter:
    """When requests of a trace, which is so long, began, and how long they took."""
    durations_ns = requests["duration_ns"]
    longest = max(2, _or(durations_ns.max(), 2))
    shortest = max(1, min(longest - 1, _or(durations_ns.filter(durations_ns > 0).min(), longest)))
    time_edges = np.linspace(0, duration_ns, GRID[0] + 1)
    duration_edges = np.geomspace(shortest, longest + 1, GRID[1] + 1)
    dots, grid = requests, None
    if len(requests) > MOST_DOTS:
        dots, edges = _dots(requests), (duration_edges, time_edges)
        grid = -_counts(dots, edges)
        for part in parts_of(requests.select(_OF_COUNTS)):
            grid += _counts(part, edges)
    numbers, start, took = (dots[name].to_numpy() for name in ("number", "start_ns", "duration_ns"))
    ended, outcome = dots["ended"].to_numpy(), dots["outcome"].cast(pl.String).to_numpy()
    cells = None if grid is None else grid.astype(np.uint32)
    return Scatter(numbers, start, took, ended, outcome, cells, time_edges, duration_edges)


_OF_COUNTS = ("duration_ns", "start_ns")


def _counts(requests: pl.DataFrame, edges: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.int64]:
    """How many requests are in each cell of a grid. Arguments: its edges, of durations and of times."""
    took, start = (requests[name].to_numpy() for name in _OF_COUNTS)
    counts: NDArray[np.int64] = np.histogram2d(np.maximum(took, edges[0][0]), start, bins=edges)[0].astype(np.int64)
    return counts


def _or(value: Any, otherwise: int) -> int:
    return otherwise if value is None else int(value)


def by_concurrency(requests: pl.DataFrame) -> tuple[AtConcurrency, ...]:
    """Durations by how many outermost requests were in flight when they began, in steps of a factor of two."""
    took = measured_ns()
    step = (pl.col("in_flight").clip(1).log(2) + 1e-9).floor().cast(pl.Int32)
    shares = {f"p{name}_ns": took.quantile(share / 100, "higher").cast(pl.Int64) for name, share in _SHOWN}
    rows = requests.filter(pl.col("outermost")).group_by(step=step)
    found = rows.agg(requests_count=pl.len(), failed_count=pl.col("failed").sum(), **shares).sort("step")
    return tuple(
        AtConcurrency(1 << row["step"], (2 << row["step"]) - 1, **{name: row[name] for name in row if name != "step"})
        for row in found.iter_rows(named=True)
    )


def in_flight(requests: pl.DataFrame, duration_ns: int, bins: int) -> Flight:
    """How many outermost requests were in flight over a trace that is so long."""
    outer = requests.filter(pl.col("outermost"))
    end = outer["end_ns"].to_numpy()
    begin = end - outer["duration_ns"].to_numpy()
    width = max(1, -(-duration_ns // bins))
    failed = np.bincount(np.clip(end[outer["failed"].to_numpy()] // width, 0, bins - 1), minlength=bins)
    begin, end = (np.sort(times, kind="stable") for times in (begin, end))  # nearly in order: quick
    most, begun = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
    for part in slices_of(len(begin)):  # the most are in flight where one begins
        at = np.clip(begin[part] // width, 0, bins - 1)
        before = np.searchsorted(end, begin[part], side="left")  # who begins when another ends meets it
        np.maximum.at(most, at, np.arange(part.start + 1, part.stop + 1) - before)
        begun += np.bincount(at, minlength=bins)
    edges = np.arange(1, bins) * width
    most[1:] = np.maximum(most[1:], np.searchsorted(begin, edges) - np.searchsorted(end, edges))  # what goes on
    return Flight(width, most, begun, failed)


def delays_by_pair(
    delays: Iterable[tuple[NDArray[np.uint16], NDArray[np.uint16], Int64Array]], lanes: Sequence[str]
) -> tuple[Durations, ...]:
    """Delays by directed pair of lanes, the slowest median first.

    Arguments: source, target and delay of hops, some at a time: they are counted in fine bins, not kept, so percentiles
    are to a quarter of a percent. A delay below 1 ns (the clocks are wrong there) counts as one of 1 ns.
    """
    fine: dict[int, NDArray[np.int64]] = {}
    longest: dict[int, int] = {}
    for source, target, delay_ns in delays:
        place = np.minimum(np.log10(np.maximum(delay_ns, 1)) * FINE_PER_DECADE, FINE_BINS - 1).astype(np.int64)
        pair = source.astype(np.int64) << 16 | target
        for key in np.unique(pair).tolist():
            mine = pair == key
            fine[key] = fine.get(key, 0) + np.bincount(place[mine], minlength=FINE_BINS)
            longest[key] = max(longest.get(key, 0), int(delay_ns[mine].max()))
    found = [
        _of_fine(f"{lanes[key >> 16]} → {lanes[key & 0xFFFF]}", counts, longest[key]) for key, counts in fine.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.percentiles_ns[0], each.name)))


def _of_fine(name: str, fine: NDArray[np.int64], longest_ns: int) -> Durations:
    """A summary from fine bins: of each percentile, the middle of its bin."""
    total = np.cumsum(fine)
    count = int(total[-1])
    ranks = [max(1, int(np.ceil(share / 100 * count))) for share in PERCENTILES]
    places = np.searchsorted(total, ranks)
    values = tuple(min(longest_ns, round(10 ** ((int(place) + 0.5) / FINE_PER_DECADE))) for place in places)
    step = FINE_PER_DECADE // BINS_PER_DECADE
    bins = fine.reshape(-1, step).sum(axis=1)
    used = np.flatnonzero(bins)
    low, high = int(used[0]), int(used[-1])
    edges = 10 ** (np.arange(low, high + 2) / BINS_PER_DECADE)
    return Durations(name, count, 0, 0, 0, values, longest_ns, edges, bins[low : high + 1])


_SHOWN = (("50", 50.0), ("90", 90.0), ("99", 99.0))


def _dots(requests: pl.DataFrame) -> pl.DataFrame:
    """The slowest requests, and the slowest of those that failed."""
    slowest = requests.top_k(DOTS_OF_MANY, by="duration_ns")
    failed = requests.filter(pl.col("failed")).top_k(DOTS_OF_MANY, by="duration_ns")
    return pl.concat((slowest, failed)).unique("number", maintain_order=True)
