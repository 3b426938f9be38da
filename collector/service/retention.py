"""Bounds what a collector keeps: of each session the newest segments, by age and by size.

Deleted are the oldest segments by arrival, of each incarnation from its first number on, so that what has expired is
one number: everything up to it. That is noted durably before a file is removed (`expired.json`), so a collector that is
killed meanwhile never takes a deleted segment for one that is missing. A joined file (`collector.service.joining`)
expires with the last segment in it. The newest file of an incarnation stays, and a session whose trace is being made is
left alone until it is done.

A trace that was made of a session is not deleted: it needs no segments. A window (`collector.service.windows`) is kept
whole.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from collector.capture_files.stored import stored_files
from collector.service.background import Background
from collector.service.ingest import (
    EXPIRED_FILE,
    WINDOW_FILE,
    disk_errors,
    expired_up_to,
    session_folders,
)
from collector.trace.data_directory import host_folders, incarnation_folders
from tracer.errors import ResourceError
from tracer.private_files import write_durably

CHECK_SECONDS = 30.0
"""Between two looks at what has expired."""
log = logging.getLogger("twintap.collector")


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Of each session; None = no limit."""

    age_ns: int | None = None
    size_bytes: int | None = None


KEEP_ALL = RetentionLimits()


@dataclass(frozen=True, slots=True)
class Kept:
    """A segment at the collector, or a joined file of some."""

    folder: Path  # of its incarnation
    number: int  # the last one
    path: Path
    size_bytes: int
    arrived_ns: int  # the last one
    count: int = 1  # of segments


def numbers_beyond(
    kept: Iterable[Kept], limits: RetentionLimits, now_ns: int, needed_from_ns: int | None = None
) -> dict[Path, int]:
    """By folder of an incarnation, the number up to which its segments have expired.

    Arguments: `kept`, all segments of a session; `needed_from_ns`: what arrived from then on is not too old.
    """
    newest_first = sorted(kept, key=lambda each: (each.arrived_ns, each.number), reverse=True)
    last_numbers = {each.folder: each.number for each in sorted(newest_first, key=lambda each: each.number)}
    found: dict[Path, int] = {}
    size_bytes = 0
    for each in newest_first:
        size_bytes += each.size_bytes
        too_old = limits.age_ns is not None and now_ns - each.arrived_ns > limits.age_ns
        too_old &= needed_from_ns is None or each.arrived_ns < needed_from_ns
        too_much = limits.size_bytes is not None and size_bytes > limits.size_bytes
        if (too_old or too_much) and each.number < last_numbers[each.folder]:
            found[each.folder] = max(each.number, found.get(each.folder, 0))
    return found


def segments_of(session: Path) -> list[Kept]:
    """All segments in a session's folder, by the files that they are in."""
    return [
        Kept(folder, each.last, each.path, each.size_bytes, each.last_ns, each.count)
        for host in host_folders(session)
        for folder in incarnation_folders(host)
        for each in stored_files(folder)
    ]


def delete_expired(session: Path, limits: RetentionLimits, now_ns: int, needed_from_ns: int | None = None) -> int:
    """Delete what has expired of a session; how many segments. Raises: ResourceError.

    Arguments: as of `numbers_beyond`.
    """
    kept = segments_of(session)
    found = numbers_beyond(kept, limits, now_ns, needed_from_ns)
    with disk_errors(session):
        for folder, number in found.items():
            if number > expired_up_to(folder):
                write_durably(folder / EXPIRED_FILE, json.dumps({"last_number": number}))
        gone = [each for each in kept if each.number <= found.get(each.folder, 0)]
        for each in gone:
            each.path.unlink(missing_ok=True)
    needed = sum(each.count for each in gone if needed_from_ns is not None and each.arrived_ns >= needed_from_ns)
    if needed:
        words = "%d segments of session %s were deleted for their size before the trace of their period was made"
        log.warning(f"{words}; raise --keep-gib", needed, session.name, extra={"session": session.name})
    return sum(each.count for each in gone)


class Retention:
    """Keeps all sessions within the limits, in a thread of its own.

    Arguments: `sessions`, the folder of sessions; `exclusion`, a context in which no analysis of a session begins,
        False if one is running; `may_work`, whether this collector is to do it; `needed_from_ns`, by session, from
        which arrival on segments are needed, whatever their age.
    """

    def __init__(
        self,
        sessions: Path,
        limits: RetentionLimits,
        exclusion: Callable[[str], AbstractContextManager[bool]],
        clock: Callable[[], int] = time.time_ns,
        may_work: Callable[[], bool] = lambda: True,
        needed_from_ns: Callable[[str], int | None] = lambda _session: None,
    ) -> None:
        self._sessions, self._limits, self._exclusion, self._clock = sessions, limits, exclusion, clock
        self._needed_from_ns = needed_from_ns
        self._may_work = may_work
        self._background = Background("retention", CHECK_SECONDS, self._step_and_report)

    def start(self) -> None:
        """Begin to work, if there is a limit."""
        if self._limits != KEEP_ALL:
            self._background.start()

    def stop(self) -> None:
        """End after the session that is being looked at."""
        self._background.stop()

    def step(self) -> int:
        """Delete what has expired now; how many segments."""
        if not self._may_work():
            return 0
        found = (folder for folder in session_folders(self._sessions) if not (folder / WINDOW_FILE).exists())
        return sum(map(self._clean, found))

    def _clean(self, session: Path) -> int:
        try:
            with self._exclusion(session.name) as is_free:
                if not is_free:
                    return 0
                return delete_expired(session, self._limits, self._clock(), self._needed_from_ns(session.name))
        except (OSError, ResourceError) as error:
            fields = {"session": session.name}
            log.warning("what has expired of session %s cannot be deleted: %s", session.name, error, extra=fields)
            return 0

    def _step_and_report(self) -> None:
        if count := self.step():
            log.info("%d segments have expired and were deleted", count, extra={"count": count})


def limits_of(keep_hours: float | None, keep_gib: float | None) -> RetentionLimits:
    """The limits that the options of `tracer collect` give."""
    return RetentionLimits(
        None if keep_hours is None else round(keep_hours * 3600 * 1e9),
        None if keep_gib is None else round(keep_gib * (1 << 30)),
    )
