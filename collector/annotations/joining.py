"""Finds the request that each record is about: by its id, by its connection, or by time alone. Never by a guess.

A request that a host served, and a line that the host's server wrote of it, have much in common: the host; the client's
address, and with the port the connection; method, target and status; and the time. In this order:

1. *id*: the line's id is the request's (`transaction_id`, or the trace of a `traceparent`), and the line's host served
   it. Of several with this id, what the line says and the time must leave one. An id that only requests have which the
   host itself made (nginx hands its `$request_id` on) leads to the request that they were made for, if their link is
   sure.
2. *connection*: the line names the client's address and port. If a connection has as many requests as lines of whole
   requests, and each of them fits, then the n-th line is the n-th request. Else lines that fit one request alone are
   joined, and between two of these likewise, where there are as many of one as of the other.
3. *time*: with what else the line says (client, method, target, status), exactly one request is left. A line that says
   none of these counts only if its stamp is exact to `EXACT_NS`.

A time fits if the line did not begin before the request came to its server, nor end later than its answer left, give or
take the uncertainty, and `LATE_NS`, since a stamp may be taken after the answer was handed on. Where two lines of one
log claim one request by time or by connection, neither has it.

Not handled: lines of a client's own log but by id; a request of which a proxy in front hides the client's address.
Cost: 15 to 45 µs a record. Memory: 100 bytes for each request of hosts that have records.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from urllib.parse import unquote

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.annotations.records import Address, Kind, Record
from collector.annotations.table import Join, place_records
from collector.trace.request_times import SERVER_BEGIN, SERVER_END

LATE_NS = 2_000_000
"""Servers stamp their lines before or when they hand the last of an answer to the kernel: so much later at most."""
JSON_LATE_NS = 50_000_000
"""Of JSON lines it is not known when they are stamped: on a busy machine so much later."""
EXACT_NS = 50_000_000
EXCHANGE_COLUMNS = (
    *("exchange_id", "connection_id", "client_host", "server_host", "method", "target", "status", "is_stream"),
    *("transaction_id", "response_transaction_id"),
    *dict.fromkeys((*SERVER_BEGIN.columns, *SERVER_END.columns)),
)
CONNECTION_COLUMNS = (
    *("connection_id", "client_addr", "client_port", "translated_client_addr", "translated_client_port"),
)
PARENT_COLUMNS = ("span_id", "parent_span_id", "confidence")
SURE = 0.99
"""Links of a lower confidence lead from no request to the one that it was made for."""
_VALUES = re.compile(r"'(?:[^']|'')*'|\$\$.*?\$\$|--[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
Rows = NDArray[np.int64]


def join_records(
    records: Sequence[Record],
    clocks: pa.Table,
    exchanges: Iterable[pa.Table],
    connections: Iterable[pa.Table],
    parents: Mapping[int, int],
) -> dict[int, Join]:
    """The request of each record that has one, by its place in `records`.

    Arguments: `exchanges` and `connections`, tables with `EXCHANGE_COLUMNS` and `CONNECTION_COLUMNS`, a part at a time;
    `parents`, the parent of each exchange that has one.
    """
    hosts = {record.host for record in records if record.host}
    if not hosts:
        return {}
    served, ids = _Served.of_hosts(hosts, exchanges, connections)
    starts, uncertain = place_records(records, clocks)
    lines = [_Line(*each) for each in zip(range(len(records)), records, starts, uncertain, strict=True)]
    found: dict[int, Join] = {}
    for line in lines:
        exchange_id = _by_id(line, served, ids, parents)
        if exchange_id is not None:
            found[line.place] = Join(exchange_id, "id")
    left = [line for line in lines if line.place not in found and line.record.host in served]
    claims = dict(_by_connection_order([line for line in lines if line.record.host in served], served, found))
    for line in left:
        if line.place not in claims:
            claim = _by_what_it_says(line, served[line.record.host or ""])
            if claim is not None:
                claims[line.place] = claim
    return found | _claims_of_one(claims, found, records)


def is_of_server(record: Record) -> bool:
    """Whether a record is about what its own host did for others: any line, and a server's span."""
    return record.kind != Kind.SPAN or record.side == "server"


def parents_of(spans: Iterable[pa.Table]) -> dict[int, int]:
    """The parent of each exchange whose parent is sure, from tables with `PARENT_COLUMNS`."""
    rows = (row for part in spans for row in zip(*(part[name].to_pylist() for name in PARENT_COLUMNS), strict=True))
    return {span: parent for span, parent, confidence in rows if parent is not None and confidence >= SURE}


