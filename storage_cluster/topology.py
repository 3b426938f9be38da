"""The topology of the cluster: hosts, addresses, services, devices, users. Read once from a TOML file.

A `Topology` is a value: every server gets the same one, and tests build their own with loopback addresses and ports.
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage_cluster import policies, services
from storage_cluster.policies import ONE, Policies, Policy
from storage_cluster.services import RING_SERVICES

BUNDLED_DIR = Path(__file__).with_name("topologies")
BUNDLED_FILE = BUNDLED_DIR / "six-hosts.toml"
"""The cluster that `up` makes by default."""

DAEMONS_SERVICE = "daemons"
"""The process with a storage host's daemons; it listens nowhere."""

RESERVATIONS_SERVICE = "reservations"
"""The book of reservations; there may be none."""

PROXY_SERVICE = "proxy"
"""The proxy of Swift's API; there may be several, and several processes of each."""
GATEWAY_SERVICE = "s3"
"""The S3 gateway; there may be none, several, and several processes of each."""
ROUTING_SERVICE = "routing"
"""The proxy that chooses between two S3 stores by an object's size; there may be none."""
BALANCER_SERVICE = "balancer"
"""The balancer before several gateways; there may be none."""
PROXY_BALANCER_SERVICE = "proxy-balancer"
"""The balancer before several proxies; there may be none."""
WORKERS_MAX = 64

UPDATERS = ("object-updater", "container-updater")
"""Daemons that only deliver the updates of earlier requests."""

DAEMONS = (
    *("object-replicator", "object-reconstructor", "container-replicator", "account-replicator"),
    *("object-auditor", "container-auditor", "account-auditor"),
    *UPDATERS,
    *("object-expirer", "account-reaper", "s3-lifecycle"),
)
"""All daemons, by the names in their User-Agent."""

MEDIA = ("none", "hdd", "ssd", "hdd-2016", "ssd-2016")
_OF_MEDIA = ("read_bytes_per_s", "write_bytes_per_s", "cache_mib", "audit_reads_per_s")
FILESYSTEMS = ("", "ext3", "ext4", "xfs")
XFS_MIN_MIB = 300
"""mkfs.xfs makes no smaller one."""


class TopologyError(ValueError):
    """The topology file does not describe a cluster; the message says which entry and why."""


@dataclasses.dataclass(frozen=True)
class Device:
    """A place for data on one host: a directory, in Swift a mounted disk."""

    host: str
    name: str
    zone: int
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Disk:
    """The storage of a device: the modelled medium, and its own real file system, if any."""

    name: str
    media: str = "none"
    filesystem: str = ""
    size_mib: int = 512
    read_bytes_per_s: int = 0  # of the medium, instead of its own …
    write_bytes_per_s: int = 0
    cache_mib: int = 0  # room of a page cache before it
    audit_reads_per_s: int = 0  # what an auditor reads of it meanwhile, one read after the other
    synced: bool = True  # whether a sync waits for the medium; false: it is left in a cache that a power cut empties


@dataclasses.dataclass(frozen=True)
class Service:
    """One server process: what it is, where it listens (port 0: nowhere)."""

    name: str
    host: str
    address: str
    port: int
    worker: int = 0
    """Which of the processes that share the port; they are alike."""
    command: tuple[str, ...] = ()
    """Of a service that is a command of the topology's own: its argv."""

    @property
    def process_name(self) -> str:
        """The name of its files: the service's, with the worker's number from the second on."""
        return f"{self.name}-{self.worker + 1}" if self.worker else self.name


