"""A proxy to an HTTP server on loopback that answers some requests as a busy store or a broken network does."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_DOWN = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>'


class UnreliableProxy(ThreadingHTTPServer):
    """Passes requests on; while `faults` holds some, each answers a request: `busy` (503) or `cut` (half a body)."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port_behind = port
        self.faults: list[str] = []
        self.requests_count = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: UnreliableProxy

    def do_GET(self) -> None:
        self.server.requests_count += 1
        fault = self.server.faults.pop() if self.server.faults else ""
        if fault == "busy":
            return self._answer(503, {"Content-Type": "application/xml"}, SLOW_DOWN, len(SLOW_DOWN))
        behind = http.client.HTTPConnection("127.0.0.1", self.server.port_behind)
        behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():  # all as they are: they are signed
            behind.putheader(name, value)
        behind.endheaders(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        answer = behind.getresponse()
        body = answer.read()
        behind.close()
        left_out = {"content-length", "connection", "transfer-encoding"}
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in left_out}
        self._answer(answer.status, headers, body[: len(body) // 2] if fault == "cut" else body, len(body))
        self.close_connection = fault == "cut"
        return None

    do_HEAD = do_PUT = do_GET

    def _answer(self, status: int, headers: dict[str, str], body: bytes, length: int) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def unreliable_proxy(port: int) -> Iterator[UnreliableProxy]:
    """A proxy that runs within the context."""
    with UnreliableProxy(port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
