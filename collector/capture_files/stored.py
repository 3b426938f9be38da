"""What is stored of a start of an agent: segments as they came, and the joined files of older ones.

A joined file appears before the segments that are in it are removed. So a segment that is also in a joined file is
passed over: a collector that was killed in between counts and reads nothing twice.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from collector.capture_files.joined import Run, numbers_between, parse_name, read_index, run_path, runs_of, summary
from tracer.errors import InputError
from tracer.segments import incarnation_stem

LAST_NS = 1 << 62
"""Later than anything arrives (2116)."""


class StoredFile(Struct, frozen=True):
    """A file of an incarnation. Times are of arrival, by the collector's clock."""

    path: Path
    size_bytes: int
    runs: tuple[Run, ...]
    first_ns: int
    last_ns: int
    is_joined: bool

    @property
    def count(self) -> int:
        """Segments in it."""
        return sum(last - first + 1 for first, last in self.runs)

    @property
    def last(self) -> int:
        """The highest number in it."""
        return self.runs[-1][1]

    def runs_between(self, from_ns: int, to_ns: int) -> tuple[Run, ...]:
        """The runs of the segments that arrived in a time."""
        if from_ns <= self.first_ns and self.last_ns <= to_ns:
            return self.runs
        if to_ns < self.first_ns or self.last_ns < from_ns:
            return ()
        return runs_of(numbers_between(self.path, from_ns, to_ns))


def stored_files(folder: Path) -> list[StoredFile]:
    """The files in an incarnation's folder, by their first numbers."""
    joined, alone, _ = _look(folder)
    return sorted([*joined, *alone], key=lambda each: each.runs)


def files_twice(folder: Path) -> list[Path]:
    """The segments of which a joined file has a copy."""
    return _look(folder)[2]


def pieces(files: Iterable[StoredFile], from_ns: int = 0, to_ns: int = LAST_NS) -> list[Path]:
    """The captures to read, in the order of numbers: of joined files those runs whose segments arrived in a time.

    Arguments: `files` of one incarnation, of one collector or several; of segments that are in two of them one is read.
    """
    found = sorted((run, each.path) for each in files for run in each.runs_between(from_ns, to_ns))
    chosen: list[Path] = []
    taken = 0
    for (first, last), path in found:
        if last > taken:
            chosen.append(run_path(path, (max(first, taken + 1), last)))
            taken = last
    return chosen


def find_hash(folder: Path, number: int) -> bytes | None:
    """The SHA-256 of a segment that is in a joined file of the folder; None if it is in none."""
    for path in folder.glob("*.zst"):
        names = parse_name(path.name)
        if names is None or not names.first <= number <= names.last:
            continue
        try:
            index = read_index(path)
        except InputError:
            continue
        place = int(np.searchsorted(index["number"], number))
        if place < len(index) and index["number"][place] == number:
            return bytes(index["sha256"][place])
    return None


def merged_runs(files: Sequence[StoredFile]) -> Iterator[Run]:
    """The runs of all files, where one ends before the next begins as one."""
    begin = end = -1
    for first, last in sorted(run for each in files for run in each.runs):
        if first != end + 1:
            if end > 0:
                yield begin, end
            begin = first
        end = last
    if end > 0:
        yield begin, end


def _look(folder: Path) -> tuple[list[StoredFile], list[StoredFile], list[Path]]:
    """The joined files of a folder, the segments beside them, and those that are in a joined file as well."""
    stem = incarnation_stem(folder.parent.name, folder.name)
    joined: list[StoredFile] = []
    found: list[tuple[int, os.DirEntry[str]]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            names = parse_name(entry.name)
            if names is None or names.stem != stem:
                continue
            if not names.is_joined:
                found.append((names.first, entry))
                continue
            status = entry.stat()
            content = summary(Path(entry.path), status)
            if content.runs:
                times = (content.first_ns, content.last_ns)
                joined.append(StoredFile(Path(entry.path), status.st_size, content.runs, *times, True))
    runs = sorted(run for each in joined for run in each.runs)
    begins = [first for first, _ in runs]
    alone, twice = [], []
    for number, entry in found:
        place = bisect_right(begins, number) - 1
        if place >= 0 and number <= runs[place][1]:
            twice.append(Path(entry.path))
            continue
        try:
            status = entry.stat()
        except FileNotFoundError:  # it was joined or has expired meanwhile
            continue
        times = (status.st_mtime_ns, status.st_mtime_ns)
        alone.append(StoredFile(Path(entry.path), status.st_size, ((number, number),), *times, False))
    return joined, alone, twice
