"""What the words of a search match.

    tx4f2a…  /v1/a/c  storage2  PUT  503      found in transaction id, path, host, service, method or status
    "PUT /photos"                             the same in method and path together
    10.0.0.3:6200  10.0.0.3  :6200  port:6200 an end of one of its connections
    #12  conn:77  host:proxy  path:/v1/a      just that request, connection, host, part of a path
    client:web  server:db                     the host at that end
    >5ms  <=1s  >1MB                          how long the request took; the larger of its bytes there and back
    outcome:failed                            its outcome: ok, failed, abandoned, unknown
    status:503  status:5xx  status:error      the status of an answer, its hundred, or its class: ok, error,
                                              client_error, refused, server_error, unknown
    grpc:14  grpc:unavailable  sql:select     an exchange of that protocol, by its result, method or target
    s3:uploadpart  s3:photos                  a request of S3's, by operation, bucket or key
    upload:ID                                 the requests of one multipart upload
    tls:1.3  tls:resumed  sni:api.example     requests and connections over TLS: version, cipher suite, protocol,
                                              resumption, alert, failed; the server's name that was asked for
    process:nginx  user:www-data  pid:812     an end of a connection by its owner, where agents say it; also unit:,
                                              container:, pod:
    stream:websocket                          a stream of that kind or protocol (subscription, session, tunnel, …)
    packet:lost  packet:rst  retransmitted    a request with such a packet: a state, a kind, or one sent again
    class:"PUT object"                        a request of a class whose name has this text
    log:"timed out"                           a request of which a line of a log, or a span, has this text
    finding:server_silent                     a request where and while something of that kind was found

A request is matched if one of its exchanges is. A rule maps the value after the colon to `Masks`, None if it makes no
sense.
Cost of a word: a scan over the texts of all exchanges, less than 0.1 s for each million; of `packet:`, of all packets.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.findings.kinds import OF_NAME
from collector.queries.search_language import Word, WordError
from collector.reporting.peers import PEERS
from collector.requests.outcomes import OUTCOMES, Outcome
from collector.requests.protocols import PROTOCOLS, Exchanges
from collector.requests.request_words import is_grpc
from collector.requests.results import CLASSES, is_error
from collector.trace.schema import HopKind, HopState

UNIT_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
UNIT_BYTES = {"B": 1} | {
    f"{name}{unit}": base**power for power, name in enumerate("kMG", 1) for unit, base in (("B", 1000), ("iB", 1024))
}
UNIT_BYTES |= {"KB": 1000, "KiB": 1024}
DURATION = re.compile(r"([<>]=?)(\d+(?:\.\d+)?)(ns|us|µs|ms|s)")
SIZE = re.compile(rf"([<>]=?)(\d+(?:\.\d+)?)({'|'.join(UNIT_BYTES)})")
ADDRESS = re.compile(r"(\[[0-9a-f:.]+\]|\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f:]*::[0-9a-f:]*|)(?::(\d{1,5}))?", re.IGNORECASE)
HOSTS = ("client_host", "server_host", *PEERS)
OF_STREAMS = (*HOSTS, "service", "protocol", "reason", "evidence")
OF_S3 = ("operation", "bucket", "object_key")
TEXTS = ("transaction_id", "target", "method", "service", "result", *HOSTS, "upload", *OF_S3)
SHOWS_REQUESTS = (Exchanges.ORDERED, Exchanges.BY_STREAM_ID)
OF_PROTOCOL = ("method", "target", "result")
ENDS = ("client", "server", "translated_client", "translated_server")
RETRANSMITTED = "retransmitted"
PACKETS = (RETRANSMITTED, *(str(each) for each in (*HopState, *HopKind)))
"""What `packet:` finds."""
PLAIN_PACKETS = ("lost", RETRANSMITTED)
"""Those that are found without `packet:`, too."""
HELP = "try an id, a path, a host, ADDR:PORT, #12 for a request, conn:77, stream:mqtt, tls:1.3, outcome:failed or >5ms"

Bools = NDArray[np.bool_]


class Masks(Struct, frozen=True):
    """The requests, streams and connections that are matched; None of those that the words are not about."""

    requests: Bools
    streams: Bools | None = None
    connections: Bools | None = None

    def __and__(self, other: "Masks") -> "Masks":
        streams, connections = _both(self.streams, other.streams), _both(self.connections, other.connections)
        return Masks(self.requests & other.requests, streams, connections)

    def __or__(self, other: "Masks") -> "Masks":
        streams, connections = _either(self.streams, other.streams), _either(self.connections, other.connections)
        return Masks(self.requests | other.requests, streams, connections)

    def __invert__(self) -> "Masks":
        streams, connections = (None if mask is None else ~mask for mask in (self.streams, self.connections))
        return Masks(~self.requests, streams, connections)


def _both(one: Bools | None, other: Bools | None) -> Bools | None:
    return None if one is None or other is None else one & other


def _either(one: Bools | None, other: Bools | None) -> Bools | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


class Searched(Struct, frozen=True):
    """The data to search: `spans` with the columns of their exchanges and `request`, sorted by it; the table `streams`,
    in order of time; the table `connections`; the requests' durations; the table `findings` with its times relative to
    the trace's start; for a word of `PACKETS` the requests that have such a packet; the class of each request; the
    requests of which a log, or another tracer, says a text."""

    spans: pl.DataFrame
    streams: pl.DataFrame
    connections: pl.DataFrame
    durations_ns: NDArray[np.int64]
    findings: pl.DataFrame = field(default_factory=pl.DataFrame)
    with_packets: Callable[[str], Bools] | None = None
    classes: Callable[[], pl.Series] | None = None
    with_lines: Callable[[str], Bools] | None = None


Rule = Callable[[str, Searched], Masks | None]


def check_word(word: Word) -> None:
    """Raises: WordError for a word that can find nothing, whatever the trace."""
    text = word.text
    if not word.quoted and text[0] in "<>" and DURATION.fullmatch(text) is None and SIZE.fullmatch(text) is None:
        raise WordError(word.at, f"{text!r} is no duration", "write >50ms or >1MB, without a space")
    if word.quoted and not word.key:
        return
    key, colon, value = (word.key, ":", text) if word.key else text.partition(":")
    if not colon or not _KEY.fullmatch(key) or (not word.key and ADDRESS.fullmatch(text)):
        return
    name = key.lower()
    if name not in RULES:
        raise WordError(word.at, f"nothing is searched by {key!r}", f"there are: {', '.join(sorted(RULES))}")
    known = VALUES.get(name)
    is_number = name == "status" and (value.isdecimal() or _HUNDRED.fullmatch(value) is not None)
    if not value or (known is not None and value.lower() not in known and not is_number):
        those = ", ".join(known or ("any text",))
        numbers = "a number, 5xx, " if name == "status" else ""
        raise WordError(word.at + len(key) + 1, f"{value!r} is no {name}", f"there are: {numbers}{those}")


def masks_of(word: Word, where: Searched) -> Masks | None:
    """The requests, streams and connections that a word matches; None if it makes no sense."""
    text = word.text
    if word.key in RULES:
        return RULES[word.key](text, where) if text else None
    if word.quoted:
        return _anything(f"{word.key}:{text}" if word.key else text, where)
    if (limit := DURATION.fullmatch(text)) or (limit := SIZE.fullmatch(text)):
        is_time = limit[3] in UNIT_NS
        measured = where.durations_ns if is_time else _bytes(where)
        return Masks(_holds(limit[1], measured, float(limit[2]) * (UNIT_NS if is_time else UNIT_BYTES)[limit[3]]))
    if re.fullmatch(r"[<>][\w.]*", text):  # meant as one
        return None
    key, colon, value = text.partition(":")
    rule = RULES.get(key.lower()) if colon else None
    if rule is not None:
        return rule(value, where) if value else None
    if re.fullmatch(r"#\d{1,9}", text):
        return _request(text[1:], where)
    found = _anything(text, where)
    return found | Masks(_with_packets(text.lower(), where)) if text.lower() in PLAIN_PACKETS else found


def _holds(sign: str, values: NDArray[np.int64], limit: float) -> Bools:
    if sign[0] == ">":
        return values >= limit if sign == ">=" else values > limit
    return values <= limit if sign == "<=" else values < limit


def _bytes(where: Searched) -> NDArray[np.int64]:
    """The larger of the bytes that each request sent and received, as of its root."""
    found = np.zeros(len(where.durations_ns), dtype=np.int64)
    size = pl.max_horizontal(pl.col("request_bytes").fill_null(0), pl.col("response_bytes").fill_null(0))
    roots = where.spans.unique("request", keep="first", maintain_order=True).select("request", size=size)
    found[roots["request"].to_numpy()] = roots["size"].to_numpy()
    return found


def _anything(word: str, where: Searched) -> Masks:
    texts = _contains(TEXTS, word)
    if " " in word:  # else one of both has it
        texts |= _contains_in(pl.concat_str("method", "target", separator=" "), word)
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


def _host_at(side: str) -> Rule:
    """What has a host of such a name at that end."""

    def rule(value: str, where: Searched) -> Masks:
        test = _contains((f"{side}_host", f"{side}_peer"), value)
        return Masks(_spans_where(test, where), _rows_where(test, where.streams), _rows_where(test, where.connections))

    return rule


def _port(value: str, where: Searched) -> Masks | None:
    return _address(f":{value}", where)


def _packet(value: str, where: Searched) -> Masks | None:
    """Requests with a packet of this state or kind."""
    return Masks(_with_packets(value.lower(), where)) if value.lower() in PACKETS else None


def _with_packets(word: str, where: Searched) -> Bools:
    return np.zeros(len(where.durations_ns), dtype=bool) if where.with_packets is None else where.with_packets(word)


def _class(value: str, where: Searched) -> Masks:
    """Requests of a class whose name has this text (`collector.queries.request_table`)."""
    if where.classes is None:
        return _only(where)
    return Masks(where.classes().to_frame("class").select(_contains(("class",), value)).to_series().to_numpy())


def _finding(value: str, where: Searched) -> Masks | None:
    """Requests with an exchange at the place, and within the time, of a finding of such a kind."""
    if not any(value.lower() in name for name in OF_NAME):
        return None
    found = np.zeros(len(where.durations_ns), dtype=bool)
    if not where.findings.is_empty():
        chosen = where.findings.filter(_contains(("kind",), value))
        for row in chosen.iter_rows(named=True):
            found |= _spans_where(_at_finding(row), where)
    return Masks(found)


def _log(value: str, where: Searched) -> Masks | None:
    """Requests of which a line of a log, or a span of another tracer, has this text."""
    return _only(where) if where.with_lines is None else Masks(where.with_lines(value))


def _at_finding(row: Mapping[str, Any]) -> pl.Expr:
    """Whether an exchange has the finding's hosts at its ends, is of its service, and overlaps its time, as far as it
    has those."""
    tests = [pl.lit(value=True)]
    hosts = [row[name] for name in ("host", "peer_host") if row[name]]
    tests += [(pl.col("client_host") == host) | (pl.col("server_host") == host) for host in hosts]
    if row["service"]:
        tests.append(pl.col("service") == row["service"])
    if row["from_trace_ns"] is not None:
        tests.append(pl.col("end") >= row["from_trace_ns"])
    if row["to_trace_ns"] is not None:
        tests.append(pl.col("start") <= row["to_trace_ns"])
    return pl.all_horizontal(tests).fill_null(value=False)


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


def _owner(name: str) -> Rule:
    """What used a connection with an end that such a process, user … owns."""
    return lambda value, where: _with_connections(_contains((f"client_{name}", f"server_{name}"), value), where)


def _pid(value: str, where: Searched) -> Masks | None:
    """What used a connection with an end of this process."""
    if not value.isdecimal() or len(value) > 9:
        return None
    ends = [(pl.col(f"{side}_pid") == int(value)).fill_null(False) for side in ("client", "server")]
    return _with_connections(pl.any_horizontal(ends), where)


def _text(*columns: str) -> Rule:
    return lambda value, where: _only(where, requests=_spans_where(_contains(columns, value), where))


def _status(value: str, where: Searched) -> Masks | None:
    """Requests with an answer of this status, or of this class."""
    if value.isdecimal() and len(value) < 5:
        return _only(where, requests=_spans_where(pl.col("status") == int(value), where))
    if _HUNDRED.fullmatch(value):
        return _only(where, requests=_spans_where(pl.col("status") // 100 == int(value[0]), where))
    if value.lower() == "error":
        return _only(where, requests=_spans_where(is_error(), where))
    if value.lower() not in CLASSES:
        return None
    return _only(where, requests=_spans_where(pl.col("status_class") == value.lower(), where))


def _protocol(protocols: Sequence[str], others: Sequence[pl.Expr] = ()) -> Rule:
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


def _protocol_rules() -> dict[str, Rule]:
    """The rules of protocols that show requests: by their family and their name, and gRPC's."""
    shown = [one for one in PROTOCOLS if one.exchanges in SHOWS_REQUESTS]
    words = {word for one in shown for word in (one.family, one.name)}
    rules = {word: _protocol([one.name for one in shown if word in (one.family, one.name)]) for word in words}
    return rules | {"grpc": _protocol(["http/2"], [is_grpc()]), "s3": _s3}


