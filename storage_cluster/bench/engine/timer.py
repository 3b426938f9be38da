"""Waiting until a time, to some 50 µs: the event loop's own timers come a millisecond late, which an open loop would
count as the store's latency. A timer of the kernel (timerfd) is watched like a socket.
"""

import asyncio
import ctypes
import os
import time
from typing import Self

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_ABSOLUTE = 1


class _Spec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class Timer:
    """One sleeper's timer; use as a context manager."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._loop.add_reader(self._descriptor, self._on_expiry)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    async def wait_until(self, due_ns: int) -> None:
        """Return at that time of `time.perf_counter_ns` (the monotonic clock), or at once if it is past."""
        if due_ns <= time.perf_counter_ns():
            return
        self._waiter = self._loop.create_future()
        spec = _Spec(0, 0, *divmod(due_ns, 1_000_000_000))
        self._libc.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(spec), None)
        await self._waiter

    def _on_expiry(self) -> None:
        os.read(self._descriptor, 8)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
