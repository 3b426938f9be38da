"""Requests as trees of spans, for lists and drawings: the tables `spans` and `exchanges` joined.

A request is a root span and all spans below it. Its number is its rank by start time within the trace: small, stable
for a trace, and safe in a URL. Times are int64 ns relative to the trace's start.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from collector import _core
from collector.queries.timeline.shelf import Shelf
from collector.reporting.peers import PEERS
from collector.reporting.request_rows import RequestRows
from collector.requests.link_doubt import UNCERTAIN, describe_doubt
from collector.requests.outcomes import Outcome
from collector.requests.request_words import WORDED, request_words
from collector.requests.results import answer_text
from collector.requests.spans import LEDGER_COLUMNS
from collector.services.client_requests import RHYTHM_COLUMNS, of_clients
from collector.services.ends import end_name
from collector.trace.schema import ERRORS, EXCHANGES, ID_STRIDE_BITS, SPANS
from collector.trace.table_store import ROW_GROUP_ROWS
from collector.trace.time_columns import UNSEEN, Int64Array

TEXTS = (
    *("service", "method", "target", "protocol", "result", "status_class", "transaction_id"),
    *("operation", "bucket", "object_key", "upload"),
)
SPAN_ARRAYS = {"span-id": pl.col("span_id"), "span-request": pl.col("request"), "span-uncertain": UNCERTAIN}
"""Kept by span as arrays, beside the table."""
TIMES = (
    *("start_trace_ns", "end_trace_ns", "connect_start_trace_ns", "connected_trace_ns", "greeting_received_trace_ns"),
    *("request_first_sent_trace_ns", "request_last_received_trace_ns", "response_first_sent_trace_ns"),
    *("response_last_received_trace_ns", *(name for name in RHYTHM_COLUMNS if name.endswith("_trace_ns"))),
)
"""The stamps that spans show, and those that distinguish clients' requests from background work."""
AS_THEY_ARE = (
    *("depth", "client_host", "server_host", "link_reason", "confidence"),
    *("request_bytes", "response_bytes", *ERRORS, "part", "result_code", *PEERS),
)
STORED = tuple(
    dict.fromkeys(
        [
            *("connection_id", "parent_span_id", "alternative_parent_span_id", "alternative_confidence", "pause_ns"),
            *("status", "complete", "outcome", "background", "client_service"),
            *(*TEXTS, *(name for name in AS_THEY_ARE if name not in PEERS), *LEDGER_COLUMNS, *TIMES),
        ]
    )
)
"""Columns of the tables `spans` and `exchanges` that queries read of each span; to read one more, add it here."""
SILENT = {
    "silent_from": pl.List(pl.Int64()),
    "silent_to": pl.List(pl.Int64()),
    "silent_cause": pl.List(pl.String()),
}


class Silence(Struct, frozen=True):
    """An interval in which no byte of a message was in transit; `cause` as `collector.trace.schema.SilenceCause`."""

    from_ns: int
    to_ns: int
    cause: str


class Span(Struct, frozen=True):
    """One exchange as part of a request. Unknown times and texts are None."""

    number: int  # position among all spans of the trace
    depth: int
    client_host: str | None
    server_host: str | None
    service: str
    method: str
    target: str
    status: int
    result: str  # the answer's result code, in the protocol's words
    status_class: str  # as `collector.requests.results` has them
    protocol: str
    transaction_id: str
    complete: bool
    outcome: str  # as `collector.requests.outcomes` has them
    link_reason: str | None
    confidence: float | None
    start_ns: int
    end_ns: int
    connected_ns: int | None  # when it was up, if it was opened for this exchange: after handshake and greeting
    request_sent_ns: int | None
    request_received_ns: int | None  # its last byte, at the server
    response_sent_ns: int | None  # its first byte, at the server
    request_bytes: int | None
    response_bytes: int | None
    uncertainty_ns: int | None
    connect_ns: int  # this and those below: its part of the request's ledger
    request_network_ns: int
    work_ns: int
    response_network_ns: int
    likely_error_ns: int | None = None  # at 95 %
    client_ns: int = 0
    queue_ns: int = 0
    tls_ns: int = 0
    fan_out_wait_ns: int = 0
    server_or_network_ns: int = 0
    stall_ns: int = 0
    request_idle_ns: int = 0
    response_idle_ns: int = 0
    send_held_ns: int = 0
    reader_wait_ns: int = 0
    result_code: int | None = None  # as the protocol numbers its results
    operation: str = ""  # this and those below: of a request of S3's, as `collector.requests.s3_names` has them
    bucket: str = ""
    object_key: str = ""
    upload: str = ""
    part: int | None = None
    doubt: str = ""  # where its parent is uncertain: how sure it is, and the next candidate (`requests.link_doubt`)
    pause_ns: int = 0  # between the handshake and the first byte: no part of its duration
    ended: bool = True  # otherwise its end was not seen, and its duration is at least so long
    silences: tuple[Silence, ...] = ()  # the long ones of its messages, by time
    client_peer: str | None = None  # what the address of an end without a capture is called
    server_peer: str | None = None

    @property
    def client(self) -> str | None:
        """The name of its client; None if it has none."""
        return self.client_host or self.client_peer

    @property
    def server(self) -> str | None:
        """The name of its server; None if it has none."""
        return self.server_host or self.server_peer

    @property
    def duration_ns(self) -> int:
        """From its first packet to its last, without its client's pause (`collector.requests.openings`)."""
        return self.end_ns - self.start_ns - self.pause_ns

    @property
    def answer(self) -> str:
        """What the answer says of its result; "" if nothing is visible."""
        return answer_text(self.status, self.result)

    @property
    def title(self) -> str:
        """A short name of the exchange."""
        words = request_words({name: getattr(self, name) for name in WORDED})
        return words or f"exchange with {self.service or end_name(self.server)}"


def build_trees(
    shelf: Shelf, rows: RequestRows, silences: pa.Table, start_ns: int, empty: Collection[str] = frozenset()
) -> None:
    """Store the data of `SpanTrees` on the shelf.

    Arguments: `empty`, columns of the tables that hold nothing but nulls: they are neither read nor stored.
    Memory: about 150 bytes a span, and `ROW_GROUP_ROWS` rows.
    """
    order = _order(rows, start_ns)
    lists = _silence_lists(silences, start_ns)
    kept: list[pl.DataFrame] = []

    def parts() -> Iterator[pl.DataFrame]:
        wanted, begin = [name for name in STORED if name not in empty], 0
        for part in rows.in_order(order.row, ROW_GROUP_ROWS, wanted):
            made = _with_times(part, order.part(begin, begin + len(part)), start_ns)
            if len(lists):
                made = made.join(lists, on="span_id", how="left", maintain_order="left")
            kept.append(_with_all_columns(made).select(*SPAN_ARRAYS.values()))
            begin += len(part)
            yield made

    shelf.put_tables("spans", parts())
    for name, column in zip(SPAN_ARRAYS, pl.concat(kept), strict=True):
        shelf.put(name, column.to_numpy())
    first = np.searchsorted(order.request, np.arange(len(order.root_row) + 1, dtype=np.int32))
    shelf.put("request-first-span", first.astype(np.int64))
    took = order.root_end - order.root_start - order.root_pause
    for name, values in (("start", order.root_start), ("end", order.root_end), ("duration", took)):
        shelf.put(f"request-{name}-ns", values)
    client_numbers = _numbers_of_client_requests(rows, order)
    slowest = np.argsort(-took[client_numbers], kind="stable")
    shelf.put("request-slowest", client_numbers[slowest].astype(np.int32))


class SpanTrees:
    """All spans of a trace, grouped by request."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.span_ids: NDArray[np.int64] = shelf.array("span-id")
        self.request_of_span: NDArray[np.int32] = shelf.array("span-request")
        self.uncertain: NDArray[np.bool_] = shelf.array("span-uncertain")  # whether its parent is
        self._first = shelf.array("request-first-span")
        self.start_ns: NDArray[np.int64] = shelf.array("request-start-ns")
        self.end_ns: NDArray[np.int64] = shelf.array("request-end-ns")
        self.durations_ns: NDArray[np.int64] = shelf.array("request-duration-ns")
        self.slowest: NDArray[np.int32] = shelf.array("request-slowest")  # the clients' own requests

    def __len__(self) -> int:
        return len(self._first) - 1

    def request_of(self, transaction_id: str) -> int | None:
        """The first request with that transaction id. Cost: a search over all spans."""
        found = self.frame.lazy().filter(pl.col("transaction_id") == transaction_id).select("request").head(1)
        numbers = found.collect()["request"].to_list()
        return numbers[0] if numbers else None

    @property
    def frame(self) -> pl.DataFrame:
        """Every span with its exchange: `STORED` and `PEERS`, `span_id`, `request`, `duration_ns`, `start` and `end`,
        and lists of its silences (`SILENT`); times relative to the trace; sorted by request, root first.

        Cost: of an object, reading all of it once.
        """
        return _with_all_columns(self._shelf.table("spans"))

    def spans(self, request: int) -> tuple[Span, ...]:
        """The spans of a request, root first, each followed by its children in order of time."""
        rows = self._rows(int(self._first[request]), int(self._first[request + 1] - self._first[request]))
        doubts = self._doubts(rows)
        return tuple(
            replace(_span(int(self._first[request]) + at, row), doubt=doubts.get(row["span_id"], ""))
            for at, row in _depth_first(rows.to_dicts())
        )

    def doubt(self, number: int) -> str:
        """The uncertainty of a span's parent in words, by the span's position; "" if it is certain."""
        return next(iter(self._doubts(self._rows(number, 1)).values()), "")

    def _rows(self, first: int, count: int) -> pl.DataFrame:
        return _with_all_columns(self._shelf.rows("spans", first, count))

    def _doubts(self, rows: pl.DataFrame) -> dict[int, str]:
        """The uncertainty of parents in words, by span id. Cost: a search over the ids of all spans, if any is
        uncertain."""
        uncertain = rows.filter(UNCERTAIN)
        if not len(uncertain):
            return {}
        parents = ["parent_span_id", "alternative_parent_span_id"]
        wanted = pl.concat([uncertain[name].drop_nulls() for name in parents]).unique()
        places = np.flatnonzero(np.isin(np.asarray(self.span_ids), wanted.to_numpy()))
        known = [self._rows(int(place), 1).row(0, named=True) for place in places]
        titles = {row["span_id"]: _span(0, row).title for row in known}
        return {
            row["span_id"]: describe_doubt(
                titles.get(row["parent_span_id"], "a request"),
                row["confidence"],
                titles.get(row["alternative_parent_span_id"]),
                row["alternative_confidence"],
            )
            for row in uncertain.to_dicts()
        }

    def root_ids(self, requests: NDArray[np.int64]) -> NDArray[np.int64]:
        """The `span_id` of the root of each of these requests."""
        return np.asarray(self.span_ids[self._first[requests]], np.int64)

    def root(self, request: int) -> Span:
        """The span that holds all others of a request."""
        first = int(self._first[request])
        return _span(first, self._rows(first, 1).row(0, named=True))

    def roots(self, requests: NDArray[np.integer[Any]], columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of `frame` of the roots of some requests, in their order."""
        frame = self.frame.select(columns)
        rows = [frame.slice(int(first), 1) for first in self._first[requests]]
        return pl.concat([frame.clear(), *rows])

    def spans_count(self, request: int) -> int:
        """How many spans a request has."""
        return int(self._first[request + 1] - self._first[request])

    def exchanges_count(self, requests: NDArray[np.integer[Any]]) -> int:
        """How many spans some requests have together."""
        return int((self._first[requests + 1] - self._first[requests]).sum())

    def serving_depth(self) -> dict[str, int]:
        """For each host, the depth at which it serves most requests: its distance from the client."""
        served = self.frame.select("server_host", "depth").filter(pl.col("server_host").is_not_null())
        counts = served.group_by("server_host", "depth").len().sort("len", "depth", descending=[False, True])
        return {str(host): int(depth) for host, depth, _ in counts.iter_rows()}  # the most frequent comes last

    def services(self) -> dict[str, tuple[str, ...]]:
        """Services that each host was seen to serve, by name."""
        pairs = self.frame.select("server_host", "service").unique()
        served = pairs.filter(pl.col("server_host").is_not_null() & (pl.col("service") != ""))
        found: dict[str, tuple[str, ...]] = {}
        for host, service in served.sort("service").iter_rows():
            found[str(host)] = (*found.get(str(host), ()), str(service))
        return found

    def texts(self) -> pl.DataFrame:
        """The columns for a search: each span's `request`, connection, texts, hosts, results, times (relative to the
        trace) and bytes; by request."""
        return self.frame.select(
            *("request", "connection_id", "client_host", "server_host", "status", "result_code", "outcome"),
            *("start", "end", "request_bytes", "response_bytes"),
            *(*TEXTS, *PEERS),
        )


class _Order(Struct, frozen=True):
    """The order of the trees: by request, then root first, then start. Times are relative to the trace's start."""

    row: NDArray[np.uint32]  # the place of each span among all rows; this and the next three in their order
    request: NDArray[np.int32]
    start: Int64Array
    end: Int64Array
    root_row: NDArray[np.uint32]  # of each request; this and the next three by their numbers
    root_start: Int64Array
    root_end: Int64Array
    root_pause: Int64Array

    def part(self, begin: int, end: int) -> pl.DataFrame:
        """`request, start, end` of some successive spans."""
        return pl.DataFrame({name: getattr(self, name)[begin:end] for name in ("request", "start", "end")})


def _order(rows: RequestRows, start_ns: int) -> _Order:
    """The order of the trees. Spans whose root has no start are in none.

    Memory: about 100 bytes a span.
    """
    columns = ("exchange_id", "trace_id", "parent_span_id", "pause_ns")
    ids, trace, is_root, pause = _join_columns(
        (
            part["exchange_id"].to_numpy(),
            part["trace_id"].to_numpy(),
            part["parent_span_id"].is_null().to_numpy(),
            part["pause_ns"].fill_null(0).to_numpy(),
        )
        for part in rows.batches(*columns)
    )
    start, end = (_relative(times, start_ns) for times in (rows.starts(), rows.ends()))
    roots = np.flatnonzero(is_root & (start != UNSEEN))
    roots = roots[np.lexsort((trace[roots], start[roots]))]
    request = _core.places(trace[roots], [trace], ID_STRIDE_BITS)[0].astype(np.int32)
    del trace
    known = np.flatnonzero(request >= 0)
    start = np.where(start == UNSEEN, start[roots[request]], start) if len(roots) else start
    end = np.where(end == UNSEEN, start, end)
    known = known[np.lexsort((ids[known], start[known], ~is_root[known], request[known]))]
    return _Order(
        known.astype(np.uint32), request[known], start[known], end[known],
        roots.astype(np.uint32), start[roots], end[roots], pause[roots],
    )  # fmt: skip


def _join_columns(parts: Iterable[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _relative(times: pl.Series, start_ns: int) -> Int64Array:
    """Times by the trace's start; `UNSEEN` for null."""
    return np.asarray((times - start_ns).cast(pl.Int64).fill_null(UNSEEN).to_numpy())


def _with_times(spans: pl.DataFrame, order: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Spans with their exchanges, times made relative; with `request`, `start`, `end` of the same rows of the order,
    and `duration_ns`."""
    times = [name for name in spans.columns if name.endswith("_trace_ns")]
    pause = pl.col("pause_ns").fill_null(0) if "pause_ns" in spans.columns else pl.lit(0, pl.Int64)
    return (
        spans.rename({"exchange_id": "span_id"})
        .with_columns(pl.col(times) - start_ns, *order, pause_ns=pause)
        .with_columns(duration_ns=pl.col("end") - pl.col("start") - pl.col("pause_ns"))
    )


def _with_all_columns(stored: pl.DataFrame) -> pl.DataFrame:
    """The rows of the shelf's table with the columns that are empty."""
    there = frozenset(stored.columns)
    return stored.with_columns(pl.lit(None, kind).alias(name) for name, kind in _kinds().items() if name not in there)


@cache
def _kinds() -> dict[str, pl.DataType]:
    """The kind of each column that may be empty."""
    tables = (pl.DataFrame(table.empty_table()).schema for table in (EXCHANGES, SPANS))
    known = {name: kind for schema in tables for name, kind in schema.items() if name in STORED}
    texts = {name: pl.String() if kind == pl.Categorical else kind for name, kind in known.items()}
    return texts | dict.fromkeys(PEERS, pl.String()) | SILENT


def _numbers_of_client_requests(rows: RequestRows, order: _Order) -> NDArray[np.int32]:
    """The numbers of the clients' own requests, ascending."""
    number = np.full(int(order.root_row.max(initial=0)) + 1, -1, np.int32)
    number[order.root_row] = np.arange(len(order.root_row), dtype=np.int32)
    pairs, roots, begin = list[pl.DataFrame](), list[pl.DataFrame](), 0
    for part in rows.batches("client_host", "server_host", "background"):
        numbers = number[begin : begin + len(part)]
        found = np.flatnonzero(numbers >= 0)
        roots.append(part[found].with_columns(request=pl.Series(numbers[found])))
        pairs.append(part.select("client_host", "server_host").unique())
        begin += len(part)
    chosen: NDArray[np.int32] = of_clients(pl.concat(roots), pl.concat(pairs))["request"].sort().to_numpy()
    return chosen


def _silence_lists(silences: pa.Table, start_ns: int) -> pl.DataFrame:
    """The long silences of each span that has any: lists `silent_from`, `silent_to`, `silent_cause`, by `span_id`."""
    rows = pl.DataFrame(silences).select(
        span_id="exchange_id",
        silent_from=pl.col("from_trace_ns") - start_ns,
        silent_to=pl.col("to_trace_ns") - start_ns,
        silent_cause=pl.col("cause").cast(pl.String),
    )
    return rows.sort("span_id", "silent_from").group_by("span_id", maintain_order=True).agg(pl.all())


def _silences(row: dict[str, Any]) -> tuple[Silence, ...]:
    columns = [row[f"silent_{name}"] or () for name in ("from", "to", "cause")]
    return tuple(map(Silence, *columns))


def _depth_first(rows: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    children: dict[int | None, list[int]] = {}
    known = {row["span_id"] for row in rows}
    for at, row in enumerate(rows):
        parent = row["parent_span_id"]
        children.setdefault(parent if parent in known or at == 0 else rows[0]["span_id"], []).append(at)
    ordered: list[tuple[int, dict[str, Any]]] = []
    waiting = [0] if rows else []
    while waiting:
        at = waiting.pop()
        ordered.append((at, rows[at]))
        waiting.extend(reversed([child for child in children.get(rows[at]["span_id"], []) if child != 0]))
    return ordered


def _connected_ns(row: dict[str, Any]) -> int | None:
    """When the connection was up that was opened for a span: after its handshake, and the greeting of its server."""
    if row["start_trace_ns"] != row["connect_start_trace_ns"] or row["connected_trace_ns"] is None:
        return None
    return max(row["connected_trace_ns"], row["greeting_received_trace_ns"] or row["connected_trace_ns"])


def _span(number: int, row: dict[str, Any]) -> Span:
    texts: dict[str, Any] = {name: row[name] or "" for name in TEXTS}
    ledger: dict[str, Any] = {name: int(row[name] or 0) for name in LEDGER_COLUMNS}
    same: dict[str, Any] = {name: row[name] for name in AS_THEY_ARE}
    return Span(
        number=number,
        status=int(row["status"] or 0),
        complete=bool(row["complete"]),
        outcome=row["outcome"] or str(Outcome.UNKNOWN),
        start_ns=row["start"],
        end_ns=row["end"],
        pause_ns=row["pause_ns"],
        connected_ns=_connected_ns(row),
        request_sent_ns=row["request_first_sent_trace_ns"],
        request_received_ns=row["request_last_received_trace_ns"],
        response_sent_ns=row["response_first_sent_trace_ns"],
        ended=row["end_trace_ns"] is not None,
        silences=_silences(row),
        **texts,
        **ledger,
        **same,
    )
