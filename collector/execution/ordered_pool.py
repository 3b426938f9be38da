"""Processes parts in parallel, and stores their results one after the other, in the order of the parts.

The thread that processed a part also stores its result, as soon as all earlier parts are stored. So there is no extra
thread that stores results, and no result waits except in its thread: memory is one part for each thread.

Where parts come one after the other, `with_work_behind` does some work on each while the next one is made.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition, Lock
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def run_in_order(
    pool: ThreadPoolExecutor,
    workers: int,
    parts: Iterable[Part],
    work: Callable[[Part], Result],
    store: Callable[[Part, Result], None],
) -> None:
    """Call `work` for every part, `workers` at a time, and `store` with each result, one at a time.

    Raises: the first exception of `work` or `store`; no further part is started then.
    """
    turns, numbered, taking = _Turns(), iter(enumerate(parts)), Lock()

    def run() -> None:
        while True:
            with taking:
                number, part = next(numbered, (-1, None))
            if part is None or turns.failed:
                return
            with turns.stop_on_error():
                result = work(part)
                with turns.wait_for(number) as mine:
                    if mine:
                        store(part, result)
            del result

    jobs = [pool.submit(run) for _ in range(workers)]
    with turns.stop_on_error():
        for job in jobs:
            job.result()


def with_work_behind(parts: Iterable[Part], work: Callable[[Part], None]) -> Iterator[Part]:
    """The same parts, in their order; on each of them `work` is done by another thread while the next one is made.

    Raises: the first exception of `work`, one part late; all work is done when the last part was taken.
    """
    with ThreadPoolExecutor(1) as pool:
        before: Future[None] | None = None
        for part in parts:
            if before is not None:
                before.result()
            before = pool.submit(work, part)
            yield part
        if before is not None:
            before.result()


class _Turns:
    """The part whose turn it is, by number from 0; after a failure, no part has a turn any more."""

    def __init__(self) -> None:
        self.failed = False
        self._next, self._changed = 0, Condition()

    @contextmanager
    def wait_for(self, number: int) -> Iterator[bool]:
        """Wait for a turn; False if it never comes."""
        with self._changed:
            self._changed.wait_for(lambda: self.failed or self._next == number)
            mine = not self.failed
        yield mine
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    @contextmanager
    def stop_on_error(self) -> Iterator[None]:
        """A context in which an error ends the waits of all others."""
        try:
            yield
        except BaseException:
            with self._changed:
                self.failed = True
                self._changed.notify_all()
            raise
