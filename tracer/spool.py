"""Where an agent keeps the segments that its collector has not acknowledged.

    SPOOL/<collector>/<session>/<host>/<incarnation>/<host>-<incarnation>-000007.pcapng    not yet acknowledged
                                                    /sent.json           the last number ever sent, for the next agent
                                                    /sent.json.before    what it said before
                                                    /lock                held by the agent that sends from it

Each start of an agent has a folder of its own, which is removed when the collector has all of it. What an agent left is
sent by the next one on its host. Together the spools of a host are bounded: when they are full, the oldest segments are
removed and counted, and the count is reported to the operator and the collector. A segment that the collector refuses
for what it is (`….refused`) is kept for the operator as long as there is room, and is the first to be removed.

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
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from tracer.errors import DiskFullError, ResourceError
from tracer.memory_bound import DEFAULT_MIB, MemoryShares, divide_memory
from tracer.private_files import PRIVATE_UMASK, write_durably
from tracer.segments import (
    INCARNATION_PATTERN,
    incarnation_stem,
    new_incarnation,
    next_number,
    rescue_partials,
    segments,
)
from tracer.tls import SYSTEM, TlsFiles

MEMORY = Path("/dev/shm")
"""A file system in memory, where the system has one."""
DEFAULT_SHARES = divide_memory(DEFAULT_MIB << 20, 1)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

STATE_SECONDS = 5.0
"""How old the stored state of a killed agent may be, if segments were only acknowledged since."""

_SENT_FILE = "sent.json"
_BEFORE_FILE = "sent.json.before"
_LOCK_FILE = "lock"
_REFUSED_SUFFIX = ".refused"


@dataclass(frozen=True, slots=True)
class Destination:
    """The collector to which an agent sends, and the folder for segments that it does not have yet."""

    url: str  # of several collectors, separated by commas (`tracer.collector_choice`)
    session: str
    token: str
    spool: Path
    spool_limit_bytes: int
    token_file: Path | None = None
    """Where the token is read again when the collector refuses it."""
    url_file: Path | None = None
    """Where the URL is read again before a connection is opened: a bundle, or a file with it in its first line."""
    tls: TlsFiles = SYSTEM
    keep_bytes: int = 0
    """Of a flight recorder's history; 0 = all segments are sent."""
    sample_ns: int = 0
    """Of each ten seconds, what a flight recorder sends."""
    memory: MemoryShares = DEFAULT_SHARES

    @property
    def limits(self) -> "SpoolLimits":
        """Of all spools together."""
        return SpoolLimits(self.spool_limit_bytes, self.memory.overflow_bytes, self.memory.listed_count)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of its collectors in the spool. The first one takes what is captured now: the same whatever
        the order of the URLs. What earlier agents left may be in each.

        A collector that a file names may move, and what an earlier agent left is still for it.
        """
        if self.url_file is not None:
            return (quote(str(self.url_file.absolute()), safe=""),)
        names = (url.strip().split("://", 1)[-1].rstrip("/") for url in self.url.split(","))
        return tuple(quote(name, safe="") for name in sorted({name for name in names if name}))


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """What the spools of a host may hold together."""

    disk_bytes: int
    memory_bytes: int = DEFAULT_SHARES.overflow_bytes
    segments_count: int = DEFAULT_SHARES.listed_count


@dataclass(frozen=True, slots=True)
class SpoolState:
    """What must be remembered when the segments are gone."""

    last_number: int = 0  # the highest that was ever acknowledged, refused or thrown away
    lost_count: int = 0  # segments thrown away because the spool was full, or refused by the collector


class Spool:
    """The segments of one incarnation that the collector has not acknowledged.

    `folder` is on the disk; `overflow`, in memory, takes segments while that has no space.
    """

    def __init__(self, folder: Path, overflow: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.folder = folder
        self.overflow = overflow
        self.session, self.host, self.incarnation = folder.parts[-3:]
        self.stem = incarnation_stem(self.host, self.incarnation)
        self._lock: int | None = None  # descriptor of the lock file
        self._state: SpoolState | None = None
        self._stored: SpoolState | None = None
        self._stored_at = 0.0
        self.notices: list[str] = []
        """What was found damaged or unfinished in it, a line for the operator on each."""

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
            self._store()
            os.close(self._lock)
            self._lock = None
            self._state = None
        if self.overflow is not None and self.overflow.is_dir() and not self.overflow_segments():
            shutil.rmtree(self.overflow, ignore_errors=True)

    def rescue(self) -> None:
        """Keep the whole blocks of the segments that a killed agent was writing; what cannot be kept now is said."""
        for folder in (self.folder, self.overflow):
            try:
                if folder is not None and folder.is_dir():
                    self.notices += rescue_partials(folder, self.stem)
            except OSError as error:
                self.notices.append(f"what an agent was writing in {folder} cannot be kept now: {error.strerror}")

    def changed_ns(self) -> int:
        """When a file came into its folders or left them, by this host's clock. Raises: OSError."""
        folders = [folder for folder in (self.folder, self.overflow) if folder is not None]
        return max((folder.stat().st_mtime_ns for folder in folders if folder.is_dir()), default=0)

    def waiting(self) -> list[tuple[int, Path]]:
        """Return (number, path) of the segments to send, in order."""
        return sorted([*segments(self.folder, self.stem), *self.overflow_segments()])

    def overflow_segments(self) -> list[tuple[int, Path]]:
        """Return (number, path) of those of them that are in memory."""
        if self.overflow is None or not self.overflow.is_dir():
            return []
        return segments(self.overflow, self.stem)

    def state(self) -> SpoolState:
        """Return the stored state."""
        if self._state is None:
            self._state = self._stored = self._read_state()
        return self._state

    def next_number(self) -> int:
        """Return the first number that no segment ever had."""
        there = next_number(self.folder, self.stem)
        in_memory = max((number for number, _ in self.overflow_segments()), default=0) + 1
        return max(there, in_memory, self.state().last_number + 1)

    def delete(self, number: int, path: Path) -> None:
        """Delete a segment that the collector has."""
        self._note(number, lost_count=0)
        path.unlink()

    def discard(self, number: int, path: Path) -> None:
        """Delete a segment for which there is no room."""
        self._note(number, lost_count=1)
        path.unlink()

    def set_aside(self, number: int, path: Path) -> Path:
        """Keep a segment that the collector refuses for what it is, where it is not sent again; returns the place."""
        self._note(number, lost_count=1)
        return path.rename(path.with_name(path.name + _REFUSED_SUFFIX))

    def set_aside_segments(self) -> list[Path]:
        """Return the segments that were set aside."""
        folders = [folder for folder in (self.folder, self.overflow) if folder is not None and folder.is_dir()]
        return sorted(path for folder in folders for path in folder.glob(f"*{_REFUSED_SUFFIX}"))

    def remove(self) -> None:
        """Remove the spool, of which the collector has all; it stays where segments were set aside in it."""
        if not self.set_aside_segments():
            shutil.rmtree(self.folder, ignore_errors=True)
        self.close()

    def remove_empty_folders(self) -> None:
        """After `remove`: remove the folders of its host and session as well, if nothing else is in them."""
        with suppress(OSError):
            self.folder.parent.rmdir()
            self.folder.parent.parent.rmdir()

    def has_room(self, wanted_bytes: int) -> bool:
        """Whether the disk has room for so many bytes now."""
        try:
            return shutil.disk_usage(self.folder).free >= wanted_bytes
        except OSError:
            return False

    def _note(self, number: int, lost_count: int) -> None:
        before = self.state()
        self._state = SpoolState(max(before.last_number, number), before.lost_count + lost_count)
        if lost_count or not before.last_number or self._clock() - self._stored_at >= STATE_SECONDS:
            self._store()

    def _store(self) -> None:
        """Store the state on the disk, or as soon as that has room."""
        state, before = self._state, self._stored
        if state is None or state == before or not self.folder.is_dir():
            return
        try:
            write_durably(self.folder / _BEFORE_FILE, json.dumps(asdict(before or state)))
            write_durably(self.folder / _SENT_FILE, json.dumps(asdict(state)))
            self._stored, self._stored_at = state, self._clock()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise

    def _read_state(self) -> SpoolState:
        """Read the stored state; if it is damaged, repair it and say so in `notices`."""
        try:
            return _parse_state(self.folder / _SENT_FILE)
        except FileNotFoundError:
            if not (self.folder / _BEFORE_FILE).exists():
                return SpoolState()
        except ValueError:
            pass
        self.notices.append(f"{self.folder / _SENT_FILE} was damaged and is made again from what else the spool holds")
        try:
            before = _parse_state(self.folder / _BEFORE_FILE)
        except (FileNotFoundError, ValueError):
            before = SpoolState()
        known = max((number for number, _ in self.waiting()), default=0)
        # What it said before is behind, which does no harm: the collector knows what it has acknowledged.
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
    types = {"last_number": int, "lost_count": int}
    if not isinstance(document, dict) or document.keys() - types.keys():
        raise ValueError(file)
    if any(type(value) is not types[name] for name, value in document.items()):
        raise ValueError(file)
    state = SpoolState(**document)
    if state.last_number < 0 or state.lost_count < 0:
        raise ValueError(file)
    return state


