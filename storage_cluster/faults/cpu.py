"""The fault of a slow processor: all processes of a host together get a share of one core.

Where the kernel lets us make a control group (root, in most containers), the host's processes go into one with a quota
(`cpu.max` of cgroup v2, `cpu.cfs_quota_us` of v1): the kernel's own throttling, in periods of 100 ms. Otherwise a
process of ours stops and continues them (SIGSTOP, SIGCONT) in periods of 50 ms: coarser, and seen by whoever looks at
process states, but the same on average for a host that is busy.

It holds for the processes that are on the host when the set of faults last changed, and for their children; a server
that is started again by that very change is missed. With the second way, processes under a `stop` fault are left out.

Source: Documentation/admin-guide/cgroup-v2.rst (cpu.max), Documentation/scheduler/sched-bwc.rst.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from storage_cluster.faults.kinds import Fault
from storage_cluster.hosts import namespaces, state
from storage_cluster.hosts.fleet import Fleet
from storage_cluster.hosts.groups import CGROUP_ROOT, group_name

PERIOD_US = 100_000


class CpuFaults:
    """The hosts with a slow processor."""

    def __init__(self, host_pids: Mapping[str, int], state_dir: Path, fleet: Fleet) -> None:
        self._host_pids = host_pids
        self._state_dir = state_dir
        self._fleet = fleet
        self._brakes: dict[str, Brake] = {}

    def apply(self, active: Sequence[Fault]) -> None:
        """Adjust all hosts to the faults in force."""
        shares = {fault.host: fault.parameters.cpu_share or 0.0 for fault in active if fault.kind == "cpu"}
        for host in sorted(self._brakes.keys() - shares.keys()):
            self._brakes.pop(host).release()
        stopped = {
            self._fleet.pid(service)
            for fault in active
            if fault.kind == "stop"
            for service in self._fleet.matching(fault.host, fault.part)
        }
        for host, share in shares.items():
            if host not in self._brakes:
                self._brakes[host] = _brake(group_name(self._state_dir, host), self._host_pids[host])
            self._brakes[host].hold(self._processes(host) - stopped, share)

    def once(self, fault: Fault) -> str:
        """Do nothing: none of these faults is momentary."""
        return ""

    def end(self) -> None:
        """Release all processes, since a control group would outlive the cluster."""
        for brake in self._brakes.values():
            brake.release()

    def _processes(self, host: str) -> set[int]:
        pid = self._host_pids[host]
        inside = state.processes_inside([namespaces.inode(pid, "net")])
        return {process.pid for process in inside} - {pid, os.getpid()}


class Brake(Protocol):
    """A method of slowing processes down."""

    def hold(self, pids: Iterable[int], share: float) -> None:
        """Limit these processes together to this share of a core."""

    def release(self) -> None:
        """Remove the limit."""


class QuotaGroup:
    """A control group with a quota: of v2 the host's own, which stays (`hosts/groups.py`); of v1 one made for it within
    the group where the host's processes are, whose limits and weight go on to hold."""

    def __init__(self, directory: Path, version: int) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._version = version

    def hold(self, pids: Iterable[int], share: float) -> None:
        """Set the quota and move the processes into the group."""
        quota_us = max(1000, round(share * PERIOD_US))  # the kernel's smallest
        if self._version == 2:
            (self._directory / "cpu.max").write_text(f"{quota_us} {PERIOD_US}", "ascii")
        else:
            (self._directory / "cpu.cfs_period_us").write_text(str(PERIOD_US), "ascii")
            (self._directory / "cpu.cfs_quota_us").write_text(str(quota_us), "ascii")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (self._directory / "cgroup.procs").write_text(str(pid), "ascii")

    def release(self) -> None:
        """Remove the quota; of v1 also the group, whose processes return to its parent."""
        if self._version == 2:
            (self._directory / "cpu.max").write_text(f"max {PERIOD_US}", "ascii")
            return
        for pid in (self._directory / "cgroup.procs").read_text("ascii").split():
            with contextlib.suppress(ProcessLookupError):
                (self._directory.parent / "cgroup.procs").write_text(pid, "ascii")
        self._directory.rmdir()


class DutyCycle:
    """A process that stops and continues others."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self, pids: Iterable[int], share: float) -> None:
        """Restart the duty cycle with these processes."""
        self.release()
        argv = [sys.executable, "-m", "storage_cluster.faults.throttle", str(share), *map(str, pids)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE)

    def release(self) -> None:
        """End the duty cycle; no process stays stopped."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def _brake(name: str, pid: int) -> Brake:
    with contextlib.suppress(OSError):
        if "cpu" in (CGROUP_ROOT / "cgroup.subtree_control").read_text("ascii").split():
            return QuotaGroup(CGROUP_ROOT / name, 2)
    with contextlib.suppress(OSError):
        parent = _cpu_group(pid)
        if (parent / "cgroup.procs").exists():
            return QuotaGroup(parent / name, 1)
    return DutyCycle()


def _cpu_group(pid: int) -> Path:
    """The v1 group of a process; the topmost if its own is not seen from here (a container without its own view)."""
    root = CGROUP_ROOT / "cpu"
    for line in Path(f"/proc/{pid}/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") and (root / path.lstrip("/")).is_dir():
            return root / path.lstrip("/")
    return root
