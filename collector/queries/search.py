"""Searching a trace: what somebody holds in hand (an id from a log, a path, a host, an address) leads to requests.

A query is words, and a request is found if each of them is true of one of its exchanges:

    tx4f2a…  /v1/a/c  storage2  PUT  503      found in transaction id, path, host, service, method or status
    10.0.0.3:6200  10.0.0.3  :6200            an end of one of its connections
    #12  conn:77  host:proxy  path:/v1/a      just that request, connection, host, part of a path
    >5ms  <1s                                 how long the request took
    outcome:failed                            what became of it: ok, failed, abandoned, unknown

Connections that match by address, host or number and belong to no request are found too, after the requests.
Cost: a scan over the texts of all exchanges, about 0.1 s for each million.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import polars as pl
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector import store
from collector.outcomes import OUTCOMES, Outcome
from collector.queries.trace_view import TraceView

UNIT_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
DURATION = re.compile(r"([<>])(\d+(?:\.\d+)?)(ns|us|µs|ms|s)")
ADDRESS = re.compile(r"(\[[0-9a-f:.]+\]|\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f:]*::[0-9a-f:]*|)(?::(\d{1,5}))?", re.IGNORECASE)
TEXTS = ("transaction_id", "target", "method", "service", "client_host", "server_host")
ENDS = ("client", "server", "translated_client", "translated_server")
LONGEST_QUERY = 500
HELP = "try an id, a path, a host, ADDR:PORT, #12 for a request, conn:77, outcome:failed or >5ms"

Requests = NDArray[np.bool_]
Masks = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""Which requests, and which connections, a word is true of."""


@dataclass(frozen=True, slots=True)
class SearchHits:
    """What a query finds, in order of time; `problem` says why it could not be searched for."""

    requests: NDArray[np.int64]  # numbers
    connections: NDArray[np.int64]  # ids; of those that belong to no request
    problem: str = ""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.requests) + len(self.connections)


@dataclass(frozen=True, slots=True)
class Searched:
    """Where is looked: `spans` with its exchange's columns and `request`, sorted by it; `connections` as the table;
    the requests' durations."""

    spans: pl.DataFrame
    connections: pl.DataFrame
    durations_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One of the things found: a request, or a connection that belongs to none. Times in ns since the trace's start."""

    request: int | None
    from_ns: int
    to_ns: int
    text: str


class TraceSearch:
    """Searches one trace. Safe to use from several threads."""

    def __init__(self, trace: TraceView) -> None:
        self._trace = trace

    def hits(self, query: str) -> SearchHits:
        """What a query finds. Cost: the first time, reading the table `connections`.

        Raises: `InputError` if the trace was made anew meanwhile.
        """
        return search(query, self._searched)

    def hit(self, hits: SearchHits, at: int) -> SearchHit:
        """The hit at a place below `hits.count`.

        Raises: as `hits`.
        """
        if at < len(hits.requests):
            request = self._trace.request(int(hits.requests[at]))
            return SearchHit(request.number, request.start_ns, request.end_ns, request.title)
        connection_id = int(hits.connections[at - len(hits.requests)])
        return self._trace.unchanged(lambda: self._connection(connection_id))

    @cached_property
    def _searched(self) -> Searched:
        connections = self._trace.unchanged(lambda: store.read_table(self._trace.url, "connections"))
        frame = pl.DataFrame(connections).with_columns(pl.col(pl.Categorical).cast(pl.String))
        return Searched(self._trace.request_texts(), frame, self._trace.request_durations_ns())

    def _connection(self, connection_id: int) -> SearchHit:
        times = ("send_trace_ns", "receive_trace_ns")
        hops = store.read_matching(self._trace.url, "hops", ("connection_id", *times), {"connection_id": connection_id})
        bounds = [time for name in times for time in pc.min_max(hops[name]).as_py().values() if time is not None]
        seen = [time - self._trace.start_ns for time in bounds] or [0]
        return SearchHit(None, min(seen), max(seen), f"connection {connection_id}, {hops.num_rows:,} packets")


def search(query: str, where: Searched) -> SearchHits:
    """The requests, then the connections without one, of which every word of the query is true."""
    nothing = np.zeros(0, dtype=np.int64)
    words = query[:LONGEST_QUERY].split()
    if not words:
        return SearchHits(nothing, nothing, HELP)
    masks = list[Masks]()
    for word in words:
        matched = _masks(word, where)
        if matched is None:
            return SearchHits(nothing, nothing, f"“{word[:40]}” cannot be searched for; {HELP}")
        masks.append(matched)
    requests = reduce(np.logical_and, (mask for mask, _ in masks))
    connections = reduce(np.logical_and, (mask for _, mask in masks))
    alone = where.connections.filter(connections & ~_with_request(where)).sort("first_host_ns", "connection_id")
    return SearchHits(np.flatnonzero(requests), alone["connection_id"].to_numpy())


