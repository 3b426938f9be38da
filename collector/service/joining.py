"""Joins the segments of sessions as they age: one compressed file for many (`collector.capture_files.joined`).

A day of a hundred thousand segments is then a few hundred files, a third as large, and listed in milliseconds. A joined
file holds the segments of one start of an agent that arrived within `SPAN_NS`, at most `MOST_BYTES` of them. It is
written under a temporary name, synced and renamed; then its segments are removed. Until then they count as not there
(`collector.capture_files.stored`), so a collector that is killed at any point loses and doubles nothing. A disk without
room for the joined file beside its segments delays joining, and an analysis that reads them delays their removal.

A segment that arrives later than its neighbours were joined stays as it is, between them.
Limit: retention deletes a joined file when its last segment has expired, so up to `SPAN_NS` or `MOST_BYTES` late.
"""

import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from collector.capture_files.joined import joined_name, read_segments, write_joined, write_part
from collector.capture_files.stored import StoredFile, files_twice, stored_files
from collector.service.background import Background
from collector.service.ingest import session_folders
from collector.trace.data_directory import host_folders, incarnation_folders
from tracer.connection_choice import Connection, ConnectionChoice, copy_chosen
from tracer.private_files import link_file, sync_folder, write_whole
from tracer.segments import incarnation_stem, segment_name

CHECK_SECONDS = 30.0
"""Between two looks at what may be joined."""
AGE_NS = 120_000_000_000
"""Younger segments stay as they are, beyond those of the live window: the newest are read again and again."""
SPAN_NS = 600_000_000_000
"""Longest time between the arrivals of the first and the last segment of a joined file."""
MOST_BYTES = 128 << 20
"""Of the segments of a joined file."""
LEAST_COUNT = 2
ROOM_BYTES = 256 << 20
"""Left free on the disk beside a joined file, for what arrives meanwhile."""
HEAD_LEN = 1024
_SINCE = re.compile(rb"twintap\.since=(\d+)")
"""The comment that says when the capture began: a capture that was begun anew is not joined with the one before."""
log = logging.getLogger("twintap.collector")


Exclusion = Callable[[str], AbstractContextManager[bool]]
"""A context in which no analysis of a session begins; False if one is running."""


def groups_to_join(files: Sequence[StoredFile], before_ns: int) -> list[list[StoredFile]]:
    """Segments that are to be one file each time, which no further segment may join.

    Arguments: `files` of an incarnation, in order; `before_ns`, what arrived later is left alone.
    """
    found: list[list[StoredFile]] = []
    for may_join, run in groupby(files, lambda each: not each.is_joined and each.last_ns <= before_ns):
        group: list[StoredFile] = []
        for each in run if may_join else ():
            if group and not _fits(group, each):
                found.append(group)
                group = []
            group.append(each)
        if group and group[0].first_ns < before_ns - SPAN_NS:
            found.append(group)
    return [group for group in found if len(group) >= LEAST_COUNT]


def join_segments(folder: Path, before_ns: int, exclusion: AbstractContextManager[bool]) -> int:
    """Join what is old enough in an incarnation's folder; how many segments. Raises: OSError.

    Arguments: `exclusion`, as the module's.
    """
    count = 0
    for group in groups_to_join(stored_files(folder), before_ns):
        for part in _parts_by_capture(group):
            if len(part) < LEAST_COUNT or not _has_room(folder, part):
                continue
            _write(folder, part)
            count += len(part)
    twice = files_twice(folder)
    if twice:
        with exclusion as is_free:
            for path in twice if is_free else ():
                path.unlink(missing_ok=True)
    return count


def copy_segments(folder: Path, target: Path, from_ns: int, to_ns: int) -> tuple[int, int]:
    """Have the segments of an incarnation that arrived in a time in another folder as well: by links, and of joined
    files that reach further by a copy of the part. Returns: the last number, and how many.

    Raises: OSError, FileNotFoundError if one is gone meanwhile; InputError for a damaged file.
    """
    last = count = 0
    for each in stored_files(folder):
        runs = each.runs_between(from_ns, to_ns)
        if not runs:
            continue
        target.mkdir(parents=True, exist_ok=True)
        if runs == each.runs:
            link_file(each.path, target)
        else:
            name = joined_name(incarnation_stem(folder.parent.name, folder.name), runs[0][0], runs[-1][1])
            write_durably(target / name, partial(write_part, joined=each.path, from_ns=from_ns, to_ns=to_ns))
        last = max(last, runs[-1][1])
        count += sum(end - begin + 1 for begin, end in runs)
    return last, count


