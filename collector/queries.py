"""What a viewer asks of a trace: one typed answer for each question, all of it from the tables.

`open_trace` reads the columns that a timeline needs and keeps them; the fields of a packet are read from the table
`events` when asked for. Times are int64 ns relative to `TraceView.start_ns`, which is the first packet or, if earlier,
the start of the recorded command. Nothing is corrected here: what the tables lack, the answers lack.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector import store, story
from collector.comparison import (
    Comparison,
    Group,
    KindComparison,
    StageDifference,
    compare,
    slow_against_typical,
    stages_at,
)
from collector.durations import in_words, with_uncertainty
from collector.packets import PacketFields, read_packet
from collector.pairing import NAMES as PAIRING_NAMES
from collector.pairing import Pairing, connection_name, pair_name, read_pairing, trouble_words
from collector.quality import ConnectionQuality, HostPair
from collector.schema import HopKind, HopState
from collector.span_trees import Span, SpanTrees
from collector.spans import LEDGER_COLUMNS
from collector.stages import request_stages
from collector.store import CommandInfo, CounterInfo, HostInfo, Read, TraceInfo
from collector.story import Story
from collector.timeline import (
    KINDS,
    MISSING_NS,
    NO_LANE,
    STATES,
    ArrowClass,
    DensityCounts,
    HopColumns,
    HopIndex,
)
from tracer.errors import InputError

__all__ = [
    "KINDS",
    "LEDGER_COLUMNS",
    "MISSING_NS",
    "NO_LANE",
    "PAIRING_NAMES",
    "STATES",
    "ArrowClass",
    "Arrows",
    "Command",
    "Comparison",
    "ConnectionQuality",
    "CounterInfo",
    "DensityCounts",
    "Group",
    "Hop",
    "HopKind",
    "HopState",
    "HostPair",
    "KindComparison",
    "Lane",
    "PacketFields",
    "Pairing",
    "Problem",
    "Request",
    "Span",
    "StageDifference",
    "Story",
    "Summary",
    "TraceView",
    "connection_name",
    "in_words",
    "open_trace",
    "pair_name",
    "trouble_words",
    "with_uncertainty",
]

HOP_COLUMNS = (
    *("kind", "send_host", "send_trace_ns", "receive_host", "receive_trace_ns"),
    *("stream_start", "stream_end", "attempt", "state", "exchange_id"),
)
DETAIL_COLUMNS = (
    *("connection_id", "send_host", "send_frame", "receive_host", "receive_frame", "stream_start", "stream_end"),
    *("attempt", "one_way_delay_ns", "uncertainty_ns"),
)
PROBLEM_CLASSES = (ArrowClass.RETRANSMISSION, ArrowClass.LOST)
WHAT = {ArrowClass.RETRANSMISSION: "sent again", ArrowClass.LOST: "lost"}
FINE = [STATES.index(HopState.MATCHED), STATES.index(HopState.OUTSIDE_WINDOW)]
"""States in which nothing failed."""
TROUBLE = ("warning", "error")
"""Severities of findings that count as problems."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A host as a line of the timeline."""

    host: str
    addresses: tuple[str, ...]
    services: tuple[str, ...]
    packets_count: int
    clock: str  # how its clock was put on the trace's timescale, in words
    clock_offset_ns: int | None
    clock_uncertainty_ns: int | None


