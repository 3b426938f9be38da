"""Findings about requests that one side ended before the answer was complete (`collector.requests.endings`).

- `server_died`: the server's side ended several connections at one moment, each with FIN or RST instead of an answer.
  When a process ends, its kernel closes all its connections within a moment, no matter when each request was sent. A
  server that ends requests one by one (a limit, a `return 444`) does so after the same wait for each, and answers other
  requests in between: that is no death. A single connection is enough if the server's port refused a connection soon
  afterwards and no request was answered in between: then nobody listens there any more.
- `truncated_response`: the server closed the connection before it had sent as many bytes as announced, or what ends the
  answer.
- `connection_reset`, `unanswered_request`: the server's side reset or closed one connection, and no others then.
  Streams of HTTP/2 that were all reset after the same wait had a limit: gRPC's server knows the deadline of its client.
- `client_gave_up`: the client left first. If several requests ended after the same wait at different moments, the wait
  is the client's limit; a few such waits are chance where it waits longer for other answers of that server (a process
  that ends leaves its long poll). If they ended at one moment, the client itself ended or was stopped, which proves
  nothing about the server. A call that its caller abandoned because another call of the same request was answered (a
  surplus replica, a hedged read) needed no answer if that request then succeeded. If the request waited for the call,
  that wait is its cost, even if a second try succeeded.

Limits: if nobody tries to connect soon afterwards, or a supervisor has restarted the process by then, a connection
ended by a dying process cannot be distinguished from one ended on purpose. In a protocol without visible heads a
server's FIN may answer a goodbye: it counts only if several connections ended together, or the port refused connections
afterwards.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from collector import _core
from collector.findings.finding import Finding, SeverityThresholds, times, was_or_were
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.findings.timeouts import fingerprint
from collector.requests.critical_path import NONE
from collector.requests.endings import BY_CLIENT, Ending
from collector.requests.exchanges import UNKNOWN
from collector.requests.hedged_calls import FIRST_ERROR_STATUS, MAX_WASTED_SHARE
from collector.requests.protocols import MULTIPLEXED
from collector.services.ends import end_name, service_at
from collector.trace.durations import in_words
from collector.trace.schema import ID_STRIDE_BITS
from collector.trace.threshold import threshold
from collector.trace.time_columns import UNSEEN, Int64Array

SILENT_REMEDY = (
    "check whether that process is stopped, hangs or is slow (ps -o stat,wchan; its log); or raise the client's timeout"
)
GROUP = ("client_host", "server_host", "service")
RESETS = (Ending.SERVER_RESET, Ending.SERVER_RESET_STREAM)


@dataclass(frozen=True, slots=True)
class EndingThresholds:
    """By which a server's end and a client's limit are recognised."""

    process_end_within_ns: int = threshold(
        1_000_000_000,
        "all connections of a process that ends are closed within this time: a kernel takes microseconds for each, a "
        "supervisor that ends several workers one by one takes longer",
    )
    process_end_most_gap_ns: int = threshold(250_000_000, "chosen: and with no longer gap between two of them")
    process_end_least_count: int = threshold(
        2, "chosen: so many connections ended at one moment; a single one may have a reason of its own"
    )
    refused_within_ns: int = threshold(
        10_000_000_000, "chosen: if a port refuses connections so soon after one was ended, its process ended then"
    )
    owed_least_ns: int = threshold(
        5_000_000,
        "chosen: without visible heads, a request that waited so long expected an answer, not just the end of its "
        "connection",
    )
    same_wait_share: float = threshold(
        0.05, "chosen: waits have one length, a client's limit, if most lie within this share of their median"
    )
    same_wait_within_ns: int = threshold(20_000_000, "chosen: or within so much, which a busy host may add to a timer")
    same_wait_least_count: int = threshold(2, "chosen: a single wait shows no limit")
    equal_waits_least_count: int = threshold(
        5, "chosen: nor do fewer, if as many requests of that client were answered there after a longer wait"
    )
    client_limit_least_ns: int = threshold(20_000_000, "chosen: no client's timeout is shorter")
    unanswered_share: float = threshold(
        0.5, "chosen: if this share of a client's requests to a server is never answered, the trouble is the server's"
    )
    needless_share: float = threshold(
        MAX_WASTED_SHARE,
        "chosen: a call was left because another was answered if it waited after that for a smaller share of its whole "
        "wait",
    )


class _Words(Struct, frozen=True):
    """The wording for a group of requests that one side ended."""

    kind: str
    text: str
    remedy: str


_CLOSED = _Words(
    "unanswered_request",
    "closed by the server without an answer",
    "read the server's log at that time: it accepted the request and closed the connection (a crash, a limit)",
)
_STALE = _Words(
    "unanswered_request",
    "sent on a kept connection that the server had already closed",
    "let clients close idle connections sooner than the server does (keep-alive timeouts), or retry",
)
_RESET = _Words(
    "connection_reset",
    "broken off by a reset before the answer was complete",
    "read the log of the side that sent the RST at that time",
)
_STREAM_LIMIT = _Words(
    "connection_reset",
    "broken off by the server before the answer was complete, each after about {} (a limit of its own, or the deadline "
    "that its client sent)",
    "find why the server needs so long; or raise that limit",
)
_TRUNCATED = _Words(
    "truncated_response",
    "answered with less than the answer's head announced: the server closed the connection early",
    "read the server's log at that time: the program that generates the answer failed or was stopped",
)
_WITHOUT_END = replace(_TRUNCATED, text="answered without the answer's end: the server closed the connection early")


def find(seen: Observations, limits: EndingThresholds) -> list[Finding]:
    """All findings about requests that one side ended early."""
    requests, unusable = seen.requests, seen.symptoms.unusable_connections
    ended = _owed_requests(seen.symptoms.ended, requests, limits)
    if ended.is_empty():
        return []
    by_server = ended.filter(~pl.col("ending").is_in(BY_CLIENT))
    deaths = list(_deaths(by_server, requests, unusable, limits))
    of_deaths = [span for death in deaths for span in death.rows["span_id"].to_list()]
    alone = by_server.filter(pl.col("readable") | pl.col("ending").is_in(RESETS))
    alone = alone.filter(~pl.col("span_id").is_in(of_deaths))
    return [
        *(_death_finding(death) for death in deaths),
        *_ended_by_server(alone, limits),
        *_abandoned_requests(ended.filter(pl.col("ending").is_in(BY_CLIENT)), requests, limits, seen.severity),
    ]


def _owed_requests(ended: pl.DataFrame, requests: Requests, limits: EndingThresholds) -> pl.DataFrame:
    """The requests that expected an answer: in a protocol without visible heads, not every message does."""
    readable = pl.col("protocol") != UNKNOWN
    silent, left = pl.col("response_bytes").is_null(), pl.col("ending").is_in(BY_CLIENT)
    waited = pl.col("outcome").is_in(["waited", "abandoned"])
    rows = ended.with_columns(
        own=~pl.col("client_host").fill_null("").is_in([*requests.serving]),
        flowing=_was_flowing(limits.client_limit_least_ns),
        readable=readable,
        silent=silent,
        waited_ns=(pl.col("closed_ns") - pl.col("asked_ns")).clip(0).fill_null(0),
    )
    answers = requests.groups.filter(pl.col("answered") > 0).select(
        pl.col("server_host", "service").cast(pl.String), answers=True
    )
    rows = rows.join(
        answers.unique(), on=["server_host", "service"], how="left", nulls_equal=True, maintain_order="left"
    )
    counted = requests.groups.select(pl.col(GROUP).cast(pl.String), "count")
    totals = counted.group_by(GROUP).agg(total=pl.col("count").sum())
    rows = rows.join(totals, on=GROUP, how="left", nulls_equal=True, maintain_order="left")
    rows = rows.join(
        _needless_calls(requests, rows, limits.needless_share), on="span_id", maintain_order="left"
    )  # no stream is a request
    counts = readable | pl.when(left).then(waited & pl.col("answers").fill_null(value=False)).otherwise(silent)
    return rows.filter(counts)


def _was_flowing(within_ns: int) -> pl.Expr:
    """Whether the answer was arriving when the client left, as players and browsers do: nobody waited for the rest."""
    begun = pl.col("first_ns") < pl.col("closed_ns")
    return (begun & (pl.col("last_ns") >= pl.col("closed_ns") - within_ns)).fill_null(value=False)


def _needless_calls(requests: Requests, ended: pl.DataFrame, share: float) -> pl.DataFrame:
    """`span_id, for_another, needless`: whether a request was made for another one that succeeded nevertheless, and
    whether that one did not wait for it, since another of its calls had been answered."""
    ids = requests.exchange_id
    (rows,) = _core.places(ids, [ended["span_id"].to_numpy()], ID_STRIDE_BITS)
    rows = np.unique(rows[rows != NONE])
    parent = requests.parent[rows]
    status = np.where(parent == NONE, 0, requests.statuses()[parent])
    went_well = (parent != NONE) & (status >= 200) & (status < FIRST_ERROR_STATUS)
    known = pl.DataFrame({"span_id": ids[rows], "parent": parent, "for_another": went_well})
    left = known.join(ended.select("span_id", "closed_ns", "waited_ns"), on="span_id", maintain_order="left")
    has_left = np.zeros(len(ids) + 1, dtype=np.bool_)  # the last one stands for no parent
    has_left[parent[went_well]] = True
    siblings = np.flatnonzero(has_left[requests.parent] & (requests.answered != UNSEEN))
    answers = pl.DataFrame({"parent": requests.parent[siblings], "answered_ns": requests.ended[siblings]})
    before = pl.col("answered_ns") <= pl.col("closed_ns")
    last = left.join(answers, on="parent").filter(before).group_by("span_id").agg(pl.col("answered_ns").max())
    in_vain = pl.col("closed_ns") - pl.col("answered_ns") < share * pl.col("waited_ns")
    needless = pl.col("for_another") & in_vain.fill_null(value=False)
    return left.join(last, on="span_id", how="left", maintain_order="left").select(
        "span_id", "for_another", needless=needless
    )


class _Death(Struct, frozen=True):
    """Requests that failed because a server ended, and how many connections its port refused soon after."""

    rows: pl.DataFrame
    refused_count: int


def _deaths(
    by_server: pl.DataFrame, requests: Requests, unusable: pl.DataFrame, limits: EndingThresholds
) -> Iterator[_Death]:
    """Requests that failed because a server ended: those without an answer, and those that it was answering then.

    Arguments: `unusable`, from `collector.hops.failed_connections.unusable_connections`; thresholds.
    """
    owed = pl.col("readable") | (pl.col("waited_ns") >= limits.owed_least_ns)
    of_connections = ~pl.col("ending").is_in([Ending.STALE, Ending.SERVER_RESET_STREAM])
    fresh = by_server.filter(of_connections & owed).sort("closed_ns", "span_id")
    for (host, service), mine in fresh.group_by("server_host", "service", maintain_order=True):
        silent = mine.filter(pl.col("silent"))
        at_server = _at_server(requests, host, service)
        for moment in _moments(silent, limits.process_end_most_gap_ns):
            gone = _ended_before_refusal(moment, requests.answered[at_server], unusable, limits)
            if gone is None and not _is_death(moment, requests, at_server, limits):
                continue
            taken, refused = gone or (moment, 0)
            first, last = taken["closed_ns"].min(), taken["closed_ns"].max()
            yield _Death(mine.filter(pl.col("closed_ns").is_between(first, last)), refused)


def _ended_before_refusal(
    moment: pl.DataFrame, answered: Int64Array, unusable: pl.DataFrame, limits: EndingThresholds
) -> tuple[pl.DataFrame, int] | None:
    """The requests that a server ended before its port refused connections, and how many it refused; None if none.

    Arguments: `answered`, when the server answered each request, `UNSEEN` for others: requests that it ended before it
    answered another one are omitted.
    """
    last = int(moment["closed_ns"].to_numpy().max())
    place = pl.format("{}:{}", "server", "server_port")
    soon = pl.col("began_ns").is_between(last, last + limits.refused_within_ns) & pl.col("refused_ns").is_not_null()
    refused = unusable.filter(place.is_in(moment["place"].unique().to_list()) & soon)
    if refused.is_empty():
        return None
    before = answered[(answered != UNSEEN) & (answered < int(refused["began_ns"].to_numpy().min()))]
    taken = moment.filter(pl.col("closed_ns") >= int(before.max(initial=0)))
    return None if taken.is_empty() else (taken, len(refused))


def _moments(rows: pl.DataFrame, most_gap_ns: int) -> Iterator[pl.DataFrame]:
    """Rows, which are in order of `closed_ns`, split where no connection was closed for a while."""
    apart = pl.col("closed_ns").diff().fill_null(0) > most_gap_ns
    numbered = rows.with_columns(moment=apart.cast(pl.Int64).cum_sum())
    for _, moment in numbered.group_by("moment", maintain_order=True):
        yield moment.drop("moment")


def _at_server(requests: Requests, host: object, service: object) -> NDArray[np.bool_]:
    """Whether each request went to a given service of a host."""
    return requests.where(
        pl.col("server_host").cast(pl.String).eq_missing(pl.lit(host, pl.String))
        & pl.col("service").cast(pl.String).eq_missing(pl.lit(service, pl.String))
    )


def _is_death(moment: pl.DataFrame, requests: Requests, at_server: NDArray[np.bool_], limits: EndingThresholds) -> bool:
    """Whether these requests ended together because their server ended: their waits differ, and no request that arrived
    after the first of them was answered before the last."""
    closed, waited = moment["closed_ns"].to_numpy(), moment["waited_ns"].to_numpy()
    if moment["connection_id"].n_unique() < limits.process_end_least_count:
        return False
    if np.ptp(closed) > limits.process_end_within_ns:
        return False
    if np.ptp(closed) >= np.ptp(waited):
        return False
    answered = at_server & (requests.answered != UNSEEN) & (requests.answered < closed.max())
    return not bool((answered & (requests.asked > closed.min())).any())


def _death_finding(found: _Death) -> Finding:
    death = found.rows
    worst = death.sort("waited_ns", "span_id", descending=[True, False]).row(0, named=True)
    waits = death["waited_ns"].to_list()
    first, last = death["closed_ns"].to_list()[0], death["closed_ns"].to_list()[-1]
    how = "RST" if (death["ending"] == Ending.SERVER_RESET).all() else "FIN"
    how = "FIN or RST" if death["ending"].n_unique() > 1 else how
    connections = death["connection_id"].n_unique()
    within = f" within {in_words(max(1, last - first))}, each" if connections > 1 else ""
    after = f", and refused {times(found.refused_count, 'connection')} after that" if found.refused_count else ""
    longest = f"{', the longest' * (len(death) > 1)} after {in_words(max(waits))}"
    return Finding(
        severity="warning",
        kind="server_died",
        host=worst["server_host"],
        service=worst["service"],
        connection_id=worst["connection_id"],
        span_id=worst["span_id"],
        from_trace_ns=first,
        to_trace_ns=last,
        count=len(death),
        cost_ns=sum(waits),
        failed_count=int(death["own"].sum()),
        text=f"{service_at(worst['service'], worst['server_host'])} ended {times(connections, 'connection')}{within} "
        f"with {how} instead of an answer{after}: {times(len(death), 'request')} failed{longest}",
        remedy="find why that process ended then (journalctl, dmesg for the OOM killer, core files); if it was stopped "
        "on purpose, let it finish its requests first",
    )


def _ended_by_server(rows: pl.DataFrame, limits: EndingThresholds) -> Iterator[Finding]:
    """Findings about requests that the server's side ended although its process did not end."""
    partial, reset = ~pl.col("silent"), pl.col("ending").is_in(RESETS)
    is_announced = pl.col("response_due_bytes").is_not_null()
    each = (
        (_CLOSED, (pl.col("ending") == Ending.SERVER_CLOSED) & pl.col("silent")),
        (_STALE, pl.col("ending") == Ending.STALE),
        (_RESET, reset),
        (_TRUNCATED, (pl.col("ending") == Ending.SERVER_CLOSED) & partial & is_announced),
        (_WITHOUT_END, (pl.col("ending") == Ending.SERVER_CLOSED) & partial & ~is_announced),
    )
    for words, chosen in each:
        for _, mine in rows.filter(chosen).group_by(GROUP, maintain_order=True):
            worst = mine.sort("waited_ns", "span_id", descending=[True, False]).row(0, named=True)
            limit = stream_limit_ns(mine, limits) if words is _RESET else 0
            said = replace(_STREAM_LIMIT, text=_STREAM_LIMIT.text.format(in_words(limit))) if limit else words
            more = _short_words(mine) if words.kind == _TRUNCATED.kind else "" if limit else _wait_words(worst)
            if (
                words is _STALE
                and mine["connection_id"].n_unique() > 1
                and np.ptp(mine["closed_ns"].to_numpy()) <= limits.same_wait_within_ns
            ):
                more = "; it had closed all of these at one moment, as when its process ends" + more
            yield _finding(mine, worst, said, more, of=f" of {worst['total']:,}")


