"""Where an analysis runs, and where its intermediate data lies: in this process, or in a folder that several share."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from collector.decode.host_capture import ReadsCaptures, read_in_threads
from collector.decode.shared_packets import SharedReader
from collector.execution.engine import Engine, Runs, Tables, ThreadEngine
from collector.execution.external_sort import SortedRuns
from collector.execution.partition_cache import PartitionCache
from collector.execution.shared_folder import GIVE_ANOTHER, SharedRuns, SharedTables
from collector.execution.spill import spill_errors
from collector.trace.writing import RowEncoder


class Places(Protocol):
    """Where one analysis runs. A context manager: on exit, its intermediate data is removed.

    `read` reads captures; `tables` keeps what `MatchStage` leaves for `RebuildStage`, `runs` exchanges until all are
    rebuilt; `encoder` encodes rows of the trace; `spill` is where this process writes what does not fit in memory.
    """

    engine: Engine
    read: ReadsCaptures
    tables: Tables
    runs: Runs
    encoder: RowEncoder
    spill: Path | None

    def more_tables(self, name: str) -> Tables:
        """A further place for tables, of a name of its own; what is put there is in files."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class HerePlaces:
    """`Places` in this process: threads, memory, and beyond that files beside the trace."""

    def __init__(self, trace_url: str, workers: int | None = None) -> None:
        beside = Path(trace_url).parent
        self.spill = beside if "://" not in trace_url and beside.is_dir() else None
        self.read: ReadsCaptures = read_in_threads
        self.encoder = RowEncoder(trace_url)
        self._open = ExitStack()
        self.engine: Engine = self._open.enter_context(ThreadEngine(workers))
        self.tables: Tables = self._open.enter_context(PartitionCache(self.spill))
        self.runs: Runs = self._open.enter_context(SortedRuns(self.spill))

    def more_tables(self, name: str) -> Tables:
        """As `Places`."""
        return self._open.enter_context(PartitionCache(self.spill, most_in_memory_bytes=0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


class SharedPlaces:
    """`Places` in a folder that several processes share. What is in the folder, its owner removes.

    Arguments: `engine`, which runs work in these processes; `key_logs`, files with secrets of TLS.
    """

    def __init__(self, trace_url: str, folder: Path, engine: Engine, key_logs: Sequence[Path] = ()) -> None:
        self.spill: Path | None = folder
        self.engine: Engine = engine
        self.read: ReadsCaptures = SharedReader(engine, folder, key_logs)
        self.tables: Tables = SharedTables(folder)
        self.runs: Runs = SharedRuns(folder)
        self.encoder = RowEncoder(trace_url, folder)

    def more_tables(self, name: str) -> Tables:
        """As `Places`."""
        assert self.spill is not None
        with spill_errors(self.spill, GIVE_ANOTHER):
            (self.spill / name).mkdir(exist_ok=True)
        return SharedTables(self.spill / name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to release."""
