"""The keeper: the one process above all hosts and servers of a cluster.

    tracer cluster up ──starts──▶ keeper ──▶ holder of each host (a sleeping process that keeps its namespaces alive)
                      ◀─one line── keeper ──▶ server processes, each inside its host

Whatever ends the keeper, SIGKILL included, ends them all: each child asks the kernel to be killed with its parent, and
namespaces go with their last process. Until all is up, the same holds between `up` and the keeper. So a start that
fails half way, or is interrupted, needs no clean-up code to be clean.

It says how the start went in one JSON line on the descriptor it was given: {"ok": true}, or {"error", "next_step",
"kind"}.
"""

import argparse
import contextlib
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from storage_cluster import topology as topologies
from storage_cluster.errors import ClusterError, MissingResourceError, NotPermittedError
from storage_cluster.hosts import namespaces, network, state
from storage_cluster.topology import Service

START_PATIENCE_S = 60.0
"""How long one server may take to listen; a loaded laptop imports slowly."""
END_GRACE_S = 3
SWITCH = "switch"
_ERROR_TAIL_LINES = 3


def main() -> None:
    """Bring the cluster up, say so, and keep it until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--report-fd", type=int, required=True)
    parser.add_argument("--starter-pid", type=int, required=True)
    options = parser.parse_args()
    namespaces.die_with_parent(options.starter_pid)
    _on_signals(_stop)
    try:
        _bring_up(options.state_dir, options.starter_pid)
        namespaces.outlive_parent()
        if _report(options.report_fd, {"ok": True}):
            _keep()
    except ClusterError as error:
        kind = "privilege" if isinstance(error, NotPermittedError) else "resource"
        _report(options.report_fd, {"error": error.what, "next_step": error.next_step, "kind": kind})
        sys.exit(1)
    finally:
        (options.state_dir / state.STATE_FILE).unlink(missing_ok=True)
        _end_children()


def _bring_up(state_dir: Path, starter_pid: int) -> None:
    topology = topologies.load(state_dir / "topology.toml")
    own_net = namespaces.inode("self", "net")
    in_user_namespace = namespaces.become_root()
    namespaces.die_with_parent(starter_pid)
    switch = _hold(SWITCH, own_net)
    hosts = {host.name: _hold(host.name, own_net) for host in topology.hosts}
    try:
        network.connect(topology, switch, hosts)
    except RuntimeError as error:
        raise MissingResourceError(
            f"the kernel refused a part of the network ({error})",
            "it needs the modules veth, bridge and sch_tbf: try `modprobe -a veth bridge sch_tbf` as root",
        ) from None
    servers = tuple(_start(service, hosts[service.host], state_dir) for service in topology.services)
    running = state.ClusterState(
        keeper=state.ProcessId.of(os.getpid()),
        in_user_namespace=in_user_namespace,
        switch=_host_state(SWITCH, "", switch),
        hosts=tuple(_host_state(host.name, host.address, hosts[host.name]) for host in topology.hosts),
        servers=tuple(_await_ready(process, service, state_dir) for process, service in servers),
    )
    state.save(running, state_dir)


def _host_state(name: str, address: str, pid: int) -> state.HostState:
    return state.HostState(name, address, state.ProcessId.of(pid), namespaces.inode(pid, "net"))


def _hold(name: str, outer_net_inode: int) -> int:
    """Fork a process into namespaces of its own, where it sleeps; its pid once they exist."""
    reading, writing = os.pipe()
    keeper_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_holder(name, keeper_pid, writing)
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:
        failed = pipe.read()
    if failed:
        raise namespaces.refusal(OSError(int(failed), os.strerror(int(failed))))
    assert namespaces.inode(pid, "net") != outer_net_inode, "a host must not be the machine itself"
    return pid


def _become_holder(name: str, keeper_pid: int, report_fd: int) -> None:
    try:
        namespaces.unshare(namespaces.CLONE_NEWNET | namespaces.CLONE_NEWUTS)
    except OSError as error:
        os.write(report_fd, str(error.errno).encode())
        os._exit(1)
    socket.sethostname(name)
    os.chdir("/")
    program = shutil.which("sleep") or "sleep"
    _on_signals(signal.SIG_DFL)
    namespaces.die_with_parent(keeper_pid)
    os.execv(program, [f"twintap-{name}", "infinity"])  # closes the pipe: that is the sign of success


def _start(service: Service, host_pid: int, state_dir: Path) -> tuple[subprocess.Popen[bytes], Service]:
    logs = state_dir / "logs" / service.host
    logs.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "storage_cluster.servers", service.name, "--host", service.host]
    argv += ["--state-dir", str(state_dir)]
    with open(logs / f"{service.name}.err", "wb") as errors:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=functools.partial(_enter_host, host_pid, os.getpid()),  # noqa: PLW1509  no threads here
        )
    return process, service


def _enter_host(host_pid: int, keeper_pid: int) -> None:
    namespaces.enter(host_pid, "net", "uts")
    namespaces.die_with_parent(keeper_pid)


def _await_ready(process: subprocess.Popen[bytes], service: Service, state_dir: Path) -> state.ServerState:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_PATIENCE_S)
    if not readable or process.stdout.readline().strip() != b"ready":
        log = state_dir / "logs" / service.host / f"{service.name}.err"
        tail = " / ".join(log.read_text("utf-8", "replace").splitlines()[-_ERROR_TAIL_LINES:])
        raise MissingResourceError(
            f"the {service.name} server on {service.host} did not start ({tail or 'no reason given'})",
            f"see {log}",
        )
    process.stdout.close()
    return state.ServerState(service.host, service.name, service.port, state.ProcessId.of(process.pid))


def _keep() -> None:
    """Wait for the order to stop, taking note of children that end."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        print(f"{time.strftime('%H:%M:%S')} process {pid} ended, status {status}", flush=True)


def _end_children() -> None:
    """Ask all to end, and wait; the alarm ends this process after the grace, and with it those that did not listen."""
    _on_signals(signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    signal.alarm(END_GRACE_S)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    signal.alarm(0)


def _report(descriptor: int, message: dict[str, object]) -> bool:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "w", encoding="utf-8") as pipe:
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()
        return True
    return False


def _on_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