@dataclass(frozen=True, slots=True)
class Command:
    """The command that was recorded."""

    argv: tuple[str, ...]
    lane: int  # NO_LANE if its host was not captured
    from_ns: int
    to_ns: int
    exit_status: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The trace in a line."""

    name: str
    packets_count: int  # at all capture points
    hops_count: int
    requests_count: int
    connections_count: int
    duration_ns: int
    first_hop_ns: int | None  # when the first packet was seen
    last_hop_ns: int | None
    delay_p50_ns: int | None  # over hops between hosts that were seen at both ends
    delay_p99_ns: int | None
    class_counts: tuple[int, ...]  # hops by ArrowClass
    state_counts: tuple[int, ...]  # hops by STATES
    warnings: tuple[CounterInfo, ...]  # counters of severity data_loss or error


@dataclass(frozen=True, slots=True)
class Arrows:
    """Some hops as columns of equal length; `number`, the rank by time within the trace, names them."""

    number: NDArray[np.uint32]
    sent_ns: NDArray[np.int64]  # MISSING_NS if not seen
    received_ns: NDArray[np.int64]
    source: NDArray[np.uint16]
    target: NDArray[np.uint16]
    arrow_class: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    state: NDArray[np.uint8]
    attempt: NDArray[np.uint8]
    size_bytes: NDArray[np.uint32]
    stream_start: NDArray[np.int64]  # bytes past the connection's beginning
    request: NDArray[np.int32]  # -1 if it belongs to none


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop in full, with the packet that was seen at each of its ends."""

    number: int
    kind: HopKind
    state: HopState
    arrow_class: ArrowClass
    attempt: int
    source_host: str | None
    target_host: str | None
    sent_ns: int | None
    received_ns: int | None
    delay_ns: int | None
    uncertainty_ns: int | None
    stream_start: int | None
    stream_end: int | None
    connection_id: int | None
    request: int | None
    span: int | None
    sent_packet: PacketFields | None
    received_packet: PacketFields | None


