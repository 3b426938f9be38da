"""A pause of a load: no operation begins, those under way end, and the load's clock stands still.

Times are of the monotonic clock, in ns. A work that has a run time runs as long as without the pause, and an open loop
goes on where it stood: what is due after a pause is due later by its length, so the pause is in no latency.
"""

import asyncio
import time


class Pause:
    """The pauses of one work."""

    def __init__(self) -> None:
        self._ended: list[tuple[int, int]] = []
        self._since = 0
        self._free = asyncio.Event()
        self._free.set()

    @property
    def is_held(self) -> bool:
        """Whether nothing may begin now."""
        return not self._free.is_set()

    def hold(self) -> None:
        """From now on nothing begins."""
        if not self.is_held:
            self._since = time.perf_counter_ns()
            self._free.clear()

    def release(self) -> None:
        """Go on."""
        if self.is_held:
            self._ended.append((self._since, time.perf_counter_ns()))
            self._free.set()

    def before_ns(self, now: int) -> int:
        """How much of the time until `now` was paused."""
        lasted = sum(max(min(end, now) - begin, 0) for begin, end in self._ended)
        return lasted + (max(now - self._since, 0) if self.is_held else 0)

    async def wait(self) -> None:
        """Wait until operations may begin."""
        if self.is_held:
            await self._free.wait()
