"""What web pages in somebody's browser must not do with a collector: send to it, or read it under another name.

A page of another site can make a browser send requests to a service on the same machine (cross-site requests), and
can have its own name lead to 127.0.0.1 (DNS rebinding). So a request that a browser says came from elsewhere is
refused, and a collector that only this machine can reach answers under loopback's names alone. Bodies of
other requests than segments are small, and are refused beyond `LARGEST_BODY_BYTES`.

Source: Fetch §3.2 (Origin), Fetch Metadata (Sec-Fetch-Site).
"""

from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
OWN_SITES = (b"same-origin", b"none")
LARGEST_BODY_BYTES = 64 << 10


class TooLargeError(Exception):
    """A body beyond what is taken."""


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
            await self._app(scope, _limited(receive), send)
        except TooLargeError:
            await _too_large(scope, receive, send)


def why_refused(headers: dict[bytes, bytes], *, local_only: bool) -> str:
    """Why a request with these headers is none of ours; empty if it is."""
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


def _limited(receive: Receive) -> Receive:
    received = 0

    async def read() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > LARGEST_BODY_BYTES:
            raise TooLargeError
        return message

    return read
