"""Implements `tracer cluster up`, `down`, `status` and `exec`.

Every command is a process of its own, so all it knows comes from the state directory; `enter` is how it gets into a
host: an argv prefix (nsenter) that works for root, for the user whose user namespace holds the cluster, and for a
process that is inside already.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from storage_cluster import ring as rings
from storage_cluster import ring_builder, services
from storage_cluster import topology as topologies
from storage_cluster.errors import MissingResourceError, NotPermittedError, NotRunningError
from storage_cluster.faults import control, log
from storage_cluster.hosts import filesystems, namespaces, network, state
from storage_cluster.hosts.groups import remove_groups
from storage_cluster.ring import Ring
from storage_cluster.servers import balancer
from storage_cluster.servers.disks import medium
from storage_cluster.topology import Device, Host, Topology

_STOP_GRACE_S = 5.0
_QUIET = f"\n[daemons]\nrun = {json.dumps(topologies.UPDATERS)}\n"


@dataclasses.dataclass(frozen=True)
class ServerStatus:
    """One server: its address and whether its process runs."""

    name: str
    port: int
    pid: int
    alive: bool


@dataclasses.dataclass(frozen=True)
class ClockStatus:
    """A clock fault: at `since_ns` (true time) the host's clock was `offset_ns` ahead, and since then goes too fast."""

    offset_ns: int
    drift_ppb: int
    since_ns: int

    def stamp(self, true_ns: int) -> int:
        """The time of the host's clock when the machine's clock is at `true_ns`."""
        elapsed_ns = true_ns - self.since_ns
        return true_ns if elapsed_ns < 0 else true_ns + self.offset_ns + elapsed_ns * self.drift_ppb // 1_000_000_000


@dataclasses.dataclass(frozen=True)
class FaultStatus:
    """A fault in force."""

    id: int
    kind: str
    target: str
    parameters: dict[str, str | float | int]
    started_ns: int
    text: str


@dataclasses.dataclass(frozen=True)
class DeviceStatus:
    """A device: its medium, and the file of the medium's counters, which exists after the first transfer."""

    name: str
    media: str
    filesystem: str
    counters_file: str


@dataclasses.dataclass(frozen=True)
class HostStatus:
    """One host: how to reach it, what runs there, and how wrong its clock is, if a fault makes it so."""

    host: str
    addresses: tuple[str, ...]
    interfaces: tuple[str, ...]
    services: tuple[ServerStatus, ...]
    enter: tuple[str, ...]
    net_inode: int
    clock: ClockStatus | None = None
    devices: tuple[DeviceStatus, ...] = ()
    cores: int = 0
    """Of its modelled processor; 0: it has none."""


@dataclasses.dataclass(frozen=True)
class CacheStatus:
    """The object cache of a gateway, all its workers together, as last written; all 0 if it is off or was not used."""

    room_bytes: int = 0
    bytes: int = 0
    objects: int = 0
    hits: int = 0
    misses: int = 0


@dataclasses.dataclass(frozen=True)
class GatewayStatus:
    """Where S3 is (a gateway, or the balancer before them), and the keys of who commands on the client host."""

    url: str
    access_key: str
    secret_key: str
    cache: CacheStatus


@dataclasses.dataclass(frozen=True)
class ClusterStatus:
    """A running cluster. `sampler` is the command that notes what its hosts use, in a file given with `-o`."""

    running: bool
    state_dir: str
    client_host: str
    environment: dict[str, str]
    hosts: tuple[HostStatus, ...]
    faults: tuple[FaultStatus, ...] = ()
    s3: tuple[GatewayStatus, ...] = ()
    sampler: tuple[str, ...] = ()

    def host(self, name: str) -> HostStatus:
        """The host of that name. Raises: KeyError."""
        for host in self.hosts:
            if host.host == name:
                return host
        raise KeyError(name)


def up(state_dir: Path, topology_file: Path | None = None, *, quiet: bool = False) -> bool:
    """Bring a cluster up; False if one is up already. `quiet`: of the daemons only the updaters run.

    Raises: ClusterError; then nothing is left running.
    """
    if shutil.which("nsenter") is None:
        raise MissingResourceError("`nsenter` is not installed", "install util-linux")
    with _lock(state_dir):
        found = state.load(state_dir)
        if found is not None and found.running:
            return False
        _clean(state_dir, found)
        had_data = (state_dir / "data").exists()
        started = False
        try:
            topology = _write_topology(state_dir, topology_file, quiet=quiet)
            _check_programs(topology)
            _write_rings(state_dir, topology)
            _start_keeper(state_dir)
            started = True
        finally:  # interrupted, too
            if not started:
                if not had_data:
                    shutil.rmtree(state_dir / "data", ignore_errors=True)
                _remove_files(state_dir)
    return True