def stream_limit_ns(rows: pl.DataFrame, limits: EndingThresholds) -> int:
    """The common wait (ns) of requests whose streams, not connections, the server reset; 0 if their waits differ."""
    of_streams = (rows["ending"] == Ending.SERVER_RESET_STREAM).all()
    return _client_timeout_ns(rows, limits) if of_streams else 0


def _wait_words(worst: dict[str, int]) -> str:
    return f", the longest wait {in_words(worst['waited_ns'])}" if worst["waited_ns"] else ""


def _short_words(rows: pl.DataFrame) -> str:
    """`; at worst 1,200 of 50,000 bytes came`; of answers that announce no length only how many came."""
    if rows["response_due_bytes"].null_count() == len(rows):
        fewest = int(rows["response_bytes"].to_numpy().min())
        end = "the frame that ends it" if rows["protocol"].is_in(MULTIPLEXED).all() else "the last chunk"
        return f"; {end} never arrived, {'at worst ' * (len(rows) > 1)}after {fewest:,} bytes"
    worst = rows.sort(pl.col("response_bytes") / pl.col("response_due_bytes"), "span_id").row(0, named=True)
    return f"; at worst {worst['response_bytes']:,} of {worst['response_due_bytes']:,} bytes arrived"


def _abandoned_requests(
    rows: pl.DataFrame, requests: Requests, limits: EndingThresholds, severity: SeverityThresholds
) -> Iterator[Finding]:
    """Findings about requests that clients ended."""
    for _, mine in rows.group_by(GROUP, maintain_order=True):
        worst = mine.sort("waited_ns", "span_id", descending=[True, False]).row(0, named=True)
        limit, at_once = _client_timeout_ns(mine, limits), len(mine) > 1 and _is_one_moment(mine, limits)
        if limit and not at_once and _is_usual_wait(mine, limit, requests, limits):
            limit = 0
        words = _given_up_words(mine, limit, at_once)
        silent_ns = 0 if at_once else _silent_ns(mine, requests)
        if silent_ns:
            more = f", without a complete answer; the server answered no request for {in_words(silent_ns)}"
            words = replace(words, remedy=SILENT_REMEDY)
        else:
            more = ", without a complete answer"
        share = limits.unanswered_share
        urgency = _given_up_severity(mine, limit, at_once, share) or severity.by_cost(
            int(mine["waited_ns"].sum()), requests.total_ns
        )
        yield _finding(mine, worst, words, more, severity=urgency)


