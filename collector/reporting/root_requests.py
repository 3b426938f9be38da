"""The root requests of a trace as columns of numbers, from which a report counts, ranks and compares them.

The tables are read once, a group of rows at a time. Texts are kept once for each combination of them that occurs: each
root has the number of its `kind`. Rows that are no roots (calls) are counted with their root, found by its id, so a
call may be in another group of rows than its root.

Memory: 32 bytes for each root request, 4 for each call; while they are read 24 more for each call.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct, field
from numpy.typing import NDArray

from collector import _core
from collector.reporting.request_rows import TIMES, RequestRows
from collector.requests.critical_path import NONE
from collector.requests.outcomes import is_abandoned
from collector.services.client_requests import of_clients
from collector.trace.schema import ID_STRIDE_BITS
from collector.trace.time_columns import UNSEEN, Int64Array

KIND_COLUMNS = (
    *("background", "client_host", "server_host", "client_service", "outcome", "protocol"),
    *("service", "method", "operation", "status", "result"),
)
ENDS = ("client_host", "server_host")
_IS_CUT = {"is_silent": pl.col("response_bytes").is_null(), "is_ended": pl.col("ending").is_not_null()}
_COLUMNS = (
    *("trace_id", "depth", "critical_ns", "start_trace_ns", "complete", "response_bytes", "ending"),
    *KIND_COLUMNS,
)
READ_AT_ONCE = 100_000
"""Rows without a start whose other times are read at once."""

Mask = NDArray[np.bool_]


class RootRequests(Struct, frozen=True):
    """The root requests of a trace, in the order of their rows: each array has an entry for each."""

    ids: Int64Array  # `trace_id`
    duration_ns: Int64Array  # the sum of the ledgers of its spans
    began_ns: Int64Array  # `start_trace_ns`, else its earliest time; `UNSEEN` without any
    spans_count: NDArray[np.uint32]  # itself and the calls below it
    kind: NDArray[np.int32]  # its row of `kinds`
    kinds: pl.DataFrame  # `KIND_COLUMNS` and `is_silent`, `is_ended`: without a byte of an answer; ended by an end
    ends: pl.DataFrame  # `client_host, server_host` of all rows, each pair once
    roots_of_calls: NDArray[np.int32]  # the place of the root of each row that is none, in their order; NONE
    incomplete_count: int  # of all rows
    critical_ns: int  # of all rows
    _of_clients: dict[bytes, pl.Series] = field(default_factory=dict)  # the clients' among some kinds, once found

    @property
    def exchanges_count(self) -> int:
        """How many rows there are."""
        return len(self.ids) + len(self.roots_of_calls)

    def of_clients(self, some: Mask) -> Mask:
        """Those of `some` roots that clients sent (`collector.services.client_requests`)."""
        asked = self._counts(some) > 0
        key = asked.tobytes()
        if key not in self._of_clients:
            kinds = self.kinds.with_row_index("kind").filter(pl.Series(asked))
            self._of_clients[key] = of_clients(kinds, self.ends)["kind"]
        return some & self._has_kind(self._of_clients[key])

    def of_kinds(self, which: pl.Expr) -> Mask:
        """Those of the kinds for which an expression over `kinds` is true."""
        return self._has_kind(self.kinds.with_row_index("kind").filter(which)["kind"])

    def outermost(self) -> Mask:
        """Those of known length that clients sent and did not abandon (`collector.requests.outcomes`)."""
        return self.of_clients(self.duration_ns > 0) & ~self.of_kinds(is_abandoned())

    def abandoned_roots(self) -> Mask:
        """Those of known length that clients sent and abandoned."""
        return self.of_clients(self.duration_ns > 0) & self.of_kinds(is_abandoned())

    def kinds_of(self, some: Mask) -> pl.DataFrame:
        """The `kinds` of some roots, with the `count` of those of each, and the `spans_count` of these."""
        spans_counts = np.bincount(self.kind[some], self.spans_count[some], len(self.kinds)).astype(np.int64)
        kinds = self.kinds.with_columns(count=pl.Series(self._counts(some)), spans_count=pl.Series(spans_counts))
        return kinds.filter(pl.col("count") > 0)

    def longest(self, some: Mask, most: int) -> Int64Array:
        """The ids of those of `some` that took longest, longest first; the lower id of equally long ones."""
        places = np.flatnonzero(some)
        if len(places) > most:
            longest_ns = pl.Series(self.duration_ns[places]).top_k(most)  # numpy's partition is slow on equal values
            places = places[self.duration_ns[places] >= longest_ns.to_numpy().min()]
        return self.ids[places[np.lexsort((self.ids[places], -self.duration_ns[places]))][:most]]

    def batches(self, rows: RequestRows, *names: str) -> Iterator[tuple[pl.DataFrame, NDArray[np.int32]]]:
        """Some columns of all rows, and `depth`, a group of rows at a time, with the place of each row's root; NONE
        where it has none. Arguments: the `rows` of these roots."""
        root, call = 0, 0
        for part in rows.batches("depth", *names):
            is_root = (part["depth"] == 0).to_numpy()
            roots_count = int(is_root.sum())
            calls_count = len(part) - roots_count
            of = np.empty(len(part), np.int32)
            of[is_root] = np.arange(root, root + roots_count)
            of[~is_root] = self.roots_of_calls[call : call + calls_count]
            root, call = root + roots_count, call + calls_count
            yield part, of

    def places_of(self, trace_ids: Int64Array) -> NDArray[np.int32]:
        """The place of the root of each of these traces; NONE if it has none."""
        return _places(self.ids, trace_ids)

    def _counts(self, some: Mask) -> Int64Array:
        return np.bincount(self.kind[some], minlength=len(self.kinds))

    def _has_kind(self, kinds: pl.Series) -> Mask:
        has = np.zeros(len(self.kinds), np.bool_)
        has[kinds.to_numpy()] = True
        return has[self.kind]


def of_roots(values: NDArray[np.generic], roots: NDArray[np.int32], missing: object) -> NDArray[np.generic]:
    """The value of each row's root, from those of the roots; `missing` for rows without one."""
    return np.append(values, np.array([missing], values.dtype))[roots]


