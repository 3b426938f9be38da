"""What an agent may do once its command line is understood: `KEPT`, and nothing else of root's power.

An agent opens packet sockets all its life: when it starts, when a collector's orders change its filter, when a disk has
room again, when an interface comes back. So CAP_NET_RAW stays, and every other capability is given up for good: it is
taken out of the bounding set, and no program that is started gains any (`no_new_privs`).

| capability | for | when |
|---|---|---|
| CAP_NET_RAW | packet sockets | always |
| CAP_DAC_OVERRIDE | files in folders of another user, as with `sudo` in your home | only where they are needed |
| CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH | `/proc` of other users' processes | with `--owners processes` |
| CAP_NET_ADMIN | to switch a card's timestamps on, and off in the end | with `--timestamps hardware` |

Whatever else an agent is to do, such as to enter other network namespaces (CAP_SYS_ADMIN), needs a line here, and is
kept only where an option asks for it.

Capabilities belong to threads: this is for the main thread, before there is another. Where the process has none, as an
ordinary user with CAP_NET_RAW by systemd's AmbientCapabilities has just that one, there is nothing to give up.

Source: capabilities(7), capset(2), prctl(2); numbers of linux/capability.h.
"""

import ctypes
import sys
import tempfile
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path


class Capability(IntEnum):
    """Those that an agent may keep."""

    DAC_OVERRIDE = 1
    DAC_READ_SEARCH = 2
    NET_ADMIN = 12
    NET_RAW = 13
    SYS_PTRACE = 19


KEPT = frozenset({Capability.NET_RAW})
"""What every agent keeps."""
FOR_PROCESSES = frozenset({Capability.DAC_READ_SEARCH, Capability.SYS_PTRACE})
"""What it takes to see which processes have other users' sockets."""
FOR_HARDWARE_TIMESTAMPS = frozenset({Capability.NET_ADMIN})
"""What it takes to set a network card."""
_VERSION_3 = 0x20080522
_HALF = 0xFFFFFFFF
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")
_STATUS = Path("/proc/thread-self/status")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def drop_capabilities(
    folders: Iterable[Path] = (), files: Iterable[Path] = (), more: frozenset[Capability] = frozenset()
) -> frozenset[Capability]:
    """Give up every capability but those that are kept; which of these the process has now.

    Arguments: `folders` that are written to and `files` that are read again; where that needs CAP_DAC_OVERRIDE, it is
        kept; `more`, what an option asks for.
    """
    if sys.platform != "linux":
        return frozenset()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    permitted = held_capabilities()
    wanted = sum(1 << each for each in KEPT | more) & permitted
    _set_capabilities(libc, wanted, permitted)
    if not all(map(_can_write, folders)) or not all(map(_can_read, files)):
        wanted |= (1 << Capability.DAC_OVERRIDE) & permitted
    _set_capabilities(libc, permitted, permitted)  # the bounding set takes CAP_SETPCAP
    for number in range(_last_capability() + 1):
        if not wanted >> number & 1:
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _set_capabilities(libc, wanted, wanted)
    now = held_capabilities()
    return frozenset(each for each in Capability if now >> each & 1)


def held_capabilities() -> int:
    """The capabilities that this thread is permitted, as bits. 0 where the kernel does not say."""
    try:
        lines = dict(line.split(":\t", 1) for line in _STATUS.read_text().splitlines() if line.startswith("Cap"))
        return int(lines["CapPrm"], 16)
    except (OSError, ValueError, KeyError):
        return 0


def _set_capabilities(libc: ctypes.CDLL, effective: int, permitted: int) -> None:
    """Of this thread. Fewer are always granted."""
    halves = ((effective & _HALF, permitted & _HALF, 0), (effective >> 32, permitted >> 32, 0))
    libc.capset(ctypes.byref(_Header(_VERSION_3, 0)), (_Data * 2)(*(_Data(*half) for half in halves)))


def _can_write(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the one that it is to be made in, with what is effective now."""
    try:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            return True
    except PermissionError:
        return False
    except (OSError, StopIteration):
        return True  # another error is reported when it is used


def _can_read(file: Path) -> bool:
    try:
        with file.open("rb"):
            return True
    except PermissionError:
        return False
    except OSError:
        return True


def _last_capability() -> int:
    try:
        return int(_LAST_CAPABILITY.read_text())
    except (OSError, ValueError):
        return 63
