"""Parts worked on side by side, what they give stored one after the other, in the parts' order.

Who has done the work of a part also stores it, as soon as all parts before it are stored. So there is no thread that
only stores and that the others wait for, and no result waits anywhere but with its worker: memory is one part each.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    """Call `work` for every part, `workers` of them at a time, and `store` with what each gives, never two at a time.

    Raises: what `work` or `store` raises first; no further part is begun then.
    """
    turns, numbered, taking = _Turns(), iter(enumerate(parts)), Lock()

    def run() -> None:
        while True:
            with taking:
                number, part = next(numbered, (-1, None))
            if part is None or turns.failed:
                return
            with turns.failing():
                result = work(part)
                with turns.of(number) as mine:
                    if mine:
                        store(part, result)
            del result

    jobs = [pool.submit(run) for _ in range(workers)]
    with turns.failing():
        for job in jobs:
            job.result()


class _Turns:
    """Whose turn it is, by number from 0; nobody's any more once something failed."""

    def __init__(self) -> None:
        self.failed = False
        self._next, self._changed = 0, Condition()

    @contextmanager
    def of(self, number: int) -> Iterator[bool]:
        """Wait for a turn; False where it never comes."""
        with self._changed:
            self._changed.wait_for(lambda: self.failed or self._next == number)
            mine = not self.failed
        yield mine
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Where an error lets all others go home."""
        try:
            yield
        except BaseException:
            with self._changed:
                self.failed = True
                self._changed.notify_all()
            raise
