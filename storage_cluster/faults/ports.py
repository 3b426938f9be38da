"""Faults of a server's listening port: closed (RST), or with a short accept queue.

A short queue is made by calling listen(2) again on the server's own socket, borrowed through pidfd_getfd(2): what
overflows is then what the kernel does by itself, SYNs that are dropped and connections that come up late.

Source: listen(2), pidfd_getfd(2); Documentation/networking/ip-sysctl.rst, tcp_abort_on_overflow.
"""

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator, Mapping, Sequence

from storage_cluster.faults import firewall
from storage_cluster.faults.kinds import Fault, FaultError
from storage_cluster.hosts.fleet import Fleet
from storage_cluster.servers.http.front import ACCEPT_BACKLOG
from storage_cluster.topology import Service, Topology

_SYS_PIDFD_GETFD = 438  # the same on every architecture
_libc = ctypes.CDLL(None, use_errno=True)


class ServerPorts:
    """The ports that are closed, and those with a short accept queue."""

    def __init__(self, topology: Topology, host_pids: Mapping[str, int], fleet: Fleet) -> None:
        self._topology = topology
        self._host_pids = host_pids
        self._fleet = fleet
        self._closed: dict[str, list[str]] = {}
        self._backlogs: dict[Service, int] = {}

    def apply(self, active: Sequence[Fault]) -> None:
        """Adjust all ports to the faults in force. Raises: FaultError."""
        closed: dict[str, list[str]] = {}
        for fault in active:
            if fault.kind == "refuse":
                ports = (str(service.port) for service in self._listening(fault))
                rule = f"tcp dport {{ {', '.join(ports)} }} tcp flags & (syn | ack) == syn reject with tcp reset"
                closed.setdefault(fault.host, []).append(rule)
        for host in sorted(closed.keys() | self._closed.keys()):
            if closed.get(host) != self._closed.get(host):
                rules = closed.get(host, [])
                firewall.replace(self._host_pids[host], "inet", [firewall.chain("input", rules)] if rules else [])
        self._closed = closed
        self._set_backlogs(active)

    def once(self, fault: Fault) -> str:
        """Do nothing: none of these faults is momentary."""
        return ""

    def end(self) -> None:
        """Do nothing: ports end with the cluster."""

    def _set_backlogs(self, active: Sequence[Fault]) -> None:
        wanted = {
            service: fault.parameters.backlog_count or 0
            for fault in active
            if fault.kind == "backlog"
            for service in self._listening(fault)
        }
        for service in {**self._backlogs, **wanted}:
            count = wanted.get(service, ACCEPT_BACKLOG)
            if count != self._backlogs.get(service, ACCEPT_BACKLOG) and self._fleet.alive(service):
                with _listening_socket(self._fleet.pid(service), service) as borrowed:
                    borrowed.listen(count)
        self._backlogs = wanted

    def _listening(self, fault: Fault) -> list[Service]:
        return [service for service in self._fleet.matching(fault.host, fault.part) if service.port]


@contextlib.contextmanager
def _listening_socket(pid: int, service: Service) -> Iterator[socket.socket]:
    """The listening socket of a server. Raises: FaultError if the kernel does not allow its duplication."""
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError), socket.socket(fileno=_borrow(process, int(name))) as found:
                is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_listening and found.getsockname()[1] == service.port:
                    yield found
                    return
    finally:
        os.close(process)
    raise FaultError(f"the socket of {service.host}/{service.name} cannot be reached", "it needs Linux 5.6 or newer")


def _borrow(process_fd: int, descriptor: int) -> int:
    borrowed = _libc.syscall(_SYS_PIDFD_GETFD, process_fd, descriptor, 0)
    if borrowed < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return borrowed