@dataclasses.dataclass(frozen=True)
class Processor:
    """A host's modelled processor (`servers/processor.py`); without cores there is none."""

    cores: int = 0
    request_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Service to the time of one core that one of its requests takes …"""
    ms_per_mb: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """… and each MB (10**6 bytes) of its body."""

    def __post_init__(self) -> None:
        """Raises: TopologyError."""
        if not isinstance(self.cores, int) or self.cores < 0:
            raise TopologyError(f"topology: processor.cores is {self.cores!r}, not a number from 0 on")
        for option in ("request_ms", "ms_per_mb"):
            for service, value in getattr(self, option).items():
                if not isinstance(value, int | float) or value < 0 or not self.cores:
                    raise TopologyError(
                        f"topology: processor.{option}.{service} is {value!r}: it needs cores, and a number from 0 on"
                    )
        if without := self.ms_per_mb.keys() - self.request_ms.keys():
            raise TopologyError(f"topology: processor.ms_per_mb.{min(without)} needs a request_ms of that service")


@dataclasses.dataclass(frozen=True)
class Host:
    """One machine of the cluster."""

    name: str
    address: str
    services: tuple[Service, ...] = ()
    devices: tuple[Device, ...] = ()
    disks: tuple[Disk, ...] = ()
    store: str = ""
    """The store that it is part of, where the cluster has several."""
    processor: Processor = Processor()

    def disk(self, device: str) -> Disk:
        """The storage of a device; the default for a device that is not in the topology."""
        return next((disk for disk in self.disks if disk.name == device), Disk(device))


@dataclasses.dataclass(frozen=True)
class User:
    """A user of the store, as tempauth and `swift` know one: `account:name`, a key, and groups.

    `.admin` may do everything in the account, `.reseller_admin` in all accounts, `.reseller_reader` may read them all;
    a user without a group may do what access lists say.
    """

    account: str
    name: str
    key: str
    groups: tuple[str, ...] = (".admin",)


@dataclasses.dataclass(frozen=True)
class Link:
    """A switch port: the capacity of every host's link."""

    subnet_prefix_len: int = 24
    rate_bits_per_s: int = 1_000_000_000
    burst_bytes: int = 16_384
    queue_latency_ms: int = 50
    card_queue_ms: int = 0
    """How much a host's card queues, sending at the link's rate; 0: it sends as fast as the switch accepts."""
    somaxconn: int = 0
    """The longest listen queue on each host; 0: as long as the kernel and the servers have it."""


@dataclasses.dataclass(frozen=True)
class RingShape:
    """The parameters of the rings: partitions, replicas, and the suffix that is hashed with each path."""

    partition_power: int = 8
    replicas: int = 3
    hash_suffix: str = ""
    write_quorum: int = 0  # how many replicas acknowledge a write before its client is answered; 0: a majority


@dataclasses.dataclass(frozen=True)
class Intervals:
    """The intervals of background work."""

    account_report_delay_s: float = (
        5.0  # from a container's change to the report to the account; later changes are included
    )
    update_retry_s: float = 5.0  # between attempts to deliver what a container server did not take
    info_cache_s: float = 60.0  # a proxy remembers that a container or account is there, and what its metadata says
    post_quorum_timeout_s: float = 0.5  # after a quorum answered, a proxy waits so long for the others (as Swift does)
    replicate_s: float = 5.0  # between passes of the replicators …
    recheck_s: float = 30.0  # … which leave alone for so long what all replicas agreed on and has not changed since
    reclaim_age_s: float = 604_800.0  # until it is forgotten that something was deleted
    audit_s: float = 30.0  # between passes of the auditors …
    audit_bytes_per_s: float = 20_000_000.0  # … and how fast the object auditor reads
    expire_s: float = 10.0  # between passes of the expirer
    reap_s: float = 10.0  # between passes of the reaper
    lifecycle_s: float = 30.0  # between passes over S3's buckets with life cycles


@dataclasses.dataclass(frozen=True)
class BackendOptions:
    """How servers reach and answer each other, and clients."""

    connections: str = "new"  # for each request, as in Swift; or "pooled": kept and used again
    answers: str = "whole"  # head and body in one write, or "pieces": one write each, as simple servers do
    nodelay: bool = True  # whether servers set TCP_NODELAY; without, a small piece of an answer waits for an ACK

    def __post_init__(self) -> None:
        """Raises: TopologyError."""
        if self.connections not in ("new", "pooled"):
            raise TopologyError(f'topology: [backend] connections is {self.connections!r}, not "new" or "pooled"')
        if self.answers not in ("whole", "pieces"):
            raise TopologyError(f'topology: [backend] answers is {self.answers!r}, not "whole" or "pieces"')
        if not isinstance(self.nodelay, bool):
            raise TopologyError(f"topology: [backend] nodelay is {self.nodelay!r}, not true or false")