def _masks(word: str, where: Searched) -> Masks | None:
    """Of which requests and connections a word is true; None if it is no word of ours."""
    if duration := DURATION.fullmatch(word):
        limit_ns = float(duration[2]) * UNIT_NS[duration[3]]
        found = where.durations_ns > limit_ns if duration[1] == ">" else where.durations_ns < limit_ns
        return found, _none(where)
    if re.fullmatch(r"[<>][\w.]*", word):  # meant as one
        return None
    key, colon, value = word.partition(":")
    rule = RULES.get(key.lower()) if colon else None
    if rule is not None:
        return rule(value, where) if value else None
    if re.fullmatch(r"#\d{1,9}", word):
        return _request(word[1:], where)
    return _anything(word, where)


def _anything(word: str, where: Searched) -> Masks:
    texts = _contains(TEXTS, word)
    if word.isdecimal() and len(word) < 5:
        texts |= pl.col("status") == int(word)
    requests, connections = _spans_where(texts, where), _connections_where(_of_hosts(word), where)
    address = ADDRESS.fullmatch(word)
    if address and (address[1] or address[2]):
        return _either((requests, connections), _address(word, where))
    return requests, connections


def _request(value: str, where: Searched) -> Masks | None:
    if not value.isdecimal() or len(value) > 9:
        return None
    numbers = np.arange(len(where.durations_ns))
    return numbers == int(value) - 1, _none(where)


def _connection(value: str, where: Searched) -> Masks | None:
    if not value.isdecimal() or len(value) > 18:
        return None
    return _with_connections(pl.col("connection_id") == int(value), where)


def _host(value: str, where: Searched) -> Masks:
    return _spans_where(_contains(("client_host", "server_host"), value), where), _connections_where(
        _of_hosts(value), where
    )


def _address(value: str, where: Searched) -> Masks | None:
    parts = ADDRESS.fullmatch(value)
    if parts is None or not (parts[1] or parts[2]):
        return None
    return _with_connections(_of_address(parts[1].strip("[]").lower(), parts[2]), where)


def _text(*columns: str) -> Callable[[str, Searched], Masks]:
    return lambda value, where: (_spans_where(_contains(columns, value), where), _none(where))


def _status(value: str, where: Searched) -> Masks | None:
    if not value.isdecimal() or len(value) > 4:
        return None
    return _spans_where(pl.col("status") == int(value), where), _none(where)


def _outcome(value: str, where: Searched) -> Masks | None:
    """Of requests as a whole: by their roots."""
    if value.lower() not in OUTCOMES:
        return None
    roots = where.spans.unique("request", keep="first", maintain_order=True)
    named = roots["outcome"].fill_null(str(Outcome.UNKNOWN)) == value.lower()
    found = np.zeros(len(where.durations_ns), dtype=bool)
    found[roots.filter(named)["request"].to_numpy()] = True
    return found, _none(where)


RULES: dict[str, Callable[[str, Searched], Masks | None]] = {
    "req": _request,
    "conn": _connection,
    "host": _host,
    "addr": _address,
    "path": _text("target"),
    "tx": _text("transaction_id"),
    "service": _text("service"),
    "method": _text("method"),
    "status": _status,
    "outcome": _outcome,
}
"""What may stand before a colon; any other word with a colon is text."""


def _contains(columns: Sequence[str], text: str) -> pl.Expr:
    return pl.any_horizontal(
        pl.col(column).str.to_lowercase().str.contains(text.lower(), literal=True).fill_null(False)
        for column in columns
    )


def _of_hosts(text: str) -> pl.Expr:
    return _contains(("client_host", "server_host"), text)


def _of_address(address: str, port: str | None) -> pl.Expr:
    tests = []
    for end in ENDS:
        test = pl.lit(True) if not address else pl.col(f"{end}_addr") == address
        test = test if port is None else test & (pl.col(f"{end}_port") == int(port))
        tests.append(test.fill_null(False))
    return pl.any_horizontal(tests)


def _spans_where(test: pl.Expr, where: Searched) -> Requests:
    found = np.zeros(len(where.durations_ns), dtype=bool)
    found[where.spans.filter(test)["request"].to_numpy()] = True
    return found


def _connections_where(test: pl.Expr, where: Searched) -> NDArray[np.bool_]:
    return where.connections.select(test.alias("found"))["found"].to_numpy()


def _with_connections(test: pl.Expr, where: Searched) -> Masks:
    """The connections, and the requests that used one of them."""
    found = _connections_where(test, where)
    ids = where.connections["connection_id"].filter(pl.Series(found))
    return _spans_where(pl.col("connection_id").is_in(ids.implode()), where), found


def _with_request(where: Searched) -> NDArray[np.bool_]:
    return where.connections["connection_id"].is_in(where.spans["connection_id"].unique().implode()).to_numpy()


def _either(one: Masks, other: Masks | None) -> Masks:
    return one if other is None else (one[0] | other[0], one[1] | other[1])


def _none(where: Searched) -> NDArray[np.bool_]:
    return np.zeros(len(where.connections), dtype=bool)
