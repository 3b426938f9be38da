"""Where an agent keeps the segments that its collector has not acknowledged.

    SPOOL/<collector>/<session>/<host>/<host>-000007.pcapng    not yet acknowledged
                                      /sent.json               the last number ever sent, for the next agent
                                      /sent.json.before        what it said before
                                      /lock                    held by the agent that captures into it

A spool is bounded: when it is full, the oldest segments are removed and counted, and the count is reported to the
operator and the collector.

A full disk does not end an agent. It keeps its state in memory until that can be written, and segments go to a folder
of the same layout in memory (`MEMORY`), with its own limit, until the disk has room. State files are written so that a
crash leaves either the new or the old text; a file that is damaged nevertheless is repaired from the previous one and
from the existing segments.
"""

import errno
import fcntl
import json
import os
import shutil
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import quote

from tracer.errors import DiskFullError, ResourceError
from tracer.private_files import PRIVATE_UMASK, write_durably
from tracer.segments import next_number, segments

MEMORY = Path("/dev/shm")
"""A file system in memory, where the system has one."""
MEMORY_LIMIT_BYTES = 64 << 20
"""Of segments that wait there."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

_SENT_FILE = "sent.json"
_BEFORE_FILE = "sent.json.before"
_LOCK_FILE = "lock"


@dataclass(frozen=True, slots=True)
class Destination:
    """The collector to which an agent sends, and the folder for segments that it does not have yet."""

    url: str
    session: str
    token: str
    spool: Path
    spool_limit_bytes: int


@dataclass(frozen=True, slots=True)
class SpoolState:
    """What must be remembered when the segments are gone."""

    last_number: int = 0  # the highest that was ever acknowledged or thrown away
    lost_count: int = 0  # segments thrown away because the spool was full
    closed: bool = False  # the collector knows that this was all


class Spool:
    """The segments of one host and session that the collector has not acknowledged.

    `folder` is on the disk; `overflow`, in memory, takes segments while that has no space.
    """

    def __init__(self, folder: Path, limit_bytes: int, overflow: Path | None = None) -> None:
        self.folder = folder
        self.overflow = overflow
        self.host = folder.name
        self.session = folder.parent.name
        self._limit_bytes = limit_bytes
        self._lock: int | None = None  # descriptor of the lock file
        self._state: SpoolState | None = None
        self.repaired = ""
        """What was found damaged, for the operator."""

    def open(self) -> bool:
        """Take the spool for this process; False if another agent has it. Raises: ResourceError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / _LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            return False
        except OSError as error:
            raise spool_error(self.folder, error) from None
        return True

    def close(self) -> None:
        """Release the spool, so that another agent may take it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            self._state = None
        if self.overflow is not None and self.overflow.is_dir() and not self._overflow_segments():
            shutil.rmtree(self.overflow, ignore_errors=True)

    def waiting(self) -> list[tuple[int, Path]]:
        """Return (number, path) of the segments to send, in order."""
        return sorted([*segments(self.folder, self.host), *self._overflow_segments()])

    def state(self) -> SpoolState:
        """Return the stored state."""
        if self._state is None:
            self._state = self._read_state()
        return self._state

    def next_number(self) -> int:
        """Return the first number that no segment ever had."""
        there = next_number(self.folder, self.host)
        in_memory = max((number for number, _ in self._overflow_segments()), default=0) + 1
        return max(there, in_memory, self.state().last_number + 1)

    def skip_to(self, last_number: int) -> None:
        """Number new segments above this one: the collector has those up to it."""
        state = self.state()
        self._remember(replace(state, last_number=max(state.last_number, last_number)))

    def note_closed(self) -> None:
        """Record that the collector was notified of the end; a new segment undoes this."""
        self._remember(replace(self.state(), closed=True))

    def is_unfinished(self) -> bool:
        """Whether the collector still lacks segments or the notice that the session is closed."""
        state = self.state()
        return bool(self.waiting()) or (state.last_number > 0 and not state.closed)

    def delete(self, number: int, path: Path) -> None:
        """Delete a segment that the collector has."""
        state = self.state()
        self._remember(replace(state, last_number=max(state.last_number, number), closed=False))
        path.unlink()

    def trim(self) -> int:
        """Discard the oldest segments until the spool is within its limits; returns how many."""
        on_disk = _excess(segments(self.folder, self.host), self._limit_bytes)
        thrown = [*on_disk, *_excess(self._overflow_segments(), MEMORY_LIMIT_BYTES)]
        for number, path in thrown:
            state = self.state()
            self._remember(SpoolState(max(state.last_number, number), state.lost_count + 1))
            path.unlink()
        return len(thrown)

    def has_room(self, wanted_bytes: int) -> bool:
        """Whether the disk has room for so many bytes now."""
        try:
            return shutil.disk_usage(self.folder).free >= wanted_bytes
        except OSError:
            return False

    def _overflow_segments(self) -> list[tuple[int, Path]]:
        if self.overflow is None or not self.overflow.is_dir():
            return []
        return segments(self.overflow, self.host)

    def _remember(self, state: SpoolState) -> None:
        """Store the state in memory, and on the disk as soon as that has room."""
        before = self._state
        self._state = state
        try:
            if before is not None and (self.folder / _SENT_FILE).exists():
                write_durably(self.folder / _BEFORE_FILE, json.dumps(asdict(before)))
            write_durably(self.folder / _SENT_FILE, json.dumps(asdict(state)))
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise

    def _read_state(self) -> SpoolState:
        """Read the stored state; if it is damaged, repair it and say so in `repaired`."""
        try:
            return _parse_state(self.folder / _SENT_FILE)
        except FileNotFoundError:
            if not (self.folder / _BEFORE_FILE).exists():
                return SpoolState()
        except ValueError:
            pass
        self.repaired = f"{self.folder / _SENT_FILE} was damaged and is made again from what else the spool holds"
        try:
            before = _parse_state(self.folder / _BEFORE_FILE)
        except (FileNotFoundError, ValueError):
            before = SpoolState()
        known = max((number for number, _ in self.waiting()), default=0)
        # What it said before is at most one segment behind.
        last_number = before.last_number + 1 if before.last_number else max(0, known - 1)
        return SpoolState(last_number, before.lost_count)


def spool_error(folder: Path, error: OSError) -> ResourceError:
    """The error for a spool that cannot be used."""
    what = f"cannot write to the spool {folder}: {error.strerror}"
    if error.errno in DISK_FULL:
        return DiskFullError(what, "free some space, or choose another with --spool")
    return ResourceError(what, "choose another with --spool")


def _parse_state(file: Path) -> SpoolState:
    """Raises: FileNotFoundError; ValueError for what is no state."""
    document = json.loads(file.read_bytes())
    types = {"last_number": int, "lost_count": int, "closed": bool}
    if not isinstance(document, dict) or document.keys() - types.keys():
        raise ValueError(file)
    if any(type(value) is not types[name] for name, value in document.items()):
        raise ValueError(file)
    state = SpoolState(**document)
    if state.last_number < 0 or state.lost_count < 0:
        raise ValueError(file)
    return state


def _excess(waiting: list[tuple[int, Path]], limit_bytes: int) -> list[tuple[int, Path]]:
    """The oldest segments beyond the limit; the newest one stays, however low the limit is."""
    sizes = [path.stat().st_size for _, path in waiting]
    excess_bytes = sum(sizes) - limit_bytes
    thrown = []
    for segment, size in zip(waiting[:-1], sizes, strict=False):
        if excess_bytes <= 0:
            break
        excess_bytes -= size
        thrown.append(segment)
    return thrown


def default_spool() -> Path:
    """Return the directory for spools if none is given."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "twintap" / "spool"


