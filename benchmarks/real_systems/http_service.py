"""A plain HTTP service on Python's own server: `python -m benchmarks.real_systems.http_service SETTINGS.json`.

Settings: `address`, `port`, `log`, `work_ms` (least and most of its own work), `calls` (URLs that it asks for each
request, one after the other, over kept connections), `parallel` (all of them at once), and `tls` (a file with a
certificate and its key; none, or "", for plain HTTP).

Its log has a line of JSON for each request: target, the client's port, when it had the head and when the answer was
ready (ns), the caller's `X-Judge`, its own, which goes along with what it asks, and how long that took. The product
does not know that header.
"""

import http.client
import itertools
import json
import os
import random
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit


class Service(ThreadingHTTPServer):
    """With its settings, its log, and connections that it keeps."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.log = os.open(settings["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.free: dict[str, list[http.client.HTTPConnection]] = {}
        self.pool = ThreadPoolExecutor(64)
        super().__init__((settings["address"], settings["port"]), Handler)
        if settings.get("tls"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings["tls"])
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
            Handler.disable_nagle_algorithm = True  # else the first answer waits for the ACK of the session tickets

    def ask(self, url: str, judge: str) -> dict[str, Any]:
        """One call over a kept connection; when it was made, and answered."""
        parts = urlsplit(url)
        with self.lock:
            free = self.free.setdefault(parts.netloc, [])
            connection = free.pop() if free else _connection(parts)
            if connection.sock is None:
                connection.connect()
        began = time.time_ns()
        connection.request("GET", parts.path, headers={"X-Judge": judge})
        connection.getresponse().read()
        ended = time.time_ns()
        with self.lock:
            free.append(connection)
        return {"judge": judge, "took_ns": ended - began}


def _connection(parts: SplitResult) -> http.client.HTTPConnection:
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, context=ssl._create_unverified_context())
    return http.client.HTTPConnection(parts.hostname or "", parts.port)


class Handler(BaseHTTPRequestHandler):
    """Works a little, asks the others, answers 300 bytes."""

    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        began = time.time_ns()
        mine = f"{self.server.settings['port']}-{next(self.server.numbers)}"
        settings = self.server.settings
        time.sleep(random.uniform(*settings["work_ms"]) / 1e3)
        words = [(url, f"{mine} {number}") for number, url in enumerate(settings["calls"])]
        run = self.server.pool.map if settings.get("parallel") else map
        asked = list(run(lambda one: self.server.ask(*one), words))
        line = {"target": self.path, "port": self.client_address[1], "began_ns": began, "ended_ns": time.time_ns()}
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n" + b"x" * 300)
        line |= {"judge": self.headers.get("X-Judge", ""), "mine": mine, "asked": asked}
        os.write(self.server.log, (json.dumps(line) + "\n").encode())

    def log_message(self, *_: object) -> None:
        """Its own log has it."""


if __name__ == "__main__":
    Service(json.loads(Path(sys.argv[1]).read_text("utf-8"))).serve_forever()
