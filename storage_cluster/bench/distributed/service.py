"""Running a driver's or a controller's service until it is ended."""

import socket

import uvicorn
import uvloop
from fastapi import FastAPI


def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve on that socket until SIGINT or SIGTERM."""
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2)
    uvloop.run(uvicorn.Server(config).serve(sockets=[listener]))
