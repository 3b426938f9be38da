"""Records rows during a run: adds them to the figures at once, and writes them to a file a few times per second.

Text is made row by row, so that no request waits while thousands of rows are formatted; compressing and writing is done
by a thread, which holds no lock on the interpreter. `state` returns figures and the file length that belongs to them.
"""

import asyncio
import contextlib
import csv
import dataclasses
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from storage_cluster.bench.results import rows
from storage_cluster.bench.results.figures import Key, Tally

FLUSH_INTERVAL_S = 0.25
TIMELINE_NAME = "timeline.csv"
TIMELINE_HEADER = (
    "time_s", "stage", "work", "operation", "operations", "failures", "retries", "bytes", "response_sum_ns",
)  # fmt: skip


@dataclasses.dataclass
class _Interval:
    operations: int = 0
    failures: int = 0
    retries: int = 0
    bytes: int = 0
    response_sum_ns: int = 0  # of those that went well


@dataclasses.dataclass(frozen=True)
class State:
    """Figures, and the length of the part of the row file from which they are computed."""

    tally: list[dict[str, object]]  # dumped
    rows_len: int  # bytes


class Recorder:
    """Records the rows of one process."""

    def __init__(self, folder: Path, client_id: str = "local") -> None:
        self.client_id = client_id
        self.tally = Tally()
        self._file = rows.RowFile.create(folder / rows.FILE_NAME)
        self._timeline: TextIO = (folder / TIMELINE_NAME).open("x", encoding="utf-8", newline="")
        self._timeline_writer = csv.writer(self._timeline)
        self._timeline_writer.writerow(TIMELINE_HEADER)
        self._lines: list[str] = []
        self._longest_s = 1
        self._seconds: dict[tuple[int, Key], _Interval] = {}
        self._thread = ThreadPoolExecutor(1, "rows")

    def add(self, row: rows.Row, interval_s: int = 1) -> None:
        """One more attempt; the timeline counts it in an interval of so many seconds."""
        self._lines.append(rows.as_line(row))
        if row.request:
            return
        self.tally.add(row)
        self._longest_s = max(self._longest_s, interval_s)
        second = row.end_ns // 1_000_000_000
        key = (second - second % interval_s, Key(row.stage, row.work, row.operation))
        interval = self._seconds.get(key)
        if interval is None:
            interval = self._seconds[key] = _Interval()
        if row.final:
            interval.operations += 1
            interval.failures += bool(row.error)
            interval.bytes += 0 if row.error else row.bytes
            interval.response_sum_ns += row.latency_ns or 0
        else:
            interval.retries += 1

    async def flush(self) -> int:
        """Write all rows so far; returns the file's length in bytes."""
        text = "".join(self._lines)
        self._lines.clear()
        ended = self._ended_seconds(all_of_them=False)
        writing = self._thread.submit(self._write, text, ended)
        return await asyncio.shield(asyncio.wrap_future(writing))  # who stops waiting must not stop the writing

    async def state(self) -> State:
        """The figures and the file's length at one moment."""
        dumped = self.tally.dump()
        return State(dumped, await self.flush())

    def close(self) -> None:
        """Write all remaining rows and close the file."""
        self._thread.shutdown()
        self._write("".join(self._lines), self._ended_seconds(all_of_them=True))
        self._lines.clear()
        self._file.close()
        self._timeline.close()

    @contextlib.asynccontextmanager
    async def flushing(self) -> AsyncIterator[None]:
        """Write periodically while the context lasts."""
        task = asyncio.create_task(self._keep_flushing())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            await self.flush()

    def _ended_seconds(self, *, all_of_them: bool) -> list[tuple[object, ...]]:
        """Lines of the timeline for intervals that get no more rows."""
        newest = max((second for second, _ in self._seconds), default=0)
        ended = [key for key in self._seconds if all_of_them or key[0] < newest - self._longest_s]
        return [(key[0], *key[1], *dataclasses.astuple(self._seconds.pop(key))) for key in sorted(ended)]

    def _write(self, text: str, timeline: list[tuple[object, ...]]) -> int:
        self._file.write(text)
        self._timeline_writer.writerows(timeline)
        self._timeline.flush()
        return self._file.written_len