def was_interrupted(state_dir: Path) -> bool:
    """Whether the directory holds what a cluster left that was killed, or whose start was: the next `up` removes it."""
    if not (state_dir / "topology.toml").exists():
        return False
    with _lock(state_dir):
        found = state.load(state_dir)
        return found is None or not found.running


def down(state_dir: Path, *, keep_data: bool = False, keep_logs: bool = False) -> bool:
    """Stop the cluster and remove what it left; False if none was up."""
    if not state_dir.is_dir():
        return False
    with _lock(state_dir):
        found = state.load(state_dir)
        was_running = found is not None and found.running
        _clean(state_dir, found)
        for name, keep in (
            ("data", keep_data),
            ("logs", keep_logs),
            (filesystems.IMAGES_DIR, keep_data),
            (medium.DISKS_DIR, False),
        ):
            if not keep:
                shutil.rmtree(state_dir / name, ignore_errors=True)
        _remove_files(state_dir)
    return was_running


def status(state_dir: Path) -> ClusterStatus:
    """The hosts and servers of the running cluster. Raises: NotRunningError."""
    found = state.load(state_dir)
    if found is None or not found.running:
        raise NotRunningError("no cluster is up", "run: tracer cluster up")
    topology = topologies.load(state_dir / "topology.toml")
    faults = log.active(state_dir)
    return ClusterStatus(
        running=True,
        state_dir=str(state_dir),
        client_host=topology.client_host.name,
        environment=client_environment(topology),
        hosts=tuple(
            dataclasses.replace(
                _host_status(found, host, faults),
                devices=_devices(state_dir, topology.host(host.host)),
                cores=topology.host(host.host).processor.cores,
            )
            for host in found.hosts
        ),
        faults=tuple(_fault_status(record) for record in faults),
        s3=_gateways(topology, state_dir),
        sampler=(sys.executable, "-P", "-m", "tracer", "bench", "sample"),
    )


def _gateways(topology: Topology, state_dir: Path) -> tuple[GatewayStatus, ...]:
    """Each address of S3; that of a balancer with the caches of all gateways."""
    user = topology.users[0]
    behind = {each: topology.behind(each) or (each,) for each in topology.s3_endpoints}
    return tuple(
        GatewayStatus(
            f"http://{endpoint.address}:{endpoint.port}",
            f"{user.account}:{user.name}",
            user.key,
            _cache_status([state_dir / "logs" / gateway.host for gateway in gateways]),
        )
        for endpoint, gateways in behind.items()
    )


def _cache_status(logs_dirs: Iterable[Path]) -> CacheStatus:
    files = [file for logs_dir in logs_dirs for file in logs_dir.glob("s3*.cache.json")]
    counters = [json.loads(file.read_text("utf-8")) for file in files]
    return CacheStatus(
        **{field.name: sum(each[field.name] for each in counters) for field in dataclasses.fields(CacheStatus)}
    )


def client_environment(topology: Topology) -> dict[str, str]:
    """Environment variables for a Swift client; they also exclude the cluster from the machine's web proxy settings."""
    direct = ",".join(host.address for host in topology.hosts)
    return {"no_proxy": direct, "NO_PROXY": direct} | _swift_environment(topology) | _s3_environment(topology)


def _swift_environment(topology: Topology) -> dict[str, str]:
    """What Swift's clients read from the environment, if there are servers for them."""
    if not topology.has_swift:
        return {}
    user = topology.users[0]
    return {"ST_AUTH": topology.auth_url, "ST_USER": f"{user.account}:{user.name}", "ST_KEY": user.key}


def _s3_environment(topology: Topology) -> dict[str, str]:
    """What S3's clients read from the environment, if there is a gateway."""
    if not topology.s3_endpoints:
        return {}
    gateway, user = topology.s3_endpoints[0], topology.users[0]
    return {
        "AWS_ENDPOINT_URL_S3": f"http://{gateway.address}:{gateway.port}",
        "AWS_ACCESS_KEY_ID": f"{user.account}:{user.name}",
        "AWS_SECRET_ACCESS_KEY": user.key,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def execute(state_dir: Path, host: str, command: tuple[str, ...]) -> None:
    """Replace this process by that command on that host; never returns. Raises: NotRunningError."""
    running = status(state_dir)
    try:
        enter = running.host(host).enter
    except KeyError:
        names = ", ".join(known.host for known in running.hosts)
        raise NotRunningError(f"there is no host {host!r}", f"the hosts are: {names}") from None
    environment = os.environ | (running.environment if host == running.client_host else {})
    own_programs = str(Path(sys.executable).parent)  # `swift` and `tracer` of this very installation
    environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), own_programs])
    sys.stdout.flush()
    os.execvpe(enter[0], [*enter, *command], environment)


