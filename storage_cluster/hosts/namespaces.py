"""Namespaces: creates them, enters them, and reports why that is not possible.

As root a host is a network and a UTS (hostname) namespace. An ordinary user first becomes root of a user namespace of
its own; everything below is then the same, because the kernel gives that root every right over namespaces it owns.

Linux only. The calls go through libc, since Python has `os.unshare` and `os.setns` only from 3.12 on.

Source: unshare(2), setns(2), prctl(2), user_namespaces(7).
"""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from storage_cluster.errors import NotPermittedError

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21

_REFUSALS = (
    # sysctl, the value that forbids, what it means
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor keeps users from making network namespaces"),
    ("kernel/unprivileged_userns_clone", "0", "users may not make user namespaces here"),
    ("user/max_user_namespaces", "0", "the number of user namespaces is limited to 0"),
    ("user/max_net_namespaces", "0", "the number of network namespaces is limited to 0"),
)

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Give this process new namespaces. Raises: OSError."""
    _check(_libc.unshare(flags), "unshare")


def enter(pid: int, *kinds: str) -> None:
    """Move this process into namespaces of another (`net`, `uts`, …). Raises: OSError."""
    for kind in kinds:
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(descriptor, 0), f"setns {kind}")
        finally:
            os.close(descriptor)


def inode(pid: int | str, kind: str) -> int:
    """The number that identifies a process's namespace. Raises: OSError."""
    return os.stat(f"/proc/{pid}/ns/{kind}").st_ino


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however it ends; to be repeated after `become_root`."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent_pid:  # it ended before the call
        os._exit(1)


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0), "prctl")


def has_namespace_rights() -> bool:
    """Whether this process may make network namespaces as it is."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            return bool(effective >> _CAP_SYS_ADMIN & 1 and effective >> _CAP_NET_ADMIN & 1)
    return False


def become_root() -> bool:
    """Obtain the right to make network namespaces; True if a user namespace was needed. Raises: NotPermittedError."""
    if has_namespace_rights():
        return False
    uid, gid = os.getuid(), os.getgid()
    try:
        unshare(CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1", "ascii")
    except OSError as error:
        raise refusal(error) from None
    return True


def refusal(error: OSError) -> NotPermittedError:
    """The error that explains why hosts cannot be made here, and the next step."""
    for name, forbidding, meaning in _REFUSALS:
        try:
            value = Path("/proc/sys", name).read_text("ascii").strip()
        except OSError:
            continue
        if value == forbidding:
            return NotPermittedError(
                f"the kernel refuses network namespaces ({name.replace('/', '.')} = {value}: {meaning})",
                "run this as root, or have root change that setting",
            )
    return NotPermittedError(
        f"the kernel refuses network namespaces ({error.strerror})",
        "run this as root; in a container, start it with --privileged",
    )


def run_inside(pid: int, function: Callable[[], None]) -> None:
    """Run a function in the network namespace of another process, in a child of its own. Raises: RuntimeError."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_and_exit(pid, function, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        failure = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(failure.strip() or f"configuring ended with status {status}")


def _run_and_exit(pid: int, function: Callable[[], None], report_fd: int) -> None:
    status = 1
    try:
        enter(pid, "net")
        function()
        status = 0
    finally:  # a forked child must never return into its parent's code
        if status:
            kind, value, _ = sys.exc_info()
            os.write(report_fd, "".join(traceback.format_exception_only(kind, value)).encode())
        os._exit(status)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)
