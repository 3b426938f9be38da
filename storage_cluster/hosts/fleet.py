"""Starts, stops and restarts the server processes of a cluster, for the keeper."""

import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from storage_cluster.hosts import launch, state
from storage_cluster.topology import Service, Topology

END_PATIENCE_S = 5.0
"""How long a server may take to end when asked to."""


class Fleet:
    """All servers. `on_change` is called when one has another process than before."""

    def __init__(self, topology: Topology, host_pids: Mapping[str, int], state_dir: Path) -> None:
        self._topology = topology
        self._host_pids = host_pids
        self._state_dir = state_dir
        self._processes: dict[Service, subprocess.Popen[bytes]] = {}
        self._states: dict[Service, state.ServerState] = {}
        self.on_change: Callable[[], None] = lambda: None

    @property
    def servers(self) -> tuple[state.ServerState, ...]:
        """The newest process of each server, including dead ones."""
        return tuple(self._states.values())

    def matching(self, host: str, name: str) -> tuple[Service, ...]:
        """All servers of a host, or only the one of that name."""
        return tuple(s for s in self._topology.services if s.host == host and name in ("", s.name))

    def alive(self, service: Service) -> bool:
        """Whether the server's process exists (running or stopped)."""
        return self._processes[service].poll() is None

    def pid(self, service: Service) -> int:
        """The pid of the server's newest process."""
        return self._processes[service].pid

    def start(self, services: Iterable[Service]) -> None:
        """Start servers, and wait until they listen. Raises: MissingResourceError."""
        services = tuple(services)
        for service in services:
            self._processes[service] = launch.start(service, self._host_pids[service.host], self._state_dir)
        for service in services:
            self._states[service] = launch.await_ready(self._processes[service], service, self._state_dir)
        self.on_change()

    def signal(self, service: Service, number: signal.Signals) -> None:
        """Send a signal to a server whose process exists."""
        self._processes[service].send_signal(number)

    def kill(self, service: Service) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self._processes[service].kill()
        self._processes[service].wait()

    def restart(self, services: Iterable[Service]) -> None:
        """Send SIGTERM (after a while SIGKILL), then start the server again. Raises: MissingResourceError."""
        services = tuple(services)
        for service in services:
            self.signal(service, signal.SIGTERM)
        for service in services:
            try:
                self._processes[service].wait(END_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill(service)
        self.start(services)