def rings_file(state_dir: Path, store: str = "") -> Path:
    """The file of a store's rings. It lies beside the data, so that `--keep-data` keeps both."""
    return rings.file_of(state_dir / "data", store)


def load_rings(state_dir: Path, store: str = "") -> dict[str, Ring]:
    """The rings of a store as they are now. Raises: NotRunningError without any, MissingResourceError."""
    file = rings_file(state_dir, store)
    try:
        return rings.load(file)
    except FileNotFoundError:
        others = sorted(found.stem.removeprefix("rings-") for found in file.parent.glob("rings-*.json"))
        if others and not store:
            raise MissingResourceError(
                f"this cluster has several stores ({', '.join(others)}), each with rings of its own",
                "this command is for clusters with one store",
            ) from None
        raise NotRunningError("there is no cluster and no kept data, so no ring", "run: tracer cluster up") from None
    except (OSError, rings.RingFileError) as error:
        raise MissingResourceError(f"the rings cannot be read ({error})", f"restore or remove {file}") from None


def inside(host: HostStatus) -> bool:
    """Whether this process runs on that host."""
    return namespaces.inode("self", "net") == host.net_inode


def _host_status(found: state.ClusterState, host: state.HostState, faults: Sequence[log.Record]) -> HostStatus:
    servers = [server for server in found.servers if server.host == host.host]
    return HostStatus(
        host=host.host,
        addresses=(host.address,),
        interfaces=(network.HOST_INTERFACE, "lo"),
        services=tuple(
            ServerStatus(services.kind_of(server.service).shown, server.port, server.process.pid, server.process.alive)
            for server in servers
        ),
        enter=_enter(found, host),
        net_inode=host.net_inode,
        clock=next((_clock_status(r) for r in faults if (r.fault.kind, r.fault.host) == ("clock", host.host)), None),
    )


def _devices(state_dir: Path, host: Host) -> tuple[DeviceStatus, ...]:
    counters = medium.directory(state_dir, host.name)
    return tuple(
        DeviceStatus(disk.name, disk.media, disk.filesystem, str(counters / f"{disk.name}.counters"))
        for disk in host.disks
    )


def _fault_status(record: log.Record) -> FaultStatus:
    fault = record.fault
    assert record.started_ns is not None
    given = fault.parameters.given_values()
    return FaultStatus(record.id, fault.kind, fault.target, given, record.started_ns, fault.text())


def _clock_status(record: log.Record) -> ClockStatus:
    parameters = record.fault.parameters
    assert record.started_ns is not None
    return ClockStatus(parameters.offset_ns or 0, parameters.drift_ppb or 0, record.started_ns)


def _enter(found: state.ClusterState, host: state.HostState) -> tuple[str, ...]:
    pid = host.holder.pid
    user: tuple[str, ...] = ()
    if found.in_user_namespace and namespaces.inode("self", "user") != namespaces.inode(pid, "user"):
        user = ("--user", "--preserve-credentials")
    return ("nsenter", "--target", str(pid), *user, "--net", "--uts", "--")


def _clean(state_dir: Path, found: state.ClusterState | None) -> None:
    """End the processes that a recorded cluster left, if any, and remove its record.

    Processes that others started on a host (`tracer cluster exec`) are looked for while the holders live: a namespace's
    number says nothing once the namespace is gone, since the kernel gives it out again.
    """
    if found is not None:
        holders = [host for host in (*found.hosts, found.switch) if host.holder.alive]
        guests = state.processes_inside(host.net_inode for host in holders)
        state.end([found.keeper], _STOP_GRACE_S)
        state.end([guest for guest in guests if guest.pid != os.getpid()], _STOP_GRACE_S)
    log.close(state_dir)
    remove_groups(state_dir)
    (state_dir / state.STATE_FILE).unlink(missing_ok=True)


