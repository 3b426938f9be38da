"""Binds a service's socket and checks its callers: on loopback anybody is allowed, elsewhere the token is required.

Programs send the token as `Authorization: Bearer`. A browser asks for it once, in a form, and keeps it in a cookie: a
URL would remain in histories and logs.

A service without a token answers only under loopback's names, so that no web page elsewhere can talk to it through the
operator's browser.
"""

import ipaddress
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from storage_cluster.errors import MissingResourceError

COOKIE = "twintap_bench_token"
ENTRANCE = "/token"
MOST_FORM_BYTES = 4096
FORM = """<!doctype html><html lang=en><meta charset=utf-8><title>Twintap bench</title>
<style>body{font:16px sans-serif;margin:4em auto;max-width:30em;color-scheme:light dark}</style>
<form method=post action=/token><label>The token that this service was given<br>
<input type=password name=token autofocus autocomplete=off></label> <button>Open</button></form></html>
"""
_HANDED_ON = "TWINTAP_BENCH_LISTENER"
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def parse_listen(text: str) -> tuple[str, int]:
    """Splits `ADDR:PORT` or `[ADDR]:PORT`. Raises: MissingResourceError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise MissingResourceError(f"--listen {text} is not ADDR:PORT", "for example --listen 127.0.0.1:18088")
    return host, int(port)


def bind(text: str, token: str) -> socket.socket:
    """A socket that listens at this address. Raises: MissingResourceError."""
    host, port = parse_listen(text)
    if not token and not is_loopback(host):
        raise MissingResourceError(
            f"--listen {text} can be reached from other machines", "add --token-file, or listen on 127.0.0.1"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise MissingResourceError(
            f"cannot listen on {text} ({error.strerror})", "choose a free port of this host"
        ) from None


def hand_on(listener: socket.socket) -> None:
    """Leave the socket open for the program that this process becomes."""
    listener.set_inheritable(True)
    os.environ[_HANDED_ON] = str(listener.detach())


def take_over() -> socket.socket | None:
    """The socket that `hand_on` left; None if there is none."""
    descriptor = os.environ.pop(_HANDED_ON, "")
    return socket.socket(fileno=int(descriptor)) if descriptor else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def guard(app: FastAPI, token: str) -> None:
    """Refuse requests without permission."""

    @app.middleware("http")
    async def check(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        if _is_of_another_page(request):
            return PlainTextResponse("not from a page of another site", 403)
        if not token:
            allowed = (request.url.hostname or "") in _LOOPBACK_NAMES
            return await proceed(request) if allowed else PlainTextResponse("not under this name", 403)
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if _same(shown, token) or _same(request.cookies.get(COOKIE, ""), token):
            return await proceed(request)
        if request.method != "POST" or request.url.path != ENTRANCE:
            return _refusal(request)
        if not _same(await _token_in_form(request), token):
            return HTMLResponse(FORM, 401)
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return response


def _is_of_another_page(request: Request) -> bool:
    """Whether a page that is not this service's orders something: browsers then name its origin."""
    origin = request.headers.get("origin")
    return request.method not in ("GET", "HEAD") and bool(origin) and urlsplit(origin).netloc != request.url.netloc


def _refusal(request: Request) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(FORM, 401)
    return PlainTextResponse("the token is missing or wrong", 401)


async def _token_in_form(request: Request) -> str:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_FORM_BYTES:
            return ""
    return parse_qs(body.decode("latin-1")).get("token", [""])[0].strip()


def _same(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())
