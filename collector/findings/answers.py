"""Findings about requests that got no answer, an incomplete one, or one that reports an error.

A server is silent if it sent no answer at all for a while although several requests waited for one: a dead process
whose kernel still accepts connections and acknowledges data. If it answered other requests meanwhile, the request is
merely unanswered; so it is if the server said something in a stream. If it waited itself, for another server or for the
request's body, it is not silent either; nor if one request waits for the answer that another one for the same target is
given (a cache that asks its origin once).
A server that speaks first on a connection is silent as long as it owes its greeting, and one that asks for the rest of
a request (MySQL's for another proof of who logs in) as long as it owes that word.

If messages cannot be read, each turn of a connection counts as a request. It expects an answer if nearly all other
turns were answered in much less time and the waiting ones were answered together, and if no other client was still
sending something all that time: a broker speaks to its consumers when a publisher has spoken. A silence is unusually
long in comparison with the other hosts of the same service and with the server's other answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace
from numpy.typing import NDArray

from collector import _core
from collector.findings.finding import Finding, evidence, times, was_or_were
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.findings.stream_answers import said_in_streams
from collector.findings.symptoms import FAILED, Symptoms
from collector.findings.timeouts import fingerprint
from collector.hops.captured_until import CapturedUntil
from collector.requests.results import StatusClass, answer_text, has_class
from collector.services.ends import end_name, service_at
from collector.trace.arrow import numbers
from collector.trace.durations import in_words
from collector.trace.threshold import threshold
from collector.trace.time_columns import UNSEEN, Int64Array, text_codes

LAST = np.iinfo(np.int64).max
ROWS_AT_ONCE = 1 << 16
"""Of requests with their targets in words."""
INSUFFICIENT_STORAGE = 507
"""RFC 4918 §11.5; Swift's servers answer it for a full or unmounted device."""

WAITS = [
    *("client_host", "server_host", "service", "exchange_id", "connection_id", "asked", "arrived", "asked_for_body"),
    *("answered", "given_up", "heard", "asking_ns", "own_ns", "target"),
]
"""The columns needed of requests that waited."""
_OF_FAILURES = (
    *("exchange_id", "parent_span_id", "client_host", *FAILED, "device", "begin", "answered", "ended", "given_up"),
    *("own_ns", "pause_ns", "critical_ns"),
)
"""The columns needed of requests that failed."""
_FATES = {
    "unanswered": (
        "warning",
        "unanswered_request",
        "not answered by the end of the capture",
        "read the server's log at that time; check that the process still runs (a kernel accepts for a hung one)",
    ),
    "cut": (
        "info",
        "incomplete_exchange",
        "cut off by the beginning or end of the capture, or not captured completely",
        "start the capture earlier, or end it later",
    ),
}
"""What became of an exchange: severity, kind, text, remedy."""


@dataclass(frozen=True, slots=True)
class AnswerThresholds:
    """By which a server counts as silent, and a failure as quick."""

    silent_least_ns: int = threshold(
        1_000_000_000, "chosen: a server that answers nothing for less than a second is merely slow"
    )
    silent_ratio: float = threshold(
        4.0, "chosen: a silence is so many times the longest stall of the other servers of the service"
    )
    asking_most_share: float = threshold(
        0.1, "chosen: a server that asked others for no more than this share of a wait was not held up by them"
    )
    waiting_least_count: int = threshold(
        2, "chosen: in the middle of a silence; a single request may be slow by itself"
    )
    slow_least_count: int = threshold(
        3, "chosen: so many slow requests at other times show a server that is slow, not one that fell silent once"
    )
    usual_least_turns_count: int = threshold(
        20,
        "chosen: in a protocol that cannot be read, a turn is known to expect an answer only if at least so many "
        "others were answered",
    )
    usual_turns_share: float = threshold(
        0.99,
        "chosen: and this share of them in much less time; otherwise a client may have sent something that needs "
        "no answer, as a subscriber does",
    )
    resumed_share: float = threshold(
        0.2, "chosen: a stopped process answers what waits as soon as it resumes, most within this share of the silence"
    )
    quick_failure_quantile: float = threshold(
        0.9, "chosen: a failure is quick if it took no longer than so many of the successful requests"
    )

    @property
    def stall_least_ns(self) -> int:
        """The shortest time without an answer that can count as a peer's longest stall."""
        return int(self.silent_least_ns / self.silent_ratio)


