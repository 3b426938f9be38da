"""Chooses, of all requests, those from which it can be seen whether a server fell silent: few of many.

A stall of a server is a time in which it answered nothing. Whether it was silent then is judged in
`collector.findings.silent_servers`, over rows with their targets in words; here only numbers of all requests are looked
at, a slice after the other. Times are trace times in ns.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector import _core
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.findings.symptoms import Symptoms
from collector.hops.captured_until import CapturedUntil
from collector.trace.arrow import numbers
from collector.trace.time_columns import UNSEEN, Int64Array

LAST = np.iinfo(np.int64).max
ROWS_AT_ONCE = 1 << 16
"""Of requests with their targets in words."""
WAITS = [
    *("client_host", "server_host", "service", "exchange_id", "connection_id", "asked", "arrived", "asked_for_body"),
    *("answered", "given_up", "heard", "asking_ns", "own_ns", "target"),
]
"""The columns needed of requests that waited."""


def went_to_stalled_server(requests: Requests, stall_least_ns: int) -> NDArray[np.bool_]:
    """Whether each request went to a server at which at least one request waited as long as a stall."""
    known = requests.where(pl.col("server_host").is_not_null())
    long = np.empty(len(known), dtype=np.bool_)
    for which, _ in requests.slices():
        asked, arrived, answered = (each[which] for each in (requests.asked, requests.arrived, requests.answered))
        arrived = np.where(arrived == UNSEEN, asked, arrived)
        known[which] &= asked != UNSEEN
        long[which] = (answered == UNSEEN) | (answered - arrived >= stall_least_ns)
    for rows, due, said in requests.early_waits().values():
        long[rows[said - due >= stall_least_ns]] = True
    some = np.zeros(len(requests.groups), dtype=np.bool_)
    some[requests.group[known & long]] = True
    server, servers = _core.row_groups([requests.codes[name] for name in ("server_host", "service")])
    at_server = np.zeros(len(servers), dtype=np.bool_)
    at_server[server[some]] = True
    return known & at_server[server][requests.group]


def near_stalls(
    requests: Requests, stalled: NDArray[np.bool_], seen: Observations, stall_least_ns: int, asking_most_share: float
) -> NDArray[np.bool_]:
    """Which of these requests may be part of a stall of their server, or end one: those that were open when it answered
    nothing for a while, but for those that another server held up; of the latter those that may explain why one of the
    same target waited (`collector.findings.silent_servers`).

    A silence ends with an answer that counts for certain: not on a connection of which nobody knows what was answered,
    and not at the time of one that had to wait for another server.
    """
    server, servers = _core.row_groups([requests.codes[name] for name in ("server_host", "service")])
    unseen, most = seen.symptoms.unseen["connection_id"].unique().to_numpy(), asking_most_share
    held_up, spoke = np.zeros(len(stalled), dtype=np.bool_), np.zeros(len(stalled), dtype=np.bool_)
    for which, part in requests.slices():
        is_answered = stalled[which] & (requests.answered[which] != UNSEEN)
        took_ns = requests.answered[which] - requests.asked[which]
        held_up[which] = is_answered & (requests.asking_ns[which] > most * took_ns)
        spoke[which] = is_answered & ~held_up[which]
        if len(unseen):
            spoke[which] &= ~np.isin(numbers(part["connection_id"]), unseen)
    others = _TimesByServer(*_held_up_until(requests, stalled, held_up, server, seen), len(servers))
    for which, _ in requests.slices():
        rows = which.start + np.flatnonzero(spoke[which])
        answered = requests.answered[rows]
        around = np.ceil(most * (answered - requests.asked[rows])).astype(np.int64)
        of = server[requests.group[rows]]
        spoke[rows] = others.counts(of, answered - around, answered + around) == 0
    silences = _Silences(
        _TimesByServer(server[requests.group[spoke]], requests.answered[spoke], len(servers)), stall_least_ns
    )
    near = np.zeros(len(stalled), dtype=np.bool_)
    for which, _ in requests.slices():
        asked, arrived, answered = (each[which] for each in (requests.asked, requests.arrived, requests.answered))
        since, until = np.where(arrived == UNSEEN, asked, arrived), np.where(answered == UNSEEN, LAST, answered)
        since = np.minimum(np.minimum(since, asked), until)
        near[which] = silences.meet(server[requests.group[which]], since, until) & ~held_up[which]
    for rows, due, said in requests.early_waits().values():
        near[rows[silences.meet(server[requests.group[rows]], due, said)]] = True
        held_up[rows[requests.asking_ns[rows] > 0]] = True
    near &= stalled
    held_up &= stalled
    return near | _of_same_targets(requests, held_up, near) if held_up.any() else near


def by_servers(requests: Requests, chosen: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """The chosen requests, of some servers at a time: about `ROWS_AT_ONCE`, or more of one server."""
    server, servers = _core.row_groups([requests.codes[name] for name in ("server_host", "service")])
    count = np.zeros(len(servers), dtype=np.int64)
    for which, _ in requests.slices():
        count += np.bincount(server[requests.group[which][chosen[which]]], minlength=len(servers))
    number = np.cumsum(count) // ROWS_AT_ONCE
    for each in np.unique(number):
        yield chosen & (number == each)[server][requests.group]


def _held_up_until(
    requests: Requests,
    stalled: NDArray[np.bool_],
    held_up: NDArray[np.bool_],
    server: NDArray[np.int32],
    seen: Observations,
) -> tuple[NDArray[np.int32], Int64Array]:
    """Of each request that may have waited for another server: its own server, and until when it waited.

    Arguments: `held_up`, those that were answered and did; the number of each group's server.
    """
    asking = stalled & (requests.asking_ns > 0)
    unanswered = np.flatnonzero(asking & (requests.answered == UNSEEN))
    frame = requests.frame(unanswered, *WAITS).with_columns(answered=pl.coalesce("answered", "heard"))
    early = [(rows[asking[rows]], said[asking[rows]]) for rows, _, said in requests.early_waits().values()]
    rows = np.concatenate([np.flatnonzero(held_up), unanswered, *(rows for rows, _ in early)])
    until = with_wait_ends(frame, seen.symptoms, seen.captured)["until"].to_numpy()
    return server[requests.group[rows]], np.concatenate([requests.answered[held_up], until, *(at for _, at in early)])


def _of_same_targets(requests: Requests, chosen: NDArray[np.bool_], others: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the chosen requests were for the same target, at the same server, as one of the others."""
    of = ("server_host", "service", "target")
    wanted = requests.frame(others, *of).drop_nulls("target").unique()
    found = np.zeros(len(chosen), dtype=np.bool_)
    for which, _ in requests.slices():
        rows = which.start + np.flatnonzero(chosen[which])
        alike = requests.frame(rows, *of).with_row_index("place").join(wanted, on=of, how="semi", nulls_equal=True)
        found[rows[alike["place"].to_numpy()]] = True
    return found


