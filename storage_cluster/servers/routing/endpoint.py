"""One of the two stores: requests to it, signed anew, and its answers.

A client signs for the proxy's host and port; so the proxy verifies, and signs for the store. The hash of a body that is
signed as a whole stays as the client gave it, and the store verifies it: the proxy need not read bodies twice.

A body of up to 64 KiB goes with the head of its request, again on another connection if the store has closed a kept one
meanwhile. A longer one is passed on as it arrives, and cannot be sent again: then the client must.
"""

import dataclasses
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from multidict import CIMultiDict

from storage_cluster.s3.signatures import Credentials, SignableRequest, encode_path, signed_headers
from storage_cluster.servers.http.connections import Address, Connections
from storage_cluster.servers.http.framing import ResponseHead
from storage_cluster.servers.http.messages import Body, BrokenOff, Reply
from storage_cluster.servers.http.outbound import OutboundConnection
from storage_cluster.servers.s3.errors import S3Error

PATIENCE_S = 60.0
"""How long a store may be silent."""
AT_ONCE_MAX_BYTES = 65_536

T = TypeVar("T")
_OF_CONNECTION = ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")


@dataclasses.dataclass(frozen=True)
class Outgoing:
    """A request to a store, not signed yet."""

    method: str
    bucket: str
    key: str = ""
    query: str = ""  # encoded
    headers: tuple[tuple[str, str], ...] = ()
    body: Body = dataclasses.field(default_factory=Body)
    payload_hash: str = "UNSIGNED-PAYLOAD"
    credentials: Credentials | None = None
    """Who signs it; None: it is not signed."""

    @property
    def path(self) -> str:
        """The path of its target."""
        return "/" if not self.bucket else encode_path(f"/{self.bucket}/{self.key}" if self.key else f"/{self.bucket}")

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path


class Endpoint:
    """A store. What it cannot do for us is an S3Error that names it."""

    def __init__(
        self, name: str, address: Address, connections: Connections, region: str, *, reads_whole: bool
    ) -> None:
        """`reads_whole`: bodies are read to their end before they are passed on, in both directions."""
        self.name = name
        self._address = address
        self._connections = connections
        self._region = region
        self._reads_whole = reads_whole
        self._host = f"{address[0]}:{address[1]}"

    async def send(self, request: Outgoing) -> Reply:
        """The store's reply, whose body may still be arriving. Raises: S3Error, and what the request's body raises."""
        length = request.body.length
        if self._reads_whole or (length is not None and length <= AT_ONCE_MAX_BYTES):
            reply = await self._send_whole(request)
        else:
            reply = await self._stream(request)
        if self._reads_whole and request.method != "HEAD":
            await _read(reply)
        return reply

    async def _send_whole(self, request: Outgoing) -> Reply:
        body = b"".join([chunk async for chunk in request.body])
        if request.body.length not in (None, len(body)):
            raise S3Error("IncompleteBody")
        headers = self._headers(request, len(body))

        def ask(connection: OutboundConnection) -> Awaitable[ResponseHead]:
            connection.ask(request.method, request.target, headers, body)
            return connection.head()

        connection, head = await self._begin(ask)
        return self._reply(connection, head, is_sent=True)

    async def _stream(self, request: Outgoing) -> Reply:
        headers = CIMultiDict(self._headers(request, request.body.length))

        async def begin(connection: OutboundConnection) -> None:
            connection.ask_in_pieces(request.method, request.target, headers)

        connection, _ = await self._begin(begin)
        reply: Reply | None = None
        try:
            is_sent = await _send_body(connection, request.body)
            reply = self._reply(connection, await connection.head(), is_sent=is_sent)
            return reply
        except OSError as error:
            raise self._no_answer() from error
        finally:
            if reply is None:
                connection.close()

    async def _begin(self, ask: Callable[[OutboundConnection], Awaitable[T]]) -> tuple[OutboundConnection, T]:
        """Raises: S3Error."""
        try:
            return await self._connections.ask(self._address, ask)
        except OSError as error:
            raise self._no_answer() from error

    def _no_answer(self) -> S3Error:
        return S3Error(
            "ServiceUnavailable", f"The store for {self.name} objects, {self._host}, does not answer. Try again."
        )

    def _headers(self, request: Outgoing, length: int | None) -> list[tuple[str, str]]:
        """The headers as they are sent: signed, and with the body's framing."""
        signable = [("host", self._host), *(pair for pair in request.headers if pair[0].lower().startswith("x-amz-"))]
        headers = [("Host", self._host), *request.headers]
        if request.credentials is not None:
            asked = SignableRequest(request.method, request.path, request.query, signable)
            moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            made = signed_headers(asked, request.credentials, self._region, moment, request.payload_hash)
            headers += made.items()
        if length is not None and (length or request.method not in ("GET", "HEAD", "DELETE")):
            headers.append(("Content-Length", str(length)))
        if not self._connections.are_kept:
            headers.append(("Connection", "close"))
        return headers

    def _reply(self, connection: OutboundConnection, head: ResponseHead, *, is_sent: bool) -> Reply:
        """`is_sent`: the store has all of the request's body; otherwise its connection carries no other."""
        headers = CIMultiDict(pair for pair in head.headers.items() if pair[0].lower() not in _OF_CONNECTION)
        release = functools.partial(self._connections.release, self._address, connection)
        return Reply(head.status, headers, _chunks(connection), on_close=release if is_sent else connection.close)


async def _send_body(connection: OutboundConnection, body: Body) -> bool:
    """Pass a body on as it arrives, as fast as the store takes it; False if the store answers before its end.

    Raises: OSError, and what the body raises.
    """
    async for chunk in body:
        if connection.is_answered:
            return False
        connection.send_chunk(chunk)
        if connection.is_blocked:
            await connection.wait_for_room()
    connection.send_chunk(b"")
    return True


async def _chunks(connection: OutboundConnection) -> AsyncIterator[bytes]:
    """An answer's body. Raises: BrokenOff."""
    try:
        async for chunk in connection.body:
            yield chunk
    except OSError as error:
        raise BrokenOff from error


async def _read(reply: Reply) -> None:
    """Read a reply to its end. Raises: S3Error if it breaks off."""
    try:
        await reply.read()
    except BrokenOff:
        raise S3Error("ServiceUnavailable") from None
