"""Runs an analysis's work on its partitions: in threads of this process, or in processes of several machines.

Work is a function of a partition's number. It puts large results into places that it was given (`Tables`, `Runs`), and
returns small ones, which are stored in the order of the partitions. So a trace is the same whatever ran it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.execution.ordered_pool import run_in_order

Job = TypeVar("Job")
Result = TypeVar("Result")


class Tables(Protocol):
    """Keeps tables between two passes over the partitions."""

    def put(self, number: int, *tables: pa.Table) -> None:
        """Keep the tables of a partition. Raises: `ResourceError` if there is no room."""

    def look(self, number: int) -> tuple[pa.Table, ...]:
        """The tables of a partition, in the order they were put."""

    def take(self, number: int) -> tuple[pa.Table, ...]:
        """The same, for the last time."""


class Runs(Protocol):
    """Keeps sorted tables of all partitions, to be read as one."""

    def put(self, number: int, table: pa.Table, keys: NDArray[np.int64]) -> None:
        """As `external_sort.SortedRuns.put`."""

    def slabs(self, rows: int) -> Iterator[pa.Table]:
        """As `external_sort.SortedRuns.slabs`."""


class Engine(Protocol):
    """Runs work on partitions."""

    def run(
        self,
        work: Callable[[int], Result],
        parts: Iterable[int],
        store: Callable[[int, Result], None],
        *,
        at_once: int | None = None,
    ) -> None:
        """Call `work` for every part, and `store` with each result, one at a time and in the order of the parts.

        Arguments: `at_once`, the most parts in one process at a time, since they are large.
        Raises: the first exception of `work` or `store`; `ResourceError` if what runs the work is lost.
        """

    def results(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
        """What `work` returns for each job, in their order. Jobs and results may go to other processes and back.

        Raises: as `run`.
        """


class ThreadEngine:
    """Runs work in threads of this process, `workers` at a time (None: one on each core). A context manager."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def run(
        self,
        work: Callable[[int], Result],
        parts: Iterable[int],
        store: Callable[[int, Result], None],
        *,
        at_once: int | None = None,
    ) -> None:
        """As `Engine`."""
        run_in_order(self._pool, at_once or self._workers, parts, work, store)

    def results(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
        """As `Engine`."""
        return self._pool.map(work, jobs)