def find(seen: Observations, limits: AnswerThresholds) -> list[Finding]:
    """All findings about answers."""
    symptoms, requests = seen.symptoms, seen.requests
    silent = list(_silent_servers(requests, seen, limits))
    known = {(finding.host, finding.service) for finding in silent}
    of_turns = (replace(finding, span_id=None) for finding in _silent_servers(seen.turns, seen, limits))
    return [
        *silent,
        *(finding for finding in of_turns if (finding.host, finding.service) not in known),
        *_cut_exchanges(symptoms, requests),
        *_server_errors(symptoms, requests, limits),
    ]


def _went_to_stalled_server(requests: Requests, stall_least_ns: int) -> NDArray[np.bool_]:
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


def _near_stalls(
    requests: Requests, stalled: NDArray[np.bool_], seen: Observations, limits: AnswerThresholds
) -> NDArray[np.bool_]:
    """Which of these requests may be part of a stall of their server, or end one: those that were open when it answered
    nothing for a while, but for those that another server held up; of the latter those that may explain why one of the
    same target waited (`_not_held_up`).

    A silence ends with an answer that counts for certain: not on a connection of which nobody knows what was answered,
    and not at the time of one that had to wait for another server.
    """
    server, servers = _core.row_groups([requests.codes[name] for name in ("server_host", "service")])
    unseen, most = seen.symptoms.unseen["connection_id"].unique().to_numpy(), limits.asking_most_share
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
        _TimesByServer(server[requests.group[spoke]], requests.answered[spoke], len(servers)), limits.stall_least_ns
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


