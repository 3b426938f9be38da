"""Receives segments: each is durable before it is acknowledged, and stored once, whatever agents and disk do.

    DATA/sessions/<session>/<host>/<incarnation>/<host>-<incarnation>-000001.pcapng    as written by the agent
                                                /<host>-<incarnation>-000001-000600.pcapng.zst    older ones, joined
                                                /closed.json    the number of segments, once the agent has ended
                                                /expired.json   up to which number they were deleted, being too old
    DATA/sessions/<session>/live/                the trace of its newest seconds (`collector.service.live`)
    DATA/traces/<session>/                       the trace
    DATA/collectors/                             of several collectors that share it (`collector.service.shared_data`)

A segment may arrive packed (`tracer/core/packing`): it is turned back into pcapng, whose hash the agent sent, before
anything else. It is written under a temporary name, synced, and renamed; then the directory is synced. So a file with
its final name is complete and durable; an acknowledgement guarantees that. A segment sent again (because the
acknowledgement was lost) is recognised by its hash and acknowledged again, also when it was joined with others
meanwhile (`collector.service.joining`). Names are checked against `tracer.segments.NAME_PATTERN`, which allows no
separator: no name from the network leads out of DATA.
"""

import errno
import hashlib
import hmac
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from collector import _core
from collector.capture_files.joined import Run
from collector.capture_files.stored import find_hash, merged_runs, stored_files
from collector.trace.data_directory import (
    host_folders,
    incarnation_folders,
    series_folder,
    session_folder,
    trace_folder,
)
from tracer.errors import ResourceError
from tracer.segments import NAME_PATTERN, incarnation_stem, segment_name

LAST_SEGMENT_NUMBER = 999_999_999
SHOWN_MISSING_COUNT = 100
DEPTH = 4
"""Directories above a segment's that may be new: from the incarnation's up to DATA."""
PCAPNG_MAGIC = b"\n\r\r\n"

_SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")

