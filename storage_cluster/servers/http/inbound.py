"""The server's side of a client's connection: requests in order, each answered before the next.

One task serves a connection while it has requests (several may have arrived at once: pipelining). A request that is
answered while its body is still arriving is read to its end if that is near; otherwise the connection is closed the
gentle way: no more is sent, what arrives is dropped for a moment, so that the answer is not lost to a reset.

Waits: for a request's next byte, or the next request, 60 s; for a reader that does not read, as long.

Source: RFC 9112 §9.3 (persistence, pipelining), §9.6 (tear-down); RFC 9110 §10.1.1 (Expect); Swift's client_timeout.
"""

import asyncio
import collections
import contextlib
import dataclasses
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from storage_cluster.servers.http.framing import END, FramingError, RequestHead, RequestReader, head_bytes
from storage_cluster.servers.http.messages import ClientGone, Refusal
from storage_cluster.servers.http.streams import UNSENT_MAX_BYTES, ArrivingBody, Clock, Patience, Sending

CLIENT_TIMEOUT_S = 60.0
PIPELINED_MAX = 64
"""At most so many requests wait before the socket is no longer read."""
READ_TO_END_MAX_BYTES = 1_048_576
LINGER_S = 2.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Writing:
    """How answers are written."""

    in_pieces: bool = False  # the head and a body that is known by then in two writes
    nodelay: bool = True  # TCP_NODELAY


WHOLE = Writing()


class Exchange:
    """One request whose head has arrived, and the methods to answer it."""

    def __init__(self, connection: "InboundConnection", head: RequestHead) -> None:
        self.head = head
        self.body = ArrivingBody()
        self.connection = connection
        self.keeps_alive = head.keeps_alive
        self.bytes_out = 0
        """Bytes of the response's body, written or about to be."""
        self.answered = False
        """Whether the response's head has been sent."""
        self._continued = head.minor_version == 0 or head.headers.get("Expect", "").lower() != "100-continue"

    @property
    def expects_continue(self) -> bool:
        """The client waits for `100 Continue` before it sends the body."""
        return not self._continued

    async def send_continue(self) -> None:
        """Send `100 Continue`, once, and never behind the response's head: there it would be a part of its body."""
        if not self._continued and not self.answered:
            self._continued = True
            self.connection.write(_CONTINUE)

    async def ask_for_more(self) -> None:
        """Send another `100 Continue`, amid a body whose sender waits for it; never behind the response's head."""
        if not self.answered:
            self.connection.write(_CONTINUE)

    def start(self, first_line: str, headers: list[tuple[str, str]], body: bytes = b"") -> None:
        """Send the response's head, with the body if it is known already."""
        if not self._body_may_be_left():
            self.keeps_alive = False
        if not self.keeps_alive:
            headers.append(("Connection", "close"))
        elif self.head.minor_version == 0 or self.head.headers.get("Connection", "").lower() == "keep-alive":
            headers.append(("Connection", "keep-alive"))
        self.answered = True
        self.bytes_out += len(body)
        head = head_bytes(first_line, headers)
        if self.connection.writing.in_pieces and body:
            self.connection.write(head)
            self.connection.write(body)
        else:
            self.connection.write(head + body)

    async def send(self, data: bytes) -> None:
        """Send more of the response; waits while the client is slower. Raises: ConnectionResetError."""
        self.connection.write(data)
        if self.connection.is_blocked or self.connection.lost:
            await self.connection.drain()

    def abort(self) -> None:
        """Reset the connection: the client must notice that the response is incomplete."""
        self.connection.abort()

    def _body_may_be_left(self) -> bool:
        """Whether the connection can be used after this request, whose body may have unread bytes."""
        if self.body.ended:
            return True
        if self.expects_continue or self.head.length is None:
            return False
        return self.head.length <= READ_TO_END_MAX_BYTES


Serve = Callable[[Exchange], Awaitable[None]]
RefuseBytes = Callable[[FramingError], bytes]