def copy_packets(folder: Path, target: Path, from_ns: int, to_ns: int, only: ConnectionChoice) -> tuple[int, int]:
    """As `copy_segments`, of the packets of some connections alone; segments without any are left out."""
    files = [each for each in stored_files(folder) if each.runs_between(from_ns, to_ns)]
    connections: set[Connection] = set()
    for each in files:
        for _, _, content in read_segments(each.path, from_ns, to_ns):
            connections |= only.find(content)
    last = count = 0
    for each in files if connections else ():
        for number, arrived_ns, content in read_segments(each.path, from_ns, to_ns):
            chosen = copy_chosen(content, connections)
            if chosen is None:
                continue
            target.mkdir(parents=True, exist_ok=True)
            place = target / segment_name(incarnation_stem(folder.parent.name, folder.name), number)
            write_whole(place, chosen)
            os.utime(place, ns=(arrived_ns, arrived_ns))
            last, count = max(last, number), count + 1
    return last, count


class Joining:
    """Joins the segments of all sessions, in a thread of its own.

    Arguments: `sessions`, the folder of sessions; `live_window_seconds`, younger segments are left alone, and for
        `AGE_NS` more; `may_work`, whether this collector is to do it.
    """

    def __init__(
        self,
        sessions: Path,
        live_window_seconds: float,
        exclusion: Exclusion,
        clock: Callable[[], int] = time.time_ns,
        may_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sessions, self._exclusion, self._clock, self._may_work = sessions, exclusion, clock, may_work
        self._age_ns = AGE_NS + round(live_window_seconds * 1e9)
        self._background = Background("joining", CHECK_SECONDS, self._step_and_report)

    def start(self) -> None:
        """Begin to work."""
        self._background.start()

    def stop(self) -> None:
        """End after the incarnation that is being looked at."""
        self._background.stop()

    def step(self) -> int:
        """Join what is old enough now; how many segments."""
        return sum(self._join(*each) for each in self._incarnations()) if self._may_work() else 0

    def _incarnations(self) -> Iterator[tuple[str, Path]]:
        for session in session_folders(self._sessions):
            for host in host_folders(session):
                for folder in incarnation_folders(host):
                    if self._background.is_stopped:
                        return
                    yield session.name, folder

    def _join(self, session: str, folder: Path) -> int:
        try:
            return join_segments(folder, self._clock() - self._age_ns, self._exclusion(session))
        except FileNotFoundError:  # the session was deleted, or a segment has expired
            return 0
        except OSError as error:
            log.warning("segments of session %s are not joined: %s", session, error, extra={"session": session})
            return 0

    def _step_and_report(self) -> None:
        if count := self.step():
            log.info("%d segments were joined", count, extra={"count": count})


def write_durably(place: Path, write: Callable[[BinaryIO], int]) -> None:
    """Write a joined file durably under its final name. Raises: OSError; then nothing is left.

    Arguments: `write` writes its content, and returns when the last segment in it arrived.
    """
    temporary = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.incoming")
    try:
        with temporary.open("xb") as file:
            arrived_ns = write(file)
            file.flush()
            os.fsync(file.fileno())
        os.utime(temporary, ns=(arrived_ns, arrived_ns))
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(place.parent)


def _write(folder: Path, group: Sequence[StoredFile]) -> None:
    segments = [(each.last, each.path) for each in group]
    stem = incarnation_stem(folder.parent.name, folder.name)
    write_durably(
        folder / joined_name(stem, segments[0][0], segments[-1][0]), lambda file: write_joined(file, segments)
    )


def _fits(group: Sequence[StoredFile], each: StoredFile) -> bool:
    is_near = abs(each.last_ns - group[0].first_ns) <= SPAN_NS
    return is_near and sum(one.size_bytes for one in group) + each.size_bytes <= MOST_BYTES


def _parts_by_capture(group: Sequence[StoredFile]) -> list[list[StoredFile]]:
    """The segments by the capture that wrote them, one after the other."""
    return [list(part) for _, part in groupby(group, lambda each: _since(each.path))]


def _since(segment: Path) -> bytes:
    """The beginning of the capture, as the segment's first section says; empty if it does not."""
    with segment.open("rb") as file:
        found = _SINCE.search(file.read(HEAD_LEN))
    return found[1] if found else b""


def _has_room(folder: Path, group: Sequence[StoredFile]) -> bool:
    return shutil.disk_usage(folder).free > ROOM_BYTES + sum(each.size_bytes for each in group)
