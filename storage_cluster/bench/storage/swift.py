"""OpenStack Swift with v1 authentication (tempauth, swauth), or with a token given, or without.

Which answers are good, as COSBench's and ssbench's Swift clients have it: any 2xx; for what cleans up, also 404, since
the thing is gone. Which are worth another try, as in ssbench's worker: no answer at all, 503, an expired token (401,
after a new one), and 404 of a read or delete, which a replica that lags behind may say. And what a balancer answers for
a proxy that died with the request (502) or that it waited for too long (504): without a balancer, no answer at all.

Source: Object Storage API reference; ssbench 0.3.9, `worker.py`, for what is tried again.
"""

import dataclasses
import json
from urllib.parse import quote, urlsplit

from storage_cluster.bench.engine import bodies
from storage_cluster.bench.engine.connection import Connection, Endpoint, Reply, Timeouts
from storage_cluster.bench.model import Kind
from storage_cluster.bench.storage.addresses import resolve
from storage_cluster.bench.storage.protocol import Order, Request, Send
from storage_cluster.errors import NotRunningError
from tracer.secret_rules import without_secrets

LISTING_LIMIT = 10_000
_METHODS = {
    Kind.INIT: "PUT",
    Kind.PREPARE: "PUT",
    Kind.WRITE: "PUT",
    Kind.READ: "GET",
    Kind.LIST: "GET",
    Kind.HEAD: "HEAD",
    Kind.DELETE: "DELETE",
    Kind.CLEANUP: "DELETE",
    Kind.DISPOSE: "DELETE",
}
_CHUNK_BYTES = 64 * 1024
_RETRIED = frozenset((0, 401, 502, 503, 504))


@dataclasses.dataclass(frozen=True)
class Credentials:
    """What a token is asked for with."""

    auth_url: str
    user: str
    key: str


@dataclasses.dataclass(frozen=True)
class Access:
    """A way in: where the store is, and the token that opens it ("" if none is needed)."""

    storage_url: str
    token: str


async def authenticate(credentials: Credentials, timeouts: Timeouts = Timeouts()) -> Access:  # noqa: B008  frozen
    """A token and the storage URL. Raises: NotRunningError."""
    url, shown = credentials.auth_url, without_secrets(credentials.auth_url)
    parts = urlsplit(url)
    headers = f"X-Auth-User: {credentials.user}\r\nX-Auth-Key: {credentials.key}\r\n"
    head = _head("GET", quote(parts.path or "/", safe="/%"), parts.netloc, headers, keep_alive=False)
    reply = await Connection(resolve(url), timeouts, keep_alive=False).exchange(head.encode(), kept=True)
    if reply.error:
        raise NotRunningError(f"{shown} does not answer ({reply.error})", "is the store up and within reach?")
    if reply.status not in (200, 204):
        raise NotRunningError(f"{shown} answered {reply.status} to {credentials.user}", "check user and key")
    for name in ("x-storage-url", "x-auth-token"):
        if name not in reply.headers:
            raise NotRunningError(f"{shown} gave no {name.title()}", "give the URL of a v1 auth service, …/auth/v1.0")
    return Access(reply.headers["x-storage-url"], reply.headers["x-auth-token"])