_CLOSED_FILE = "closed.json"
EXPIRED_FILE = "expired.json"
WINDOW_FILE = "window.json"
"""In the folder of a session that is a window of another one (`collector.service.windows`)."""
CHOSEN_FILE = "chosen"
"""In the folder of an incarnation that sends chosen segments: a flight recorder keeps the others on its host."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Outcome(StrEnum):
    """The outcome of a segment that was sent."""

    STORED = "stored"  # durable now
    KNOWN = "known"  # was durable already
    CONFLICT = "conflict"  # another segment has this number
    DAMAGED = "damaged"  # its hash is not what the agent said
    TOO_LARGE = "too_large"
    NO_CAPTURE = "no_capture"  # it does not begin as pcapng does

    @property
    def acknowledged(self) -> bool:
        """Whether the agent may delete it."""
        return self in (Outcome.STORED, Outcome.KNOWN)


@dataclass(frozen=True, slots=True)
class IncarnationStatus:
    """What a session holds of one start of an agent."""

    incarnation: str
    segments_count: int
    bytes_count: int
    last_number: int  # 0 = none yet
    expired_count: int  # numbers that were deleted (`collector.service.retention`), or never came and would have been
    missing_count: int  # numbers between those and the last (or announced) one that never came
    missing: tuple[int, ...]  # the first hundred of them
    closed: bool  # the agent has ended, and all that it announced is here


@dataclass(frozen=True, slots=True)
class HostStatus:
    """What a session holds of one host."""

    host: str
    segments_count: int
    bytes_count: int
    expired_count: int
    missing_count: int
    closed: bool  # all its agents have ended, and all that they announced is here
    incarnations: tuple[IncarnationStatus, ...]  # in the order of their starts, by the host's clock


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """What a collector holds of one session."""

    session: str
    hosts: tuple[HostStatus, ...]
    analysed: bool  # there is a trace of it


@dataclass(frozen=True, slots=True)
class Closing:
    """The message of an agent that ends."""

    last_number: int
    lost_count: int = 0  # segments it could not deliver: its spool was full, or they were refused


class Upload:
    """One segment being received. A context manager: an unfinished segment leaves nothing behind."""

    def __init__(self, folder: Path, number: int, sha256: str, limit_bytes: int, *, is_packed: bool = False) -> None:
        self._number = number
        self._place = folder / segment_name(_stem(folder), number)
        self._temporary = folder / f".{self._place.name}.{uuid.uuid4().hex[:8]}.incoming"
        self._expected = sha256
        self._limit_bytes = limit_bytes
        self._is_packed = is_packed
        self._hash = hashlib.sha256()
        self._len = 0
        self._begin = b""
        self._file: BinaryIO | None = None

    def __enter__(self) -> "Upload":
        with disk_errors(self._place.parent):
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._temporary.open("xb")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            _close_quietly(self._file)
        self._temporary.unlink(missing_ok=True)

    def write(self, chunk: bytes) -> bool:
        """Take the next bytes; False if the segment is too large, and the rest need not come."""
        assert self._file is not None
        self._len += len(chunk)
        if self._len > self._limit_bytes:
            return False
        if not self._is_packed:
            self._note(chunk)
        with disk_errors(self._place.parent):
            self._file.write(chunk)
        return True

    def _note(self, content: bytes) -> None:
        """Take the next bytes of the pcapng into account."""
        self._hash.update(content)
        if len(self._begin) < len(PCAPNG_MAGIC):
            self._begin += content[: len(PCAPNG_MAGIC)]

    def finish(self) -> Outcome:
        """Check the received segment, and make it durable if it is valid."""
        if self._len > self._limit_bytes:
            return Outcome.TOO_LARGE
        if self._is_packed and (refused := self._unpack()):
            return refused
        if not hmac.compare_digest(self._hash.hexdigest(), self._expected):
            return Outcome.DAMAGED
        if not self._begin.startswith(PCAPNG_MAGIC):
            return Outcome.NO_CAPTURE
        return self._outcome_if_there() or self._store()

    def _outcome_if_there(self) -> Outcome | None:
        """The outcome of a segment whose number is stored, by itself or in a joined file; None if it is not."""
        try:
            there = _sha256(self._place)
        except FileNotFoundError:
            joined = find_hash(self._place.parent, self._number)
            if joined is None:
                return None
            there = joined.hex()
        return Outcome.KNOWN if there == self._expected else Outcome.CONFLICT

    def _unpack(self) -> Outcome | None:
        """Replace the received content by the pcapng that it was made of; the outcome if it cannot be."""
        assert self._file is not None
        with disk_errors(self._place.parent):
            self._file.flush()
            packed = self._temporary.read_bytes()
        try:
            content = _core.unpack(packed, self._limit_bytes)
        except ValueError as error:
            _, is_too_large = error.args
            return Outcome.TOO_LARGE if is_too_large else Outcome.DAMAGED
        self._note(content)
        with disk_errors(self._place.parent):
            self._file.seek(0)
            self._file.truncate()
            self._file.write(content)
        return None

    @property
    def place(self) -> Path:
        """Where the segment is once it is stored."""
        return self._place

    def _store(self) -> Outcome:
        assert self._file is not None
        with disk_errors(self._place.parent):
            self._file.flush()
            os.fsync(self._file.fileno())
            try:
                os.link(self._temporary, self._place)  # unlike a rename, it never replaces one that came meanwhile
            except FileExistsError:
                return Outcome.KNOWN if _sha256(self._place) == self._expected else Outcome.CONFLICT
            sync_directories(self._place.parent, up=DEPTH)
        return Outcome.STORED


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Within it a disk that refuses is a ResourceError, in one line."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise ResourceError(f"no space left on the disk of {folder}", "agents keep their segments") from None
        raise ResourceError(f"cannot write to {folder}: {error.strerror}", "agents keep their segments") from None


def begin_upload(folder: Path, number: int, sha256: str, *, limit_bytes: int, is_packed: bool = False) -> Upload | None:
    """Return an upload for one segment; `None` if the number or the hash cannot be one.

    Arguments: `folder` of its incarnation (`collector.trace.data_directory.incarnation_folder`).
    """
    if not 1 <= number <= LAST_SEGMENT_NUMBER or not _SHA256_PATTERN.fullmatch(sha256):
        return None
    return Upload(folder, number, sha256, limit_bytes, is_packed=is_packed)


def close_incarnation(folder: Path, closing: Closing) -> IncarnationStatus:
    """Note durably that an agent has ended and how far it counted; what is here of it.

    Arguments: `folder`, as in `begin_upload`.
    Raises: ResourceError if the disk is full.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_durably(folder / _CLOSED_FILE, json.dumps(asdict(closing)).encode())
    return incarnation_status(folder)


def sessions(data: Path) -> list[SessionStatus]:
    """Return all sessions, by name."""
    return [session_status(data, path.name) for path in session_folders(data / "sessions")]


def session_folders(root: Path) -> list[Path]:
    """Return the folders of all sessions, but for those that are being deleted."""
    return sorted(path for path in root.iterdir() if NAME_PATTERN.fullmatch(path.name)) if root.is_dir() else []


