"""Findings about servers that answered nothing for a while.

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

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector import _core
from collector.findings.finding import Finding, times
from collector.findings.near_stalls import (
    LAST,
    WAITS,
    by_servers,
    near_stalls,
    order_of_codes,
    went_to_stalled_server,
    with_wait_ends,
)
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.findings.stream_answers import COLUMNS as STREAM_COLUMNS
from collector.findings.stream_answers import said_in_streams
from collector.findings.symptoms import Symptoms
from collector.findings.timeouts import fingerprint
from collector.hops.captured_until import CapturedUntil
from collector.services.ends import service_at
from collector.trace.durations import in_words
from collector.trace.threshold import threshold
from collector.trace.time_columns import UNSEEN, Int64Array, text_codes


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


def silent_servers(all_requests: Requests, seen: Observations, limits: AnswerThresholds) -> Iterable[Finding]:
    """A finding for each server that answered nothing for a while."""
    stalled = went_to_stalled_server(all_requests, limits.stall_least_ns)
    if not stalled.any():
        return
    said = said_in_streams(seen.streams(STREAM_COLUMNS) if seen.streams else ())
    stalls = pl.concat(
        _stalls(_owed_answers(_waiting(all_requests, some, seen.symptoms, seen.captured)), said, limits)
        for some in by_servers(
            all_requests, near_stalls(all_requests, stalled, seen, limits.stall_least_ns, limits.asking_most_share)
        )
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
    requests = with_wait_ends(rows, symptoms, captured)
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
    order = order[order_of_codes(number[order])]
    return order, np.flatnonzero(np.diff(number[order], prepend=-1))


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