class _TimesByServer:
    """Moments of servers, ascending for each."""

    def __init__(self, server: NDArray[np.int32], at_ns: Int64Array, servers_count: int) -> None:
        order = np.argsort(at_ns, kind="stable")
        order = order[order_of_codes(server[order])]
        server, at_ns = server[order], at_ns[order]
        ends = np.searchsorted(server, np.arange(servers_count + 1)).tolist()
        self.of = [at_ns[start:end] for start, end in pairwise(ends)]

    def counts(self, server: NDArray[np.int32], since: Int64Array, until: Int64Array) -> Int64Array:
        """How many moments of its server each interval of time has."""
        found = np.empty(len(server), dtype=np.int64)
        for of, rows in _rows_by_code(server):
            last = np.searchsorted(self.of[of], until[rows], side="right")
            found[rows] = last - np.searchsorted(self.of[of], since[rows])
        return found


class _Silences:
    """When servers said nothing for a while: between two of their answers, before the first and after the last."""

    def __init__(self, answers: _TimesByServer, least_ns: int) -> None:
        self._begin: list[Int64Array] = []
        self._end: list[Int64Array] = []
        for at_ns in answers.of:
            long = np.flatnonzero(np.diff(at_ns) >= least_ns)
            self._begin.append(np.concatenate([[UNSEEN], at_ns[long], at_ns[-1:]]))
            self._end.append(np.concatenate([at_ns[:1], at_ns[long + 1], [LAST]]))

    def meet(self, server: NDArray[np.int32], since: Int64Array, until: Int64Array) -> NDArray[np.bool_]:
        """Whether each interval of time shares a moment with a silence of its server."""
        found = np.empty(len(server), dtype=np.bool_)
        for of, rows in _rows_by_code(server):
            found[rows] = self._begin[of][np.searchsorted(self._end[of], since[rows])] <= until[rows]
        return found


def _rows_by_code(codes: NDArray[np.int32]) -> Iterator[tuple[int, Int64Array]]:
    """Each code that occurs, and its rows."""
    order = order_of_codes(codes)
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in pairwise([*first.tolist(), len(order)]):
        yield int(codes[order[start]]), order[start:end]


def with_wait_ends(rows: pl.DataFrame, symptoms: Symptoms, captured: CapturedUntil) -> pl.DataFrame:
    """Requests with `until`, the end of each wait: the answer, or the end of the connection or of the captures."""
    ended = symptoms.ended.select("closed_ns", exchange_id="span_id")
    until = pl.min_horizontal("given_up", "closed_ns")
    seen_until = captured.of(rows.with_columns(came=pl.coalesce("arrived", "asked")), "came")
    return rows.join(ended, on="exchange_id", how="left", maintain_order="left").with_columns(
        until=pl.coalesce("answered", until, seen_until)
    )


def order_of_codes(codes: NDArray[np.int32]) -> Int64Array:
    """The rows by code; those of one in their order."""
    few = codes.max(initial=0) < 1 << 15  # then numpy uses a radix sort
    return np.argsort(codes.astype(np.int16 if few else np.int32), kind="stable")
