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
import dataclasses
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from storage_cluster import topology as topologies
from storage_cluster.errors import ClusterError, MissingResourceError, NotPermittedError
from storage_cluster.faults import control
from storage_cluster.faults.injector import Injector, effects
from storage_cluster.hosts import filesystems, namespaces, network, state
from storage_cluster.hosts.fleet import Fleet

END_GRACE_S = 3
SWITCH = "switch"


def main() -> None:
    """Bring the cluster up, report that it is up, and keep it until the order to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--report-fd", type=int, required=True)
    parser.add_argument("--starter-pid", type=int, required=True)
    options = parser.parse_args()
    namespaces.die_with_parent(options.starter_pid)
    _on_signals(_stop)
    keeper: Keeper | None = None
    try:
        keeper = _bring_up(options.state_dir, options.starter_pid)
        namespaces.outlive_parent()
        if _report(options.report_fd, {"ok": True}):
            keeper.keep()
    except ClusterError as error:
        kind = "privilege" if isinstance(error, NotPermittedError) else "resource"
        _report(options.report_fd, {"error": error.what, "next_step": error.next_step, "kind": kind})
        sys.exit(1)
    finally:
        _on_signals(signal.SIG_IGN)
        if keeper is not None:
            keeper.end()
        (options.state_dir / state.STATE_FILE).unlink(missing_ok=True)
        _end_children()


class Keeper:
    """The keeper's loop once all is up: receives orders, begins and ends faults, notes children that end."""

    def __init__(self, injector: Injector, state_dir: Path) -> None:
        self._injector = injector
        self._orders = control.listen(state_dir)
        self._ended, ended = socket.socketpair()  # a byte in it for each signal, so for each child that ends, too
        self._ended.setblocking(False)
        ended.setblocking(False)
        self._wakeup = ended
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ended.fileno(), warn_on_full_buffer=False)

    def keep(self) -> None:
        """Serve until the order to stop, which comes as a signal."""
        while True:
            readable, _, _ = select.select([self._orders, self._ended], [], [], self._injector.idle_s())
            if self._ended in readable:
                self._ended.recv(4096)
                _note_ends()
            if self._orders in readable:
                self._take_order()
            self._injector.run_due()

    def end(self) -> None:
        """End all faults in force, and stop handling signals."""
        signal.set_wakeup_fd(-1)
        self._injector.end_all()

    def _take_order(self) -> None:
        connection, _ = self._orders.accept()
        with connection:
            order = control.receive(connection)
            if order is not None:
                control.reply(connection, self._injector.carry_out(order))


def _note_ends() -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            print(f"{time.strftime('%H:%M:%S')} process {ended[0]} ended, status {ended[1]}", flush=True)


def _bring_up(state_dir: Path, starter_pid: int) -> Keeper:
    topology = topologies.load(state_dir / "topology.toml")
    own_net = namespaces.inode("self", "net")
    in_user_namespace = namespaces.become_root()
    namespaces.die_with_parent(starter_pid)
    filesystems.mount(topology, state_dir)
    switch = _hold(SWITCH, own_net)
    hosts = {host.name: _hold(host.name, own_net) for host in topology.hosts}
    try:
        network.connect(topology, switch, hosts)
    except RuntimeError as error:
        raise MissingResourceError(
            f"the kernel refused a part of the network ({error})",
            "it needs the modules veth, bridge and sch_tbf: try `modprobe -a veth bridge sch_tbf` as root",
        ) from None
    fleet = Fleet(topology, hosts, state_dir)
    fleet.start(topology.services)
    running = state.ClusterState(
        keeper=state.ProcessId.of(os.getpid()),
        in_user_namespace=in_user_namespace,
        switch=_host_state(SWITCH, "", switch),
        hosts=tuple(_host_state(host.name, host.address, hosts[host.name]) for host in topology.hosts),
        servers=fleet.servers,
    )
    state.save(running, state_dir)
    fleet.on_change = lambda: state.save(dataclasses.replace(running, servers=fleet.servers), state_dir)
    return Keeper(Injector(state_dir, topology, effects(topology, state_dir, switch, hosts, fleet)), state_dir)


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


def _end_children() -> None:
    """Ask all to end, and wait; the alarm ends this process after the grace, and with it those that did not listen."""
    os.killpg(0, signal.SIGTERM)
    os.killpg(0, signal.SIGCONT)  # a stopped one cannot hear
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
