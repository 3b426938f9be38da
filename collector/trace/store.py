"""Stores traces: a directory (or any fsspec URL: `memory://`, `s3://…`) of Parquet tables and one `trace.json`.

Writing a trace is atomic. On a local disk it is written under a temporary name beside its place and renamed; on an
object store, which has no rename, `trace.json` is written last, and a directory without it is no trace. Tables and
columns: `collector.trace.schema`. One writer at a time.

Tables are encoded by the core (`collector.trace.parquet`). Only columns by which rows are looked up have statistics; a
column that is never null is stored as required, which saves its definition levels.
"""

import ctypes
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import IO, Any, TypeVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray

from collector.trace import parquet as encoded
from collector.trace.arrow import sharing_nulls
from collector.trace.model import TraceInfo, parse_info
from collector.trace.schema import ADDED, FORMAT_VERSION, TABLES, conform
from tracer import scratch
from tracer.errors import InputError, MissingDependencyError, ResourceError

INFO_FILE = "trace.json"
INDEX_FOLDER = ".index"
"""Folder within a trace in which a viewer keeps an index to open it quickly; it can be deleted without loss."""
LOOKED_UP_BY = ("host", "frame", "connection_id")
"""Columns with statistics, by which a reader skips row groups."""
READ_ATTEMPTS = 5
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""From Linux's <fcntl.h> and <linux/fs.h>."""
ROW_GROUP_ROWS = 1 << 18
"""Rows of a Parquet row group: small enough to skip by statistics, large enough to compress well."""

Read = TypeVar("Read")


class TraceWriter:
    """Writes the parts of one trace; created by `write_trace`. They are at `url` until the trace is complete."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.info: TraceInfo | None = None
        self._open: dict[str, tuple[IO[bytes], encoded.Writer]] = {}

    def append(self, name: str, table: pa.Table | encoded.Rows) -> None:
        """Append rows to a table; a table never written is empty.

        Arguments: `table`, plain or from `ready`.
        Raises: `ResourceError` if they cannot be written.
        """
        rows = ready(name, table) if isinstance(table, pa.Table) else table
        with _storage_errors(self.url):
            if name not in self._open:
                fs, root = _filesystem(self.url)
                file = _sink(fs, f"{root}/{name}.parquet")
                self._open[name] = file, encoded.Writer(file, rows.schema)
            self._open[name][1].write(rows)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write one whole table; a table never written is empty."""
        write_table(self.url, name, table)

    def finish(self, name: str) -> None:
        """Complete a table that was appended to, so that it can be read back from `url`.

        Raises: `ResourceError` if it cannot be written.
        """
        with _storage_errors(self.url):
            if name not in self._open:
                write_table(self.url, name, TABLES[name].empty_table())
                return
            self._end(name)

    def close(self) -> None:
        """Complete the tables that were appended to. After an error, rows not yet written are dropped."""
        while self._open:
            self._end(next(iter(self._open)))

    def _end(self, name: str) -> None:
        file, writer = self._open.pop(name)
        try:
            writer.close()
        finally:
            file.close()

    def write_info(self, info: TraceInfo) -> None:
        """Set the contents of `trace.json`, which is written when the trace is complete."""
        self.info = info


@contextmanager
def write_trace(url: str) -> Iterator[TraceWriter]:
    """Write a whole trace to `url`; on an error, keep what was there before (object stores: no trace).

    An existing trace is replaced; any other existing file is an error.
    Raises: `InputError` if `url` holds something that is no trace, `ResourceError` if it cannot be written.
    """
    fs, root = _filesystem(url)
    local = isinstance(fs, LocalFileSystem)
    staging = _staging(root) if local else root
    with _storage_errors(url):
        _refuse_to_overwrite(fs, root, url)
        if not local and fs.exists(root):
            fs.rm(root, recursive=True)
        if local:
            scratch.make(Path(staging))
        else:
            fs.makedirs(staging, exist_ok=True)
    writer = TraceWriter(staging if local else url)
    try:
        yield writer
        with _storage_errors(url):
            writer.close()
            _finish(writer)
            if local:
                _replace_directory(Path(staging), Path(root))
    finally:
        if local:
            shutil.rmtree(staging, ignore_errors=True)
            scratch.release(Path(staging))


def write_table(url: str, name: str, table: pa.Table) -> None:
    """Write one table of a trace, columns of the schema first, any others after them.

    Arguments: `name` is a key of `collector.trace.schema.TABLES`; `table` holds at least its columns, in types that
    cast.
    Raises: `ResourceError` if it cannot be written.
    """
    fs, root = _filesystem(url)
    rows = ready(name, table)
    with _storage_errors(url), _sink(fs, f"{root}/{name}.parquet") as file:
        writer = encoded.Writer(file, rows.schema)
        try:
            writer.write(rows)
        finally:
            writer.close()


