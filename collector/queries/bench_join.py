"""Finds the requests of a trace that a load generator's operations made, where the generator records no ids of them.

An operation of such a run (warp's) has an endpoint, a kind, an object and a time by its host's wall clock. Its requests
are among those with the method of its kind (`_METHODS`) for its object, whose packets, as its host sent and received
them, lie within that time. A host's clock is the one that stamped its packets, so requests are sought for each
captured host with its own clock, and no assumption is needed about whose clock the run has:

    operation   start ├──────────────────────────────┤ end       host's wall clock, on the trace's timescale
    its request         first byte sent ── last byte received     packets at the same host

Several operations on one object at once may each hold a request. A request that only one of them can hold is that
one's. An operation that went well and has a good request of its own, which is no part of an upload or a list of several
pages, has no other good one; one that was answered 404 has no other at all. So what they might have held is left to
the rest. Where that leaves a choice, the operation is *ambiguous* and joined to nothing.

An operation of several requests (parts of an upload, pages of a list, attempts of its client library) is joined to the
one that took longest.

Limits: the endpoint is compared if it is an address. No request is found of a host that was not captured, behind TLS,
or without heads of messages; nor of operations that name no object (`warp multipart-put`).
Cost: some 10 µs for each request and operation that share an object. Source of the kinds: minio/warp, `pkg/bench/`.
"""

import ipaddress
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import median
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.clocks.alignment import to_trace_ns

SLACK_NS = 50_000
"""By so much may a packet's stamp lie outside its operation. Both are of one host's clock, and the kernel stamps what
is sent after the process began and what arrives before it ends; but stamps may be rounded, or of a network card."""
REQUEST_COLUMNS = (
    *("request", "depth", "connection_id", "client_host", "method", "target", "status", "request_first_sent_trace_ns"),
    "response_last_received_trace_ns",
)
CONNECTION_COLUMNS = ("connection_id", "server_addr", "server_port")
OPERATION_COLUMNS = ("number", "op", "endpoint", "file", "is_good", "start_ns", "end_ns")
_METHODS = {"GET": "GET", "PUT": "PUT", "STAT": "HEAD", "DELETE": "DELETE", "LIST": "LIST"}
"""Kind of an operation to the first word of `_keys`."""
_PARTS = frozenset(("uploads", "uploadId", "partNumber"))
_PAGES = frozenset(("continuation-token", "marker", "key-marker", "start-after"))
_GOOD = range(200, 400)
_NOT_FOUND = 404
"""No client library tries that again, so no operation that went well has it."""
_BATCH = "DELETE several"


class RunJoin(Struct, frozen=True):
    """The operations of a run and their requests; each operation is in one of the counts."""

    requests: Mapping[int, int]  # number of an operation to number of a request
    ambiguous: frozenset[int]  # numbers of operations that several requests may be of
    several_count: int  # joined ones with more than one request
    unmatched_count: int  # none of the trace's requests can be theirs
    outside_count: int  # they ended before the trace, or began after it
    other_kinds_count: int  # of kinds whose requests are not known
    hosts: tuple[str, ...]  # who made the requests, most of them first
    longer_ns: tuple[int, int] | None  # by how much joined operations last longer than their packets: median, most

    @property
    def operations_count(self) -> int:
        """All operations of the run."""
        left = self.unmatched_count + self.outside_count + self.other_kinds_count
        return len(self.requests) + len(self.ambiguous) + left


class TraceRequests(Struct, frozen=True):
    """What of a trace the join needs."""

    requests: pl.DataFrame  # `REQUEST_COLUMNS`; times relative to `start_ns`
    connections: pl.DataFrame  # `CONNECTION_COLUMNS`
    clocks: pa.Table
    start_ns: int
    duration_ns: int


class _Operation(Struct):
    number: int
    is_good: bool
    start_ns: int  # both on the trace's timescale, by the host's clock
    end_ns: int
    addr: str  # of the endpoint, with its port; "" if it is no address
    held: list["_Call"] = field(default_factory=list)  # requests that are its own
    offered: list["_Call"] = field(default_factory=list)  # that it may hold, or another one

    @property
    def is_explained(self) -> bool:
        """Whether its requests show how it ended, and are not too many."""
        singles = sum(call.is_single and call.is_good for call in self.held)
        return any(call.is_good or not self.is_good for call in self.held) and singles <= 1

    def has_room_for(self, call: "_Call") -> bool:
        """Whether a request may be its own beside those that are."""
        if self.is_good:
            return not call.is_good or not any(each.is_single and each.is_good for each in self.held)
        return all(each.status != _NOT_FOUND for each in self.held)


