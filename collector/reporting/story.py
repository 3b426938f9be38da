"""Describes in one sentence where the time went, with the parts behind it, which sum up exactly; then the most urgent
finding.

With a command (`tracer record`) the story is that of the command, from its start to its end by its own host's clock.
The command is treated as a span above its root requests, so overlapping requests are counted once, by the same walk as
inside a request (`collector.requests.critical_path`). The rest is the client's own time: before its first packet,
between requests, after the last. Without a command the story is that of the only root request, or of the slowest.

Uplink and downlink (from the first byte sent to the last byte received) are each a difference of two hosts' timestamps,
so they have the uncertainty of the clocks. Both directions of one span together are its round trip minus the server's
time, in which clock offsets cancel. So transfers between servers are one part, which is uncertain only if one of its
directions is off the path.

Limits: a request that was neither answered nor given up has no length; its wait appears as time between requests.
"""

import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from collector.clocks.alignment import to_trace_ns
from collector.execution import memory
from collector.findings.finding import SEVERITIES
from collector.findings.thresholds import thresholds_of
from collector.reporting.failed_connects import ReadConnections, failed_connect_rows, with_rows
from collector.reporting.failures import Attempts, attempts_of
from collector.reporting.fan_out import FAN_OUT_COLUMNS, fan_out_waits, quorum_words
from collector.reporting.new_ledgers import Command, ledger_under_command, trace_with, with_ledger
from collector.reporting.one_ended import ONE_ENDED_COLUMNS, sum_one_ended
from collector.reporting.request_rows import RequestRows
from collector.reporting.root_requests import Mask, RootRequests, read_roots
from collector.reporting.unlinked_calls import CALL_COLUMNS, unlinked_words
from collector.requests.critical_path import Ledger
from collector.requests.link_doubt import inferred_ns
from collector.requests.outcomes import Outcome
from collector.requests.protocols import UNKNOWN
from collector.requests.request_words import request_words
from collector.requests.spans import LEDGER_COLUMNS
from collector.services.ends import end_name, service_name
from collector.services.service_names import ServiceNames
from collector.trace.durations import in_words, share, with_uncertainty
from collector.trace.model import CommandInfo, TraceInfo
from collector.trace.peer_names import PeerNames
from collector.trace.reading import Trace
from collector.trace.schema import ERRORS

SENTENCE_PARTS, SENTENCE_SHARE = 6, 0.95
"""The sentence names the largest parts until they reach this share, but at most so many; then the rest."""
PART_COLUMNS = tuple(
    dict.fromkeys(
        (
            *("exchange_id", "trace_id", "parent_span_id", "link_reason", "depth", "service", "protocol"),
            *(*ERRORS, "until_close", *ONE_ENDED_COLUMNS),
        )
    )
)
"""Columns of all rows, beside the ledger's, from which the parts of a command's time are summed."""
_UNFINISHED = [str(Outcome.FAILED), str(Outcome.ABANDONED)]
IS_FAILED_CONNECT = pl.col("exchange_id") < 0
"""Connections that were never established (`collector.reporting.failed_connects`)."""
IDLE_ANSWER = {
    False: "between pieces of its answer",
    True: "between pieces of its answer or before the close that ended it",
}
"""Wording for time in which no byte of an answer is in transit, by whether the answer announces no length."""
COMMAND_CHARACTERS = 60
"""At most so many characters of a command line or a request's path are shown in the sentence."""


OPEN_SHARE, OPEN_LEAST_NS = 0.25, 1_000_000
"""Both directions of a transfer of at least so long are one part if each is uncertain by at least this share of it."""


class Part(Struct, frozen=True):
    """A part of the time, with its `label`."""

    label: str
    duration_ns: int
    uncertainty_ns: int
    likely_error_ns: int = 0  # at 95 %; as large as the bound where it is not known

    @property
    def words(self) -> str:
        """Its duration with both errors."""
        return with_uncertainty(self.duration_ns, self.uncertainty_ns, self.likely_error_ns)


class Story(Struct, frozen=True):
    """The answer to "where did the time go?". The parts are in order of time and sum up to `duration_ns`."""

    sentence: str
    subject: str
    duration_ns: int
    parts: tuple[Part, ...]
    inferred_ns: int = 0  # the part of it on calls linked by inference (`collector.requests.link_doubt`)


