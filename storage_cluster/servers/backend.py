"""What all servers share on their back side: a request to another server of the cluster.

Each request gets a connection of its own, as in Swift; that is what makes a Swift cluster's packets look as they do.
A server that does not answer is a value (`BackendAnswer` with status 0), never an exception: the caller has others.
"""

import dataclasses
import os
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from storage_cluster.ring import Ring
from storage_cluster.servers.messages import BrokenOff
from storage_cluster.topology import Device, Service, Topology

CONNECT_TIMEOUT_S = 0.5
NODE_TIMEOUT_S = 10.0
NO_ANSWER = 0
_NOTHING: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)


@dataclasses.dataclass(frozen=True)
class BackendAnswer:
    """A server's whole answer; status 0 if there was none."""

    status: int
    headers: CIMultiDictProxy[str] = dataclasses.field(default_factory=lambda: _NOTHING)
    body: bytes = b""

    @property
    def succeeded(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class BackendStream:
    """A server's answer whose body comes piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body. Raises: BrokenOff if the server fails before its end."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except _FAILURES as error:
            raise BrokenOff from error

    def close(self) -> None:
        """Let go of the connection, whatever is still to come."""
        self._response.close()


class Backend:
    """Sends requests to other servers."""

    def __init__(self, topology: Topology, rings: Mapping[str, Ring], server_name: str) -> None:
        self.topology = topology
        self.rings = rings
        self.user_agent = f"{server_name}-server {os.getpid()}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=NODE_TIMEOUT_S),
            headers={"User-Agent": self.user_agent},
        )

    async def close(self) -> None:
        """Give up all connections."""
        await self._session.close()

    async def request(
        self, service: Service, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> BackendAnswer:
        """One request with a small body, answered whole."""
        try:
            async with self._session.request(method, _url(service, path), headers=headers, data=body) as response:
                return BackendAnswer(response.status, response.headers, await response.read())
        except _FAILURES:
            return BackendAnswer(NO_ANSWER)

    async def open(
        self, service: Service, method: str, path: str, headers: Mapping[str, str]
    ) -> "BackendStream | None":
        """An answer whose body is still to be read; None if the server does not answer. The caller closes it."""
        try:
            return BackendStream(await self._session.request(method, _url(service, path), headers=headers))
        except _FAILURES:
            return None

    async def upload(
        self, service: Service, path: str, headers: Mapping[str, str], body: AsyncIterator[bytes]
    ) -> BackendAnswer:
        """A PUT whose body is asked for once the server has said `100 Continue`."""
        try:
            async with self._session.put(_url(service, path), headers=headers, data=body, expect100=True) as response:
                return BackendAnswer(response.status, response.headers, await response.read())
        except _FAILURES:
            return BackendAnswer(NO_ANSWER)

    def service(self, name: str, device: Device) -> Service:
        """The server that looks after a device's accounts, containers or objects."""
        return self.topology.service(name, device.host)


def device_path(device: Device, partition: int, *names: str) -> str:
    """The path of an account, container or object on one device, as the storage servers take it."""
    return f"/{device.name}/{partition}/" + "/".join(quote(name, safe="/", errors="surrogateescape") for name in names)


def _url(service: Service, path: str) -> URL:
    return URL(f"http://{service.address}:{service.port}{path}", encoded=True)
