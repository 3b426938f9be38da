"""The store of tables as Parquet files in a directory, or at any fsspec URL: `memory://`, `s3://`, ….

Writing a trace is atomic. On a local disk it is written under a temporary name beside its place and renamed; on an
object store, which has no rename, `trace.json` is written last, and a directory without it is no trace.

Tables are encoded by the core (`collector.trace.parquet`). Only columns by which rows are looked up have statistics; a
column that is never null is stored as required, which saves its definition levels.
"""

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from collector.trace import parquet as encoded
from collector.trace.arrow import sharing_nulls
from collector.trace.schema import TABLES
from collector.trace.table_store import INDEX_FOLDER, ROW_GROUP_ROWS, EncodedRows, TableMark
from tracer import scratch
from tracer.errors import InputError, MissingDependencyError, ResourceError

INFO_FILE = "trace.json"
LOOKED_UP_BY = ("host", "frame", "connection_id")
"""Columns with statistics, by which a reader skips row groups."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""From Linux's <fcntl.h> and <linux/fs.h>."""


class ParquetStore:
    """A directory of Parquet files and `trace.json`; a `TableStore`.

    Arguments: `place`, where it is, if not at the `url` that messages name.
    """

    def __init__(self, url: str, place: str | None = None) -> None:
        self.url = url
        self._fs, self._root = _filesystem(url)
        self._root = self._root if place is None else place
        self._is_local = isinstance(self._fs, LocalFileSystem)
        self.folder = Path(self._root) if self._is_local else None
        self._open: dict[str, tuple[IO[bytes], encoded.Writer]] = {}

    def exists(self) -> bool:
        """As `TableStore`."""
        return bool(self._fs.exists(f"{self._root}/{INFO_FILE}"))

    def read_document(self) -> bytes:
        """As `TableStore`."""
        try:
            return bytes(self._fs.cat_file(f"{self._root}/{INFO_FILE}"))
        except (FileNotFoundError, NotADirectoryError):
            raise _no_trace(self._fs, self._root, self.url) from None
        except PermissionError:
            raise InputError(f"{self.url}: no permission to read it", "run as its owner") from None

    @contextmanager
    def open_table(self, name: str) -> Iterator["_ParquetTable"]:
        """As `TableStore`."""
        try:
            with _source(self._fs, self._path(name)) as file:
                yield _ParquetTable(file)
        except pa.ArrowInvalid as error:
            raise InputError(f"{self.url}: its table {name} is damaged ({error})", "make the trace again") from None

    def table_mark(self, name: str) -> TableMark | None:
        """As `TableStore`."""
        with _storage_errors(self.url):
            if not self._fs.exists(self._path(name)):
                return None
            found = self._fs.info(self._path(name))
        return TableMark(int(found.get("size") or 0), f"{found.get('mtime', '')}|{found.get('ETag', '')}")

    @contextmanager
    def replacement(self) -> Iterator["ParquetStore"]:
        """As `TableStore`. On a local disk it is beside this one until it is whole, elsewhere at its place."""
        with _storage_errors(self.url):
            _refuse_to_overwrite(self._fs, self._root, self.url)
        if self._is_local:
            with self._staging() as staging:
                yield staging
            return
        with _storage_errors(self.url):
            if self._fs.exists(self._root):
                self._fs.rm(self._root, recursive=True)
            self._fs.makedirs(self._root, exist_ok=True)
        yield self

    @contextmanager
    def _staging(self) -> Iterator["ParquetStore"]:
        staging = _staging_path(self._root)
        with _storage_errors(self.url):
            scratch.make(Path(staging))
        try:
            yield ParquetStore(self.url, staging)
            with _storage_errors(self.url):
                _replace_directory(Path(staging), Path(self._root))
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            scratch.release(Path(staging))

    def encode(self, name: str, table: pa.Table) -> encoded.Rows:
        """As `TableStore`."""
        return encoded.encode(table, LOOKED_UP_BY, ROW_GROUP_ROWS)

    def append(self, name: str, rows: EncodedRows) -> None:
        """As `TableStore`."""
        assert isinstance(rows, encoded.Rows)
        with _storage_errors(self.url):
            if name not in self._open:
                file = _sink(self._fs, self._path(name))
                self._open[name] = file, encoded.Writer(file, rows.schema)
            self._open[name][1].write(rows)

    def finish(self, name: str) -> None:
        """As `TableStore`."""
        file, writer = self._open.pop(name)
        with _storage_errors(self.url):
            try:
                writer.close()
            finally:
                file.close()

    def write_document(self, document: bytes) -> None:
        """As `TableStore`."""
        with _storage_errors(self.url), self._fs.open(f"{self._root}/{INFO_FILE}", "wb") as file:
            file.write(document)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}.parquet"


