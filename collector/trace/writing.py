"""Writes a trace: rows of its tables as they come, and `trace.json` last. One writer at a time."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from msgspec import Struct, to_builtins

from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import TABLES, conform
from collector.trace.stores import store_at
from collector.trace.table_store import EncodedRows, TableStore


class RowEncoder(Struct, frozen=True):
    """Encodes rows for the trace at a URL, in any process.

    Arguments: `folder`, to which the encoded bytes go, so that other processes can append them; None to keep them here.
    """

    url: str
    folder: Path | None = None

    def encode(self, name: str, table: pa.Table) -> EncodedRows:
        """Rows of a table for `TraceWriter.append_encoded`. Safe to call from several threads at once.

        Arguments: `name` is a key of `collector.trace.schema.TABLES`; `table` holds at least its columns, in types that
        cast; others are written after them.
        Raises: OSError if there is no room in `folder`.
        """
        table = conform(name, table)
        whole = {column.name for column in TABLES[name] if not column.nullable}
        fields = [column.with_nullable(column.name not in whole) for column in table.schema]
        store = store_at(self.url)
        rows = store.encode(name, table.cast(pa.schema(fields)))
        if self.folder is None:
            return rows
        return store.to_file(rows, self.folder / f"{name}-{uuid.uuid4().hex}.rows")


class TraceWriter:
    """Writes the parts of one trace; created by `write_trace`."""

    def __init__(self, store: TableStore) -> None:
        self.info: TraceInfo | None = None
        self.written = Trace(store.url, store)
        """To read back the tables that are complete."""
        self._store = store
        self._open: set[str] = set()
        self._complete: set[str] = set()

    def append(self, name: str, table: pa.Table) -> None:
        """Append rows to a table; a table never written is empty.

        Raises: `ResourceError` if they cannot be written.
        """
        self.append_encoded(name, RowEncoder(self._store.url).encode(name, table))

    def append_encoded(self, name: str, rows: EncodedRows) -> None:
        """Append rows from a `RowEncoder`. Raises: as `append`."""
        self._open.add(name)
        self._store.append(name, rows)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write one whole table. Raises: as `append`."""
        self.append(name, table)
        self.finish(name)

    def finish(self, name: str) -> None:
        """Complete a table that was appended to, or write it empty, so that it can be read back from `written`.

        Raises: as `append`.
        """
        if name not in self._open:
            self.append(name, TABLES[name].empty_table())
        self._open.discard(name)
        self._store.finish(name)
        self._complete.add(name)

    def write_info(self, info: TraceInfo) -> None:
        """Set the contents of `trace.json`, which is written when the trace is complete."""
        self.info = info

    def complete(self) -> None:
        """Complete all tables, and write `trace.json`."""
        assert self.info is not None, "write_info was not called"
        for name in [*self._open, *TABLES]:
            if name not in self._complete:
                self.finish(name)
        self._store.write_document(json.dumps(to_builtins(self.info), indent=1).encode())


@contextmanager
def write_trace(url: str) -> Iterator[TraceWriter]:
    """Write a whole trace to `url`; on an error, keep what was there before (object stores: no trace).

    An existing trace is replaced; any other existing file is an error.
    Raises: `InputError` if `url` holds something that is no trace, `ResourceError` if it cannot be written.
    """
    with store_at(url).replacement() as store:
        writer = TraceWriter(store)
        yield writer
        writer.complete()