def trim(spools: Sequence[Spool], limits: SpoolLimits) -> int:
    """Discard the oldest segments until all spools together are within the limits; how many.

    Arguments: `spools`, the oldest first. The newest segment stays, however low the limit is.
    """
    waiting = [(spool, number, path) for spool in spools for number, path in spool.waiting()]
    in_memory = {path for spool in spools for _, path in spool.overflow_segments()}
    on_disk = [each for each in waiting if each[2] not in in_memory]
    refused = (path for spool in spools for path in spool.set_aside_segments())
    refused_bytes = _make_room(refused, on_disk, limits.disk_bytes)
    thrown = _excess(on_disk, limits.disk_bytes - refused_bytes)
    thrown += _excess([each for each in waiting if each[2] in in_memory], limits.memory_bytes)
    too_many = max(0, len(waiting) - limits.segments_count)
    thrown += [each for each in waiting[:too_many] if each not in thrown]
    for spool, number, path in thrown:
        spool.discard(number, path)
    return len(thrown)


_Waiting = tuple[Spool, int, Path]


def _make_room(refused: Iterable[Path], waiting: Sequence[_Waiting], limit_bytes: int) -> int:
    """Remove segments that were set aside, until those that wait have room beside them; bytes of what is left."""
    sizes = {path: path.stat().st_size for path in refused}
    room = limit_bytes - sum(path.stat().st_size for _, _, path in waiting)
    for path in list(sizes):
        if sum(sizes.values()) <= room:
            break
        path.unlink()
        del sizes[path]
    return sum(sizes.values())