def session_status(data: Path, session: str) -> SessionStatus:
    """Return what is here of a session: no hosts if it is unknown. Raises: InputError for what is no name."""
    folder = session_folder(data, session)
    hosts = host_folders(folder)
    analysed = (trace_folder(data, session) / "trace.json").is_file()
    return SessionStatus(session, tuple(host_status(path) for path in hosts), analysed)


def delete_session(data: Path, session: str) -> bool:
    """Delete a session's segments, its trace and its series; whether there were any.

    Raises: InputError for what is no name; ResourceError if the disk refuses.
    """
    places = (session_folder(data, session), trace_folder(data, session), series_folder(data, session))
    found = [place for place in places if place.is_dir()]
    for place in found:
        with disk_errors(place):
            gone = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.deleted")
            place.rename(gone)
            shutil.rmtree(gone)
    return bool(found)


def host_status(folder: Path) -> HostStatus:
    """Return what is in a host's folder, whose name is the host's."""
    found = tuple(incarnation_status(path) for path in incarnation_folders(folder))
    return HostStatus(
        host=folder.name,
        segments_count=sum(each.segments_count for each in found),
        bytes_count=sum(each.bytes_count for each in found),
        expired_count=sum(each.expired_count for each in found),
        missing_count=sum(each.missing_count for each in found),
        closed=all(each.closed for each in found),
        incarnations=found,
    )


def incarnation_status(folder: Path) -> IncarnationStatus:
    """Return what is in an incarnation's folder."""
    found = stored_files(folder)
    gone = expired_up_to(folder)
    runs = [(max(first, gone + 1), last) for first, last in merged_runs(found) if last > gone]
    last_number = runs[-1][1] if runs else gone
    closing = _closing(folder)
    announced = max(last_number, closing.last_number if closing else 0)
    present_count = sum(last - first + 1 for first, last in runs)
    missing_count = 0 if is_chosen(folder) else announced - gone - present_count
    return IncarnationStatus(
        incarnation=folder.name,
        segments_count=sum(each.count for each in found),
        bytes_count=sum(each.size_bytes for each in found),
        last_number=last_number,
        expired_count=gone,
        missing_count=missing_count,
        missing=tuple(islice(_gaps(gone, runs, announced), min(missing_count, SHOWN_MISSING_COUNT))),
        closed=closing is not None and missing_count <= closing.lost_count,
    )


def is_chosen(folder: Path) -> bool:
    """Whether numbers that lack in an incarnation's folder are not missing: only some segments were to come."""
    return (folder / CHOSEN_FILE).exists() or (folder.parent.parent / WINDOW_FILE).exists()


def clean(data: Path, least_age_seconds: float = 0.0) -> None:
    """Remove segments that a killed collector received only in part, and the rest of what it was deleting.

    Arguments: `least_age_seconds`, for so long they have not changed, where others may be at work.
    """
    last_ns = time.time_ns() - round(least_age_seconds * 1e9)
    for path in (data / name for name in ("sessions", "traces")):
        for deleted in path.glob(".*.deleted"):
            if _changed_ns(deleted) <= last_ns:
                shutil.rmtree(deleted, ignore_errors=True)
    for path in (data / "sessions").glob("*/*/*/.*.incoming"):
        if _changed_ns(path) <= last_ns:
            path.unlink(missing_ok=True)


def _changed_ns(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime_ns
    return 0


def sync_directories(folder: Path, *, up: int) -> None:
    """Make the entries of a directory durable, and those of the directories above it that may be new."""
    for directory in [folder, *folder.parents][: up + 1]:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _stem(folder: Path) -> str:
    return incarnation_stem(folder.parent.name, folder.name)


def expired_up_to(folder: Path) -> int:
    """Return the number up to which an incarnation's segments were deleted; 0 = none."""
    try:
        return int(json.loads((folder / EXPIRED_FILE).read_bytes())["last_number"])
    except FileNotFoundError:
        return 0


def _gaps(gone: int, runs: list[Run], last: int) -> Iterator[int]:
    """The numbers above `gone` up to `last` that are in no run (ascending)."""
    expected = gone + 1
    for begin, end in [*runs, (last + 1, last + 1)]:
        yield from range(expected, begin)
        expected = end + 1


def _closing(folder: Path) -> Closing | None:
    try:
        return Closing(**json.loads((folder / _CLOSED_FILE).read_bytes()))
    except FileNotFoundError:
        return None


def _write_durably(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.incoming")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directories(path.parent, up=DEPTH)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _close_quietly(file: BinaryIO) -> None:
    try:
        file.close()
    except OSError as error:  # closing writes what is buffered; the file is thrown away
        if error.errno not in _DISK_FULL:
            raise
