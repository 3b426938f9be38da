"""Signals that ask to end: put off for a moment that must not be cut in two (a program is started *and* known), or
answered by a flag, where an exception out of a handler could be lost in an event loop written in C.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def put_off() -> Iterator[None]:
    """Within it no signal that asks to end has an effect; what came has it then. Does nothing in other threads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    earlier = {
        number: signal.signal(number, note) for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(came):
            signal.raise_signal(late)


@contextmanager
def answered_by(ask_to_end: Callable[[], None]) -> Iterator[None]:
    """Within it a signal that asks to end calls this and raises nothing; ignored ones stay so. For the main thread."""

    def answer(_number: int, _frame: FrameType | None) -> None:
        ask_to_end()

    earlier = {
        number: signal.signal(number, answer) for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
