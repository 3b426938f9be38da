"""Running a driver's or a controller's service until it is ended."""

import socket
from functools import partial

import uvicorn
import uvloop
from fastapi import FastAPI

from tracer.interrupts import call_on_interrupt


def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve on that socket until SIGINT, SIGTERM or SIGHUP."""
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    with call_on_interrupt(partial(setattr, server, "should_exit", True)):  # also before uvicorn listens to signals
        uvloop.run(server.serve(sockets=[listener]))
