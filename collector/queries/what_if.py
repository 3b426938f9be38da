"""What if the network or a server were otherwise: each request of a trace played again with something changed
(`collector.queries.request_replay`), and the percentiles of each class before and after.

| change | what it takes out |
|---|---|
| `quorum` | of a fan-out, the wait for answers beyond so many; a greater quorum than was waited for is not played |
| `no_loss` | the time until lost bytes had been sent again |
| `no_delay` | pauses of a server or client whose small segments waited for a delayed ACK, where a finding says so |
| `round_trip` | a share of the usual delay of the way, once for each of handshake, TLS, 100 Continue, request, answer |
| `as_fast` | one server's own time becomes another's, rank by rank within the kind of request |
| `own_time` | a server's own time is multiplied |

A request is left as measured where a change means nothing for it. What the trace does not show is said in `limits`, not
guessed. Percentiles are as in `collector.queries.request_table`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.execution import memory
from collector.queries.request_replay import Call, CallFacts, duration_now_ns, fan_outs, quantile_ratio, walk
from collector.queries.search import found_roots
from collector.queries.trace_view import TraceView
from collector.reporting.request_rows import RequestRows
from collector.reporting.stage_times import NEVER_CAME
from collector.requests.outcomes import Outcome
from collector.trace.request_times import ANSWERED, ARRIVED, HEARD, SERVER_END
from collector.trace.schema import SilenceCause
from tracer.errors import InputError

FEWEST_OF_KIND = 5
"""A server is no measure for another one with fewer requests of a kind."""
DELAYED_ACK_NS = (30_000_000, 510_000_000)
"""A pause for a delayed ACK lasts so long (`collector.hops.sender_pauses`)."""
DELAYED_ACK = "delayed_ack"
"""The finding's kind (`collector.findings.kinds`)."""
MOST_CALLS = 250_000
"""Each takes about 4 KB, these 1 GiB. Where a quarter of the free memory holds more, more are played."""
CALL_BYTES = 1 << 12
FREE_SHARE = 1 / 4
_COLUMNS = (
    *("exchange_id", "parent_span_id", "trace_id", "start_trace_ns", "end_trace_ns", "pause_ns", "critical_ns"),
    *("service", "method", "operation", "target", "client_host", "server_host"),
    *("connect_start_trace_ns", "connected_trace_ns", "tls_start_trace_ns", "tls_end_trace_ns"),
    "greeting_received_trace_ns",
    *("continue_sent_trace_ns", "continue_received_trace_ns", "body_sent_trace_ns", "round_trip_ns"),
    *("connect_stall_ns", "request_stall_ns", "response_stall_ns"),
    *HEARD.columns,
    *ARRIVED.columns,
    *ANSWERED.columns,
    *SERVER_END.columns,
)


class Changes(Struct, frozen=True):
    """What is to be otherwise; the defaults change nothing."""

    quorum: int | None = None  # answers of a fan-out that its caller waits for
    no_loss: bool = False
    no_delay: bool = False  # TCP_NODELAY
    round_trip: float = 1.0  # to what it was, of all ways
    as_fast: Mapping[str, str] | None = None  # by slow host, the host whose times it gets
    own_time: Mapping[str, float] | None = None  # by host, its own time to what it was

    def words(self) -> str:
        """In words, for a heading."""
        parts = [f"a quorum of {self.quorum}"] if self.quorum else []
        parts += ["no loss"] if self.no_loss else []
        parts += ["no delayed ACKs (TCP_NODELAY)"] if self.no_delay else []
        parts += [f"round trips × {self.round_trip:g}"] if self.round_trip != 1 else []
        parts += [f"{slow} as fast as {fast}" for slow, fast in (self.as_fast or {}).items()]
        parts += [f"own time of {host} × {ratio:g}" for host, ratio in (self.own_time or {}).items()]
        return ", ".join(parts) or "nothing changed"


class ClassForecast(Struct, frozen=True):
    """The requests of a class, as measured and as they would have been."""

    name: str
    count: int
    changed_count: int
    p50_ns: int
    p50_now_ns: int
    p99_ns: int
    p99_now_ns: int


class Forecast(Struct, frozen=True):
    """What would have been."""

    changes: str
    classes: tuple[ClassForecast, ...]  # those with the most time first
    left_count: int  # requests without a known end, or given up: in no figure
    limits: tuple[str, ...]  # what could not be said
    durations_ns: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]  # by class: as measured, as they would be


