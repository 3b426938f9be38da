"""The viewer in a thread."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from waitress.wasyncore import close_all

from collector.queries import TraceView
from viewer.access import Access
from viewer.app import make_viewer
from viewer.pages.context import Companions
from viewer.serving import make_server


@contextmanager
def serving(
    trace: TraceView | None, access: Access | None = None, companions: Companions | None = None
) -> Iterator[str]:
    """The URL of a viewer of `trace`, if any, on a free port of loopback, while the context lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    revisions, uploads = make_viewer(trace, access or Access(), companions)
    server = make_server(revisions, listener)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        # Closed by the thread that waits on its sockets: from here it would find them gone under its hands.
        server.trigger.pull_trigger(lambda: close_all(server.trigger._map))
        thread.join()
        server.task_dispatcher.shutdown()
        uploads.close()