def _given_up_severity(rows: pl.DataFrame, limit: int, at_once: bool, unanswered_share: float) -> str | None:
    """None to judge by cost: if a second try succeeded, only time was lost; if another server's answer sufficed,
    nothing was."""
    if rows["needless"].all():
        return "info"
    share = int((~rows["flowing"]).sum()) / max(1, rows["total"][0])
    if at_once or not (limit or share >= unanswered_share):
        return "notice"
    return None if rows["for_another"].all() else "warning"


def _silent_ns(rows: pl.DataFrame, requests: Requests) -> int:
    """How long the server answered nobody while several of these requests waited; 0 if it answered one, or if its
    answers to others were not captured."""
    first, last = _earliest(rows["asked_ns"]), _latest(rows["closed_ns"])
    host, service = rows["server_host"][0], rows["service"][0]
    if first is None or last is None or host is None or not rows["silent"].all():
        return 0
    one_after_another = (_latest(rows["asked_ns"]) or 0) > (_earliest(rows["closed_ns"]) or 0)
    at_server = requests.where(
        (pl.col("server_host").cast(pl.String) == host) & pl.col("service").cast(pl.String).eq_missing(service)
    )
    answered = at_server & (requests.answered >= first) & (requests.answered <= last)
    return last - first if one_after_another and not answered.any() else 0