def _most_calls() -> int:
    return max(MOST_CALLS, int(FREE_SHARE * (memory.available_bytes() or 0)) // CALL_BYTES)


def what_if(trace: TraceView, changes: Changes, search: str = "") -> Forecast:
    """Play the requests of clients again. Raises: `InputError` for a change that makes no sense, or no request."""
    hosts = {lane.host for lane in trace.lanes}
    _check(changes, hosts)
    requests = _requests(trace, search)
    whole = requests.filter(pl.col("ended") & (pl.col("outcome") != Outcome.ABANDONED))
    calls_count = trace.exchanges_count(whole["number"].to_numpy())
    if calls_count > _most_calls():
        raise InputError(f"{calls_count:,} calls are too many to play again", "narrow them by --search")
    ids = trace.trace_ids(whole["number"].to_numpy())
    roots = _calls(trace, ids)
    limits = _apply(trace, changes, list(roots.values()))
    classes: dict[str, list[tuple[int, int]]] = {}
    for root_id, name in zip(ids.tolist(), whole["class"].to_list(), strict=True):
        root = roots[root_id]
        classes.setdefault(name, []).append((root.duration_ns, duration_now_ns(root, changes.quorum)))
    durations = {
        name: (np.array([was for was, _ in pairs]), np.array([now for _, now in pairs]))
        for name, pairs in sorted(classes.items(), key=lambda each: -sum(was for was, _ in each[1]))
    }
    return Forecast(
        changes=changes.words(),
        classes=tuple(_of_class(name, was, now) for name, (was, now) in durations.items()),
        left_count=len(requests) - len(whole),
        limits=tuple(limits),
        durations_ns=durations,
    )


def _check(changes: Changes, hosts: set[str]) -> None:
    named = {*(changes.as_fast or {}), *(changes.as_fast or {}).values(), *(changes.own_time or {})}
    unknown = sorted(named - hosts)
    if unknown:
        raise InputError(f"there is no host {unknown[0]}", f"hosts: {', '.join(sorted(hosts))}")
    ratios = [changes.round_trip, *(changes.own_time or {}).values()]
    if any(not 0 <= ratio <= 1_000 for ratio in ratios):
        raise InputError("a factor is from 0 to 1000", "0.5 for half of it")
    if changes.quorum is not None and changes.quorum < 1:
        raise InputError("a quorum is 1 or more", "--quorum 1 for the first answer")
    if changes == Changes():
        raise InputError(
            "nothing is to be otherwise", "give --quorum, --no-loss, --nodelay, --round-trip, --as-fast or --own-time"
        )


def _requests(trace: TraceView, search: str) -> pl.DataFrame:
    """Those of clients, as `request_table` has them; with a search, what it finds."""
    table = trace.load.table.filter(pl.col("outermost"))
    if search:
        ids = pl.Series(trace.trace_ids(table["number"].to_numpy()))
        table = table.filter(ids.is_in(pl.Series(found_roots(trace, search)).implode()))
    if table.is_empty():
        what = f"{search!r} finds no request of a client" if search else f"{trace.url} has no request of a client"
        raise InputError(what, "docs/search.md" if search else "")
    return table


def _calls(trace: TraceView, ids: NDArray[np.int64]) -> dict[int, Call]:
    """Chosen requests with all calls below them, by `trace_id`."""
    moments = {
        **{"heard": HEARD.expr(), "arrived": ARRIVED.expr(), "answered": ANSWERED.expr(), "sent": SERVER_END.expr()},
        **{name: pl.col(name).fill_null(0) for name in ("connect_stall_ns", "request_stall_ns", "response_stall_ns")},
    }
    rows = trace.read_unchanged(lambda: RequestRows.of_trace(trace.stored, ids).columns(*dict.fromkeys(_COLUMNS)))
    ended = rows.filter(pl.col("start_trace_ns").is_not_null() & pl.col("end_trace_ns").is_not_null())
    given = ended.with_columns(**moments).sort("start_trace_ns").rows(named=True)
    calls = {row["exchange_id"]: _call(row) for row in given}
    for row in given:
        parent = calls.get(row["parent_span_id"])
        if parent is not None:
            parent.calls.append(calls[row["exchange_id"]])
    return {each: calls[each] for each in ids.tolist()}


def _call(row: Mapping[str, Any]) -> Call:
    """A call as it was measured; its stretches that a change may take out are set by `_apply`."""
    lost_continue_ns = min(row["response_stall_ns"], _way_of_continue(row))
    return Call(
        span_id=row["exchange_id"],
        begin_ns=row["start_trace_ns"],
        end_ns=row["end_trace_ns"],
        continue_ns=row["continue_received_trace_ns"] if row["body_sent_trace_ns"] is not None else None,
        body_ns=row["body_sent_trace_ns"],
        heard_ns=row["heard"],
        arrived_ns=row["arrived"],
        answered_ns=row["answered"],
        sent_ns=row["sent"],
        pause_ns=row["pause_ns"] or 0,
        kind=(row["service"] or "", row["method"] or "", row["operation"] or ""),
        target=row["target"] or "",
        client_host=row["client_host"],
        server_host=row["server_host"],
        is_critical=bool(row["critical_ns"]),
        facts=CallFacts(
            lost_before_ns=row["connect_stall_ns"] + lost_continue_ns,
            lost_sending_ns=row["request_stall_ns"],
            lost_within_ns=row["response_stall_ns"] - lost_continue_ns,
            handshakes_count=_handshakes(row),
            round_trip_ns=row["round_trip_ns"],
        ),
    )


def _way_of_continue(row: Mapping[str, Any]) -> int:
    """How long HTTP's 100 was on its way; 0 if there was none."""
    sent_ns, received_ns = row["continue_sent_trace_ns"], row["continue_received_trace_ns"]
    return 0 if sent_ns is None or received_ns is None else max(0, received_ns - sent_ns)


def _handshakes(row: Mapping[str, Any]) -> int:
    """Round trips before the request's last byte could leave: TCP's, a greeting's, TLS's (one, as in version 1.3), 100
    Continue."""
    opened = row["connected_trace_ns"] is not None and row["connect_start_trace_ns"] == row["start_trace_ns"]
    secured = opened and row["tls_end_trace_ns"] is not None
    greeted = opened and row["greeting_received_trace_ns"] is not None
    return opened + greeted + secured + (row["continue_sent_trace_ns"] is not None)


def _apply(trace: TraceView, changes: Changes, roots: Sequence[Call]) -> list[str]:
    """Set what the changes take out of each call. Returns what cannot be said."""
    calls = [call for root in roots for call in walk(root)]
    limits = []
    unseen_count = sum(not call.is_seen_at_server for call in calls)
    if unseen_count:
        limits.append(f"{unseen_count:,} of {len(calls):,} calls were seen at one end only: each is one stretch")
    if changes.quorum:
        limits += _quorum_limits(calls, changes.quorum)
    if changes.no_loss:
        limits += _without_loss(calls) + _failed_connects(trace, [root.span_id for root in roots])
    if changes.no_delay:
        limits += _without_delayed_acks(trace, calls)
    if changes.round_trip != 1:
        limits += _with_round_trips(trace, calls, changes.round_trip)
    for slow, fast in (changes.as_fast or {}).items():
        limits += _as_fast(calls, slow, fast)
    for host, ratio in (changes.own_time or {}).items():
        for call in calls:
            if call.server_host == host:
                call.work_ratio *= ratio
    return limits


def _quorum_limits(calls: Sequence[Call], quorum: int) -> list[str]:
    groups = [(call, group) for call in calls for group in fan_outs(call)]
    if not groups:
        return ["no request asked several servers the same at once: a quorum changes nothing"]
    few = sum(
        sum(each.end_ns <= call.answered_ns for each in group) < min(quorum, len(group))
        for call, group in groups
        if call.answered_ns is not None
    )
    if not few:
        return []
    return [f"{few:,} of {len(groups):,} fan-outs were not waited for until {quorum} had answered: left as they were"]


def _without_loss(calls: Sequence[Call]) -> list[str]:
    for call in calls:
        call.before_ns += call.facts.lost_before_ns
        call.sending_ns += call.facts.lost_sending_ns
        call.within_ns += call.facts.lost_within_ns
    if not any(call.before_ns + call.sending_ns + call.within_ns for call in calls):
        return ["no request waited for a lost packet, as far as that was captured"]
    streamed_count = sum(
        call.within_ns > 0 and any(each.is_critical and each.end_ns > (call.answered_ns or 0) for each in call.calls)
        for call in calls
    )
    words = "passed an answer on while it arrived: what was lost of it may not be all that they waited for"
    return [f"{streamed_count:,} calls {words}"] if streamed_count else []


def _failed_connects(trace: TraceView, ids: Sequence[int]) -> list[str]:
    stages = trace.stages().filter(pl.col("trace_id").is_in(pl.Series(ids, dtype=pl.Int64).implode()))
    count = stages.filter(pl.col("stage").cast(pl.String).str.ends_with(NEVER_CAME))["trace_id"].n_unique()
    words = "waited for connections that never came: what was done instead stays"
    return [f"{count:,} requests {words}"] if count else []


def _without_delayed_acks(trace: TraceView, calls: Sequence[Call]) -> list[str]:
    """Take out long pauses of those who sent small segments behind unacknowledged ones, as a finding says."""
    findings = pl.DataFrame(trace.stored.read("findings", ["kind", "host"]))
    senders = set(findings.filter(pl.col("kind") == DELAYED_ACK)["host"].to_list())
    if not senders:
        return ["no small segment waited for a delayed ACK, as far as packets show: TCP_NODELAY changes nothing"]
    by_id = {call.span_id: call for call in calls}
    silences = pl.DataFrame(trace.stored.read("silences")).with_columns(
        lasted_ns=pl.col("to_trace_ns") - pl.col("from_trace_ns")
    )
    held = silences.filter((pl.col("cause") == SilenceCause.HELD) & pl.col("lasted_ns").is_between(*DELAYED_ACK_NS))
    for exchange_id, in_response, lasted_ns in held.select("exchange_id", "in_response", "lasted_ns").iter_rows():
        call = by_id.get(exchange_id)
        if call is not None and in_response and call.server_host in senders:
            call.within_ns += lasted_ns
        elif call is not None and not in_response and call.client_host in senders:
            call.sending_ns += lasted_ns
    return []


def _with_round_trips(trace: TraceView, calls: Sequence[Call], ratio: float) -> list[str]:
    ways, unknown = _usual_delays(trace), 0
    for call in calls:
        there, back = (
            ways.get(ends) for ends in ((call.client_host, call.server_host), (call.server_host, call.client_host))
        )
        if there is None or back is None:
            half = None if call.facts.round_trip_ns is None else call.facts.round_trip_ns // 2
            there, back = half, half
        if there is None or back is None:
            unknown += 1
            continue
        share = 1 - ratio
        call.before_ns += round(share * call.facts.handshakes_count * (there + back))
        call.sending_ns += round(share * there)
        call.after_ns += round(share * back)
    return [f"the ways of {unknown:,} of {len(calls):,} calls are not known: left as they were"] if unknown else []


def _usual_delays(trace: TraceView) -> dict[tuple[str | None, str | None], int]:
    """The least of the median delays between two hosts' services, ns: a call's packets are on their way so long."""
    found: dict[tuple[str | None, str | None], int] = {}
    names = [lane.host for lane in trace.lanes]
    for source, target, delay_ns in zip(trace.pairs.source, trace.pairs.target, trace.typical_delay_ns, strict=True):
        if delay_ns > 0 and max(source, target) < len(names):
            ends = (names[source], names[target])
            found[ends] = min(found.get(ends, int(delay_ns)), int(delay_ns))
    return found


def _as_fast(calls: Sequence[Call], slow: str, fast: str) -> list[str]:
    ratio_of, mine = quantile_ratio(calls, slow, fast, FEWEST_OF_KIND), 0
    left = 0
    for call in calls:
        if call.server_host == slow:
            mine += 1
            ratio = ratio_of(call) if call.is_seen_at_server else None
            left += ratio is None
            call.work_ratio *= 1 if ratio is None else ratio
    if not mine:
        return [f"{slow} answered no call of these requests"]
    few = f"{fast} answered fewer than {FEWEST_OF_KIND} of their kind"
    return [f"{left:,} of {mine:,} calls to {slow} are left as they were: {few}"] if left else []


def _of_class(name: str, was: NDArray[np.int64], now: NDArray[np.int64]) -> ClassForecast:
    p50, p99, p50_now, p99_now = (
        int(np.quantile(values, share, method="higher")) for values in (was, now) for share in (0.5, 0.99)
    )
    return ClassForecast(name, len(was), int((was != now).sum()), p50, p50_now, p99, p99_now)
