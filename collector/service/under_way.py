"""The sessions whose trace is being made: one maker each."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class UnderWay:
    """A set of names; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names = set[str]()

    def begin(self, name: str) -> bool:
        """Add a name; False if it is there."""
        with self._lock:
            is_new = name not in self._names
            self._names.add(name)
            return is_new

    def end(self, name: str) -> None:
        """Remove a name."""
        with self._lock:
            self._names.discard(name)

    @contextmanager
    def keep_out(self, name: str) -> Iterator[bool]:
        """Within it no name can be added; False if this one is there. Must be short."""
        with self._lock:
            yield name not in self._names

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        with self._lock:
            return name in self._names
