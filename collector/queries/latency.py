"""Durations of requests, exchanges and packets: percentiles, histograms, over time, and by concurrency.

Percentiles are by nearest rank, so each is a measured duration. All histograms have the same bins, ten for each factor
of ten, so that microseconds and minutes fit on one axis and groups can be compared.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

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
    place = np.floor(np.log10(np.maximum(values, 1)) * BINS_PER_DECADE).astype(np.int64) - low
    bins = np.bincount(place, minlength=high - low + 1)
    percentiles = tuple(int(values[at]) for at in ranks)
    return Durations(name, len(values), failed, abandoned, unknown, percentiles, int(values[-1]), edges, bins)


def by_group(rows: pl.DataFrame, column: str) -> tuple[Durations, ...]:
    """Durations of each group, the most time in all first.

    Arguments: `rows` with `duration_ns`, perhaps `outcome`, and the column that names the group.
    """
    found = []
    for (name,), group in rows.drop_nulls([column, "duration_ns"]).group_by(column):
        outcomes = group["outcome"] if "outcome" in group.columns else None
        took = group["duration_ns"] if outcomes is None else group.select(measured_ns()).to_series()
        found.append((int(group["duration_ns"].sum()), durations(str(name), took.to_numpy(), outcomes)))
    return tuple(each for _, each in sorted(found, key=lambda item: (-item[0], item[1].name)))


def scatter(requests: pl.DataFrame, duration_ns: int) -> Scatter:
    """When requests of a trace, which is so long, began, and how long they took."""
    durations_ns = requests["duration_ns"].to_numpy()
    longest = max(2, int(durations_ns.max(initial=2)))
    shortest = max(1, min(longest - 1, int(durations_ns[durations_ns > 0].min(initial=longest))))
    time_edges = np.linspace(0, duration_ns, GRID[0] + 1)
    duration_edges = np.geomspace(shortest, longest + 1, GRID[1] + 1)
    many = len(requests) > MOST_DOTS
    dots, rest = _dots(requests) if many else (requests, requests.clear())
    grid = None
    if many:
        at = (np.maximum(rest["duration_ns"].to_numpy(), shortest), rest["start_ns"].to_numpy())
        grid = np.histogram2d(*at, bins=(duration_edges, time_edges))[0].astype(np.uint32)
    numbers, start, took = (dots[name].to_numpy() for name in ("number", "start_ns", "duration_ns"))
    ended, outcome = dots["ended"].to_numpy(), dots["outcome"].to_numpy()
    return Scatter(numbers, start, took, ended, outcome, grid, time_edges, duration_edges)


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
    begin, end = (outer["end_ns"] - outer["duration_ns"]).to_numpy(), outer["end_ns"].to_numpy()
    width = max(1, -(-duration_ns // bins))
    times = np.concatenate((begin, end))
    change = np.repeat([1, -1], len(begin))
    order = np.lexsort((-change, times))  # who begins when another ends meets it
    level = np.cumsum(change[order])
    at = np.clip(times[order] // width, 0, bins - 1)
    most = np.zeros(bins, dtype=np.int64)
    np.maximum.at(most, at, level)
    last = np.searchsorted(times[order], np.arange(1, bins) * width) - 1  # what goes on from the bin before
    carried = np.where(last >= 0, np.append(level, 0)[last], 0)
    most[1:] = np.maximum(most[1:], carried)
    failed = np.clip(end[outer["failed"].to_numpy()] // width, 0, bins - 1)
    begun = np.bincount(np.clip(begin // width, 0, bins - 1), minlength=bins)
    return Flight(width, most, begun, np.bincount(failed, minlength=bins))


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


def _dots(requests: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The slowest requests and the slowest of those that failed, and all others."""
    slowest = requests.top_k(DOTS_OF_MANY, by="duration_ns")
    failed = requests.filter(pl.col("failed")).top_k(DOTS_OF_MANY, by="duration_ns")
    dots = pl.concat((slowest, failed)).unique("number", maintain_order=True)
    return dots, requests.join(dots.select("number"), on="number", how="anti")
