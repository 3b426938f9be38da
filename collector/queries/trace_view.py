"""A trace, opened for questions. The hops' columns that a timeline needs are kept; a packet's fields are read when
asked for. Times are int64 ns relative to `TraceView.start_ns`: the first packet or, if earlier, the start of the
recorded command."""

from collections.abc import Callable
from pathlib import PurePosixPath

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector import store, story
from collector.comparison import Comparison, compare, slow_against_typical, stages_at
from collector.packets import read_packet
from collector.queries.answers import Arrows, Hop, Problem, Request, Summary
from collector.queries.lanes import command_of, command_span, lane_order, lanes_of
from collector.queries.problems import PROBLEM_CLASSES, Problems, seen
from collector.queries.tables import Tables
from collector.schema import HopState
from collector.span_trees import Span, SpanTrees
from collector.stages import request_stages
from collector.store import Read, TraceInfo
from collector.timeline import KINDS, MISSING_NS, STATES, ArrowClass, DensityCounts, HopColumns, HopIndex
from tracer.errors import InputError

DETAIL_COLUMNS = (
    *("connection_id", "send_host", "send_frame", "receive_host", "receive_frame", "stream_start", "stream_end"),
    *("attempt", "one_way_delay_ns", "uncertainty_ns"),
)


FIRST_NS = -(1 << 62)
"""Before any time of a trace."""


