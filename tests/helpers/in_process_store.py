"""Storage servers without sockets: a backend that hands every request to the server meant, in the same event loop.

For tests of daemons: what is asked of whom is noted in `requests`, a server can be `down`, files are made by hand.
"""

import dataclasses
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, unquote

from multidict import CIMultiDict, CIMultiDictProxy

from storage_cluster import ring_builder
from storage_cluster.daemons.daemon import DaemonContext
from storage_cluster.policies import ONE, Policies
from storage_cluster.ring import Ring, path_hash
from storage_cluster.servers.databases.account import AccountServer
from storage_cluster.servers.databases.container import ContainerServer
from storage_cluster.servers.disks.devices import Devices
from storage_cluster.servers.http.backend import NO_ANSWER, BackendAnswer
from storage_cluster.servers.http.messages import Body, Call, Handler, reply_of
from storage_cluster.servers.object.replication import object_dir
from storage_cluster.servers.object.server import ObjectServer
from storage_cluster.topology import Device, Host, Intervals, RingShape, Service, Topology

HOSTS = ("one", "two", "three", "four")
SEGMENTS = {"account": 4, "container": 5, "object": 5}


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request that went over the backend."""

    host: str
    service: str
    method: str
    path: str
    body: bytes = b""


class InProcessStore:
    """Four storage hosts in four zones, a device each, three replicas; so each partition has one handoff."""

    def __init__(self, root: Path, intervals: Intervals | None = None, policies: Policies = ONE) -> None:
        self.root = root
        self.requests: list[Asked] = []
        self.down: set[str] = set()
        hosts = [self._host(zone, name) for zone, name in enumerate(HOSTS)]
        self.topology = Topology(
            tuple(hosts),
            (),
            RingShape(4, 3, "x"),
            intervals=intervals or Intervals(recheck_s=0),
            policies=policies,
        )
        self.rings: Mapping[str, Ring] = {ring.name: ring for ring in ring_builder.build_all(self.topology)}
        self.devices = {name: Devices(self.topology, name, root / "data" / name) for name in HOSTS}
        self._servers: dict[tuple[str, str], Handler] = {}
        self._closing: list[AccountServer | ContainerServer | ObjectServer] = []

    def __enter__(self) -> Self:
        for name, devices in self.devices.items():
            devices.make()
            servers = {
                "account": AccountServer(devices),
                "container": ContainerServer(devices, self),  # type: ignore[arg-type]
                "object": ObjectServer(devices, self, self.root / f"{name}.turns.jsonl"),  # type: ignore[arg-type]
            }
            for service, server in servers.items():
                self._servers[name, service] = server.handle  # type: ignore[attr-defined]
                self._closing.append(server)  # type: ignore[arg-type]
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._closing:
            server.close()

    def context(self, host: str) -> DaemonContext:
        """What a daemon on that host works with."""
        return DaemonContext(self, host, self.devices[host], lambda _: None)  # type: ignore[arg-type]

    def device_dir(self, device: Device) -> Path:
        """Where a device's data is."""
        return self.root / "data" / device.host / device.name

    def place(self, *names: str) -> tuple[int, tuple[Device, ...], Device, str]:
        """Partition, primaries, the handoff and the hash of a path."""
        ring = self.rings[("account", "container", "object")[len(names) - 1]]
        partition = ring.partition(*names)
        return partition, ring.primaries(partition), next(ring.handoffs(partition)), path_hash(names, "x")

    def write(self, device: Device, partition: int, digest: str, timestamp: str, body: bytes = b"x") -> None:
        """An object's body on a device."""
        stored = object_dir(self.device_dir(device), partition, digest)
        new = stored.new_file()
        new.write(body)
        stored.commit_data(new, timestamp, "text/plain", {})
        new.close()

    def files(self, device: Device, partition: int, digest: str) -> list[str]:
        """An object's files on a device."""
        directory = object_dir(self.device_dir(device), partition, digest).directory
        return sorted(path.name for path in directory.iterdir()) if directory.exists() else []

    def service(self, name: str, device: Device) -> Service:
        """The server that looks after a device."""
        return self.topology.service(name, device.host)

    async def request(
        self, service: Service, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> BackendAnswer:
        """One request, answered whole."""
        self.requests.append(Asked(service.address, service.name, method, path, body))
        if service.address in self.down:
            return BackendAnswer(NO_ANSWER)
        raw_path, _, query = path.partition("?")
        names = tuple(unquote(raw_path)[1:].split("/", SEGMENTS[service.name] - 1))
        call = Call(method, names, dict(parse_qsl(query)), CIMultiDict(headers), Body.of(body), "tx")
        reply = await reply_of(self._servers[service.address, service.name], call)
        return BackendAnswer(reply.status, CIMultiDictProxy(reply.headers), await reply.read())

    async def open(self, service: Service, method: str, path: str, headers: Mapping[str, str]) -> "Stream | None":
        """An answer whose body is read afterwards; None if the server is down."""
        answer = await self.request(service, method, path, headers)
        return None if answer.status == NO_ANSWER else Stream(answer.status, answer.headers, answer.body)

    async def upload(self, service: Service, path: str, headers: Mapping[str, str]) -> "Upload | None":
        """A PUT whose body is still to come; None if the server is down."""
        return None if service.host in self.down else Upload(self, service, path, headers)

    @staticmethod
    def _host(zone: int, name: str) -> Host:
        services = tuple(Service(kind, name, name, 1) for kind in ("account", "container", "object"))
        return Host(name, name, services, (Device(name, "d", zone),))


@dataclasses.dataclass
class Stream:
    """An answer whose body is read afterwards."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, in two pieces."""
        yield self.body[:50]
        yield self.body[50:]

    def close(self) -> None:
        """Nothing is held."""


class Upload:
    """A PUT under way."""

    is_answered = False
    is_blocked = False

    def __init__(self, store: InProcessStore, service: Service, path: str, headers: Mapping[str, str]) -> None:
        self._store, self._service, self._path, self._headers = store, service, path, headers
        self._body = b""

    def send(self, chunk: bytes) -> None:
        """A piece of the body."""
        self._body += chunk

    def give_up(self) -> None:
        """Nothing was sent yet."""

    async def answer(self) -> BackendAnswer:
        """What the server says."""
        return await self._store.request(self._service, "PUT", self._path, self._headers, self._body)
