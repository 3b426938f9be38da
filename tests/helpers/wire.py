"""The other side of a connection, for protocol tests: a transport that keeps what is written, and a settable clock."""

import asyncio
from collections.abc import Callable


class FakeTransport(asyncio.Transport):
    """Takes what a protocol writes; nothing is sent anywhere."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("10.0.0.1", 1234), "sockname": ("10.0.0.2", 80)})
        self._protocol = protocol
        self.written = b""
        self.closed = self.aborted = self.eof_written = self.reading_paused = False
        self.full = False
        protocol.connection_made(self)

    def write(self, data: bytes) -> None:
        self.written += data
        if self.full:
            self._protocol.pause_writing()

    def take(self) -> bytes:
        """What was written since the last call."""
        written, self.written = self.written, b""
        return written

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof_written = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False


class FakeTimer:
    """What `FakeClock.call_later` gives."""

    def __init__(self, due_s: float, callback: Callable[[], object]) -> None:
        self.due_s, self.callback, self.cancelled = due_s, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._timers: list[FakeTimer] = []

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay: float, callback: Callable[[], object]) -> FakeTimer:
        self._timers.append(FakeTimer(self._now_s + delay, callback))
        return self._timers[-1]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have called what is due on the way."""
        until_s = self._now_s + seconds
        while due := [timer for timer in self._timers if timer.due_s <= until_s]:
            timer = min(due, key=lambda one: one.due_s)
            self._timers.remove(timer)
            self._now_s = max(self._now_s, timer.due_s)
            if not timer.cancelled:
                timer.callback()
        self._now_s = until_s


async def settle() -> None:
    """Let every task go as far as it can without anything more arriving."""
    for _ in range(20):
        await asyncio.sleep(0)
