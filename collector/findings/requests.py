"""Exchanges with what a diagnosis asks of them: whose child each is, how long its server itself took, on which device,
and whether a client waits for it.

A server's own time is from the last byte of the request to the first of the answer, without the time in which it waited
for servers that it asked itself. So a server that waits for a slow one is not taken for slow.

Requests that are alike in hosts, service, method and device are a group. What is asked of all requests is asked of
groups, and of columns of numbers, in passes; only those that have something to tell are made rows of a frame.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.requests.critical_path import NONE, Int64Array
from collector.requests.exchanges import UNKNOWN
from collector.requests.spans import LEDGER_COLUMNS
from collector.services.client_requests import of_clients
from collector.services.services import target_words
from collector.trace.arrow import coalesce, indices, numbers, take_rows, texts
from collector.trace.schema import EXCHANGES, ID_STRIDE_BITS
from collector.trace.time_columns import UNSEEN, seen
from tracer import _core

EXCHANGE_COLUMNS = [
    *("exchange_id", "connection_id", "client_host", "server_host", "service", "method", "target", "status"),
    *("protocol", "complete", "connect_start_trace_ns", "request_first_sent_trace_ns"),
    *("request_first_received_trace_ns", "request_last_received_trace_ns", "response_first_sent_trace_ns"),
    *("continue_sent_trace_ns", "background"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns"),
]
SPAN_COLUMNS = [
    "span_id",
    "trace_id",
    "parent_span_id",
    "depth",
    "start_trace_ns",
    "pause_ns",
    "critical_ns",
    *LEDGER_COLUMNS,
]
ALIKE = ["client_host", "server_host", "service", "method", "device"]
"""What requests of a group have in common."""


@dataclass(frozen=True, slots=True)
class Requests:
    """All exchanges of a trace and their spans; arrays have one value for each. Times are trace times in ns, `UNSEEN`
    where not known."""

    exchanges: pa.Table  # `EXCHANGE_COLUMNS`
    spans: pa.Table  # `SPAN_COLUMNS`, of the same rows
    group: NDArray[np.int32]
    groups: pl.DataFrame  # of each group: `ALIKE` (categories), `count`, and how many clients waited for (`waited`)
    codes: dict[str, NDArray[np.int32]]  # of each group: `ALIKE` as numbers, -1 where not known
    device: NDArray[np.int32]  # a place in `devices`, -1 for none
    devices: list[str]
    partition: NDArray[np.int32]  # a number for it, -1 for none
    parent: Int64Array  # a row, or `NONE`
    readable: NDArray[np.bool_]  # its heads were
    waited: NDArray[np.bool_]  # a client's, or done for one (`collector.services.client_requests`)
    begin: Int64Array
    asked: Int64Array  # its first byte arrived, or its last
    arrived: Int64Array  # its last byte did
    answered: Int64Array
    ended: Int64Array  # or was given up
    asking_ns: Int64Array  # for how long its server waited for at least one of those that it asked, before it answered
    own_ns: Int64Array  # what its server took without that

    @property
    def critical_ns(self) -> Int64Array:
        """What of it its root waited for."""
        return numbers(self.spans["critical_ns"])

    @property
    def total_ns(self) -> int:
        """All request time of the trace."""
        return int(self.critical_ns.sum())

    @property
    def heard(self) -> Int64Array:
        """When its server had it."""
        return np.maximum(self.arrived, self.asked)

    @property
    def serving(self) -> frozenset[str]:
        """Hosts that serve, unless every host does: what the others ask is their own (as
        `collector.services.client_requests`)."""
        hosts = self.groups.select(pl.col("client_host", "server_host").cast(pl.String))
        serving = frozenset(hosts["server_host"].drop_nulls())
        return frozenset() if frozenset(hosts["client_host"].drop_nulls()) <= serving else serving

    def where(self, fits: pl.Expr) -> NDArray[np.bool_]:
        """Requests of the groups that fit."""
        return self.groups.select(fits.fill_null(value=False)).to_series().to_numpy()[self.group]

    def statuses(self) -> NDArray[np.uint16]:
        """What each was answered; 0 where that is not known."""
        return numbers(self.exchanges["status"])

    def given_up(self) -> tuple[Int64Array, Int64Array]:
        """The rows of those that were given up, and when."""
        column = self.exchanges["given_up_trace_ns"]
        if column.null_count == len(column):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        at = coalesce(self.exchanges, ["given_up_trace_ns"], UNSEEN)
        rows = np.flatnonzero(at != UNSEEN)
        return rows, at[rows]

    def frame(self, chosen: NDArray[np.bool_] | Int64Array) -> pl.DataFrame:
        """Some requests as a frame, null where nothing is known; hosts, services, methods, devices are categories.

        Arguments: which of all, or their rows.
        """
        rows: Int64Array = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64, copy=False)
        spans = take_rows(self.spans.drop(["span_id"]), rows)
        some = pl.DataFrame(take_rows(self.exchanges, rows)).hstack(pl.DataFrame(spans))
        return some.select(
            *("exchange_id", "connection_id", "client_host", "server_host", "service", "method", "status", "target"),
            *("parent_span_id", "critical_ns", "pause_ns"),
            device=pl.Series(self.devices, dtype=pl.Categorical).gather(_known(self.device[rows], NONE)),
            partition=_known(self.partition[rows], NONE),
            network_ns=pl.sum_horizontal(
                "connect_ns", "request_network_ns", "response_network_ns", "send_held_ns", "stall_ns"
            ),
            arrived="request_last_received_trace_ns",
            invited="continue_sent_trace_ns",
            given_up="given_up_trace_ns",
            heard="response_last_received_trace_ns",
            waited=pl.Series(self.waited[rows]),
            begin=_known(self.begin[rows], UNSEEN),
            asked=_known(self.asked[rows], UNSEEN),
            answered=_known(self.answered[rows], UNSEEN),
            ended=_known(self.ended[rows], UNSEEN),
            asking_ns=_known(self.asking_ns[rows], UNSEEN),
            own_ns=_known(self.own_ns[rows], UNSEEN),
        )


def requests_of(exchanges: Iterable[pa.Table], spans: pa.Table) -> Requests:
    """All requests of a trace.

    Arguments: parts of `exchanges` with at least `EXCHANGE_COLUMNS`, of `spans` `SPAN_COLUMNS`. Memory: these columns,
    and about 100 bytes a row. Cost: passes of the core over the rows.
    """
    parts = [EXCHANGES.empty_table(), *exchanges]
    rows = pa.concat_tables([part.select(EXCHANGE_COLUMNS) for part in parts])
    ids = coalesce(rows, ["exchange_id"], NONE)
    spans = _in_order(spans.select(SPAN_COLUMNS), ids)
    parent, root = _core.places(
        ids, [coalesce(spans, [name], NONE) for name in ("parent_span_id", "trace_id")], ID_STRIDE_BITS
    )
    begin = coalesce(spans, ["start_trace_ns"], UNSEEN)
    asked = seen(rows, "request_first_received", "request_last_received")
    arrived, answered = seen(rows, "request_last_received"), seen(rows, "response_first_sent")
    ended = seen(rows, "response_last_received", "response_last_sent", "given_up")
    took = _core.took(
        {
            "parent": parent,
            "began_ns": begin,
            "ended_ns": ended,
            "heard_ns": np.maximum(arrived, asked),
            "answered_ns": answered,
        }
    )
    names = {name: indices(rows[name]) for name in ALIKE[:-1]}
    names["device"] = _named(rows, *names["service"], "device")
    group, first = _core.row_groups([codes for codes, _ in names.values()])
    codes = {name: of_rows[first] for name, (of_rows, _) in names.items()}
    alike = {
        name: pl.Series(known, dtype=pl.Categorical).gather(_known(codes[name], NONE))
        for name, (_, known) in names.items()
    }
    waited = _waited(rows, spans, root, alike["server_host"])
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
        partition=_named(rows, *names["service"], "partition")[0],
        parent=parent,
        readable=np.array([*(name != UNKNOWN for name in protocols), False])[protocol],
        waited=waited,
        begin=begin,
        asked=asked,
        arrived=arrived,
        answered=answered,
        ended=ended,
        **took,
    )


def _in_order(spans: pa.Table, ids: Int64Array) -> pa.Table:
    """The spans of these exchanges: in a trace's own tables they stand in the same order."""
    own = coalesce(spans, ["span_id"], NONE)
    if np.array_equal(own, ids):
        return spans
    (places,) = _core.places(own, [ids], ID_STRIDE_BITS)
    return spans.take(pa.array(places, mask=places == NONE))