class _Line(Struct, frozen=True):
    """A record on the trace's timescale."""

    place: int
    record: Record
    start_ns: int
    uncertainty_ns: int | None

    @property
    def bounds(self) -> tuple[int, int]:
        """The earliest end and the latest beginning that a request of it may have; of what is no whole request, the
        earliest beginning and the latest end of the line, which the request overlaps."""
        record = self.record
        error = record.uncertainty_ns if self.uncertainty_ns is None else self.uncertainty_ns
        end, late = self.start_ns + record.duration_ns, JSON_LATE_NS if record.format == "json" else LATE_NS
        if not record.is_request:
            return self.start_ns - error - late, end + error
        return end - error - late, self.start_ns + error + record.duration_uncertainty_ns


class _Served(Struct, frozen=True):
    """The requests that a host served, by when they ended."""

    exchange_id: Rows
    begin_ns: Rows
    end_ns: Rows
    soonest_ns: Rows  # the earliest beginning from this row on: ascending
    status: Rows  # 0 if unknown
    methods: Sequence[str]  # "" if unknown, likewise the next two
    targets: Sequence[str]
    paths: Sequence[str]
    clients: Sequence[frozenset[Address]]  # the client's end, as both hosts know it
    row_of: Mapping[int, int]  # by exchange_id
    of_client: Mapping[Address, Rows]  # rows by the client's end, and by its address alone (port 0)

    @classmethod
    def of_hosts(
        cls, hosts: set[str], exchanges: Iterable[pa.Table], connections: Iterable[pa.Table]
    ) -> tuple[dict[str, "_Served"], "_Ids"]:
        """The requests of some hosts, and where each id occurs."""
        parts = [_near(part, hosts) for part in exchanges]
        frame = pl.concat(parts) if parts else pl.DataFrame()
        ends = _ends_of(connections, set(frame["connection_id"].to_list()) if len(frame) else set())
        served = {
            host: cls._of(frame.filter(pl.col("server_host") == host).sort("end_ns"), ends)
            for host in hosts
            if len(frame)
        }
        return served, _Ids.of(frame)

    @classmethod
    def _of(cls, frame: pl.DataFrame, ends: Mapping[int, frozenset[Address]]) -> "_Served":
        clients = [ends.get(number, frozenset()) for number in frame["connection_id"]]
        rows: dict[Address, list[int]] = defaultdict(list)
        for row, both in enumerate(clients):
            for end in {each for one in both for each in (one, Address(one.addr))}:
                rows[end].append(row)
        begin_ns = frame["begin_ns"].to_numpy()
        targets = [unquote(text) for text in frame["target"].fill_null("")]
        return cls(
            exchange_id=frame["exchange_id"].to_numpy(),
            begin_ns=begin_ns,
            soonest_ns=np.minimum.accumulate(begin_ns[::-1])[::-1],
            end_ns=frame["end_ns"].to_numpy(),
            status=frame["status"].fill_null(0).cast(pl.Int64).to_numpy(),
            methods=frame["method"].fill_null("").to_list(),
            targets=targets,
            paths=[target.partition("?")[0] for target in targets],
            clients=clients,
            row_of={exchange_id: row for row, exchange_id in enumerate(frame["exchange_id"])},
            of_client={end: np.array(each, dtype=np.int64) for end, each in rows.items()},
        )

    def during(self, bounds: tuple[int, int], among: Rows | None = None) -> Rows:
        """The rows whose time fits; `among`, ascending rows of which to choose."""
        low, high = bounds
        first = int(np.searchsorted(self.end_ns, low))
        last = max(first, int(np.searchsorted(self.soonest_ns, high, side="right")))
        rows = np.arange(first, last) if among is None else among[slice(*np.searchsorted(among, (first, last)))]
        return rows[self.begin_ns[rows] <= high]

    def rows_of(self, client: Address) -> Rows:
        """The rows of a client's end."""
        return self.of_client.get(client, np.empty(0, dtype=np.int64))

    def is_of(self, row: int, line: _Line) -> bool:
        """Whether a line may be about a row."""
        low, high = line.bounds
        return low <= self.end_ns[row] and self.begin_ns[row] <= high and self.fits(row, line.record)

    def fits(self, row: int, record: Record) -> bool:
        """Whether a record says nothing that a request is not: method, target and status, as far as both are known."""
        method, status = self.methods[row], int(self.status[row])
        if record.method and method and record.method != method.upper():
            return False
        if record.status and status and record.status != status:
            return False
        if record.format == "postgresql":
            return is_same_statement(f"{record.method} {record.target}", f"{method} {self.targets[row]}")
        return not (record.target and self.targets[row]) or self._has_target(row, record)

    def _has_target(self, row: int, record: Record) -> bool:
        return unquote(record.target) in (self.targets[row], self.paths[row])

    def says_target(self, row: int, record: Record) -> bool:
        """Whether both name a target, and the same one."""
        return bool(record.target and self.targets[row]) and self._has_target(row, record)