def make_story(
    info: TraceInfo,
    spans: pa.Table,
    exchanges: pa.Table,
    clocks: pa.Table,
    connections: pa.Table | None = None,
    findings: pa.Table | None = None,
    silences: pa.Table | None = None,
    streams: pa.Table | None = None,
) -> Story:
    """The story of a trace: of its command, of its only root request, or of the slowest.

    Arguments: the trace's `info` and its tables `spans`, `exchanges`, `clocks`, `connections`, `findings`; without
    `connections`, waits for connections that were never established count as the client's own work.
    """
    rows = RequestRows.of_tables(spans, exchanges)
    more = (
        None
        if connections is None
        else failed_connects_of(rows, info, lambda names: [connections.select(names)], clocks)
    )
    return story_of_rows(info, rows, read_roots(rows), clocks, more, findings, silences, streams)


def story_of_trace(trace: Trace, info: TraceInfo, clocks: pa.Table) -> Story:
    """The story of a trace, read from it. Raises: `InputError` if it lacks a table."""
    rows = RequestRows.of_trace(trace)
    more = failed_connects_of(rows, info, partial(trace.batches, "connections"), clocks)
    silences = silences_for_ledgers(trace, info, more)
    findings, streams = trace.read("findings"), trace.read("streams")
    return story_of_rows(info, rows, read_roots(rows), clocks, more, findings, silences, streams)


def silences_for_ledgers(trace: Trace, info: TraceInfo, failed_connects: pl.DataFrame | None) -> pa.Table | None:
    """The table `silences` of a trace whose ledgers are computed anew (`collector.reporting.new_ledgers`); None for
    another one, which may have several for each request."""
    return None if info.command is None and failed_connects is None else trace.read("silences")


def story_of_rows(
    info: TraceInfo,
    rows: RequestRows,
    roots: RootRequests,
    clocks: pa.Table,
    failed_connects: pl.DataFrame | None,
    findings: pa.Table | None = None,
    silences: pa.Table | None = None,
    streams: pa.Table | None = None,
) -> Story:
    """The result of `make_story`, from the `rows` of a trace, their `roots` and `failed_connects_of` them."""
    attempts = attempts_of(roots, findings)
    if info.command is not None:
        story = _story_of_command(info.command, rows, failed_connects, clocks, silences)
        story = replace(story, sentence=f"{attempts.lead}. {story.sentence}") if attempts.lead else story
        if streams is not None:
            story = replace(story, sentence=story.sentence + _open_streams_words(streams, info.command.host))
    else:
        story = _story_of_requests(info, rows, roots, failed_connects, silences, streams, attempts)
    if findings is None:
        return story
    little_ns = thresholds_of(info.thresholds).severity.worth_acting_share * roots.critical_ns
    return replace(story, sentence=story.sentence + act_first(findings, little_ns))


def _without_requests(info: TraceInfo, streams: pa.Table | None) -> str:
    """A sentence for a trace without requests."""
    if streams is None or not len(streams):
        return f"No whole request was seen in {sum(host.packets_count for host in info.hosts)} packets"
    return f"No whole request was seen, but {_stream_counts(streams)}"


def _open_streams_words(streams: pa.Table, host: str) -> str:
    """A sentence about the streams that a command's host had open; "" without any."""
    own = streams.filter(pc.equal(streams["client_host"], host).fill_null(False))
    return f" It had {_stream_counts(own)} open; waiting on them is the client's own time." if len(own) else ""


def _stream_counts(streams: pa.Table) -> str:
    """`2 streams with 40 messages`."""
    messages = sum(pc.sum(streams[name]).as_py() or 0 for name in ("to_client_count", "to_server_count"))
    return f"{len(streams):,} {'streams' if len(streams) > 1 else 'stream'} with {messages:,} messages"