@dataclasses.dataclass(frozen=True)
class ProxyOptions:
    """How proxies run."""

    workers: int = 1
    """Processes on each proxy's host, which share its port."""
    info_cache_s: float = 1.0
    """Where there are several processes of proxies, each remembers accounts and containers for so long at most: another
    one's change may take so long to be seen."""

    def __post_init__(self) -> None:
        """Raises: TopologyError."""
        _check_workers("proxy", self.workers)
        if not isinstance(self.info_cache_s, int | float) or self.info_cache_s < 0:
            raise TopologyError(f"topology: [proxy] info_cache_s is {self.info_cache_s!r}, not a number of seconds")


def _check_workers(table: str, workers: object) -> None:
    """Raises: TopologyError."""
    if not isinstance(workers, int) or not 1 <= workers <= WORKERS_MAX:
        raise TopologyError(f"topology: [{table}] workers is {workers!r}, not a number from 1 to {WORKERS_MAX}")


@dataclasses.dataclass(frozen=True)
class S3Options:
    """How S3 gateways run."""

    workers: int = 1
    """Processes on each gateway's host, which share its port."""
    info_cache_s: float = 1.0
    """How long each remembers what is configured of a bucket: another worker's change may take so long to be seen."""

    cache_mib: int = 0
    """Room in each worker's memory for bodies of objects that were read; 0: none."""

    lifecycle_day_s: float = 86_400.0
    """How long a day of a life cycle is; a few seconds, to see one at work."""

    def __post_init__(self) -> None:
        """Raises: TopologyError."""
        if not isinstance(self.lifecycle_day_s, int | float) or not self.lifecycle_day_s > 0:
            raise TopologyError(f"topology: [s3] lifecycle_day_s is {self.lifecycle_day_s!r}, not a number of seconds")
        if not isinstance(self.cache_mib, int) or self.cache_mib < 0:
            raise TopologyError(f"topology: [s3] cache_mib is {self.cache_mib!r}, not a number of MiB")
        _check_workers("s3", self.workers)


@dataclasses.dataclass(frozen=True)
class RoutingOptions:
    """How the routing proxy works: before which two S3 stores, and how it chooses between them."""

    small: str = ""
    """Where small objects go: a host with an S3 gateway, or `http://HOST:PORT` of any S3 store."""
    large: str = ""
    access_key: str = ""
    """Who signs requests to the stores; without it the client's own key."""
    secret_key: str = ""
    region: str = "us-east-1"
    rule: str = "fixed"
    """The largest small object: `fixed`, or the running `mean` of all sizes so far."""
    threshold_bytes: int = 100_000
    """That of `fixed`, and of `mean` as long as there are no sizes."""
    body: str = "streamed"
    """Bodies are passed on as they arrive, or `whole`: once all of them is there."""
    connections: str = "pooled"
    """Connections to the stores are kept, or `new` for each request."""
    locations: str = "memory"
    """Where it is noted which store has an object: in `memory`, or in a `database`, synced before the answer."""

    def __post_init__(self) -> None:
        """Raises: TopologyError."""
        for option, known in _ROUTING_CHOICES.items():
            if getattr(self, option) not in known:
                listed = " or ".join(f'"{choice}"' for choice in known)
                raise TopologyError(f"topology: [routing] {option} is {getattr(self, option)!r}, not {listed}")
        if not isinstance(self.threshold_bytes, int) or self.threshold_bytes < 0:
            raise TopologyError(
                f"topology: [routing] threshold_bytes is {self.threshold_bytes!r}, not a number of bytes"
            )
        if bool(self.access_key) != bool(self.secret_key):
            raise TopologyError("topology: [routing] access_key and secret_key go together")