def _s3(value: str, where: Searched) -> Masks | None:
    """Requests of S3's with a text that matches."""
    tests = pl.col("operation").is_not_null() & _contains(OF_S3, value)
    return _only(where, requests=_spans_where(tests, where))


RULES: dict[str, Rule] = {
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
    "client": _host_at("client"),
    "server": _host_at("server"),
    "port": _port,
    "packet": _packet,
    "finding": _finding,
    "class": _class,
    "log": _log,
}
"""By prefix before a colon: the search rule. Any other word with a colon is text."""
VALUES: dict[str, tuple[str, ...]] = {
    "status": ("error", *CLASSES),
    "outcome": tuple(OUTCOMES),
    "packet": PACKETS,
    "finding": tuple(OF_NAME),
}
"""The values that there are after some of the prefixes."""
_KEY = re.compile(r"[A-Za-z_]+")
_HUNDRED = re.compile(r"[1-5]xx", re.IGNORECASE)


def _contains(columns: Sequence[str], text: str) -> pl.Expr:
    return pl.any_horizontal(_contains_in(pl.col(column), text) for column in columns)


def _contains_in(column: pl.Expr, text: str) -> pl.Expr:
    # A pattern in either case takes a quarter of the time of a copy in small letters.
    return column.str.contains(f"(?i){pl.escape_regex(text)}").fill_null(False)