def _excess(waiting: Sequence[_Waiting], limit_bytes: int) -> list[_Waiting]:
    """The oldest segments beyond the limit; the newest one stays, however low the limit is."""
    sizes = [path.stat().st_size for _, _, path in waiting]
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
    """Return the spool of a new incarnation, last, after those that earlier agents of this host left for the same
    collector, the oldest first.

    Raises: ResourceError if another agent captures this host for the session, or the spool cannot be written;
    DiskFullError if it can be made neither on the disk nor in memory.
    """
    collectors = destination.folders
    folder = destination.spool / collectors[0]
    memory = memory_folder()
    parents = [destination.spool, *([] if memory is None else [memory])]
    left = []
    there = (each for name in collectors for each in _spools_of(host, [parent / name for parent in parents]))
    for found in sorted(there, key=lambda each: (each.incarnation, each.folder)):
        if found.open():
            found.rescue()
            left.append(found)
        elif found.session == destination.session:
            for opened in left:
                opened.close()
            raise ResourceError(
                f"another agent captures host {host} for session {destination.session}",
                "stop it, or give another --session or --host",
            )
    inner = Path(destination.session) / host / new_incarnation()
    return [*left, _new_spool(folder / inner, None if memory is None else memory / collectors[0] / inner)]


def _new_spool(folder: Path, overflow: Path | None) -> Spool:
    """A spool on the disk, or in memory where that is full. Raises: ResourceError, DiskFullError."""
    spool = Spool(folder, overflow)
    try:
        spool.open()
    except DiskFullError:
        if overflow is None:
            raise
        spool = Spool(overflow)
        spool.open()
    return spool


def _spools_of(host: str, roots: Sequence[Path]) -> list[Spool]:
    """All spools of a host for one collector on disk and in memory, the oldest first."""
    inner = {path.relative_to(root) for root in roots for path in root.glob(f"*/{host}/*") if path.is_dir()}
    found = []
    for place in sorted(inner, key=lambda each: (each.name, each)):
        if INCARNATION_PATTERN.fullmatch(place.name):
            folder, *in_memory = [root / place for root in roots if (root / place).is_dir()]
            found.append(Spool(folder, in_memory[0] if in_memory else None))
    return found
