"""External merge: reads several sorted tables as one sorted table, a slab at a time.

Partitions are processed one after the other, but a table ordered by time needs rows of each. So each partition's rows
are kept as a run, in memory up to a limit and otherwise in temporary files, without columns in which it has only nulls.

Cost: each row once to disk and back if memory is full; a sort of each slab. Memory: the limit, the slabs that are read
ahead, and a sample of the keys, some thousand for each slab.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.execution.spill import Spilling, spill_errors
from collector.execution.table_files import with_empty, without_empty

MOST_IN_MEMORY_BYTES = 1 << 26
BATCH_ROWS = 1 << 11
"""Rows of a file that are read at once: a slab needs few rows of each run."""
SAMPLE_ERROR = 1 / 16
"""By at most so much slabs are larger or smaller than asked for."""
READ_AHEAD = 1
"""Slabs that are read while another one is used: each takes memory, and one keeps another core busy."""


class Run(Struct, frozen=True):
    """Rows in the order of their keys, in memory or in files that `write_run` wrote; without columns of nulls."""

    keys: NDArray[np.int64]
    kept: pa.Table | Path

    def part(self, start: int, end: int) -> pa.Table:
        """Rows `start..end`."""
        if isinstance(self.kept, pa.Table):
            return self.kept.slice(start, end - start)
        first = start // BATCH_ROWS
        with pa.OSFile(str(self.kept)) as file:
            reader = pa.ipc.open_file(file)
            batches = [reader.get_batch(place) for place in range(first, (end - 1) // BATCH_ROWS + 1)]
        return pa.Table.from_batches(batches).slice(start - first * BATCH_ROWS, end - start)


def sort_rows(table: pa.Table, keys: NDArray[np.int64]) -> Run:
    """A table in the order of `keys`, which has one key for each row."""
    order = np.argsort(keys, kind="stable")
    return Run(keys[order], without_empty(table).take(pa.array(order)).combine_chunks())


def write_run(run: Run, rows: Path, keys: Path) -> None:
    """Write a run in memory to two files. Raises: OSError."""
    assert isinstance(run.kept, pa.Table)
    with pa.OSFile(str(rows), "wb") as file, pa.ipc.new_file(file, run.kept.schema) as out:
        out.write_table(run.kept, max_chunksize=BATCH_ROWS)
    with keys.open("wb") as file:
        np.save(file, run.keys)


def run_in_files(rows: Path, keys: Path) -> Run:
    """A run that `write_run` wrote; its keys are read as they are needed."""
    return Run(np.load(keys, mmap_mode="r"), rows)


def merge_runs(runs: Sequence[Run], rows: int) -> Iterator[pa.Table]:
    """All rows by key, about `rows` at a time; rows with equal keys in the order of their runs. While one slab is used,
    the next ones are read."""
    if not runs:
        return
    edges = _edges(runs, rows)
    ends = [[0, *np.searchsorted(run.keys, edges[1:]).tolist(), len(run.keys)] for run in runs]
    coming = deque[Future[pa.Table]]()
    with ThreadPoolExecutor(READ_AHEAD) as pool:
        for slab in range(len(edges)):
            parts = [(run, *end[slab : slab + 2]) for run, end in zip(runs, ends, strict=True)]
            coming.append(pool.submit(_merge_parts, [part for part in parts if part[1] < part[2]]))
            if len(coming) > READ_AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def _edges(runs: Sequence[Run], rows: int) -> NDArray[np.int64]:
    """The keys at which slabs of about so many rows begin, from a sample of each run's keys."""
    step = max(1, int(SAMPLE_ERROR * rows / len(runs)))
    sample = np.sort(np.concatenate([run.keys[::step] for run in runs]))
    return np.unique(sample[:: max(1, rows // step)])


def _merge_parts(parts: Sequence[tuple[Run, int, int]]) -> pa.Table:
    """Rows `start..end` of each run, by key."""
    keys = np.concatenate([run.keys[start:end] for run, start, end in parts])
    tables = [run.part(start, end) for run, start, end in parts]
    noted = tables[0].schema.metadata
    table = pa.concat_tables([each.replace_schema_metadata() for each in tables], promote_options="default")
    return with_empty(table.take(pa.array(np.argsort(keys, kind="stable"))).replace_schema_metadata(noted))


class SortedRuns(Spilling):
    """Runs that are added by several threads, then read together. A context manager: on exit, its files are removed."""

    def __init__(self, spill: Path | None = None, most_in_memory_bytes: int = MOST_IN_MEMORY_BYTES) -> None:
        super().__init__(spill)
        self._room = most_in_memory_bytes
        self._runs: dict[int, Run] = {}
        self._lock = Lock()

    def put(self, number: int, table: pa.Table, keys: NDArray[np.int64]) -> None:
        """Keep a table as the run of this number, in the order of `keys`, which has one key for each row.

        Raises: `ResourceError` if it fits neither in memory nor on disk.
        """
        run = sort_rows(table, keys)
        assert isinstance(run.kept, pa.Table)
        if not len(run.keys):
            return
        with self._lock:
            fits = run.kept.nbytes <= self._room
            self._room -= run.kept.nbytes if fits else 0
        self._runs[number] = run if fits else self._to_files(number, run)

    def slabs(self, rows: int) -> Iterator[pa.Table]:
        """As `merge_runs`, in the order of their numbers."""
        return merge_runs([self._runs[number] for number in sorted(self._runs)], rows)

    def _to_files(self, number: int, run: Run) -> Run:
        with spill_errors(self.spill):
            rows, keys = (self.path(f"{number:05}.{kind}") for kind in ("arrow", "keys"))
            write_run(run, rows, keys)
        return run_in_files(rows, keys)
