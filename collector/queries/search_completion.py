"""Completes the last word of a search: what may stand there, of the language and of the trace, with its meaning."""

import re

import polars as pl
from msgspec import Struct

from collector.queries.search_rules import RULES, VALUES, Searched
from collector.requests.protocols import PROTOCOLS

MOST_COMPLETIONS = 12
MEANINGS = {
    "host": "a host at either end",
    "client": "the host that asked",
    "server": "the host that answered",
    "service": "what was asked",
    "method": "of the request",
    "path": "a part of the path or of the statement",
    "status": "of the answer: 503, 5xx, error",
    "outcome": "how it ended",
    "class": "a part of its class's name",
    "finding": "where and while this was found",
    "log": "what a line of a log says of it",
    "packet": "with such a packet",
    "tx": "a part of the transaction id",
    "req": "its number",
    "conn": "the number of its connection",
    "addr": "ADDRESS:PORT of an end",
    "port": "of an end",
    "stream": "connections without requests, by kind",
    "tls": "version, cipher, protocol, resumption, failed",
    "sni": "the server's name asked for over TLS",
    "upload": "the id of a multipart upload",
    "s3": "operation, bucket or key",
    "grpc": "method or status of a call",
    "process": "that owns an end",
    "user": "that owns an end",
    "unit": "systemd's, that owns an end",
    "container": "that owns an end",
    "pod": "that owns an end",
    "pid": "of the process that owns an end",
}
"""What each prefix finds; those of protocols are all alike."""
PROTOCOL_WORDS = frozenset(word for each in PROTOCOLS for word in (each.name, each.family))
OF_PROTOCOL = "method, target or result of this protocol"
EXAMPLES = {
    ">10ms": "how long it took",
    ">1MB": "the larger of its bytes there and back",
    "not ": "what the next word does not match",
    "or ": "what the words before or after match",
    "lost": "with a lost packet",
    "retransmitted": "with a packet sent again",
}
OF_SPANS = {
    "host": ("client_host", "server_host", "client_peer", "server_peer"),
    "client": ("client_host", "client_peer"),
    "server": ("server_host", "server_peer"),
    "service": ("service",),
    "method": ("method",),
    "path": ("target",),
    "s3": ("operation", "bucket"),
    "upload": ("upload",),
    "tx": ("transaction_id",),
}
"""Columns of the exchanges that have a prefix's values."""
OF_STREAMS = {"stream": ("evidence", "reason", "protocol")}
OF_CONNECTIONS = {
    **{name: (f"client_{name}", f"server_{name}") for name in ("process", "user", "unit", "container", "pod", "pid")},
    "sni": ("tls_server_name",),
    "tls": ("tls_version", "tls_cipher", "tls_alpn", "tls_resumption"),
    "addr": ("server_addr", "client_addr"),
    "port": ("server_port",),
}
_LAST = re.compile(r'(?:^|(?<=[\s(]))(?:(?P<key>[A-Za-z_0-9]+):)?(?P<value>"[^"]*|[^\s("]*)$')


class Completion(Struct, frozen=True):
    """A search whose last word is completed, and what that word means; "" if it is a value of the trace."""

    text: str
    meaning: str


def completions(text: str, where: Searched | None) -> list[Completion]:
    """At most `MOST_COMPLETIONS` searches that begin with what was typed and end in a known word; of the values of the
    trace the most frequent first. Without `where` none of those."""
    last = _LAST.search(text)
    if last is None:
        return []
    before, value = text[: last.start()], last["value"].removeprefix('"').lower()
    if last["key"] is None:
        found = _words(value, where)
    else:
        key = last["key"].lower()
        found = [Completion(f"{last['key']}:{_in_quotes(each)}", "") for each in _values(key, value, where)]
    return [Completion(before + each.text, each.meaning) for each in found[:MOST_COMPLETIONS] if each.text != text]


def _words(begin: str, where: Searched | None) -> list[Completion]:
    """Prefixes, examples, hosts, services and methods that begin so."""
    words = {f"{key}:": MEANINGS.get(key, OF_PROTOCOL) for key in (*MEANINGS, *sorted(RULES.keys() - MEANINGS.keys()))}
    usual = {word: meaning for word, meaning in words.items() if word[:-1] not in PROTOCOL_WORDS}
    known = EXAMPLES | usual if not begin else {**words, **EXAMPLES}
    found = [Completion(word, meaning) for word, meaning in known.items() if word.lower().startswith(begin)]
    if not begin:
        return found
    of_trace = [value for key in ("host", "service", "method") for value in _values(key, begin, where)]
    starting = [Completion(_in_quotes(each), "") for each in dict.fromkeys(of_trace) if each.lower().startswith(begin)]
    return [*starting, *found]


def _values(key: str, part: str, where: Searched | None) -> list[str]:
    """Values that may stand behind a prefix and contain `part`, those that begin with it first."""
    values = [each for each in VALUES.get(key, ()) if part in each]
    if where is None:
        return values
    if key in PROTOCOL_WORDS:
        names = [each.name for each in PROTOCOLS if key in (each.name, each.family)]
        values += _most_frequent(where.spans.filter(pl.col("protocol").is_in(names)), ("method", "result"), part)
    if key == "status":
        values = [*_most_frequent(where.spans, ("status",), part), *values]
    if key == "class" and where.classes is not None:
        values += _most_frequent(where.classes().to_frame("class"), ("class",), part)
    for table, columns in ((where.spans, OF_SPANS), (where.streams, OF_STREAMS), (where.connections, OF_CONNECTIONS)):
        values += _most_frequent(table, columns.get(key, ()), part)
    return sorted(dict.fromkeys(values), key=lambda each: not each.lower().startswith(part))


def _most_frequent(table: pl.DataFrame, columns: tuple[str, ...], part: str) -> list[str]:
    """The values of some columns that contain `part`, the most frequent first."""
    if not columns or table.is_empty():
        return []
    counted = pl.concat(table[name].cast(pl.String).rename("value").value_counts() for name in columns)
    rows = counted.filter(pl.col("value").str.to_lowercase().str.contains(part, literal=True))
    sums = rows.group_by("value").agg(pl.col("count").sum()).sort("count", "value", descending=[True, False])
    return [each for each in sums["value"].head(MOST_COMPLETIONS).to_list() if each]


def _in_quotes(value: str) -> str:
    """A value as a word of the language: in quotes if it would not be one word."""
    plain = not re.search(r"[\s()]", value) and value.lower() not in ("and", "or", "not", "")
    return value if plain or '"' in value else f'"{value}"'
