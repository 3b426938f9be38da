"""How many requests of a server (or a device) are late, by what its peers take.

A request is late if it took a multiple of what nine of ten took at the peers: the same service, asked with the same
method, on all other hosts. So bounds are found from histograms: those of all less the host's own (eight bins an octave,
so a bound is good to 9 %).

Cost: passes of the core over the requests (`tracer/core/spans/src/lateness.rs`), whatever the number of servers.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.findings.requests import Requests
from collector.stamps import UNSEEN, Longs, text_codes
from tracer import _core
from tracer.records import Columns

MOST_SHARE, LATE_RATIO = 0.9, 2.0
"""A request is late beyond this many times what this share of the peers' requests stays below."""
LEAST_OF_PEERS = 8
"""Requests of the peers; with fewer nothing is usual."""
RARE_SHARE = 0.02
"""Of a few requests none may be late; this many are taken to be."""
MOMENT_NS = 500_000_000
BINS_PER_OCTAVE = 8
_OF_SERVICE = ["service", "method"]
_AT_SERVER = ["server_host", *_OF_SERVICE]


class Timed:
    """Requests and how long their servers took for them."""

    def __init__(self, requests: Requests, group: NDArray[np.int32], own_ns: Longs, answered: Longs) -> None:
        """Arguments: all requests; the group of each, negative for one that is left out; what its server took; when it
        answered."""
        self.requests = requests
        self.times: Columns = {
            "group": group,
            "own_ns": own_ns,
            "critical_ns": requests.critical_ns,
            "asked_ns": requests.asked,
            "answered_ns": answered,
        }
        self.bins = pl.DataFrame(_core.count_bins(group, own_ns, BINS_PER_OCTAVE))


def lateness(timed: Timed, keys: list[str]) -> pl.DataFrame:
    """For each group of `keys` (a server, or a device of it) in a service: how many requests were late, and how many
    would be by what peers do. Requests without one of `keys` are left out.

    Returns: `keys`, `service`, `count`, `late_count`, `expected`, `spread` (standard deviation of that by chance),
    `moments` and `late_moments` (in how many stretches of `MOMENT_NS` they began), of the late ones `took` (median),
    `usual` (what nine of ten take elsewhere), `cost_ns` (beyond that, on critical paths), `from_trace_ns,
    to_trace_ns`; of the slowest one `connection_id, exchange_id`.
    """
    columns, alike = list(dict.fromkeys([*keys, *_AT_SERVER])), timed.requests.groups
    codes = [text_codes(alike[name]) for name in columns]
    number, first = _core.row_groups(codes)
    is_named = np.all([code != -1 for code in codes[: len(keys)]], axis=0)
    number = np.where(is_named, number, np.int32(-1))
    bins = timed.bins.with_columns(group=pl.Series(number).gather(timed.bins["group"]))
    bins = bins.filter(pl.col("group") >= 0).group_by("group", "bin", maintain_order=True).agg(pl.col("count").sum())
    groups = alike[first].select(columns).with_columns(group=pl.int_range(len(first), dtype=pl.Int32))
    counts = bins.group_by("group").agg(pl.col("count").sum())
    groups = groups.join(counts, on="group").join(
        _bounds(bins.join(groups, on="group")), on=_AT_SERVER, nulls_equal=True, maintain_order="left"
    )
    pools = groups.select(*keys, "service").unique(maintain_order=True).with_row_index("pool")
    groups = groups.join(pools, on=[*keys, "service"], nulls_equal=True, maintain_order="left")
    limit_ns, pool = _of_groups(groups, len(first))
    pool = np.where(number >= 0, pool[number], np.int32(-1))
    late = pl.DataFrame(_core.count_late(timed.times, limit_ns[number], pool, MOMENT_NS))
    slowest = timed.requests.frame(np.sort(late["slowest"].to_numpy()))
    slowest = slowest.select("connection_id", "exchange_id")[late["slowest"].arg_sort().arg_sort()]
    share = pl.col("late_share")
    every = groups.group_by("pool", maintain_order=True).agg(
        pl.col("count").sum(),
        expected=(pl.col("count") * share).sum(),
        spread=(pl.col("count") * share * (1 - share)).sum().sqrt(),
    )
    found = pl.concat([pools, every.drop("pool"), late.drop("slowest"), slowest], how="horizontal")
    return found.with_columns(
        pl.col("cost_ns").cast(pl.Int64),
        pl.col("took", "usual").fill_nan(None),
        pl.col("from_trace_ns", "to_trace_ns").replace(UNSEEN, None),
    )


def _of_groups(groups: pl.DataFrame, count: int) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """The limit and the pool of each of so many groups; none of those that are left out."""
    limit_ns, pool = np.full(count, np.inf), np.full(count, -1, np.int32)
    place = groups["group"].to_numpy()
    limit_ns[place], pool[place] = groups["limit"].to_numpy(), groups["pool"].to_numpy()
    return limit_ns, pool


def _bounds(bins: pl.DataFrame) -> pl.DataFrame:
    """For each server and method: `limit` (late beyond it), `late_share` (of the requests elsewhere).

    Arguments: how many requests (`count`) took so long (`bin`), by server and method.
    """
    one = _AT_SERVER
    mine = bins.group_by([*one, "bin"]).agg(mine=pl.col("count").sum())
    whole = mine.group_by([*_OF_SERVICE, "bin"]).agg(whole=pl.col("mine").sum())
    rest = (
        mine.select(one)
        .unique()
        .join(whole, on=_OF_SERVICE, nulls_equal=True)
        .join(mine, on=[*one, "bin"], how="left", nulls_equal=True)
        .with_columns(rest=pl.col("whole").cast(pl.Int64) - pl.col("mine").fill_null(0))
        .sort("bin")
    )
    rest = rest.with_columns(upto=pl.col("rest").cum_sum().over(one), all=pl.col("rest").sum().over(one))
    reached = rest.filter((pl.col("upto") >= MOST_SHARE * pl.col("all")) & (pl.col("all") >= LEAST_OF_PEERS))
    most = reached.group_by(one).agg(limit=LATE_RATIO * 2.0 ** ((pl.col("bin").min() + 1) / BINS_PER_OCTAVE))
    late = pl.col("rest").filter(2.0 ** (pl.col("bin") / BINS_PER_OCTAVE) >= pl.col("limit")).sum()
    shares = rest.join(most, on=one, nulls_equal=True).group_by(one).agg(
        pl.col("limit").first(), late_share=pl.max_horizontal(pl.lit(RARE_SHARE), late / pl.col("all").first())
    )  # fmt: skip
    return shares