class _Ids(Struct, frozen=True):
    """Where an id occurs: the exchanges that have it, by who served them and by who asked."""

    by_server: Mapping[tuple[str, str], Sequence[int]]
    by_client: Mapping[tuple[str, str], Sequence[int]]

    @classmethod
    def of(cls, frame: pl.DataFrame) -> "_Ids":
        """From exchanges with both ids and both hosts."""
        by_server: dict[tuple[str, str], list[int]] = defaultdict(list)
        by_client: dict[tuple[str, str], list[int]] = defaultdict(list)
        if len(frame):
            columns = ("exchange_id", "server_host", "client_host", "transaction_id", "response_transaction_id")
            for exchange_id, server, client, *texts in frame.select(columns).iter_rows():
                for text in {key for each in texts if each for key in id_keys(each)}:
                    by_server[server or "", text].append(exchange_id)
                    by_client[client or "", text].append(exchange_id)
        return cls(by_server, by_client)


def id_keys(text: str) -> Iterator[str]:
    """An id as it is compared: of a `traceparent` the trace's id, of any the whole, in small letters."""
    text = text.lower()
    parts = text.split("-")
    yield text
    if len(parts) == 4 and [len(part) for part in parts] == [2, 32, 16, 2]:
        yield parts[1]


def is_same_statement(logged: str, seen: str) -> bool:
    """Whether two statements of SQL have the same words, as far as both go: values are overwritten in packets."""
    both = [_words(text) for text in (logged, seen)]
    least = min(map(len, both))
    return both[0][:least] == both[1][:least]


@lru_cache(maxsize=1 << 12)
def _words(statement: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(_VALUES.sub(" ", statement)))


def _near(part: pa.Table, hosts: set[str]) -> pl.DataFrame:
    """The requests that these hosts served or made, with when each began and ended at its server."""
    frame = pl.DataFrame(part).cast({pl.Categorical: pl.String})
    at_hosts = pl.col("server_host").is_in(hosts) | pl.col("client_host").is_in(hosts)
    timed = frame.filter(at_hosts & ~pl.col("is_stream")).with_columns(
        begin_ns=SERVER_BEGIN.expr(), end_ns=SERVER_END.expr()
    )
    return timed.with_columns(end_ns=pl.coalesce("end_ns", "begin_ns")).drop_nulls("begin_ns")


def _ends_of(connections: Iterable[pa.Table], wanted: set[int]) -> dict[int, frozenset[Address]]:
    """The client's end of each of these connections: as its client knows it, and as its server does."""
    found: dict[int, frozenset[Address]] = {}
    for part in connections:
        for number, *ends in zip(*(part[name].to_pylist() for name in CONNECTION_COLUMNS), strict=True):
            if number in wanted:
                pairs = (ends[:2], ends[2:])
                found[number] = frozenset(Address(addr, port or 0) for addr, port in pairs if addr)
    return found


def _by_id(line: _Line, served: Mapping[str, _Served], ids: _Ids, parents: Mapping[int, int]) -> int | None:
    record, host = line.record, line.record.host or ""
    keys = [key for text in (record.transaction_id, record.trace_id) if text for key in id_keys(text)]
    for key in keys:
        among = list(ids.by_server.get((host, key), ()))
        above = {parents[each] for each in ids.by_client.get((host, key), ()) if each in parents}
        for candidates, is_own in ((among, True), (sorted(above), False)):
            found = _one_of(line, served.get(host), candidates, is_own)
            if found is not None:
                return found
    return None


def _one_of(line: _Line, served: _Served | None, candidates: Sequence[int], is_own: bool) -> int | None:
    """The one of some exchanges that a record fits; by client and time, too, if several do, or the id is not theirs."""
    if served is None or not candidates:
        return None
    own = sorted(served.row_of[each] for each in candidates if each in served.row_of)
    rows = np.array([row for row in own if served.fits(row, line.record)], dtype=np.int64)
    if len(rows) > 1 or not is_own:
        rows = _of_client(served, line.record, served.during(line.bounds, rows))
    return int(served.exchange_id[rows[0]]) if len(rows) == 1 else None


