"""Collects the facts of a report: where the time went, hosts and their clocks, matching quality, requests, findings.

`collector.reporting.text` and `collector.reporting.html` show them.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct, structs
from msgspec.structs import replace

from collector.annotations.spans.disagreement import DisagreementLine, disagreement_lines
from collector.annotations.summary import AnnotationLine, annotation_lines
from collector.decode import capture_sets
from collector.decode.address_names import HOST_UNNAMED, NAMES_DISAGREE
from collector.decode.hosts_files import NAMES_UNREAD
from collector.execution import memory
from collector.hops.quality_summary import Pairing, read_pairing, skew_doubt_ppb
from collector.hops.tls_words import COLUMNS as TLS_COLUMNS
from collector.hops.tls_words import SHOWING_TLS, TlsLine, tls_lines
from collector.reporting import story
from collector.reporting.comparison import (
    Blocks,
    BlockSums,
    Comparison,
    compare_slow,
    compare_sums,
    sums_of_trace,
    typical_and_slow,
)
from collector.reporting.one_ended import ONE_ENDED_COLUMNS, OneEnded, sum_one_ended
from collector.reporting.peers import peers_of_connections
from collector.reporting.request_rows import RequestRows, RootIds
from collector.reporting.root_requests import Mask, RootRequests, of_roots, read_roots
from collector.reporting.served_by import COLUMNS as SERVED_COLUMNS
from collector.reporting.served_by import SHOWING_OWNER, ServedBy, served_by
from collector.reporting.stage_times import StageLedger
from collector.reporting.story import Story
from collector.reporting.stream_summary import StreamSummary, summarise_streams
from collector.requests.exchanges import UNKNOWN
from collector.requests.link_doubt import LinkSummary, link_summary
from collector.requests.outcomes import Outcome
from collector.requests.unread_connections import REMEDIES
from collector.services.client_requests import RHYTHM_COLUMNS, has_own_rhythm, times_served
from collector.services.service_names import ServiceNames
from collector.trace import durations
from collector.trace.model import CommandInfo, CounterInfo, HostInfo, TraceInfo
from collector.trace.peer_names import PeerNames
from collector.trace.reading import Trace
from collector.trace.request_times import ANSWERED, ARRIVED, BEGIN, was_opened_for
from collector.trace.schema import ERRORS
from collector.trace.time_columns import UNSEEN

SLOWEST_COUNT = 5
"""How many of the slowest requests are listed."""
FEWEST_FOR_STAGES = 50
"""With fewer requests, the slowest 2 % are a single one, which is shown anyway."""
SLOWEST_SHARE = 0.02
"""The stage table's last column is the mean over this share of the requests; their median is the 99th percentile."""
MOST_BARS = 60
"""How many spans of the slowest request are drawn."""
TROUBLE = ("data_loss", "error")
"""Severities of counters that every view shows."""
_LOGS_AND_SPANS = {"log_lines_unread", "log_zone_assumed", "log_year_assumed", "spans_unread", "spans_outside"}
_NAMES = {NAMES_DISAGREE, HOST_UNNAMED, NAMES_UNREAD}
SHOWN = capture_sets.NAMES | REMEDIES.keys() | _LOGS_AND_SPANS | _NAMES
"""Counters that a report shows whatever their severity: of captures that do not fit, of connections not read, of logs,
spans and names that were not understood or left something out."""


class HostLine(Struct, frozen=True):
    """A host: its capture and its clock against the reference."""

    host: str
    packets_count: int
    events_count: int
    started_after_ns: int | None  # after the first host's first packet, on the trace's timescale
    captured_ns: int | None
    clock: str  # in words


class RequestLine(Struct, frozen=True):
    """A root request."""

    name: str
    service: str
    client_host: str | None
    status: int | None
    result: str | None  # the answer's result code, in the protocol's words
    status_class: str | None
    outcome: str
    transaction_id: str | None
    duration_ns: int
    spans_count: int
    span_id: int


