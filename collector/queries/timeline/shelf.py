"""Stores an index: named arrays, tables and documents, in memory or as files that are mapped into it.

On disk an index is a folder: `<name>.npy` for an array, `<name>.arrow` for a table (uncompressed, so that it is read in
place), `<name>.json` for a document. It is written under another name and renamed, so it is complete or absent.
Its contents are not trusted, since a trace from elsewhere may include an index: nothing is executed, no path is used.
"""

import mmap
import os
import typing
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Document = TypeVar("Document")


class Shelf:
    """Arrays, tables and documents by name; in `folder`, or in memory without one."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: dict[str, Any] = {}

    def make(self, name: str, dtype: type[np.generic] | np.dtype[Any], *shape: int) -> NDArray[Any]:
        """A new array of zeros, to be filled.

        Raises: `OSError` if there is no room for it.
        """
        if self._folder is None or 0 in shape:  # a file of nothing cannot be mapped
            made: NDArray[Any] = np.zeros(shape, dtype)
            return self._keep(name, made)
        path = self._folder / f"{name}.npy"
        mapped = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
        with path.open("r+b") as file:  # now, not when a mapped page is written: that would end the process
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return mapped

    def put(self, name: str, values: NDArray[Any]) -> None:
        """Keep an array."""
        self.make(name, values.dtype, *values.shape)[...] = values

    def holds(self, name: str) -> bool:
        """Whether there is an array of that name."""
        return name in self._held or (self._folder is not None and (self._folder / f"{name}.npy").exists())

    def array(self, name: str) -> NDArray[Any]:
        """The array of that name."""
        if name not in self._held:
            assert self._folder is not None, name
            path = self._folder / f"{name}.npy"
            try:
                self._held[name] = np.load(path, mmap_mode="r", allow_pickle=False)
            except ValueError:  # nothing to map
                self._held[name] = np.load(path, allow_pickle=False)
        return typing.cast("NDArray[Any]", self._held[name])

    def put_tables(self, name: str, parts: Iterable[pl.DataFrame]) -> None:
        """Keep a table that comes in parts, at least one of them. In a folder they are written one by one."""
        if self._folder is None:
            self._held[name] = pl.concat(parts)
            return
        writer, before = None, None
        with pa.OSFile(str(self._folder / f"{name}.arrow"), "wb") as file, ThreadPoolExecutor(1) as pool:
            for part in parts:  # each is written while the next one is made
                rows = part.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
                writer = writer or pa.ipc.new_file(file, rows.schema)
                if before is not None:
                    before.result()
                before = pool.submit(writer.write_table, rows)
            assert writer is not None and before is not None, name
            before.result()
            writer.close()

    def table(self, name: str) -> pl.DataFrame:
        """The table of that name."""
        if name not in self._held:
            assert self._folder is not None, name
            file = pa.memory_map(str(self._folder / f"{name}.arrow"))
            self._held[name] = pl.from_arrow(
                pa.ipc.open_file(file).read_all(), rechunk=False
            )  # in place; `pl.read_ipc` copies
        return typing.cast("pl.DataFrame", self._held[name])

    def rows(self, name: str, first: int, count: int) -> pl.DataFrame:
        """Some consecutive rows of the table of that name."""
        return self.table(name).slice(first, count)

    def put_document(self, name: str, document: Any) -> None:
        """Keep a record of plain values, records and tuples of them."""
        if self._folder is None:
            self._held[name] = document
        else:
            (self._folder / f"{name}.json").write_bytes(msgspec.json.encode(document))

    def document(self, name: str, kind: type[Document]) -> Document:
        """The document of that name.

        Raises: `ValueError` if it is not of this kind, `OSError` if it is not there.
        """
        if name not in self._held:
            assert self._folder is not None, name
            self._held[name] = msgspec.json.decode((self._folder / f"{name}.json").read_bytes(), type=kind)
        return typing.cast("Document", self._held[name])

    def _keep(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        if self._folder is not None:
            np.save(self._folder / f"{name}.npy", values)
        self._held[name] = values
        return values


def prefetch(arrays: Iterable[NDArray[Any]], first: int, last: int) -> None:
    """Have the rows [first, last) of mapped arrays read from disk, those of all arrays at once.

    Without this, each array causes a separate wait when it is first read.
    """
    for array in arrays:
        if not isinstance(array, np.memmap) or not isinstance(array.base, mmap.mmap) or first >= last:
            continue
        row_bytes = array.strides[0]
        begin = (array.offset + first * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        array.base.madvise(mmap.MADV_WILLNEED, begin, array.offset + last * row_bytes - begin)
