"""The store of tables as Parquet files in a directory, or at any fsspec URL: `memory://`, `s3://`, ….

Writing a trace is atomic. On a local disk it is written under a temporary name beside its place and renamed. An object
store has no rename: `trace.json`, which names the objects of the tables, is written last, and without it there is no
trace. Where something lies already, the new tables have other names, so that readers of a trace that is replaced find
all of it until then, and see it replaced afterwards.

Tables are encoded by the core (`collector.trace.parquet`). Only columns by which rows are looked up have statistics; a
column that is never null is stored as required, which saves its definition levels.
"""

import ctypes
import errno
import json
import mmap
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from collector.trace import parquet as encoded
from collector.trace.arrow import null_array
from collector.trace.object_errors import code_of, library_errors, object_errors
from collector.trace.object_sink import ObjectSink
from collector.trace.object_tables import ObjectFile
from collector.trace.objects import LocalFiles, ObjectMark, Objects, objects_at, open_file_system
from collector.trace.schema import TABLES
from collector.trace.table_store import INDEX_FOLDER, ROW_GROUP_ROWS, EncodedRows, TableMark
from tracer import scratch
from tracer.errors import InputError, ResourceError

INFO_FILE = "trace.json"
HTTP = ("http://", "https://")
MOST_FOOTER_BYTES = 65_536
"""Of footers whose contents are kept; longer ones are of large tables, whose rows cost more."""
ROWS_OF_THREADS = 20_000
"""Columns of row groups with more rows are decoded in threads."""
LOOKED_UP_BY = ("host", "frame", "connection_id")
"""Columns with statistics, by which a reader skips row groups."""
REMOVALS = 100
"""So often a folder is removed in which another thread still begins files; the first time is nearly always enough."""
_TABLE_FILE = re.compile(rf"({'|'.join(TABLES)})(-[0-9a-f]{{8}})?\.parquet")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""From Linux's <fcntl.h> and <linux/fs.h>."""


