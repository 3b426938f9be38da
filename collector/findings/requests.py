"""Exchanges with the columns that a diagnosis needs: parent, the server's own time, device, and whether a client waits.

A server's own time is from the last byte of the request to the first byte of the answer, without the time in which it
waited for other servers. So a server that only waits for a slow one does not count as slow.

Requests with the same hosts, service, method, operation and device form a group; an operation is S3's, a method of gRPC
or the shape of a statement of SQL. Most computations run over groups and numeric columns; only requests of interest are
converted to rows of a frame.

Columns of many exchanges lie in files that are mapped (`collector.execution.long_columns`). So what looks at all of
them does so a slice at a time, or with a number of few bits for each.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.execution.long_columns import LongColumns, LongTable
from collector.requests.critical_path import NONE, Int64Array
from collector.requests.exchanges import UNKNOWN
from collector.requests.link_doubt import LOW_CONFIDENCE
from collector.requests.request_words import is_grpc
from collector.services.client_requests import of_clients
from collector.services.services import target_words
from collector.trace.arrow import coalesce, indices, numbers, take_rows, texts
from collector.trace.request_times import END, HEARD, SERVER_BEGIN, Moment
from collector.trace.schema import EXCHANGES, ID_STRIDE_BITS, SPANS
from collector.trace.table_store import ROW_GROUP_ROWS
from collector.trace.time_columns import UNSEEN, first_times

LOOKED_UP = [
    *("connection_id", "target", "status", "result", "status_class", "background", "client_service"),
    *("connected_trace_ns", "connected_received_trace_ns", "greeting_sent_trace_ns", "greeting_received_trace_ns"),
    *("request_first_sent_trace_ns", "request_first_received_trace_ns"),
    *("continue_sent_trace_ns", "continue_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns"),
]
"""Columns of `exchanges` that are kept as they are."""
EXCHANGE_COLUMNS = [
    *LOOKED_UP,
    *("exchange_id", "client_host", "server_host", "service", "method", "result_code", "operation", "protocol"),
    *("request_last_received_trace_ns", "response_first_sent_trace_ns"),
]
NETWORK_COLUMNS = ("connect_ns", "request_network_ns", "response_network_ns", "send_held_ns", "stall_ns")
SPAN_COLUMNS = [
    *("span_id", "trace_id", "parent_span_id", "depth", "start_trace_ns", "confidence", "pause_ns", "critical_ns"),
    *NETWORK_COLUMNS,
]
SQL = ("postgresql", "mysql")
ALIKE = ["client_host", "server_host", "service", "method", "operation", "device"]
"""The columns that are equal for all requests of a group."""


OF_TARGETS = ("device", "partition")
"""What targets name."""
OF_EXCHANGES = (
    "exchange_id", "group", "kind", "partition", "readable", "asked", "arrived", "heard", "answered", "ended",
)  # fmt: skip
"""Columns made of exchanges."""
OF_SPANS = {
    **dict.fromkeys(("trace_id", "parent_span_id"), NONE),
    **dict.fromkeys(("begin", "pause_ns"), UNSEEN),
    **dict.fromkeys(("is_uncertain", "is_root"), False),
    **dict.fromkeys(("critical_ns", "network_ns"), 0),
}
"""Columns made of spans, and what an exchange without a span has there."""
AS_STORED = {
    **{name: name for name in LOOKED_UP},
    "asked_for_body": "continue_sent_trace_ns",
    "given_up": "given_up_trace_ns",
    "heard": "response_last_received_trace_ns",
}
"""Columns of a frame that are columns of `LOOKED_UP`."""
OF_GROUP = ("client_host", "server_host", "service", "method", "device")
UNKNOWN_VALUES = {
    **dict.fromkeys(("exchange_id", "parent_span_id", "partition"), NONE),
    **dict.fromkeys(("arrived", "begin", "asked", "answered", "ended", "asking_ns", "own_ns", "pause_ns"), UNSEEN),
}
"""Columns of a frame that are those of `Requests`, with what stands for null there."""


class Requests(Struct, frozen=True):
    """All exchanges of a trace and their spans; arrays have one value for each. Times are trace times in ns, `UNSEEN`
    if unknown."""

    exchanges: pa.Table  # `LOOKED_UP`
    exchange_id: Int64Array
    group: NDArray[np.int32]
    groups: pl.DataFrame  # for each: `ALIKE` (categories), `count`, how many clients waited for, how many were answered
    codes: Mapping[str, NDArray[np.int32]]  # for each group: `ALIKE` as numbers, -1 if unknown
    partition: NDArray[np.int32]  # a number for it, -1 for none
    parent: Int64Array  # a row, or `NONE`
    parent_span_id: Int64Array  # `NONE` for a root
    is_sure: NDArray[np.bool_]  # the parent is known, and not by an uncertain link: what is said of one request's calls
    readable: NDArray[np.bool_]  # whether its heads could be read
    is_root: NDArray[np.bool_]
    waited: NDArray[np.bool_]  # a client's, or made on behalf of one (`collector.services.client_requests`)
    begin: Int64Array
    asked: Int64Array  # when its first byte arrived, or its last
    arrived: Int64Array  # when its last byte arrived
    answered: Int64Array
    ended: Int64Array  # when it ended or was given up
    asking_ns: Int64Array  # how long its server waited, before it answered, for at least one server that it called
    own_ns: Int64Array  # its server's own time, without that
    pause_ns: Int64Array  # `UNSEEN` without a span
    critical_ns: Int64Array  # how much of its time is on its root's critical path
    network_ns: Int64Array  # how much of that it spent in the network
    total_ns: int  # all request time of the trace

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

    def slices(self) -> Iterator[tuple[slice, pa.Table]]:
        """All requests some at a time: their rows, and `exchanges` of these."""
        begin = 0
        for batch in self.exchanges.to_batches():
            yield slice(begin, begin + len(batch)), pa.Table.from_batches([batch])
            begin += len(batch)

    def early_waits(self) -> Mapping[str, tuple[Int64Array, Int64Array, Int64Array]]:
        """The rows of requests that waited for their server before the server had all of them, and from when to when:
        for the `greeting` of a server that speaks first, and for its word to send the rest (`continue`)."""
        moments = {
            "greeting": (Moment("connected_received", "connected"), Moment("greeting_sent", "greeting_received")),
            "continue": (SERVER_BEGIN, Moment("continue_sent", "continue_received")),
        }
        found = {}
        for name, (due, said) in moments.items():
            rows, until = self._known_times(said)
            since = self._times(due, rows)
            known = since != UNSEEN
            found[name] = rows[known], since[known], until[known]
        return found

    def statuses(self) -> NDArray[np.uint16]:
        """The status of each answer; 0 if unknown."""
        return numbers(self.exchanges["status"])

    def given_up(self) -> tuple[Int64Array, Int64Array]:
        """The rows of requests that were given up, and when."""
        return self._known_times(Moment("given_up"))

    def _known_times(self, moment: Moment) -> tuple[Int64Array, Int64Array]:
        """The rows of requests of which a moment is known, and when that was."""
        rows, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for which, part in self.slices():
            at = moment.times(part)
            known = np.flatnonzero(at != UNSEEN)
            rows.append(known + which.start)
            times.append(at[known])
        return np.concatenate(rows), np.concatenate(times)

    def _times(self, moment: Moment, rows: Int64Array) -> Int64Array:
        """A moment of some requests, in ascending order."""
        return moment.times(take_rows(self.exchanges.select(list(moment.columns)), rows))

    def frame(self, chosen: NDArray[np.bool_] | Int64Array, *names: str) -> pl.DataFrame:
        """Some requests as a frame, null if unknown; hosts, services, methods, devices are categories.

        Arguments: `chosen`, a mask over all requests, or their rows in ascending order; `names`, its columns: of
        `AS_STORED`, of `OF_GROUP`, or arrays of this class.
        """
        rows: Int64Array = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64, copy=False)
        stored = [AS_STORED[name] for name in names if name in AS_STORED]
        some = pl.DataFrame(take_rows(self.exchanges.select(stored), rows)) if stored else pl.DataFrame()
        return pl.DataFrame(
            [(some[AS_STORED[name]] if name in AS_STORED else self._series(name, rows)).alias(name) for name in names]
        )

    def _series(self, name: str, rows: Int64Array) -> pl.Series:
        """A column of a frame that is none of `AS_STORED`."""
        if name in OF_GROUP:
            return self.groups[name].gather(self.group[rows])
        values = getattr(self, name)[rows]
        if name == "critical_ns":
            return _or_null(np.where(self.pause_ns[rows] == UNSEEN, UNSEEN, values), UNSEEN)
        return _or_null(values, UNKNOWN_VALUES[name]) if name in UNKNOWN_VALUES else pl.Series(values)


def requests_of(exchanges: Iterable[pa.Table], spans: Iterable[pa.Table], spill: Path | None = None) -> Requests:
    """All requests of a trace.

    Arguments: parts of `exchanges` with at least `EXCHANGE_COLUMNS`, and of `spans` with `SPAN_COLUMNS`, of which the
    first is asked for when all exchanges were read; where files go that hold what does not fit in memory.
    Memory: about 250 bytes a row, of long tables in files; of these 40 bytes a row beside while this runs, and none
    later. Cost: passes of the core over the rows.
    Raises: `ResourceError` if there is no room.
    """
    with LongColumns(spill) as kept:
        found = _Exchanges(kept)
        for part in chain([EXCHANGES.empty_table()], exchanges):
            found.add(part)
        for part in chain([SPANS.empty_table()], spans):
            _add_spans(kept, part)
        rows = {name: kept.whole(name) for name in OF_EXCHANGES}
        rows |= _spans_in_order(kept, rows["exchange_id"])
        rows["parent"], root = _core.places(
            rows["exchange_id"], [rows["parent_span_id"], rows.pop("trace_id")], ID_STRIDE_BITS
        )
        rows["parent"] = kept.keep(rows["parent"])
        groups = found.groups()
        rows["waited"] = kept.keep(_is_waited_for(root, rows["is_root"], rows.pop("kind"), groups))
        del root
        rows["is_sure"] = kept.keep((rows["parent"] != NONE) & ~rows.pop("is_uncertain"))
        rows |= _server_times(kept, rows)
        return Requests(
            exchanges=found.table(),
            groups=groups.with_columns(**_counts(rows, len(groups))),
            codes=found.codes(),
            total_ns=int(rows["critical_ns"].sum()),
            **rows,
        )


class _Numbering:
    """Numbers from 0 for what is shown to it, in the order in which it is first shown."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def of(self, shown: Iterable[Any]) -> NDArray[np.int32]:
        """The number of each, and `NONE` at the end, where an index of -1 finds it."""
        return np.array([*(self.known.setdefault(each, len(self.known)) for each in shown), NONE], np.int32)


