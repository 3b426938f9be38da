"""Makes what the pages show first of a long trace before they are opened, when the timeline is there.

Each would take a second or more when it is opened for the first time, since it counts all requests. What is made is
kept by the queries (`collector.queries.load`, `TraceView.stage_columns`).
"""

from contextlib import suppress
from threading import Event, Thread

from flask import Flask, Response, request

from collector.queries import TraceView
from tracer.errors import InputError, ResourceError
from viewer.pages.address import Address
from viewer.pages.app import page_content
from viewer.pages.context import PageData

LONG = 1 << 19
"""Of fewer requests a page is made at once."""
PATHS = ("/pages/latency", "/pages/services", "/pages/overlay")
LAST_OF_TIMELINE = "/api/bands"
"""What the timeline asks for when its picture is settled."""


def add_warming(server: Flask, data: PageData) -> None:
    """Begin in the background after the timeline's last question; of a trace that is far away nothing is read ahead."""
    if data.trace.reads is not None or data.trace.summary.roots_count < LONG:
        return
    begun = Event()

    @server.after_request
    def begin(response: Response) -> Response:
        if request.path == LAST_OF_TIMELINE and not begun.is_set():
            begun.set()
            Thread(target=_warm, args=(data,), daemon=True).start()
        return response


def _warm(data: PageData) -> None:
    with suppress(InputError, ResourceError):  # who opens the page reads why
        for path in PATHS:
            page_content(data, Address.of(path, ""))
        _read_stages(data.trace)


def _read_stages(trace: TraceView) -> None:
    """What *why* compares a request with."""
    _ = trace.numbers_of_stages
