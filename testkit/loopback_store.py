"""All servers of a small store on loopback, in one event loop on a thread, for tests that talk to them over sockets.

Ports are ephemeral and bound before the topology is made, so tests can run side by side. Clients in the test's own
thread are ordinary blocking ones.
"""

import asyncio
import contextlib
import dataclasses
import http.client
import json
import socket
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

from storage_cluster import ring as rings
from storage_cluster import ring_builder
from storage_cluster import topology as topologies
from storage_cluster.daemons import host as daemons
from storage_cluster.policies import ONE, Policies
from storage_cluster.ring import Ring
from storage_cluster.servers import open_files, process
from storage_cluster.topology import (
    DAEMONS_SERVICE,
    RESERVATIONS_SERVICE,
    UPDATERS,
    Device,
    Disk,
    Host,
    Intervals,
    ReservationOptions,
    RingShape,
    S3Options,
    Service,
    Topology,
    User,
)

T = TypeVar("T")
STORAGE_HOSTS = ("storage1", "storage2", "storage3")
DEVICE_NAMES = ("d1", "d2")
INTERVALS = Intervals(
    account_report_delay_s=0.05,
    update_retry_s=0.05,
    replicate_s=0.1,
    recheck_s=0.5,
    audit_s=0.1,
    expire_s=0.1,
    reap_s=0.1,
    lifecycle_s=0.1,
)
CALM = dataclasses.replace(INTERVALS, account_report_delay_s=2.0, update_retry_s=2.0)
"""For a store that many tests share: updaters look into every database there is, and in ever more of them 20 times a
second is most of the work."""
STOP_ORDER = ("daemons", "routing", "s3", "reservations", "proxy", "object", "container", "account", "auth")
"""Who asks others ends before them."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """A response, read whole."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class LoopbackStore:
    """A running store; use as a context manager."""

    def __init__(
        self,
        root: Path,
        names: tuple[str, ...] = UPDATERS,
        *,
        cache_mib: int = 0,
        day_s: float = 86_400.0,
        book_of: Disk | None = None,
        policies: Policies = ONE,
        replicas: int = 3,
        intervals: Intervals = INTERVALS,
    ) -> None:
        """`book_of`: with a book of reservations, and this below every device."""
        self.root = root
        self._replicas = replicas
        self._intervals = intervals
        self._policies = policies
        self._book_of = book_of
        self._s3 = S3Options(info_cache_s=0.0, cache_mib=cache_mib, lifecycle_day_s=day_s)
        self._daemons = names
        self._sockets: dict[tuple[str, str], socket.socket] = {}
        self.topology = self.make_topology()
        for store in self.topology.stores:
            rings.save(ring_builder.build_all(self.topology.of_store(store)), rings.file_of(root / "data", store))
        self._running: dict[tuple[str, str], contextlib.AbstractAsyncContextManager[None]] = {}
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        open_files.allow_all()  # all servers in one process, each with many databases
        self._thread.start()
        for service in self.topology.services:
            self._do(self._start(service))
        return self

    def __exit__(self, *_: object) -> None:
        for key in sorted(self._running, key=lambda key: STOP_ORDER.index(key[1])):
            self.stop(*key)
        self._do(_settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def auth_url(self) -> str:
        """Where a token is to be had."""
        return self.topology.auth_url

    @property
    def rings(self) -> Mapping[str, Ring]:
        """The rings as they are now."""
        return rings.load(self.root / "data" / rings.FILE_NAME)

    def stop(self, host: str, service: str) -> None:
        """Stop one server: from now on its port refuses connections.

        The updaters pause meanwhile: asyncio (3.11) loses a connection that comes in the moment a server closes.
        """
        paused = [key for key in self._running if key[1] == DAEMONS_SERVICE != service]
        for key in [*paused, (host, service)]:
            self._do(self._stop(self._running.pop(key)))
        for key in paused:
            self._do(self._start(self.topology.service(DAEMONS_SERVICE, key[0])))

    def restart(self, host: str, service: str) -> None:
        """Start it again on its old port."""
        found = self.topology.service(service, host)
        if found.port:
            self._sockets[host, service] = process.bind(found)
        self._do(self._start(found))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the servers' loop."""
        return self._do(work)

    def log(self, service: str) -> list[dict[str, Any]]:
        """The request lines of all servers of a kind, in order of their start."""
        files = self.root.glob(f"logs/*/{service}.jsonl")
        lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
        return sorted(lines, key=lambda line: line["start_ns"])

    def token(self, user: str = "test:tester", key: str = "testing") -> str:
        """A fresh token."""
        answer = self.ask("GET", "/auth/v1.0", {"X-Auth-User": user, "X-Auth-Key": key}, service="auth")
        return answer.headers["x-auth-token"]

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        service: str = "proxy",
        host: str | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        found = self.topology.service(service, host)
        connection = http.client.HTTPConnection(found.address, found.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())

    def make_topology(self) -> Topology:
        """The store's shape, its ports bound."""
        hosts = [
            Host("client", "127.0.0.1"),
            Host("proxy", "127.0.0.1", (self.bind("proxy", "proxy"),)),
            Host("gateway", "127.0.0.1", (self.bind("s3", "gateway"),)),
        ]
        if self._book_of is not None:
            hosts.append(Host("book", "127.0.0.1", (self.bind(RESERVATIONS_SERVICE, "book"),)))
        disk = self._book_of or Disk("")
        for zone, name in enumerate(STORAGE_HOSTS, 1):
            services = ("auth", "account", "container", "object", DAEMONS_SERVICE)[name != "storage1" :]
            hosts.append(
                Host(
                    name,
                    "127.0.0.1",
                    tuple(self.bind(service, name) for service in services),
                    tuple(Device(name, device, zone) for device in DEVICE_NAMES),
                    tuple(dataclasses.replace(disk, name=device) for device in DEVICE_NAMES),
                )
            )
        users = (*topologies.load(topologies.BUNDLED_FILE).users, User("other", "someone", "secret"))
        ring = RingShape(partition_power=4, replicas=self._replicas, hash_suffix="test")
        reservations = ReservationOptions(slice_mb=0.8, stripe_mb=0.1, remember_s=0.0)
        return Topology(
            tuple(hosts),
            users,
            ring,
            intervals=self._intervals,
            daemons=self._daemons,
            s3=self._s3,
            reservations=reservations,
            policies=self._policies,
        )

    def bind(self, service: str, host: str) -> Service:
        """A service with a port of its own."""
        if service == DAEMONS_SERVICE:
            return Service(service, host, "127.0.0.1", 0)
        bound = process.bind(Service(service, host, "127.0.0.1", 0))
        self._sockets[host, service] = bound
        return Service(service, host, "127.0.0.1", bound.getsockname()[1])

    async def _start(self, service: Service) -> None:
        key = (service.host, service.name)
        data_dir, logs_dir = self.root / "data" / service.host, self.root / "logs" / service.host
        context: contextlib.AbstractAsyncContextManager[None]
        if service.name == DAEMONS_SERVICE:
            context = daemons.running(self.topology, service.host, data_dir, logs_dir)
        else:
            log_file = logs_dir / f"{service.name}.jsonl"
            context = process.running(service, self.topology, self._sockets.pop(key), data_dir, log_file)
        await context.__aenter__()
        self._running[key] = context

    async def _stop(self, context: contextlib.AbstractAsyncContextManager[None]) -> None:
        await context.__aexit__(None, None, None)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(60)


async def _settle() -> None:
    """Wait until every connection is closed: the last ones close in the loop's own time after their servers ended."""
    watched = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
    while len(watched) > 1:  # the loop's own wake-up pipe stays
        await asyncio.sleep(0)


class Client:
    """Requests to one account with a token: `client("PUT c/o", {"X-Object-Meta-A": "1"}, b"body")`."""

    def __init__(self, store: LoopbackStore, user: str = "test:tester", key: str = "testing") -> None:
        self._store = store
        self._token = store.token(user, key)
        self.account = f"AUTH_{user.partition(':')[0]}"

    def __call__(
        self, line: str, headers: Mapping[str, str] | None = None, body: bytes | None = None, account: str = ""
    ) -> Answer:
        method, path = line.split(" ", 1)
        path = f"/v1/{account or self.account}/{path}"
        return self._store.ask(method, path, {"X-Auth-Token": self._token} | dict(headers or {}), body)