class RequestSummary(Struct, frozen=True):
    """All root requests of a trace; figures are null without a request of known length for which its client waited."""

    count: int  # this and the next four include requests of unknown length, such as those the server reset at once
    failed_count: int  # this, the next and `unknown_count` by `collector.requests.outcomes`
    abandoned_count: int  # their clients left before they were answered: they are in no figure below
    abandoned_median_ns: int | None  # how long their clients had waited
    unknown_count: int
    exchanges_count: int
    incomplete_count: int
    unread_count: int  # requests of protocols that cannot be read: all bytes before the answer count as one
    background_count: int  # exchanges of daemons, and those made for them (`services.client_requests`)
    unlinked_count: int  # exchanges that a request probably made, but it is unknown which; and all below them
    background_programs: tuple[tuple[str, int], ...]  # background exchanges by daemon, most first; known ones only
    handoffs_count: int  # writes to a server that stood in for another, according to the findings
    mean_ns: int | None
    median_ns: int | None
    p99_ns: int | None
    one_ended: OneEnded  # sums over spans of which only one end was captured
    slowest: tuple[RequestLine, ...]


class StageLine(Struct, frozen=True):
    """A stage of the clients' requests: its mean time over all requests, and over the slowest 2 %."""

    stage: str
    mean_ns: int
    slowest_mean_ns: int


class FindingLine(Struct, frozen=True):
    """A finding; see `collector.findings`."""

    severity: str
    kind: str
    host: str | None
    cost_ns: int
    text: str
    remedy: str


class SpanBar(Struct, frozen=True):
    """A span of the slowest request: `bounds_ns`, from the request's start, separate its five stretches.

    These are connect (and the server's greeting, if it speaks first), its client's pause, request network, work,
    response network; a missing timestamp makes its stretch empty. If the request was given up without an answer, its
    work lasts until then.
    """

    label: str
    depth: int
    bounds_ns: tuple[int, int, int, int, int, int]


class Found(Struct, frozen=True):
    """Requests that a search found."""

    search: str
    root_ids: RootIds


class LoadLine(Struct, frozen=True):
    """A run of a load generator, laid beside the trace."""

    name: str
    sentences: tuple[str, ...]


class WholeTrace(Struct, frozen=True):
    """What a report shows of all packets and connections, whichever requests it is about."""

    hop_states: dict[str, int]
    connections_count: int
    pairing: Pairing
    streams: StreamSummary
    tls: tuple[TlsLine, ...]  # handshakes by server, most first
    servers: tuple[ServedBy, ...]  # servers and their processes, the busiest first; none where no owner is known
    annotations: tuple[AnnotationLine, ...]  # lines of logs and spans of other tracers, most first
    disagreements: tuple[DisagreementLine, ...]  # of spans with packets, by kind


class Report(WholeTrace, frozen=True):
    """All facts that a report shows."""

    url: str
    info: TraceInfo
    story: Story
    hosts: tuple[HostLine, ...]
    requests: RequestSummary
    links: LinkSummary
    stages: tuple[StageLine, ...]  # largest mean first; empty for fewer than `FEWEST_FOR_STAGES` requests
    slow: Comparison  # typical against slow requests
    against: Comparison | None  # another trace against this one
    search: str  # what found the requests that it is about; "" for all of the trace
    slowest_spans: tuple[SpanBar, ...]
    findings: tuple[FindingLine, ...]
    troubles: tuple[CounterInfo, ...]
    load: tuple[LoadLine, ...] = ()  # runs that were given with the trace

    @property
    def command(self) -> CommandInfo | None:
        """The recorded command, if there was one."""
        return self.info.command


def build_report(url: str, other_url: str | None = None, found: Found | None = None) -> Report:
    """The report of the trace at `url`, compared with that at `other_url` if one is given; of some of its requests, if
    a search `found` them: packets, clocks and findings are those of the whole trace all the same.

    Raises: `InputError` if either is no trace.
    """
    trace, others = Trace(url), None if other_url is None else sums_of_trace(Trace(other_url))
    return trace.read_unchanged(lambda info: _collect_facts(trace, info, other_url, others, found))


