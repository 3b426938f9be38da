"""The layout of a device's directories.

<device>/accounts|containers|objects[-<policy>]/<partition>/<last 3 of hash>/<hash>/   one account, container or object
         quarantined/<kind>/<hash>-<random>/                                what was found damaged
         async_pending/                                                     updates for containers, undelivered
         tmp/                                                               files in the making
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

_HASH_LEN = 32


def hash_dir(device_dir: Path, kind: str, partition: int | str, path_hash: str) -> Path:
    """The directory of one account, container or object on a device."""
    return device_dir.joinpath(kind, str(partition), path_hash[-3:], path_hash)


def hash_dirs(device_dir: Path, kind: str) -> Iterator[tuple[int, str, Path]]:
    """All accounts, containers or objects on a device: partition, hash, directory; what goes meanwhile is left out."""
    for partition in partitions(device_dir, kind):
        for suffix in suffixes(device_dir, kind, partition):
            for directory in _directories(device_dir / kind / str(partition) / suffix):
                yield partition, directory.name, directory


def object_kinds(device_dir: Path) -> list[str]:
    """The directories of a device's objects, one for each policy."""
    return [entry.name for entry in _directories(device_dir) if re.fullmatch(r"objects(-\d+)?", entry.name)]


def partitions(device_dir: Path, kind: str) -> list[int]:
    """The partitions of which a device has data."""
    return sorted(int(entry.name) for entry in _directories(device_dir / kind) if entry.name.isdigit())


def suffixes(device_dir: Path, kind: str, partition: int) -> list[str]:
    """The last three digits of the hashes that a device has in a partition."""
    return [entry.name for entry in _directories(device_dir / kind / str(partition))]


def quarantine(device_dir: Path, kind: str, directory: Path) -> None:
    """Move a damaged directory aside, where people can examine it, so that replicators bring a sound copy back."""
    aside = device_dir / "quarantined" / kind
    aside.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(directory, aside / f"{directory.name}-{uuid.uuid4().hex[:8]}")


def is_hash(text: str) -> bool:
    """Whether a name has the form of a hash directory's name."""
    return len(text) == _HASH_LEN and all(digit in "0123456789abcdef" for digit in text)


def remove_if_empty(directory: Path, levels: int = 3) -> None:
    """Remove an empty directory, and those above it (hash, suffix, partition) that it leaves empty."""
    with contextlib.suppress(OSError):
        for parent in (directory, *directory.parents)[:levels]:
            parent.rmdir()


def _directories(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as found:
            return sorted(Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
