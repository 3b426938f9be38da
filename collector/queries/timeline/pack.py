"""A shelf as one object: written once, when a trace is made on an object store, and read page by page.

    b"twintap1"   8 bytes
    length        uint64, little-endian, of the head
    head          JSON: where each part lies, and all documents
    parts         small ones first, each at a multiple of 8 bytes from the beginning

The head and the small parts lie together, so that opening takes a request or two. Tables are kept in pieces of
`PIECE_ROWS` rows, each an Arrow stream, so that a few rows are a few pages. Like a shelf's folder, the object is not
trusted: nothing is executed, and what does not fit is an error.
"""

import io
import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.queries.timeline.paged import FENCE_ROWS, PagedArray, PagedFile
from collector.queries.timeline.shelf import Document, Shelf
from collector.trace.object_sink import ObjectSink
from collector.trace.objects import Objects

MAGIC = b"twintap1"
FIRST_BYTES = 1 << 20
"""Read at first; of most traces that is the head with all small parts."""
SMALL_BYTES = 128 << 10
"""Parts up to this lie at the beginning, and are read with it."""
PIECE_ROWS = 1 << 10
PIECES_AT_ONCE = 64
ALIGNMENT = 8
COPY_BYTES = 8 << 20
FENCED = ("anchor_ns", "latest-ns", "problem-rows", "problem-times-ns")
"""Arrays in ascending order that are searched."""
FENCE, PIECES = "fence-", "pieces-"


class _Part(msgspec.Struct, frozen=True):
    """An array in the object, or the pieces of a table (`dtype` "" then)."""

    dtype: str
    shape: tuple[int, ...]
    offset: int  # from the end of the head
    size_bytes: int


class _Head(msgspec.Struct, frozen=True):
    parts: dict[str, _Part]
    documents: dict[str, Any]


def write_pack(objects: Objects, name: str, folder: Path) -> None:
    """Write the shelf in a folder as the object `name`.

    Raises: what the file system of `objects` raises; then there is no such object.
    """
    arrays = {path.stem: np.load(path, mmap_mode="r" if path.stat().st_size > 128 else None)
              for path in sorted(folder.glob("*.npy"))}  # fmt: skip
    arrays |= {f"{FENCE}{each}": arrays[each][::FENCE_ROWS] for each in FENCED}
    documents = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        tables = {path.stem: Path(temporary) / path.stem for path in sorted(folder.glob("*.arrow"))}
        for each, place in tables.items():
            arrays[f"{PIECES}{each}"] = _write_pieces(folder / f"{each}.arrow", place)
        sizes = {each: array.nbytes for each, array in arrays.items()}
        sizes |= {each: place.stat().st_size for each, place in tables.items()}
        parts, offset = {}, 0
        for each, size in sorted(sizes.items(), key=lambda item: item[1]):
            array = arrays.get(each)
            parts[each] = _Part(
                "" if array is None else array.dtype.str, () if array is None else array.shape, offset, size
            )
            offset += _align(size)
        sink = ObjectSink(objects.fs, objects.path(name))
        try:
            _write_parts(sink, _Head(parts, documents), arrays, tables)
        except BaseException:
            sink.discard()
            raise
        sink.close()


def _write_parts(sink: ObjectSink, head: _Head, arrays: dict[str, NDArray[Any]], tables: dict[str, Path]) -> None:
    text = msgspec.json.encode(head)
    text += b" " * (_align(len(text)) - len(text))
    sink.write(MAGIC + struct.pack("<Q", len(text)) + text)
    for name, part in head.parts.items():
        if part.dtype:
            array = arrays[name]
            rows = max(1, COPY_BYTES // max(1, array.nbytes // max(1, len(array))))
            for first in range(0, len(array), rows):
                sink.write(array[first : first + rows].tobytes())
        else:
            with tables[name].open("rb") as file:
                while data := file.read(COPY_BYTES):
                    sink.write(data)
        sink.write(b"\0" * (_align(part.size_bytes) - part.size_bytes))


def _write_pieces(table: Path, place: Path) -> NDArray[np.int64]:
    """Write a table in pieces; returns where each begins, then the end and how many rows there are."""
    ends, rows = [0], 0
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.memory_map(str(table)) as source, place.open("wb") as file:
        reader = pa.ipc.open_file(source)
        for piece in _pieces(reader):
            rows += piece.num_rows
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, piece.schema, options=options) as writer:
                writer.write_table(piece)
            ends.append(ends[-1] + file.write(stream.getvalue()))
    return np.array([*ends, rows], np.int64)


def _pieces(reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.Table]:
    """The rows in pieces of `PIECE_ROWS`, the last shorter; one piece if there is no row."""
    waiting: list[pa.RecordBatch] = []
    for number in range(reader.num_record_batches):
        batch, first = reader.get_batch(number), 0
        while first < batch.num_rows:
            part = batch.slice(first, PIECE_ROWS - sum(each.num_rows for each in waiting))
            waiting.append(part)
            first += part.num_rows
            if sum(each.num_rows for each in waiting) == PIECE_ROWS:
                yield pa.Table.from_batches(waiting, reader.schema).combine_chunks()
                waiting = []
    if waiting or not any(reader.get_batch(number).num_rows for number in range(reader.num_record_batches)):
        yield pa.Table.from_batches(waiting, reader.schema).combine_chunks()


