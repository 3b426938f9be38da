"""What a trace needs of the place that holds its tables: the protocol `TableStore`.

A trace is a set of tables (`collector.trace.schema`) and one document, `trace.json`. A store writes a new trace so that
no reader sees half of it, and reads a table by columns and by groups of rows, so that a reader need not hold a whole
table. `collector.trace.parquet_store` is the store for directories and object stores; another one is a class with these
methods and a line in `collector.trace.stores`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa
from msgspec import Struct

from collector.trace.objects import Objects

INDEX_FOLDER = ".index"
"""Folder within a trace's in which a viewer keeps an index to open it quickly; it can be deleted without loss."""
ROW_GROUP_ROWS = 1 << 18
"""Rows of a group: small enough to skip by statistics, large enough to compress well."""

EncodedRows: TypeAlias = object
"""Rows as one store encodes them; only that store looks inside."""


class TableMark(Struct, frozen=True):
    """The stored size of a table, and a text that changes when it is written anew."""

    size_bytes: int
    version: str


class StoredTable(Protocol):
    """A table that is open for reading, in groups of consecutive rows."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the stored columns, in their order."""

    @property
    def groups_rows(self) -> Sequence[int]:
        """How many rows each group has."""

    @property
    def empty_columns(self) -> frozenset[str]:
        """Names of stored columns that are known to hold nothing but nulls; a store that cannot know names none."""

    def read(self, columns: Sequence[str], groups: Sequence[int]) -> pa.Table:
        """Some stored columns of some groups. Cost: what these take, and nothing of other columns or groups."""

    def may_hold(self, group: int, equal: Mapping[str, str | int]) -> bool:
        """Whether a group may have a row with these values, by column; a store that cannot know returns True."""


class TableStore(Protocol):
    """The place of one trace. Its methods may be called from several threads, those that write for different tables."""

    @property
    def url(self) -> str:
        """As its user gave it, for messages."""

    @property
    def folder(self) -> Path | None:
        """The trace's folder on this machine's disk, where an index may lie; None if it has none."""

    @property
    def objects(self) -> Objects | None:
        """The objects of an object store that hold the trace; None if it is held by anything else."""

    def exists(self) -> bool:
        """Whether a whole trace is here."""

    def read_document(self) -> bytes:
        """The contents of `trace.json`.

        Raises: `InputError` if no trace is here, with what is here instead and a next step.
        """

    def open_table(self, name: str) -> AbstractContextManager[StoredTable]:
        """A table, to be read.

        Raises: `FileNotFoundError` if it is not here, `InputError` if it is damaged.
        """

    def table_mark(self, name: str) -> TableMark | None:
        """The size and version of a table; None if it is not here."""

    def replacement(self) -> AbstractContextManager["TableStore"]:
        """A store to write a new trace to. When the context ends without an error, that trace takes the place of the
        one here, if possible in one step; after an error nothing of it is left.

        Raises: `InputError` if something that is no trace is here, `ResourceError` if it cannot be written.
        """

    def encode(self, name: str, table: pa.Table) -> EncodedRows:
        """Rows of a table, ready to be appended. Safe to call from several threads at once."""

    def to_file(self, rows: EncodedRows, path: Path) -> EncodedRows:
        """The same rows, small enough to be sent to another process: their bytes are in a new file, which is removed
        once they are appended.

        Raises: OSError.
        """

    def append(self, name: str, rows: EncodedRows) -> None:
        """Append rows to a table; the first rows after `finish` begin it anew.

        Raises: `ResourceError` if they cannot be written.
        """

    def finish(self, name: str) -> None:
        """Complete a table that was appended to, so that it can be read. Raises: as `append`."""

    def write_document(self, document: bytes) -> None:
        """Write `trace.json`, which makes the trace whole. Raises: as `append`."""
