"""Connections to a collector that a function answers."""

import ssl
from collections.abc import Callable, Mapping

import httpx

from tracer.collector_connection import Answer, Connection

Handler = Callable[[httpx.Request], httpx.Response]


def connections_to(handler: Handler) -> Callable[[str, ssl.SSLContext | None, float], Connection]:
    """What a `CollectorClient` opens connections with, so that `handler` has its requests."""
    return lambda url, _context, _seconds: _Answering(url, handler)


class _Answering:
    def __init__(self, url: str, handler: Handler) -> None:
        self._url, self._handler = url, handler

    def request(self, method: str, path: str, headers: Mapping[str, str], content: bytes | None) -> Answer:
        found = self._handler(httpx.Request(method, self._url + path, headers=dict(headers), content=content))
        return Answer(found.status_code, found.reason_phrase, found.headers.get("Accept", ""), found.read())

    def limit_waiting(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass
