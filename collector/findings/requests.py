"""Exchanges with the columns that a diagnosis needs: parent, the server's own time, device, and whether a client waits.

A server's own time is from the last byte of the request to the first byte of the answer, without the time in which it
waited for other servers. So a server that only waits for a slow one does not count as slow.

Requests with the same hosts, service, method, operation and device form a group; an operation is S3's, a method of gRPC
or the shape of a statement of SQL. Most computations run over groups and numeric columns; only requests of interest are
converted to rows of a frame.
"""

from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.requests.critical_path import NONE, Int64Array
from collector.requests.exchanges import UNKNOWN
from collector.requests.link_doubt import LOW_CONFIDENCE
from collector.requests.request_words import is_grpc
from collector.requests.spans import LEDGER_COLUMNS
from collector.services.client_requests import of_clients
from collector.services.services import target_words
from collector.trace.arrow import coalesce, indices, numbers, take_rows, texts
from collector.trace.request_times import END, HEARD, SERVER_BEGIN, Moment
from collector.trace.schema import EXCHANGES, ID_STRIDE_BITS
from collector.trace.time_columns import UNSEEN, first_times

EXCHANGE_COLUMNS = [
    *("exchange_id", "connection_id", "client_host", "server_host", "service", "method", "target", "status"),
    *("result", "result_code", "status_class", "operation"),
    *("protocol", "complete", "connect_start_trace_ns", "request_first_sent_trace_ns"),
    *("connected_trace_ns", "connected_received_trace_ns", "greeting_sent_trace_ns", "greeting_received_trace_ns"),
    *("request_first_received_trace_ns", "request_last_received_trace_ns", "response_first_sent_trace_ns"),
    *("continue_sent_trace_ns", "continue_received_trace_ns", "background", "client_service"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns"),
]
SPAN_COLUMNS = [
    "span_id",
    "trace_id",
    "parent_span_id",
    "depth",
    "start_trace_ns",
    "confidence",
    "pause_ns",
    "critical_ns",
    *LEDGER_COLUMNS,
]
SQL = ("postgresql", "mysql")
ALIKE = ["client_host", "server_host", "service", "method", "operation", "device"]
"""The columns that are equal for all requests of a group."""


class Requests(Struct, frozen=True):
    """All exchanges of a trace and their spans; arrays have one value for each. Times are trace times in ns, `UNSEEN`
    if unknown."""

    exchanges: pa.Table  # `EXCHANGE_COLUMNS`
    spans: pa.Table  # `SPAN_COLUMNS`, of the same rows
    group: NDArray[np.int32]
    groups: pl.DataFrame  # for each group: `ALIKE` (categories), `count`, and how many clients waited for (`waited`)
    codes: dict[str, NDArray[np.int32]]  # for each group: `ALIKE` as numbers, -1 if unknown
    device: NDArray[np.int32]  # an index in `devices`, -1 for none
    devices: list[str]
    partition: NDArray[np.int32]  # a number for it, -1 for none
    parent: Int64Array  # a row, or `NONE`
    sure_parent: Int64Array  # the same without uncertain links: for what is said of the calls of one request
    readable: NDArray[np.bool_]  # whether its heads could be read
    waited: NDArray[np.bool_]  # a client's, or made on behalf of one (`collector.services.client_requests`)
    begin: Int64Array
    asked: Int64Array  # when its first byte arrived, or its last
    arrived: Int64Array  # when its last byte arrived
    answered: Int64Array
    ended: Int64Array  # when it ended or was given up
    asking_ns: Int64Array  # how long its server waited, before it answered, for at least one server that it called
    own_ns: Int64Array  # its server's own time, without that

    @property
    def critical_ns(self) -> Int64Array:
        """How much of each request's time is on its root's critical path."""
        return numbers(self.spans["critical_ns"])

    @property
    def total_ns(self) -> int:
        """All request time of the trace."""
        return int(self.critical_ns.sum())

    @property
    def serving(self) -> frozenset[str]:
        """Hosts that serve, unless every host does: requests of the others are clients' own (as in
        `collector.services.client_requests`)."""
        hosts = self.groups.select(pl.col("client_host", "server_host").cast(pl.String))
        serving = frozenset(hosts["server_host"].drop_nulls())
        return frozenset() if frozenset(hosts["client_host"].drop_nulls()) <= serving else serving

    def where(self, fits: pl.Expr) -> NDArray[np.bool_]:
        """Whether each request belongs to a group that fits."""
        return self.groups.select(fits.fill_null(value=False)).to_series().to_numpy()[self.group]

    def early_waits(self) -> dict[str, tuple[Int64Array, Int64Array]]:
        """From when to when each request waited for its server before the server had all of it: for `greeting` of a
        server that speaks first, and for its word to send the rest (`continue`). `UNSEEN` where it did not."""
        moments = {
            "greeting": (Moment("connected_received", "connected"), Moment("greeting_sent", "greeting_received")),
            "continue": (SERVER_BEGIN, Moment("continue_sent", "continue_received")),
        }
        return {name: (due.times(self.exchanges), said.times(self.exchanges)) for name, (due, said) in moments.items()}

    def statuses(self) -> NDArray[np.uint16]:
        """The status of each answer; 0 if unknown."""
        return numbers(self.exchanges["status"])

    def given_up(self) -> tuple[Int64Array, Int64Array]:
        """The rows of requests that were given up, and when."""
        column = self.exchanges["given_up_trace_ns"]
        if column.null_count == len(column):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        at = coalesce(self.exchanges, ["given_up_trace_ns"], UNSEEN)
        rows = np.flatnonzero(at != UNSEEN)
        return rows, at[rows]

    def frame(self, chosen: NDArray[np.bool_] | Int64Array) -> pl.DataFrame:
        """Some requests as a frame, null if unknown; hosts, services, methods, devices are categories.

        Arguments: `chosen`, a mask over all requests, or their rows.
        """
        rows: Int64Array = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64, copy=False)
        spans = take_rows(self.spans.drop(["span_id"]), rows)
        some = pl.DataFrame(take_rows(self.exchanges, rows)).hstack(pl.DataFrame(spans))
        return some.select(
            *("exchange_id", "connection_id", "client_host", "server_host", "service", "method", "target"),
            *("status", "result"),
            *("parent_span_id", "critical_ns", "pause_ns"),
            device=pl.Series(self.devices, dtype=pl.Categorical).gather(_or_null(self.device[rows], NONE)),
            partition=_or_null(self.partition[rows], NONE),
            network_ns=pl.sum_horizontal(
                "connect_ns", "request_network_ns", "response_network_ns", "send_held_ns", "stall_ns"
            ),
            arrived="request_last_received_trace_ns",
            asked_for_body="continue_sent_trace_ns",
            given_up="given_up_trace_ns",
            heard="response_last_received_trace_ns",
            waited=pl.Series(self.waited[rows]),
            begin=_or_null(self.begin[rows], UNSEEN),
            asked=_or_null(self.asked[rows], UNSEEN),
            answered=_or_null(self.answered[rows], UNSEEN),
            ended=_or_null(self.ended[rows], UNSEEN),
            asking_ns=_or_null(self.asking_ns[rows], UNSEEN),
            own_ns=_or_null(self.own_ns[rows], UNSEEN),
        )