class _Call(Struct):
    request: int
    host: str
    begin_ns: int
    end_ns: int | None  # None: not wholly answered
    addr: str
    status: int  # 0: unknown
    is_single: bool  # it is no part of an upload, and no later page

    @property
    def is_good(self) -> bool:
        """Whether it was answered well."""
        return self.status in _GOOD

    def fits(self, each: _Operation) -> bool:
        """Whether an operation may have made it."""
        if each.addr and each.addr != self.addr:
            return False
        if not each.start_ns - SLACK_NS <= self.begin_ns <= each.end_ns + SLACK_NS:
            return False
        if not each.is_good:  # what a client gave up may still arrive behind the operation's end
            return True
        return self.status != _NOT_FOUND and self.end_ns is not None and self.end_ns <= each.end_ns + SLACK_NS


def join_operations(operations: Iterable[pl.DataFrame], trace: TraceRequests) -> RunJoin:
    """Join the operations of a run with the requests of a trace.

    Arguments: `operations`, frames with `OPERATION_COLUMNS`, times by the wall clock of the run's host.
    """
    calls = _calls_by_host(trace)
    found: dict[int, list[_Call]] = defaultdict(list)
    ambiguous: set[int] = set()
    length: dict[int, int] = {}
    counts = {"unmatched": 0, "outside": 0, "other": 0}
    begun = [_Groups(host, by_key) for host, by_key in calls.items()]
    for frame in operations:
        known = frame.filter(pl.col("op").is_in(list(_METHODS)))
        counts["other"] += len(frame) - len(known)
        inside = np.zeros(len(known), dtype=np.bool_)
        for groups in begun:
            start_ns = _on_trace(known["start_ns"], groups.host, trace)
            end_ns = start_ns + (known["end_ns"] - known["start_ns"]).to_numpy()
            within = (end_ns >= 0) & (start_ns <= trace.duration_ns)
            inside |= within
            groups.add(known.filter(pl.Series(within)), start_ns[within], end_ns[within])
        counts["outside"] += int((~inside).sum()) if begun else 0
        counts["unmatched"] += int(inside.sum()) if begun else len(known)
    for groups in begun:
        for each in groups.operations():
            if each.is_explained:
                found[each.number] += each.held
                length[each.number] = each.end_ns - each.start_ns
            elif each.offered or len(each.held) > 1:
                ambiguous.add(each.number)
    twice = {number for number, held in found.items() if len({call.host for call in held}) > 1}
    ambiguous = (ambiguous - found.keys()) | twice
    joined = {number: held for number, held in found.items() if number not in twice}
    counts["unmatched"] -= len(joined) + len(ambiguous)
    return _summary(joined, frozenset(ambiguous), length, counts)


