"""The requests of a period: a trace of an hour holds those that began in it, whole, although packets cross its edges.

1. Captures are read from `MARGIN_NS` before the period until as long after it, by each host's clock.
2. All exchanges of that time are linked, so that a call finds the parent that began before the period.
3. A request belongs to the period in which its root began. That is one stamp of one host, its client's if that was
   captured: over successive periods each request is counted once, whatever the clocks' offsets.
4. `exchanges`, `silences` and `spans` hold the requests of the period; `streams` and `findings` what overlaps it;
   `events`, `hops`, `messages`, `connections` and `quality` all that was read.

Limits: a request that lasts longer than `MARGIN_NS` beyond the period's end has no end in its trace; calls that it
makes later have no parent in theirs. Hosts' clocks may differ by less than `MARGIN_NS`.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from collector.analysis.options import AnalysisOptions
from collector.capture_files.readers import Following
from collector.clocks.alignment import to_trace_ns
from collector.decode.carried import Carried, Followed
from collector.decode.time_range import EDGE_NS, TimeRange
from collector.requests.critical_path import NONE
from collector.trace.arrow import coalesce, indices
from collector.trace.reading import Trace
from collector.trace.request_times import BEGIN, earliest_ns
from collector.trace.time_columns import UNSEEN, Int64Array

MARGIN_NS = 60_000_000_000
"""Packets of so long before and after a period are read, too."""
MAX_SERVERS = 1 << 16
"""At most so many servers are carried on."""
NO_IDS: Int64Array = np.empty(0, np.int64)


def options_of_period(options: AnalysisOptions, period: TimeRange) -> AnalysisOptions:
    """Options for the trace of a period [from, to), by each host's clock."""
    return replace(options, period=period, edge_ns=EDGE_NS)


class ConnectionsCarried(Struct):
    """Carries what is known of connections from the traces of periods to those after them, of the same captures.

    `servers`: addresses and ports that answered a SYN in earlier periods, the newest last.
    """

    servers: dict[tuple[str, int], None] = field(default_factory=dict)
    _following: dict[str, Following] = field(default_factory=dict)
    _followed: Followed | None = None

    def options(self, options: AnalysisOptions, period: TimeRange) -> AnalysisOptions:
        """As `options_of_period`, with what is known from before."""
        self._followed = Followed(self._following, copy_at_ns=range_to_read((period[1], period[1]))[0])
        carried = Carried(frozenset(self.servers), self._followed)
        return replace(options_of_period(options, period), carried=carried)

    @property
    def is_new(self) -> bool:
        """Whether nothing was followed yet."""
        return not self._following

    def go_on(self) -> None:
        """Take what is known at the end of the period that was analysed with these options to those after it. Until
        then the period can be analysed again."""
        if self._followed is not None:
            self._following, self._followed = self._following | self._followed.after, None

    def note_servers(self, trace: Trace) -> None:
        """Note who answered a SYN in a trace, for the periods after it."""
        ends = trace.read("connections", ["server_addr", "server_port", "client_isn", "server_isn"])
        shaken = ends.filter(pc.and_(pc.is_valid(ends["client_isn"]), pc.is_valid(ends["server_isn"])))
        known = shaken.group_by(["server_addr", "server_port"]).aggregate([])
        for end in sorted(zip(known["server_addr"].to_pylist(), known["server_port"].to_pylist(), strict=True)):
            self.servers.pop(end, None)
            self.servers[end] = None
        while len(self.servers) > MAX_SERVERS:
            del self.servers[next(iter(self.servers))]


def range_to_read(period: TimeRange) -> TimeRange:
    """The first and the last stamp to read for a period [from, to), by each host's clock."""
    return period[0] - MARGIN_NS, period[1] + MARGIN_NS


