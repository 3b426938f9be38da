"""Access control of the page: everybody on this machine, or everybody with the token.

A page of another site could make a browser send requests to a local server under a name that resolves to 127.0.0.1 (DNS
rebinding), so requests for other names are refused. A form asks for the token once, and a cookie keeps it: in a URL it
would stay in histories and logs. Programs send it as `Authorization: Bearer`.
"""

import hmac

from flask import Flask, Response, redirect, request
from msgspec import Struct
from werkzeug.wrappers import Response as AnyResponse

COOKIE = "twintap_token"
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
ENTRANCE = "/token"
FORM = """<!doctype html><html lang=en><meta charset=utf-8><title>Twintap</title>
<style>body{font:16px sans-serif;margin:4em auto;max-width:30em;color-scheme:light dark}</style>
<form method=post action=/token><label>The token that <code>tracer view</code> was given or made up<br>
<input type=password name=token autofocus autocomplete=off></label> <button>Open</button></form></html>
"""
POLICY = (
    "default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)


class Access(Struct, frozen=True):
    """`token` None: loopback only, and only under its own names. `secure`: by TLS alone, so the cookie is, too."""

    token: str | None = None
    secure: bool = False


def guard(server: Flask, access: Access, script_hashes: list[str]) -> None:
    """Check every request, and instruct the browser to load nothing from elsewhere."""
    policy = POLICY.format(scripts=" ".join(script_hashes))

    @server.before_request
    def check() -> AnyResponse | None:
        return _check_name() if access.token is None else _check_token(access.token, secure=access.secure)

    @server.after_request
    def restrict(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _check_name() -> AnyResponse | None:
    name = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
    if name in LOCAL_NAMES:
        return None
    return Response(f"This viewer answers only as {' or '.join(LOCAL_NAMES)}.\n", 403, mimetype="text/plain")


def _check_token(token: str, *, secure: bool) -> AnyResponse | None:
    if _same(request.cookies.get(COOKIE, ""), token) or _same(
        request.headers.get("Authorization", ""), f"Bearer {token}"
    ):
        return None
    if request.method != "POST" or request.path != ENTRANCE or not _same(request.form.get("token", "").strip(), token):
        return Response(FORM, 401, mimetype="text/html")
    response = redirect("/", 303)
    response.set_cookie(COOKIE, token, httponly=True, samesite="Strict", secure=secure)
    return response


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
