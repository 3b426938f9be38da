"""Shared by both ends of a connection: a body that arrives, flow control of what is sent, and the timeout for the peer.

Back pressure propagates: no chunks are taken from a body → the socket is no longer read → the peer's window closes; the
peer does not read → `drain` waits.
"""

import asyncio
import collections
from collections.abc import Callable
from typing import Protocol

from multidict import CIMultiDict

HELD_MAX_BYTES = 1_048_576
"""Unread bytes of a body that are buffered before the socket is no longer read."""
UNSENT_MAX_BYTES = 1_048_576
"""Unsent bytes that are buffered before `drain` waits."""


class Clock(Protocol):
    """The clock of an event loop."""

    def time(self) -> float:
        """Seconds, never stepping back."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call a function later, unless cancelled before."""


class Patience:
    """Calls back when nothing has happened for a while. `touch` is cheap: the timer looks at it when it runs out."""

    def __init__(self, limit_s: float, expired: Callable[[], None], clock: Clock) -> None:
        self._limit_s = limit_s
        self._expired = expired
        self._clock = clock
        self._touched_s = clock.time()
        self._timer: asyncio.TimerHandle | None = clock.call_later(limit_s, self._look)

    def touch(self) -> None:
        """Restart the timeout, since something happened."""
        self._touched_s = self._clock.time()

    def stop(self) -> None:
        """Cancel the timeout."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        left_s = self._touched_s + self._limit_s - self._clock.time()
        if left_s <= 0:
            self._timer = None
            self._expired()
        else:
            self._timer = self._clock.call_later(left_s, self._look)


class ArrivingBody:
    """A body's bytes in order, read once by one reader; an async iterator."""

    def __init__(self) -> None:
        self._chunks: collections.deque[bytes] = collections.deque()
        self._held_bytes = 0
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.ReadTransport | None = None  # while it is paused
        self.ended = False
        self.trailers: CIMultiDict[str] = CIMultiDict()
        """Headers that stood behind the body; whole once it has ended."""

    @property
    def is_awaited(self) -> bool:
        """Whether its reader waits for bytes to arrive."""
        return self._waiter is not None

    def feed(self, chunk: bytes, transport: asyncio.ReadTransport) -> None:
        """Add bytes that have arrived."""
        self._chunks.append(chunk)
        self._held_bytes += len(chunk)
        if self._held_bytes > HELD_MAX_BYTES:
            transport.pause_reading()
            self._transport = transport
        self._wake()

    def end(self) -> None:
        """Mark the body as complete."""
        self.ended = True
        self._wake()

    def fail(self, failure: BaseException) -> None:
        """End the body with an error: the reader gets the buffered bytes, then this error."""
        if not self.ended and self._failure is None:
            self._failure = failure
            self._wake()

    def drop(self) -> None:
        """Discard the buffered bytes; the caller of `feed` discards later ones."""
        self._chunks.clear()
        self._resume_source()

    def __aiter__(self) -> "ArrivingBody":
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self.ended:
                raise StopAsyncIteration
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunk = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._resume_source()
        return chunk

    def _resume_source(self) -> None:
        self._held_bytes = 0
        if self._transport is not None:
            paused, self._transport = self._transport, None
            if not paused.is_closing():
                paused.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Sending:
    """The sending half of a connection, with its pace; a base for asyncio protocols."""

    def __init__(self) -> None:
        self._paused = False
        self.lost = False
        """The peer is gone."""
        self._drained: asyncio.Future[None] | None = None

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """The transport has sent most of its buffer."""
        self._paused = False
        self._release()

    @property
    def is_blocked(self) -> bool:
        """Whether the peer reads more slowly than data is sent."""
        return self._paused

    async def drain(self) -> None:
        """Wait until more may be sent. Raises: ConnectionResetError if the peer is gone."""
        while self._paused and not self.lost:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        if self.lost:
            raise ConnectionResetError

    def _sending_lost(self) -> None:
        self.lost = True
        self._release()

    def _release(self) -> None:
        waiting, self._drained = self._drained, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
