"""The client side of every server: converts a request on a socket to a `Call`, and a `Reply` to a response.

`framing` parses messages; `inbound` manages connections.
"""

import asyncio
import dataclasses
import functools
import socket
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from urllib.parse import parse_qsl, unquote_to_bytes

from storage_cluster.servers.http.access_log import AccessLog, Served
from storage_cluster.servers.http.framing import FramingError, head_bytes
from storage_cluster.servers.http.inbound import WHOLE, Exchange, InboundConnection, Writing
from storage_cluster.servers.http.messages import (
    Body,
    BrokenOff,
    Call,
    ClientGone,
    Handler,
    Refusal,
    Reply,
    reply_of,
)
from storage_cluster.servers.http.streams import Clock
from storage_cluster.servers.http.times import new_transaction_id
from storage_cluster.servers.processor import Processor

ACCEPT_BACKLOG = 4096
SHUTDOWN_GRACE_S = 1.0
_SHUTDOWN_POLL_S = 0.02
_BODILESS_STATUSES = (204, 304)
_OURS = ("Content-Length", "Transfer-Encoding", "Connection", "Date", "X-Trans-Id", "X-Openstack-Request-Id")
DEFAULT_CONTENT_TYPE = "text/html; charset=UTF-8"

NamesOf = Callable[[str], tuple[str, ...]]
"""A call's `names` from its decoded path. Raises: Refusal."""

TransactionIdOf = Callable[[str, Mapping[str, str]], str]
"""A call's transaction id from its raw path and headers."""

ReplyTo = Callable[[Refusal, str], Reply]
"""The reply to a request that cannot be read, or that a handler refuses, with its transaction id."""


def swift_reply(refusal: Refusal, _: str) -> Reply:
    """The reply in Swift's words."""
    return refusal.reply()


@dataclasses.dataclass
class Front:
    """The front side of one server process."""

    handler: Handler
    log: AccessLog
    names_of: NamesOf
    transaction_id_of: TransactionIdOf
    reply_to: ReplyTo = swift_reply
    processor: Processor | None = None
    """The modelled one, if the topology has it."""
    writing: Writing = WHOLE
    _connections: set[InboundConnection] = dataclasses.field(default_factory=set)

    async def serve(self, listening: socket.socket) -> asyncio.Server:
        """Begin to serve requests on a bound socket."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(self.connection, sock=listening, backlog=ACCEPT_BACKLOG)

    def connection(self, clock: Clock | None = None) -> InboundConnection:
        """The protocol object of one client's connection."""
        return InboundConnection(self._serve, self._refuse, self._connections, clock, self.writing)

    async def shutdown(self) -> None:
        """Close the remaining connections, busy ones after a short wait."""
        for connection in list(self._connections):
            connection.stop()
        deadline = asyncio.get_running_loop().time() + SHUTDOWN_GRACE_S
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_SHUTDOWN_POLL_S)
        for connection in list(self._connections):
            connection.abort()

    async def _serve(self, exchange: Exchange) -> None:
        start_ns = time.time_ns()
        if self.processor is not None:
            self.processor.spend()
        head = exchange.head
        raw_path, _, query = head.target.partition("?")
        call = Call(
            method=head.method,
            names=(),
            query=dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape")) if query else {},
            headers=head.headers,
            body=Body(
                exchange.body,
                head.length,
                exchange.send_continue if exchange.expects_continue else None,
                framed=head.has_framing,
                trailers=exchange.body.trailers,
                ask_for_more=exchange.ask_for_more,
            ),
            target=head.target,
            transaction_id=self.transaction_id_of(raw_path, head.headers),
            peer=exchange.connection.peer,
        )
        reply = await self._reply(call, raw_path)
        if self.processor is not None:
            self.processor.spend_on_body(call.body.bytes_in)
        await _send(exchange, call, reply)
        self.log.write(
            Served(
                transaction_id=call.transaction_id,
                method=head.method,
                path=head.target,
                status=reply.status,
                start_ns=start_ns,
                end_ns=time.time_ns(),
                bytes_in=call.body.bytes_in,
                bytes_out=exchange.bytes_out,
                peer=call.peer,
                local=exchange.connection.local,
                headers=call.headers,
                source=call.source,
            )
        )

    async def _reply(self, call: Call, raw_path: str) -> Reply:
        try:
            call.path = decoded_path(raw_path)
            call.names = self.names_of(call.path)
            return await reply_of(self.handler, call)
        except Refusal as refusal:
            return self.reply_to(refusal, call.transaction_id)
        except ClientGone:
            return Refusal(499).reply()

    def _refuse(self, error: FramingError) -> bytes:
        reply = self.reply_to(Refusal(error.status, error.text), new_transaction_id())
        assert isinstance(reply.body, bytes)
        length = ("Content-Length", str(len(reply.body)))
        headers = [*reply.headers.items(), length, ("Date", _date()), ("Connection", "close")]
        return head_bytes(_status_line(reply), headers) + reply.body