@dataclass(frozen=True, slots=True)
class Request:
    """A root request as a row of a list."""

    number: int
    title: str
    service: str
    client_host: str | None
    server_host: str | None
    status: int
    complete: bool
    start_ns: int
    end_ns: int
    spans_count: int
    hops_count: int
    problems_count: int

    @property
    def duration_ns(self) -> int:
        """From its first packet to its last."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Problem:
    """A place where something went wrong; `hop` is the number of the hop, if it is one."""

    from_ns: int
    to_ns: int
    hop: int | None
    text: str


class TraceView:
    """A trace, opened for questions. Safe to use from several threads: nothing changes after it is made."""

    def __init__(self, url: str, info: TraceInfo, tables: "_Tables") -> None:
        self._url, self._info, self._tables = url, info, tables
        command_span = _command_span(info, tables.clocks)
        self.start_ns, end_ns = _bounds(tables.hops, command_span)
        self.duration_ns = max(1, end_ns - self.start_ns)
        self._trees = SpanTrees(tables.spans, tables.exchanges, self.start_ns)
        self._hosts = _lane_order(info, tables.hops, self._trees.serving_depth())
        self.lanes = _lanes(self._hosts, info, tables.clocks, self._trees.services())
        self.command = _command(info.command, command_span, self.start_ns, self._hosts)
        self._columns = HopColumns.from_table(tables.hops, self._hosts, self.start_ns, self._trees.span_ids)
        self._index = HopIndex(self._columns, len(self._hosts))
        self._request = _requests_of(self._columns.span, self._trees.request_of_span)
        self._problem_rows = np.flatnonzero(np.isin(self._columns.arrow_class, PROBLEM_CLASSES))
        self.story = story.tell(info, tables.spans, tables.exchanges, tables.clocks)
        self.pairing = tables.pairing
        self.summary = self._summarise()

    @property
    def pairs(self) -> NDArray[np.uint16]:
        """Directed pairs of lanes that exchange packets, shape (n, 2); `NO_LANE` for an end that is not known."""
        return self._index.pairs

    @property
    def typical_delay_ns(self) -> NDArray[np.int64]:
        """Median delay of each of `pairs`."""
        return self._index.typical_delay_ns

    def arrows(self, from_ns: int, to_ns: int, limit: int) -> Arrows | None:
        """The arrows that overlap [from_ns, to_ns]; None if there are more than `limit`."""
        rows = self._index.overlapping(from_ns, to_ns, limit)
        return None if rows is None else self._arrows_of(rows)

    def count(self, from_ns: int, to_ns: int) -> int:
        """Hops in [from_ns, to_ns), each counted where it was sent or, failing that, received."""
        return self._index.count(from_ns, to_ns)

    def density(self, from_ns: int, to_ns: int, most_bins: int) -> DensityCounts:
        """Hops counted by pair, class and time bin, in at most `most_bins` bins that cover [from_ns, to_ns)."""
        return self._index.density(from_ns, to_ns, most_bins)

    def request_arrows(self, number: int, limit: int) -> Arrows | None:
        """The arrows of one request; None if there are more than `limit`."""
        rows = self._request_rows(number)
        return None if len(rows) > limit else self._arrows_of(rows)

    def request_density(self, number: int, most_bins: int) -> DensityCounts:
        """The hops of one request (which has some) counted by pair, class and time bin."""
        return self._index.density_of(self._request_rows(number), most_bins)

    def hop(self, number: int) -> Hop | None:
        """One hop in full; None if there is none of this number.

        Raises: `InputError` if the trace was made anew since it was opened, as a live one is.
        """
        if not 0 <= number < len(self._columns):
            return None
        return self._of_this_trace(lambda: self._hop_at(number))

    def requests(self, limit: int) -> tuple[Request, ...]:
        """The slowest requests, slowest first."""
        durations = self._trees.end_ns - self._trees.start_ns
        slowest = np.argsort(-durations, kind="stable")[:limit]
        return tuple(self.request(int(number)) for number in slowest)

    def request(self, number: int) -> Request:
        """One request as a row of a list. Cost: a search over the hops of its time."""
        assert 0 <= number < len(self._trees), number
        root, rows = self._trees.root(number), self._request_rows(number)
        return Request(
            number=number,
            title=root.title,
            service=root.service,
            client_host=root.client_host,
            server_host=root.server_host,
            status=root.status,
            complete=root.complete,
            start_ns=int(self._trees.start_ns[number]),
            end_ns=int(self._trees.end_ns[number]),
            spans_count=self._trees.spans_count(number),
            hops_count=len(rows),
            problems_count=int(np.isin(self._columns.arrow_class[rows], PROBLEM_CLASSES).sum()),
        )

    def request_of(self, transaction_id: str) -> int | None:
        """The number of the request with that transaction id; None if there is none. Cost: a search over exchanges."""
        exchanges = self._tables.exchanges
        found = exchanges.filter(pc.equal(exchanges["transaction_id"].cast(pa.string()), transaction_id))
        at = np.flatnonzero(np.isin(self._trees.span_ids, found["exchange_id"].to_numpy()))
        return int(self._trees.request_of_span[at].min()) if len(at) else None

    def spans(self, number: int) -> tuple[Span, ...]:
        """The spans of a request, root first, each followed by its children in order of time."""
        assert 0 <= number < len(self._trees), number
        return self._trees.spans(number)

    def slow_against_typical(self) -> Comparison:
        """What makes slow requests slow: the slowest 5 % of each kind against the middle half of it."""
        return slow_against_typical(request_stages(self._tables.spans, self._tables.exchanges))

    def against(self, other_url: str) -> Comparison:
        """This trace against another one.

        Raises: `InputError` if that is no trace.
        """
        mine = request_stages(self._tables.spans, self._tables.exchanges)
        return compare(mine, stages_at(other_url), self._url, other_url)

    def next_problem(self, at_ns: int, backwards: bool = False) -> Problem | None:
        """The nearest problem after (or before) a time: a lost or repeated packet, a reset, or a finding."""
        candidates = [*self._problem_hop(at_ns, backwards), *self._problem_finding(at_ns, backwards)]
        if not candidates:
            return None
        return max(candidates, key=_begin) if backwards else min(candidates, key=_begin)

    def first_trouble(self, connection_id: int) -> Problem | None:
        """The first hop of a connection that was lost, sent again, not paired, or received before it was sent.

        Cost: one column of the hops is read, about 0.1 s for each million.
        Raises: as `hop`.
        """
        ids = self._of_this_trace(lambda: store.read_table(self._url, "hops", ["connection_id"])["connection_id"])
        columns, rows = self._columns, np.flatnonzero(pc.equal(ids, connection_id).fill_null(False).to_numpy())
        hops = np.flatnonzero(np.isin(columns.row, rows))
        early = (columns.received_ns[hops] < columns.sent_ns[hops]) & (columns.received_ns[hops] != MISSING_NS)
        unpaired = ~np.isin(columns.state[hops], FINE)
        trouble = hops[early | unpaired | (columns.attempt[hops] > 1)]
        return self._problem_at(int(trouble[0])) if len(trouble) else None

    def _summarise(self) -> Summary:
        columns = self._columns
        delays = _delays(columns)
        median, high = np.percentile(delays, (50, 99), method="nearest") if len(delays) else (None, None)
        return Summary(
            name=PurePosixPath(self._url.rstrip("/")).name or self._url,
            packets_count=sum(host.events_count for host in self._info.hosts),
            hops_count=len(columns),
            requests_count=len(self._trees),
            connections_count=self._tables.connections_count,
            duration_ns=self.duration_ns,
            first_hop_ns=int(columns.anchor_ns[0]) if len(columns) else None,
            last_hop_ns=int(max(columns.anchor_ns[-1], columns.received_ns.max())) if len(columns) else None,
            delay_p50_ns=None if median is None else int(median),
            delay_p99_ns=None if high is None else int(high),
            class_counts=tuple(np.bincount(columns.arrow_class, minlength=len(ArrowClass)).tolist()),
            state_counts=tuple(np.bincount(columns.state, minlength=len(STATES)).tolist()),
            warnings=tuple(each for each in self._info.counters if each.severity in ("data_loss", "error")),
        )

    def _arrows_of(self, rows: NDArray[np.intp]) -> Arrows:
        columns = self._columns
        return Arrows(
            number=rows.astype(np.uint32),
            sent_ns=columns.sent_ns[rows],
            received_ns=columns.received_ns[rows],
            source=columns.source[rows],
            target=columns.target[rows],
            arrow_class=columns.arrow_class[rows],
            kind=columns.kind[rows],
            state=columns.state[rows],
            attempt=columns.attempt[rows],
            size_bytes=columns.size_bytes[rows],
            stream_start=columns.stream_start[rows],
            request=self._request[rows],
        )

    def _request_rows(self, number: int) -> NDArray[np.intp]:
        """A request's hops; they may begin before it (a handshake) and end after it (a FIN), by up to its length."""
        start, end = int(self._trees.start_ns[number]), int(self._trees.end_ns[number])
        margin = max(end - start, 1_000_000_000)
        low, high = np.searchsorted(self._columns.anchor_ns, (start - margin, end + margin + 1))
        return np.flatnonzero(self._request[low:high] == number) + low

    def _of_this_trace(self, read: Callable[[], Read]) -> Read:
        """What is read of the tables now, if they are still those that were opened."""

        def checked(info: TraceInfo) -> Read:
            if info.created_ns != self._info.created_ns:
                raise InputError(f"{self._url} was made anew since it was opened", "open it again with `tracer view`")
            return read()

        return store.read_unchanged(self._url, checked)

    def _hop_at(self, at: int) -> Hop:
        columns = self._columns
        raw = store.read_rows(self._url, "hops", DETAIL_COLUMNS, int(columns.row[at]), 1).to_pylist()[0]
        span = int(columns.span[at])
        return Hop(
            number=at,
            kind=KINDS[columns.kind[at]],
            state=STATES[columns.state[at]],
            arrow_class=ArrowClass(int(columns.arrow_class[at])),
            attempt=int(raw["attempt"] or 1),
            source_host=raw["send_host"],
            target_host=raw["receive_host"],
            sent_ns=_seen(columns.sent_ns[at]),
            received_ns=_seen(columns.received_ns[at]),
            delay_ns=raw["one_way_delay_ns"],
            uncertainty_ns=raw["uncertainty_ns"],
            stream_start=raw["stream_start"],
            stream_end=raw["stream_end"],
            connection_id=raw["connection_id"],
            request=None if span < 0 else int(self._request[at]),
            span=None if span < 0 else span,
            sent_packet=read_packet(self._url, raw["send_host"], raw["send_frame"]),
            received_packet=read_packet(self._url, raw["receive_host"], raw["receive_frame"]),
        )

    def _problem_hop(self, at_ns: int, backwards: bool) -> list[Problem]:
        times = self._columns.anchor_ns[self._problem_rows]
        place = int(np.searchsorted(times, at_ns, side="left" if backwards else "right")) - (1 if backwards else 0)
        if not 0 <= place < len(times):
            return []
        return [self._problem_at(int(self._problem_rows[place]))]

    def _problem_at(self, at: int) -> Problem:
        columns, begin_ns = self._columns, int(self._columns.anchor_ns[at])
        source, target = (self._host_name(lane[at]) for lane in (columns.source, columns.target))
        kind, state = KINDS[columns.kind[at]], STATES[columns.state[at]]
        alone = "received before sent" if state is HopState.MATCHED else state.replace("_", " ")
        what = WHAT.get(ArrowClass(columns.arrow_class[at]), alone)
        text = f"reset, {source} → {target}" if kind is HopKind.RST else f"{kind} {what}, {source} → {target}"
        return Problem(begin_ns, _seen(columns.received_ns[at]) or begin_ns, at, text)

    def _problem_finding(self, at_ns: int, backwards: bool) -> list[Problem]:
        times = self._tables.trouble_from_ns - self.start_ns
        place = int(np.searchsorted(times, at_ns, side="left" if backwards else "right")) - (1 if backwards else 0)
        if not 0 <= place < len(times):
            return []
        row = self._tables.trouble.slice(place, 1).to_pylist()[0]
        end = int(times[place]) if row["to_trace_ns"] is None else row["to_trace_ns"] - self.start_ns
        return [Problem(int(times[place]), end, None, row["text"] or row["kind"] or "finding")]

    def _host_name(self, lane: int) -> str:
        return "an uncaptured host" if lane == NO_LANE else self._hosts[lane]


