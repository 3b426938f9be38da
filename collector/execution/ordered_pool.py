"""Processes parts in parallel, and stores their results one after the other, in the order of the parts.

The threads that process parts also store results: whoever hands in the one whose turn it is, and those that waited for
it. So there is no extra thread that stores, and where an early part takes long the others go on, but not far: memory is
one part for each thread, and as many results that wait.

Where parts come one after the other, `with_work_behind` does some work on each while the next one is made.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition, Lock
from typing import Generic, TypeVar

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
    results, numbered, taking = _Results(store, workers - 1), iter(enumerate(parts)), Lock()

    def run() -> None:
        while not results.failed:
            with taking:
                number, part = next(numbered, (-1, None))
            if part is None:
                return
            with results.stop_on_error():
                results.hand_in(number, part, work(part))

    jobs = [pool.submit(run) for _ in range(workers)]
    with results.stop_on_error():
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


class _Results(Generic[Part, Result]):
    """Results that come in any order and are stored in that of their numbers, from 0 on; after a failure none is.

    Arguments: `most_waiting`, how many may wait for earlier ones before their threads wait, too.
    """

    def __init__(self, store: Callable[[Part, Result], None], most_waiting: int) -> None:
        self.failed = False
        self._store, self._most_waiting = store, most_waiting
        self._waiting: dict[int, tuple[Part, Result]] = {}
        self._next, self._is_storing, self._changed = 0, False, Condition()

    def hand_in(self, number: int, part: Part, result: Result) -> None:
        """Store a result and those that waited for it, or leave it for the thread that hands in an earlier one."""
        with self._changed:
            self._waiting[number] = part, result
        del part, result
        while self._has_turn():
            self._store(*self._waiting.pop(self._next))
            with self._changed:
                self._next, self._is_storing = self._next + 1, False
                self._changed.notify_all()

    def _has_turn(self) -> bool:
        """Whether this thread is to store the next result; waits while too many wait for others."""
        with self._changed:
            self._changed.wait_for(lambda: self.failed or self._is_next() or len(self._waiting) <= self._most_waiting)
            self._is_storing = is_mine = self._is_next() and not self.failed
        return is_mine

    def _is_next(self) -> bool:
        return self._next in self._waiting and not self._is_storing

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
