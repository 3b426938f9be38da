"""Protects a collector against web pages in a local browser, which must neither send to it nor read from it.

A page of another site can make a browser send requests to a service on the same machine (cross-site requests), and its
own name can resolve to 127.0.0.1 (DNS rebinding). So requests that a browser marks as from another site are refused,
and a collector that only this machine can reach answers only to loopback names. Bodies of requests other than segments
are small; larger ones than `LARGEST_BODY_BYTES` are refused.

Source: Fetch §3.2 (Origin), Fetch Metadata (Sec-Fetch-Site).
"""

from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
OWN_SITES = (b"same-origin", b"none")
LARGEST_BODY_BYTES = 64 << 10


class TooLargeError(Exception):
    """A body larger than allowed."""


class BrowserGuard:
    """ASGI middleware. `local_only`: only loopback's names are answered."""

    def __init__(self, app: ASGIApp, local_only: bool) -> None:
        self._app, self._local_only = app, local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = dict(scope["headers"])
        trouble = why_refused(headers, local_only=self._local_only)
        if trouble:
            return await JSONResponse({"detail": trouble}, 403)(scope, receive, send)
        if scope["method"] == "PUT":
            return await self._app(scope, receive, send)  # a segment: `collector.service.ingest` has its limit
        if int(headers.get(b"content-length", b"0")) > LARGEST_BODY_BYTES:
            return await _too_large(scope, receive, send)
        try:
            await self._app(scope, _with_body_limit(receive), send)
        except TooLargeError:
            await _too_large(scope, receive, send)


def why_refused(headers: dict[bytes, bytes], *, local_only: bool) -> str:
    """Why a request with these headers is refused; empty if it is accepted."""
    host = headers.get(b"host", b"").decode("latin-1")
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if local_only and name not in LOCAL_NAMES:
        return f"this collector answers only as {' or '.join(LOCAL_NAMES)}"
    origin = headers.get(b"origin")
    if origin is not None and urlsplit(origin.decode("latin-1")).netloc != host:
        return "requests of other sites' pages are refused"
    if headers.get(b"sec-fetch-site", b"none") not in OWN_SITES:
        return "requests of other sites' pages are refused"
    return ""


_too_large = JSONResponse({"detail": "the body is too large"}, 413)


def _with_body_limit(receive: Receive) -> Receive:
    received = 0

    async def read() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > LARGEST_BODY_BYTES:
            raise TooLargeError
        return message

    return read
