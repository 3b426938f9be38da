"""Reads a trace: its tables, by columns, by rows and a group of rows at a time, and its `trace.json`.

`Trace` is what every reader takes. Where the tables lie is the store's concern (`collector.trace.table_store`). A trace
may be replaced while it is read, as a live one is twice a second; who reads several tables that must belong together
does so within `Trace.read_unchanged`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector.trace.model import TraceInfo, parse_info
from collector.trace.objects import Objects
from collector.trace.schema import ADDED, ADDED_TABLES, FORMAT_VERSION, TABLES
from collector.trace.stores import store_at
from collector.trace.table_store import StoredTable, TableStore
from tracer.errors import InputError

READ_ATTEMPTS = 5
GROUPS_AT_ONCE = 4
"""So many row groups are searched at a time: of an object they are asked for together."""

Result = TypeVar("Result")


class Trace:
    """The trace at a URL, or in a directory. Nothing is read before a method is called, and nothing is kept.

    Its methods raise `InputError` if there is no trace, or if it lacks the table or a column.
    Arguments: `store`, which holds its tables, if not the one that `url` says.
    """

    def __init__(self, url: str, store: TableStore | None = None) -> None:
        self.url = url
        self._store = store or store_at(url)

    @property
    def name(self) -> str:
        """The last part of its URL."""
        return PurePosixPath(self.url.rstrip("/")).name or self.url

    @property
    def folder(self) -> Path | None:
        """Its folder on this machine's disk; None if it is elsewhere."""
        return self._store.folder

    @property
    def objects(self) -> Objects | None:
        """The objects that its tables are; None if they are files of this machine, or something else."""
        return self._store.objects

    def exists(self) -> bool:
        """Whether a whole trace is there."""
        return self._store.exists()

    def info(self) -> TraceInfo:
        """The contents of `trace.json`.

        Raises: `InputError` if there is no trace (with the contents found instead), or one of another format.
        """
        return _parse_document(self._store.read_document(), self.url)

    def read_unchanged(self, read: Callable[[TraceInfo], Result]) -> Result:
        """The result of `read`, which sees one consistent trace: a live trace may be replaced meanwhile.

        Raises: `InputError` if it was replaced during every attempt; what `read` raises.
        """
        for _ in range(READ_ATTEMPTS):
            info = self.info()
            try:
                found = read(info)
            except Exception:  # tables of two versions of the trace do not match, which may cause any error
                if self.info().created_ns == info.created_ns:
                    raise
            else:
                if self.info().created_ns == info.created_ns:
                    return found
        raise InputError(
            f"{self.url} is replaced faster than it can be read", "copy it, or look at it when traffic has ended"
        )

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One table, or some columns of it."""
        with self._open(name) as table:
            return table.read(table.columns if columns is None else columns)

    def empty_columns(self, name: str) -> frozenset[str]:
        """Names of columns of a table that are known to hold nothing but nulls. Cost: none of its rows is read."""
        with self._open(name) as table:
            return table.empty_columns

    def rows_count(self, name: str) -> int:
        """How many rows a table has."""
        with self._open(name) as table:
            return sum(table.groups_rows)

    def rows_matching(self, name: str, columns: Sequence[str], equal: Mapping[str, str | int]) -> pa.Table:
        """The rows of a table with these values, whose columns must be among `columns`.

        Cost: the row groups whose statistics do not exclude them; only one if the table is sorted by these columns.
        Memory: `GROUPS_AT_ONCE` of them, and the rows.
        """
        with self._open(name) as table:
            groups = [group for group in range(len(table.groups_rows)) if table.may_hold(group, equal)]
            some = [groups[at : at + GROUPS_AT_ONCE] for at in range(0, max(1, len(groups)), GROUPS_AT_ONCE)]
            return pa.concat_tables(_rows_equal(table.read(columns, each), equal) for each in some)

    def rows_between(self, name: str, columns: Sequence[str], first: int, count: int) -> pa.Table:
        """Rows [first, first + count) of a table, by their position in it. Cost: the row groups with these rows."""
        with self._open(name) as table:
            groups, skipped, before = [], 0, 0
            for group, rows in enumerate(table.groups_rows):
                if before + rows > first and before < first + count:
                    groups.append(group)
                elif before + rows <= first:
                    skipped = before + rows
                before += rows
            return table.read(columns, groups).slice(first - skipped, count)

    def chosen_rows(self, name: str, columns: Sequence[str], rows: NDArray[np.int64]) -> Iterator[pa.Table]:
        """Chosen rows (ascending positions) of a table, those of one row group at a time."""
        with self._open(name) as table:
            before = 0
            for group, count in enumerate(table.groups_rows):
                low, high = np.searchsorted(rows, (before, before + count))
                if high > low:
                    yield table.read(columns, [group]).take(pa.array(rows[low:high] - before))
                before += count

    def batches(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of a table, a row group at a time."""
        return (batch for _, batch in self.batches_with_share(name, columns))

    def batches_with_any(self, name: str, columns: Sequence[str], some: Iterable[str]) -> Iterator[pa.Table]:
        """As `batches`; none if all columns of `some` are known to hold nothing but nulls (`empty_columns`)."""
        return iter(()) if self.empty_columns(name).issuperset(some) else self.batches(name, columns)

    def batches_with_share(self, name: str, columns: Sequence[str]) -> Iterator[tuple[float, pa.Table]]:
        """As `batches`, each with the share of rows read by then."""
        with self._open(name) as table:
            done, rows_count = 0, max(1, sum(table.groups_rows))
            for group in range(len(table.groups_rows)):
                batch = table.read(columns, [group])
                done += batch.num_rows
                yield done / rows_count, batch

    def table_bytes(self, name: str) -> int:
        """The stored size of a table; 0 if it does not exist."""
        mark = self._store.table_mark(name)
        return mark.size_bytes if mark else 0

    def stored_bytes(self) -> int:
        """The stored size of all tables."""
        return sum(map(self.table_bytes, TABLES))

    def fingerprint(self, info: TraceInfo) -> str:
        """A text that changes whenever a table does: the trace's creation time, and each table's size and version."""
        marks = [self._store.table_mark(name) for name in TABLES]
        parts = [f"{mark.size_bytes}|{mark.version}" if mark else "" for mark in marks]
        return hashlib.sha256("|".join([str(info.created_ns), str(info.format_version), *parts]).encode()).hexdigest()

    @contextmanager
    def _open(self, name: str) -> Iterator["_Table"]:
        """A table, open; what is wrong with it is an operator's error."""
        assert name in TABLES, name
        if name in ADDED_TABLES and not self.table_bytes(name):
            self.info()
            yield _Table(self.url, name, _NoRows(name))
            return
        try:
            with self._store.open_table(name) as stored:
                yield _Table(self.url, name, stored)
        except (FileNotFoundError, NotADirectoryError):
            self.info()
            raise InputError(f"{self.url}: the trace lacks its table {name}", "make the trace again") from None