class Swift:
    """A Swift account; see `Storage`."""

    def __init__(
        self,
        access: Access,
        credentials: Credentials | None = None,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008  frozen
        auth_timeouts: Timeouts = Timeouts(),  # noqa: B008  frozen
        policy: str = "",
    ) -> None:
        self._credentials = credentials
        self._timeouts = timeouts
        self._auth_timeouts = auth_timeouts
        self._policy = f"X-Storage-Policy: {policy}\r\n" if policy else ""
        self._use(access)

    @classmethod
    async def login(
        cls, credentials: Credentials, *, timeouts: Timeouts, auth_timeouts: Timeouts | None = None, policy: str = ""
    ) -> "Swift":
        """One that got itself a token. Raises: NotRunningError."""
        patience = auth_timeouts or timeouts
        access = await authenticate(credentials, patience)
        return cls(access, credentials, timeouts=timeouts, auth_timeouts=patience, policy=policy)

    @property
    def endpoint(self) -> Endpoint:
        """Where requests go."""
        return self._endpoint

    @property
    def connections_max(self) -> int:
        """Connections that an order may need at once."""
        return 1

    def request(self, order: Order, *, keep_alive: bool = True) -> Request:
        """The bytes of the request."""
        path = f"{self._path}/{quote(order.path)}"
        if order.kind in (Kind.WRITE, Kind.PREPARE):
            return self._put(order, path, keep_alive)
        query = f"?limit={LISTING_LIMIT}" if order.kind is Kind.LIST else ""
        more = self._token + (self._policy if order.kind is Kind.INIT else "")
        if order.kind is Kind.INIT:
            more += "Content-Length: 0\r\n"
        return Request(_head(_METHODS[order.kind], path + query, self._host, more, keep_alive).encode(), [], 0)

    def fault(self, order: Order, reply: Reply) -> str:
        """Why an answer is not a good one; "" if it is."""
        if reply.error:
            return reply.error
        gone = reply.status == 404 and order.kind in (Kind.CLEANUP, Kind.DISPOSE)
        if not (200 <= reply.status < 300 or gone):
            return "status"
        if order.hash_check and not self._is_right(order, reply):
            return "wrong_hash"
        return ""

    def may_retry(self, order: Order, reply: Reply) -> bool:
        """Whether trying again may help."""
        return reply.status in _RETRIED or (reply.status == 404 and order.kind in (Kind.READ, Kind.DELETE))

    async def renew(self, stale: Request) -> None:
        """Get a new token if the one of that request is still in use. Raises: NotRunningError."""
        if self._credentials is not None and self._token.encode() in stale.head:
            self._use(await authenticate(self._credentials, self._auth_timeouts))

    def has_parts(self, order: Order) -> bool:
        """Whether an order needs several requests: never."""
        return False

    async def transfer(self, order: Order, send: Send, *, keep_alive: bool) -> int:
        """Do an order of several requests; there are none."""
        raise AssertionError("a Swift object goes up and down in one request")

    async def present(self, container: str) -> dict[str, int]:
        """Name and size of each object in a container; empty if it is not there. Raises: NotRunningError."""
        connection = Connection(self._endpoint, self._timeouts)
        held: dict[str, int] = {}
        marker = ""
        try:
            while True:
                page = await self._page(connection, container, marker)
                held |= page
                if len(page) < LISTING_LIMIT:
                    return held
                marker = list(page)[-1]
        finally:
            connection.close()

    async def _page(self, connection: Connection, container: str, marker: str) -> dict[str, int]:
        path = f"{self._path}/{quote(container)}?format=json&limit={LISTING_LIMIT}&marker={quote(marker)}"
        reply = await connection.exchange(_head("GET", path, self._host, self._token, True).encode(), kept=True)
        if reply.error or reply.status not in (200, 204, 404):
            raise NotRunningError(
                f"the container {container} cannot be listed ({reply.error or reply.status})", "see the store's logs"
            )
        entries = json.loads(reply.body) if reply.status == 200 else []
        return {entry["name"]: entry["bytes"] for entry in entries if "name" in entry}

    def _use(self, access: Access) -> None:
        parts = urlsplit(access.storage_url)
        self._endpoint = resolve(access.storage_url)
        self._host = parts.netloc
        self._path = parts.path.rstrip("/")
        self._token = f"X-Auth-Token: {access.token}\r\n" if access.token else ""

    def _put(self, order: Order, path: str, keep_alive: bool) -> Request:
        body = bodies.body(order.path, order.size_bytes, zeros=order.zeros)
        more = f"X-Delete-After: {order.delete_after_s}\r\n" if order.delete_after_s else ""
        length = "Transfer-Encoding: chunked\r\n" if order.chunked else f"Content-Length: {order.size_bytes}\r\n"
        head = _head("PUT", path, self._host, f"{self._token}{more}{length}", keep_alive).encode()
        return Request(head, _chunks(body) if order.chunked else body, order.size_bytes)

    def _is_right(self, order: Order, reply: Reply) -> bool:
        """Whether what was read is what this generator writes, or what was written is what was sent."""
        if order.kind is Kind.READ:
            expected = bodies.body(order.path, reply.body_len, zeros=order.zeros)
            return reply.digest == bodies.digest(expected)
        if order.kind in (Kind.WRITE, Kind.PREPARE):
            sent = bodies.body(order.path, order.size_bytes, zeros=order.zeros)
            return reply.etag == bodies.digest(sent).hex()
        return True


def _head(method: str, path: str, host: str, more: str, keep_alive: bool) -> str:
    closing = "" if keep_alive else "Connection: close\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: twintap-bench\r\n{closing}{more}\r\n"


def _chunks(body: bodies.Body) -> list[bytes | memoryview]:
    """A body as HTTP chunks."""
    framed: list[bytes | memoryview] = []
    for part in body:
        for start in range(0, len(part), _CHUNK_BYTES):
            piece = part[start : start + _CHUNK_BYTES]
            framed += [b"%x\r\n" % len(piece), piece, b"\r\n"]
    return [*framed, b"0\r\n\r\n"]