def memory_folder() -> Path | None:
    """Where this user's agents keep segments in memory; None where there is no such place, or another user has it."""
    folder = MEMORY / f"twintap-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & PRIVATE_UMASK
    return folder if is_ours else None


def open_spools(destination: Destination, host: str) -> list[Spool]:
    """Return this capture's spool, last, after those that earlier agents of this host left for the same collector.

    Raises: ResourceError if another agent has this capture's spool, or it cannot be written; DiskFullError if it can be
    made neither on the disk nor in memory.
    """
    collector = quote(destination.url.split("://", 1)[-1].rstrip("/"), safe="")
    folder = destination.spool / collector / destination.session / host
    limit_bytes = destination.spool_limit_bytes
    memory = memory_folder()
    overflow = memory / collector / destination.session / host if memory is not None else None
    spool = Spool(folder, limit_bytes, overflow)
    try:
        opened = spool.open()
    except DiskFullError:
        if overflow is None:
            raise
        spool = Spool(overflow, MEMORY_LIMIT_BYTES)
        opened = spool.open()
    if not opened:
        raise ResourceError(
            f"another agent captures host {host} for session {destination.session}",
            "stop it, or give another --session or --host",
        )
    others = (path for path in sorted(folder.parents[1].glob(f"*/{host}")) if path != folder)
    left = [found for path in others if (found := Spool(path, limit_bytes)).is_unfinished() and found.open()]
    return [*left, spool]