def act_first(findings: pa.Table, little_ns: float) -> str:
    """` To act on first: …`, from the table `findings`; "" if nobody needs to act.

    Arguments: `little_ns`, below which a cost is little. Findings without failures and at little cost are marked so.
    """
    for row in findings.slice(0, 1).to_pylist():
        if row["severity"] in SEVERITIES[:2]:
            of = [row["peer_host"], row["host"]]
            where = f" between {of[0]} and {of[1]}" if all(of) else f" on {of[1]}" if of[1] else ""
            name = f"{row['kind']} on {row['host']}"
            brought = findings.filter(pc.equal(findings["cause"], name).fill_null(False))
            count = (row["failed_count"] or 0) + (pc.sum(brought["failed_count"]).as_py() or 0)
            failed = f", {count:,} failed or given up" if count else ""
            cost = f", {in_words(row['cost_ns'])} of request time" if row["cost_ns"] else ""
            little = not failed and not len(brought) and 0 < (row["cost_ns"] or 0) < little_ns
            lead = "Besides, at little cost" if little else "To act on first"
            return f" {lead}: {row['kind'].replace('_', ' ')}{where}{failed}{cost}."
    return ""


def _story_of_requests(
    info: TraceInfo,
    rows: RequestRows,
    roots: RootRequests,
    failed_connects: pl.DataFrame | None,
    silences: pa.Table | None,
    streams: pa.Table | None,
    attempts: Attempts,
) -> Story:
    """The story of the slowest request, or of the longest abandoned one."""
    some = roots.outermost()
    if not some.any():
        some = roots.abandoned_roots()
    if not some.any():
        return Story(f"{attempts.lead or _without_requests(info, streams)}.", "no request", 0, ())
    return _story_of_slowest(roots, some, rows, failed_connects, silences, attempts)


def failed_connects_of(
    rows: RequestRows, info: TraceInfo, connections: ReadConnections, clocks: pa.Table
) -> pl.DataFrame | None:
    """The result of `failed_connects.failed_connect_rows`, with the names of `info`; None without any."""
    found, peers = failed_connect_rows(rows, connections, clocks, ServiceNames(info.services)), PeerNames(info)
    if found is None or not peers:
        return found
    names = {address: name for address in peers.by_address() if (name := peers.of_one(address))}
    return found.with_columns(pl.col("server_host").replace(names))


def request_name(row: Mapping[str, Any]) -> str:
    """The name of a request: `UploadPart 3 of photos/cat.jpg`, `PUT /v1/…`, or `request to` its service; where its
    messages are not read, so that it was found by turn-taking, it says so.

    Arguments: `row`, with the columns of its exchange.
    """
    name = _shorten(request_words(row))
    by_turns = " (by turn-taking)" if row["protocol"] == UNKNOWN else ""
    return name or f"request to {service_name(row['service'])}{by_turns}"


def _story_of_slowest(
    roots: RootRequests,
    some: Mask,
    rows: RequestRows,
    failed_connects: pl.DataFrame | None,
    silences: pa.Table | None,
    attempts: Attempts,
) -> Story:
    root = int(roots.longest(some, 1)[0])
    mine = trace_with(rows, roots.ids, root, failed_connects, silences)
    slowest = mine.row(by_predicate=pl.col("exchange_id") == root, named=True)
    parts = _server_parts(mine, fan_out_waits(mine))
    name = f"{request_name(slowest)}"
    if slowest["transaction_id"]:
        name += f" ({slowest['transaction_id']})"
    duration = slowest["duration_ns"]
    left = slowest["outcome"] == Outcome.ABANDONED
    took = f"{'was given up by its client after' if left else 'took'} {in_words(duration)}"
    spent = f"{took}: {_describe_parts(parts, duration)}." + _quorum(mine) + sum_one_ended([mine]).words
    spent += unlinked_words(rows.batches(*CALL_COLUMNS), mine)
    return Story(_lead(roots, some, slowest, name, attempts) + spent, name, duration, parts, inferred_ns(mine))