def _given_up_words(rows: pl.DataFrame, limit: int, at_once: bool) -> _Words:
    waits = rows["waited_ns"].to_list()
    longest = in_words(max(waits))
    if at_once:
        after = f"each after about {in_words(limit)}" if limit else f"the longest after {longest}"
        text = f"abandoned by their client, all at one moment, {after}"
        remedy = "check whether the client's process was stopped or ended itself then; the server may be healthy"
    elif limit:
        text = f"given up by their client, each after about {in_words(limit)} (its timeout)"
        text += fingerprint("answer", waits, rows["service"].unique().to_list())
        remedy = "find why the server needs so long; or raise the client's timeout"
    else:
        text = (
            f"given up by {'its' if len(waits) == 1 else 'their'} client after {'up to ' * (len(waits) > 1)}{longest}"
        )
        remedy = "find why the client left: a timeout of its own, a user who went away, an answer from another server"
    return _Words("client_gave_up", text, remedy)


def _is_one_moment(rows: pl.DataFrame, limits: EndingThresholds) -> bool:
    """Whether the requests ended at one moment, rather than each after the same wait."""
    closed, waited = (int(np.ptp(rows[name].to_numpy())) for name in ("closed_ns", "waited_ns"))
    return closed <= limits.process_end_most_gap_ns and closed <= max(waited, limits.same_wait_within_ns)