def open_trace(url: str) -> TraceView:
    """Read a trace for viewing. Cost: about 1.1 s of CPU time and, at the peak, 280 MB for each million hops.

    Raises: `InputError` if `url` is no trace.
    """
    return store.read_unchanged(url, lambda info: TraceView(url, info, _Tables.read(url)))


@dataclass(frozen=True, slots=True)
class _Tables:
    hops: pa.Table
    clocks: pa.Table
    spans: pa.Table
    exchanges: pa.Table
    trouble: pa.Table  # findings that are problems and have a time, sorted by it
    trouble_from_ns: NDArray[np.int64]
    connections_count: int
    pairing: Pairing

    @classmethod
    def read(cls, url: str) -> "_Tables":
        findings = store.read_table(url, "findings")
        severity = pc.is_in(findings["severity"].cast(pa.string()), pa.array(TROUBLE))
        trouble = findings.filter(pc.and_(severity, pc.is_valid(findings["from_trace_ns"]))).sort_by("from_trace_ns")
        return cls(
            hops=store.read_table(url, "hops", HOP_COLUMNS),
            clocks=store.read_table(url, "clocks"),
            spans=store.read_table(url, "spans"),
            exchanges=store.read_table(url, "exchanges"),
            trouble=trouble,
            trouble_from_ns=trouble["from_trace_ns"].to_numpy(),
            connections_count=store.read_table(url, "connections", ["connection_id"]).num_rows,
            pairing=read_pairing(url),
        )