class TraceView:
    """A trace, opened for questions. Safe to use from several threads: nothing changes after it is made."""

    def __init__(self, url: str, info: TraceInfo, tables: Tables) -> None:
        self.url, self._info, self._tables = url, info, tables
        command_ns = command_span(info, tables.clocks)
        self.start_ns, end_ns = _bounds(tables.hops, command_ns)
        self.duration_ns = max(1, end_ns - self.start_ns)
        self._trees = SpanTrees(tables.spans, tables.exchanges, self.start_ns)
        self._hosts = lane_order(info, tables.hops, self._trees.serving_depth())
        self.lanes = lanes_of(self._hosts, info, tables.clocks, self._trees.services())
        self.command = command_of(info.command, command_ns, self.start_ns, self._hosts)
        self._columns = HopColumns.from_table(tables.hops, self._hosts, self.start_ns, self._trees.span_ids)
        self._index = HopIndex(self._columns, len(self._hosts))
        self._request = _requests_of(self._columns.span, self._trees.request_of_span)
        self._problems = Problems(self._columns, self._hosts, tables, self.start_ns)
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

    def packets_between(self, from_ns: int, to_ns: int, first: int, count: int) -> Arrows:
        """Up to `count` of the hops in [from_ns, to_ns), as `count` counts them, from the `first` on; by time."""
        begin, most = self.count(FIRST_NS, from_ns), self.count(from_ns, to_ns)
        return self._arrows_of(np.arange(begin + min(first, most), begin + min(first + count, most)))

    def request_packets(self, number: int, first: int, count: int) -> Arrows:
        """Up to `count` hops of a request, from its `first` on, in order of time."""
        return self._arrows_of(self._request_rows(number)[first : first + count])

    def rows_between(self, from_ns: int, to_ns: int) -> NDArray[np.int64]:
        """Places in the table `hops` of those in [from_ns, to_ns), as `count` counts them; ascending."""
        first, count = self.count(FIRST_NS, from_ns), self.count(from_ns, to_ns)
        return np.sort(self._columns.row[first : first + count]).astype(np.int64)

    def rows_of_request(self, number: int) -> NDArray[np.int64]:
        """Places in the table `hops` of a request's; ascending."""
        return np.sort(self._columns.row[self._request_rows(number)]).astype(np.int64)

    def hop(self, number: int) -> Hop | None:
        """One hop in full; None if there is none of this number.

        Raises: `InputError` if the trace was made anew since it was opened, as a live one is.
        """
        if not 0 <= number < len(self._columns):
            return None
        return self.unchanged(lambda: self._hop_at(number))

    def requests(self, limit: int) -> tuple[Request, ...]:
        """The slowest requests, slowest first."""
        slowest = np.argsort(-self.request_durations_ns(), kind="stable")[:limit]
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
        return compare(mine, stages_at(other_url), self.url, other_url)

    def request_texts(self) -> pl.DataFrame:
        """Of each exchange its `request`, `connection_id`, hosts, `status` and texts; by request."""
        return self._trees.texts()

    def request_durations_ns(self) -> NDArray[np.int64]:
        """Of all requests, in order of their numbers."""
        return np.asarray(self._trees.end_ns - self._trees.start_ns)

    def next_problem(self, at_ns: int, backwards: bool = False) -> Problem | None:
        """The nearest problem after (or before) a time: a lost or repeated packet, a reset, or a finding."""
        return self._problems.next(at_ns, backwards)

    def first_trouble(self, connection_id: int) -> Problem | None:
        """The first hop of a connection that was lost, sent again, not paired, or received before it was sent.

        Cost: one column of the hops is read, about 0.1 s for each million.
        Raises: as `hop`.
        """
        ids = self.unchanged(lambda: store.read_table(self.url, "hops", ["connection_id"])["connection_id"])
        return self._problems.first_among(np.flatnonzero(pc.equal(ids, connection_id).fill_null(False).to_numpy()))

    def unchanged(self, read: Callable[[], Read]) -> Read:
        """What is read of the tables at `url` now, if they are still those that were opened.

        Raises: `InputError` if the trace was made anew meanwhile.
        """

        def checked(info: TraceInfo) -> Read:
            if info.created_ns != self._info.created_ns:
                raise InputError(f"{self.url} was made anew since it was opened", "open it again with `tracer view`")
            return read()

        return store.read_unchanged(self.url, checked)

    def _summarise(self) -> Summary:
        columns = self._columns
        delays = _delays(columns)
        median, high = np.percentile(delays, (50, 99), method="nearest") if len(delays) else (None, None)
        return Summary(
            name=PurePosixPath(self.url.rstrip("/")).name or self.url,
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

    def _hop_at(self, at: int) -> Hop:
        columns = self._columns
        raw = store.read_rows(self.url, "hops", DETAIL_COLUMNS, int(columns.row[at]), 1).to_pylist()[0]
        span = int(columns.span[at])
        return Hop(
            number=at,
            kind=KINDS[columns.kind[at]],
            state=STATES[columns.state[at]],
            arrow_class=ArrowClass(int(columns.arrow_class[at])),
            attempt=int(raw["attempt"] or 1),
            source_host=raw["send_host"],
            target_host=raw["receive_host"],
            sent_ns=seen(columns.sent_ns[at]),
            received_ns=seen(columns.received_ns[at]),
            delay_ns=raw["one_way_delay_ns"],
            uncertainty_ns=raw["uncertainty_ns"],
            stream_start=raw["stream_start"],
            stream_end=raw["stream_end"],
            connection_id=raw["connection_id"],
            request=None if span < 0 else int(self._request[at]),
            span=None if span < 0 else span,
            sent_packet=read_packet(self.url, raw["send_host"], raw["send_frame"]),
            received_packet=read_packet(self.url, raw["receive_host"], raw["receive_frame"]),
        )


def open_trace(url: str) -> TraceView:
    """Read a trace for viewing. Cost: about 1.1 s of CPU time and, at the peak, 280 MB for each million hops.

    Raises: `InputError` if `url` is no trace.
    """
    return store.read_unchanged(url, lambda info: TraceView(url, info, Tables.read(url)))


def _bounds(hops: pa.Table, command_span: tuple[int, int] | None) -> tuple[int, int]:
    """First and last time of the trace, trace time; (0, 0) for an empty one."""
    times = [] if command_span is None else [*command_span]
    for name in ("send_trace_ns", "receive_trace_ns"):
        bounds = pc.min_max(hops[name]).as_py()
        times += [bounds["min"], bounds["max"]]
    known = [time for time in times if time is not None]
    return (min(known), max(known)) if known else (0, 0)


def _requests_of(span: NDArray[np.int32], request_of_span: NDArray[np.int32]) -> NDArray[np.int32]:
    """Each hop's request, -1 for none."""
    return np.append(request_of_span, np.int32(-1))[span]


def _delays(columns: HopColumns) -> NDArray[np.int64]:
    """Delays of the hops that were seen at both ends, on two hosts."""
    seen = (columns.state == STATES.index(HopState.MATCHED)) & (columns.source != columns.target)
    seen &= (columns.sent_ns != MISSING_NS) & (columns.received_ns != MISSING_NS)
    return columns.received_ns[seen] - columns.sent_ns[seen]