def _client_timeout_ns(rows: pl.DataFrame, limits: EndingThresholds) -> int:
    """The common wait (ns) of all these requests, from the first byte or the last; 0 if their waits differ."""
    for since in ("begun_ns", "asked_ns"):
        waits = np.sort((rows["closed_ns"] - rows[since]).drop_nulls().to_numpy())
        if len(waits) < limits.same_wait_least_count:
            return 0
        middle = int(waits[len(waits) // 2])
        low, high = waits[len(waits) // 10], waits[len(waits) - 1 - len(waits) // 10]
        within = max(limits.same_wait_share * middle, min(limits.same_wait_within_ns, middle // 4))
        if middle >= limits.client_limit_least_ns and high - low <= within:
            return middle
    return 0


def _is_usual_wait(rows: pl.DataFrame, wait_ns: int, requests: Requests, limits: EndingThresholds) -> bool:
    """Whether these few waits of one length show no limit, since answers come after longer ones too."""
    if len(rows) >= limits.equal_waits_least_count:
        return False
    alike = [pl.col(name).cast(pl.String).eq_missing(pl.lit(rows[name][0], pl.String)) for name in GROUP]
    answered = requests.where(pl.all_horizontal(alike)) & (requests.answered != UNSEEN) & (requests.asked != UNSEEN)
    waited = requests.answered[answered] - requests.asked[answered]
    return int((waited > (1 + limits.same_wait_share) * wait_ns).sum()) >= len(rows)


def _finding(
    rows: pl.DataFrame, worst: dict[str, int], words: _Words, more: str, *, severity: str = "warning", of: str = ""
) -> Finding:
    service, server = rows["service"][0], rows["server_host"][0]
    whose = f"request{'s' * (worst['total'] > 1 if of else len(rows) > 1)} from {end_name(rows['client_host'][0])}"
    return Finding(
        severity=severity,
        kind=words.kind,
        host=server,
        service=service,
        connection_id=worst["connection_id"],
        span_id=worst["span_id"],
        from_trace_ns=_earliest(rows["asked_ns"]),
        to_trace_ns=_latest(rows["closed_ns"]),
        count=len(rows),
        cost_ns=int(rows["waited_ns"].sum()),
        failed_count=int(rows["own"].sum()),
        text=f"{len(rows):,}{of} {whose} to {service_at(service, server)} {was_or_were(len(rows))} {words.text}{more}",
        remedy=words.remedy,
    )


def _earliest(times_ns: pl.Series) -> int | None:
    return min(times_ns.drop_nulls().to_list(), default=None)


def _latest(times_ns: pl.Series) -> int | None:
    return max(times_ns.drop_nulls().to_list(), default=None)
