"""How many requests of a server (or a device) are late, by what its peers take.

A request is late if it took a multiple of what nine of ten took at the peers: the same service, asked with the same
method, on all other hosts. So bounds are found from histograms: those of all less the host's own (eight bins an octave,
so a bound is good to 9 %).

Cost: a pass over the requests for each set of keys, whatever the number of servers.
"""

import polars as pl

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
TIMED = (*_AT_SERVER, "own_ns", "critical_ns", "asked", "answered", "connection_id", "exchange_id")
"""What is asked of requests, besides what they are grouped by."""


def lateness(timed: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """For each group of `keys` (a server, or a device of it) in a service: how many requests were late, and how many
    would be by what peers do.

    Arguments: `timed`, requests with `own_ns`.
    Returns: `keys`, `service`, `count`, `late_count`, `expected`, `spread` (standard deviation of that by chance),
    `moments` and `late_moments` (in how many stretches of `MOMENT_NS` they began), of the late ones `took` (median),
    `usual` (what nine of ten take elsewhere), `cost_ns` (beyond that, on critical paths), `from_trace_ns,
    to_trace_ns`; of the slowest one `connection_id, exchange_id`.
    """
    group = [*keys, "service"]
    rows = timed.join(_bounds(timed), on=_AT_SERVER, nulls_equal=True)
    rows = rows.with_columns(late=pl.col("own_ns") > pl.col("limit"))
    slowest = pl.col("connection_id", "exchange_id").get(pl.col("own_ns").arg_max())
    moment = pl.col("asked") // MOMENT_NS
    every = rows.group_by(group).agg(
        pl.len().alias("count"),
        pl.col("late").sum().alias("late_count"),
        slowest,
        expected=pl.col("late_share").sum(),
        spread=(pl.col("late_share") * (1 - pl.col("late_share"))).sum().sqrt(),
        moments=moment.n_unique(),
    )
    late = rows.filter("late").with_columns(usual=pl.col("limit") / LATE_RATIO)
    beyond = pl.min_horizontal(pl.col("own_ns") - pl.col("usual"), pl.col("critical_ns").fill_null(0))
    told = late.group_by(group).agg(
        late_moments=moment.n_unique(),
        took=pl.col("own_ns").median(),
        usual=pl.col("usual").median(),
        cost_ns=beyond.sum().cast(pl.Int64),
        from_trace_ns=pl.col("asked").min(),
        to_trace_ns=pl.col("answered").max(),
    )
    none = pl.col("late_moments", "cost_ns").fill_null(0)
    return every.join(told, on=group, how="left", nulls_equal=True).with_columns(none)


def _bounds(timed: pl.DataFrame) -> pl.DataFrame:
    """For each server and method: `limit` (late beyond it), `late_share` (of the requests elsewhere)."""
    one = _AT_SERVER
    bins = timed.select(*one, bin=((pl.col("own_ns") + 1).log(2) * BINS_PER_OCTAVE).floor().cast(pl.Int32))
    mine = bins.group_by([*one, "bin"]).agg(mine=pl.len())
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
