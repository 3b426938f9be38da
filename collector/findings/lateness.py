"""How many requests of a server (or a device) are late, by what its peers take.

A request is late if it took a multiple of what nine of ten took at the peers: the same service, asked with the same
method, on all other hosts. So bounds are found from histograms: those of all less the host's own (eight bins an octave,
so a bound is good to 9 %).

Cost: passes of the core over the requests (`tracer/core/spans/src/lateness.rs`), whatever the number of servers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.findings.requests import Requests
from collector.trace.time_columns import UNSEEN, Int64Array
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
LATE_RATIO_BINS = 8
"""`LATE_RATIO`, in bins."""
Floats = NDArray[np.float64]
_OF_SERVICE = ["service", "method"]
_AT_SERVER = ["server_host", *_OF_SERVICE]


class Timed:
    """Requests and how long their servers took for them."""

    def __init__(self, requests: Requests, group: NDArray[np.int32], own_ns: Int64Array, answered: Int64Array) -> None:
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
    """For each pool of requests, those alike in `keys` (a server, or a device of it) and service: how many were late,
    and how many would be by what peers do. Requests without one of `keys` are left out.

    Returns: `keys`, `service`, `count`, `late_count`, `expected`, `spread` (standard deviation of that by chance),
    `moments` and `late_moments` (in how many stretches of `MOMENT_NS` they began), of the late ones `took` (median),
    `usual` (what nine of ten take elsewhere), `cost_ns` (beyond that, on critical paths), `from_trace_ns,
    to_trace_ns`; of the slowest one `connection_id, exchange_id`.
    """
    groups, codes = timed.requests.groups, timed.requests.codes
    named = np.all([codes[name] != -1 for name in keys], axis=0)
    limit_ns, share = _bounds(timed.bins.filter(pl.Series(named)[timed.bins["group"]]), codes)
    count = np.bincount(timed.bins["group"], timed.bins["count"], len(groups))
    judged = np.flatnonzero(named & (count > 0) & np.isfinite(limit_ns))
    pool = np.full(len(groups), -1, np.int32)
    pool[judged], first = _core.row_groups([codes[name][judged] for name in (*keys, "service")])
    late = pl.DataFrame(_core.count_late(timed.times, limit_ns, pool, MOMENT_NS))
    slowest = late["slowest"].to_numpy()
    by_row = timed.requests.frame(np.sort(slowest)).select("connection_id", "exchange_id")

    def summed(of_group: NDArray[Any]) -> NDArray[Any]:
        return np.bincount(pool[judged], of_group[judged], len(first))

    pools = groups[judged[first]].select(*dict.fromkeys([*keys, "service"]))
    found = pl.concat([pools, late.drop("slowest"), by_row[np.argsort(np.argsort(slowest))]], how="horizontal")
    return found.with_columns(
        pl.col("cost_ns").cast(pl.Int64),
        pl.col("took", "usual").fill_nan(None),
        pl.col("from_trace_ns", "to_trace_ns").replace(UNSEEN, None),
        count=pl.Series(summed(count).astype(np.int64)),
        expected=pl.Series(summed(count * share)),
        spread=pl.Series(np.sqrt(summed(count * share * (1 - share)))),
    )


def _bounds(bins: pl.DataFrame, codes: Mapping[str, NDArray[np.int32]]) -> tuple[Floats, Floats]:
    """Of each group, beyond what a request of it is late, and the share of the requests elsewhere that are; infinite
    and 0 where too few are.

    Arguments: how many requests (`count`) of a `group` took so long (`bin`); server, service and method of each group.
    """
    service = _core.row_groups([codes[name] for name in _OF_SERVICE])[0]
    server, first = _core.row_groups([codes[name] for name in _AT_SERVER])
    least = bins["bin"].min() if len(bins) else 0
    assert isinstance(least, int)
    bin_of, count = bins["bin"].to_numpy() - least, bins["count"].to_numpy()
    mine = np.zeros((len(first), int(bin_of.max(initial=0)) + 1), dtype=np.int64)
    np.add.at(mine, (server[bins["group"].to_numpy()], bin_of), count)
    whole = np.zeros((int(service.max(initial=0)) + 1, mine.shape[1]), dtype=np.int64)
    np.add.at(whole, service[first], mine)
    rest = whole[service[first]] - mine
    every = rest.sum(axis=1)
    most = (rest.cumsum(axis=1) >= MOST_SHARE * every[:, None]).argmax(axis=1)
    late = np.arange(mine.shape[1]) > (most + LATE_RATIO_BINS)[:, None]
    usual_ns = 2.0 ** ((most + 1 + least) / BINS_PER_OCTAVE)
    is_known = every >= LEAST_OF_PEERS
    share = np.maximum(RARE_SHARE, (rest * late).sum(axis=1) / np.maximum(every, 1))
    return np.where(is_known, LATE_RATIO * usual_ns, np.inf)[server], np.where(is_known, share, 0)[server]