def _lead(roots: RootRequests, some: Mask, slowest: dict[str, Any], name: str, attempts: Attempts) -> str:
    """The words before "took 2.0 s: …" of the slowest of `some` requests: first failures, then the mean of the
    others."""
    failed = slowest["outcome"] == Outcome.FAILED
    others = pl.Series(roots.duration_ns[some & ~roots.of_kinds(pl.col("outcome").cast(pl.String).is_in(_UNFINISHED))])
    count, mean = len(others), others.mean()
    if not attempts.lead or (attempts.count == 1 and not failed):
        many = f"{count:,} requests took {_mean(mean)} on average; the slowest, " if count > 1 else ""
        return f"{many}{name}{', ' if many else ' '}"
    if not count:
        longest = "The one that took longest, " if some.sum() > 1 else ""
        return f"{attempts.lead}. {longest}{name}{', ' if longest else ' '}"
    whole = attempts.failed_count + attempts.abandoned_count + count == attempts.count
    the = f"{'the ' if whole else ''}"
    if count == 1 and not failed:
        return f"{attempts.lead}; {the or 'an'}other one, {name}, "
    what = f"{the}{count:,} others took {_mean(mean)} on average" if count > 1 else f"{the}other one took {_mean(mean)}"
    return f"{attempts.lead}; {what}; the slowest{' of all' if failed else ''}, {name}{' (failed)' if failed else ''}, "


def _mean(mean: Any) -> str:
    return in_words(round(float(mean)))


def _story_of_command(
    command: CommandInfo,
    rows: RequestRows,
    failed_connects: pl.DataFrame | None,
    clocks: pa.Table,
    silences: pa.Table | None,
) -> Story:
    """The command as a span above the root requests of its host."""
    stamps = pa.array([command.started_host_ns, command.ended_host_ns])
    begin, end = (int(at) for at in to_trace_ns(pa.array([command.host] * 2), stamps, clocks))
    under = with_rows(rows.columns("depth", "client_host", "start_trace_ns"), failed_connects)
    top = under.select(((pl.col("depth") == 0) & (pl.col("client_host") == command.host)).fill_null(value=False))
    is_top = top.to_series().to_numpy()
    first = _first_packet(under, is_top, begin)
    del under, top
    ledger = ledger_under_command(rows, failed_connects, silences, Command(is_top, begin, end))
    before, between, after = _client_parts(ledger, is_top, begin, end, first)
    memory.give_back_if_much()
    named = with_ledger(with_rows(rows.columns(*PART_COLUMNS), failed_connects), ledger)
    del ledger
    parts = _nonzero((before, *_server_parts(named, _fan_outs(rows, named)), between, after))
    name, duration = f"`{_shorten(shlex.join(command.argv))}`", end - begin
    sentence = f"{name} took {in_words(duration)}: {_describe_parts(parts, duration)}." + _quorum_of_one(rows, named)
    sentence += sum_one_ended([named]).words
    return Story(sentence, name, duration, parts, inferred_ns(named))


def _quorum_of_one(rows: RequestRows, named: pl.DataFrame) -> str:
    """The sentence about the quorum of the only request with parallel calls; "" if there are several such requests."""
    called = named.lazy().filter(pl.col("depth") == 1).group_by("trace_id").len()
    asking = called.filter(pl.col("len") > 1).collect()
    return _quorum(rows.below(asking["trace_id"][0])[0]) if len(asking) == 1 else ""


def _quorum(rows: pl.DataFrame) -> str:
    """The sentence about the quorum of a request, from all rows of its trace."""
    words = quorum_words(rows) if len(rows.filter(pl.col("depth") == 1)) > 1 else ""
    return f" Quorum: {words}." if words else ""


def _fan_outs(rows: RequestRows, named: pl.DataFrame) -> pl.DataFrame:
    """The result of `fan_out_waits` for all rows, of which only the traces that waited so are read further."""
    waited = named.filter(pl.col("fan_out_wait_ns") > 0).select("exchange_id", "trace_id", "fan_out_wait_ns")
    if waited.is_empty():
        return fan_out_waits(waited)
    traces = waited["trace_id"].unique().implode()
    requests = rows.columns("trace_id", *FAN_OUT_COLUMNS).filter(pl.col("trace_id").is_in(traces))
    known = waited.select("exchange_id", "fan_out_wait_ns")
    calls = requests.with_columns(pl.col(pl.Categorical).cast(pl.String))
    return fan_out_waits(calls.join(known, on="exchange_id", how="left", maintain_order="left"))