class _ParquetTable:
    """A table's file; a `StoredTable`, whose groups are Parquet's row groups."""

    def __init__(self, file: Any) -> None:
        self._parquet = pq.ParquetFile(file, pre_buffer=False)
        self.columns: list[str] = self._parquet.schema_arrow.names
        metadata = self._parquet.metadata
        self.groups_rows = [int(metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)]

    def read(self, columns: Sequence[str], groups: Sequence[int]) -> pa.Table:
        """As `StoredTable`; one group after the other, so that what is null in one takes no memory while the next is
        read."""
        if not columns or not groups:  # nothing, but so many rows of it
            return self._parquet.read_row_groups(groups, columns=columns)
        return pa.concat_tables(sharing_nulls(self._parquet.read_row_group(each, columns=columns)) for each in groups)

    def may_hold(self, group: int, equal: Mapping[str, str | int]) -> bool:
        """As `StoredTable`, by the statistics of a row group."""
        row_group = self._parquet.metadata.row_group(group)
        for column in map(row_group.column, range(row_group.num_columns)):
            value, known = equal.get(column.path_in_schema), column.statistics
            if value is not None and known is not None and known.has_min_max and not known.min <= value <= known.max:
                return False
        return True


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        fs, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingDependencyError(f"{url} cannot be opened: {error}") from None
    except ValueError as error:
        raise InputError(f"{url}: {error}", "give a directory or a URL such as s3://bucket/trace") from None
    return fs, root.rstrip("/")


def _source(fs: Any, path: str) -> Any:
    """The file, for Arrow to read. It is no Python file: at exit, Arrow's threads inside one can abort the process
    (apache/arrow issues 34314, 50482)."""
    if isinstance(fs, LocalFileSystem):
        with open(path, "rb"):  # for Python's errors: not there, no permission
            return pa.memory_map(path)
    return pa.BufferReader(fs.cat_file(path))


def _sink(fs: Any, path: str) -> Any:
    """The file, for Arrow to write. Arrow writes the pages of a local file without Python's lock."""
    return pa.OSFile(path, "wb") if isinstance(fs, LocalFileSystem) else fs.open(path, "wb")


def _staging_path(root: str) -> str:
    place = Path(root)
    return str(place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.partial"))


def _refuse_to_overwrite(fs: Any, root: str, url: str) -> None:
    if fs.exists(root) and not fs.isdir(root):
        raise InputError(f"{url} is a file, not a trace", "choose another place for the trace")
    if fs.exists(root) and fs.ls(root, detail=False) and not _is_trace_like(fs, root):
        raise InputError(f"{url} holds other files ({_contents(fs, root)})", "choose another place for the trace")


def _is_trace_like(fs: Any, root: str) -> bool:
    """Whether there are only our own files: a trace, or the remains of one whose writing was interrupted on an object
    store."""
    ours = {INFO_FILE, INDEX_FOLDER, "faults.jsonl", *(f"{name}.parquet" for name in TABLES)}
    return all(name in ours for name in _names(fs, root))


def _replace_directory(staging: Path, place: Path) -> None:
    if not place.exists():
        staging.rename(place)
        return
    if _exchange(staging, place):
        shutil.rmtree(staging)
        return
    old = Path(_staging_path(str(place)))
    place.rename(old)
    staging.rename(place)
    shutil.rmtree(old)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names atomically, so that a reader always finds one; False if the system or file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _names(fs: Any, root: str) -> list[str]:
    return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(root, detail=False))


def _contents(fs: Any, root: str) -> str:
    names = _names(fs, root)
    shown = ", ".join(names[:5])
    return f"{shown}, … {len(names)} in all" if len(names) > 5 else shown


def _no_trace(fs: Any, root: str, url: str) -> InputError:
    if not fs.exists(root):
        return InputError(f"{url}: no such trace", "make one with: tracer replay -o TRACE CAPTURE…")
    if not fs.isdir(root):
        return InputError(
            f"{url} is a file; a trace is a directory", f"for a capture file: tracer replay -o TRACE {url}"
        )
    held = _contents(fs, root)
    if not held:
        return InputError(f"{url} is an empty directory, no trace", "make one with: tracer replay -o TRACE CAPTURE…")
    return InputError(f"{url} is no trace (it holds {held})", f"if these are captures: tracer replay -o TRACE {url}")


@contextmanager
def _storage_errors(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        next_step = {
            errno.ENOSPC: "free some space, or write the trace elsewhere",
            errno.EACCES: "write the trace where you may write",
            errno.EROFS: "write the trace where you may write",
        }.get(error.errno or 0, "write the trace elsewhere")
        raise ResourceError(f"{url}: cannot write the trace ({reason})", next_step) from error
