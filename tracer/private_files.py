"""Writes files that only their owner may read, and small files atomically."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

PRIVATE_UMASK = 0o077
"""Files become 0600, folders 0700."""
NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK)
"""The other folder is on another disk, or this one has no links."""

_earlier: list[int] = []


def make_files_private() -> None:
    """From now on, only the owner may read what this process writes."""
    earlier = os.umask(PRIVATE_UMASK)
    if not _earlier:
        _earlier.append(earlier)


def operators_umask() -> int:
    """The umask for the operator's own programs; -1 where it was not changed."""
    return _earlier[0] if _earlier else -1


def write_durably(path: Path, content: str | bytes) -> None:
    """Write a small file, for its owner only: after a crash it has this content or the one before, never part of it.

    Raises: OSError; then the file is as it was.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def link_file(path: Path, folder: Path) -> None:
    """Have a file that does not change in another folder as well: by a link, or by a copy where links cannot be.

    Raises: OSError.
    """
    target = folder / path.name
    try:
        os.link(path, target)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        partial = target.with_name(f"{target.name}.copying")
        shutil.copy2(path, partial)
        partial.replace(target)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears when it is whole. Raises: OSError; then nothing is left."""
    partial = path.with_name(f"{path.name}.copying")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