def read_roots(rows: RequestRows) -> RootRequests:
    """The root requests of these rows."""
    reading = _Reading()
    for part in rows.batches(*_COLUMNS):
        reading.add(part)
    return reading.roots(rows)


class _Reading:
    """Root requests of the groups of rows that were read so far."""

    def __init__(self) -> None:
        self._roots: dict[str, list[NDArray[Any]]] = {name: [] for name in ("ids", "duration_ns", "began_ns", "kind")}
        self._calls: dict[str, list[NDArray[Any]]] = {name: [] for name in ("ids", "duration_ns")}
        self._untimed: list[Int64Array] = []
        self._kinds: list[pl.DataFrame] = []
        self._ends: list[pl.DataFrame] = []
        self._kinds_count = self._rows_count = self._incomplete_count = self._critical_ns = 0

    def add(self, part: pl.DataFrame) -> None:
        """Take further rows."""
        is_root = part["depth"] == 0
        roots, calls = part.filter(is_root), part.filter(~is_root)
        kind, kinds = _kinds_of(roots)
        for found, frame in ((self._roots, roots), (self._calls, calls)):
            found["ids"].append(frame["trace_id"].to_numpy())
            found["duration_ns"].append(frame["critical_ns"].fill_null(0).to_numpy())
        self._roots["began_ns"].append(roots["start_trace_ns"].fill_null(UNSEEN).to_numpy())
        self._roots["kind"].append(kind + np.int32(self._kinds_count))
        self._untimed.append(self._rows_count + np.flatnonzero(is_root & part["start_trace_ns"].is_null()))
        self._kinds.append(kinds)
        self._ends.append(part.select(ENDS).unique())
        self._kinds_count += len(kinds)
        self._rows_count += len(part)
        self._incomplete_count += int((~part["complete"]).sum())
        self._critical_ns += int(part["critical_ns"].sum())

    def roots(self, rows: RequestRows) -> RootRequests:
        """All that was read; other times are read from `rows` only for roots without a start."""
        ids = _whole(self._roots.pop("ids"), np.int64)
        roots_of_calls = _places(ids, _whole(self._calls.pop("ids"), np.int64))
        duration_ns = _whole(self._roots.pop("duration_ns"), np.int64)
        known = roots_of_calls != NONE
        np.add.at(duration_ns, roots_of_calls[known], _whole(self._calls.pop("duration_ns"), np.int64)[known])
        spans_count = np.bincount(roots_of_calls[known], minlength=len(ids)).astype(np.uint32) + np.uint32(1)
        kind, kinds = _distinct(_whole(self._roots.pop("kind"), np.int32), self._kinds)
        return RootRequests(
            ids=ids,
            duration_ns=duration_ns,
            began_ns=_with_earliest(_whole(self._roots.pop("began_ns"), np.int64), rows, self._untimed),
            spans_count=spans_count,
            kind=kind,
            kinds=kinds,
            ends=pl.concat(self._ends).unique(),
            roots_of_calls=roots_of_calls,
            incomplete_count=self._incomplete_count,
            critical_ns=self._critical_ns,
        )


def _places(ids: Int64Array, wanted: Int64Array) -> NDArray[np.int32]:
    return _core.places(ids, [wanted], ID_STRIDE_BITS)[0].astype(np.int32)


def _whole(parts: list[NDArray[Any]], of: type[np.generic]) -> NDArray[Any]:
    """The parts as one array; they are taken out of their list."""
    found = np.concatenate([np.zeros(0, of), *parts])
    parts.clear()
    return found


def _kinds_of(roots: pl.DataFrame) -> tuple[NDArray[np.int32], pl.DataFrame]:
    """The kind of each root, and the kinds of these roots."""
    texts = roots.select(*KIND_COLUMNS, **_IS_CUT)
    kind, first = np.zeros(len(texts), np.int32), np.zeros(min(1, len(texts)), np.int64)
    for column in texts.select(pl.all().to_physical().cast(pl.Int32).fill_null(-1)):
        codes = column.to_numpy()
        if (codes != codes[:1]).any():  # most columns have one value in all rows
            kind, first = _core.row_groups([kind, np.ascontiguousarray(codes)])
    return kind, texts[first]


def _distinct(kind: NDArray[np.int32], kinds: list[pl.DataFrame]) -> tuple[NDArray[np.int32], pl.DataFrame]:
    """The kind of each root among the distinct kinds, and these. Arguments: kinds of several groups of rows."""
    every = pl.concat(kinds)
    distinct = every.unique(maintain_order=True)
    numbered = distinct.with_row_index("number")
    number = every.join(numbered, on=every.columns, how="left", nulls_equal=True, maintain_order="left")["number"]
    return number.cast(pl.Int32).to_numpy()[kind], distinct


def _with_earliest(began_ns: Int64Array, rows: RequestRows, untimed: list[Int64Array]) -> Int64Array:
    """`began_ns` with the earliest of all times of roots without a start. Arguments: the rows of these roots."""
    places = np.concatenate([np.zeros(0, np.int64), *untimed])
    if len(places):
        times = (part.select(pl.min_horizontal(TIMES)) for part in rows.in_order(places, READ_AT_ONCE, TIMES))
        began_ns[began_ns == UNSEEN] = pl.concat(times).to_series().fill_null(UNSEEN).to_numpy()
    return began_ns