_ROUTING_CHOICES = {
    "rule": ("fixed", "mean"),
    "body": ("streamed", "whole"),
    "connections": ("pooled", "new"),
    "locations": ("memory", "database"),
}


@dataclasses.dataclass(frozen=True)
class ReservationOptions:
    """How a device's time is given out while something is reserved on it, and how much of it may be."""

    slice_mb: float = 32.0
    """A turn is this long at most, if somebody else waits."""
    stripe_mb: float = 4.0
    """What is transferred at once."""
    reservable: float = 0.9
    """The share of a device's throughput and space that can be reserved."""
    window_s: float = 1.0
    """A reservation is kept in every stretch of time that is this long."""
    remember_s: float = 1.0
    """How long a gateway remembers what the book says of an access."""

    def __post_init__(self) -> None:
        """Raises: TopologyError."""
        for name in ("slice_mb", "stripe_mb", "window_s", "reservable"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0 or (name == "reservable" and value > 1):
                limits = "above 0 and not above 1" if name == "reservable" else "above 0"
                raise TopologyError(f"topology: [reservations] {name} is {value!r}, not a number {limits}")

    @property
    def slice_bytes(self) -> int:
        """A slice in bytes."""
        return round(self.slice_mb * 1e6)

    @property
    def stripe_bytes(self) -> int:
        """A stripe in bytes."""
        return round(self.stripe_mb * 1e6)

    @property
    def margin_bytes_per_s(self) -> int:
        """What an access is given beside what it reserved.

        Stripes that are due at a rate number one fewer in some windows than in others, so it takes one more of each.
        """
        return round(self.stripe_bytes / self.window_s)


@dataclasses.dataclass(frozen=True)
class Topology:
    """The whole cluster."""

    hosts: tuple[Host, ...]
    users: tuple[User, ...]
    ring: RingShape = RingShape()
    link: Link = Link()
    intervals: Intervals = Intervals()
    backend: BackendOptions = BackendOptions()
    proxy: ProxyOptions = ProxyOptions()
    s3: S3Options = S3Options()
    routing: RoutingOptions = RoutingOptions()
    reservations: ReservationOptions = ReservationOptions()
    daemons: tuple[str, ...] = DAEMONS
    policies: Policies = ONE

    def shape_of(self, policy: Policy) -> RingShape:
        """The shape of a policy's object ring."""
        return dataclasses.replace(self.ring, replicas=policy.fragment_count or policy.replicas or self.ring.replicas)

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices that the rings place data on, in file order."""
        return tuple(device for host in self.hosts if _holds_data(host) for device in host.devices)

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of the stores; of a cluster with one store, which needs no name, that is ""."""
        return tuple(dict.fromkeys(host.store for host in self.hosts if _holds_data(host)))

    def of_store(self, store: str) -> "Topology":
        """The cluster as the servers of a store see it: with no other store's hosts."""
        return dataclasses.replace(self, hosts=tuple(host for host in self.hosts if host.store == store))

    @property
    def services(self) -> tuple[Service, ...]:
        """All server processes, in file order."""
        return tuple(service for host in self.hosts for service in host.services)

    @property
    def client_host(self) -> Host:
        """The host that commands run on: the first one without a service."""
        return next(host for host in self.hosts if not host.services)

    def host(self, name: str) -> Host:
        """The host of that name. Raises: KeyError."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(name)

    def service(self, name: str, host: str | None = None) -> Service:
        """The service of that name (on that host, or the first anywhere). Raises: KeyError."""
        for service in self.services:
            if service.name == name and host in (None, service.host):
                return service
        raise KeyError(name)

    @property
    def gateways(self) -> tuple[Service, ...]:
        """The S3 gateways, each once however many workers it has."""
        return tuple(s for s in self.services if s.name == GATEWAY_SERVICE and not s.worker)

    @property
    def s3_endpoints(self) -> tuple[Service, ...]:
        """Where S3's clients may go: the routing proxy, if there is one, then the balancer, or else the gateways."""
        routing = (s for s in self.services if s.name == ROUTING_SERVICE)
        balancer = tuple(s for s in self.services if s.name == BALANCER_SERVICE)
        return (*routing, *(balancer or self.gateways))

    def behind(self, balancer: Service) -> tuple[Service, ...]:
        """What a balancer spreads requests over: each host's service once, however many workers it has."""
        name = services.kind_of(balancer.name).before
        return tuple(s for s in self.services if s.name == name and not s.worker)

    @property
    def proxies(self) -> tuple[Service, ...]:
        """The proxies of Swift's API, each host's once however many workers it has."""
        return tuple(s for s in self.services if s.name == PROXY_SERVICE and not s.worker)

    @property
    def proxy_balancer(self) -> Service | None:
        """The balancer before the proxies, if there is one: where Swift's clients go."""
        return next((s for s in self.services if s.name == PROXY_BALANCER_SERVICE), None)

    @property
    def proxy_info_cache_s(self) -> float:
        """How long a proxy remembers accounts and containers: less where another may change them."""
        alone = sum(s.name == PROXY_SERVICE for s in self.services) < 2
        return self.intervals.info_cache_s if alone else min(self.proxy.info_cache_s, self.intervals.info_cache_s)

    @property
    def has_swift(self) -> bool:
        """Whether there are servers for Swift's clients."""
        return any(service.name == "auth" for service in self.services)

    @property
    def reservation_book(self) -> Service | None:
        """The book of reservations, if there is one."""
        return next((service for service in self.services if service.name == RESERVATIONS_SERVICE), None)

    @property
    def auth_url(self) -> str:
        """Where `swift` asks for a token (ST_AUTH): the balancer, which gives that to a proxy, or the auth server.

        Raises: KeyError unless `has_swift`.
        """
        auth = self.proxy_balancer or self.service("auth")
        return f"http://{auth.address}:{auth.port}/auth/v1.0"


_OPTIONS = {
    "ring": RingShape,
    "network": Link,
    "intervals": Intervals,
    "backend": BackendOptions,
    "proxy": ProxyOptions,
    "s3": S3Options,
    "routing": RoutingOptions,
    "reservations": ReservationOptions,
}
"""The tables of a topology that are options of one thing."""


def bundled_names() -> list[str]:
    """The names of the topologies that ship with the package."""
    return sorted(file.stem for file in BUNDLED_DIR.glob("*.toml"))


def find(name_or_path: str) -> Path:
    """The file of a bundled topology, or the path as given."""
    return BUNDLED_DIR / f"{name_or_path}.toml" if name_or_path in bundled_names() else Path(name_or_path)


def load(path: Path) -> Topology:
    """The topology in a TOML file. Raises: OSError, TopologyError."""
    try:
        return parse(tomllib.loads(path.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: {error}") from None


def parse(document: dict[str, Any]) -> Topology:
    """A topology from a parsed TOML document. Raises: TopologyError, naming the entry at fault."""
    for table, options in _OPTIONS.items():
        _check_names(table, options, document.get(table, {}))
    try:
        s3, proxy = S3Options(**document.get("s3", {})), ProxyOptions(**document.get("proxy", {}))
        making = _Making(
            document.get("services", {}),
            document.get("commands", {}),
            {GATEWAY_SERVICE: s3.workers, PROXY_SERVICE: proxy.workers},
        )
        _check_commands(making.commands)
        topology = Topology(
            hosts=tuple(_host(entry, making) for entry in document["host"]),
            users=tuple(_user(entry) for entry in document["user"]),
            ring=RingShape(**document.get("ring", {})),
            link=Link(**document.get("network", {})),
            intervals=Intervals(**document.get("intervals", {})),
            backend=BackendOptions(**document.get("backend", {})),
            proxy=proxy,
            s3=s3,
            routing=RoutingOptions(**document.get("routing", {})),
            reservations=ReservationOptions(**document.get("reservations", {})),
            daemons=tuple(document.get("daemons", {}).get("run", DAEMONS)),
            policies=policies.parse(document.get("policy", ())),
        )
    except KeyError as error:
        raise TopologyError(f"topology: {error.args[0]!r} is missing or unknown") from None
    except (TypeError, policies.PolicyError) as error:
        raise TopologyError(f"topology: {error}") from None
    _check(topology)
    return topology


def _check_names(table: str, options: type, given: dict[str, Any]) -> None:
    """Raises: TopologyError for an option that a table does not have."""
    known = [field.name for field in dataclasses.fields(options)]
    for name in given:
        if name not in known:
            raise TopologyError(f"topology: [{table}] has no option {name!r}; there are: {', '.join(known)}")


def _user(entry: dict[str, Any]) -> User:
    user = User(**entry)
    return dataclasses.replace(user, groups=tuple(user.groups))


@dataclasses.dataclass(frozen=True)
class _Making:
    """What a topology says of services, whatever host they are on."""

    ports: Mapping[str, int]
    commands: Mapping[str, Sequence[str]]
    workers: Mapping[str, int]

    def services(self, name: str, host: str, address: str) -> Iterator[Service]:
        """The processes of a service on a host. Raises: TopologyError."""
        kind = services.kind_of(name)
        command = self.commands.get(name, ())
        if kind.process is services.Process.COMMAND and (not command or name not in self.ports):
            raise TopologyError(
                f"topology: no service {name!r}; there are: {', '.join(services.KINDS)}, "
                "and what [commands] and [services] name, with an argv and a port"
            )
        port = 0 if kind.process is services.Process.DAEMONS else self.ports.get(name, kind.port)
        argv = tuple(word.replace("{address}", address).replace("{port}", str(port)) for word in command)
        for worker in range(self.workers.get(name, 1)):
            yield Service(name, host, address, port, worker, argv)


def _check_commands(commands: Mapping[str, object]) -> None:
    """Raises: TopologyError."""
    for name, argv in commands.items():
        if name in services.KINDS:
            raise TopologyError(f"topology: [commands] {name} is a service of the cluster's own: take another name")
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            raise TopologyError(f"topology: [commands] {name} is {argv!r}, not a list of words")


def _host(entry: dict[str, Any], making: _Making) -> Host:
    name, address, zone = entry["name"], entry["address"], entry.get("zone", 0)
    return Host(
        name,
        address,
        tuple(made for service in entry.get("services", ()) for made in making.services(service, name, address)),
        tuple(Device(name, device["name"], zone, device.get("weight", 1.0)) for device in entry.get("devices", ())),
        tuple(_disk(device) for device in entry.get("devices", ())),
        entry.get("store", ""),
        Processor(**entry.get("processor", {})),
    )


def _disk(entry: dict[str, Any]) -> Disk:
    disk = Disk(**{key: value for key, value in entry.items() if key != "weight"})
    for what, value, known in (("media", disk.media, MEDIA), ("filesystem", disk.filesystem, FILESYSTEMS)):
        if value not in known:
            choices = ", ".join(filter(None, known))
            raise TopologyError(f"topology: device {disk.name}: no {what} {value!r}; there are: {choices}")
    for option in _OF_MEDIA:
        value = getattr(disk, option)
        if not isinstance(value, int) or value < 0:
            raise TopologyError(f"topology: device {disk.name}: {option} is {value!r}, not a number from 0 on")
        if value and disk.media == "none":
            raise TopologyError(f'topology: device {disk.name}: {option} needs a medium: media = "hdd" or "ssd"')
    if disk.filesystem == "xfs" and disk.size_mib < XFS_MIN_MIB:
        raise TopologyError(f"topology: device {disk.name}: an xfs needs {XFS_MIN_MIB} MiB")
    return disk


def _check(topology: Topology) -> None:
    for what, values in (
        ("host name", [host.name for host in topology.hosts]),
        ("address", [host.address for host in topology.hosts]),
        ("device", [(device.host, device.name) for device in topology.devices]),
    ):
        if len(set(values)) != len(values):
            raise TopologyError(f"topology: two entries have the same {what}")
    if all(host.services for host in topology.hosts):
        raise TopologyError("topology: one host must be without services: commands run there")
    _check_services(topology)
    for host in topology.hosts:
        may_hold = _holds_data(host) or any(services.kind_of(s.name).may_use_devices for s in host.services)
        if host.devices and not may_hold:
            raise TopologyError(f"topology: {host.name} has devices, so it needs {', '.join(RING_SERVICES)}")
    for store in topology.stores:
        _check_store(topology.of_store(store), f" of the store {store}" if store else "")
    _check_routing(topology)
    unknown = [name for name in topology.daemons if name not in DAEMONS]
    if unknown:
        raise TopologyError(f"topology: {unknown[0]!r} is no daemon; there are: {', '.join(DAEMONS)}")


def _check_services(topology: Topology) -> None:
    """Raises: TopologyError for a service that is twice on a host, on too many hosts, or before nothing."""
    for host in topology.hosts:
        firsts = [service.name for service in host.services if not service.worker]
        for name in firsts:
            if firsts.count(name) > 1:
                raise TopologyError(f"topology: {host.name} names the service {name!r} twice")
    for name, kind in services.KINDS.items():
        found = [service for service in topology.services if service.name == name]
        if kind.per_cluster_max is not None and len(found) > kind.per_cluster_max:
            raise TopologyError(f"topology: one host may run {name!r}, no more")
        if found and kind.before and not topology.behind(found[0]):
            raise TopologyError(f"topology: {name!r} has to be before at least one host with {kind.before!r}")


def _holds_data(host: Host) -> bool:
    return set(RING_SERVICES) <= {service.name for service in host.services}


def _check_store(topology: Topology, which: str) -> None:
    """Raises: TopologyError. A store with a name may have gateways alone, without servers for Swift's clients."""
    if topology.has_swift or not which:
        if sum(found.name == "auth" for found in topology.services) != 1:
            raise TopologyError(f"topology: one host{which} must run 'auth', no more and no less")
        if not topology.proxies:
            raise TopologyError(f"topology: at least one host{which} must run {PROXY_SERVICE!r}")
    if which and not topology.has_swift and not topology.gateways:
        raise TopologyError(f"topology: one host{which} must run {GATEWAY_SERVICE!r}")
    counts = [
        ("fragments" if each.fragment_count else "replicas", topology.shape_of(each)) for each in topology.policies
    ]
    for what, shape in (("replicas", topology.ring), *counts):
        if len(topology.devices) < shape.replicas:
            raise TopologyError(f"topology: {shape.replicas} {what}{which} need as many devices")
        if what == "replicas" and not 0 <= shape.write_quorum <= shape.replicas:
            raise TopologyError(
                f"topology: a write_quorum of {shape.write_quorum} is none of {shape.replicas} replicas"
            )
    policies_found = topology.policies
    if topology.reservation_book is not None and (len(policies_found) > 1 or policies_found.default.fragment_count):
        raise TopologyError("topology: reservations are about one storage policy of replicas, so there may be no other")


def _check_routing(topology: Topology) -> None:
    """Raises: TopologyError."""
    is_there = any(service.name == ROUTING_SERVICE for service in topology.services)
    for size in ("small", "large") if is_there else ():
        endpoint_of(topology, size)


def endpoint_of(topology: Topology, size: str) -> tuple[str, int]:
    """Address and port of the S3 store for `small` or `large` objects. Raises: TopologyError."""
    given = str(getattr(topology.routing, size))
    for gateway in topology.gateways:
        if gateway.host == given:
            return gateway.address, gateway.port
    parts = urlsplit(given)
    try:
        if parts.scheme == "http" and parts.hostname and parts.path in ("", "/"):
            return parts.hostname, parts.port or 80
    except ValueError:
        pass  # the port is none
    raise TopologyError(
        f"topology: [routing] {size} is {given!r}, neither a host that runs {GATEWAY_SERVICE!r} nor http://HOST:PORT"
    )