def _first_packet(rows: pl.DataFrame, top: NDArray[np.bool_], begin: int) -> int:
    """When the first of the `top` requests began, but not before `begin`; `begin` if there is none."""
    first = rows.filter(pl.Series(top)).select(pl.col("start_trace_ns").min()).item()
    return begin if first is None else max(begin, first)


def _client_parts(ledger: Ledger, top: NDArray[np.bool_], begin: int, end: int, first: int) -> tuple[Part, Part, Part]:
    """The command's own time: before its first packet, between requests, after the last answer."""
    on_path = np.flatnonzero(top & (ledger.window_end[:-1] > ledger.window_start[:-1]))
    own = int(ledger.work_ns[-1])
    if not on_path.size:
        return Part("in the client (no request of it was seen)", own, 0), Part("", 0, 0), Part("", 0, 0)
    before = min(first, int(ledger.window_start[on_path].min())) - begin
    after = end - int(ledger.window_end[on_path].max())
    return (
        Part("before its first packet (client start-up)", before, 0),
        Part("in the client between requests", own - before - after, 0),
        Part("in the client after the last answer", after, 0),
    )


def _server_parts(rows: pl.DataFrame, fan_outs: pl.DataFrame) -> tuple[Part, ...]:
    """The parts of the spans on the path: connecting, uplink, work by service, transfers between servers, downlink.

    Arguments: `rows` with `PART_COLUMNS` and the ledger's; their `fan_out_waits`.
    """
    on_path = rows.select(pl.sum_horizontal(LEDGER_COLUMNS) > 0).to_series()
    every = rows.lazy().filter(on_path)
    path = every.filter(~IS_FAILED_CONNECT)
    failed_connects = every.filter(IS_FAILED_CONNECT).group_by("server_host", maintain_order=True)
    never_connected = [
        Part(f"waiting for connections to {end_name(host)} that never came", spent, 0)
        for host, spent in failed_connects.agg(pl.sum_horizontal(LEDGER_COLUMNS).sum()).collect().rows()
    ]
    roots, behind = path.filter(pl.col("depth") == 0), path.filter(pl.col("depth") > 0)
    front = " and ".join(roots.select(pl.col("service").unique(maintain_order=True)).collect()["service"].to_list())
    work = path.group_by("service", maintain_order=True).agg(pl.col("work_ns").sum(), pl.col("depth").min())
    by_depth = work.sort("depth", maintain_order=True).collect()
    services = [Part(f"in {name}", spent, 0) for name, spent, _ in by_depth.rows()]
    by_service = path.group_by("service", maintain_order=True)
    either = by_service.agg(pl.col("queue_ns", "server_or_network_ns").sum()).collect()
    waits = [Part(f"in the queue of {name}", spent, 0) for name, spent, _ in either.rows()]
    unseparated = [Part(f"in {name} or the network to it", spent, 0) for name, _, spent in either.rows()]
    both = pl.col("request_network_ns") + pl.col("response_network_ns")
    one_way = (pl.col("request_network_ns") > 0) != (pl.col("response_network_ns") > 0)
    there, back = _uplink_and_downlink(front, roots)
    client_ns, connect_ns, tls_ns, stall_ns = _sums(
        path, *map(pl.col, ("client_ns", "connect_ns", "tls_ns", "stall_ns"))
    )
    return _nonzero(
        (
            Part("in the client before sending the body", client_ns, 0),
            Part("opening connections", connect_ns, 0),
            Part("opening connections (TLS handshake)", tls_ns, 0),
            *never_connected,
            there,
            *waits,
            *services,
            *unseparated,
            *(Part(label, spent, 0) for label, spent in fan_outs.rows()),
            *_silent_parts(path, front),
            Part("until lost packets were sent again", stall_ns, 0),
            _network("in transfers between servers", behind, both, one_way),
            back,
        )
    )


