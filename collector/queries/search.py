"""Searches a trace for requests by an id from a log, a path, a host, an address, and more.

A query is a list of words. A request is found if each word matches one of its exchanges:

    tx4f2a…  /v1/a/c  storage2  PUT  503      found in transaction id, path, host, service, method or status
    10.0.0.3:6200  10.0.0.3  :6200            an end of one of its connections
    #12  conn:77  host:proxy  path:/v1/a      just that request, connection, host, part of a path
    >5ms  <1s                                 how long the request took
    outcome:failed                            its outcome: ok, failed, abandoned, unknown
    status:503  status:error                  the status of an answer, or its class: ok, error, client_error, refused,
                                              server_error, unknown
    grpc:14  grpc:unavailable  sql:select     an exchange of that protocol, by its result, method or target
    s3:uploadpart  s3:photos                  a request of S3's, by operation, bucket or key
    upload:ID                                 the requests of one multipart upload
    tls:1.3  tls:resumed  sni:api.example     requests and connections over TLS: version, cipher suite, protocol,
                                              resumption, alert, failed; the server's name that was asked for
    process:nginx  user:www-data  pid:812     an end of a connection by its owner, where agents say it; also unit:,
                                              container:, pod:
    stream:websocket                          a stream of that kind or protocol (subscription, session, tunnel, …)

After the requests come streams that match by host, service, kind, protocol, address or number of their connection, then
connections that match by address, host or number and belong to neither.
Cost: a scan over the texts of all exchanges, about 0.1 s for each million.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_

import numpy as np
import polars as pl
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.hops.owner_words import SIDES, owner_words
from collector.hops.tls_words import handshake_words
from collector.queries.trace_view import TraceView
from collector.requests.outcomes import OUTCOMES, Outcome
from collector.requests.protocols import PROTOCOLS, Exchanges
from collector.requests.request_words import is_grpc
from collector.requests.results import CLASSES, is_error
from collector.services.ends import end_name, service_at

UNIT_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
DURATION = re.compile(r"([<>])(\d+(?:\.\d+)?)(ns|us|µs|ms|s)")
ADDRESS = re.compile(r"(\[[0-9a-f:.]+\]|\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f:]*::[0-9a-f:]*|)(?::(\d{1,5}))?", re.IGNORECASE)
OF_STREAMS = ("client_host", "server_host", "service", "protocol", "reason", "evidence")
OF_S3 = ("operation", "bucket", "object_key")
TEXTS = ("transaction_id", "target", "method", "service", "result", "client_host", "server_host", "upload", *OF_S3)
SHOWS_REQUESTS = (Exchanges.ORDERED, Exchanges.BY_STREAM_ID)
OF_PROTOCOL = ("method", "target", "result")
ENDS = ("client", "server", "translated_client", "translated_server")
LONGEST_QUERY = 500
HELP = "try an id, a path, a host, ADDR:PORT, #12 for a request, conn:77, stream:mqtt, tls:1.3, outcome:failed or >5ms"

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Masks:
    """The requests, streams and connections that a word matches."""

    requests: Bools
    streams: Bools
    connections: Bools

    def __and__(self, other: "Masks") -> "Masks":
        return Masks(self.requests & other.requests, self.streams & other.streams, self.connections & other.connections)

    def __or__(self, other: "Masks") -> "Masks":
        return Masks(self.requests | other.requests, self.streams | other.streams, self.connections | other.connections)


@dataclass(frozen=True, slots=True)
class SearchHits:
    """The results of a query, in order of time; `problem` explains why a query is invalid."""

    requests: NDArray[np.int64]  # numbers
    streams: NDArray[np.int64]  # rows of `Searched.streams`
    connections: NDArray[np.int64]  # ids; of those that belong to no request and are no stream
    problem: str = ""

    @property
    def count(self) -> int:
        """The number of hits."""
        return len(self.requests) + len(self.streams) + len(self.connections)


@dataclass(frozen=True, slots=True)
class Searched:
    """The data to search: `spans` with the columns of their exchanges and `request`, sorted by it; the table `streams`,
    in order of time; the table `connections`; the requests' durations."""

    spans: pl.DataFrame
    streams: pl.DataFrame
    connections: pl.DataFrame
    durations_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result: a request, a stream, or another connection. Times in ns since the trace's start."""

    request: int | None
    from_ns: int
    to_ns: int
    text: str


