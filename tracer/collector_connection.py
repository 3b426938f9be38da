"""A kept connection to a collector, for one request at a time (HTTP/1.1).

`http.client` and no richer library: an agent sends two requests a second beside somebody's work, and needs none of what
those add. Measured as an agent asks, with pauses between requests: 0.5 ms of CPU time a request; httpx takes 1.6.

Nothing is followed, decoded or remembered: no redirects, content codings, cookies, or proxies of the environment.
"""

import json
import select
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Protocol
from urllib.parse import urlsplit

MOST_ANSWER_BYTES = 16 << 20
"""A collector's answers are smaller."""
HEALTHY = range(200, 300)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: int
    reason: str  # as the status line says it
    accept: str  # what its sender takes, by the header of this name; empty without it
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the request was done."""
        return self.status in HEALTHY

    def field(self, key: str) -> Any:
        """A field of the JSON object that it holds. Raises: ValueError, KeyError, TypeError."""
        return json.loads(self.content)[key]


class Connection(Protocol):
    """What requests go over."""

    def request(self, method: str, path: str, headers: Mapping[str, str], content: bytes | None) -> Answer:
        """Send a request, and wait for its answer.

        Arguments: `path` below the collector's URL.
        Raises: OSError, http.client.HTTPException; the next request opens a connection of its own then.
        """
        ...

    def limit_waiting(self, seconds: float) -> None:
        """From now on, a request fails during which nothing was sent or received for so long."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class _HttpAt(HTTPConnection):
    """A connection to one of the addresses of a name; requests and certificates name it by the name."""

    address = ""  # empty: the first of the name's that answers

    def connect(self) -> None:
        """Open it. Raises: OSError."""
        if not self.address:
            return super().connect()
        self.sock = socket.create_connection((self.address, self.port), self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return None


class _HttpsAt(HTTPSConnection, _HttpAt):
    """The same with TLS, which `HTTPSConnection.connect` adds to what the next class opens."""


class CollectorConnection:
    """A connection that is opened when it is needed, and again after it ended.

    Arguments: `context`, with which it is opened for https; `address`, at which the URL's name is asked, if it has
        several.
    """

    def __init__(self, url: str, context: ssl.SSLContext | None, timeout_seconds: float, address: str = "") -> None:
        parsed = urlsplit(url)
        self._prefix = parsed.path
        host = parsed.hostname or ""
        self._http = (
            _HttpAt(host, parsed.port, timeout=timeout_seconds)
            if context is None
            else _HttpsAt(host, parsed.port, timeout=timeout_seconds, context=context)
        )
        self._http.address = address

    def request(self, method: str, path: str, headers: Mapping[str, str], content: bytes | None) -> Answer:
        """As `Connection`."""
        if self._is_ended():
            self._http.close()
        try:
            self._http.request(method, self._prefix + path, content, dict(headers))
            with self._http.getresponse() as response:
                body = response.read(MOST_ANSWER_BYTES + 1)
                if len(body) > MOST_ANSWER_BYTES:
                    raise HTTPException("its answer is too long")
                return Answer(response.status, response.reason, response.headers.get("Accept", ""), body)
        except (OSError, HTTPException):
            self._http.close()
            raise

    def limit_waiting(self, seconds: float) -> None:
        """As `Connection`."""
        self._http.timeout = seconds
        with suppress(OSError):
            if self._http.sock is not None:
                self._http.sock.settimeout(seconds)

    def close(self) -> None:
        """As `Connection`."""
        self._http.close()

    def _is_ended(self) -> bool:
        """Whether the other end has closed it, or sent what nobody asked for."""
        if self._http.sock is None:
            return False
        polled = select.poll()
        polled.register(self._http.sock, select.POLLIN)
        return bool(polled.poll(0))
