"""The hosts that Swift runs on: namespaces joined by the cluster's own network code, and the processes in them.

Each host is a sleeping process in a network, a UTS and a mount namespace; in the last one its configuration lies over
`/etc/swift`. What runs is known by the network namespace it runs in, so `down` ends all of it, workers included.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from benchmarks.swift import PACKAGES, settings
from storage_cluster import topology as topologies
from storage_cluster.hosts import namespaces, network, state
from storage_cluster.topology import Host, Topology

STATE_DIR_VARIABLE = "TWINTAP_SWIFT_DIR"
TOPOLOGY_VARIABLE = "TWINTAP_SWIFT_TOPOLOGY"
SWITCH = "switch"
_START_PATIENCE_S = 60.0
_STOP_GRACE_S = 3.0
_PYTHON = "/usr/bin/python3"
_LOGGER = Path(__file__).with_name("log_socket.py")


@dataclasses.dataclass(frozen=True)
class RunningSwift:
    """What `up` left behind: the process that holds each host, the switch included."""

    holders: dict[str, state.ProcessId]

    @property
    def alive(self) -> bool:
        """Whether its hosts are still there."""
        return all(holder.alive for holder in self.holders.values())

    def enter(self, host: str) -> list[str]:
        """The argv prefix that runs a command on a host."""
        return ["nsenter", "--target", str(self.holders[host].pid), "--net", "--uts", "--mount", "--"]


def state_dir() -> Path:
    """Where configuration, data and logs lie."""
    return Path(os.environ.get(STATE_DIR_VARIABLE, "/tmp/twintap-swift"))


def load() -> RunningSwift:
    """The Swift that is up. Raises: click.UsageError if none is."""
    try:
        found = json.loads((state_dir() / "state.json").read_text("utf-8"))
    except FileNotFoundError:
        raise click.UsageError("no Swift is up; run: python -m benchmarks.swift up") from None
    running = RunningSwift({name: state.ProcessId(**holder) for name, holder in found.items()})
    if not running.alive:
        raise click.UsageError("Swift's hosts are gone; run: python -m benchmarks.swift down, then up")
    return running


def shape() -> Topology:
    """The topology: the bundled cluster's, or the one that the environment names."""
    return topologies.load(topologies.find(os.environ.get(TOPOLOGY_VARIABLE, str(topologies.BUNDLED_FILE))))


def environment() -> dict[str, str]:
    """What a Swift client needs to know."""
    proxy = shape().service("proxy")
    direct = ",".join(host.address for host in shape().hosts)
    url = f"http://{proxy.address}:{proxy.port}/auth/v1.0"
    return {"ST_AUTH": url, "ST_USER": "test:tester", "ST_KEY": "testing", "no_proxy": direct, "NO_PROXY": direct}


