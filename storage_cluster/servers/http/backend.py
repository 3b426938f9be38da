"""Sends requests from one server of the cluster to another.

Each request gets a connection of its own, as in Swift; that is what makes a Swift cluster's packets look as they do.
With `[backend] connections = "pooled"` in the topology, connections are kept and used again.
A server that does not answer is a value (`BackendAnswer` with status 0), never an exception: the caller has others.
"""

import dataclasses
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from urllib.parse import quote

from multidict import CIMultiDict, CIMultiDictProxy

from storage_cluster.ring import Ring
from storage_cluster.servers.http.connections import Address, Connections
from storage_cluster.servers.http.framing import ResponseHead
from storage_cluster.servers.http.messages import ACCESS, BrokenOff
from storage_cluster.servers.http.outbound import OutboundConnection
from storage_cluster.topology import Device, Service, Topology

RESERVED_TIMEOUT_S = 60.0
"""How long a server may be silent with an upload that uses a reservation: a low rate empties the buffers slowly."""
NO_ANSWER = 0
_NOTHING: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())

Release = Callable[[OutboundConnection], None]
"""Called once with a connection that is not needed any more."""


@dataclasses.dataclass(frozen=True)
class BackendAnswer:
    """A server's whole answer; status 0 if there was none."""

    status: int
    headers: CIMultiDictProxy[str] = dataclasses.field(default_factory=lambda: _NOTHING)
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class BackendStream:
    """A server's answer whose body comes piece by piece."""

    def __init__(self, connection: OutboundConnection, head: ResponseHead, release: Release) -> None:
        self._connection = connection
        self._release = release
        self.status = head.status
        self.headers = CIMultiDictProxy(head.headers)
        self.device: Device | None = None
        """The server that answered, if the caller noted it."""

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body. Raises: BrokenOff if the server fails before its end."""
        try:
            async for chunk in self._connection.body:
                yield chunk
        except OSError as error:
            raise BrokenOff from error

    def close(self) -> None:
        """Release the connection, even if data is still to arrive."""
        self._release(self._connection)


class BackendUpload:
    """A PUT under way: the server has asked for the body, or has answered already."""

    def __init__(self, connection: OutboundConnection, release: Release) -> None:
        self._connection = connection
        self._release = release

    @property
    def is_answered(self) -> bool:
        """Whether the server has answered or is gone, so that it accepts no more of the body."""
        return self._connection.is_answered

    @property
    def early_status(self) -> int:
        """The status of an answer that came instead of asking for the body; 0 if there is none."""
        return self._connection.early_status

    def send(self, chunk: bytes) -> None:
        """Send a piece of the body; an empty one ends it."""
        self._connection.send_chunk(chunk)

    def end_with_trailers(self, trailers: Mapping[str, str]) -> None:
        """End the body, with headers after it."""
        self._connection.end_with_trailers(trailers)

    async def send_and_be_asked_again(self, chunk: bytes) -> bool:
        """Send a piece after which the server is to ask for the rest; False if it answers instead, or is gone."""
        self._connection.expect_to_be_asked_again()
        self._connection.send_chunk(chunk)
        try:
            return await self._connection.asked_for_body()
        except OSError:
            return False

    @property
    def is_blocked(self) -> bool:
        """Whether the server reads more slowly than data is sent."""
        return self._connection.is_blocked

    async def wait_for_room(self) -> bool:
        """Wait until more may be sent; False if the server is gone."""
        try:
            await self._connection.wait_for_room()
        except OSError:
            return False
        return True

    async def answer(self) -> BackendAnswer:
        """The server's answer; releases the connection."""
        try:
            return await _whole_answer(self._connection)
        except OSError:
            return BackendAnswer(NO_ANSWER)
        finally:
            self._release(self._connection)

    def give_up(self) -> None:
        """Abort: the server sees an incomplete body and keeps nothing."""
        self._connection.close()


class Backend:
    """Sends requests to other servers."""

    def __init__(self, topology: Topology, rings: Mapping[str, Ring], program: str) -> None:
        """`program` is who asks, as the User-Agent says: `object-server`, `object-replicator`, …"""
        self.topology = topology
        self.rings = rings
        self.user_agent = f"{program} {os.getpid()}"
        self._connections = Connections(are_kept=topology.backend.connections == "pooled")
        self._every_request = [("User-Agent", self.user_agent)]
        if not self._connections.are_kept:
            self._every_request.append(("Connection", "close"))

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    async def request(
        self, service: Service, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> BackendAnswer:
        """One request with a small body, answered whole."""
        try:
            connection, _ = await self._begin_request(service, method, path, headers, body)
            try:
                return await _whole_answer(connection)
            finally:
                self._release(service, connection)
        except OSError:
            return BackendAnswer(NO_ANSWER)

    async def open(
        self, service: Service, method: str, path: str, headers: Mapping[str, str]
    ) -> "BackendStream | None":
        """An answer whose body is still to be read; None if the server does not answer. The caller closes it."""
        try:
            connection, head = await self._begin_request(service, method, path, headers)
            return BackendStream(connection, head, functools.partial(self._release, service))
        except OSError:
            return None

    async def upload(self, service: Service, path: str, headers: Mapping[str, str]) -> BackendUpload | None:
        """Begin a PUT and wait until the server asks for the body or answers; None if it does neither."""
        sent = {"Host": _host(service), **headers, **dict(self._every_request)}

        async def ask(connection: OutboundConnection) -> None:
            if ACCESS in headers:
                connection.wait_for(RESERVED_TIMEOUT_S)
            connection.ask_to_upload(path, sent)
            await connection.asked_for_body()

        try:
            connection, _ = await self._connections.ask(_address(service), ask)
        except OSError:
            return None
        return BackendUpload(connection, functools.partial(self._release, service))

    async def _begin_request(
        self, service: Service, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[OutboundConnection, ResponseHead]:
        """A connection with the beginning of its answer. Raises: OSError."""
        sent = [("Host", _host(service)), *headers.items(), *self._every_request]
        if body or method not in ("GET", "HEAD"):
            sent.append(("Content-Length", str(len(body))))

        def ask(connection: OutboundConnection) -> Awaitable[ResponseHead]:
            connection.ask(method, path, sent, body)
            return connection.head()

        return await self._connections.ask(_address(service), ask)

    def _release(self, service: Service, connection: OutboundConnection) -> None:
        self._connections.release(_address(service), connection)

    def service(self, name: str, device: Device) -> Service:
        """The server that holds a device's accounts, containers or objects."""
        return self.topology.service(name, device.host)


def device_path(device: Device, partition: int, *names: str) -> str:
    """The path of an account, container or object on one device, as the storage servers take it."""
    return f"/{device.name}/{partition}/" + "/".join(quote(name, safe="/", errors="surrogateescape") for name in names)


async def _whole_answer(connection: OutboundConnection) -> BackendAnswer:
    """Raises: OSError."""
    head = await connection.head()
    parts = [chunk async for chunk in connection.body]
    return BackendAnswer(head.status, CIMultiDictProxy(head.headers), b"".join(parts))


def _address(service: Service) -> Address:
    return service.address, service.port


def _host(service: Service) -> str:
    return f"{service.address}:{service.port}"
