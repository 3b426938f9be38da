"""Collectors that share a data directory: which of them does what must be done once.

    DATA/collectors/present            locked by every collector while it runs: by one alone, or shared
    DATA/collectors/chores             locked by the one that does the chores
    DATA/collectors/analyses/<session> locked by who makes a trace of the session, or removes segments that are joined
    DATA/collectors/arrivals/          which segments each has taken lately (`collector.service.arrivals`)

Any of them takes segments and reports, gives orders, opens windows and analyses a session. One does the *chores*:
joining, retention, windows, live traces and triggers. It is the first one that comes; when its process has ended,
another takes over within `TAKE_OVER_SECONDS`.

A lock is the kernel's (flock), so it ends with its process, however that ends, and none is ever stale. Who holds it is
written in the file, for the operator. On NFS a lock of a file is known to all hosts (nfs(5), `local_lock=none`); the
lock of a folder is not, so all locks are of files, which are never removed.
Limit: a collector that is stopped (SIGSTOP) keeps its locks until it goes on or is ended.
"""

import errno
import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tracer.errors import ResourceError
from tracer.segments import check_name

FOLDER = "collectors"
TAKE_OVER_SECONDS = 1.0
WAIT_SECONDS = 0.05
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
_held: list[int] = []  # descriptors that are kept until the process ends


Version = tuple[int, int, int]
"""Of a file that is replaced as a whole: another one has another."""


def file_version(path: Path) -> Version | None:
    """The version of a file; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class FileLock:
    """A lock that one of all processes may hold, on whatever host.

    Arguments: `holder`, what the file says of this process while it holds the lock.
    """

    def __init__(self, path: Path, holder: str) -> None:
        self.path, self._holder = path, holder
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether it is held here."""
        return self._handle is not None

    def take(self) -> bool:
        """Hold it; False if another one does. Raises: OSError."""
        if self._handle is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            is_mine = _flocks(handle, fcntl.LOCK_EX)
        except OSError:
            os.close(handle)
            raise
        if not is_mine:
            os.close(handle)
            return False
        with suppress(OSError):  # the disk is full: then nobody reads whose it is
            os.ftruncate(handle, 0)
            os.pwrite(handle, self._holder.encode(), 0)
        self._handle = handle
        return True

    def release(self) -> None:
        """Let another one hold it."""
        if self._handle is not None:
            with suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None

    def holder(self) -> str:
        """What its holder wrote; empty if nobody holds it."""
        try:
            return self.path.read_text("utf-8", "replace").strip()
        except OSError:
            return ""


class SharedData:
    """One of the collectors that share a data directory; safe to call from several threads."""

    def __init__(self, data: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock, self._next_try = clock, threading.Lock(), 0.0
        host, process = socket.gethostname(), os.getpid()
        self.name = f"{host}-{process}-{secrets.token_hex(3)}"
        """Of this collector; no other has it."""
        self._holder = f"host {host}, process {process}"
        self._folder = data / FOLDER
        self.arrivals = self._folder / "arrivals"
        self._chores = FileLock(self._folder / "chores", self._holder)

    @property
    def does_chores(self) -> bool:
        """Whether this collector is the one that does the chores; it becomes that if nobody is."""
        if self._chores.is_held:
            return True
        with self._lock:
            if not self._chores.is_held and self._clock() >= self._next_try:
                self._next_try = self._clock() + TAKE_OVER_SECONDS
                with suppress(OSError):
                    self._chores.take()
            return self._chores.is_held

    def chores_text(self) -> str:
        """Who does the chores, for the operator."""
        return "this collector" if self.does_chores else self._chores.holder() or "nobody"

    def session_lock(self, session: str) -> FileLock:
        """The lock of a session's analysis. Raises: InputError for what is no name."""
        return FileLock(self._folder / "analyses" / check_name("session", session), self._holder)

    def close(self) -> None:
        """Let another collector do the chores."""
        with self._lock:
            self._chores.release()


def enter_folder(data: Path, clean: Callable[[], None], *, is_shared: bool, patience_seconds: float = 10.0) -> None:
    """Use a data directory while this process lives. Call `clean` before if no other collector uses it now.

    Raises: ResourceError if another one is there, unless both share it, or where locks are missing that this needs.
    """
    (data / FOLDER).mkdir(parents=True, exist_ok=True)
    handle = os.open(data / FOLDER / "present", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _held.append(handle)
    try:
        is_alone = _flocks(handle, fcntl.LOCK_EX)
    except OSError as error:
        if is_shared:
            what = f"the file system of {data} has no locks ({error.strerror}), and --shared needs them"
            raise ResourceError(what, "mount it with locks, or give each collector a --data of its own") from None
        is_alone = True
    if is_alone:
        clean()
    elif not is_shared:
        raise _in_use(data)
    deadline = time.monotonic() + patience_seconds  # another one that has just come is cleaning
    while is_shared and not _flocks(handle, fcntl.LOCK_SH):
        if time.monotonic() >= deadline:
            raise _in_use(data)
        time.sleep(WAIT_SECONDS)


def leave_folders() -> None:
    """Use no data directory any more."""
    while _held:
        os.close(_held.pop())


def _in_use(data: Path) -> ResourceError:
    return ResourceError(f"another collector uses {data}", "give another --data, end that one, or give both --shared")


def _flocks(handle: int, kind: int) -> bool:
    """Whether this lock was to be had. Raises: OSError where the file system has none."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True