class TraceSearch:
    """Searches one trace. Safe to use from several threads."""

    def __init__(self, trace: TraceView) -> None:
        self._trace = trace

    def hits(self, query: str) -> SearchHits:
        """The results of a query. Cost: the first time, reading the table `connections`.

        Raises: `InputError` if the trace was replaced meanwhile.
        """
        return search(query, self._searched)

    def hit(self, hits: SearchHits, at: int) -> SearchHit:
        """The hit at a place below `hits.count`.

        Raises: as `hits`.
        """
        if at < len(hits.requests):
            request = self._trace.request(int(hits.requests[at]))
            return SearchHit(request.number, request.start_ns, request.end_ns, request.title)
        at -= len(hits.requests)
        if at < len(hits.streams):
            return self._trace.read_unchanged(lambda: self._stream(int(hits.streams[at])))
        connection_id = int(hits.connections[at - len(hits.streams)])
        return self._trace.read_unchanged(lambda: self._connection(connection_id))

    @cached_property
    def _searched(self) -> Searched:
        streams, connections = self._trace.read_unchanged(
            lambda: [self._read(name) for name in ("streams", "connections")]
        )
        streams = streams.sort("begin_trace_ns", "connection_id", nulls_last=True)
        return Searched(self._trace.request_texts(), streams, connections, self._trace.request_durations_ns())

    def _read(self, name: str) -> pl.DataFrame:
        return pl.DataFrame(self._trace.stored.read(name)).with_columns(pl.col(pl.Categorical).cast(pl.String))

    def _stream(self, row: int) -> SearchHit:
        stream = self._searched.streams.row(row, named=True)
        begin_ns, end_ns, of = stream["begin_trace_ns"], stream["end_trace_ns"], stream["connection_id"]
        count = stream["to_client_count"] + stream["to_server_count"]
        ends = f"{end_name(stream['client_host'])} to {service_at(stream['service'], stream['server_host'])}"
        text = f"stream ({stream['evidence']}) from {ends}, {count:,} message{'s' * (count != 1)}, connection {of}"
        if begin_ns is None or end_ns is None:
            whole = self._connection(of)
            return SearchHit(None, whole.from_ns, whole.to_ns, text)
        return SearchHit(None, begin_ns - self._trace.start_ns, end_ns - self._trace.start_ns, text)

    def _connection(self, connection_id: int) -> SearchHit:
        times = ("send_trace_ns", "receive_trace_ns")
        hops = self._trace.stored.rows_matching("hops", ("connection_id", *times), {"connection_id": connection_id})
        bounds = [time for name in times for time in pc.min_max(hops[name]).as_py().values() if time is not None]
        seen = [time - self._trace.start_ns for time in bounds] or [0]
        row = self._searched.connections.row(by_predicate=pl.col("connection_id") == connection_id, named=True)
        handshake = handshake_words(row)
        said = f"; {handshake}" if handshake else ""
        said += "".join(f"; {side}: {words}" for side in SIDES if (words := owner_words(row, side)))
        return SearchHit(None, min(seen), max(seen), f"connection {connection_id}, {hops.num_rows:,} packets{said}")


def search(query: str, where: Searched) -> SearchHits:
    """The requests, streams and other connections that every word of the query matches."""
    words = query[:LONGEST_QUERY].split()
    if not words:
        return _no_search(HELP)
    masks = list[Masks]()
    for word in words:
        matched = _masks(word, where)
        if matched is None:
            return _no_search(f"“{word[:40]}” cannot be searched for; {HELP}")
        masks.append(matched)
    found = reduce(and_, masks)
    alone = where.connections.filter(found.connections & ~_is_in_use(where)).sort("first_host_ns", "connection_id")
    requests, streams = np.flatnonzero(found.requests), np.flatnonzero(found.streams)
    return SearchHits(requests, streams, alone["connection_id"].to_numpy())


