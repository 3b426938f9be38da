"""An opened trace with its queries. The columns of hops that a timeline needs are kept; a packet's fields are read on
demand. Times are int64 ns relative to `TraceView.start_ns`: the first packet or, if earlier, the start of the recorded
command."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc
from msgspec.structs import replace
from numpy.typing import NDArray

from collector import _core
from collector.hops.owner_words import COLUMNS as OWNER_COLUMNS
from collector.hops.owner_words import SIDES, owner_words
from collector.hops.tls_words import COLUMNS as TLS_COLUMNS
from collector.hops.tls_words import handshake_words
from collector.queries.answers import Arrows, Hop, Problem, Request, Summary
from collector.queries.bench_join import CONNECTION_COLUMNS, REQUEST_COLUMNS, RunJoin, TraceRequests, join_operations
from collector.queries.bench_runs import INFO_NAME, operations_of, runs_recorded_with
from collector.queries.lanes import command_of, command_span, lanes_of
from collector.queries.load import Load
from collector.queries.overlay import WholeHops
from collector.queries.problems import Problems, time_or_none
from collector.queries.service_graph import HopCounts
from collector.queries.span_trees import Span, SpanTrees
from collector.queries.stage_columns import StageColumns
from collector.queries.tables import Tables
from collector.queries.timeline.build import Progress, chunks
from collector.queries.timeline.chosen import ChosenHops
from collector.queries.timeline.columns import KINDS, STATES, ArrowClass, Pairs, Seen
from collector.queries.timeline.windows import DensityCounts, EndCounts
from collector.queries.trace_index import Facts, TraceIndex, open_index, request_row
from collector.reporting.comparison import Comparison, compare_sums, slow_in_trace, stages_of_trace, sums_of_trace
from collector.reporting.peers import PEERS, peers_of_connections, with_peers
from collector.reporting.stream_summary import StreamSummary, summarise_streams
from collector.requests.protocols import UNKNOWN
from collector.trace.model import TraceInfo
from collector.trace.objects import ReadCount
from collector.trace.packets import PacketFields, read_packet
from collector.trace.peer_names import PeerNames
from collector.trace.reading import Result, Trace
from collector.trace.schema import ERRORS, ID_STRIDE_BITS, HopKind, HopState
from tracer.errors import InputError

DETAIL_COLUMNS = (
    *("connection_id", "send_host", "send_frame", "receive_host", "receive_frame", "stream_start", "stream_end"),
    *("attempt", "one_way_delay_ns", *ERRORS),
)


LOST = STATES.index(HopState.LOST)
MOST_KEPT_STAGES = 4_000_000
"""Stages of requests that are kept, of about 40 bytes."""
HOPS_AT_ONCE = 1 << 20
"""About so many hops are in memory at a time when a query reads all of them."""


class TraceView:
    """An opened trace. Safe to use from several threads: what is kept is only replaced by its equal."""

    def __init__(self, stored: Trace, info: TraceInfo, index: TraceIndex, tables: Tables) -> None:
        self.stored, self.url = stored, stored.url
        self.info, self._made, self._tables = info, index, tables
        facts = index.facts
        self.start_ns, self.duration_ns = facts.start_ns, max(1, facts.end_ns - facts.start_ns)
        self.lanes = lanes_of(facts.hosts, info, tables.clocks, facts.host_services)
        command_ns = command_span(info.command, tables.clocks)
        self.command = command_of(info.command, command_ns, self.start_ns, facts.hosts)
        self.services, self.processes = facts.services, facts.processes
        self.story, self.pairing = facts.story, facts.pairing
        self.clocks_apart_ns = facts.clocks_apart_ns
        self._trees, self._index, self._columns = index.trees, index.hops, index.hops.columns
        self._problems = Problems(index.hops, facts.hosts, tables, self.start_ns)
        self._peers = PeerNames(info)
        self._kept_stages: pl.DataFrame | None = None
        self._among: NDArray[np.int64] | None = None  # the requests that `only` left
        self._joins: dict[tuple[Path, int], RunJoin] = {}
        self.summary = _summary(stored.name, info, facts, len(self._columns), self._trees)

    @property
    def reads(self) -> ReadCount | None:
        """What was read of the trace, by this process; None if it is on this machine's disk."""
        return None if self.stored.objects is None else self.stored.objects.count

    @property
    def pairs(self) -> Pairs:
        """Directed pairs of ends that exchange packets."""
        return self._index.pairs

    @property
    def counted_by_end(self) -> bool:
        """Whether there are so many pairs that hops are counted by end: `end_density` instead of `density`."""
        return self._index.cells.by_end

    @property
    def ends(self) -> NDArray[np.int64]:
        """The ends of `pairs`, shape (n, 3): lane, or `NO_LANE`; service, or `NO_SERVICE`; process."""
        cells = self._index.cells
        return np.stack((cells.end_lane, cells.end_service, cells.end_process), axis=1).astype(np.int64)

    @property
    def problems_count(self) -> int:
        """The number of places that `next_problem` can find."""
        return len(self._problems)

    @property
    def typical_delay_ns(self) -> NDArray[np.int64]:
        """Median delay of each of `pairs`."""
        return self._index.typical_delay_ns

    @cached_property
    def streams(self) -> StreamSummary:
        """A summary of the streams."""
        return summarise_streams(self._tables.streams, self._peers_of_connections)

    @cached_property
    def load(self) -> Load:
        """Statistics over all requests."""
        facts = self._made.facts
        return Load(self._trees, self._made.requests, self, facts.hosts, facts.host_services, self.duration_ns)

    def whole_hops(self, numbers: NDArray[np.int64]) -> Iterator[WholeHops]:
        """The hops of some requests, by their numbers, that were seen at both ends; some at a time."""
        first, pairs = self._made.request_first, self._index.pairs
        for some in np.array_split(numbers, 1 + int((first[numbers + 1] - first[numbers]).sum()) // HOPS_AT_ONCE):
            counts, rows = first[some + 1] - first[some], self._rows_of_requests(some)
            seen_at = self._columns.seen[rows] == Seen.BOTH
            rows, pair = rows[seen_at], self._columns.pair[rows[seen_at]]
            yield WholeHops(
                source=pairs.source[pair],
                target=pairs.target[pair],
                sent_ns=self._columns.anchor_ns[rows],
                received_ns=self._columns.received_ns[rows],
                request=np.repeat(some, counts)[seen_at].astype(np.int32),
            )

    def delays(self) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.int64]]]:
        """Source lane, target lane and delay of all hops between hosts that were seen at both ends; some at a time."""
        columns, pairs = self._columns, self._index.pairs
        between = pairs.source != pairs.target
        for part in chunks(len(columns)):
            rows = (columns.seen[part] == Seen.BOTH) & between[columns.pair[part]]
            pair = columns.pair[part][rows]
            delay_ns = (columns.received_ns[part] - columns.anchor_ns[part])[rows]
            yield pairs.source[pair], pairs.target[pair], delay_ns

    def hops_by_span(self) -> HopCounts:
        """How many hops each span has, and how many of these were lost, or sent again."""
        found = np.zeros((3, len(self._trees.span_ids)), dtype=np.uint32)
        for part in chunks(len(self._columns)):
            span = self._columns.span[part]
            again = self._columns.arrow_class[part] == ArrowClass.RETRANSMISSION
            lost = self._columns.state[part] == LOST  # a reset is drawn like a loss, but is none
            first = int(span.min(initial=len(found[0]), where=span >= 0))
            for row, mine in enumerate((span >= 0, (span >= 0) & lost, (span >= 0) & again)):
                counts = np.bincount(span[mine] - first)
                found[row, first : first + len(counts)] += counts.astype(np.uint32)
        return HopCounts(*found)

    def runs_beside(self) -> tuple[Path, ...]:
        """Folders of the load generator's runs that were recorded as this trace."""
        command = self.info.command
        return runs_recorded_with(Path(self.url), command.argv if command else ())

    def join_run(self, folder: Path) -> RunJoin:
        """The requests of the operations of a run that records no ids. Cost: `bench_join`'s, once for each run.

        Raises: `OSError` if it is gone.
        """
        key = folder, (folder / INFO_NAME).stat().st_mtime_ns
        if key not in self._joins:
            requests = self._trees.frame.select(REQUEST_COLUMNS)
            connections = pl.DataFrame(self.stored.read("connections", CONNECTION_COLUMNS))
            seen = TraceRequests(requests, connections, self._tables.clocks, self.start_ns, self.duration_ns)
            self._joins[key] = join_operations(operations_of(folder), seen)
        return self._joins[key]

    def requests_with_packets(self, word: str) -> NDArray[np.bool_]:
        """Of each request, whether it has a packet of a state or a kind (`HopState`, `HopKind`), or `retransmitted`.

        Cost: a pass over all hops.
        """
        found = np.zeros(len(self._trees), dtype=np.bool_)
        for part in chunks(len(self._columns)):
            span = np.asarray(self._columns.span[part])
            chosen = (span >= 0) & self._is_packet(word, part)
            found[self._trees.request_of_span[span[chosen]]] = True
        return found

    def _is_packet(self, word: str, part: slice) -> NDArray[np.bool_]:
        if word in STATES:
            return np.asarray(self._columns.state[part] == STATES.index(HopState(word)))
        if word in KINDS:
            return np.asarray(self._columns.kind[part] == KINDS.index(HopKind(word)))
        return np.asarray(self._columns.arrow_class[part] == ArrowClass.RETRANSMISSION)

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

    def end_density(self, rows: Sequence[Sequence[int]], from_ns: int, to_ns: int, most_bins: int) -> EndCounts:
        """As `density`, for rows that each sum some of `ends`; where `counted_by_end`."""
        return self._index.end_density(rows, from_ns, to_ns, most_bins)

    def raw_arrows(self, from_ns: int, to_ns: int, limit: int) -> Arrows | None:
        """As `arrows`, with the times that the hosts' own clocks gave, and by these."""
        rows = self._index.overlapping_raw(from_ns, to_ns, self.clocks_apart_ns, limit)
        return None if rows is None else self._with_raw_times(rows)

    def raw_sample(self, from_ns: int, to_ns: int, most: int) -> tuple[Arrows, int]:
        """As `sample`, with the times that the hosts' own clocks gave, and by these."""
        apart_ns = self.clocks_apart_ns
        rows, step = self._index.sample(from_ns - apart_ns, to_ns + apart_ns, most)
        begin, end = self._index.raw_extents(rows)
        return self._with_raw_times(rows[(begin <= to_ns) & (end >= from_ns)]), step

    def totals(self, from_ns: int, to_ns: int, most_bins: int) -> DensityCounts:
        """As `density`, of all pairs together."""
        return self._index.totals(from_ns, to_ns, most_bins)

    def sample(self, from_ns: int, to_ns: int, most: int) -> tuple[Arrows, int]:
        """Some of the arrows in [from_ns, to_ns], at most about `most`, and how many each stands for."""
        rows, step = self._index.sample(from_ns, to_ns, most)
        return self._arrows_of(rows), step

    def request_arrows(self, number: int, limit: int, raw: bool = False) -> Arrows | None:
        """The arrows of one request; None if there are more than `limit`. `raw`: by the hosts' own clocks."""
        rows = self._request_rows(number)
        if len(rows) > limit:
            return None
        return self._with_raw_times(rows) if raw else self._arrows_of(rows)

    def request_density(self, number: int, most_bins: int) -> DensityCounts:
        """The hops of one request (which has some) counted by pair, class and time bin."""
        return self._index.density_of(self._request_rows(number), most_bins)

    def only(self, requests: NDArray[np.int64]) -> "TraceView":
        """The same trace, of whose packets only those of some requests are there for windows, counts and lists."""
        view = copy(self)
        view._among = requests
        view._index = ChosenHops(self._index, np.unique(self._rows_of_requests(requests)))
        return view

    def packets_count(self, requests: NDArray[np.int64]) -> int:
        """How many packets some requests have together."""
        first = self._made.request_first
        return int((first[requests + 1] - first[requests]).sum())

    def _rows_of_requests(self, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        """The hops of some requests, one request after the other."""
        first = self._made.request_first
        counts = first[numbers + 1] - first[numbers]
        place = np.repeat(first[numbers] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return self._made.request_rows[place].astype(np.intp)

    def packets_around(self, from_ns: int, to_ns: int) -> tuple[int | None, int | None]:
        """The times of the last packet before [from_ns, to_ns) and of the first one after it; None for none."""
        return self._index.neighbours(from_ns, to_ns)

    def requests_between(self, from_ns: int, to_ns: int) -> NDArray[np.int64]:
        """The numbers of the requests that overlap [from_ns, to_ns)."""
        found = np.flatnonzero((self._trees.start_ns < to_ns) & (self._trees.end_ns >= from_ns))
        return found if self._among is None else np.intersect1d(found, self._among)

    def packets_between(self, from_ns: int, to_ns: int, first: int, count: int) -> Arrows:
        """Up to `count` of the hops in [from_ns, to_ns), as `count` counts them, from the `first` on; by time."""
        return self._arrows_of(self._index.rows_between(from_ns, to_ns, first, count))

    def request_packets(self, number: int, first: int, count: int) -> Arrows:
        """Up to `count` hops of a request, from its `first` on, in order of time."""
        return self._arrows_of(self._request_rows(number)[first : first + count])

    def peers_of_arrows(self, arrows: Arrows) -> list[tuple[str | None, str | None]]:
        """What the sender and the receiver of each hop are called, if they were not captured; empty if nothing names
        any. Cost: without names, none; else the row groups of `hops` that hold them.

        Raises: as `hop`.
        """
        if not self._peers or not len(arrows.number):
            return []
        rows = self._columns.row[arrows.number].astype(np.int64)
        places = np.argsort(rows, kind="stable")
        columns = ("connection_id", "from_client")
        tables = self.read_unchanged(lambda: list(self.stored.chosen_rows("hops", columns, rows[places])))
        known = with_peers(pl.concat(map(pl.DataFrame, tables)), self._peers_of_connections)
        client, server = pl.col(PEERS[0]), pl.col(PEERS[1])
        sender = pl.when("from_client").then(client).otherwise(server)
        receiver = pl.when("from_client").then(server).otherwise(client)
        found = known.select(sender.alias("sender"), receiver.alias("receiver"))[np.argsort(places)]
        return found.rows()

    @cached_property
    def _peers_of_connections(self) -> pl.DataFrame:
        return self.read_unchanged(lambda: peers_of_connections(self.stored))

    def packet_spans(self, number: int, first: int, count: int) -> NDArray[np.int32]:
        """The number of the span that each of `request_packets` belongs to, as `Span.number`; -1 for none."""
        rows = self._request_rows(number)[first : first + count]
        return np.asarray(self._columns.span[rows], np.int32)

    def rows_between(self, from_ns: int, to_ns: int) -> NDArray[np.int64]:
        """Places in the table `hops` of those in [from_ns, to_ns), as `count` counts them; ascending."""
        rows = self._index.rows_between(from_ns, to_ns, 0, self.count(from_ns, to_ns))
        return np.sort(self._columns.row[rows]).astype(np.int64)

    def rows_of_request(self, number: int) -> NDArray[np.int64]:
        """Places in the table `hops` of a request's; ascending."""
        return np.sort(self._columns.row[self._request_rows(number)]).astype(np.int64)

    def hop(self, number: int) -> Hop | None:
        """One hop in full; None if there is none of this number.

        Raises: `InputError` if the trace was made anew since it was opened, as a live one is.
        """
        if not 0 <= number < len(self._columns):
            return None
        return self.read_unchanged(lambda: self._hop_at(number))

    def packet_beside(self, number: int, backwards: bool = False) -> int | None:
        """The number of the next hop (or the one before) of the same connection; None if there is none.

        Cost: the rows of `hops` of that connection. Raises: as `hop`.
        """
        return self.read_unchanged(lambda: self._packet_beside(number, backwards))

    def _packet_beside(self, number: int, backwards: bool) -> int | None:
        wanted, here = self._connection_of(number), int(self._columns.anchor_ns[number])
        if wanted is None:
            return None
        columns = ("connection_id", "send_trace_ns", "receive_trace_ns")
        rows = pl.DataFrame(self.stored.rows_matching("hops", columns, {"connection_id": wanted}))
        times = rows.select(pl.coalesce("send_trace_ns", "receive_trace_ns") - self.start_ns).to_series().drop_nulls()
        beyond = times.filter(times <= here if backwards else times >= here).unique().sort(descending=backwards)
        for time_ns in beyond:
            at_once = self._index.rows_between(time_ns, time_ns + 1, 0, len(self._columns))
            for other in at_once[::-1].tolist() if backwards else at_once.tolist():
                is_beyond = other < number if backwards else other > number
                if is_beyond and self._connection_of(other) == wanted:
                    return int(other)
        return None

    def _connection_of(self, number: int) -> int | None:
        row = self.stored.rows_between("hops", ("connection_id",), int(self._columns.row[number]), 1)
        found: int | None = row["connection_id"][0].as_py()
        return found

    def protocol_at(self, connection_id: int) -> tuple[str, int] | None:
        """The protocol that a connection was recognised as, and its server's port; None if none was. Of a connection
        that was opened with keys, that is TLS: its packets are encrypted.

        Raises: `InputError` if the trace was replaced meanwhile.
        """
        columns, wanted = ("connection_id", "protocol", "server_port", "tls_opened"), {"connection_id": connection_id}
        rows = self.read_unchanged(lambda: self.stored.rows_matching("connections", columns, wanted)).to_pylist()
        known = [row for row in rows if row["protocol"] not in (None, UNKNOWN) and row["server_port"]]
        return ("tls" if known[0]["tls_opened"] else known[0]["protocol"], known[0]["server_port"]) if known else None

    def _connection_words(self, connection_id: int | None) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What the TLS handshake of a connection says, "" if none was read; who owns its ends, as `Hop.owners`."""
        if connection_id is None:
            return "", ()
        columns, wanted = (*TLS_COLUMNS, *OWNER_COLUMNS), {"connection_id": connection_id}
        found = self.stored.rows_matching("connections", columns, wanted).to_pylist()
        if not found:
            return "", ()
        owners = tuple((side, words) for side in SIDES if (words := owner_words(found[0], side)))
        return handshake_words(found[0]), owners

    def requests_of_exchanges(self) -> pl.DataFrame:
        """`exchange_id` and the number of the `request` of each, for those that are part of one."""
        ids, requests = np.asarray(self._trees.span_ids), np.asarray(self._trees.request_of_span)
        return pl.DataFrame({"exchange_id": ids, "request": requests}).filter(pl.col("request") >= 0)

    def has_request(self, number: int) -> bool:
        """Whether a request has this number; it may be a client's or a daemon's."""
        return 0 <= number < len(self._trees)

    def requests(self, limit: int) -> tuple[Request, ...]:
        """The slowest requests of clients, slowest first."""
        listed = self._made.slowest
        more = self._trees.slowest[len(listed) : max(limit, len(listed))]
        return (*listed[:limit], *(self.request(int(number)) for number in more))

    def request(self, number: int) -> Request:
        """One request as a row of a list."""
        assert self.has_request(number), number
        return request_row(self._trees, self._made.request_first, self._made.request_problems, number)

    def request_of(self, transaction_id: str) -> int | None:
        """The number of the request with that transaction id; None if there is none. Cost: a search over all spans."""
        return self._trees.request_of(transaction_id)

    def spans(self, number: int) -> tuple[Span, ...]:
        """The spans of a request, root first, each followed by its children in order of time."""
        assert self.has_request(number), number
        return self._trees.spans(number)

    def stages(self) -> pl.DataFrame:
        """The stages of the clients' requests, from `collector.reporting.stage_times.request_stages`. Cost: a pass over
        all exchanges, and about 30 bytes for each stage; up to `MOST_KEPT_STAGES` are kept for the next time."""
        if self._kept_stages is not None:
            return self._kept_stages
        stages = self.read_unchanged(lambda: pl.concat(stages_of_trace(self.stored)))
        if len(stages) <= MOST_KEPT_STAGES:
            self._kept_stages = stages
        return stages

    @cached_property
    def stage_columns(self) -> StageColumns:
        """The same, stage by stage. Cost: a pass over all exchanges, once; then what `StageColumns` keeps."""
        most = self.stored.rows_count("spans")
        return self.read_unchanged(lambda: StageColumns.of(stages_of_trace(self.stored), most))

    @cached_property
    def numbers_of_stages(self) -> NDArray[np.int32]:
        """The number of the request of each row of `stage_columns`; -1 for one that has no start."""
        roots = self.trace_ids(np.arange(len(self._trees)))
        return _core.places(roots, [self.stage_columns.trace_id], ID_STRIDE_BITS)[0].astype(np.int32)

    def trace_ids(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The id of each of some requests in the tables `spans` and `exchanges`: that of its root."""
        return self._trees.root_ids(numbers)

    def exchanges_count(self, numbers: NDArray[np.integer[Any]]) -> int:
        """How many exchanges some requests have together."""
        return self._trees.exchanges_count(numbers)

    def findings_at(self, host: str, from_ns: int, to_ns: int) -> list[tuple[str, int, int]]:
        """The text, the beginning and the end of each warning or error about a host that overlaps an interval."""
        rows = self._tables.trouble.select(["host", "text", "from_trace_ns", "to_trace_ns"]).to_pylist()
        found = []
        for row in rows:
            begin_ns, end_ns = row["from_trace_ns"] - self.start_ns, row["to_trace_ns"] - self.start_ns
            if row["host"] == host and begin_ns <= to_ns and end_ns >= from_ns:
                found.append((row["text"], begin_ns, end_ns))
        return found

    def slow_against_typical(self) -> Comparison:
        """Compare the slowest 5 % of the requests of each kind with its middle half."""
        return self.read_unchanged(lambda: slow_in_trace(self.stored))

    def against(self, other_url: str) -> Comparison:
        """Compare this trace with another one.

        Raises: `InputError` if that is no trace.
        """
        mine = self.read_unchanged(lambda: sums_of_trace(self.stored))
        return compare_sums(mine, sums_of_trace(Trace(other_url)), self.url, other_url)

    def request_texts(self) -> pl.DataFrame:
        """Of each exchange its `request`, `connection_id`, hosts, results, `outcome` and texts; by request."""
        return self._trees.texts()

    def request_durations_ns(self) -> NDArray[np.int64]:
        """Of all requests, in order of their numbers."""
        return np.asarray(self._trees.durations_ns)

    def next_problem(self, at_ns: int, backwards: bool = False) -> Problem | None:
        """The nearest problem after (or before) a time: a lost or repeated packet, a reset, or a finding."""
        return self._problems.next(at_ns, backwards)

    def problem_rank(self, problem: Problem) -> int:
        """The rank of a problem among `problems_count`, from 1."""
        return self._problems.rank(problem)

    def first_trouble(self, connection_id: int) -> Problem | None:
        """The first hop of a connection that was lost, sent again, not paired, or received before it was sent.

        Cost: one column of the hops is read, about 0.1 s for each million.
        Raises: as `hop`.
        """
        ids = self.read_unchanged(lambda: self.stored.read("hops", ["connection_id"])["connection_id"])
        return self._problems.first_among(np.flatnonzero(pc.equal(ids, connection_id).fill_null(False).to_numpy()))

    def read_unchanged(self, read: Callable[[], Result]) -> Result:
        """The result of `read`, if the tables at `url` are still those that were opened.

        Raises: `InputError` if the trace was replaced meanwhile.
        """

        def read_checked(info: TraceInfo) -> Result:
            if info.created_ns != self.info.created_ns:
                raise InputError(f"{self.url} was made anew since it was opened", "open it again with `tracer view`")
            return read()

        return self.stored.read_unchanged(read_checked)

    def _arrows_of(self, rows: NDArray[np.intp]) -> Arrows:
        columns, pairs = self._columns, self._index.pairs
        columns.fetch(rows)
        pair = columns.pair[rows]
        return Arrows(
            number=rows.astype(np.uint32),
            sent_ns=columns.sent_ns(rows),
            received_ns=columns.received_ns[rows],
            pair=pair,
            source=pairs.source[pair],
            target=pairs.target[pair],
            arrow_class=columns.arrow_class[rows],
            kind=columns.kind[rows],
            state=columns.state[rows],
            size_bytes=columns.size_bytes[rows],
            request=self._requests_of(columns.span[rows]),
            uncertain=self._uncertain(columns.span[rows]),
            carried={name: column[rows] for name, column in columns.carried.items()},
        )

    def _with_raw_times(self, rows: NDArray[np.intp]) -> Arrows:
        columns, arrows = self._columns, self._arrows_of(rows)
        if columns.sent_raw_ns is None or columns.received_raw_ns is None:
            return arrows
        return replace(arrows, sent_ns=columns.sent_raw_ns[rows], received_ns=columns.received_raw_ns[rows])

    def _request_rows(self, number: int) -> NDArray[np.intp]:
        """A request's hops, in order of time."""
        first = self._made.request_first
        return self._made.request_rows[int(first[number]) : int(first[number + 1])].astype(np.intp)

    def _requests_of(self, span: NDArray[np.int32]) -> NDArray[np.int32]:
        """The request of each of these spans, -1 for none."""
        known = span >= 0
        return np.where(known, self._trees.request_of_span[np.where(known, span, 0)], -1).astype(np.int32)

    def _uncertain(self, span: NDArray[np.int32]) -> NDArray[np.uint8]:
        """1 for each of these spans whose parent is uncertain; -1 is no span."""
        if not len(self._trees.uncertain):
            return np.zeros(len(span), dtype=np.uint8)
        return ((span >= 0) & self._trees.uncertain[np.maximum(span, 0)]).astype(np.uint8)

    def _hop_at(self, at: int) -> Hop:
        columns = self._columns
        raw = self.stored.rows_between("hops", DETAIL_COLUMNS, int(columns.row[at]), 1).to_pylist()[0]
        span = int(columns.span[at])
        tls, owners = self._connection_words(raw["connection_id"])
        return Hop(
            number=at,
            kind=KINDS[columns.kind[at]],
            state=STATES[columns.state[at]],
            arrow_class=ArrowClass(int(columns.arrow_class[at])),
            attempt=int(raw["attempt"] or 1),
            source_host=raw["send_host"],
            target_host=raw["receive_host"],
            sent_ns=None if columns.seen[at] == Seen.RECEIVED else int(columns.anchor_ns[at]),
            received_ns=time_or_none(columns.received_ns[at]),
            delay_ns=raw["one_way_delay_ns"],
            uncertainty_ns=raw["uncertainty_ns"],
            likely_error_ns=raw["likely_error_ns"],
            stream_start=raw["stream_start"],
            stream_end=raw["stream_end"],
            connection_id=raw["connection_id"],
            request=None if span < 0 else int(self._trees.request_of_span[span]),
            span=None if span < 0 else span,
            doubt="" if span < 0 else self._trees.doubt(span),
            tls=tls,
            owners=owners,
            sent_packet=self._packet_of(raw, "send"),
            received_packet=self._packet_of(raw, "receive"),
        )

    def _packet_of(self, hop: dict[str, Any], end: str) -> PacketFields | None:
        """The packet of a row of `hops` at one end, `send` or `receive`."""
        found = read_packet(self.stored, hop[f"{end}_host"], hop[f"{end}_frame"], hop["connection_id"])
        if found is None:
            return None
        names = [self._peers.of(address) or "" for address in (found.src_addr, found.dst_addr)]
        return replace(found, src_name=names[0], dst_name=names[1])


def check_trace(url: str) -> None:
    """Check that there is a trace at `url`.

    Raises: `InputError` if not.
    """
    Trace(url).info()


def open_trace(url: str, progress: Progress | None = None) -> TraceView:
    """Open a trace for viewing.

    Arguments: `progress` is called with the share completed while the trace's index is built, once for each trace.
    Cost: less than 0.1 s with its index; building that, about 1 s of CPU time for each million hops.
    Raises: `InputError` if `url` is no trace.
    """
    trace = Trace(url)
    return trace.read_unchanged(
        lambda info: TraceView(trace, info, open_index(trace, info, progress), Tables.read(trace))
    )


def _summary(name: str, info: TraceInfo, facts: Facts, hops_count: int, trees: SpanTrees) -> Summary:
    return Summary(
        name=name,
        packets_count=sum(host.events_count for host in info.hosts),
        hops_count=hops_count,
        requests_count=len(trees.slowest),
        roots_count=len(trees),
        connections_count=facts.connections_count,
        duration_ns=max(1, facts.end_ns - facts.start_ns),
        first_hop_ns=facts.first_hop_ns,
        last_hop_ns=facts.last_hop_ns,
        delay_p50_ns=facts.delay_p50_ns,
        delay_p99_ns=facts.delay_p99_ns,
        class_counts=facts.class_counts,
        state_counts=facts.state_counts,
        warnings=tuple(each for each in info.counters if each.severity in ("data_loss", "error")),
    )
