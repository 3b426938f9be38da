"""Keeps intermediate data in a folder that several processes share, in place of `PartitionCache` and `SortedRuns`.

A process may be killed at any time, and another one do its work again. So a file appears under its name only when it is
whole, the same work writes the same files, and nothing is removed before all work is done.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.execution.external_sort import merge_runs, run_in_files, sort_rows, write_run
from collector.execution.spill import spill_errors
from collector.execution.table_files import read_table, write_table

GIVE_ANOTHER = "give another folder with --scratch"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The place to write a file to, which is at `path` once the context ends without an error.

    Raises: `ResourceError` if there is no room.
    """
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with spill_errors(path.parent, GIVE_ANOTHER):
            yield part
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


class SharedTables(Struct, frozen=True):
    """Tables for each partition; may be put and taken again."""

    folder: Path

    def put(self, number: int, *tables: pa.Table) -> None:
        """Keep the tables of a partition. Raises: `ResourceError` if there is no room."""
        for place, table in enumerate(tables):
            with whole_file(self._path(number, place)) as path:
                write_table(table, path)

    def take(self, number: int) -> tuple[pa.Table, ...]:
        """The tables of a partition, in the order they were put."""
        tables: list[pa.Table] = []
        while (path := self._path(number, len(tables))).exists():
            tables.append(read_table(path))
        return tuple(tables)

    look = take

    def _path(self, number: int, place: int) -> Path:
        return self.folder / f"{number:05}-{place}.tables"


class SharedRuns(Struct, frozen=True):
    """Sorted runs; may be put again. Memory: as `SortedRuns`, where `slabs` is called."""

    folder: Path

    def put(self, number: int, table: pa.Table, keys: NDArray[np.int64]) -> None:
        """As `SortedRuns.put`."""
        run = sort_rows(table, keys)
        if not len(run.keys):
            return
        # What has keys is there: they come last.
        with whole_file(self._keys(number)) as keys_file, whole_file(self._rows(number)) as rows_file:
            write_run(run, rows_file, keys_file)

    def slabs(self, rows: int) -> Iterator[pa.Table]:
        """As `SortedRuns.slabs`."""
        numbers = sorted(int(path.stem) for path in self.folder.glob("*.keys"))
        return merge_runs([run_in_files(self._rows(number), self._keys(number)) for number in numbers], rows)

    def _rows(self, number: int) -> Path:
        return self.folder / f"{number:05}.run"

    def _keys(self, number: int) -> Path:
        return self.folder / f"{number:05}.keys"