def ready(name: str, table: pa.Table) -> encoded.Rows:
    """Encoded rows of a trace's table, ready to be written. Safe to call from several threads.

    Arguments: as for `write_table`.
    """
    table = conform(name, table)
    whole = {column.name for column in TABLES[name] if not column.nullable}
    table = table.cast(pa.schema([column.with_nullable(column.name not in whole) for column in table.schema]))
    return encoded.encode(table, LOOKED_UP_BY, ROW_GROUP_ROWS)


def read_table(url: str, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """One table of a trace, or some columns of it.

    Raises: `InputError` if `url` is no trace, or lacks the table or a column of it.
    """
    with _open_table(url, name) as stored:
        return stored.read(stored.columns if columns is None else columns)


def count_rows(url: str, name: str) -> int:
    """How many rows a table of a trace has.

    Raises: `InputError` if `url` is no trace, or lacks the table.
    """
    with _open_table(url, name) as stored:
        return stored.rows_count()


def read_matching(url: str, name: str, columns: Sequence[str], equal: Mapping[str, str | int]) -> pa.Table:
    """The rows of a trace's table with these values, whose columns must be among `columns`.

    Cost: the row groups whose statistics do not exclude them; only one if the table is sorted by these columns.
    Raises: `InputError` if `url` is no trace or lacks the table.
    """
    with _open_table(url, name) as stored:
        table = stored.read(columns, [group for group in range(stored.groups_count) if stored.may_hold(group, equal)])
    matches = [pc.equal(table[column], value) for column, value in equal.items()]
    return table.filter(reduce(pc.and_, matches))


def read_batches(url: str, name: str, columns: Sequence[str]) -> Iterator[tuple[float, pa.Table]]:
    """Some columns of a table of a trace, a row group at a time, each with the share of rows read by then.

    Raises: `InputError` if `url` is no trace or lacks the table or a column of it.
    """
    with _open_table(url, name) as stored:
        done, rows_count = 0, max(1, stored.rows_count())
        for group in range(stored.groups_count):
            table = stored.read(columns, [group])
            done += table.num_rows
            yield done / rows_count, table


def fingerprint(url: str, info: TraceInfo) -> str:
    """A text that changes whenever a trace's table does: its creation time, and each table's size and time."""
    fs, root = _filesystem(url)
    parts = [str(info.created_ns), str(info.format_version)]
    for name in TABLES:
        with _storage_errors(url):
            found = fs.info(f"{root}/{name}.parquet") if fs.exists(f"{root}/{name}.parquet") else {}
        parts += [str(found.get(key, "")) for key in ("size", "mtime", "ETag")]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


def table_bytes(url: str, name: str) -> int:
    """The stored size of a trace's table; 0 if it does not exist."""
    fs, root = _filesystem(url)
    path = f"{root}/{name}.parquet"
    return int(fs.size(path) or 0) if fs.exists(path) else 0


def local_folder(url: str) -> Path | None:
    """The folder of a trace on this machine's disk; None if it is elsewhere."""
    fs, root = _filesystem(url)
    return Path(root) if isinstance(fs, LocalFileSystem) else None


def read_rows(url: str, name: str, columns: Sequence[str], first: int, count: int) -> pa.Table:
    """Rows [first, first + count) of a trace's table, by their position in it. Cost: the row groups with these rows.

    Raises: `InputError` if `url` is no trace or lacks the table.
    """
    with _open_table(url, name) as stored:
        groups, skipped, before = [], 0, 0
        for group in range(stored.groups_count):
            rows = stored.rows_count(group)
            if before + rows > first and before < first + count:
                groups.append(group)
            elif before + rows <= first:
                skipped = before + rows
            before += rows
        return stored.read(columns, groups).slice(first - skipped, count)


def read_chosen_rows(url: str, name: str, columns: Sequence[str], rows: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Chosen rows (ascending positions) of a trace's table, those of one row group at a time.

    Raises: `InputError` if `url` is no trace or lacks the table.
    """
    with _open_table(url, name) as stored:
        before = 0
        for group in range(stored.groups_count):
            count = stored.rows_count(group)
            low, high = np.searchsorted(rows, (before, before + count))
            if high > low:
                yield stored.read(columns, [group]).take(pa.array(rows[low:high] - before))
            before += count


def read_info(url: str) -> TraceInfo:
    """The contents of a trace's `trace.json`.

    Raises: `InputError` if `url` is no trace (with the contents found instead), or one of another format.
    """
    fs, root = _filesystem(url)
    try:
        with fs.open(f"{root}/{INFO_FILE}", "rb") as file:
            document = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        raise _no_trace(fs, root, url) from None
    except PermissionError:
        raise InputError(f"{url}: no permission to read it", "run as its owner") from None
    except ValueError:
        raise InputError(f"{url}: its {INFO_FILE} is damaged", "make the trace again") from None
    return _info_of(document, url)


def read_unchanged(url: str, read: Callable[[TraceInfo], Read]) -> Read:
    """The result of `read`, which sees one consistent trace: a live trace may be replaced meanwhile.

    Raises: `InputError` if it was replaced during every attempt; what `read` raises.
    """
    for _ in range(READ_ATTEMPTS):
        info = read_info(url)
        try:
            found = read(info)
        except Exception:  # tables of two versions of the trace do not match, which may cause any error
            if read_info(url).created_ns == info.created_ns:
                raise
        else:
            if read_info(url).created_ns == info.created_ns:
                return found
    raise InputError(f"{url} is replaced faster than it can be read", "copy it, or look at it when traffic has ended")


def exists(url: str) -> bool:
    """Whether a whole trace is at `url`."""
    fs, root = _filesystem(url)
    return bool(fs.exists(f"{root}/{INFO_FILE}"))


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


def _staging(root: str) -> str:
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


def _finish(writer: TraceWriter) -> None:
    assert writer.info is not None, "write_info was not called"
    fs, root = _filesystem(writer.url)
    for name, schema in TABLES.items():
        if not fs.exists(f"{root}/{name}.parquet"):
            write_table(writer.url, name, schema.empty_table())
    document = asdict(writer.info)
    with fs.open(f"{root}/{INFO_FILE}", "wb") as file:
        file.write(json.dumps(document, indent=1).encode())


def _replace_directory(staging: Path, place: Path) -> None:
    if not place.exists():
        staging.rename(place)
        return
    if _exchange(staging, place):
        shutil.rmtree(staging)
        return
    old = Path(_staging(str(place)))
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
        raise InputError(f"{url}: its {INFO_FILE} is damaged ({error})", "make the trace again") from None


class _StoredTable:
    """A table's file. Columns that were added since it was written are filled with what they would hold (`ADDED`)."""

    def __init__(self, url: str, name: str, file: Any) -> None:
        self._url, self._name = url, name
        self._parquet = pq.ParquetFile(file, pre_buffer=False)
        self._stored = frozenset(self._parquet.schema_arrow.names)
        self.groups_count = self._parquet.num_row_groups
        self.columns = [
            *TABLES[name].names,
            *(c for c in self._parquet.schema_arrow.names if c not in TABLES[name].names),
        ]

    def rows_count(self, group: int | None = None) -> int:
        """Of a row group, or of the table."""
        metadata = self._parquet.metadata
        return int(metadata.num_rows if group is None else metadata.row_group(group).num_rows)

    def read(self, columns: Sequence[str], groups: Sequence[int] | None = None) -> pa.Table:
        """Columns, in this order, of some row groups, or of all.

        Raises: `InputError` for a column that is neither stored nor in `ADDED`.
        """
        added = ADDED.get(self._name, {})
        missing = [column for column in columns if column not in self._stored and column not in added]
        if missing:
            raise InputError(
                f"{self._url}: its table {self._name} has no column {', '.join(missing)}, so another version wrote it",
                "make the trace again from its captures: tracer replay -o TRACE CAPTURE…",
            )
        every = range(self.groups_count) if groups is None else groups
        table = self._read([each for each in columns if each in self._stored], every)
        if len(table.column_names) < len(columns):
            rows_count = sum(map(self.rows_count, every))
            for column in columns:
                if column not in self._stored:
                    table = table.append_column(column, pa.repeat(added[column], rows_count))
        return table.select(columns)

    def _read(self, columns: Sequence[str], groups: Sequence[int]) -> pa.Table:
        """One row group after the other, so that what is null in one takes no memory while the next is read."""
        if not columns or not groups:  # nothing, but so many rows of it
            return self._parquet.read_row_groups(groups, columns=columns)
        return pa.concat_tables(sharing_nulls(self._parquet.read_row_group(each, columns=columns)) for each in groups)

    def may_hold(self, group: int, equal: Mapping[str, str | int]) -> bool:
        """Whether the statistics of a row group do not exclude these values."""
        row_group = self._parquet.metadata.row_group(group)
        for column in map(row_group.column, range(row_group.num_columns)):
            value, known = equal.get(column.path_in_schema), column.statistics
            if value is not None and known is not None and known.has_min_max and not known.min <= value <= known.max:
                return False
        return True


@contextmanager
def _open_table(url: str, name: str) -> Iterator[_StoredTable]:
    """A table's file; what is wrong with it is an operator's error."""
    assert name in TABLES, name
    fs, root = _filesystem(url)
    try:
        with _source(fs, f"{root}/{name}.parquet") as file:
            yield _StoredTable(url, name, file)
    except (FileNotFoundError, NotADirectoryError):
        read_info(url)
        raise InputError(f"{url}: the trace lacks its table {name}", "make the trace again") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"{url}: its table {name} is damaged ({error})", "make the trace again") from None


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
