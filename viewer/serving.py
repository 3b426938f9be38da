"""The web server under the page: waitress, a few threads."""

import socket
from collections.abc import Callable, Iterable
from typing import Any

from waitress.server import MultiSocketServer, TcpWSGIServer, create_server

from viewer.uploads import PIECE_BYTES

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""As WSGI has it."""
THREADS_COUNT = 8
LARGEST_BODY_BYTES = PIECE_BYTES + (1 << 20)
"""Of a request; waitress keeps it on disk before it hands it on."""


def make_server(app: Application, listener: socket.socket) -> MultiSocketServer | TcpWSGIServer:
    """A server of a WSGI application on a bound socket; `run` serves until it is stopped."""
    # `poll`: waitress's default, `select`, fails from the 1,024th open file on.
    return create_server(
        app,
        sockets=[listener],
        threads=THREADS_COUNT,
        ident="twintap",
        asyncore_use_poll=True,
        max_request_body_size=LARGEST_BODY_BYTES,
    )