def _of_hosts(text: str) -> pl.Expr:
    return _contains(HOSTS, text)


def _of_address(address: str, port: str | None) -> pl.Expr:
    tests = []
    for end in ENDS:
        test = pl.lit(True) if not address else pl.col(f"{end}_addr") == address
        test = test if port is None else test & (pl.col(f"{end}_port") == int(port))
        tests.append(test.fill_null(False))
    return pl.any_horizontal(tests)


def _spans_where(test: pl.Expr, where: Searched) -> Bools:
    found = np.zeros(len(where.durations_ns), dtype=bool)
    found[where.spans["request"].to_numpy()[_rows_where(test, where.spans)]] = True
    return found


def _rows_where(test: pl.Expr, rows: pl.DataFrame) -> Bools:
    return rows.select(test.alias("found"))["found"].to_numpy()


def _with_connections(test: pl.Expr, where: Searched) -> Masks:
    """The matching connections, and the requests and streams that used one of them."""
    found = _rows_where(test, where.connections)
    ids = where.connections["connection_id"].filter(pl.Series(found))
    used = pl.col("connection_id").is_in(ids.implode())
    return Masks(_spans_where(used, where), _rows_where(used, where.streams), found)


def _only(
    where: Searched, *, requests: Bools | None = None, streams: Bools | None = None, connections: Bools | None = None
) -> Masks:
    """The given masks; no request matches if none are given."""
    none = np.zeros(len(where.durations_ns), dtype=bool)
    return Masks(none if requests is None else requests, streams, connections)
