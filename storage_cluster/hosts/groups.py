"""Control groups: one for each host, which counts the CPU time of all that runs there, processes that ended included.

A cluster's groups are named after its state directory, so those of two clusters are never mixed, and `tracer cluster
down` finds what a killed process left. They are made in cgroup v2, also where it stands beside v1 without a controller:
`cpu.stat` needs none. `io.stat` is there where the machine's owner has turned that controller on; we turn on nothing.
Where making a group or moving a process into it is not allowed (an ordinary user, a container with a read-only
/sys/fs/cgroup) there is none, and who wants to count must look at each process.

Source: Documentation/admin-guide/cgroup-v2.rst of the kernel (cpu.stat, io.stat, delegation),
Documentation/accounting/psi.rst (cpu.pressure).
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
_V2_ROOTS = ("", "unified")  # alone, or beside v1 as systemd's hybrid layout has it


@dataclasses.dataclass(frozen=True)
class HostGroup:
    """The group of a host."""

    directory: Path

    @classmethod
    def of(cls, state_dir: Path, host: str) -> "HostGroup | None":
        """The group, made if there is none; None where that is not allowed."""
        for root in (CGROUP_ROOT / name for name in _V2_ROOTS):
            if (root / "cgroup.controllers").exists() and os.access(root / "cgroup.procs", os.W_OK):
                directory = root / group_name(state_dir, host)
                with contextlib.suppress(OSError):
                    directory.mkdir(exist_ok=True)
                    return cls(directory)
        return None

    def processes(self) -> set[int]:
        """The processes in the group. Raises: OSError."""
        return set(map(int, (self.directory / "cgroup.procs").read_text("ascii").split()))

    def take_in(self, pids: Iterable[int]) -> None:
        """Move processes into the group; their future children start in it. Raises: OSError if that is not allowed."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (self.directory / "cgroup.procs").write_text(str(pid), "ascii")

    def cpu_ns(self) -> int:
        """CPU time used by all processes that have been in the group. Raises: OSError."""
        return 1000 * int(_values((self.directory / "cpu.stat").read_text("ascii"))["usage_usec"])

    def cpu_wait_ns(self) -> int | None:
        """Time in which a process of the group waited for a processor; None if the kernel does not count it."""
        try:
            some = (self.directory / "cpu.pressure").read_text("ascii").splitlines()[0]
        except OSError:
            return None
        return 1000 * int(some.rpartition("total=")[2])

    def disk_bytes(self) -> tuple[int, int] | None:
        """(read, written) by all processes that were ever in the group, on all disks; None if not counted."""
        try:
            lines = (self.directory / "io.stat").read_text("ascii").splitlines()
        except OSError:
            return None
        cells = [dict(cell.split("=") for cell in line.split()[1:]) for line in lines]
        return sum(int(cell.get("rbytes", 0)) for cell in cells), sum(int(cell.get("wbytes", 0)) for cell in cells)


def group_name(state_dir: Path, host: str) -> str:
    """The control group of a host, with a name that no other cluster uses."""
    return f"twintap-{hashlib.md5(str(state_dir).encode(), usedforsecurity=False).hexdigest()[:8]}-{host}"


def remove_groups(state_dir: Path) -> None:
    """Remove a cluster's groups, once its processes are gone."""
    name = group_name(state_dir, "*")
    for parent, pattern in ((CGROUP_ROOT, name), (CGROUP_ROOT / "unified", name), (CGROUP_ROOT / "cpu", f"**/{name}")):
        for directory in parent.glob(pattern):
            with contextlib.suppress(OSError):
                directory.rmdir()


def _values(text: str) -> dict[str, str]:
    """Parses lines of a name and a value."""
    return dict(line.split() for line in text.splitlines())
