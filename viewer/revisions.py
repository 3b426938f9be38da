"""Selects the trace that the viewer shows: the one given at start, a newer revision of it, or one of uploaded captures.

A live trace is replaced about once a second. Each revision is opened separately and has its own application, so numbers
of packets and requests never mix: a page names its revision in a header, and gets data of that revision while it is
among the last few. Without a name, the newest revision answers.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask
from msgspec import Struct

from collector.queries import TraceView, is_live, live_error, made_ns, open_trace
from tracer.errors import TracerError

HEADER = "HTTP_X_TWINTAP_MADE"
COUNTERS = ("capture_dropped", "live_window_cut")
REVISIONS_KEPT = 4
"""A paused page falls behind the newest revision; its own is kept until this many have followed."""
MakeApp = Callable[[TraceView | None, "Revisions"], Flask]
Clock = Callable[[], int]


class LiveState(Struct, frozen=True):
    """The state of the newest revision."""

    live: bool  # a newer revision may follow
    made: str  # the name of the revision
    behind_seconds: float | None  # since its newest packet, by the clock of that packet's host
    dropped_count: int  # packets that the captures lost
    cut_count: int  # segments that the live window had no room for
    trouble: str = ""  # why there is no newer revision, or why it could not be opened


class Revisions:
    """A WSGI application that hands each request to the application of the revision that it names."""

    def __init__(self, trace: TraceView | None, make_app: MakeApp, clock: Clock = time.time_ns) -> None:
        self._make_app, self._clock = make_app, clock
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._apps: OrderedDict[str, Flask] = OrderedDict()
        self._trace: TraceView | None = None
        self._was_replaced = False
        self._newest: Flask
        if trace is None:
            self._newest = make_app(None, self)
        else:
            self.show(trace)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request from the revision that it names, or from the newest."""
        made = environ.get(HEADER, "")
        with self._lock:
            app = self._apps.get(made) if made else self._newest
        if app is None:
            start_response("409 Conflict", [("Content-Type", "text/plain; charset=utf-8")])
            return ["A newer revision has replaced this trace; press “follow” or reload the page.\n".encode()]
        return app(environ, start_response)

    def show(self, trace: TraceView) -> None:
        """Show this trace to every page that does not name an earlier revision."""
        app = self._make_app(trace, self)
        with self._lock:
            self._trace, self._newest = trace, app
            self._apps[revision_name(trace)] = app
            while len(self._apps) > REVISIONS_KEPT:
                self._apps.popitem(last=False)

    def refresh(self) -> LiveState:
        """The state of the newest revision, which is opened first if it is new. One thread opens at a time."""
        trace, trouble = self._trace, ""
        if trace is not None and self._opening.acquire(blocking=False):
            try:
                if made_ns(trace.stored) != trace.info.created_ns:
                    self._was_replaced = True
                    self.show(open_trace(trace.url))
            except TracerError as error:
                trouble = str(error)
            except OSError as error:
                trouble = f"the trace could not be looked at again: {error.strerror or error}"
            finally:
                self._opening.release()
        return self._state(trouble)

    def _state(self, trouble: str) -> LiveState:
        trace = self._trace
        if trace is None:
            return LiveState(False, "", None, 0, 0, trouble)
        info, now_ns = trace.info, self._clock()
        stamps = [host.last_host_ns for host in info.hosts if host.last_host_ns is not None]
        counts = {name: sum(each.count for each in info.counters if each.name == name) for name in COUNTERS}
        return LiveState(
            live=self._was_replaced or is_live(trace.stored),
            made=revision_name(trace),
            behind_seconds=max(0.0, (now_ns - max(stamps)) / 1e9) if stamps else None,
            dropped_count=counts["capture_dropped"],
            cut_count=counts["live_window_cut"],
            trouble=trouble or _live_error(trace),
        )


def _live_error(trace: TraceView) -> str:
    try:
        return live_error(trace.stored)
    except OSError as error:
        return f"whether the collector's last round succeeded could not be read: {error.strerror or error}"


def revision_name(trace: TraceView) -> str:
    """The name of this revision of a trace: when it was created."""
    return f"{trace.info.created_ns}"
