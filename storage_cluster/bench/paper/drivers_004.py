"""Runs a workload from drivers on several hosts of a cluster, as document 004 did: a controller and its drivers.

Each host without services gets a driver, the client host the controller, too. They are the commands that anybody would
start there (`tracer bench driver`, `controller`, `submit`); the run's folder is the controller's.
"""

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from storage_cluster import topology as topologies
from storage_cluster.bench.distributed.token import VARIABLE as TOKEN_VARIABLE
from storage_cluster.bench.errors import RunError
from storage_cluster.hosts import cluster

DRIVER_PORT, CONTROLLER_PORT = 18088, 19088
_PATIENCE_S = 60.0
_TRACER = (sys.executable, "-m", "tracer", "bench")


def run(state_dir: Path, argv: Sequence[str], where: Path) -> None:
    """Run a workload (`submit`'s arguments) on all drivers into a folder. Raises: ClusterError."""
    status = cluster.status(state_dir)
    hosts = topologies.load(state_dir / "topology.toml").hosts
    environment = os.environ | status.environment | {TOKEN_VARIABLE: secrets.token_hex(16)}
    data = where.with_name(f"{where.name}.controller")
    data.mkdir(parents=True)
    drivers = {host.name: f"{host.address}:{DRIVER_PORT}" for host in hosts if not host.services}
    controller = f"127.0.0.1:{CONTROLLER_PORT}"
    with contextlib.ExitStack() as ending:
        for host, address in drivers.items():
            command = ("driver", "--name", host, "--listen", address, "--data", str(data / f"driver-{host}"))
            ending.enter_context(_server([*status.host(host).enter, *_TRACER, *command], environment))
        listed = (part for address in drivers.values() for part in ("--driver", address))
        enter = status.host(status.client_host).enter
        controlling = ("controller", "--listen", controller, "--data", str(data / "runs"), *listed)
        ending.enter_context(_server([*enter, *_TRACER, *controlling], environment))
        store = ("--auth", environment["ST_AUTH"], "--user", environment["ST_USER"], "--key", environment["ST_KEY"])
        _submit([*enter, *_TRACER, "submit", f"http://{controller}", *argv, *store, "--wait"], environment)
    (made,) = (data / "runs").iterdir()
    made.rename(where)


@contextlib.contextmanager
def _server(argv: Sequence[str], environment: dict[str, str]) -> Iterator[None]:
    """A server of ours, from when it says where it listens until the end of the context. Raises: RunError."""
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        if "http://" not in process.stdout.readline():
            raise RunError(f"{argv[-1]} did not start", "try again")
        yield
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _submit(argv: Sequence[str], environment: dict[str, str]) -> None:
    """Submit a run and wait for its end; drivers may need a moment to answer. Raises: RunError."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if time.monotonic() > until_s or done.stdout.strip():
            last = (done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["it said nothing"])[-1]
            raise RunError(f"the drivers' run did not end ({last})", "see why, then run it again")
        time.sleep(1.0)
