"""Where a service listens, and who may ask it: anybody on loopback, elsewhere only who knows the token.

A service without a token answers only under loopback's names, so that no web page elsewhere can talk to it through the
operator's browser.
"""

import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from storage_cluster.errors import MissingResourceError

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def parse_listen(text: str) -> tuple[str, int]:
    """`ADDR:PORT` or `[ADDR]:PORT` in two. Raises: MissingResourceError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise MissingResourceError(f"--listen {text} is not ADDR:PORT", "for example --listen 127.0.0.1:18088")
    return host, int(port)


def bind(text: str, token: str) -> socket.socket:
    """A socket that listens there. Raises: MissingResourceError."""
    host, port = parse_listen(text)
    if not token and not is_loopback(host):
        raise MissingResourceError(
            f"--listen {text} can be reached from other machines", "add --token, or listen on 127.0.0.1"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise MissingResourceError(
            f"cannot listen on {text} ({error.strerror})", "choose a free port of this host"
        ) from None


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def guard(app: FastAPI, token: str) -> None:
    """Refuse who may not ask. The token is taken from `Authorization: Bearer`, or from a cookie that `?token=` sets."""

    @app.middleware("http")
    async def check(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        if not token:
            allowed = (request.url.hostname or "") in _LOOPBACK_NAMES
            return await proceed(request) if allowed else PlainTextResponse("not under this name", 403)
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        offered = request.query_params.get("token", "")
        if any(
            secrets.compare_digest(each.encode(), token.encode()) for each in (given, request.cookies.get("token", ""))
        ):
            return await proceed(request)
        if offered and secrets.compare_digest(offered.encode(), token.encode()):
            response = await proceed(request)
            response.set_cookie("token", token, httponly=True, samesite="strict")
            return response
        return PlainTextResponse("the token is missing or wrong", 401)
