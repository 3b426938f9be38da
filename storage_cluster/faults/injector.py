"""Makes faults and undoes them, inside the keeper.

The faults in force are a set. Whenever it changes, each kind of effect (processes, links, …) receives the whole set and
adjusts its part of the cluster to it. So overlapping faults may begin and end in any order.
"""

import heapq
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from storage_cluster.errors import ClusterError
from storage_cluster.faults.cpu import CpuFaults
from storage_cluster.faults.disks import DiskFaults
from storage_cluster.faults.kinds import KINDS, Fault, FaultError, parse, same_place, with_defaults
from storage_cluster.faults.links import LinkFaults
from storage_cluster.faults.log import FaultLog
from storage_cluster.faults.ports import ServerPorts
from storage_cluster.faults.processes import ProcessFaults
from storage_cluster.hosts.fleet import Fleet
from storage_cluster.topology import Topology


class Effect(Protocol):
    """One part of the cluster that faults act on."""

    def apply(self, active: Sequence[Fault]) -> None:
        """Adjust this part to all faults in force. Raises: ClusterError; changes made so far remain."""

    def once(self, fault: Fault) -> str:
        """Carry out a momentary fault if it acts on this part. Returns the detail for the log. Raises: ClusterError."""

    def end(self) -> None:
        """Undo what would outlive the cluster, which is stopping."""


def effects(
    topology: Topology, state_dir: Path, switch_pid: int, host_pids: Mapping[str, int], fleet: Fleet
) -> tuple[Effect, ...]:
    """All parts of a cluster that faults act on."""
    return (
        CpuFaults(host_pids, state_dir, fleet),  # before processes: it must not continue what they stop
        ProcessFaults(fleet),
        LinkFaults(topology, switch_pid, host_pids),
        DiskFaults(topology, state_dir),
        ServerPorts(topology, host_pids, fleet),
    )


class Injector:
    """The faults of one cluster."""

    def __init__(
        self,
        state_dir: Path,
        topology: Topology,
        parts: Sequence[Effect],
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._topology = topology
        self._parts = parts
        self._monotonic_ns = monotonic_ns
        self._log = FaultLog(state_dir)
        self._planned: dict[int, Fault] = {}
        self._active: dict[int, Fault] = {}
        self._due: list[tuple[int, int, str]] = []  # (when, fault, "start" or "end")

    def carry_out(self, order: Mapping) -> dict[str, object]:
        """Carry out a caller's order; returns the answer."""
        try:
            ids = self._clear(order["ids"]) if order["order"] == "clear" else [self._add(parse(order["fault"]))]
        except ClusterError as error:
            return {"ok": False, "error": error.what, "next_step": error.next_step}
        except (KeyError, TypeError) as error:
            return {"ok": False, "error": f"not an order: {error}", "next_step": "use tracer cluster fault"}
        return {"ok": True, "ids": ids}

    def idle_s(self) -> float | None:
        """Seconds until the next fault begins or ends; None if none is planned."""
        return max(0, self._due[0][0] - self._monotonic_ns()) / 1e9 if self._due else None

    def run_due(self) -> None:
        """Begin and end the faults that are due."""
        while self._due and self._due[0][0] <= self._monotonic_ns():
            _, number, what = heapq.heappop(self._due)
            try:
                if what == "start" and number in self._planned:
                    self._start(number)
                elif what == "end" and number in self._active:
                    self._end(number, "expired")
            except ClusterError as error:  # nobody waits for an answer: it goes to the keeper's log and the record
                print(f"fault {number}: {error}", file=sys.stderr, flush=True)
                if number in self._planned or number in self._active:
                    self._forget(number, "failed")

    def end_all(self) -> None:
        """End all faults, also in the record, since the cluster stops."""
        began_ns = time.time_ns()
        for part in self._parts:
            part.end()
        for number in sorted({*self._planned, *self._active}):
            self._log.note_end(number, began_ns, "down")

    def _add(self, fault: Fault) -> int:
        fault = with_defaults(fault, self._topology)
        for number, other in {**self._planned, **self._active}.items():
            if same_place(fault, other):
                raise FaultError(
                    f"fault {number} is that already: {other.text()}", f"first: tracer cluster fault clear {number}"
                )
        number = self._log.note_planned(fault)
        self._planned[number] = fault
        if fault.after_ns:
            heapq.heappush(self._due, (self._monotonic_ns() + fault.after_ns, number, "start"))
            return number
        try:
            self._start(number)
        except ClusterError:
            self._forget(number, "failed")
            raise
        return number

    def _start(self, number: int) -> None:
        fault = self._planned.pop(number)
        began_ns = time.time_ns()
        if KINDS[fault.kind].momentary:
            detail = " ".join(filter(None, [part.once(fault) for part in self._parts]))
            self._log.note_start(number, began_ns, detail)
            self._log.note_end(number, time.time_ns(), "momentary")
            return
        self._active[number] = fault
        self._apply()
        self._log.note_start(number, began_ns)
        if fault.for_ns is not None:
            heapq.heappush(self._due, (self._monotonic_ns() + fault.for_ns, number, "end"))

    def _end(self, number: int, how: str) -> None:
        began_ns = time.time_ns()
        self._active.pop(number)
        try:
            self._apply()
        except ClusterError:
            self._log.note_end(number, began_ns, "failed")
            raise
        self._log.note_end(number, began_ns, how)

    def _forget(self, number: int, how: str) -> None:
        """Remove what exists of a fault that could not be made or undone, and record its end."""
        self._planned.pop(number, None)
        if self._active.pop(number, None) is not None:
            self._apply()
        self._log.note_end(number, time.time_ns(), how)

    def _clear(self, wanted: Sequence[int] | None) -> list[int]:
        known = sorted({*self._planned, *self._active})
        ids = known if wanted is None else list(wanted)
        for number in ids:
            if number not in known:
                raise FaultError(f"there is no fault {number}", "tracer cluster fault list shows those in force")
        for number in ids:
            if self._planned.pop(number, None) is not None:
                self._log.note_end(number, time.time_ns(), "cleared")
            else:
                self._end(number, "cleared")
        return ids

    def _apply(self) -> None:
        active = tuple(self._active.values())
        for part in self._parts:
            part.apply(active)
