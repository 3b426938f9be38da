"""Handles signals that request an end: deferred during a step that must not be interrupted (a program is started *and*
recorded), or stored in a flag where an exception from a handler could be lost in an event loop written in C.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 0.05


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer signals that request an end until the block ends. Does nothing in threads but the main one."""
    if not _in_main_thread():
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
def call_on_interrupt(ask_to_end: Callable[[], None]) -> Iterator[None]:
    """Within it, a signal that requests an end calls `ask_to_end` and raises nothing; ignored signals stay ignored."""

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


def reraise_lost_signals() -> None:
    """From now on, raise an exception that requests an end again if Python had to ignore it: a signal may arrive in a
    weak reference's callback or in a finaliser, from which no exception propagates. For the main thread."""
    others = sys.unraisablehook

    def report(lost: "sys.UnraisableHookArgs") -> None:
        ending = lost.exc_value
        if not isinstance(ending, SystemExit | KeyboardInterrupt) or not _in_main_thread():
            others(lost)
            return
        kind, given = type(ending), ending.args

        def again(_number: int, _frame: FrameType | None) -> None:
            raise kind(*given)

        signal.signal(signal.SIGALRM, again)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)

    sys.unraisablehook = report


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