class PackedShelf(Shelf):
    """A shelf in an object of the store, to be read."""

    def __init__(self, objects: Objects, name: str, folder: Path | None) -> None:
        """Arguments: `folder`, where what is read is kept while the process runs.

        Raises: `FileNotFoundError` if the object is not there; `ValueError`, `KeyError` or `TypeError` if it is no
        pack; otherwise as `Objects.read`.
        """
        super().__init__()
        mark = objects.mark(name)
        if mark is None:
            raise FileNotFoundError(name)
        self._folder_of_pages = folder
        self._file = PagedFile(objects, name, mark.size_bytes, folder)
        data = _read_first(objects, name, mark.size_bytes)
        begin = len(MAGIC) + 8 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
        self._head = msgspec.json.decode(data[len(MAGIC) + 8 : begin], type=_Head)
        small = [part.offset + part.size_bytes for part in self._head.parts.values() if part.size_bytes <= SMALL_BYTES]
        end = min(begin + max(small, default=0), mark.size_bytes)
        for at, more in objects.read(name, [(len(data), end)]):
            assert at == len(data)
            data += more
        self._file.fill(0, data)
        self._begin, self._data = begin, data

    def holds(self, name: str) -> bool:
        """As `Shelf`."""
        return name in self._head.parts

    def array(self, name: str) -> Any:
        """As `Shelf`; a small one is an array, others are paged."""
        if name not in self._held:
            part = self._head.parts[name]
            dtype, offset = np.dtype(part.dtype), self._begin + part.offset
            if dtype.hasobject or int(np.prod(part.shape, dtype=np.int64)) * dtype.itemsize != part.size_bytes:
                raise ValueError(f"{name} does not fit")
            if offset + part.size_bytes <= len(self._data):
                count = int(np.prod(part.shape, dtype=np.int64))
                self._held[name] = np.frombuffer(self._data, dtype, count, offset).reshape(part.shape)
            else:
                fence = self.array(f"{FENCE}{name}") if f"{FENCE}{name}" in self._head.parts else None
                self._held[name] = PagedArray(self._file, offset, dtype, part.shape, fence)
        return self._held[name]

    def table(self, name: str) -> pl.DataFrame:
        """As `Shelf`. Cost: all of it is read, decompressed into a file, and mapped."""
        if name not in self._held:
            count = len(self.array(f"{PIECES}{name}")) - 2
            with tempfile.NamedTemporaryFile(suffix=".arrow", dir=self._folder_of_pages) as file:
                with pa.ipc.new_file(file.name, self._piece(name, 0).schema) as writer:
                    for first in range(0, count, PIECES_AT_ONCE):
                        pieces = [self._piece(name, each) for each in range(first, min(first + PIECES_AT_ONCE, count))]
                        writer.write_table(pa.concat_tables(pieces).combine_chunks())
                source = pa.memory_map(file.name)  # it lives on without its name
                self._held[name] = pl.from_arrow(pa.ipc.open_file(source).read_all(), rechunk=False)
        found: pl.DataFrame = self._held[name]
        return found

    def rows(self, name: str, first: int, count: int) -> pl.DataFrame:
        """As `Shelf`. Cost: the pieces with these rows."""
        if name in self._held:
            return super().rows(name, first, count)
        begin, last = first // PIECE_ROWS, max(first, first + count - 1) // PIECE_ROWS
        pieces = [self._piece(name, number) for number in range(begin, last + 1)]
        found = pl.from_arrow(pa.concat_tables(pieces).slice(first - begin * PIECE_ROWS, count))
        assert isinstance(found, pl.DataFrame)
        return found

    def document(self, name: str, kind: type[Document]) -> Document:
        """As `Shelf`."""
        return msgspec.convert(self._head.documents[name], kind)

    def _piece(self, name: str, number: int) -> pa.Table:
        begin, end = (int(each) for each in self.array(f"{PIECES}{name}")[number : number + 2])
        part = self._head.parts[name]
        bytes_of = PagedArray(self._file, self._begin + part.offset, np.dtype(np.uint8), (part.size_bytes,))
        return pa.ipc.open_stream(pa.py_buffer(np.ascontiguousarray(bytes_of[begin:end]))).read_all()


def _read_first(objects: Objects, name: str, size_bytes: int) -> bytes:
    """The beginning of the object, at least all of its head."""
    data = _join(objects, name, 0, min(FIRST_BYTES, size_bytes))
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{name} is no index")
    end = len(MAGIC) + 8 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    if end > size_bytes:
        raise ValueError(f"{name} is cut off")
    return data + (_join(objects, name, len(data), end) if end > len(data) else b"")


def _join(objects: Objects, name: str, begin: int, end: int) -> bytes:
    out = io.BytesIO()
    for _, part in objects.read(name, [(begin, end)]):
        out.write(part)
    return out.getvalue()


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
