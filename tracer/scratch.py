"""Temporary working folders of a process: removed at its end, or, if it was killed, by the next process.

Each folder is locked (flock) by its process as long as that lives. So a folder with one of our names that nobody has
locked is a leftover and may be removed; a locked one is in use, in whatever container. Between creating a folder and
locking it, another process may remove it as a leftover: then it is created again. A signal that requests an end waits
until a folder is locked, and folders still locked at the end of the process are removed then.
"""

import atexit
import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path

from tracer import interrupts

PREFIX = ".twintap-scratch-"
UPLOADS_PREFIX = "twintap-uploads-"
_OURS = (
    re.compile(re.escape(PREFIX) + r"\w{8}"),  # intermediate data of an analysis
    re.compile(re.escape(UPLOADS_PREFIX) + r"\w{8}"),  # captures that a page took
    re.compile(r"\..+\.[0-9a-f]{8}\.partial"),  # a trace, or an index, that is being written
    re.compile(r"\..+\.captures\.\d+"),  # captures that are being recorded
)
_held: dict[Path, int] = {}


class Scratch:
    """A folder of this process, as `tempfile.TemporaryDirectory` has it."""

    def __init__(self, parent: Path | None = None) -> None:
        self.name = str(make_temporary(PREFIX, parent))

    def cleanup(self) -> None:
        """Remove it."""
        shutil.rmtree(self.name, ignore_errors=True)
        release(Path(self.name))


def make_temporary(prefix: str, parent: Path | None = None) -> Path:
    """Make a folder with a random name and hold it, until `release`. Raises: OSError."""
    while True:
        with interrupts.defer_interrupts():
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            if _hold_new(folder):
                return folder


def make(folder: Path) -> None:
    """Make this folder, and those above it, and hold it, until `release`. Raises: OSError, also if it is there."""
    while True:
        with interrupts.defer_interrupts():
            folder.mkdir(parents=True)
            if _hold_new(folder):
                return


def _hold_new(folder: Path) -> bool:
    """Hold a folder that was made a moment ago; False if another process took it for a leftover and removed it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # waits for who is about to remove it
    except OSError:  # a file system without locks: nobody removes what cannot be locked
        os.close(handle)
        return True
    if not _is_at(handle, folder):
        os.close(handle)
        return False
    _held[folder.absolute()] = handle
    return True


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False


def _hold_leftover(folder: Path) -> None:
    """Hold a folder if nobody else does. Raises: OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return
    _held[folder.absolute()] = handle


def release(folder: Path) -> None:
    """It is not in use any more, or has another name."""
    handle = _held.pop(folder.absolute(), None)
    if handle is not None:
        os.close(handle)


def _remove_at_exit(process: int) -> None:
    """Remove folders that a signal kept this process from removing; a fork leaves its parent's folders alone."""
    if os.getpid() == process:
        for folder in list(_held):
            shutil.rmtree(folder, ignore_errors=True)


atexit.register(_remove_at_exit, os.getpid())


def remove_leftovers(*parents: Path) -> list[str]:
    """Remove what killed processes of this user left in these folders; a line for the operator on each."""
    return [line for parent in dict.fromkeys(parents) for folder in _ours(parent) if (line := _removal_line(folder))]


def _ours(parent: Path) -> list[Path]:
    try:
        names = os.listdir(parent)
    except OSError:
        return []
    return [parent / name for name in sorted(names) if any(pattern.fullmatch(name) for pattern in _OURS)]


def _removal_line(folder: Path) -> str:
    if folder.is_symlink() or not folder.is_dir() or folder.absolute() in _held:
        return ""
    try:
        if folder.stat().st_uid != os.getuid():
            return ""
        _hold_leftover(folder)
    except OSError:
        return ""
    if folder.absolute() not in _held:
        return ""  # somebody is at work in it
    shutil.rmtree(folder, ignore_errors=True)
    release(folder)
    return f"removed {folder}, left by a run that was killed"
