"""A store of tables in this process's memory: the second `TableStore`, which keeps that seam honest.

A test registers it for a scheme (`collector.trace.stores.STORES`); then every URL of the scheme names a trace of Arrow
tables, which lives as long as `TRACES` holds it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from collector.trace.table_store import EncodedRows, TableMark
from tracer.errors import InputError


@dataclass(slots=True)
class MemoryTrace:
    """One trace: of each table the parts that were appended, and its document."""

    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    document: bytes | None = None


TRACES: dict[str, MemoryTrace] = {}
"""Whole traces by URL."""


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """A table, open for reading; its groups are the parts that were appended."""

    parts: Sequence[pa.Table]

    @property
    def columns(self) -> Sequence[str]:
        """As `StoredTable`."""
        return list(self.parts[0].column_names)

    @property
    def groups_rows(self) -> Sequence[int]:
        """As `StoredTable`."""
        return [part.num_rows for part in self.parts]

    @property
    def empty_columns(self) -> frozenset[str]:
        """As `StoredTable`: it does not look."""
        return frozenset()

    def read(self, columns: Sequence[str], groups: Sequence[int]) -> pa.Table:
        """As `StoredTable`."""
        chosen = [self.parts[group].select(columns) for group in groups]
        return pa.concat_tables(chosen or [self.parts[0].select(columns).slice(0, 0)])

    def may_hold(self, group: int, equal: Mapping[str, str | int]) -> bool:
        """As `StoredTable`: it has no statistics."""
        return True


class MemoryStore:
    """The place of one trace; a `TableStore`."""

    folder = None
    objects = None

    def __init__(self, url: str, written: MemoryTrace | None = None) -> None:
        self.url, self._written = url, written
        self._open: dict[str, list[pa.Table]] = {}

    @property
    def _trace(self) -> MemoryTrace:
        return self._written or TRACES.get(self.url) or MemoryTrace()

    def exists(self) -> bool:
        """As `TableStore`."""
        return self._trace.document is not None

    def read_document(self) -> bytes:
        """As `TableStore`."""
        if self._trace.document is None:
            raise InputError(f"{self.url}: no such trace", "make one with: tracer replay -o TRACE CAPTURE…")
        return self._trace.document

    @contextmanager
    def open_table(self, name: str) -> Iterator[MemoryTable]:
        """As `TableStore`."""
        parts = self._trace.tables.get(name)
        if parts is None:
            raise FileNotFoundError(f"{self.url}: {name}")
        yield MemoryTable(parts)

    def table_mark(self, name: str) -> TableMark | None:
        """As `TableStore`."""
        parts = self._trace.tables.get(name)
        return None if parts is None else TableMark(sum(part.nbytes for part in parts), str(id(parts)))

    @contextmanager
    def replacement(self) -> Iterator["MemoryStore"]:
        """As `TableStore`."""
        written = MemoryTrace()
        yield MemoryStore(self.url, written)
        TRACES[self.url] = written

    def encode(self, name: str, table: pa.Table) -> EncodedRows:
        """As `TableStore`."""
        return table

    def append(self, name: str, rows: EncodedRows) -> None:
        """As `TableStore`."""
        assert isinstance(rows, pa.Table)
        if name not in self._open:
            self._trace.tables[name] = self._open[name] = []
        self._open[name].append(rows)

    def finish(self, name: str) -> None:
        """As `TableStore`."""
        del self._open[name]

    def write_document(self, document: bytes) -> None:
        """As `TableStore`."""
        self._trace.document = document