def _begin(problem: Problem) -> int:
    return problem.from_ns


def _seen(time_ns: np.int64) -> int | None:
    return None if time_ns == MISSING_NS else int(time_ns)


def _bounds(hops: pa.Table, command_span: tuple[int, int] | None) -> tuple[int, int]:
    """First and last time of the trace, trace time; (0, 0) for an empty one."""
    times = [] if command_span is None else [*command_span]
    for name in ("send_trace_ns", "receive_trace_ns"):
        bounds = pc.min_max(hops[name]).as_py()
        times += [bounds["min"], bounds["max"]]
    known = [time for time in times if time is not None]
    return (min(known), max(known)) if known else (0, 0)


def _command_span(info: TraceInfo, clocks: pa.Table) -> tuple[int, int] | None:
    """The recorded command's start and end in trace time."""
    command = info.command
    if command is None:
        return None
    rows = [row for row in clocks.to_pylist() if row["host"] == command.host]
    return _trace_ns(command.started_host_ns, rows), _trace_ns(command.ended_host_ns, rows)


def _trace_ns(host_ns: int, clock_rows: list[dict[str, int]]) -> int:
    """A host's stamp in trace time, by the interval that holds it or else the nearest; see `schema.CLOCKS`."""
    if not clock_rows:
        return host_ns
    row = min(clock_rows, key=lambda each: max(each["from_host_ns"] - host_ns, host_ns - each["to_host_ns"], 0))
    return host_ns - row["offset_ns"] - row["skew_ppb"] * (host_ns - row["from_host_ns"]) // 1_000_000_000


