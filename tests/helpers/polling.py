"""Waiting for what servers do on their own."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0
_LOOK_AGAIN_S = 0.01


def wait_for(condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
    """Poll until it holds; fails, saying what was waited for (or what a function says then), when patience is over.

    A look that takes long is not taken as often: what is waited for needs the processor, too.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        looked = time.monotonic()
        if condition():
            return
        assert looked < deadline, f"waited in vain for: {what if isinstance(what, str) else what()}"
        time.sleep(max(_LOOK_AGAIN_S, 3 * (time.monotonic() - looked)))