class _Exchanges:
    """Parts of `exchanges`, whose texts and groups are numbered alike in all of them."""

    def __init__(self, kept: LongColumns) -> None:
        self._kept, self._looked_up = kept, LongTable(kept)
        self._names = {name: _Numbering() for name in (*ALIKE, *OF_TARGETS)}
        self._groups = _Numbering()

    def add(self, part: pa.Table) -> None:
        """Add rows. Raises: `ResourceError` if there is no room for them."""
        found = {name: indices(part[name]) for name in ALIKE[:4]}
        found["operation"] = _operations(part)
        found |= {name: _target_names(part, *found["service"], name) for name in OF_TARGETS}
        codes = {name: self._names[name].of(names)[of_rows] for name, (of_rows, names) in found.items()}
        own, first = _core.row_groups([codes[name] for name in ALIKE])
        group = self._groups.of(zip(*(codes[name][first].tolist() for name in ALIKE), strict=True))[own]
        protocol, protocols = indices(part["protocol"])
        asked, arrived = HEARD.times(part), first_times(part, "request_last_received")
        self._kept.add(
            exchange_id=coalesce(part, ["exchange_id"], NONE),
            group=group,
            kind=2 * group + numbers(pc.fill_null(part["background"], fill_value=False)),
            partition=codes["partition"],
            readable=np.array([*(name != UNKNOWN for name in protocols), False])[protocol],
            asked=asked,
            arrived=arrived,
            heard=np.maximum(arrived, asked),
            answered=first_times(part, "response_first_sent"),
            ended=END.times(part),
        )
        self._looked_up.add(part.select(LOOKED_UP))

    def table(self) -> pa.Table:
        """`LOOKED_UP` of all rows."""
        return self._looked_up.whole()

    def codes(self) -> Mapping[str, NDArray[np.int32]]:
        """As `Requests.codes`."""
        codes = np.array([*self._groups.known], np.int32).reshape(-1, len(ALIKE))
        return {name: np.ascontiguousarray(codes[:, place]) for place, name in enumerate(ALIKE)}

    def groups(self) -> pl.DataFrame:
        """`ALIKE` of each group."""
        names = {name: pl.Series([*self._names[name].known], dtype=pl.Categorical) for name in ALIKE}
        return pl.DataFrame({name: names[name].gather(_or_null(of, NONE)) for name, of in self.codes().items()})


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


