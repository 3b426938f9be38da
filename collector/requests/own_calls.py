"""Detects calls that a server's host makes by itself, without a request: loops that poll, and timers.

A follower of a log asks its leader for what is new, waits until there is something, and asks again at once; a member of
a cluster sends a heartbeat each second. If the host always has some request open, both find one at each call, as the
calls of requests do. What shows them is their own order:

- A loop has a call under way nearly all the time, each begins soon after the answer to the one before, and the calls
  pay no heed to the requests: they end before the requests that they began in no more often than at another time. Calls
  of requests end before their requests, also over the only connection of a pool that is always busy.
- A timer's calls begin at a beat, whatever requests arrive. A call that is made for a request that comes at a beat
  (a balancer's check) begins right after it.

Input: times of each exchange, as `collector.requests.parents` has them. Output: which of them are such calls; they get
no parent. Algorithm, for each connection over which a host that serves makes `LEAST_CALLS` calls or more:
1. Loop: calls are under way for `LEAST_BUSY_SHARE` of the time, without the longest gaps between them. Those that ended
   while a request was open in which they began are counted, and also how many would have if all had been made a few
   times the usual duration earlier or later (`SHIFTS`). It is a loop if fewer than `MOST_INSIDE_SHARE` lie inside,
   hardly more than at those other times (`LEAST_GAIN`), and calls do not follow requests (3).
2. Timer: nine of ten intervals between begins are within `BEAT_SHARE` of their median, which is `LEAST_BEAT_NS` or
   more, and calls do not follow requests.
3. Calls follow requests if the share that begins `SOON_NS` after the arrival of one exceeds that at other times by
   `LEAST_SOON_GAIN`. Where requests arrive often, half of the usual interval between them is soon.

Limits: a connection over which both a loop's and requests' calls go is none of these. Of a loop at a host whose
requests are nearly always longer than its calls, all lie inside; it is not recognised.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.requests.row_groups import rows_alike
from collector.trace.time_columns import UNSEEN, Int64Array

LEAST_CALLS = 10
"""Fewest calls of a connection that are judged."""
LEAST_BUSY_SHARE = 0.8
"""Chosen; 0.82 to 0.98 of followers of Kafka."""
USUAL_GAPS_SHARE = 0.95
"""Chosen: so many of the gaps between calls count, the shortest; in a longer one the process was stopped, or broken."""
MOST_INSIDE_SHARE = 0.98
"""Of calls that requests make, all lie inside but for those that outlast an abandoned request."""
LEAST_GAIN = 0.1
"""Chosen: by so much the share inside exceeds that at other times, where requests make the calls; at most 0.07 of 44
followers."""
SHIFTS, BEAT_SHIFTS = (-2.0, -1.3, 1.3, 2.0), (-0.4, -0.2, 0.2, 0.4)
"""Chosen: by so many times the usual call, and by so much of a beat."""
LEAST_REGULAR_SHARE = 0.9
BEAT_SHARE = 0.1
"""Chosen: a busy host delays a timer by some hundredths of a second."""
LEAST_BEAT_NS = 500_000_000
"""Chosen: requests of clients that follow each other at once have a beat, too, but a quick one."""
SOON_NS = 20_000_000
"""Chosen: a call that a check makes begins so soon after it."""
LEAST_SOON_GAIN = 0.3
"""Chosen: of 20 calls, 0.1 more or less are chance."""


def own_calls(
    connection: Int64Array,
    client: NDArray[np.int32],
    server: NDArray[np.int32],
    sent: Int64Array,
    arrived: Int64Array,
    answered: Int64Array,
    closed: Int64Array,
) -> NDArray[np.bool_]:
    """Whether each exchange is a call of a loop or of a timer.

    Arguments: of each exchange its connection; its hosts, -1 if unknown; and by one clock of a host each, in ns, when
    the client sent it, when it arrived, when its answer had arrived at the client, and when its server had answered.
    Unknown times are `UNSEEN`.
    """
    found = np.zeros(len(connection), dtype=np.bool_)
    served = np.flatnonzero((server >= 0) & (arrived != UNSEEN) & (closed != UNSEEN))
    made = np.flatnonzero(np.isin(client, np.unique(server[served])) & (sent != UNSEEN))
    made = made[np.isin(connection[made], _busy_or_slow(connection[made], sent[made], answered[made]))]
    requests = (
        {int(server[served[group[0]]]): served[group] for group in rows_alike(server[served])} if len(made) else {}
    )
    for of_host in rows_alike(client[made]):
        here = requests[int(client[made[of_host[0]]])]
        at_host = _Served(arrived[here], closed[here])
        calls = made[of_host]
        for of_connection in rows_alike(connection[calls]):
            mine = calls[of_connection]
            known = mine[answered[mine] != UNSEEN]
            found[mine] = _is_timer(sent[mine], at_host) or _is_loop(sent[known], answered[known], at_host)
    return found


def _busy_or_slow(connection: Int64Array, sent: Int64Array, answered: Int64Array) -> Int64Array:
    """Connections of `LEAST_CALLS` calls or more that a loop keeps busy, or whose calls have the pace of a timer: the
    others, which are nearly all, need not be judged one by one."""
    calls = pl.DataFrame({"connection": connection, "sent": sent, "answered": answered}).sort("connection", "sent")
    known = pl.when(pl.col("answered") != UNSEEN).then("answered")
    gaps = (pl.col("sent").shift(-1) - pl.col("ended")).clip(lower_bound=0).drop_nulls().sort()
    by_connection = (
        calls.with_columns(ended=known)
        .filter(pl.len().over("connection") >= LEAST_CALLS)
        .group_by("connection")
        .agg(
            beat=pl.col("sent").diff().median(),
            spent=(pl.col("ended") - pl.col("sent")).sum(),
            idle=gaps.head((USUAL_GAPS_SHARE * pl.len()).cast(pl.Int64)).sum(),
        )
    )
    busy = pl.col("spent") >= LEAST_BUSY_SHARE * (pl.col("spent") + pl.col("idle"))
    return by_connection.filter(busy | (pl.col("beat") >= LEAST_BEAT_NS))["connection"].to_numpy()


class _Served:
    """The requests that a host serves."""

    def __init__(self, arrived: Int64Array, closed: Int64Array) -> None:
        order = np.argsort(arrived, kind="stable")
        self._arrived = arrived[order]
        self._latest = np.maximum.accumulate(closed[order])
        usual_ns = int(np.median(np.diff(self._arrived))) if len(order) > 1 else SOON_NS
        self._soon_ns = min(SOON_NS, usual_ns // 2)

    def inside_share(self, begun: Int64Array, ended: Int64Array) -> float:
        """The share of these calls that lie inside a request."""
        before = np.searchsorted(self._arrived, begun, side="right")
        return float(((before > 0) & (self._latest[np.maximum(before, 1) - 1] >= ended)).mean())

    def soon_share(self, begun: Int64Array) -> float:
        """The share of these calls that begin soon after a request arrived."""
        before = np.searchsorted(self._arrived, begun, side="right")
        since = begun - self._arrived[np.maximum(before, 1) - 1]
        return float(((before > 0) & (since <= self._soon_ns)).mean())


def _is_loop(begun: Int64Array, ended: Int64Array, requests: _Served) -> bool:
    if len(begun) < LEAST_CALLS:
        return False
    order = np.argsort(begun, kind="stable")
    begun, ended = begun[order], ended[order]
    spent = ended - begun
    idle = np.sort(np.maximum(begun[1:] - ended[:-1], 0))[: round(USUAL_GAPS_SHARE * len(begun))]
    if int(spent.sum()) < LEAST_BUSY_SHARE * int(spent.sum() + idle.sum()):
        return False
    inside = requests.inside_share(begun, ended)
    usual = float(np.median(spent))
    shifts = [round(by * usual) for by in SHIFTS]
    by_chance = float(np.mean([requests.inside_share(begun + by, ended + by) for by in shifts]))
    if inside >= MOST_INSIDE_SHARE or inside - by_chance >= LEAST_GAIN:
        return False
    return not _follows_requests(begun, shifts, requests)


def _follows_requests(begun: Int64Array, shifts: list[int], requests: _Served) -> bool:
    """Whether calls begin soon after requests arrived, more often than at other times."""
    by_chance = float(np.mean([requests.soon_share(begun + by) for by in shifts]))
    return requests.soon_share(begun) - by_chance >= LEAST_SOON_GAIN


def _is_timer(begun: Int64Array, requests: _Served) -> bool:
    ordered = np.sort(begun)
    intervals = ordered[1:] - ordered[:-1]
    beat = round(float(np.median(intervals)))
    regular = float((np.abs(intervals - beat) <= BEAT_SHARE * beat).mean())
    if beat < LEAST_BEAT_NS or regular < LEAST_REGULAR_SHARE:
        return False
    return not _follows_requests(begun, [round(by * beat) for by in BEAT_SHIFTS], requests)
