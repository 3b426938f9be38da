"""Viewers of a series' periods, below `/period/NAME/`: a few traces are open at a time, opened when they are asked for.

The address names the period, so pages of different periods beside each other never mix. A trace that was closed to make
room for another is opened again with the next question about it; numbers of packets and requests are the same then.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from collector.queries import SeriesEntry, open_trace
from viewer.access import Access
from viewer.app import create_app
from viewer.mounting import PERIOD, base_of

MOST_OPEN = 3
StartResponse = Callable[..., Any]


class OpenPeriods:
    """The last few periods that were looked at, each with an application of its own."""

    def __init__(self, place: Callable[[SeriesEntry], str], access: Access, most: int = MOST_OPEN) -> None:
        self._place, self._access, self._most = place, access, most
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._apps: OrderedDict[tuple[str, int], Flask] = OrderedDict()
        self._starts_ns: dict[str, int] = {}

    def app(self, entry: SeriesEntry) -> Flask:
        """The viewer of a period's trace. Raises: TracerError if it cannot be opened."""
        key = (entry.period.name, entry.made_ns)
        found = self._find(key)
        if found is not None:
            return found
        with self._opening:
            found = self._find(key)
            if found is None:
                trace = open_trace(self._place(entry))
                found = create_app(trace, self._access, base=base_of(entry.period.name)).server
                self._keep(key, found, trace.start_ns)
            return found

    def start_ns(self, entry: SeriesEntry) -> int:
        """When a period's trace begins. Raises: as `app`."""
        self.app(entry)
        with self._lock:
            return self._starts_ns[entry.period.name]

    @property
    def names(self) -> list[str]:
        """Those that are open, the one that was asked last at the end."""
        with self._lock:
            return [name for name, _ in self._apps]

    def _find(self, key: tuple[str, int]) -> Flask | None:
        with self._lock:
            if key in self._apps:
                self._apps.move_to_end(key)
            return self._apps.get(key)

    def _keep(self, key: tuple[str, int], app: Flask, start_ns: int) -> None:
        with self._lock:
            self._apps[key], self._starts_ns[key[0]] = app, start_ns
            while len(self._apps) > self._most:
                self._apps.popitem(last=False)


def answer_below(app: Flask, name: str, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """The answer of a period's viewer, which knows nothing of the part of the path that names the period."""
    base = base_of(name)

    def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
        placed = [
            (key, base + value if key.lower() == "location" and value.startswith("/") else value)
            for key, value in headers
        ]
        return start_response(status, placed, *rest)

    within = {
        **environ,
        "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + base,
        "PATH_INFO": environ["PATH_INFO"][len(base) :],
    }
    return app(within, start)


def named_period(path: str) -> tuple[str, str] | None:
    """The period that a path names, and the rest of the path; None for a path to something else."""
    found = PERIOD.match(path)
    return None if found is None else (found[1], found[2])