def _command(
    info: CommandInfo | None, span: tuple[int, int] | None, start_ns: int, hosts: Sequence[str]
) -> Command | None:
    if info is None or span is None:
        return None
    lane = hosts.index(info.host) if info.host in hosts else NO_LANE
    return Command(info.argv, lane, span[0] - start_ns, span[1] - start_ns, info.exit_status)


def _lane_order(info: TraceInfo, hops: pa.Table, depth: dict[str, int]) -> list[str]:
    """Hosts from the client inwards: those that serve nothing, then by how deep in requests they serve, then those
    without a packet."""
    busy = {
        host for name in ("send_host", "receive_host") for host in pc.unique(hops[name]).to_pylist() if host is not None
    }
    known = busy | {host.host for host in info.hosts}
    return sorted(known, key=lambda host: (host not in busy, depth.get(host, -1), _natural(host)))


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which storage2 comes before storage10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"([0-9]+)", text)]


def _lanes(
    hosts: Sequence[str], info: TraceInfo, clocks: pa.Table, services: dict[str, tuple[str, ...]]
) -> tuple[Lane, ...]:
    known = {host.host: host for host in info.hosts}
    rows = clocks.to_pylist()
    return tuple(
        _lane(host, known.get(host), [row for row in rows if row["host"] == host], services.get(host, ()))
        for host in hosts
    )


def _lane(host: str, info: HostInfo | None, clocks: list[dict[str, object]], services: tuple[str, ...]) -> Lane:
    first = clocks[0] if clocks else {}
    offset, uncertainty = first.get("offset_ns"), first.get("uncertainty_ns")
    method = "reference clock" if first.get("reference") else str(first.get("method") or "not aligned")
    return Lane(
        host=host,
        addresses=info.addresses if info else (),
        services=services,
        packets_count=info.events_count if info else 0,
        clock=method,
        clock_offset_ns=offset if isinstance(offset, int) else None,
        clock_uncertainty_ns=uncertainty if isinstance(uncertainty, int) else None,
    )


def _requests_of(span: NDArray[np.int32], request_of_span: NDArray[np.int32]) -> NDArray[np.int32]:
    """Each hop's request, -1 for none."""
    return np.append(request_of_span, np.int32(-1))[span]


def _delays(columns: HopColumns) -> NDArray[np.int64]:
    """Delays of the hops that were seen at both ends, on two hosts."""
    seen = (columns.state == STATES.index(HopState.MATCHED)) & (columns.source != columns.target)
    seen &= (columns.sent_ns != MISSING_NS) & (columns.received_ns != MISSING_NS)
    return columns.received_ns[seen] - columns.sent_ns[seen]