class PeriodEdges(Struct, frozen=True):
    """When a period [from, to) begins and ends by each host's clock, in trace times (ns); the last of `edges`, of shape
    (hosts + 1, 2), is for what has no clock."""

    places: Mapping[str, int]
    edges: Int64Array

    @classmethod
    def on(cls, period: TimeRange, clocks: pa.Table) -> "PeriodEdges":
        """The edges of a period by the table `clocks`."""
        hosts = clocks["host"].unique().to_pylist()
        names = pa.array([host for host in hosts for _ in period], pa.string())
        of_hosts = to_trace_ns(names, pa.array([*period] * len(hosts), pa.int64()), clocks)
        return cls({host: place for place, host in enumerate(hosts)}, np.vstack([of_hosts.reshape(-1, 2), [period]]))

    def clocks_of(self, exchanges: pa.Table) -> NDArray[np.int16]:
        """By whose clock each exchange begins, as a place in `edges`: its client's or, if that has none, its
        server's."""
        found = np.full(exchanges.num_rows, len(self.places), np.int16)
        for side in ("server_host", "client_host"):
            code, names = indices(exchanges[side])
            place = np.array([*(self.places.get(name, -1) for name in names), -1], np.int16)[code]
            found = np.where(place >= 0, place, found)
        return found

    def hold(self, begin_ns: Int64Array, clocks: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Whether each trace time lies within the period, by these clocks."""
        first, end = self.edges[clocks].T
        return (first <= begin_ns) & (begin_ns < end)

    def hold_trees(self, spans: pa.Table, hosts: pa.Table) -> pa.Array:
        """Whether the root of each span began within the period; a root without a beginning does not.

        Arguments: spans of whole trees; `client_host` and `server_host` of each.
        """
        roots = np.flatnonzero(spans["parent_span_id"].is_null().to_numpy())
        begun = coalesce(spans, ["start_trace_ns"], UNSEEN)[roots]
        held = (begun != UNSEEN) & self.hold(begun, self.clocks_of(hosts.take(pa.array(roots))))
        return _are_among(spans, "trace_id", in_order([coalesce(spans, ["span_id"], NONE)[roots[held]]]))

    def overlap(self, begin: pa.ChunkedArray, end: pa.ChunkedArray) -> pa.ChunkedArray:
        """Whether each interval of trace times overlaps the period; one without times does."""
        from_ns, to_ns = self.edges[-1].tolist()
        is_before = pc.less(pc.coalesce(end, begin), from_ns)
        is_after = pc.greater_equal(pc.coalesce(begin, end), to_ns)
        return pc.invert(pc.fill_null(pc.or_(is_before, is_after), fill_value=False))


class RequestsOfPeriod(Struct):
    """Chooses the rows of a period's tables, after its spans are known: of exchanges, a part after the other, then of
    silences. Arguments: `spans`, the ids of spans, ascending."""

    edges: PeriodEdges
    spans: Int64Array
    _kept: list[Int64Array] = field(default_factory=list)

    def exchanges(self, part: pa.Table) -> pa.Table:
        """Those of these spans, and turns of streams that began within the period."""
        is_turn = pc.fill_null(part["is_stream"], fill_value=False).to_numpy()
        begin_ns = BEGIN.times(part)
        begin_ns = np.where(begin_ns == UNSEEN, earliest_ns(part), begin_ns)
        begun_turn = pa.array(is_turn & self.edges.hold(begin_ns, self.edges.clocks_of(part)))
        kept = part.filter(pc.or_(begun_turn, _are_among(part, "exchange_id", self.spans)))
        self._kept.append(coalesce(kept, ["exchange_id"], NONE))
        return kept

    def silences(self, silences: pa.Table) -> pa.Table:
        """Those of messages of these exchanges."""
        return silences.filter(_are_among(silences, "exchange_id", in_order(self._kept)))


def in_order(ids: Iterable[Int64Array]) -> Int64Array:
    """All these ids, ascending."""
    found = np.concatenate([NO_IDS, *ids])
    found.sort()
    return found


def _are_among(table: pa.Table, column: str, ids: Int64Array) -> pa.Array:
    """Whether the id of each row is one of these, which ascend: they are sorted once for all parts of a table."""
    wanted = coalesce(table, [column], NONE)
    if not len(ids):
        return pa.array(np.zeros(len(wanted), np.bool_))
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return pa.array(ids[place] == wanted)