def _collect_facts(
    trace: Trace, info: TraceInfo, other_url: str | None, others: BlockSums | None, found: Found | None
) -> Report:
    if found is not None:  # what the command did between requests of others is not its own time
        info = replace(info, command=None)
    clocks, rows = trace.read("clocks"), RequestRows.of_trace(trace, None if found is None else found.root_ids)
    with ThreadPoolExecutor(1) as other_thread:
        whole = other_thread.submit(_whole_trace, trace, info)
        roots = read_roots(rows)
        memory.give_back_if_much()
        summary = other_thread.submit(_requests, rows, roots, _frame(trace, "findings", ["kind", "count"]))
        more = story.failed_connects_of(rows, info, partial(trace.batches, "connections"), clocks)
        silences = story.silences_for_ledgers(trace, info, more)
        of_all = trace.read("findings"), silences, trace.read("streams")
        the_story = story.story_of_rows(info, rows, roots, clocks, more, *of_all)
        del of_all
        memory.give_back_if_much()
        ledger = StageLedger.of(rows, roots, more, silences)
        del silences, more, roots
        memory.give_back_if_much()
        stages, slow, against = _compare(ledger, others, other_url or "", trace.url)
        del ledger
        requests = summary.result()
        memory.give_back_if_much()
    return Report(
        **structs.asdict(whole.result()),
        url=trace.url,
        info=info,
        story=the_story,
        links=link_summary(rows.columns("link_reason", "confidence"), the_story.inferred_ns, the_story.duration_ns),
        hosts=_hosts(info.hosts, clocks.to_pylist()),
        requests=requests,
        stages=stages if requests.count >= FEWEST_FOR_STAGES else (),
        slow=slow,
        search="" if found is None else found.search,
        against=against,
        slowest_spans=_span_bars(rows.below(requests.slowest[0].span_id)[0]) if requests.slowest else (),
        findings=_findings(trace),
        troubles=tuple(
            counter
            for counter in info.counters
            if counter.count and (counter.severity in TROUBLE or counter.name in SHOWN)
        ),
    )


def _whole_trace(trace: Trace, info: TraceInfo) -> WholeTrace:
    peers = PeerNames(info)
    return WholeTrace(
        hop_states=_hop_states(trace),
        connections_count=trace.rows_count("connections"),
        pairing=read_pairing(trace),
        streams=summarise_streams(trace.read("streams"), peers_of_connections(trace)),
        tls=tuple(
            replace(line, server=peers.in_text(line.server))
            for line in tls_lines(trace.batches_with_any("connections", TLS_COLUMNS, SHOWING_TLS))
        ),
        servers=served_by(
            trace.batches_with_any("connections", SERVED_COLUMNS, SHOWING_OWNER), ServiceNames(info.services)
        ),
        annotations=annotation_lines(trace),
        disagreements=disagreement_lines(trace),
    )


def _frame(trace: Trace, table: str, columns: list[str]) -> pl.DataFrame:
    frame = pl.from_arrow(trace.read(table, columns))
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _hop_states(trace: Trace) -> dict[str, int]:
    """How many hops there are of each state, most first."""
    counts = Counter[str]()
    for slab in trace.batches("hops", ["state"]):
        found = pl.DataFrame(slab)["state"].value_counts()
        counts.update(dict(found.rows()))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _hosts(hosts: tuple[HostInfo, ...], clocks: list[dict[str, Any]]) -> tuple[HostLine, ...]:
    """Lines in the order of the trace; a host without packets has no window."""
    offsets = {row["host"]: row["offset_ns"] for row in reversed(clocks)}
    starts = {
        host.host: host.first_host_ns - (offsets.get(host.host) or 0)
        for host in hosts
        if host.first_host_ns is not None
    }
    first = min(starts.values(), default=0)
    return tuple(
        HostLine(
            host=host.host,
            packets_count=host.packets_count,
            events_count=host.events_count,
            started_after_ns=starts[host.host] - first if host.host in starts else None,
            captured_ns=None
            if host.first_host_ns is None or host.last_host_ns is None
            else host.last_host_ns - host.first_host_ns,
            clock=_clock_words([row for row in clocks if row["host"] == host.host], on_path=host.on_path),
        )
        for host in hosts
    )