class ParquetStore:
    """A directory of Parquet files and `trace.json`; a `TableStore`.

    Arguments: `place`, where it is, if not at the `url` that messages name; `suffix`, what follows the names of tables
    in a trace that is written.
    """

    def __init__(self, url: str, place: str | None = None, suffix: str | None = None) -> None:
        self.url = url
        self._fs, self._root = open_file_system(url)
        self._root = self._root if place is None else place
        self._is_local = isinstance(self._fs, LocalFiles)
        self.folder = Path(self._root) if self._is_local else None
        self.objects: Objects | None = objects_at(url)
        self._open: dict[str, tuple[IO[bytes], encoded.Writer]] = {}
        self._suffix = suffix
        self._marks: dict[str, tuple[str, ObjectMark]] | None = None

    def exists(self) -> bool:
        """As `TableStore`."""
        with object_errors(self.url):
            return bool(self._fs.exists(f"{self._root}/{INFO_FILE}"))

    def read_document(self) -> bytes:
        """As `TableStore`."""
        try:
            document = self._whole(INFO_FILE)
        except (FileNotFoundError, NotADirectoryError):
            with object_errors(self.url):
                raise _no_trace(self._fs, self._root, self.url) from None
        except PermissionError:
            raise InputError(f"{self.url}: no permission to read it", "run as its owner") from None
        self._marks = _marks_in(document)
        return document

    @contextmanager
    def open_table(self, name: str) -> Iterator["_ParquetTable"]:
        """As `TableStore`."""
        try:
            yield self._local_table(name) if self.objects is None else self._object_table(self.objects, name)
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # else Arrow's, of bytes that make no sense
                raise
            why = " ".join(str(error).split())
            raise InputError(f"{self.url}: its table {name} is damaged ({why})", "make the trace again") from None

    def table_mark(self, name: str) -> TableMark | None:
        """As `TableStore`."""
        if self.objects is not None:
            found = self._object_of(self.objects, name)
            return None if found is None else TableMark(found[1].size_bytes, found[1].version)
        with _storage_errors(self.url):
            path = Path(self._local_path(name))
            if not path.exists():
                return None
            status = path.stat()
        return TableMark(status.st_size, f"{status.st_mtime}|")

    @contextmanager
    def replacement(self) -> Iterator["ParquetStore"]:
        """As `TableStore`. On a local disk it is beside this one until it is whole; elsewhere at its place, under names
        that are not in use."""
        if self.url.startswith(HTTP):
            raise InputError(
                f"{self.url}: a trace can be read by HTTP, not written", "write it to a directory or s3://"
            )
        with _storage_errors(self.url):
            old = _names_held(self._fs, self._root)
            _refuse_to_overwrite(self._fs, self._root, self.url)
        if self._is_local:
            with self._staging() as staging:
                yield staging
            return
        staged = ParquetStore(self.url, suffix=f"-{uuid.uuid4().hex[:8]}" if old else "")
        try:
            yield staged
        except BaseException:
            staged._discard()
            raise
        with _storage_errors(self.url):
            kept = {INFO_FILE, *staged._names_written()}
            _remove(self._fs, [f"{self._root}/{name}" for name in old if name not in kept])

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
            _remove_folder(Path(staging))
            scratch.release(Path(staging))

    def encode(self, name: str, table: pa.Table) -> encoded.Rows:
        """As `TableStore`."""
        return encoded.encode(table, LOOKED_UP_BY, ROW_GROUP_ROWS)

    def to_file(self, rows: EncodedRows, path: Path) -> encoded.Rows:
        """As `TableStore`."""
        assert isinstance(rows, encoded.Rows)
        return rows.to_file(path)

    def append(self, name: str, rows: EncodedRows) -> None:
        """As `TableStore`."""
        assert isinstance(rows, encoded.Rows)
        with _storage_errors(self.url):
            if name not in self._open:
                file = _sink(self._fs, self._path(name))
                self._open[name] = file, encoded.Writer(file, rows.schema)
            self._open[name][1].write(rows)
        for path in rows.files():
            path.unlink(missing_ok=True)

    def finish(self, name: str) -> None:
        """As `TableStore`."""
        file, writer = self._open.pop(name)
        with _storage_errors(self.url):
            try:
                writer.close()
            finally:
                file.close()

    def write_document(self, document: bytes) -> None:
        """As `TableStore`. On an object store the document also says which objects the tables are."""
        with _storage_errors(self.url):
            if self.objects is not None:
                document = _with_marks(document, self.objects, self._names_written())
            with self._fs.open(f"{self._root}/{INFO_FILE}", "wb") as file:
                file.write(document)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}{self._suffix or ''}.parquet"

    def _names_written(self) -> list[str]:
        return [f"{name}{self._suffix or ''}.parquet" for name in TABLES]

    def _whole(self, name: str) -> bytes:
        return Path(self._root, name).read_bytes() if self.objects is None else self.objects.whole(name)

    def _local_path(self, name: str) -> str:
        """The file of a table; a copy of a trace from an object store may have another name for it."""
        path = self._path(name)
        if not os.path.exists(path) and os.path.exists(f"{self._root}/{INFO_FILE}"):
            known = _marks_in(self._whole(INFO_FILE)).get(name)
            path = path if known is None else f"{self._root}/{known[0]}"
        return path

    def _local_table(self, name: str) -> "_ParquetTable":
        with open(self._local_path(name), "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise pa.ArrowInvalid("its file is empty")
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        footer = _small_footer(content)
        layout = None if footer is None else _layout_in(footer)
        metadata = None if layout is None else layout.metadata
        return _ParquetTable(pq.ParquetFile(pa.BufferReader(content), metadata=metadata, pre_buffer=False), layout)

    def _object_table(self, objects: Objects, name: str) -> "_ParquetTable":
        found = self._object_of(objects, name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path(name))
        file = ObjectFile(objects, *found)
        return _ParquetTable(pq.ParquetFile(file.source, metadata=file.metadata, pre_buffer=False), objects=file)

    def _object_of(self, objects: Objects, name: str) -> tuple[str, ObjectMark] | None:
        """The name and the mark of a table's object: as `trace.json` says, else of that with the table's name."""
        if self._marks is None:
            self._marks = {} if self._suffix is not None else self._marks_of_trace()
        if name not in self._marks:
            own = f"{name}{self._suffix or ''}.parquet"
            mark = objects.mark(own)
            if mark is None or self._suffix is not None:  # while it is written, it may still change
                return None if mark is None else (own, mark)
            self._marks[name] = own, mark
        return self._marks[name]

    def _marks_of_trace(self) -> dict[str, tuple[str, ObjectMark]]:
        try:
            return _marks_in(self._whole(INFO_FILE))
        except FileNotFoundError:
            return {}

    def _discard(self) -> None:
        """Abort what is being uploaded, and remove what was written."""
        for file, _ in self._open.values():
            assert isinstance(file, ObjectSink)
            file.discard()
        with suppress(*library_errors()):
            written = set(self._names_written())
            _remove(self._fs, [f"{self._root}/{name}" for name in _names(self._fs, self._root) if name in written])


class _ParquetTable:
    """A table's file; a `StoredTable`, whose groups are Parquet's row groups. `layout`, if it is known;
    `objects`, if it is an object."""

    def __init__(
        self, file: pq.ParquetFile, layout: "_Layout | None" = None, objects: ObjectFile | None = None
    ) -> None:
        self._parquet, self._objects = file, objects
        layout = layout or _layout_of(file.metadata)
        self._schema, self.columns, self.groups_rows = layout.schema, layout.schema.names, layout.groups_rows

    @property
    def empty_columns(self) -> frozenset[str]:
        """As `StoredTable`, by the counts of nulls of all row groups."""
        metadata = self._parquet.metadata
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        return frozenset(
            name for place, name in enumerate(self.columns) if all(_is_empty(group.column(place)) for group in groups)
        )

    def read(self, columns: Sequence[str], groups: Sequence[int]) -> pa.Table:
        """As `StoredTable`."""
        if not columns or not groups:  # nothing, but so many rows of it
            return self._parquet.read_row_groups(groups, columns=columns)
        each_group = groups if self._objects is None else self._objects.fetch_groups(columns, groups)
        return pa.concat_tables(self._read_group(each, columns) for each in each_group)

    def _read_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Columns of one group. Those that hold only nulls are not decoded, and take no memory."""
        metadata, count = self._parquet.metadata.row_group(group), self.groups_rows[group]
        fields = [self._schema.field(name) for name in columns]
        empty = {name for name in columns if _is_empty(metadata.column(self._schema.get_field_index(name)))}
        held = self._parquet.read_row_group(
            group, columns=[name for name in columns if name not in empty], use_threads=count > ROWS_OF_THREADS
        )
        arrays = [null_array(count, field.type) if field.name in empty else held[field.name] for field in fields]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields, self._schema.metadata))

    def may_hold(self, group: int, equal: Mapping[str, str | int]) -> bool:
        """As `StoredTable`, by the statistics of a row group."""
        row_group = self._parquet.metadata.row_group(group)
        for column in map(row_group.column, range(row_group.num_columns)):
            value, known = equal.get(column.path_in_schema), column.statistics
            if value is not None and known is not None and known.has_min_max and not known.min <= value <= known.max:
                return False
        return True


def _is_empty(column: pq.ColumnChunkMetaData) -> bool:
    known = column.statistics
    return known is not None and known.has_null_count and known.null_count == column.num_values


def _small_footer(content: mmap.mmap) -> bytes | None:
    """The footer of a Parquet file, if it has one that is short: reading it costs more than a small table's rows."""
    length = int.from_bytes(content[-8:-4], "little") + 8
    return content[-length:] if content[-4:] == encoded.MAGIC and length <= MOST_FOOTER_BYTES else None


class _Layout(Struct, frozen=True):
    """What a Parquet file's footer says."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    groups_rows: Sequence[int]


@lru_cache(maxsize=64)
def _layout_in(footer: bytes) -> _Layout:
    """Raises: `pa.ArrowInvalid`."""
    return _layout_of(pq.read_metadata(pa.BufferReader(encoded.MAGIC + footer)))


def _layout_of(metadata: pq.FileMetaData) -> _Layout:
    groups = range(metadata.num_row_groups)
    counts = [int(metadata.row_group(group).num_rows) for group in groups]
    return _Layout(metadata, metadata.schema.to_arrow_schema(), counts)


def _marks_in(document: bytes) -> dict[str, tuple[str, ObjectMark]]:
    """Of each table the name and mark of its object, where `trace.json` says that."""
    try:
        content = json.loads(document)
        return {name: _mark_in(content["objects"][name]) for name in TABLES if name in content["objects"]}
    except (ValueError, KeyError, TypeError):  # of a local trace, or damaged, which its reader reports
        return {}


def _mark_in(entry: Any) -> tuple[str, ObjectMark]:
    name, size, version = entry["name"], entry["size_bytes"], entry["version"]
    if not re.fullmatch(r"[\w-]+\.parquet", name) or not isinstance(size, int) or size < 0:
        raise ValueError(name)  # it leads elsewhere
    return name, ObjectMark(size, str(version))


def _with_marks(document: bytes, objects: Objects, names: Sequence[str]) -> bytes:
    marks = dict(zip(TABLES, ((name, objects.mark(name)) for name in names), strict=True))
    content = {
        table: {"name": name, "size_bytes": mark.size_bytes, "version": mark.version}
        for table, (name, mark) in marks.items()
        if mark is not None
    }
    return json.dumps(json.loads(document) | {"objects": content}, indent=1).encode()


def _sink(fs: Any, path: str) -> Any:
    """The file, for Arrow to write. Arrow writes the pages of a local file without Python's lock."""
    return pa.OSFile(path, "wb") if isinstance(fs, LocalFiles) else ObjectSink(fs, path)


def _remove(fs: Any, paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            fs.rm(path, recursive=path.endswith(INDEX_FOLDER))


def _remove_folder(folder: Path) -> None:
    """Remove a folder in which another thread may begin a file meanwhile: an interrupt may come while it is awaited."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.01)


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
    ours = {INFO_FILE, INDEX_FOLDER, "faults.jsonl"}
    return all(name in ours or _TABLE_FILE.fullmatch(name) for name in _names(fs, root))


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


def _names_held(fs: Any, root: str) -> list[str]:
    """As `_names`; nothing where nothing is. An object store also says whether the bucket is there."""
    try:
        return _names(fs, root)
    except (FileNotFoundError, NotADirectoryError) as error:
        if code_of(error) == "NoSuchBucket":
            raise
        return []


def _contents(fs: Any, root: str) -> str:
    names = _names(fs, root)
    shown = ", ".join(names[:5])
    return f"{shown}, … {len(names)} in all" if len(names) > 5 else shown


def _no_trace(fs: Any, root: str, url: str) -> InputError:
    if url.startswith(HTTP) or not fs.exists(root):
        return InputError(f"{url}: no such trace", "make one with: tracer replay -o TRACE CAPTURE…")
    if not fs.isdir(root):
        return InputError(
            f"{url} is a file; a trace is a directory", f"for a capture file: tracer replay -o TRACE {url}"
        )
    held = _contents(fs, root)
    if fs.exists(f"{root}/series.json"):
        return InputError(
            f"{url} is a series of traces", "name one of the folders in it, which is the trace of a period"
        )
    if not held:
        return InputError(f"{url} is an empty directory, no trace", "make one with: tracer replay -o TRACE CAPTURE…")
    return InputError(f"{url} is no trace (it holds {held})", f"if these are captures: tracer replay -o TRACE {url}")


@contextmanager
def _storage_errors(url: str) -> Iterator[None]:
    try:
        if "://" in url and not url.startswith("file://"):
            with object_errors(url, "write the trace"):
                yield
        else:
            yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        next_step = {
            errno.ENOSPC: "free some space, or write the trace elsewhere",
            errno.EACCES: "write the trace where you may write",
            errno.EROFS: "write the trace where you may write",
        }.get(error.errno or 0, "write the trace elsewhere")
        raise ResourceError(f"{url}: cannot write the trace ({reason})", next_step) from error
