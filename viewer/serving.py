"""The web server under the page: waitress, a few threads."""

import socket

import dash
from waitress.server import MultiSocketServer, TcpWSGIServer, create_server

THREADS = 8


def make_server(app: dash.Dash, listener: socket.socket) -> MultiSocketServer | TcpWSGIServer:
    """A server of `app` on a bound socket; `run` serves until it is stopped."""
    # `poll`: waitress's default, `select`, fails from the 1,024th open file on.
    return create_server(app.server, sockets=[listener], threads=THREADS, ident="twintap", asyncore_use_poll=True)