def _is_uncertain(spans: pa.Table) -> NDArray[np.bool_]:
    """Whether each span's link is inferred with a low confidence; links that were read from packets have none."""
    confidence = pl.Series(spans["confidence"])
    return (confidence < LOW_CONFIDENCE).fill_null(value=False).to_numpy()


def requests_of(exchanges: Iterable[pa.Table], spans: pa.Table) -> Requests:
    """All requests of a trace.

    Arguments: parts of `exchanges` with at least `EXCHANGE_COLUMNS`; `spans` with `SPAN_COLUMNS`. Memory: these
    columns, and about 100 bytes a row. Cost: passes of the core over the rows.
    """
    parts = [EXCHANGES.empty_table(), *exchanges]
    rows = pa.concat_tables([part.select(EXCHANGE_COLUMNS) for part in parts])
    ids = coalesce(rows, ["exchange_id"], NONE)
    spans = _in_order(spans.select(SPAN_COLUMNS), ids)
    parent, root = _core.places(
        ids, [coalesce(spans, [name], NONE) for name in ("parent_span_id", "trace_id")], ID_STRIDE_BITS
    )
    begin = coalesce(spans, ["start_trace_ns"], UNSEEN)
    asked = HEARD.times(rows)
    arrived, answered = first_times(rows, "request_last_received"), first_times(rows, "response_first_sent")
    ended = END.times(rows)
    times = _core.server_time(
        {
            "parent": parent,
            "began_ns": begin,
            "ended_ns": ended,
            "heard_ns": np.maximum(arrived, asked),
            "answered_ns": answered,
        }
    )
    names = {name: indices(rows[name]) for name in ALIKE[:-1]}
    names["operation"] = _operations(rows)
    names["device"] = _target_names(rows, *names["service"], "device")
    group, first = _core.row_groups([codes for codes, _ in names.values()])
    codes = {name: of_rows[first] for name, (of_rows, _) in names.items()}
    alike = {
        name: pl.Series(known, dtype=pl.Categorical).gather(_or_null(codes[name], NONE))
        for name, (_, known) in names.items()
    }
    waited = _is_waited_for(rows, spans, root, pl.DataFrame(alike))
    counts = {"count": group, "waited": group[waited]}
    protocol, protocols = indices(rows["protocol"])
    return Requests(
        exchanges=rows,
        spans=spans,
        group=group,
        groups=pl.DataFrame(alike | {name: np.bincount(of, minlength=len(first)) for name, of in counts.items()}),
        codes=codes,
        device=names["device"][0],
        devices=names["device"][1],
        partition=_target_names(rows, *names["service"], "partition")[0],
        parent=parent,
        sure_parent=np.where(_is_uncertain(spans), NONE, parent),
        readable=np.array([*(name != UNKNOWN for name in protocols), False])[protocol],
        waited=waited,
        begin=begin,
        asked=asked,
        arrived=arrived,
        answered=answered,
        ended=ended,
        **times,
    )