def _no_search(problem: str) -> SearchHits:
    nothing = np.zeros(0, dtype=np.int64)
    return SearchHits(nothing, nothing, nothing, problem)


def _masks(word: str, where: Searched) -> Masks | None:
    """The requests, streams and connections that a word matches; None if the word is invalid."""
    if duration := DURATION.fullmatch(word):
        limit_ns = float(duration[2]) * UNIT_NS[duration[3]]
        found = where.durations_ns > limit_ns if duration[1] == ">" else where.durations_ns < limit_ns
        return _only(where, requests=found)
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
    found = _only(
        where,
        requests=_spans_where(texts, where),
        streams=_rows_where(_contains(OF_STREAMS, word), where.streams),
        connections=_rows_where(_of_hosts(word), where.connections),
    )
    address = ADDRESS.fullmatch(word)
    by_address = _address(word, where) if address and (address[1] or address[2]) else None
    return found if by_address is None else found | by_address


def _request(value: str, where: Searched) -> Masks | None:
    if not value.isdecimal() or len(value) > 9:
        return None
    numbers = np.arange(len(where.durations_ns))
    return _only(where, requests=numbers == int(value) - 1)


def _connection(value: str, where: Searched) -> Masks | None:
    if not value.isdecimal() or len(value) > 18:
        return None
    return _with_connections(pl.col("connection_id") == int(value), where)


def _host(value: str, where: Searched) -> Masks:
    test = _of_hosts(value)
    return _only(
        where,
        requests=_spans_where(test, where),
        streams=_rows_where(test, where.streams),
        connections=_rows_where(test, where.connections),
    )


def _service(value: str, where: Searched) -> Masks:
    test = _contains(("service",), value)
    return _only(where, requests=_spans_where(test, where), streams=_rows_where(test, where.streams))


def _stream(value: str, where: Searched) -> Masks:
    kinds = ("protocol", "reason", "evidence")
    return _only(where, streams=_rows_where(_contains(kinds, value), where.streams))


def _address(value: str, where: Searched) -> Masks | None:
    parts = ADDRESS.fullmatch(value)
    if parts is None or not (parts[1] or parts[2]):
        return None
    return _with_connections(_of_address(parts[1].strip("[]").lower(), parts[2]), where)


def _tls(value: str, where: Searched) -> Masks:
    """What used a connection whose TLS handshake says this."""
    text = value.lower()
    if text == "failed":
        return _with_connections(pl.col("tls_alert").is_not_null(), where)
    alpn = pl.coalesce("tls_alpn", "tls_alpn_offered").str.split(", ").list.contains(text)
    names = [pl.col(name).str.to_lowercase() == text for name in ("tls_version", "tls_resumption", "tls_alert")]
    return _with_connections(pl.any_horizontal(alpn, *names, _contains(("tls_cipher",), text)).fill_null(False), where)


def _sni(value: str, where: Searched) -> Masks:
    """What used a connection on which the client asked for a server of such a name."""
    return _with_connections(_contains(("tls_server_name",), value), where)


def _owner(name: str) -> Callable[[str, Searched], Masks]:
    """What used a connection with an end that such a process, user … owns."""
    return lambda value, where: _with_connections(_contains((f"client_{name}", f"server_{name}"), value), where)


def _pid(value: str, where: Searched) -> Masks | None:
    """What used a connection with an end of this process."""
    if not value.isdecimal() or len(value) > 9:
        return None
    ends = [(pl.col(f"{side}_pid") == int(value)).fill_null(False) for side in ("client", "server")]
    return _with_connections(pl.any_horizontal(ends), where)


def _text(*columns: str) -> Callable[[str, Searched], Masks]:
    return lambda value, where: _only(where, requests=_spans_where(_contains(columns, value), where))


def _status(value: str, where: Searched) -> Masks | None:
    """Requests with an answer of this status, or of this class."""
    if value.isdecimal() and len(value) < 5:
        return _only(where, requests=_spans_where(pl.col("status") == int(value), where))
    if value.lower() == "error":
        return _only(where, requests=_spans_where(is_error(), where))
    if value.lower() not in CLASSES:
        return None
    return _only(where, requests=_spans_where(pl.col("status_class") == value.lower(), where))