def _clock_words(rows: list[dict[str, Any]], *, on_path: bool) -> str:
    if not rows:
        return "none"
    row = rows[0]
    if row["reference"]:
        return "reference"
    if row["uncertainty_ns"] is None:
        alone = "on the path" if on_path else "not aligned"
        return alone if row["method"] == "none" else f"as it is ({row['method']})"
    offset = durations.with_uncertainty(row["offset_ns"], *(row[name] for name in ERRORS))
    steps = f", {len(rows)} intervals" if len(rows) > 1 else ""
    return f"{offset}{_drift_words(int(row['skew_ppb']), skew_doubt_ppb(row))}{steps}"


def _drift_words(skew_ppb: int, doubt_ppb: int) -> str:
    """A clock's drift in words; a drift within its uncertainty is omitted."""
    return f", drift {skew_ppb:+,} ± {doubt_ppb:,} ppb" if abs(skew_ppb) > doubt_ppb else ""


def _requests(rows: RequestRows, roots: RootRequests, findings: pl.DataFrame) -> RequestSummary:
    client_requests = roots.of_clients(roots.began_ns != UNSEEN)  # of others only a piece behind a hole was captured
    of_each = roots.kinds_of(client_requests)
    outcomes = dict(of_each.group_by(pl.col("outcome").cast(pl.String)).agg(pl.col("count").sum()).rows())
    background = roots.kinds_of(_background(rows, roots))
    background_count = int(background["spans_count"].sum())
    outermost, left = roots.outermost(), pl.Series(roots.duration_ns[abandoned := roots.abandoned_roots()])
    took = pl.Series(roots.duration_ns[outermost])
    handoffs = findings.filter(pl.col("kind").cast(pl.String) == "handoffs")
    slowest = roots.longest(outermost if outermost.any() else abandoned, SLOWEST_COUNT).tolist()

    def figure(value: float | None) -> int | None:
        return None if value is None else round(value)

    return RequestSummary(
        count=int(client_requests.sum()),
        failed_count=outcomes.get(str(Outcome.FAILED), 0),
        abandoned_count=outcomes.get(str(Outcome.ABANDONED), 0),
        abandoned_median_ns=figure(left.quantile(0.5, "linear")),
        unknown_count=outcomes.get(str(Outcome.UNKNOWN), 0) + outcomes.get(None, 0),
        exchanges_count=roots.exchanges_count,
        incomplete_count=roots.incomplete_count,
        unread_count=int((outermost & roots.of_kinds(pl.col("protocol").cast(pl.String) == UNKNOWN)).sum()),
        background_count=background_count,
        background_programs=_programs(background),
        unlinked_count=roots.exchanges_count - int(of_each["spans_count"].sum()) - background_count,
        handoffs_count=int(handoffs["count"].sum()),
        mean_ns=figure(took.mean()),  # type: ignore[arg-type]
        median_ns=figure(took.quantile(0.5, "linear")),
        p99_ns=figure(took.quantile(0.99)),
        one_ended=sum_one_ended(
            part.filter(pl.Series(of_roots(outermost, root, missing=False)))
            for part, root in roots.batches(rows, *ONE_ENDED_COLUMNS)
        ),
        slowest=tuple(map(_request_line, rows.below(*slowest))),
    )


def _background(rows: RequestRows, roots: RootRequests) -> Mask:
    """The roots of requests that go on by themselves (`collector.services.client_requests`)."""
    every = np.ones(len(roots.ids), np.bool_)
    daemons = roots.of_kinds(pl.col("background").fill_null(value=False))
    others = ~daemons & ~roots.of_clients(every)
    hosts = roots.kinds_of(others)["client_host"].drop_nulls().unique()
    calls, served = [], []
    for part, root in roots.batches(rows, "client_host", *RHYTHM_COLUMNS) if others.any() else ():
        is_other = (part["depth"] == 0) & pl.Series(of_roots(others, root, missing=False))
        calls.append(part.filter(is_other).select("client_host", "service", begin=BEGIN.expr()))
        served.append(times_served(part.filter(pl.col("server_host").is_in(hosts.implode()))))
    found = daemons
    if calls:
        found[others] = has_own_rhythm(pl.concat(calls), pl.concat(served)).to_numpy()
    return found


