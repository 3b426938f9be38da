"""Keeps tables between two passes over the partitions: in memory while they fit, otherwise in a temporary folder.

What takes the tables makes others of them, with other allocators: memory of taken ones goes back to the system, or the
process would hold both.
"""

from pathlib import Path
from threading import Lock

import pyarrow as pa

from collector.execution import memory
from collector.execution.spill import Spilling, spill_errors
from collector.execution.table_files import read_table, write_table

MOST_IN_MEMORY_BYTES = 3 << 28
GIVEN_BACK_BYTES = 1 << 27
"""After so much was taken out of memory it is given back if much is held: six times at most, some 10 ms each."""


class PartitionCache(Spilling):
    """Tables for each partition, put once and taken once, by several threads. A context manager: on exit, its files are
    removed."""

    def __init__(self, spill: Path | None = None, most_in_memory_bytes: int = MOST_IN_MEMORY_BYTES) -> None:
        super().__init__(spill)
        self._room = most_in_memory_bytes
        self._held: dict[int, tuple[pa.Table, ...] | int] = {}
        self._taken_bytes = 0
        self._lock = Lock()

    def put(self, number: int, *tables: pa.Table) -> None:
        """Keep the tables of a partition.

        Raises: `ResourceError` if they fit neither in memory nor on disk.
        """
        size = sum(table.nbytes for table in tables)
        with self._lock:
            fits = size <= self._room
            self._room -= size if fits else 0
        if fits:
            self._held[number] = tables
            return
        with spill_errors(self.spill):
            for place, table in enumerate(tables):
                write_table(table, self._path(number, place))
        self._held[number] = len(tables)

    def look(self, number: int) -> tuple[pa.Table, ...]:
        """The tables of a partition, in the order they were put."""
        kept = self._held[number]
        if isinstance(kept, tuple):
            return kept
        return tuple(read_table(self._path(number, place)) for place in range(kept))

    def take(self, number: int) -> tuple[pa.Table, ...]:
        """Remove and return the tables of a partition."""
        tables, kept = self.look(number), self._held[number]
        for place in range(kept if isinstance(kept, int) else 0):
            self._path(number, place).unlink()
        self._held[number] = ()
        if isinstance(kept, tuple):
            self._note_taken(sum(table.nbytes for table in tables))
        return tables

    def _note_taken(self, size: int) -> None:
        """Give memory back once much was taken: what was taken before is freed by now."""
        with self._lock:
            self._taken_bytes += size
            is_much = self._taken_bytes >= GIVEN_BACK_BYTES
            self._taken_bytes = 0 if is_much else self._taken_bytes
        if is_much:
            memory.give_back_if_much()

    def _path(self, number: int, place: int) -> Path:
        return self.path(f"{number:05}-{place}.arrow")