class InboundConnection(Sending, asyncio.Protocol):
    """One connection of one client."""

    def __init__(
        self,
        serve: Serve,
        refuse: RefuseBytes,
        registry: set["InboundConnection"],
        clock: Clock | None = None,
        writing: Writing = WHOLE,
    ) -> None:
        super().__init__()
        self._serve = serve
        self._refuse = refuse
        self._registry = registry
        self._clock: Clock = clock or asyncio.get_running_loop()
        self._reader = RequestReader()
        self._waiting: collections.deque[Exchange] = collections.deque()
        self._receiving: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._refusal: bytes | None = None  # to be sent after what is being answered
        self._discarding = False
        self.writing = writing
        self.peer = self.local = "-"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNSENT_MAX_BYTES)
        if not self.writing.nodelay:  # uvloop has set it
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        self.peer, self.local = (_address(transport, name) for name in ("peername", "sockname"))
        self._patience = Patience(CLIENT_TIMEOUT_S, self._on_silence, self._clock)
        self._registry.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        """The connection is closed."""
        self._registry.discard(self)
        self._patience.stop()
        self._discarding = True
        self._waiting.clear()
        self._break_body(ClientGone())
        self._sending_lost()

    def eof_received(self) -> bool:
        """The client will send no more, but may still read."""
        self._break_body(ClientGone())
        self._refusal = self._refusal or b""
        return self._task is not None  # else close

    def data_received(self, data: bytes) -> None:
        """Bytes of requests have arrived."""
        self._patience.touch()
        if self._discarding or self._refusal is not None:
            return
        try:
            for event in self._reader.feed(data):
                if isinstance(event, bytes):
                    self._take_body(event)
                elif event is END:
                    assert self._receiving is not None
                    self._receiving.body.trailers.extend(self._reader.trailers)
                    self._receiving.body.end()
                    self._receiving = None
                else:
                    assert isinstance(event, RequestHead)
                    self._take_head(event)
        except FramingError as error:
            self._break_body(Refusal(error.status, error.text))
            self._refusal = self._refuse(error)
        self._wake()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if not self._transport.is_closing():
            self._transport.write(data)
            self._patience.touch()

    def abort(self) -> None:
        """Abort the connection."""
        self._transport.abort()

    def stop(self) -> None:
        """Close the connection if it is idle; otherwise after the current response."""
        if self._task is None:
            self._transport.close()
        elif self._waiting:
            self._waiting[0].keeps_alive = False

    def _take_head(self, head: RequestHead) -> None:
        self._receiving = Exchange(self, head)
        self._waiting.append(self._receiving)
        if len(self._waiting) > PIPELINED_MAX:
            self._transport.pause_reading()

    def _take_body(self, chunk: bytes) -> None:
        assert self._receiving is not None
        self._receiving.body.feed(chunk, self._transport)

    def _break_body(self, failure: BaseException) -> None:
        if self._receiving is not None:
            self._receiving.body.fail(failure)
            self._receiving.keeps_alive = False
            self._receiving = None

    def _wake(self) -> None:
        if self._task is None and (self._waiting or self._refusal is not None):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                exchange = self._waiting[0]
                await self._serve(exchange)
                await self._leave_body(exchange)
                if len(self._waiting) > PIPELINED_MAX:
                    self._transport.resume_reading()
                if self._waiting:  # else the client is gone
                    self._waiting.popleft()
                if not exchange.keeps_alive:
                    self._close_gently(exchange)
                    return
        except BaseException:
            self._transport.abort()
            raise
        finally:
            self._task = None
        if self._refusal is not None:
            self.write(self._refusal)
            self._close_gently(None)

    async def _leave_body(self, exchange: Exchange) -> None:
        """Read and discard the rest of an unused body, if it is short."""
        if not exchange.body.ended and exchange.keeps_alive:
            try:
                async for _ in exchange.body:
                    pass
            except (ClientGone, Refusal):
                exchange.keeps_alive = False

    def _close_gently(self, exchange: Exchange | None) -> None:
        self._waiting.clear()
        self._discarding = True
        if self._transport.is_closing():
            return
        if exchange is None or not exchange.body.ended:  # more is on its way to us: it must not cause a reset
            with contextlib.suppress(OSError):  # the peer may have gone meanwhile
                self._transport.write_eof()
            self._transport.resume_reading()
            self._patience.stop()
            self._patience = Patience(LINGER_S, self._transport.abort, self._clock)
        else:
            self._transport.close()

    def _on_silence(self) -> None:
        """Nothing was sent or received for the timeout."""
        current = self._waiting[0] if self._waiting else None
        if current is None or self.is_blocked:
            self._transport.abort() if self.is_blocked else self._transport.close()
            return
        if current.body.is_awaited:
            current.body.fail(Refusal(408))
            current.keeps_alive = False
        self._patience = Patience(CLIENT_TIMEOUT_S, self._on_silence, self._clock)


def _address(transport: asyncio.BaseTransport, which: str) -> str:
    found = transport.get_extra_info(which)
    return f"{found[0]}:{found[1]}" if found else "-"