def _target_names(
    rows: pa.Table, service: NDArray[np.int32], services: list[str], part: str
) -> tuple[NDArray[np.int32], list[str]]:
    """The device or partition that each target names, as an index in the list of names; -1 for none."""
    words = target_words(part)
    shapes = [(services.index(name), *words[name]) for name in services if name in words]
    targets = [texts(batch.column(0)) for batch in rows.select(["target"]).to_batches()]
    return _core.target_words([(each["offsets"], each["bytes"]) for each in targets], service, shapes)


def _add_spans(kept: LongColumns, part: pa.Table) -> None:
    """Add what is needed of spans: `OF_SPANS`, and `span_id`."""
    confidence = pl.Series(part["confidence"])  # links that were read from packets have none
    kept.add(
        span_id=coalesce(part, ["span_id"], NONE),
        trace_id=coalesce(part, ["trace_id"], NONE),
        parent_span_id=coalesce(part, ["parent_span_id"], NONE),
        begin=coalesce(part, ["start_trace_ns"], UNSEEN),
        is_uncertain=(confidence < LOW_CONFIDENCE).fill_null(value=False).to_numpy(),
        is_root=numbers(part["depth"], missing=1) == 0,
        pause_ns=coalesce(part, ["pause_ns"], UNSEEN),
        critical_ns=coalesce(part, ["critical_ns"], 0),
        network_ns=reduce(np.add, (coalesce(part, [name], 0) for name in NETWORK_COLUMNS)),
    )