def _by_servers(requests: Requests, chosen: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
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
    until = _with_wait_ends(frame, seen.symptoms, seen.captured)["until"].to_numpy()
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
        order = order[_order_of_codes(server[order])]
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
    order = _order_of_codes(codes)
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in pairwise([*first.tolist(), len(order)]):
        yield int(codes[order[start]]), order[start:end]


def _early_waits(requests: Requests, stalled: NDArray[np.bool_]) -> Iterable[pl.DataFrame]:
    """`WAITS` of what some requests waited for before their server had all of them, each as if it were a request."""
    for name, (waited, due, said) in requests.early_waits().items():
        mine = stalled[waited]
        rows, since, until = waited[mine], pl.Series(due[mine]), pl.Series(said[mine])
        yield (
            requests.frame(rows, *WAITS).with_columns(
                asked=since,
                arrived=since,
                answered=until,
                own_ns=until - since,
                readable=pl.Series(requests.readable[rows]),
                accepted=pl.lit("connections" if name == "greeting" else "data"),
                asked_for_body=pl.lit(None, pl.Int64),
            )
        )


def _with_wait_ends(rows: pl.DataFrame, symptoms: Symptoms, captured: CapturedUntil) -> pl.DataFrame:
    """Requests with `until`, the end of each wait: the answer, or the end of the connection or of the captures."""
    ended = symptoms.ended.select("closed_ns", exchange_id="span_id")
    until = pl.min_horizontal("given_up", "closed_ns")
    seen_until = captured.of(rows.with_columns(came=pl.coalesce("arrived", "asked")), "came")
    return rows.join(ended, on="exchange_id", how="left", maintain_order="left").with_columns(
        until=pl.coalesce("answered", until, seen_until)
    )


def _around(
    requests: Requests, stalled: NDArray[np.bool_], row: dict[str, int], limits: AnswerThresholds
) -> NDArray[np.bool_]:
    """Which of these requests say something of a silence: those at its host that were open then, that nobody answered,
    that were answered first after it began, or that took nearly as long; without readable heads all of them."""
    host = pl.col("server_host") == row["server_host"]
    at_host = stalled & requests.where(host)
    if not row["readable"]:
        return at_host
    since, until, long_ns = row["since"], row["until"], int(row["stall"] / limits.silent_ratio)
    later = np.where(requests.answered > since, requests.answered, LAST)
    later[~(at_host & requests.where(pl.col("service") == row["service"]))] = LAST
    found = (requests.answered == UNSEEN) | (requests.own_ns >= long_ns) | (later == later.min(initial=LAST))
    found |= (requests.asked < until) & (requests.answered > since)
    for rows, due, said in requests.early_waits().values():
        at = at_host[rows]
        first = said[at & (said > since)].min(initial=LAST)
        found[rows[(said - due >= long_ns) | ((due < until) & (said > since)) | (said == first)]] = True
    return found & at_host


def _silent_servers(all_requests: Requests, seen: Observations, limits: AnswerThresholds) -> Iterable[Finding]:
    """A finding for each server that answered nothing for a while."""
    stalled = _went_to_stalled_server(all_requests, limits.stall_least_ns)
    if not stalled.any():
        return
    said = said_in_streams(seen.streams() if seen.streams else ())
    stalls = pl.concat(
        _stalls(_owed_answers(_waiting(all_requests, some, seen.symptoms, seen.captured)), said, limits)
        for some in _by_servers(all_requests, _near_stalls(all_requests, stalled, seen, limits))
    )
    meant = stalls.filter(pl.col("waiting") >= limits.waiting_least_count).sort(
        "stall", "exchange_id", descending=[True, False]
    )
    worst = meant.unique(["server_host", "service"], keep="first", maintain_order=True)
    peers = pl.col("stall").sort(descending=True).over("service")
    first, second = peers.first().over("service"), pl.col("stall").top_k(2).min().over("service")
    has_peers = pl.len().over("service") > 1
    others = pl.when(pl.col("stall") == first).then(pl.when(has_peers).then(second)).otherwise(first)
    worst = worst.with_columns(others=others.fill_null(0))
    for row in worst.filter(
        (pl.col("stall") >= limits.silent_least_ns) & (pl.col("stall") >= limits.silent_ratio * pl.col("others"))
    ).iter_rows(named=True):
        every = _waiting(all_requests, _around(all_requests, stalled, row, limits), seen.symptoms, seen.captured)
        requests = _owed_answers(every)
        if _slow_at_other_times(requests, row, limits):
            continue  # no silence, but slowness
        if not row["readable"] and (_waits_for_another(every, row) or not _owes_answers(requests, row, limits)):
            continue
        waits = _waits_within(requests, row, limits.silent_least_ns // 2)
        connection_id, span_id = _shown_request(requests, row)
        yield Finding(
            severity="warning",
            kind="server_silent",
            host=row["server_host"],
            service=row["service"],
            connection_id=connection_id,
            span_id=span_id,
            from_trace_ns=row["since"],
            to_trace_ns=_silent_until(requests, row),
            count=row["waiting"],
            cost_ns=sum(waits),
            text=f"{service_at(row['service'], row['server_host'])} answered nothing for {in_words(row['stall'])}, "
            f"while its kernel kept accepting {row['accepted']}: {times(row['waiting'], 'request')} waited, "
            f"the longest {in_words(max(waits, default=row['stall']))}"
            + fingerprint("answer", waits, [row["service"]]),
            remedy="check whether that process is stopped, hangs, swaps or waits for another one (ps -o stat,wchan; "
            "py-spy dump, gdb)",
        )


def _waiting(
    all_requests: Requests, stalled: NDArray[np.bool_], symptoms: Symptoms, captured: CapturedUntil
) -> pl.DataFrame:
    """What was asked of servers that stalled, with the end of each wait, on connections without holes."""
    shown = pl.Series("readable", all_requests.readable[stalled])
    whole = all_requests.frame(stalled, *WAITS).with_columns(shown, accepted=pl.lit("data"))
    rows = pl.concat([whole, *_early_waits(all_requests, stalled)])
    # The server's capture may have a hole where the answer left: then it was answered before it arrived.
    rows = rows.with_columns(answered=pl.coalesce("answered", "heard"))
    requests = _with_wait_ends(rows, symptoms, captured)
    # On a connection with holes nobody knows what was answered meanwhile.
    return requests.filter(~pl.col("connection_id").is_in(symptoms.unseen["connection_id"].unique().implode()))


def _owed_answers(requests: pl.DataFrame) -> pl.DataFrame:
    """Without the last that is said in an unknown protocol, which may want no answer."""
    return requests.filter(pl.col("readable") | pl.col("answered").is_not_null())


def _silent_until(requests: pl.DataFrame, row: dict[str, int]) -> int:
    """When the last of the requests ended that a silence left unanswered, before the server answered again."""
    there = requests.filter(
        (pl.col("server_host") == row["server_host"])
        & (pl.col("service") == row["service"])
        & (pl.col("until") > row["since"])
    )
    answered = there.filter(pl.col("answered") > row["since"])["answered"].to_list()
    silent = there.filter(pl.col("answered").is_null())["until"].to_list()
    return max([row["until"], *(until for until in silent if until <= min(answered, default=until))])


def _slow_at_other_times(requests: pl.DataFrame, row: dict[str, int], limits: AnswerThresholds) -> bool:
    """Whether the host took nearly as long for requests before or after the silence."""
    apart = (pl.col("until") <= row["since"]) | (pl.col("asked") >= row["until"])
    long = pl.col("own_ns") * limits.silent_ratio >= row["stall"]
    slow = requests.filter((pl.col("server_host") == row["server_host"]) & apart & long)
    return slow.height >= limits.slow_least_count


def _waits_for_another(requests: pl.DataFrame, row: dict[str, int]) -> bool:
    """Whether another client of a server, whose protocol cannot be read, was sending one message all through the
    silence: the server may have had nothing to say before its end."""
    mine = (pl.col("server_host") == row["server_host"]) & (pl.col("service") == row["service"])
    goes_on = (pl.col("asked") < row["since"]) & (pl.col("arrived") >= row["until"])
    return not requests.filter(mine & goes_on).is_empty()


def _owes_answers(requests: pl.DataFrame, row: dict[str, int], limits: AnswerThresholds) -> bool:
    """Whether a server whose protocol cannot be read usually answers soon, and answered all waiting turns together."""
    mine = requests.filter(
        (pl.col("server_host") == row["server_host"]) & (pl.col("service") == row["service"])
    ).with_columns(took=pl.col("answered") - pl.coalesce("arrived", "asked"))
    waiting = (
        (pl.col("asked") < row["until"]) & (pl.col("answered") >= row["until"]) & (2 * pl.col("took") >= row["stall"])
    )
    usual, late = mine.filter(~waiting), mine.filter(waiting)
    if len(usual) < limits.usual_least_turns_count:
        return False
    if late["connection_id"].n_unique() < limits.waiting_least_count:
        return False
    most = usual["took"].quantile(limits.usual_turns_share)
    at_once = (late["answered"] - row["until"] <= limits.resumed_share * row["stall"]).sum()
    return most is not None and most * limits.silent_ratio <= row["stall"] and 2 * at_once >= len(late)


def _waits_within(requests: pl.DataFrame, row: dict[str, int], least_ns: int) -> list[int]:
    """How long each request waited that was open during the server's silence; shorter waits than `least_ns` omitted."""
    until = pl.col("until")
    there = requests.filter(
        (pl.col("server_host") == row["server_host"])
        & (pl.col("service") == row["service"])
        & (pl.col("asked") < row["until"])
        & (until > row["since"])
    )
    waits = there.group_by("exchange_id", maintain_order=True).agg(wait=(until - pl.col("asked")).max())
    return [wait for wait in waits["wait"].to_list() if wait >= least_ns]


def _shown_request(requests: pl.DataFrame, row: dict[str, int]) -> tuple[int, int]:
    """Connection and id of the request whose answer ended a silence; if something in a stream did, of the first that
    waited then."""
    if row["exchange_id"] is None:
        is_open = (pl.col("asked") < row["until"]) & (pl.col("until") > row["since"])
        mine = (pl.col("server_host") == row["server_host"]) & (pl.col("service") == row["service"])
        row = requests.filter(mine & is_open).sort("asked", "exchange_id").row(0, named=True)
    return row["connection_id"], row["exchange_id"]


def _stalls(requests: pl.DataFrame, said: pl.DataFrame, limits: AnswerThresholds) -> pl.DataFrame:
    """Intervals between a server's answers in which requests waited: `since`, `until`, `stall` (ns), `waiting` (count).

    The answers are in order of time, and with them what the server said in streams (`said`). A stall begins with the
    previous answer, or with the first request still waiting.
    """
    for_body = pl.col("asked_for_body").is_not_null() & pl.col("answered").is_null()
    short = pl.col("answered").is_null() & (pl.col("until") - pl.col("asked") < limits.silent_least_ns)
    rows = _not_held_up(requests.filter(~for_body & ~short), limits).select(
        *("server_host", "service", "exchange_id", "connection_id", "until", "readable", "accepted"),
        arrived=pl.coalesce("arrived", "asked"),
        silent=pl.col("answered").is_null(),
    )
    rows = pl.concat([rows, _as_answers(said, rows)], how="diagonal")
    order, first = _by_server(rows)
    until, arrived = (rows[name].to_numpy()[order] for name in ("until", "arrived"))
    spoken = np.flatnonzero(~rows["silent"].to_numpy()[order])
    since = np.empty_like(until)
    for start, end in pairwise([*first.tolist(), len(order)]):
        since[start:end] = np.minimum.accumulate(arrived[start:end][::-1])[::-1]
        said = spoken[(spoken >= start) & (spoken < end - 1)]
        last = np.full(end - start, np.iinfo(np.int64).min)
        last[said + 1 - start] = until[said]
        since[start:end] = np.maximum(since[start:end], np.maximum.accumulate(last))
    long = np.flatnonzero(until - since >= limits.stall_least_ns)
    middle = since[long] + (until - since)[long] // 2
    waiting = np.empty(len(long), dtype=np.int64)
    for start, end in pairwise([*first.tolist(), len(order)]):
        here = (long >= start) & (long < end)
        if here.any():
            come = np.searchsorted(np.sort(arrived[start:end]), middle[here], side="right")
            waiting[here] = come - np.searchsorted(until[start:end], middle[here], side="right")
    found = rows[order[long]].with_columns(
        since=pl.Series(since[long]), stall=pl.Series((until - since)[long]), waiting=pl.Series(waiting)
    )
    return found[np.argsort(middle, kind="stable")]


def _as_answers(said: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """What servers of `rows` said in streams, as rows of their kind: answers for which nobody waited."""
    server = ["server_host", "service"]
    here = said.with_columns(pl.col(name).cast(rows.schema[name]) for name in server)
    return here.join(rows.select(server).unique(), on=server, maintain_order="left", how="semi").select(
        *server,
        until="at",
        readable=pl.lit(value=True),
        accepted=pl.lit("data"),
        arrived="at",
        silent=pl.lit(value=False),
    )


def _not_held_up(requests: pl.DataFrame, limits: AnswerThresholds) -> pl.DataFrame:
    """Those whose server did not wait itself, for another server that it asked for them or for a request of the same
    target that was there before."""
    place, most = ["server_host", "service", "target"], limits.asking_most_share
    rows = requests.with_row_index("place").with_columns(took=pl.col("until") - pl.col("asked"))
    asked = pl.col("asking_ns").fill_null(0) > most * pl.col("took")
    first = rows.filter(asked & pl.col("target").is_not_null() & pl.col("until").is_not_null())
    first = first.select(*place, "asked", answered_first="until").sort("asked")
    others = rows.filter(~asked).sort("asked")
    if not first.is_empty():
        others = others.join_asof(first, on="asked", by=place, check_sortedness=False)
        apart = (pl.col("until") - pl.col("answered_first")).abs()
        others = others.filter(~(apart <= most * pl.col("took")).fill_null(value=False))
    return others.sort("place").drop("place", "took", "answered_first", strict=False)


def _by_server(rows: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    """The rows ordered by server, then by `until`; and the index of each server's first row."""
    number, _ = _core.row_groups([text_codes(rows[name]) for name in ("server_host", "service")])
    order = np.argsort(rows["until"].to_numpy(), kind="stable")
    order = order[_order_of_codes(number[order])]
    return order, np.flatnonzero(np.diff(number[order], prepend=-1))


def _order_of_codes(codes: NDArray[np.int32]) -> Int64Array:
    """The rows by code; those of one in their order."""
    few = codes.max(initial=0) < 1 << 15  # then numpy uses a radix sort
    return np.argsort(codes.astype(np.int16 if few else np.int32), kind="stable")


def _cut_exchanges(symptoms: Symptoms, requests: Requests) -> Iterable[Finding]:
    """Findings about requests without a complete answer."""
    for row in symptoms.cut.iter_rows(named=True):
        severity, kind, text, remedy = _FATES[row["fate"]]
        wait = f", the longest wait {in_words(row['worst_ns'])}" if row["worst_ns"] else ""
        until = row["to_trace_ns"] if severity == "warning" else row["from_trace_ns"]
        waited = [row["worst_ns"]] if row["fate"] == "unanswered" else []
        yield Finding(
            severity=severity,
            kind=kind,
            host=row["server_host"],
            service=row["service"],
            count=row["count"],
            text=f"{times(row['count'], 'request')} from {end_name(row['client_host'])} to "
            f"{service_at(row['service'], row['server_host'])} {was_or_were(row['count'])} {text}{wait}"
            + fingerprint("answer", waited, [row["service"]]),
            remedy=remedy,
            failed_count=row["count"] if waited and row["client_host"] not in requests.serving else 0,
            **evidence(row | {"to_trace_ns": until}),
        )


def _server_errors(symptoms: Symptoms, requests: Requests, limits: AnswerThresholds) -> Iterable[Finding]:
    """Findings about answers that report an error of their server."""
    if symptoms.failed.is_empty():
        return
    failed = requests.frame(has_class(requests.exchanges, StatusClass.SERVER_ERROR), *_OF_FAILURES)
    devices = failed.group_by(FAILED).agg(
        pl.col("device").drop_nulls().unique().sort(), cost=pl.col("critical_ns").sum(), begin=pl.col("begin").min(),
        end=pl.col("ended").max(), clients=pl.col("client_host").cast(pl.String), took=pl.col("own_ns").median(),
    ).with_columns(pl.col("server_host", "service", "result").cast(pl.String))  # fmt: skip
    reasons, serving = _failed_call_words(requests, failed), requests.serving
    usual_ns = _usual_ns(requests, failed, limits)
    rows = symptoms.failed.join(devices, on=FAILED, how="left", nulls_equal=True)
    for row in rows.iter_rows(named=True):
        full, said = row["status"] == INSUFFICIENT_STORAGE, tuple(row[name] for name in FAILED)
        of = f" (device {', '.join(row['device'])})" if row["device"] and len(row["device"]) <= 2 else ""
        yield Finding(
            severity="warning",
            kind="disk_full" if full else "server_error",
            host=row["server_host"],
            service=row["service"],
            count=row["count"],
            failed_count=sum(client not in serving for client in row["clients"] or ()),
            text=f"{service_at(row['service'], row['server_host'])}{of} answered "
            f"{answer_text(row['status'], row['result'])} to "
            f"{times(row['count'], 'request')}"
            + (": its disk is full or not mounted" if full else reasons.get(said, "")),
            remedy="free space on that disk, or mount it (df, dmesg)"
            if full
            else "read that server's log at that time (errors, tracebacks), and dmesg of that host",
            devices=frozenset(row["device"] or ()),
            quick=row["took"] is not None and row["took"] <= usual_ns.get(row["service"], 0),
            **{**evidence(row), "cost_ns": row["cost"] or 0, "from_trace_ns": row["begin"] or row["from_trace_ns"],
               "to_trace_ns": row["end"] or row["to_trace_ns"]},
        )  # fmt: skip


def _usual_ns(requests: Requests, failed: pl.DataFrame, limits: AnswerThresholds) -> dict[str, float]:
    """By service: the duration below which most of its successful requests stay, for services with failures."""
    services = failed["service"].cast(pl.String).unique().implode()
    went_well = has_class(requests.exchanges, StatusClass.OK)
    well = requests.where(pl.col("service").cast(pl.String).is_in(services)) & went_well
    most = pl.col("own_ns").quantile(limits.quick_failure_quantile)
    took = requests.frame(well, "service", "own_ns").group_by(pl.col("service").cast(pl.String)).agg(most)
    return {service: most for service, most in took.iter_rows() if most is not None}


def _failed_call_words(requests: Requests, failed: pl.DataFrame) -> dict[tuple[object, ...], str]:
    """By server and status of `failed` requests: the calls to other servers that failed before most of them, as
    text."""
    given_up, _ = requests.given_up()
    vain = pl.concat([requests.frame(given_up, *_OF_FAILURES), failed]).unique("exchange_id", maintain_order=True)
    failed = failed.select("exchange_id", **{f"failed_{name}": name for name in FAILED})
    keys = [f"failed_{name}" for name in FAILED]
    groups = (
        vain.join(failed, left_on="parent_span_id", right_on="exchange_id")
        .with_columns(fate=fate_of_call(), waited=pl.col("given_up") - pl.col("begin") - pl.col("pause_ns"))
        .group_by(*keys, "service", "server_host", "fate")
        .agg(count=pl.col("parent_span_id").n_unique(), waited=pl.col("waited").max())
        .sort("count", "service", "server_host", "fate")
    )
    return {tuple(row[key] for key in keys): _call_words(row) for row in groups.iter_rows(named=True)}


def fate_of_call() -> pl.Expr:
    """What became of a call that failed, in words. The result of one that was given up may be its client's: gRPC's
    CANCEL."""
    said = pl.concat_str("status", "result", separator=" ", ignore_nulls=True)
    is_silent = pl.all_horizontal(pl.col("status", "result").is_null())
    was_left = pl.col("given_up").is_not_null()
    return (
        pl.when(was_left & pl.col("answered").is_not_null())
        .then(pl.lit("did not finish its answer"))
        .when(was_left | is_silent)
        .then(pl.lit("did not answer"))
        .otherwise(pl.format("answered {}", said))
    )


def _call_words(row: Mapping[str, Any]) -> str:
    """What happened to the calls of one group of `_failed_call_words`."""
    waited = f" for up to {in_words(row['waited'])}" if row["waited"] else ""
    server = service_at(row["service"], row["server_host"])
    return f"; {row['count']:,} of them after {server} {row['fate']}{waited}"
