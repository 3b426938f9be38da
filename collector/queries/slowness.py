"""When requests were slow: over time, how many times as long as usual the slowest one under way took.

Usual is the median of a request's class (`collector.queries.request_table`); of a class with fewer than `FEWEST`
nothing is usual. Only clients' own requests count; those that failed count as they are, abandoned ones are left out:
how long their clients waited says nothing of the servers.

Algorithm: each request sets the bins that it covers to its ratio, if that is larger. It sets two overlapping runs of
2^k bins, which together are those; then each level is handed down to the one of half the length. So the cost is that of
the requests and of bins × log(bins), however long requests are.
"""

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.requests.outcomes import is_abandoned

FEWEST = 5


class Slowness(Struct, frozen=True):
    """One element a bin, each of `bin_ns`, from the trace's start on."""

    bin_ns: int
    ratio: NDArray[np.float32]  # 0 where no request was under way that has others of its class


def slowness(requests: pl.DataFrame, duration_ns: int, bins: int) -> Slowness:
    """When the requests of a frame from `request_table` were slow, over a trace that is so long."""
    own = requests.lazy().filter(pl.col("outermost") & ~is_abandoned() & (pl.col("duration_ns") > 0))
    own = own.select("end_ns", "duration_ns", "class")
    classes = own.group_by("class").agg(usual=pl.col("duration_ns").median(), alike=pl.len())
    usual = classes.filter(pl.col("alike") >= FEWEST).select("class", "usual")
    rows = own.join(usual, on="class").select("end_ns", "duration_ns", ratio=pl.col("duration_ns") / pl.col("usual"))
    known = rows.collect()
    width = max(1, -(-duration_ns // bins))
    edges = known.select(pl.col("end_ns") - pl.col("duration_ns"), end="end_ns").to_numpy() // width
    first, last = np.clip(edges, 0, bins - 1).astype(np.int64).T
    return Slowness(width, _largest_over(first, last, known["ratio"].to_numpy(), bins))


def _largest_over(
    first: NDArray[np.int64], last: NDArray[np.int64], values: NDArray[np.float64], bins: int
) -> NDArray[np.float32]:
    """The largest of the values that cover each bin, from `first` to `last`; 0 where none does."""
    level = np.frexp(last - first + 1)[1] - 1  # 2^level is at most the number of bins
    runs = np.zeros((bins.bit_length(), bins), dtype=np.float32)
    for begin in (first, last - (1 << level) + 1):
        np.maximum.at(runs, (level, begin), values)
    for power in range(len(runs) - 1, 0, -1):
        half = 1 << (power - 1)
        runs[power - 1] = np.maximum(runs[power - 1], runs[power])
        runs[power - 1][half:] = np.maximum(runs[power - 1][half:], runs[power][:-half])
    return runs[0]