def _uplink_and_downlink(front: str, roots: pl.LazyFrame) -> tuple[Part, Part]:
    """Parts for sending requests and receiving answers; one part if only their sum is known, which no clock affects."""
    there = _network(f"sending to {front} (uplink)", roots, pl.col("request_network_ns"))
    back = _network(f"receiving from {front} (downlink)", roots, pl.col("response_network_ns"))
    whole = there.duration_ns + back.duration_ns
    both = (pl.col("request_network_ns") > 0) == (pl.col("response_network_ns") > 0)
    is_round = roots.select(both.all()).collect().item()
    is_open = max(there.uncertainty_ns, back.uncertainty_ns) >= OPEN_SHARE * whole
    if not (is_round and is_open and whole >= OPEN_LEAST_NS):
        return there, back
    return Part(f"to {front} and back (both ways; which way is not known)", whole, 0), Part("", 0, 0)


def _silent_parts(path: pl.LazyFrame, front: str) -> tuple[Part, ...]:
    """Parts for time in which no byte of a message was in transit, by who was waited for.

    In a protocol that is not read, what one side sends until the other does may be several messages (a ping beside a
    request, an event that nobody asked for), so nothing shows who was waited for.
    """
    closed = (pl.col("until_close") & (pl.col("response_idle_ns") > 0)).fill_null(value=False)
    by_turns = (pl.col("protocol").cast(pl.String) == UNKNOWN).fill_null(value=False)
    idle = path.group_by("service", by_turns=by_turns, closed=closed, maintain_order=True)
    answers = idle.agg(pl.col("response_idle_ns").sum()).collect()
    is_root = pl.col("depth") == 0
    asked = {
        "in the client, between pieces of its request": is_root & ~by_turns,
        f"between pieces that the client sent before {front} answered": is_root & by_turns,
        "in servers, between pieces of their requests": ~is_root & ~by_turns,
        "between pieces that servers sent before they were answered": ~is_root & by_turns,
    }
    of_requests = [pl.col("request_idle_ns").filter(which).alias(label) for label, which in asked.items()]
    *idle_ns, held_ns, unread_ns = _sums(path, *of_requests, pl.col("send_held_ns"), pl.col("reader_wait_ns"))
    asking = [Part(label, spent, 0) for label, spent in zip(asked, idle_ns, strict=True)]
    return (
        *asking[:2],
        *(
            Part(
                f"between pieces that {name} sent before it was asked again"
                if is_turn
                else f"in {name}, {IDLE_ANSWER[until_close]}",
                spent,
                0,
            )
            for name, is_turn, until_close, spent in answers.rows()
        ),
        *asking[2:],
        Part("until TCP let the sender go on (window, delayed ACK)", held_ns, 0),
        Part("until the receiver read (its window was closed)", unread_ns, 0),
    )


def _sums(rows: pl.LazyFrame, *values: pl.Expr) -> tuple[int, ...]:
    return tuple(map(int, rows.select(value.sum() for value in values).collect().row(0)))


def _network(label: str, rows: pl.LazyFrame, spent: pl.Expr, uncertain: pl.Expr | None = None) -> Part:
    of = spent > 0 if uncertain is None else uncertain
    likely = pl.coalesce(*reversed(ERRORS))
    return Part(
        label, *_sums(rows, spent, pl.when(of).then("uncertainty_ns"), pl.when(of).then(likely).alias("likely"))
    )


def _nonzero(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.duration_ns)


def _describe_parts(parts: tuple[Part, ...], duration_ns: int) -> str:
    """`301.2 ms (73 %) client start-up, 61.0 ms …, and 3.0 ms elsewhere`, largest first."""
    largest = sorted(parts, key=lambda part: -part.duration_ns)
    covered = np.cumsum([part.duration_ns for part in largest])
    enough = int(np.searchsorted(covered, SENTENCE_SHARE * duration_ns)) + 1
    named = largest[: min(enough, SENTENCE_PARTS)]
    words = [f"{part.words} {part.label}" for part in named]
    if words:
        words[0] = f"{named[0].words} ({share(named[0].duration_ns, duration_ns)}) {named[0].label}"
    rest = duration_ns - sum(part.duration_ns for part in named)
    return ", ".join([*words, f"and {in_words(rest)} elsewhere"] if rest else words)


def _shorten(text: str) -> str:
    return text if len(text) <= COMMAND_CHARACTERS else text[: COMMAND_CHARACTERS - 1] + "…"
