"""How much memory the system has left, and what returns it there."""

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

FILE_SYSTEMS = Path("/")
"""Where `/proc` and `/sys` are."""


MOST_KEPT_BYTES = 1 << 29
"""A process that holds no more than this keeps what stages have freed: the next stage takes it again, and to have the
system clear new pages costs more than most stages take to fill them."""


def give_back_if_much() -> None:
    """As `give_back`, between stages of one run, if the process holds more than `MOST_KEPT_BYTES` or cannot say."""
    held = held_bytes()
    if held is None or held > MOST_KEPT_BYTES:
        give_back()


def held_bytes() -> int | None:
    """Memory of this process that is in use or freed but kept, without pages of files; None if the system does not say.

    Source: Linux, Documentation/filesystems/proc.rst (statm).
    """
    for line in _lines(FILE_SYSTEMS / "proc/self/statm"):
        _, resident, of_files, *_ = map(int, line.split())
        return (resident - of_files) * mmap.PAGESIZE
    return None


def give_back() -> None:
    """Return freed memory to the system: otherwise the process would keep the arenas that a stage has grown.

    Cost: some milliseconds for each GiB.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def available_bytes() -> int | None:
    """How much more memory processes here can take without swapping: what the system has, or what the control groups
    of this process leave (a container's limit), whichever is less; None if the system does not say.

    Source: Linux, Documentation/filesystems/proc.rst (MemAvailable), admin-guide/cgroup-v2.rst and
    cgroup-v1/memory.rst.
    """
    lines = _lines(FILE_SYSTEMS / "proc/meminfo")
    of_system = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    return min([*of_system, *_left_by_groups()], default=None)


def _left_by_groups() -> Iterator[int]:
    """What the limits of this process's control group, and of those that it is in, leave."""
    for line in _lines(FILE_SYSTEMS / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = FILE_SYSTEMS / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
        most, used, files = _VERSION_1 if controllers else _VERSION_2
        group = root / path.lstrip("/")  # in a container it may be another one's name; then the root is its own
        for each in (group, *group.parents):
            limit, taken = _number(each / most), _number(each / used)
            if limit is not None and taken is not None:
                stated = (entry.split() for entry in _lines(each / "memory.stat"))
                cached = sum(int(value) for name, value in stated if name == files)
                yield max(0, limit - taken + cached)
            if each == root:
                break


_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
"""Files of a control group, and the entry of its `memory.stat` for pages of files that can be had at once."""


def _number(path: Path) -> int | None:
    """The number in a file; None for a limit that is none ("max")."""
    text = "".join(_lines(path))
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    """The lines of a file; none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