def _request_line(rows: pl.DataFrame) -> RequestLine:
    """Arguments: the rows of one root request."""
    row = rows.row(by_predicate=pl.col("exchange_id") == pl.col("trace_id"), named=True)
    return RequestLine(
        name=story.request_name(row),
        service=row["service"],
        client_host=row["client_host"],
        status=row["status"],
        result=row["result"],
        status_class=row["status_class"],
        outcome=row["outcome"] or str(Outcome.UNKNOWN),
        transaction_id=row["transaction_id"],
        duration_ns=row["duration_ns"],
        spans_count=len(rows),
        span_id=row["exchange_id"],
    )


def _programs(background: pl.DataFrame) -> tuple[tuple[str, int], ...]:
    """Counts of exchanges by daemon. Arguments: the kinds of the roots of each trace."""
    named = background.with_columns(pl.col("client_service").cast(pl.String)).drop_nulls("client_service")
    counts = named.group_by("client_service").agg(pl.col("spans_count").sum())
    return tuple(counts.sort("spans_count", "client_service", descending=[True, False]).iter_rows())


def _compare(
    stages: StageLedger, others: BlockSums | None, other_url: str, url: str
) -> tuple[tuple[StageLine, ...], Comparison, Comparison | None]:
    """The stages of the requests, slow ones against typical ones, and another trace against this one. The ledger is
    read once for all of them."""
    requests = stages.requests
    is_slowest = pl.col("took") >= pl.col("took").quantile(1 - SLOWEST_SHARE, "linear")
    slowest = requests.select(is_slowest.cast(pl.UInt32)).to_series().to_numpy()
    typical, slow = typical_and_slow(stages)
    memory.give_back_if_much()
    every = None if others is None else Blocks.of_all(stages)
    cells = {"slowest": slowest, "typical": typical.cells, "slow": slow.cells}
    sums = stages.sums(**cells | ({} if every is None else {"every": every.cells}))
    lines = _stages(sums, len(requests), int(slowest.sum()))
    against = None
    if others is not None and every is not None:
        against = compare_sums(others, BlockSums.of_cells(every, sums, "every"), other_url, url)
    return lines, compare_slow(typical, slow, sums), against


def _stages(sums: pl.DataFrame, requests_count: int, slowest_count: int) -> tuple[StageLine, ...]:
    """Means of the stages over all requests, and over the slowest (`SLOWEST_SHARE`)."""
    spent = pl.col("duration_ns")
    means = (
        sums.group_by("stage")
        .agg(
            mean=spent.sum() / requests_count,
            slowest=spent.filter(pl.col("slowest") > 0).sum() / slowest_count,
        )
        .sort("mean", "stage", descending=[True, False])
    )
    return tuple(StageLine(stage, round(mean), round(slowest)) for stage, mean, slowest in means.iter_rows())


def _span_bars(rows: pl.DataFrame) -> tuple[SpanBar, ...]:
    """The spans of a request in order of time."""
    stamps = rows.select(
        "depth",
        label=pl.format(
            "{} {} @ {}",
            pl.coalesce("operation", "method", pl.lit("")),
            "service",
            pl.col("server_host").fill_null("?"),
        ),
        start="start_trace_ns",
        connected=pl.when(was_opened_for()).then(pl.max_horizontal("connected_trace_ns", "greeting_received_trace_ns")),
        sent="request_first_sent_trace_ns",
        arrived=ARRIVED.expr(),
        answered=ANSWERED.expr(),
        ended="end_trace_ns",
    ).sort("start")
    first = stamps["start"].min()
    bars = []
    for row in stamps.drop_nulls("start").head(MOST_BARS).iter_rows(named=True):
        bounds = [row["start"]]
        for name in ("connected", "sent", "arrived", "answered", "ended"):
            bounds.append(bounds[-1] if row[name] is None else max(bounds[-1], row[name]))
        start, connected, sent, arrived, answered, ended = (at - first for at in bounds)
        bars.append(SpanBar(row["label"].strip(), row["depth"], (start, connected, sent, arrived, answered, ended)))
    return tuple(bars)


def _findings(trace: Trace) -> tuple[FindingLine, ...]:
    rows = _frame(trace, "findings", ["severity", "kind", "host", "cost_ns", "text", "remedy"])
    return tuple(FindingLine(**row) for row in rows.iter_rows(named=True))
