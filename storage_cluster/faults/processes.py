"""Faults of server processes: stopped, killed, started again.

`stop` is SIGSTOP: the process does nothing, while its kernel goes on accepting connections and acknowledging data for
it. `kill` is SIGKILL; when the last fault that killed a server is cleared, it is started again.
"""

import signal
from collections.abc import Sequence

from storage_cluster.faults.kinds import Fault
from storage_cluster.hosts.fleet import Fleet
from storage_cluster.topology import Service


class ProcessFaults:
    """The servers that are stopped or killed by a fault."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stopped: set[Service] = set()
        self._killed: set[Service] = set()

    def apply(self, active: Sequence[Fault]) -> None:
        """Bring all servers in line with the faults in force. Raises: MissingResourceError if one does not start."""
        killed, stopped = self._targets("kill", active), self._targets("stop", active)
        for service in killed - self._killed:
            self._fleet.kill(service)
        self._fleet.start(sorted(self._killed - killed, key=lambda service: (service.host, service.port)))
        revived, self._killed = self._killed - killed, killed
        for service in stopped - (self._stopped - revived):
            self._fleet.signal(service, signal.SIGSTOP)
        for service in self._stopped - stopped:
            self._fleet.signal(service, signal.SIGCONT)
        self._stopped = stopped

    def once(self, fault: Fault) -> str:
        """Restart."""
        if fault.kind == "restart":
            self._fleet.restart(self._fleet.matching(fault.host, fault.part))
            self._stopped -= set(self._fleet.matching(fault.host, fault.part))
        return ""

    def end(self) -> None:
        """Do nothing: the processes end with the cluster."""

    def _targets(self, kind: str, active: Sequence[Fault]) -> set[Service]:
        return {
            service
            for fault in active
            if fault.kind == kind
            for service in self._fleet.matching(fault.host, fault.part)
        }