class _NoRows(Struct, frozen=True):
    """A table without a row: it stands for one that was added since the trace was made."""

    name: str
    groups_rows: Sequence[int] = ()
    empty_columns: frozenset[str] = frozenset()

    @property
    def columns(self) -> Sequence[str]:
        return TABLES[self.name].names

    def read(self, columns: Sequence[str], _groups: Sequence[int]) -> pa.Table:
        return TABLES[self.name].empty_table().select(list(columns))

    def may_hold(self, _group: int, _equal: Mapping[str, str | int]) -> bool:
        return False


class _Table:
    """A stored table. Columns that were added since it was written are filled with what they would hold (`ADDED`)."""

    def __init__(self, url: str, name: str, stored: StoredTable) -> None:
        self._url, self._name, self._stored = url, name, stored
        self._names = frozenset(stored.columns)
        self.groups_rows, self.may_hold = stored.groups_rows, stored.may_hold
        self.columns = list(dict.fromkeys([*TABLES[name].names, *stored.columns]))

    @property
    def empty_columns(self) -> frozenset[str]:
        """As `StoredTable`."""
        return self._stored.empty_columns

    def read(self, columns: Sequence[str], groups: Sequence[int] | None = None) -> pa.Table:
        """Columns, in this order, of some row groups, or of all.

        Raises: `InputError` for a column that is neither stored nor in `ADDED`.
        """
        added = ADDED.get(self._name, {})
        missing = [column for column in columns if column not in self._names and column not in added]
        if missing:
            raise InputError(
                f"{self._url}: its table {self._name} has no column {', '.join(missing)}, so another version wrote it",
                "make the trace again from its captures: tracer replay -o TRACE CAPTURE…",
            )
        every = range(len(self.groups_rows)) if groups is None else groups
        table = self._stored.read([each for each in columns if each in self._names], every)
        if len(table.column_names) < len(columns):
            rows_count = sum(self.groups_rows[group] for group in every)
            for column in columns:
                if column not in self._names:
                    table = table.append_column(column, pa.repeat(added[column], rows_count))
        return table.select(columns)


def _parse_document(document: bytes, url: str) -> TraceInfo:
    try:
        content = json.loads(document)
    except ValueError:
        raise InputError(f"{url}: its trace.json is damaged", "make the trace again") from None
    return _info_of(content, url)


def _info_of(document: Any, url: str) -> TraceInfo:
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise InputError(
            f"{url}: a trace of format {version}; this version reads format {FORMAT_VERSION}",
            "make the trace again, or install the version that wrote it",
        )
    try:
        return parse_info(document)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{url}: its trace.json is damaged ({error})", "make the trace again") from None


def _rows_equal(rows: pa.Table, equal: Mapping[str, str | int]) -> pa.Table:
    return rows.filter(reduce(pc.and_, [pc.equal(rows[column], value) for column, value in equal.items()]))
