"""One worker's connection to a Swift-like store, and requests on it that know how they went.

Each worker has a connection of its own, kept alive, as ssbench's and COSBench's workers have. Its local port is noted,
so that a request can be found in a capture.
"""

import asyncio
import dataclasses
import hashlib
import socket
import time
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from storage_cluster.bench.results import RequestRow
from storage_cluster.errors import NotRunningError

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Access:
    """A way in: where the store is, and the token that opens it."""

    storage_url: str
    token: str


@dataclasses.dataclass(frozen=True)
class Credentials:
    """What a token is asked for with."""

    auth_url: str
    user: str
    key: str


@dataclasses.dataclass(frozen=True)
class Order:
    """One operation to do."""

    operation: str
    index: int
    container: str
    object: str
    body: bytes = b""  # what is put, or what a get must find

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.operation.upper()


async def authenticate(credentials: Credentials) -> Access:
    """A token and the storage URL. Raises: NotRunningError."""
    headers = {"X-Auth-User": credentials.user, "X-Auth-Key": credentials.key}
    timeout = aiohttp.ClientTimeout(total=READ_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(credentials.auth_url, headers=headers) as response,
        ):
            if response.status not in (200, 204):
                raise NotRunningError(
                    f"{credentials.auth_url} answered {response.status} to {credentials.user}", "check user and key"
                )
            return Access(response.headers["X-Storage-Url"], response.headers["X-Auth-Token"])
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise NotRunningError(
            f"{credentials.auth_url} does not answer ({error_kind(error)})",
            "is the store up and within reach?",
        ) from None
    except KeyError as error:
        raise NotRunningError(
            f"{credentials.auth_url} gave no {error.args[0]}", "give the URL of a v1 auth service, …/auth/v1.0"
        ) from None


class Worker:
    """A connection that requests go out on, one at a time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._socket: socket.socket | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, socket_factory=self._make_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=READ_TIMEOUT_S),
            headers={"X-Auth-Token": access.token, "User-Agent": "twintap-bench"},
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def call(self, method: str, path: str, query: str = "") -> tuple[int, bytes]:
        """A request that is no part of the measurement: status and body. Raises: NotRunningError."""
        try:
            async with self._session.request(method, self._url(path, query)) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotRunningError(
                f"{self._access.storage_url} does not answer ({error_kind(error)})", "see: tracer cluster status"
            ) from None

    async def attempt(self, order: Order, attempt: int) -> RequestRow:
        """Do it once; whatever happens is in the row."""
        sent = order.body if order.operation == "put" else None
        start_ns, start = time.time_ns(), time.perf_counter_ns()
        status, transaction_id, error, body = 0, "", "", b""
        try:
            url = self._url(f"{order.container}/{order.object}")
            async with self._session.request(order.method, url, data=sent) as response:
                status, transaction_id = response.status, response.headers.get("X-Trans-Id", "")
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as failure:
            error = error_kind(failure)
        end_ns = start_ns + time.perf_counter_ns() - start
        return RequestRow(
            operation=order.operation,
            index=order.index,
            attempt=attempt,
            name=f"{order.container}/{order.object}",
            start_ns=start_ns,
            end_ns=end_ns,
            status=status,
            error=error or _fault(order, status, body),
            bytes_sent=len(sent or b""),
            bytes_received=len(body),
            transaction_id=transaction_id,
            local_port=self._local_port(),
        )

    def _url(self, path: str, query: str = "") -> URL:
        return URL(f"{self._access.storage_url}/{quote(path)}{query}", encoded=True)

    def _make_socket(self, address_info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, _ = address_info
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        self._socket = made
        return made

    def _local_port(self) -> int:
        if self._socket is None or self._socket.fileno() < 0:
            return 0
        port: int = self._socket.getsockname()[1]
        return port


def error_kind(failure: BaseException) -> str:
    """What went wrong with a request, in one word."""
    cause = failure.os_error if isinstance(failure, aiohttp.ClientConnectorError) else failure
    if isinstance(cause, ConnectionRefusedError):
        return "connect_refused"
    if isinstance(failure, aiohttp.ConnectionTimeoutError):
        return "connect_timeout"
    if isinstance(failure, asyncio.TimeoutError):
        return "read_timeout"
    if isinstance(failure, aiohttp.ClientPayloadError):
        return "short_body"
    return "connect_failed" if isinstance(failure, aiohttp.ClientConnectorError) else "reset"


def _fault(order: Order, status: int, body: bytes) -> str:
    if not 200 <= status < 300:
        return "status"
    if order.operation == "get" and _digest(body) != _digest(order.body):
        return "wrong_hash"
    return ""


def _digest(body: bytes) -> bytes:
    return hashlib.md5(body, usedforsecurity=False).digest()
