"""Searches a trace for requests by an id from a log, a path, a host, an address, and more.

A search is words with `and`, `or`, `not` and parentheses (`collector.queries.search_language`); what a word matches is
in `collector.queries.search_rules`. After the requests come streams that match by host, service, kind, protocol,
address or number of their connection, then connections that match by address, host or number and belong to neither.
What words are not about, they neither find nor exclude: `not >5ms` finds no stream, since a stream has no duration.
Cost: that of its words.
"""

from functools import cached_property, reduce
from operator import and_, or_

import numpy as np
import polars as pl
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector.hops.owner_words import SIDES, owner_words
from collector.hops.tls_words import handshake_words
from collector.queries.annotations import Annotations
from collector.queries.search_completion import Completion, completions
from collector.queries.search_language import Not, Part, Word, WordError, parse_search, words_of
from collector.queries.search_rules import HELP, Bools, Masks, Searched, check_word, masks_of
from collector.queries.trace_view import TraceView
from collector.reporting.peers import peers_of_connections, with_peers
from collector.services.ends import end_name, service_at
from tracer.errors import InputError

LONGEST_QUERY = 500


class SearchHits(Struct, frozen=True):
    """The results of a query, in order of time; `problem` explains why a query is invalid."""

    requests: NDArray[np.int64]  # numbers
    streams: NDArray[np.int64]  # rows of `Searched.streams`
    connections: NDArray[np.int64]  # ids; of those that belong to no request and are no stream
    problem: str = ""

    @property
    def count(self) -> int:
        """The number of hits."""
        return len(self.requests) + len(self.streams) + len(self.connections)


class SearchHit(Struct, frozen=True):
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

    def requests(self, query: str) -> NDArray[np.int64]:
        """The numbers of the requests that a query finds, ascending.

        Raises: `InputError` for a query that makes no sense; as `hits`.
        """
        hits = self.hits(query)
        if hits.problem:
            raise InputError(f"search {query!r}: {hits.problem}", "docs/search.md has the words")
        return hits.requests

    def completions(self, text: str) -> list[Completion]:
        """What the last word of a query may become; the first is the likeliest. Of a trace on an object store the
        language alone, until a search has read its texts. Raises: as `hits`."""
        is_read = self._trace.reads is None or "_searched" in self.__dict__
        return completions(text[:LONGEST_QUERY], self._searched if is_read else None)

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
        streams, connections, findings = self._trace.read_unchanged(
            lambda: [self._read(name) for name in ("streams", "connections", "findings")]
        )
        peers = self._trace.read_unchanged(lambda: peers_of_connections(self._trace.stored))
        return Searched(
            self._trace.request_texts(),
            with_peers(streams, peers).sort("begin_trace_ns", "connection_id", nulls_last=True),
            with_peers(connections, peers),
            self._trace.request_durations_ns(),
            findings.with_columns(pl.col("from_trace_ns", "to_trace_ns") - self._trace.start_ns),
            self._trace.requests_with_packets,
            lambda: self._trace.load.table["class"].cast(pl.String),
            Annotations(self._trace).requests_with_text,
        )

    def _read(self, name: str) -> pl.DataFrame:
        return pl.DataFrame(self._trace.stored.read(name)).with_columns(pl.col(pl.Categorical).cast(pl.String))

    def _stream(self, row: int) -> SearchHit:
        stream = self._searched.streams.row(row, named=True)
        begin_ns, end_ns, of = stream["begin_trace_ns"], stream["end_trace_ns"], stream["connection_id"]
        count = stream["to_client_count"] + stream["to_server_count"]
        ends = f"{end_name(stream['client_host'], stream['client_peer'])} to "
        ends += service_at(stream["service"], stream["server_host"] or stream["server_peer"])
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


def found_roots(trace: TraceView, query: str) -> NDArray[np.int64]:
    """The `trace_id`s of the requests that a query finds.

    Raises: `InputError` for a query that makes no sense or finds no request.
    """
    return trace.trace_ids(found_requests(trace, query))


def found_requests(trace: TraceView, query: str) -> NDArray[np.int64]:
    """The numbers of the requests that a query finds, ascending. Raises: as `found_roots`."""
    found = TraceSearch(trace).requests(query)
    if not len(found):
        raise InputError(f"no request is found by {query!r}", "docs/search.md has the words")
    return found


def search(query: str, where: Searched) -> SearchHits:
    """The requests, streams and other connections that a query matches."""
    if not query.strip():
        return _no_search(HELP)
    if len(query) > LONGEST_QUERY:
        return _no_search(f"a search has at most {LONGEST_QUERY} characters")
    try:
        found = _evaluate(parse_search(query), where)
    except WordError as error:
        return _no_search(f"character {error.at + 1}: {error.what}; {error.remedy}")
    streams = np.zeros(0, np.int64) if found.streams is None else np.flatnonzero(found.streams)
    alone = np.zeros(0, np.int64) if found.connections is None else _connections_alone(found.connections, where)
    return SearchHits(np.flatnonzero(found.requests), streams, alone)


def check_search(text: str) -> None:
    """Raises: WordError for a search that can find nothing, whatever the trace."""
    for word in words_of(parse_search(text)):
        check_word(word)


def _evaluate(part: Part, where: Searched) -> Masks:
    if isinstance(part, Word):
        masks = masks_of(part, where)
        if masks is None:
            check_word(part)
            raise WordError(part.at, f"“{str(part)[:40]}” cannot be searched for", HELP)
        return masks
    if isinstance(part, Not):
        return ~_evaluate(part.of, where)
    return reduce(or_ if part.either else and_, (_evaluate(each, where) for each in part.parts))


def _connections_alone(found: Bools, where: Searched) -> NDArray[np.int64]:
    alone = where.connections.filter(found & ~_is_in_use(where)).sort("first_host_ns", "connection_id")
    return alone["connection_id"].to_numpy()


def _no_search(problem: str) -> SearchHits:
    nothing = np.zeros(0, dtype=np.int64)
    return SearchHits(nothing, nothing, nothing, problem)


def _is_in_use(where: Searched) -> Bools:
    """Whether a request or a stream used each connection."""
    used = pl.concat([table["connection_id"].unique() for table in (where.spans, where.streams)])
    return where.connections["connection_id"].is_in(used.implode()).to_numpy()