def decoded_path(raw_path: str) -> str:
    """The path of a request line without its percent signs. Raises: Refusal (412)."""
    if not raw_path.startswith("/"):  # absolute form: http://host/path
        raw_path = "/" + raw_path.partition("://")[2].partition("/")[2]
    try:
        return unquote_to_bytes(raw_path.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(412, "Invalid UTF8 or contains NULL") from None


def segments(count: int) -> NamesOf:
    """Names are at most this many segments of the path; the last keeps its slashes."""
    return lambda path: tuple(path[1:].split("/", count - 1))


def given_transaction_id(_: str, headers: Mapping[str, str]) -> str:
    """The transaction id in a request to a server behind the proxy; `-` as in Swift's logs if none."""
    return headers.get("X-Trans-Id", "-")


def own_transaction_id(_: str, __: Mapping[str, str]) -> str:
    """A new transaction id, for the servers that clients talk to."""
    return new_transaction_id()


async def _send(exchange: Exchange, call: Call, reply: Reply) -> None:
    """Send a reply; `reply.status` becomes 499 where the client left before its end."""
    try:
        if isinstance(reply.body, bytes) or call.method == "HEAD" or reply.status in _BODILESS_STATUSES:
            _send_whole(exchange, call, reply)
        else:
            await _send_stream(exchange, call, reply)
    except ConnectionError:
        reply.status = 499
        exchange.keeps_alive = False
    except BrokenOff:
        exchange.keeps_alive = False
        exchange.abort()
    finally:
        await reply.close()


def _send_whole(exchange: Exchange, call: Call, reply: Reply) -> None:
    body = reply.body if isinstance(reply.body, bytes) else b""
    length = str(len(body))
    if call.method == "HEAD":  # as in Swift: not even the length of an error's text is sent
        length = reply.headers.get("Content-Length", length) if reply.is_success else "0"
    headers = [*_headers(call, reply), ("Content-Length", length)]
    unwanted = call.method == "HEAD" or reply.status in _BODILESS_STATUSES
    exchange.start(_status_line(reply), headers, b"" if unwanted else body)


async def _send_stream(exchange: Exchange, call: Call, reply: Reply) -> None:
    headers = _headers(call, reply)
    given = reply.headers.get("Content-Length")
    if given is not None:
        headers.append(("Content-Length", given))
    chunked = given is None and exchange.head.minor_version == 1
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    elif given is None:
        exchange.keeps_alive = False  # the connection's end is the body's
    exchange.start(_status_line(reply), headers)
    async for chunk in reply.chunks():
        if chunk:
            exchange.bytes_out += len(chunk)
            await exchange.send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
    if chunked:
        await exchange.send(b"0\r\n\r\n")
    elif given is not None and exchange.bytes_out != int(given):
        raise BrokenOff


def _headers(call: Call, reply: Reply) -> list[tuple[str, str]]:
    headers = [pair for pair in reply.headers.items() if pair[0].title() not in _OURS]
    if "Content-Type" not in reply.headers:
        headers.append(("Content-Type", DEFAULT_CONTENT_TYPE))
    headers += (
        ("X-Trans-Id", call.transaction_id),
        ("X-Openstack-Request-Id", call.transaction_id),
        ("Date", _date()),
    )
    return headers


def _status_line(reply: Reply) -> str:
    return f"HTTP/1.1 {reply.status} {reply.phrase}"


@functools.lru_cache(1)
def _date_of(second: int) -> str:
    return formatdate(second, usegmt=True)


def _date() -> str:
    return _date_of(int(time.time()))