def _remove_files(state_dir: Path) -> None:
    """Remove all but data, logs and the record of faults; and the directory, if none is there."""
    for name in ("topology.toml", "keeper.log", control.SOCKET_FILE, "lock"):
        (state_dir / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        state_dir.rmdir()


@contextlib.contextmanager
def _lock(state_dir: Path) -> Iterator[None]:
    """Lock the state directory, so that two commands cannot start or stop a cluster at once."""
    file = state_dir / "lock"
    while True:
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
            lock = open(file, "w", encoding="ascii")  # noqa: SIM115  closed below
        except OSError as error:
            raise MissingResourceError(
                f"the state directory {state_dir} cannot be used ({error.strerror})",
                f"set {state.STATE_DIR_VARIABLE} to a directory of yours",
            ) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if file.exists() and file.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                yield
                return  # else a `down` removed it while we waited


def _write_topology(state_dir: Path, topology_file: Path | None, *, quiet: bool) -> Topology:
    source, copy = topology_file or topologies.BUNDLED_FILE, state_dir / "topology.toml"
    try:
        topologies.load(source)
        copy.write_text(source.read_text("utf-8") + (_QUIET if quiet else ""), "utf-8")
        topology = topologies.load(copy)
    except OSError as error:
        raise MissingResourceError(
            f"{source} cannot be read ({error.strerror})",
            f"give a topology file, or one of: {', '.join(topologies.bundled_names())}",
        ) from None
    except topologies.TopologyError as error:
        raise MissingResourceError(str(error), f"mend {source}") from None
    return topology


def _check_programs(topology: Topology) -> None:
    """Raises: MissingResourceError without a program that a service of the topology is."""
    for service in topology.services:
        program = services.kind_of(service.name).program
        if program and balancer.find_program(program) is None:
            raise MissingResourceError(
                f"the topology has a {service.name}, and {program} is not installed",
                f"install it (Debian: apt install {program}), or use a topology without one",
            )
        if service.command and shutil.which(service.command[0]) is None:
            raise MissingResourceError(
                f"the topology has the command {service.name}, and {service.command[0]} is not installed",
                f"install it, or use a topology without {service.name}",
            )


def _write_rings(state_dir: Path, topology: Topology) -> None:
    """Write the rings; if data was kept, adapt the kept rings to the topology."""
    for store in topology.stores:
        _write_rings_of(state_dir, topology.of_store(store), store)


def _write_rings_of(state_dir: Path, topology: Topology, store: str) -> None:
    file = rings_file(state_dir, store)
    if not file.exists():
        rings.save(ring_builder.build_all(topology), file)
        return
    kept = load_rings(state_dir, store)
    if {ring.name: ring.shape for ring in kept.values()} != ring_builder.shapes(topology):
        shapes = ", ".join(f"{ring.name} {ring.shape}" for ring in kept.values())
        raise MissingResourceError(
            f"{state_dir / 'data'} holds data kept from a cluster with another [ring] or [[policy]] ({shapes})",
            "use that topology, or remove the data with: tracer cluster down",
        )
    fitted = [ring_builder.rebalance(ring, _fitting(ring.devices, topology)) for ring in kept.values()]
    rings.save(fitted, file)


def _fitting(devices: Iterable[Device], topology: Topology) -> list[Device]:
    """The devices of a kept ring whose host still exists, and further devices of the topology."""
    hosts = {host.name for host in topology.hosts}
    staying = [device for device in devices if device.host in hosts]
    known = {(device.host, device.name) for device in staying}
    return staying + [device for device in topology.devices if (device.host, device.name) not in known]


def _start_keeper(state_dir: Path) -> None:
    reading, writing = os.pipe()
    argv = [sys.executable, "-m", "storage_cluster.hosts.keeper"]
    argv += ["--state-dir", str(state_dir), "--report-fd", str(writing), "--starter-pid", str(os.getpid())]
    with open(state_dir / "keeper.log", "wb") as log:
        keeper = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(writing,), start_new_session=True
        )
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        answer = pipe.readline()
    if not answer:
        keeper.wait()
        tail = " / ".join(Path(log.name).read_text("utf-8", "replace").splitlines()[-1:])
        raise MissingResourceError(f"the cluster's keeper ended at once ({tail or 'killed'})", "try again")
    _check_report(json.loads(answer), keeper)


def _check_report(report: dict[str, str], keeper: subprocess.Popen[bytes]) -> None:
    if "error" in report:
        keeper.wait()
        kind = NotPermittedError if report["kind"] == "privilege" else MissingResourceError
        raise kind(report["error"], report["next_step"])
    keeper.returncode = 0  # it stays when we go: this object must not warn that it was never waited for
