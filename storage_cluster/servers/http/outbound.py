"""The client's side of a connection to another server: one request at a time; the connection may be reused.

Failures of the peer (refused, reset, silent for too long, no sense in what it says) are all `OSError`s, raised to who
waits. Silence counts only while somebody waits for the peer: a server that holds an open upload owes us nothing.

Source: Swift, swift.common.bufferedhttp; node_timeout and conn_timeout of its proxy.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import cast

from storage_cluster.servers.http.framing import END, FramingError, ResponseHead, ResponseReader, head_bytes
from storage_cluster.servers.http.streams import UNSENT_MAX_BYTES, ArrivingBody, Clock, Patience, Sending

NODE_TIMEOUT_S = 10.0
_CONTINUE_STATUS = 100


class OutboundConnection(Sending, asyncio.Protocol):
    """One connection to one server."""

    def __init__(self, clock: Clock | None = None, patience_s: float = NODE_TIMEOUT_S) -> None:
        super().__init__()
        self._patience_s = patience_s
        self._clock: Clock = clock or asyncio.get_running_loop()
        self._reader = ResponseReader()
        self._failure: OSError | None = None
        self._head: ResponseHead | None = None
        self._continued = False
        self._waiter: asyncio.Future[None] | None = None
        self._chunked = False
        self.body = ArrivingBody()
        self.reused = False
        """Whether it has carried a request before, so that the server may have closed it meanwhile."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNSENT_MAX_BYTES)
        self._patience = Patience(self._patience_s, self._on_silence, self._clock)

    def wait_for(self, patience_s: float) -> None:
        """Change how long the server may be silent."""
        self._patience.stop()
        self._patience_s = patience_s
        self._patience = Patience(patience_s, self._on_silence, self._clock)

    def connection_lost(self, failure: Exception | None) -> None:
        """The connection is closed."""
        self._patience.stop()
        if self._reader.end_of_stream():
            self.body.end()
        self._fail(failure if isinstance(failure, OSError) else ConnectionResetError("closed by the server"))
        self._sending_lost()

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer have arrived."""
        self._patience.touch()
        try:
            for event in self._reader.feed(data):
                if isinstance(event, bytes):
                    self.body.feed(event, self._transport)
                elif event is END:
                    self._end_of_message()
                else:
                    assert isinstance(event, ResponseHead)
                    self._take_head(event)
        except FramingError as error:
            self._fail(ConnectionAbortedError(str(error)))
            self._transport.abort()

    def ask(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes = b"") -> None:
        """Send a request, with its body if it is known already."""
        self._reader.to_head = method == "HEAD"
        self._head, self._continued, self.body = None, False, ArrivingBody()
        self._send(head_bytes(f"{method} {path} HTTP/1.1", list(headers)) + body)

    def ask_to_upload(self, path: str, headers: Mapping[str, str]) -> None:
        """Send the head of a PUT whose body waits for `100 Continue`; in chunks if the headers give no length."""
        self.ask_in_pieces("PUT", path, headers, ("Expect", "100-continue"))

    def ask_in_pieces(self, method: str, path: str, headers: Mapping[str, str], *last: tuple[str, str]) -> None:
        """Send the head of a request whose body follows piece by piece; in chunks if the headers give no length."""
        self._chunked = "Content-Length" not in headers
        framing = [("Transfer-Encoding", "chunked")] if self._chunked else []
        self.ask(method, path, [*headers.items(), *framing, *last])

    async def asked_for_body(self) -> bool:
        """Wait for `100 Continue`; False if there is an answer instead. Raises: OSError."""
        while not self._continued and self._head is None:
            await self._wait()
        return self._head is None

    def expect_to_be_asked_again(self) -> None:
        """From now on `asked_for_body` waits for another `100 Continue`."""
        self._continued = False

    def end_with_trailers(self, trailers: Mapping[str, str]) -> None:
        """End a body that is sent in chunks, with headers after it."""
        self._send(head_bytes("0", list(trailers.items())))

    def send_chunk(self, chunk: bytes) -> None:
        """Send a piece of the body; an empty one ends it."""
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(chunk), chunk)
        if chunk:
            self._send(chunk)

    @property
    def is_answered(self) -> bool:
        """Whether an answer has begun, or cannot arrive any more."""
        return self._head is not None or self._failure is not None

    @property
    def early_status(self) -> int:
        """The status of the answer, 0 as long as there is none."""
        return self._head.status if self._head is not None else 0

    async def head(self) -> ResponseHead:
        """The answer's head. Raises: OSError."""
        while self._head is None:
            await self._wait()
        return self._head

    async def wait_for_room(self) -> None:
        """Wait until more may be sent. Raises: OSError."""
        self._patience.touch()
        await self.drain()

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request: the answer is complete and the server keeps it open."""
        return (
            self._failure is None
            and self._head is not None
            and self._head.keeps_alive
            and self.body.ended
            and not self._transport.is_closing()
        )

    def close(self) -> None:
        """Close the connection, even during an answer or a body."""
        self._patience.stop()
        if self.body.ended:
            self._transport.close()
        else:
            self._transport.abort()

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
            self._patience.touch()

    def _take_head(self, head: ResponseHead) -> None:
        if head.status == _CONTINUE_STATUS:
            self._continued = True
        elif head.status > 199:
            self._head = head
        self._wake()

    def _end_of_message(self) -> None:
        if self._head is not None:  # else it was an interim answer
            self.body.end()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._patience.touch()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: OSError) -> None:
        if self._failure is None:
            self._failure = failure
            self.body.fail(failure)
            self._wake()

    def _on_silence(self) -> None:
        if self._waiter is not None or self.body.is_awaited or self.is_blocked:
            self._fail(TimeoutError("the server is silent"))
            self._transport.abort()
        else:
            self._patience = Patience(self._patience_s, self._on_silence, self._clock)