class _Groups:
    """Operations and requests by kind and object, of one captured host."""

    def __init__(self, host: str, calls: Mapping[str, Sequence[_Call]]) -> None:
        self.host, self._calls = host, calls
        self._operations: dict[str, list[_Operation]] = defaultdict(list)

    def add(self, frame: pl.DataFrame, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> None:
        """More operations, with their times on the trace's timescale."""
        columns = [frame[name].to_list() for name in ("number", "op", "endpoint", "file", "is_good")]
        for number, op, endpoint, file, is_good, start, end in zip(
            *columns, start_ns.tolist(), end_ns.tolist(), strict=True
        ):
            key = _BATCH if op == "DELETE" and not file else f"{_METHODS[op]} {file.lstrip('/')}"
            if key in self._calls:
                self._operations[key].append(_Operation(number, is_good, start, end, _address(endpoint)))

    def operations(self) -> Iterator[_Operation]:
        """The operations that hold requests, or may."""
        for key, operations in self._operations.items():
            _match(sorted(operations, key=lambda each: each.start_ns), self._calls[key])
            yield from operations


def _match(operations: Sequence[_Operation], calls: Sequence[_Call]) -> None:
    """Give each request to the operation that made it, or offer it to those that may have.

    Arguments: `operations`, by their start.
    """
    starts = [each.start_ns for each in operations]
    ends = list(accumulate((each.end_ns for each in operations), max))  # the latest so far: ascending
    pending: list[tuple[_Call, list[_Operation]]] = []
    for call in calls:
        first = bisect_left(ends, call.begin_ns - SLACK_NS)
        last = bisect_right(starts, call.begin_ns + SLACK_NS)
        pending.append((call, [each for each in operations[first:last] if call.fits(each)]))
    while pending:
        # All of a round are judged by what was known before it, so that their order decides nothing.
        choices = [(call, [each for each in fitting if each.has_room_for(call)]) for call, fitting in pending]
        for call, possible in choices:
            if len(possible) == 1:
                possible[0].held.append(call)
        left = [(call, possible) for call, possible in choices if len(possible) > 1]
        if len(left) == len(pending):
            break
        pending = left
    for call, fitting in pending:
        for each in fitting:
            each.offered.append(call)


def _summary(
    joined: Mapping[int, Sequence[_Call]], ambiguous: frozenset[int], length: Mapping[int, int], counts: dict[str, int]
) -> RunJoin:
    hosts = pl.Series([held[0].host for held in joined.values()], dtype=pl.String).value_counts(sort=True)
    answered = {
        number: [(call.begin_ns, call.end_ns) for call in held if call.end_ns is not None]
        for number, held in joined.items()
        if all(call.end_ns is not None for call in held)
    }
    longer = [
        length[number] - (max(end for _, end in times) - min(begin for begin, _ in times))
        for number, times in answered.items()
    ]
    return RunJoin(
        requests={number: max(held, key=_length_ns).request for number, held in joined.items()},
        ambiguous=ambiguous,
        several_count=sum(len(held) > 1 for held in joined.values()),
        unmatched_count=counts["unmatched"],
        outside_count=counts["outside"],
        other_kinds_count=counts["other"],
        hosts=tuple(hosts[hosts.columns[0]].to_list()),
        longer_ns=(int(median(longer)), max(longer)) if longer else None,
    )


def _length_ns(call: _Call) -> int:
    return -1 if call.end_ns is None else call.end_ns - call.begin_ns


def _on_trace(host_ns: pl.Series, host: str, trace: TraceRequests) -> NDArray[np.int64]:
    """Stamps of a host, relative to the trace's start."""
    hosts = pa.DictionaryArray.from_arrays(np.zeros(len(host_ns), dtype=np.int32), pa.array([host]))
    return to_trace_ns(hosts, pa.array(host_ns.to_numpy()), trace.clocks) - trace.start_ns


def _calls_by_host(trace: TraceRequests) -> dict[str, dict[str, list[_Call]]]:
    """The requests that captured hosts made, by host, then by kind and object."""
    rows = trace.requests.filter(
        (pl.col("depth") == 0)
        & pl.col("client_host").is_not_null()
        & pl.col("request_first_sent_trace_ns").is_not_null()
        & pl.col("target").is_not_null()
    ).join(trace.connections, on="connection_id", how="left", maintain_order="left")
    found: dict[str, dict[str, list[_Call]]] = defaultdict(lambda: defaultdict(list))
    for row in rows.iter_rows(named=True):
        keys, parameters = _keys(row["method"] or "", row["target"])
        call = _Call(
            request=row["request"],
            host=row["client_host"],
            begin_ns=row["request_first_sent_trace_ns"],
            end_ns=row["response_last_received_trace_ns"],
            addr=f"{row['server_addr']} {row['server_port']}",
            status=row["status"] or 0,
            is_single=not parameters & (_PARTS | _PAGES),
        )
        for key in keys:
            found[call.host][key].append(call)
    return {host: dict(by_key) for host, by_key in found.items()}


def _keys(method: str, target: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Under which keys operations may name a request, and its parameters. The bucket is in the path or the host."""
    path, _, query = target.partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
    names, whole = frozenset(parameters), unquote(path).lstrip("/")
    bucket, _, name = whole.partition("/")
    if method == "POST" and names & _PARTS:
        method = "PUT"
    if method == "POST" and "delete" in names and not name:
        return (_BATCH,), names
    if method == "GET" and not name and "location" not in names:
        return (f"LIST {parameters.get('prefix', '')}", f"GET {bucket}"), names
    return tuple(f"{method} {key}" for key in dict.fromkeys((name, whole)) if key), names


@lru_cache(maxsize=1024)
def _address(endpoint: str) -> str:
    """`ADDRESS PORT` of an endpoint; "" if its host is no address."""
    try:
        parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        addr = ipaddress.ip_address(parts.hostname or "")
        return f"{addr} {parts.port or (443 if parts.scheme == 'https' else 80)}"
    except ValueError:
        return ""
