"""The sessions whose trace is being made: one maker each, of all collectors that share the data."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

PATIENCE_SECONDS = 1.0
"""For so long a session's lock is waited for: others hold it also for moments in which they remove files."""
PAUSE_SECONDS = 0.05


class NameLock(Protocol):
    """Of a name: `collector.service.shared_data.FileLock`, or one that is free for this process alone."""

    def take(self) -> bool:
        """Hold it; False if another one does. Raises: OSError."""
        ...

    def release(self) -> None:
        """Let another one hold it."""
        ...

    def holder(self) -> str:
        """Who holds it; empty if nobody does."""
        ...


class _OwnLock:
    """No other process has names."""

    def take(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def holder(self) -> str:
        return ""


_OWN = _OwnLock()


class UnderWay:
    """A set of names; safe to use from several threads.

    Arguments: `lock_of`, the lock of a name, which keeps out other collectors where there are some.
    """

    def __init__(self, lock_of: Callable[[str], NameLock] = lambda _name: _OWN) -> None:
        self._lock_of = lock_of
        self._lock = threading.Lock()
        self._names: dict[str, NameLock] = {}

    def begin(self, name: str) -> bool:
        """Add a name; False if it is there. Raises: OSError."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with self._lock:
                if name in self._names:
                    return False
                lock = self._lock_of(name)
                if lock.take():
                    self._names[name] = lock
                    return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_SECONDS)

    def end(self, name: str) -> None:
        """Remove a name."""
        with self._lock:
            lock = self._names.pop(name, None)
            if lock is not None:
                lock.release()

    @contextmanager
    def keep_out(self, name: str) -> Iterator[bool]:
        """Within it no name can be added; False if this one is there. Must be short. Raises: OSError."""
        with self._lock:
            lock = self._lock_of(name)
            is_free = name not in self._names and lock.take()
            try:
                yield is_free
            finally:
                lock.release()

    def holder(self, name: str) -> str:
        """Of another collector that has a name: its host and process; else empty."""
        return "" if name in self._names else self._lock_of(name).holder()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        with self._lock:
            if name in self._names:
                return True
            lock = self._lock_of(str(name))
            is_free = lock.take()
            lock.release()
            return not is_free
