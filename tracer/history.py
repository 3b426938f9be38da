"""What a flight recorder keeps on its host: the newest segments, within a bound, also of earlier agents of this host.

    SPOOL/.history/<collector>/<session>/<host>/<incarnation>/<host>-<incarnation>-000007.pcapng

Segments have the numbers under which they were captured, so that a trace of some of them shows where others are
missing. The oldest are deleted first: when all are larger than the limit, and when the disk has no room for the next.
They count as what they occupy on the disk, whole blocks of the file system.

A segment was completed at its file's time of change, by the host's clock, and holds packets of at most `SEGMENT_NS`
before that. So segments are found by time without reading them.
Cost: a look at one file name for each segment of the running capture; earlier ones are listed once.
Limit: if the host's clock is set back, segments from before and after lie at the same times; all of them are taken.
"""

import calendar
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracer.memory_bound import DEFAULT_MIB, divide_memory
from tracer.segments import INCARNATION_PATTERN, incarnation_stem, rescue_partials, segment_name, segments

SEGMENT_NS = 1_500_000_000
"""Longest time that the packets of a segment span: its age of 1 s, and the time until it is written."""
BLOCK_BYTES = 512
"""Unit of `st_blocks`. Source: stat(2)."""
USUAL_COUNT = divide_memory(DEFAULT_MIB << 20, 1).listed_count
HISTORY_FOLDER = ".history"
"""Beside the folders of collectors in a spool; no collector's name begins with a dot."""


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """A segment of the history."""

    incarnation: str
    number: int
    folder: Path
    stem: str
    size_bytes: int  # on the disk
    end_ns: int  # when it was completed, by the host's clock

    @property
    def path(self) -> Path:
        """Its file. Made when asked for: there may be hundreds of thousands of segments."""
        return self.folder / segment_name(self.stem, self.number)

    @property
    def begin_ns(self) -> int:
        """It holds no packet from before."""
        return self.end_ns - SEGMENT_NS


@dataclass(frozen=True, slots=True)
class HistorySpan:
    """What a history holds. Times by the host's clock; 0 = nothing yet."""

    from_ns: int  # from then on nothing was deleted
    to_ns: int
    segments_count: int
    size_bytes: int
    limit_bytes: int


class History:
    """The segments of one host. Used by one thread.

    Arguments: `folder` of the running incarnation; its siblings are those of earlier agents; limits of all segments
        together, and of their number, since their list takes memory.
    """

    def __init__(self, folder: Path, limit_bytes: int, limit_count: int = USUAL_COUNT) -> None:
        self.folder, self._limit_bytes, self._limit_count = folder, limit_bytes, limit_count
        self._host = folder.parent.name
        self._kept: list[KeptSegment] = []
        self._size_bytes = 0
        self._last_number = 0
        self._is_whole = True  # nothing was deleted
        self.notices: list[str] = []
        """What earlier agents left unfinished, a line for the operator on each."""

    def open(self) -> None:
        """Make the folder, and find what earlier agents kept. Raises: OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for earlier in sorted(path for path in self.folder.parent.iterdir() if path != self.folder):
            if not INCARNATION_PATTERN.fullmatch(earlier.name):
                continue
            stem = incarnation_stem(self._host, earlier.name)
            self.notices += rescue_partials(earlier, stem)
            for number, path in segments(earlier, stem):
                self._add(earlier.name, number, path, stem)
            with suppress(OSError):
                earlier.rmdir()  # if it is empty
        self._kept.sort(key=lambda each: (each.end_ns, each.number))
        self._is_whole = not self._kept or self._kept[0].number == 1

    def note_new(self) -> list[KeptSegment]:
        """The segments that were completed since the last call."""
        stem = incarnation_stem(self._host, self.folder.name)
        before = len(self._kept)
        while (path := self.folder / segment_name(stem, self._last_number + 1)).exists():
            self._last_number += 1
            self._add(self.folder.name, self._last_number, path, stem)
        return self._kept[before:]

    def trim(self, room_bytes: int = 0) -> int:
        """Delete the oldest segments beyond the limit, and until the disk has so much room; how many."""
        count = 0
        while len(self._kept) > 1 and (self._is_too_large() or not self._has_room(room_bytes)):
            oldest = self._kept.pop(0)
            oldest.path.unlink(missing_ok=True)
            self._size_bytes -= oldest.size_bytes
            self._is_whole = False
            count += 1
            if oldest.folder not in (self.folder, self._kept[0].folder):
                with suppress(OSError):
                    oldest.folder.rmdir()
        return count

    def between(self, from_ns: int, to_ns: int) -> list[KeptSegment]:
        """The segments that may hold packets of a time, by the host's clock; in order."""
        return [each for each in self._kept if each.end_ns >= from_ns and each.begin_ns <= to_ns]

    def span(self) -> HistorySpan:
        """What it holds."""
        if not self._kept:
            return HistorySpan(_started_ns(self.folder.name), 0, 0, 0, self._limit_bytes)
        oldest = self._kept[0]
        from_ns = min(_started_ns(oldest.incarnation), oldest.end_ns) if self._is_whole else oldest.end_ns
        return HistorySpan(from_ns, self._kept[-1].end_ns, len(self._kept), self._size_bytes, self._limit_bytes)

    def newest_first(self) -> Iterator[KeptSegment]:
        """All segments."""
        return reversed(self._kept)

    def _is_too_large(self) -> bool:
        return self._size_bytes > self._limit_bytes or len(self._kept) > self._limit_count

    def _add(self, incarnation: str, number: int, path: Path, stem: str) -> None:
        found = path.stat()
        size_bytes = max(found.st_size, found.st_blocks * BLOCK_BYTES)
        folder = path.parent
        if self._kept and self._kept[-1].folder == folder:  # one object for all of them
            incarnation, folder, stem = self._kept[-1].incarnation, self._kept[-1].folder, self._kept[-1].stem
        self._kept.append(KeptSegment(incarnation, number, folder, stem, size_bytes, found.st_mtime_ns))
        self._size_bytes += size_bytes

    def _has_room(self, room_bytes: int) -> bool:
        return not room_bytes or shutil.disk_usage(self.folder).free >= room_bytes


def _started_ns(incarnation: str) -> int:
    """When an agent was started, as its name says, to the second."""
    return calendar.timegm(time.strptime(incarnation[:15], "%Y%m%dT%H%M%S")) * 1_000_000_000
