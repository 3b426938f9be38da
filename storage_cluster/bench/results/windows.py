"""How a run goes over time: counts, errors by kind, percentiles and a heat map of response times, a window at a time.

A percentile here is that of the operations that ended within one window. A percentile of the whole run until then hides
what comes late: 5 s of stalls at the end of 10 minutes are less than 1 % of the operations, and no 99 % moves. An
operation that failed has no response time: it is counted by the kind of its error, and is in no percentile.

Windows are a quarter of a second, and twice as long each time that a run outgrows `WINDOWS_MAX` of them, so a run of
any length takes the same room. Response times are counted in bins whose borders are 1 % apart, so a percentile is high
by less than 1 %. Of each operation's slowest in a window, `SLOWEST_KEPT` are kept.

Rows are all those of a run, ramp-up and what ended late included. Cost: some 10 µs for a row.
"""

import dataclasses
import heapq
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import zstandard

from storage_cluster.bench.results import rows
from storage_cluster.bench.results.figures import Key
from storage_cluster.bench.results.rows import Row

NS = 1_000_000_000
FIRST_WIDTH_NS = NS // 4
WINDOWS_MAX = 360
BINS_PER_DECADE = 240
BINS_PER_ROW = 20
"""Of a percentile's bins in a row of the heat map: 12 rows a decade."""
SLOWEST_KEPT = 8
PERCENTS = (50.0, 95.0, 99.0)

Answer = TypeVar("Answer")
Slow = tuple[int, int, Row]
"""Response time in ns, a number that breaks ties, the row."""


@dataclasses.dataclass
class Cell:
    """One operation in one window."""

    operations_count: int = 0
    failures_count: int = 0
    bytes: int = 0
    longest_ns: int = 0  # of those that went well
    errors: dict[str, int] = dataclasses.field(default_factory=dict)  # kind: attempts
    bins: dict[int, int] = dataclasses.field(default_factory=dict)  # of response times: operations that went well
    slowest: list[Slow] = dataclasses.field(default_factory=list)  # a heap; the failed ones, too

    def add(self, row: Row, number: int) -> None:
        """One more attempt."""
        if row.error:
            kind = f"status_{row.status}" if row.error == "status" else row.error
            self.errors[kind] = self.errors.get(kind, 0) + 1
        if not row.final:
            return
        self.operations_count += 1
        took_ns = row.latency_ns
        if took_ns is None:
            self.failures_count += 1
        else:
            self.bytes += row.bytes
            self.longest_ns = max(self.longest_ns, took_ns)
            at = int(math.log10(max(took_ns, 1)) * BINS_PER_DECADE)
            self.bins[at] = self.bins.get(at, 0) + 1
        _keep(self.slowest, (row.response_ns, number, row))

    def merge(self, other: "Cell") -> None:
        """All of another's."""
        self.operations_count += other.operations_count
        self.failures_count += other.failures_count
        self.bytes += other.bytes
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        for at, count in other.bins.items():
            self.bins[at] = self.bins.get(at, 0) + count
        for slow in other.slowest:
            _keep(self.slowest, slow)

    def percentile_ns(self, percent: float) -> int | None:
        """By nearest rank, at most 1 % too high; None if nothing went well."""
        count = sum(self.bins.values())
        rank, seen = max(math.ceil(percent * count / 100 - 1e-9), 1), 0
        for at in sorted(self.bins):
            seen += self.bins[at]
            if seen >= rank:
                return min(round(10 ** ((at + 1) / BINS_PER_DECADE)), self.longest_ns)
        return None


