"""Arrays that lie in an object, of which only the pages that are looked at are read.

`PagedFile` maps an empty file of the object's length and fills pages as they are needed; a page that was read stays
while the process runs. `PagedArray` is a part of it that answers indices like the array would, and `searchsorted` with
the help of a fence: every `FENCE_ROWS`-th value, which lies at the beginning of the object.

Invariant: of the map only pages in `_have` are looked at.
"""

import mmap
import os
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collector.trace.objects import Objects
from tracer.errors import InputError, ResourceError

PAGE_BYTES = 64 << 10
FENCE_ROWS = 16 << 10
MOST_SEARCHED = 64
"""To find more values at once, the whole array is read."""


class PagedFile:
    """An object whose pages are read when they are needed. Safe to use from several threads."""

    def __init__(self, objects: Objects, name: str, size_bytes: int, folder: Path | None) -> None:
        """Arguments: `folder`, where pages that were read are kept in a file without a name; None for the system's."""
        self._objects, self._name, self._size = objects, name, size_bytes
        self._lock = threading.Lock()
        self._have = np.zeros(-(-size_bytes // PAGE_BYTES), bool)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.ftruncate(file.fileno(), max(1, size_bytes))
            self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            self._descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        os.close(self._descriptor)

    def fill(self, begin: int, data: bytes) -> None:
        """Keep what was read already: whole pages of it."""
        self._write(begin, data)
        first, last = -(-begin // PAGE_BYTES), (begin + len(data)) // PAGE_BYTES
        if begin + len(data) == self._size:
            last = len(self._have)
        self._have[first:last] = True

    def read_pages(self, pages: NDArray[np.int64]) -> None:
        """Read those of these pages that were not read before, all at once.

        Raises: as `Objects.read`; `ResourceError` if there is no room for them.
        """
        if self._have[pages].all():
            return
        with self._lock:
            missing = np.unique(pages[~self._have[pages]])
            if not len(missing):  # another thread has read them
                return
            starts = np.flatnonzero(np.diff(missing, prepend=-2) != 1)
            firsts, lasts = missing[starts], missing[np.append(starts[1:], len(missing)) - 1] + 1
            spans = [
                (int(first) * PAGE_BYTES, min(int(last) * PAGE_BYTES, self._size))
                for first, last in zip(firsts, lasts, strict=True)
            ]
            try:
                found = self._objects.read(self._name, spans)
            except FileNotFoundError:
                what = f"{self._objects.url} was removed, or made anew, since it was opened"
                raise InputError(what, "open it again with `tracer view`") from None
            for begin, data in found:
                self._write(begin, data)
            self._have[missing] = True

    def _write(self, begin: int, data: bytes) -> None:
        try:
            os.pwrite(self._descriptor, data, begin)
        except OSError as error:
            what = f"no room to keep what is read of {self._objects.url} ({error.strerror})"
            raise ResourceError(what, "free some space, or set XDG_CACHE_HOME to a larger disk") from None


class PagedArray:
    """An array in a `PagedFile`, by rows: `array[row]`, `array[rows]`, `array[first:last]` read what they return."""

    def __init__(
        self, file: PagedFile, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], fence: Any = None
    ) -> None:
        self.file, self.dtype, self.shape, self._offset, self._fence = file, dtype, shape, offset, fence
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        count = int(np.prod(shape, dtype=np.int64))
        self._mapped: NDArray[Any] = np.frombuffer(file.map, dtype, count, offset).reshape(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        self.file.read_pages(self.pages_of(key))
        return self._mapped[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self[:], dtype=dtype, copy=copy)

    def pages_of(self, key: Any) -> NDArray[np.int64]:
        """The pages with these rows."""
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            if step == 1:
                return self._pages_between(first, last)
            key = np.arange(first, last, step)
        rows = np.atleast_1d(np.asarray(key))
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        begin = self._offset + np.where(rows < 0, rows + len(self), rows).astype(np.int64) * self._row_bytes
        ends = (begin + self._row_bytes - 1) // PAGE_BYTES
        return np.unique(np.concatenate((begin // PAGE_BYTES, ends)))

    def find_places(self, values: Any, side: str = "left", sorter: None = None) -> Any:
        """As `searchsorted` of NumPy's arrays, for few values; of each it reads a block, of all the fence."""
        wanted = np.asarray(values)
        if self._fence is None or wanted.size > MOST_SEARCHED:
            return np.asarray(self).searchsorted(wanted, side)  # type: ignore[call-overload]
        blocks = np.atleast_1d(np.asarray(self._fence).searchsorted(wanted, side))  # type: ignore[call-overload]
        found = [
            self._search_block(int(at), each, side) for at, each in zip(blocks, np.atleast_1d(wanted), strict=True)
        ]
        return np.array(found, np.intp).reshape(wanted.shape) if wanted.ndim else np.intp(found[0])

    searchsorted = find_places
    """What `np.searchsorted` calls."""

    def _search_block(self, block: int, value: Any, side: str) -> int:
        if block == 0:  # before the first
            return 0
        first = (block - 1) * FENCE_ROWS
        return first + int(self[first : first + FENCE_ROWS].searchsorted(value, side))

    def _pages_between(self, first: int, last: int) -> NDArray[np.int64]:
        if last <= first or not self._row_bytes:
            return np.zeros(0, np.int64)
        begin, end = (self._offset + row * self._row_bytes for row in (first, last))
        return np.arange(begin // PAGE_BYTES, -(-end // PAGE_BYTES))


def fetch_rows(arrays: Iterable[Any], key: Any) -> None:
    """Read these rows of those of the arrays that are paged, all at once; all lie in one file."""
    paged = [array for array in arrays if isinstance(array, PagedArray)]
    if paged:
        paged[0].file.read_pages(np.concatenate([array.pages_of(key) for array in paged]))
