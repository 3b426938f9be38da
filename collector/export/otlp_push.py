"""Sends the requests of a trace to an OpenTelemetry collector, by OTLP/HTTP (JSON) or OTLP/gRPC.

Headers for it, such as one that holds a token, are read from `OTEL_EXPORTER_OTLP_HEADERS`, as OpenTelemetry's own
exporters do (`key=value,…`), and from a file, a line `Name: value` for each; not from the command line, which others on
the machine can read.

Source: OTLP 1.3 (opentelemetry.io/docs/specs/otlp).
"""

import json
import os
import ssl
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from collector.export.otlp import export_requests, spans_count
from collector.export.timed_spans import RootIds
from collector.trace.reading import Trace
from tracer.errors import InputError, ServiceError

TIMEOUT_SECONDS = 30
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
HTTP, GRPC = ("http", "https"), ("grpc", "grpcs")
"""Schemes of URLs, without and with TLS."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What takes spans: `http://HOST:4318`, also with the path, or `grpc://HOST:4317`; `https`, `grpcs` with TLS."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    authority: Path | None = None  # trusts only its certificates (PEM); None: the system's

    @property
    def encrypted(self) -> bool:
        """Whether it is reached by TLS."""
        return self.url.startswith(("https://", "grpcs://"))


def is_endpoint(place: str | None) -> bool:
    """Whether spans are sent to this place, not written."""
    return place is not None and place.split("://")[0] in (*HTTP, *GRPC) and "://" in place


def endpoint_of(url: str, headers_file: Path | None, authority: Path | None) -> Endpoint:
    """The endpoint, with its headers. Raises: `InputError` for files that cannot be used."""
    headers = _headers_of_variable(os.environ.get(HEADERS_VARIABLE, ""))
    found = Endpoint(url, headers | (_headers_of_file(headers_file) if headers_file else {}), authority)
    if authority is not None and not found.encrypted:
        raise InputError(f"--ca is for TLS, and {url} has none", "give https:// or grpcs://")
    return found


def push_http(trace: Trace, endpoint: Endpoint, only: RootIds | None = None) -> int:
    """Send a trace to an OTLP/HTTP endpoint; returns how many spans were sent.

    Raises: `ServiceError` if it does not take them.
    """
    url, count = endpoint.url, 0
    url = url if "/v1/traces" in url else f"{url.rstrip('/')}/v1/traces"
    context = _tls_context(endpoint)
    for request in export_requests(trace, only):
        body = json.dumps(request).encode()
        posted = urllib.request.Request(url, body, {"Content-Type": "application/json", **endpoint.headers})
        try:
            with urllib.request.urlopen(posted, timeout=TIMEOUT_SECONDS, context=context) as answer:
                found = json.loads(answer.read() or b"{}")
        except HTTPError as error:
            error.close()
            raise ServiceError(f"{url} refused the spans ({error.code} {error.reason})", "see its log") from None
        except (URLError, OSError, ValueError) as error:
            raise ServiceError(f"{url} does not answer as OTLP/HTTP does ({error})", "give http://HOST:4318") from None
        partial = (found.get("partialSuccess") if isinstance(found, dict) else None) or {}
        check_rejected(endpoint, int(partial.get("rejectedSpans", 0)), partial.get("errorMessage", ""))
        count += spans_count(request)
    return count


def check_rejected(endpoint: Endpoint, rejected: int, why: Any) -> None:
    """Raises: `ServiceError` if the endpoint took a part only."""
    if rejected:
        raise ServiceError(f"{endpoint.url} refused {rejected:,} spans: {why}", "see its log")


def _tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    if not endpoint.encrypted:
        return None
    try:
        return ssl.create_default_context(cafile=endpoint.authority)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"{endpoint.authority} holds no certificates ({error})", "give a file in PEM") from None


def _headers_of_variable(words: str) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in words.split(",") if "=" in pair)
    return {name.strip(): urllib.parse.unquote(value.strip()) for name, value in pairs}


def _headers_of_file(file: Path) -> dict[str, str]:
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"the headers' file {file} cannot be read: {reason}", "check the path") from None
    pairs = [line.partition(":") for line in lines]
    for number, (name, colon, value) in enumerate(pairs, 1):
        if not (colon and name.strip() and name.isascii() and value.isascii() and value.strip().isprintable()):
            raise InputError(f"line {number} of {file} is no header", "write `Name: value` in each line")
    return {name.strip(): value.strip() for name, _, value in pairs}
