"""The viewer in a thread."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from waitress.channel import HTTPChannel
from waitress.server import MultiSocketServer, TcpWSGIServer

from collector.queries import SeriesView, TraceView
from viewer.access import Access
from viewer.app import make_viewer
from viewer.days.site import SeriesSite
from viewer.pages.context import Companions
from viewer.serving import Application, make_server


@contextlib.contextmanager
def serving(
    trace: TraceView | None, access: Access | None = None, companions: Companions | None = None
) -> Iterator[str]:
    """The URL of a viewer of `trace`, if any, on a free port of loopback, while the context lasts."""
    revisions, uploads = make_viewer(trace, access or Access(), companions)
    try:
        with _serving(revisions) as url:
            yield url
    finally:
        uploads.close()


@contextlib.contextmanager
def serving_series(place: Path, access: Access | None = None) -> Iterator[tuple[str, SeriesSite]]:
    """The URL of a viewer of the series in a folder, as `serving`, and what answers there."""
    site = SeriesSite(SeriesView(place), access or Access())
    with _serving(site) as url:
        yield url, site


@contextlib.contextmanager
def _serving(app: Application) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = make_server(app, listener)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        stop(server)
        thread.join()
        server.task_dispatcher.shutdown()


def stop(server: MultiSocketServer | TcpWSGIServer) -> None:
    """End its `run`. Its sockets are closed by the thread that waits on them: from here it would find them gone under
    its hands. That thread may be awake for another reason, and have closed what wakes it before it is woken."""
    with contextlib.suppress(OSError):
        server.trigger.pull_trigger(lambda: _close_all(server))


def _close_all(server: MultiSocketServer | TcpWSGIServer) -> None:
    """Close its sockets, and the files that it had begun to send."""
    for each in list(server.trigger._map.values()):
        if isinstance(each, HTTPChannel):
            each.handle_close()
        else:
            each.close()
