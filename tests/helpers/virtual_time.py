"""An event loop whose clock jumps: when all wait, it is at once the moment for which the first one waits."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing; notes how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout:
            self.now_s += timeout
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual."""

    def __init__(self) -> None:
        self.selector = _Jumping()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now_s


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, in no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