def up(*, daemons: bool) -> None:
    """Set hosts, configuration and servers up. Raises: click.UsageError if this machine cannot.

    All in one session, since the kernel may share the processor among sessions (autogroup): Swift with a session for
    each of its servers would get many shares of a busy machine.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        status = 2
        try:
            _up(daemons=daemons)
            status = 0
        except click.UsageError as error:
            click.echo(error.format_message(), err=True)
        finally:
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise click.UsageError("Swift is not up")


def _up(*, daemons: bool) -> None:
    _check_machine()
    if (state_dir() / "state.json").exists():
        raise click.UsageError("a Swift is up already, or was; run: python -m benchmarks.swift down")
    topology = shape()
    settings.build_rings(topology, state_dir() / "rings")
    holders = {name: _hold(name) for name in (SWITCH, *(host.name for host in topology.hosts))}
    running = RunningSwift({name: state.ProcessId.of(process.pid) for name, process in holders.items()})
    _save(running)
    pids = {name: process.pid for name, process in holders.items() if name != SWITCH}
    network.connect(topology, holders[SWITCH].pid, pids)
    for host in topology.hosts:
        _configure(topology, host, running)
    for host in topology.hosts:
        _start_servers(host, running, daemons=daemons)
    _await_servers(topology, running)


def down() -> bool:
    """End everything and remove all files; False if nothing was up."""
    file = state_dir() / "state.json"
    if not file.exists():
        return False
    holders = [state.ProcessId(**holder) for holder in json.loads(file.read_text("utf-8")).values()]
    inodes = [namespaces.inode(holder.pid, "net") for holder in holders if holder.alive]
    state.end(state.processes_inside(set(inodes) - {namespaces.inode("self", "net")}), _STOP_GRACE_S)
    shutil.rmtree(state_dir())
    return True


def processes(running: RunningSwift) -> list[tuple[str, str]]:
    """Host and command line of what runs, without the holders."""
    found = []
    for host, holder in running.holders.items():
        for process in state.processes_inside([namespaces.inode(holder.pid, "net")]):
            if process.pid != holder.pid:
                line = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append((host, f"{process.pid} {line}"))
    return found


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise click.UsageError("Swift's hosts need root")
    programs = ("swift-proxy-server", "swift-account-server", "swift-container-server", "swift-object-server")
    if missing := [name for name in (*programs, "swift-ring-builder", "memcached") if shutil.which(name) is None]:
        raise click.UsageError(f"{missing[0]} is not installed; run: apt-get install {' '.join(PACKAGES)}")
    state_dir().mkdir(parents=True, exist_ok=True)
    try:
        os.setxattr(state_dir(), "user.swift.test", b"1")
    except OSError as error:
        raise click.UsageError(
            f"the file system of {state_dir()} keeps no extended attributes ({error.strerror}); "
            f"set {STATE_DIR_VARIABLE} to a directory that does (ext4, xfs)"
        ) from None
    os.removexattr(state_dir(), "user.swift.test")


def _hold(name: str) -> subprocess.Popen[bytes]:
    script = f"mount --make-rprivate / && hostname {name} && echo ready && exec sleep infinity"
    process = subprocess.Popen(
        ["unshare", "--net", "--uts", "--mount", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it outlives us, and a pipe of ours must not wait for it
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise click.UsageError(f"the host {name} cannot be made: no right to make namespaces")
    process.stdout.close()
    process.returncode = 0  # it stays when we go
    return process


def _save(running: RunningSwift) -> None:
    document = {name: dataclasses.asdict(holder) for name, holder in running.holders.items()}
    (state_dir() / "state.json").write_text(json.dumps(document, indent=1), "utf-8")


def _configure(topology: Topology, host: Host, running: RunningSwift) -> None:
    own = state_dir() / "hosts" / host.name
    settings.write(topology, host, own / "etc", own / "data")
    for ring in (state_dir() / "rings").glob("*.ring.gz"):
        shutil.copy(ring, own / "etc")
    for device in host.devices:
        (own / "data" / device.name).mkdir(parents=True)
    subprocess.run([*running.enter(host.name), "mount", "--bind", str(own / "etc"), "/etc/swift"], check=True)


def _start_servers(host: Host, running: RunningSwift, *, daemons: bool) -> None:
    names = [service.name for service in settings.swift_services(host)]
    if not names:
        return
    own = state_dir() / "hosts" / host.name
    _start(running, host, own, [_PYTHON, str(_LOGGER), str(settings.LOG_PORT), str(own / "swift.log")])
    if "proxy" in names:
        _start(running, host, own, ["memcached", "-u", "root", "-l", "127.0.0.1", "-m", "64"])
    for name in names:
        _start(running, host, own, [f"swift-{name}-server", f"/etc/swift/{name}-server.conf"])
    for daemon in settings.DAEMONS if daemons and host.devices else ():
        service = daemon.split("-")[1]
        file = "object-expirer" if daemon == "swift-object-expirer" else f"{service}-server"
        _start(running, host, own, [daemon, f"/etc/swift/{file}.conf"])


def _start(running: RunningSwift, host: Host, own: Path, argv: list[str]) -> None:
    with open(own / "out.log", "ab") as log:
        process = subprocess.Popen(
            [*running.enter(host.name), *argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )
    process.returncode = 0  # it stays when we go


def _await_servers(topology: Topology, running: RunningSwift) -> None:
    deadline = time.monotonic() + _START_PATIENCE_S
    for service in (service for host in topology.hosts for service in settings.swift_services(host)):
        probe = [*running.enter("client"), sys.executable, "-c", _PROBE, service.address, str(service.port)]
        while subprocess.run(probe, check=False, capture_output=True).returncode != 0:
            if time.monotonic() > deadline:
                log = state_dir() / "hosts" / service.host / "out.log"
                raise click.UsageError(f"{service.name} on {service.host} does not listen; see {log}")
            time.sleep(0.1)


_PROBE = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()"