class Windows:
    """A run's windows, from the run's start on."""

    def __init__(self, origin_ns: int) -> None:
        self.origin_ns = origin_ns
        self.width_ns = FIRST_WIDTH_NS
        self.last_end_ns = origin_ns
        self.cells: dict[tuple[int, Key], Cell] = {}
        self._numbers = itertools.count()

    def add(self, row: Row) -> None:
        """One more attempt, in the window in which it ended; one of several requests of an operation is left out."""
        if row.request:
            return
        self.last_end_ns = max(self.last_end_ns, row.end_ns)
        while self.last_end_ns - self.origin_ns >= self.width_ns * WINDOWS_MAX:
            self._widen()
        at = max(row.end_ns - self.origin_ns, 0) // self.width_ns, Key(row.stage, row.work, row.operation)
        cell = self.cells.get(at)
        if cell is None:
            cell = self.cells[at] = Cell()
        cell.add(row, next(self._numbers))

    def operations(self) -> list[Key]:
        """The operations, in the order in which they began."""
        return list(dict.fromkeys(key for _, key in self.cells))

    def total(self, keys: Sequence[Key], begin: int, end: int) -> Cell:
        """Some operations in the windows from `begin` to before `end`."""
        made = Cell()
        for (at, key), cell in self.cells.items():
            if begin <= at < end and key in keys:
                made.merge(cell)
        return made

    def _widen(self) -> None:
        self.width_ns *= 2
        narrow, self.cells = self.cells, {}
        for (at, key), cell in narrow.items():
            self.cells.setdefault((at // 2, key), Cell()).merge(cell)


def describe(windows: Windows, chosen: Callable[[Key], bool], until_ns: int) -> dict[str, object]:
    """The chosen operations for a page: lists with a value for each window until `until_ns` (wall clock).

    A rate is per second of the part of its window that is over. Absent values are None, never 0.
    """
    width_ns = windows.width_ns
    keys = [key for key in windows.operations() if chosen(key)]
    lasted_ns = max(until_ns, windows.last_end_ns) - windows.origin_ns
    count = max(math.ceil(lasted_ns / width_ns), *(at + 1 for at, _ in windows.cells), 1)
    columns: list[dict[Key, Cell]] = [{} for _ in range(count)]
    for (at, key), cell in windows.cells.items():
        if key in keys:
            columns[at][key] = cell
    spans_s = [min(width_ns, lasted_ns - at * width_ns) / NS for at in range(count)]
    if spans_s[-1] == 0 or (count > 1 and spans_s[-1] * 2 * NS < width_ns):
        spans_s[-1] = math.nan  # too short for a rate
    whole = [_sum(column.values()) for column in columns]
    kinds = sorted({kind for cell in whole for kind in cell.errors})
    return {
        "width_s": width_ns / NS,
        "duration_s": lasted_ns / NS,
        "operations": [_series(key, columns, spans_s) for key in keys],
        "errors": {kind: [cell.errors.get(kind, 0) for cell in whole] for kind in kinds},
        "percentiles_ns": {f"{percent:g}": [cell.percentile_ns(percent) for cell in whole] for percent in PERCENTS},
        "heat": _heat(whole),
    }


def slowest(windows: Windows, chosen: Callable[[Key], bool], begin_s: float, end_s: float, limit: int) -> list[Row]:
    """The operations that ended between two times (since the start) and took longest, or longest until they failed."""
    width_s = windows.width_ns / NS
    keys = [key for key in windows.operations() if chosen(key)]
    found: list[Slow] = []
    for at in range(math.floor(begin_s / width_s + 1e-6), math.ceil(end_s / width_s - 1e-6)):
        for key in keys:
            if (at, key) in windows.cells:
                found += windows.cells[at, key].slowest
    return [row for _, _, row in heapq.nlargest(limit, found)]


class RunReader:
    """Keeps a run's windows up to date with its files of rows, also while they are written. Safe among threads."""

    def __init__(self, folder: Path, origin_ns: int) -> None:
        self.windows = Windows(origin_ns)
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._lock = threading.Lock()

    def read(self, ask: Callable[[Windows], Answer]) -> Answer:
        """What `ask` makes of the windows, with all rows that are there now."""
        with self._lock:
            for file in [self._folder / rows.FILE_NAME, *self._folder.glob(f"*/{rows.FILE_NAME}")]:
                if file.exists():
                    for row in self._new_rows(file):
                        self.windows.add(row)
            return ask(self.windows)

    def _new_rows(self, file: Path) -> Iterator[Row]:
        with file.open("rb") as stream:
            stream.seek(self._offsets.get(file, 0))
            held = stream.read()
        while held:
            frame = zstandard.ZstdDecompressor().decompressobj()
            try:
                text = frame.decompress(held)
            except zstandard.ZstdError:
                return
            if not frame.eof:
                return  # is being written
            self._offsets[file] = self._offsets.get(file, 0) + len(held) - len(frame.unused_data)
            held = frame.unused_data
            yield from map(rows.from_line, _without_header(text.decode("utf-8").splitlines()))


def _without_header(lines: list[str]) -> list[str]:
    return lines[1:] if lines and lines[0].startswith("idx\t") else lines


def _keep(heap: list[Slow], slow: Slow) -> None:
    if len(heap) < SLOWEST_KEPT:
        heapq.heappush(heap, slow)
    elif slow > heap[0]:
        heapq.heapreplace(heap, slow)


def _sum(cells: Iterable[Cell]) -> Cell:
    made = Cell()
    for cell in cells:
        made.merge(cell)
    return made


def _rate(count: int, span_s: float) -> float | None:
    return None if math.isnan(span_s) else round(count / span_s, 3)


def _series(key: Key, columns: Sequence[dict[Key, Cell]], spans_s: Sequence[float]) -> dict[str, object]:
    cells = [column.get(key, Cell()) for column in columns]
    pairs = list(zip(cells, spans_s, strict=True))
    return {
        **key._asdict(),
        "rate": [_rate(cell.operations_count - cell.failures_count, span) for cell, span in pairs],
        "bytes_rate": [_rate(cell.bytes, span) for cell, span in pairs],
        "percentiles_ns": {f"{percent:g}": [cell.percentile_ns(percent) for cell in cells] for percent in PERCENTS},
    }


def _heat(cells: Sequence[Cell]) -> dict[str, object]:
    """The heat map: the lower border of its lowest row, the ratio of neighbouring borders, counts [window][row]."""
    found = [at // BINS_PER_ROW for cell in cells for at in cell.bins]
    low, high = min(found, default=0), max(found, default=-1)
    columns = []
    for cell in cells:
        counts = [0] * (high - low + 1)
        for at, count in cell.bins.items():
            counts[at // BINS_PER_ROW - low] += count
        columns.append(counts)
    per_decade = BINS_PER_DECADE / BINS_PER_ROW
    return {"low_ns": 10 ** (low / per_decade), "ratio": 10 ** (1 / per_decade), "counts": columns}