def _of_client(served: _Served, record: Record, rows: Rows) -> Rows:
    """Those rows that are of the record's client, if it names one that any of them has."""
    if record.client is None:
        return rows
    same = np.array([row for row in rows.tolist() if _has_client(served.clients[row], record.client)], dtype=np.int64)
    return same if len(same) or record.client.port else rows


def _has_client(ends: frozenset[Address], client: Address) -> bool:
    return client in ends if client.port else any(end.addr == client.addr for end in ends)


def _by_connection_order(
    lines: Sequence[_Line], served: Mapping[str, _Served], found: Mapping[int, Join]
) -> Iterator[tuple[int, Join]]:
    """The lines of whole requests on a connection, and the requests on it, in their order.

    Arguments: `found`, lines whose request is known: it is not for another line of the same log.
    """
    of_connection: dict[tuple[str, str, str, Address], list[_Line]] = defaultdict(list)
    known: dict[tuple[str, str, str, Address], set[int]] = defaultdict(set)
    for line in lines:
        record = line.record
        if record.is_request and record.client is not None and record.client.port:
            key = record.host or "", record.format, record.source, record.client
            if line.place in found:
                known[key].add(found[line.place].exchange_id)
            else:
                of_connection[key].append(line)
    for key, group in of_connection.items():
        of_host = served[key[0]]
        rows = [row for row in of_host.rows_of(key[3]).tolist() if of_host.exchange_id[row] not in known[key]]
        for line, row in _in_order(sorted(group, key=_by_end), rows, of_host):
            yield line.place, Join(int(of_host.exchange_id[row]), "connection")


def _by_end(line: _Line) -> tuple[int, int]:
    """A key by which lines are in order of their ends; those of one stamp in that of their log."""
    return line.start_ns + line.record.duration_ns, line.place


def _in_order(lines: Sequence[_Line], rows: Sequence[int], served: _Served) -> Iterator[tuple[_Line, int]]:
    """Pairs of lines and requests of one connection, neither of which overtakes."""
    if len(lines) == len(rows) and all(served.is_of(row, line) for line, row in zip(lines, rows, strict=True)):
        yield from zip(lines, rows, strict=True)
        return
    among = np.array(rows, dtype=np.int64)
    fitting = [
        [row for row in served.during(line.bounds, among).tolist() if served.fits(row, line.record)] for line in lines
    ]
    claimed = Counter(each[0] for each in fitting if len(each) == 1)
    anchors = [(at, each[0]) for at, each in enumerate(fitting) if len(each) == 1 and claimed[each[0]] == 1]
    if not anchors or [row for _, row in anchors] != sorted(row for _, row in anchors):
        return
    places = {row: at for at, row in enumerate(rows)}
    ends = [(-1, -1), *((at, places[row]) for at, row in anchors), (len(lines), len(rows))]
    yield from ((lines[at], row) for at, row in anchors)
    for (line_before, row_before), (line_after, row_after) in pairwise(ends):
        between = lines[line_before + 1 : line_after], rows[row_before + 1 : row_after]
        if len(between[0]) == len(between[1]):
            pairs = list(zip(*between, strict=True))
            if all(served.is_of(row, line) for line, row in pairs):
                yield from pairs


def _by_what_it_says(line: _Line, served: _Served) -> Join | None:
    """The only request that fits what a record says, and when."""
    record = line.record
    if record.client is None and not record.target and line.record.uncertainty_ns > EXACT_NS:
        return None
    among = None if record.client is None else served.rows_of(record.client)
    rows = [row for row in served.during(line.bounds, among).tolist() if served.fits(row, record)]
    named = [row for row in rows if served.says_target(row, record)]
    if len(rows) != 1 and len(named) != 1:
        return None
    row = (named if len(named) == 1 else rows)[0]
    by_port = record.client is not None and record.client.port != 0
    return Join(int(served.exchange_id[row]), "connection" if by_port else "time")


def _claims_of_one(claims: Mapping[int, Join], found: Mapping[int, Join], records: Sequence[Record]) -> dict[int, Join]:
    """The claims but those on a request that another line of a whole request, of the same log, has or claims too."""
    whole = Counter(
        _claim_key(records[place], join)
        for place, join in (*found.items(), *claims.items())
        if records[place].is_request
    )
    return {
        place: join
        for place, join in claims.items()
        if not records[place].is_request or whole[_claim_key(records[place], join)] == 1
    }


def _claim_key(record: Record, join: Join) -> tuple[str | None, str, str, int]:
    return record.host, record.source, record.format, join.exchange_id
