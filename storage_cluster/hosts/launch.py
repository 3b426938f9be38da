"""Starts one server inside its host."""

import functools
import os
import select
import subprocess
import sys
from pathlib import Path

from storage_cluster.errors import MissingResourceError
from storage_cluster.hosts import namespaces, state
from storage_cluster.topology import Service

START_PATIENCE_S = 60.0
"""How long one server may take to listen; a loaded laptop imports slowly."""
_ERROR_TAIL_LINES = 3


def start(service: Service, host_pid: int, state_dir: Path) -> subprocess.Popen[bytes]:
    """Start a server, which ends at the latest with this process."""
    logs = state_dir / "logs" / service.host
    logs.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "storage_cluster.servers", service.name, "--host", service.host]
    argv += ["--state-dir", str(state_dir), "--worker", str(service.worker)]
    with open(logs / f"{service.process_name}.err", "ab") as errors:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=functools.partial(_enter_host, host_pid, os.getpid()),  # noqa: PLW1509  no threads here
        )


def _enter_host(host_pid: int, keeper_pid: int) -> None:
    namespaces.enter(host_pid, "net", "uts")
    namespaces.die_with_parent(keeper_pid)


def await_ready(process: subprocess.Popen[bytes], service: Service, state_dir: Path) -> state.ServerState:
    """Wait until the server listens. Raises: MissingResourceError with its error output."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_PATIENCE_S)
    if not readable or process.stdout.readline().strip() != b"ready":
        log = state_dir / "logs" / service.host / f"{service.process_name}.err"
        tail = " / ".join(log.read_text("utf-8", "replace").splitlines()[-_ERROR_TAIL_LINES:])
        raise MissingResourceError(
            f"the {service.name} server on {service.host} did not start ({tail or 'no reason given'})",
            f"see {log}",
        )
    process.stdout.close()
    return state.ServerState(service.host, service.name, service.port, state.ProcessId.of(process.pid))
