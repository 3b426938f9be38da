"""Counts the late requests of a server (or a device), in comparison with its peers.

A request is late if it took a multiple of the time below which nine of ten stayed at the peers: the same service and
method on all other hosts, and the same operation (a `GET` may be S3's `GetObject` or `ListObjectsV2`, a `POST` any call
of gRPC, a `SELECT` any statement of that kind). The bounds come from histograms: that of all hosts minus the host's own
(eight bins an octave, so a bound is accurate to 9 %).

Cost: passes of the core over the requests (`collector/core/spans/src/lateness.rs`), whatever the number of servers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns
from collector.findings.requests import Requests
from collector.trace.threshold import threshold
from collector.trace.time_columns import UNSEEN, Int64Array

BINS_PER_OCTAVE = 8
Floats = NDArray[np.float64]
_OF_SERVICE = ["service", "method", "operation"]
_AT_SERVER = ["server_host", *_OF_SERVICE]


@dataclass(frozen=True, slots=True)
class LatenessThresholds:
    """By which a request counts as late."""

    usual_quantile: float = threshold(0.9, "chosen: the usual duration is that below which so many of the peers' stay")
    late_ratio: float = threshold(
        2.0, "chosen: a request is late if it took more than so many times the usual duration"
    )
    least_peers_count: int = threshold(8, "chosen: of fewer requests of the peers, no duration is usual")
    assumed_late_share: float = threshold(
        0.02, "chosen: the least share of late requests assumed at the peers; among a few requests there may be none"
    )
    moment_ns: int = threshold(
        500_000_000, "chosen: late requests that begin within one such interval may have one momentary reason"
    )


class Timed:
    """Requests, and how long their servers took."""

    def __init__(self, requests: Requests, group: NDArray[np.int32], own_ns: Int64Array, answered: Int64Array) -> None:
        """Arguments: all requests; the group of each, negative if omitted; its server's own time (ns); when it
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


def lateness(timed: Timed, keys: list[str], limits: LatenessThresholds) -> pl.DataFrame:
    """How many requests were late, and how many would be at the peers' rate, by `keys` (a server, or one of its
    devices) and service. Requests without one of `keys` are omitted.

    Returns: `keys`, `service`, `count`, `late_count`, `expected`, `spread` (standard deviation of `expected` by
    chance), `moments` and `late_moments` (in how many intervals of `moment_ns` all and the late ones began); for the
    late ones `took` (median), `usual` (the duration below which nine of ten stay elsewhere), `cost_ns` (beyond that, on
    critical paths), `from_trace_ns, to_trace_ns`; for the slowest one `connection_id, exchange_id`.
    """
    groups, codes = timed.requests.groups, timed.requests.codes
    named = np.all([codes[name] != -1 for name in keys], axis=0)
    limit_ns, share = _bounds(timed.bins.filter(pl.Series(named)[timed.bins["group"]]), codes, limits)
    count = np.bincount(timed.bins["group"], timed.bins["count"], len(groups))
    judged = np.flatnonzero(named & (count > 0) & np.isfinite(limit_ns))
    pool = np.full(len(groups), -1, np.int32)
    pool[judged], first = _core.row_groups([codes[name][judged] for name in (*keys, "service")])
    late = pl.DataFrame(_core.count_late(timed.times, limit_ns, pool, limits.moment_ns))
    slowest = late["slowest"].to_numpy()
    by_row = timed.requests.frame(np.sort(slowest), "connection_id", "exchange_id")

    def sum_by_time(of_group: NDArray[Any]) -> NDArray[Any]:
        return np.bincount(pool[judged], of_group[judged], len(first))

    pools = groups[judged[first]].select(*dict.fromkeys([*keys, "service"]))
    found = pl.concat([pools, late.drop("slowest"), by_row[np.argsort(np.argsort(slowest))]], how="horizontal")
    return found.with_columns(
        pl.col("cost_ns").cast(pl.Int64),
        pl.col("took", "usual").fill_nan(None),
        pl.col("from_trace_ns", "to_trace_ns").replace(UNSEEN, None),
        count=pl.Series(sum_by_time(count).astype(np.int64)),
        expected=pl.Series(sum_by_time(count * share)),
        spread=pl.Series(np.sqrt(sum_by_time(count * share * (1 - share)))),
    )


def _bounds(
    bins: pl.DataFrame, codes: Mapping[str, NDArray[np.int32]], limits: LatenessThresholds
) -> tuple[Floats, Floats]:
    """For each group, the duration beyond which its requests are late, and the share of late requests elsewhere;
    infinite and 0 if there are too few elsewhere.

    Arguments: `bins`, how many requests (`count`) of a `group` took how long (`bin`); server, service, method and
    operation of each group; thresholds.
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
    peers = whole[service[first]] - mine
    every = peers.sum(axis=1)
    most = (peers.cumsum(axis=1) >= limits.usual_quantile * every[:, None]).argmax(axis=1)
    late = np.arange(mine.shape[1]) > (most + round(BINS_PER_OCTAVE * log2(limits.late_ratio)))[:, None]
    usual_ns = 2.0 ** ((most + 1 + least) / BINS_PER_OCTAVE)
    is_known = every >= limits.least_peers_count
    share = np.maximum(limits.assumed_late_share, (peers * late).sum(axis=1) / np.maximum(every, 1))
    return np.where(is_known, limits.late_ratio * usual_ns, np.inf)[server], np.where(is_known, share, 0)[server]