def _spans_in_order(kept: LongColumns, ids: Int64Array) -> dict[str, NDArray[Any]]:
    """`OF_SPANS` of the spans of these exchanges, in their order (a trace's own tables already have it)."""
    own, spans = kept.whole("span_id"), {name: kept.whole(name) for name in OF_SPANS}
    if np.array_equal(own, ids):
        return spans
    (places,) = _core.places(own, [ids], ID_STRIDE_BITS)
    return {
        name: kept.keep(np.append(values, values.dtype.type(OF_SPANS[name]))[places]) for name, values in spans.items()
    }


def _is_waited_for(
    root: Int64Array, is_root: NDArray[np.bool_], kind: NDArray[np.int32], groups: pl.DataFrame
) -> NDArray[np.bool_]:
    """Whether each request is a client's, or made on behalf of one; false if its root is missing.

    Arguments: the row of each one's root; whether it is one; twice its group, and one more for background work; the
    groups.
    """
    shown = np.zeros(2 * len(groups), dtype=np.bool_)
    shown[kind[is_root]] = True
    kinds = np.flatnonzero(shown)
    ends = groups.select("client_host", "server_host")[kinds // 2].with_columns(background=pl.Series(kinds % 2 == 1))
    shown[kinds] = False
    shown[kinds[of_clients(ends.with_row_index("row"), groups)["row"].to_numpy()]] = True
    return np.append(shown[kind] & is_root, False)[root]


def _server_times(kept: LongColumns, rows: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """`asking_ns` and `own_ns` of all requests, from the columns of the same names as those of `Requests`; `heard`,
    when a request was at its server, is none of them any more."""
    times = {"parent": "parent", "began_ns": "begin", "ended_ns": "ended", "answered_ns": "answered"}
    found = _core.server_time({name: rows[of] for name, of in times.items()} | {"heard_ns": rows.pop("heard")})
    return {"asking_ns": kept.keep(found["asking_ns"]), "own_ns": kept.keep(found["own_ns"])}


def _counts(rows: Mapping[str, NDArray[Any]], groups_count: int) -> dict[str, NDArray[np.int64]]:
    """How many requests each group has, how many of them clients waited for, and how many were answered."""
    counts = {name: np.zeros(groups_count, np.int64) for name in ("count", "waited", "answered")}
    for begin in range(0, len(rows["group"]), ROW_GROUP_ROWS):
        which = slice(begin, begin + ROW_GROUP_ROWS)
        group, waited, answered = (rows[name][which] for name in ("group", "waited", "answered"))
        for name, of in {"count": group, "waited": group[waited], "answered": group[answered != UNSEEN]}.items():
            counts[name] += np.bincount(of, minlength=groups_count)
    return counts


def _or_null(values: NDArray[np.integer], missing: int) -> pl.Series:
    """The values, with null in place of `missing`."""
    series = pl.Series(values)
    return series.set(series == missing, None) if (values == missing).any() else series