def _waited(rows: pa.Table, spans: pa.Table, root: Int64Array, servers: pl.Series) -> NDArray[np.bool_]:
    """Whether each request is a client's, or done for one; not of a trace whose root is not there."""
    roots = np.flatnonzero(numbers(spans["depth"], missing=1) == 0)
    ends = pl.DataFrame(take_rows(rows.select(["client_host", "server_host", "background"]), roots))
    mine = np.zeros(len(root) + 1, dtype=np.bool_)
    mine[roots[of_clients(ends.with_row_index("row"), pl.DataFrame({"server_host": servers}))["row"].to_numpy()]] = True
    mine[NONE] = False
    return mine[root]


def _named(
    rows: pa.Table, service: NDArray[np.int32], services: list[str], part: str
) -> tuple[NDArray[np.int32], list[str]]:
    """What each target names as its device, its partition: a place in the list of names; -1 for nothing."""
    words = target_words(part)
    shapes = [(services.index(name), *words[name]) for name in services if name in words]
    targets = [texts(batch.column(0)) for batch in rows.select(["target"]).to_batches()]
    return _core.target_words([(each["offsets"], each["bytes"]) for each in targets], service, shapes)


def _known(values: NDArray[np.integer], missing: int) -> pl.Series:
    """Null where a value is missing."""
    series = pl.Series(values)
    return series.set(series == missing, None) if (values == missing).any() else series
