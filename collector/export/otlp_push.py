"""Sends the requests of a trace to an OpenTelemetry collector, by OTLP/HTTP (JSON) or OTLP/gRPC.

Headers for it, such as one that holds a token, are read from `OTEL_EXPORTER_OTLP_HEADERS`, as OpenTelemetry's own
exporters do (`key=value,…`), and from a file, a line `Name: value` for each; not from the command line, which others on
the machine can read. A redirection is not followed, since it might lead them elsewhere.

What the specification calls retryable is tried again, up to `ATTEMPTS` times: after the time that the server asks for,
else after one, two, four seconds.

Source: OTLP 1.3 (opentelemetry.io/docs/specs/otlp).
"""

import json
import os
import re
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from msgspec import Struct, field

from collector.export.otlp import export_requests, spans_count
from collector.export.timed_spans import RootIds
from collector.trace.reading import Trace
from tracer.errors import InputError, ServiceError

TIMEOUT_SECONDS = 30
ATTEMPTS = 4
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
RETRYABLE = frozenset({429, 502, 503, 504})
HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
"""A token (RFC 9110 §5.6.2)."""
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
HTTP, GRPC = ("http", "https"), ("grpc", "grpcs")
"""Schemes of URLs, without and with TLS."""


class Endpoint(Struct, frozen=True):
    """What takes spans: `http://HOST:4318`, also with the path, or `grpc://HOST:4317`; `https`, `grpcs` with TLS."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    authority: Path | None = None  # trusts only its certificates (PEM); None: the system's

    @property
    def uses_tls(self) -> bool:
        """Whether it is reached by TLS."""
        return self.url.startswith(("https://", "grpcs://"))


def is_endpoint(place: str | None) -> bool:
    """Whether spans are sent to this place, not written."""
    return place is not None and place.split("://")[0] in (*HTTP, *GRPC) and "://" in place


def endpoint_of(url: str, headers_file: Path | None, authority: Path | None) -> Endpoint:
    """The endpoint, with its headers. Raises: `InputError` for files that cannot be used."""
    headers = _headers_of_variable(os.environ.get(HEADERS_VARIABLE, ""))
    found = Endpoint(url, headers | (_headers_of_file(headers_file) if headers_file else {}), authority)
    if authority is not None and not found.uses_tls:
        raise InputError(f"--ca is for TLS, and {url} has none", "give https:// or grpcs://")
    return found


def push_http(trace: Trace, endpoint: Endpoint, only: RootIds | None = None) -> int:
    """Send a trace to an OTLP/HTTP endpoint; returns how many spans were sent.

    Raises: `ServiceError` if it does not take them.
    """
    url, count = endpoint.url, 0
    url = url if "/v1/traces" in url else f"{url.rstrip('/')}/v1/traces"
    opener = urllib.request.build_opener(_NoRedirection, urllib.request.HTTPSHandler(context=_tls_context(endpoint)))
    for request in export_requests(trace, only):
        body = json.dumps(request).encode()
        posted = urllib.request.Request(url, body, {"Content-Type": "application/json", **endpoint.headers})
        try:
            found = json.loads(_post(opener, posted) or b"{}")
        except (URLError, OSError, ValueError) as error:
            raise ServiceError(f"{url} does not answer as OTLP/HTTP does ({error})", "give http://HOST:4318") from None
        partial = (found.get("partialSuccess") if isinstance(found, dict) else None) or {}
        check_rejected(endpoint, int(partial.get("rejectedSpans", 0)), partial.get("errorMessage", ""))
        count += spans_count(request)
    return count


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None: it is an error."""


def _post(opener: urllib.request.OpenerDirector, posted: urllib.request.Request) -> bytes:
    """The answer."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with opener.open(posted, timeout=TIMEOUT_SECONDS) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            error.close()
            asked = error.headers.get("Retry-After", "")
            wait = seconds_to_wait(attempt, float(asked) if asked.isdecimal() else None)
            if error.code not in RETRYABLE or wait is None:
                what = f"{posted.full_url} refused the spans{in_times(attempt)} ({error.code} {error.reason})"
                raise ServiceError(what, "see its log") from None
        time.sleep(wait)
    raise AssertionError


def seconds_to_wait(attempt: int, asked: float | None) -> float | None:
    """Until the next attempt, if one makes sense; None if there should be none.

    Arguments: `asked`, how long the server asks to wait; None if it does not say.
    """
    wait = FIRST_WAIT_SECONDS * 2 ** (attempt - 1) if asked is None else asked
    return None if attempt == ATTEMPTS or wait > LONGEST_WAIT_SECONDS else wait


def in_times(attempts: int) -> str:
    """In words, how often something was tried; "" for once."""
    return f" {attempts} times" if attempts > 1 else ""


def check_rejected(endpoint: Endpoint, rejected: int, why: Any) -> None:
    """Raises: `ServiceError` if the endpoint took a part only."""
    if rejected:
        raise ServiceError(f"{endpoint.url} refused {rejected:,} spans: {why}", "see its log")


def _tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    if not endpoint.uses_tls:
        return None
    try:
        return ssl.create_default_context(cafile=endpoint.authority)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"{endpoint.authority} holds no certificates ({error})", "give a file in PEM") from None


def _headers_of_variable(words: str) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in words.split(",") if "=" in pair)
    found = {name.strip(): urllib.parse.unquote(value.strip()) for name, value in pairs}
    for number, pair in enumerate(found.items(), 1):
        if not _is_header(*pair):
            raise InputError(f"part {number} of {HEADERS_VARIABLE} is no header", "write NAME=VALUE,…")
    return found


def _headers_of_file(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"the headers' file {file} cannot be read: {reason}", "check the path") from None
    found = {}
    for number, line in enumerate(lines, 1):
        name, _, value = (part.strip() for part in line.partition(":"))
        if line.strip() and not _is_header(name, value):
            raise InputError(f"line {number} of {file} is no header", "write `Name: value` in each line")
        if line.strip():
            found[name] = value
    return found


def _is_header(name: str, value: str) -> bool:
    return bool(HEADER_NAME.fullmatch(name)) and value.isascii() and value.isprintable() and bool(value)