def _protocol(protocols: Sequence[str], others: Sequence[pl.Expr] = ()) -> Callable[[str, Searched], Masks | None]:
    """Requests with an exchange of one of these protocols and a result, method or target that matches."""

    def rule(value: str, where: Searched) -> Masks | None:
        said = _contains(OF_PROTOCOL, value)
        if value.isdecimal() and len(value) < 10:
            said |= pl.col("result_code") == int(value)
        tests = (pl.col("protocol").is_in(protocols), *others, said)
        return _only(where, requests=_spans_where(pl.all_horizontal(tests).fill_null(value=False), where))

    return rule


def _outcome(value: str, where: Searched) -> Masks | None:
    """Requests by the outcome of their roots."""
    if value.lower() not in OUTCOMES:
        return None
    roots = where.spans.unique("request", keep="first", maintain_order=True)
    named = roots["outcome"].fill_null(str(Outcome.UNKNOWN)) == value.lower()
    found = np.zeros(len(where.durations_ns), dtype=bool)
    found[roots.filter(named)["request"].to_numpy()] = True
    return _only(where, requests=found)


def _protocol_rules() -> dict[str, Callable[[str, Searched], Masks | None]]:
    """The rules of protocols that show requests: by their family and their name, and gRPC's."""
    shown = [one for one in PROTOCOLS if one.exchanges in SHOWS_REQUESTS]
    words = {word for one in shown for word in (one.family, one.name)}
    rules = {word: _protocol([one.name for one in shown if word in (one.family, one.name)]) for word in words}
    return rules | {"grpc": _protocol(["http/2"], [is_grpc()]), "s3": _s3}


def _s3(value: str, where: Searched) -> Masks | None:
    """Requests of S3's with a text that matches."""
    tests = pl.col("operation").is_not_null() & _contains(OF_S3, value)
    return _only(where, requests=_spans_where(tests, where))


RULES: dict[str, Callable[[str, Searched], Masks | None]] = {
    **_protocol_rules(),
    "req": _request,
    "conn": _connection,
    "host": _host,
    "addr": _address,
    "path": _text("target"),
    "tx": _text("transaction_id"),
    "service": _service,
    "stream": _stream,
    "tls": _tls,
    "sni": _sni,
    **{name: _owner(name) for name in ("process", "user", "unit", "container", "pod")},
    "pid": _pid,
    "method": _text("method"),
    "upload": _text("upload"),
    "status": _status,
    "outcome": _outcome,
}
"""By prefix before a colon: the search rule. Any other word with a colon is text."""


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


def _spans_where(test: pl.Expr, where: Searched) -> Bools:
    found = np.zeros(len(where.durations_ns), dtype=bool)
    found[where.spans.filter(test)["request"].to_numpy()] = True
    return found


def _rows_where(test: pl.Expr, rows: pl.DataFrame) -> Bools:
    return rows.select(test.alias("found"))["found"].to_numpy()


def _with_connections(test: pl.Expr, where: Searched) -> Masks:
    """The matching connections, and the requests and streams that used one of them."""
    found = _rows_where(test, where.connections)
    ids = where.connections["connection_id"].filter(pl.Series(found))
    used = pl.col("connection_id").is_in(ids.implode())
    return Masks(_spans_where(used, where), _rows_where(used, where.streams), found)


def _is_in_use(where: Searched) -> Bools:
    """Whether a request or a stream used each connection."""
    used = pl.concat([table["connection_id"].unique() for table in (where.spans, where.streams)])
    return where.connections["connection_id"].is_in(used.implode()).to_numpy()


def _only(
    where: Searched, *, requests: Bools | None = None, streams: Bools | None = None, connections: Bools | None = None
) -> Masks:
    """The given masks; nothing matches for those not given."""
    lengths = len(where.durations_ns), len(where.streams), len(where.connections)
    given = zip((requests, streams, connections), lengths, strict=True)
    return Masks(*(np.zeros(length, dtype=bool) if found is None else found for found, length in given))