def _operations(rows: pa.Table) -> tuple[NDArray[np.int32], list[str]]:
    """What each request does, where its method alone does not say it: an index in the list of names, -1 for none."""
    codes, names = indices(rows["operation"])
    by_target = is_grpc() | pl.col("protocol").cast(pl.String).is_in(SQL)
    asked = pl.DataFrame(rows.select(["protocol", "result_code"])).select(by_target.fill_null(value=False))
    chosen = np.flatnonzero(asked.to_series().to_numpy())
    if not len(chosen):
        return codes, names
    targets, shapes = indices(take_rows(rows.select(["target"]), chosen)["target"])
    operations = codes.copy()
    operations[chosen] = np.where(targets == NONE, NONE, targets + len(names))
    return operations, [*names, *shapes]


def _in_order(spans: pa.Table, ids: Int64Array) -> pa.Table:
    """The spans of these exchanges, in their order (a trace's own tables already have it)."""
    own = coalesce(spans, ["span_id"], NONE)
    if np.array_equal(own, ids):
        return spans
    (places,) = _core.places(own, [ids], ID_STRIDE_BITS)
    return spans.take(pa.array(places, mask=places == NONE))


def _is_waited_for(rows: pa.Table, spans: pa.Table, root: Int64Array, groups: pl.DataFrame) -> NDArray[np.bool_]:
    """Whether each request is a client's, or made on behalf of one; false if its root is missing."""
    roots = np.flatnonzero(numbers(spans["depth"], missing=1) == 0)
    ends = pl.DataFrame(take_rows(rows.select(["client_host", "server_host", "background"]), roots))
    mine = np.zeros(len(root) + 1, dtype=np.bool_)
    mine[roots[of_clients(ends.with_row_index("row"), groups)["row"].to_numpy()]] = True
    mine[NONE] = False
    return mine[root]


def _target_names(
    rows: pa.Table, service: NDArray[np.int32], services: list[str], part: str
) -> tuple[NDArray[np.int32], list[str]]:
    """The device or partition that each target names, as an index in the list of names; -1 for none."""
    words = target_words(part)
    shapes = [(services.index(name), *words[name]) for name in services if name in words]
    targets = [texts(batch.column(0)) for batch in rows.select(["target"]).to_batches()]
    return _core.target_words([(each["offsets"], each["bytes"]) for each in targets], service, shapes)


def _or_null(values: NDArray[np.integer], missing: int) -> pl.Series:
    """The values, with null in place of `missing`."""
    series = pl.Series(values)
    return series.set(series == missing, None) if (values == missing).any() else series
