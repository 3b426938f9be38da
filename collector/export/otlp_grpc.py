"""Sends the requests of a trace by OTLP/gRPC.

The method is called by its path with messages that are encoded here, so nothing but gRPC itself is needed. A batch is
at most `SPANS_AT_ONCE` spans, about 1 MB: servers take 4 MiB unless they are set otherwise.

What the specification calls retryable is tried again as by HTTP; `RESOURCE_EXHAUSTED` only if the server asks for it
(`RetryInfo`).

Source: OTLP 1.3 (opentelemetry.io/docs/specs/otlp), google.rpc.Status and RetryInfo (googleapis/google/rpc).
"""

import os
import re
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from collector.export.otlp import export_requests, spans_count
from collector.export.otlp_push import (
    ATTEMPTS,
    TIMEOUT_SECONDS,
    Endpoint,
    check_rejected,
    in_times,
    seconds_to_wait,
)
from collector.export.protobuf import field, fixed64, read_fields
from collector.export.timed_spans import RootIds
from collector.trace.reading import Trace
from tracer.errors import InputError, MissingDependencyError, ServiceError
from tracer.installation import install_command

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PORT = 4317
SPANS_AT_ONCE = 1_000
METADATA_NAME = re.compile(r"[0-9a-z_.-]+(?<!-bin)")
"""What gRPC takes as the name of a header with a text."""
RETRYABLE = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
)
STATUS_DETAILS, RETRY_INFO = "grpc-status-details-bin", b"google.rpc.RetryInfo"
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "ExportTraceServiceRequest": {"resourceSpans": (1, "ResourceSpans")},
    "ResourceSpans": {"resource": (1, "Resource"), "scopeSpans": (2, "ScopeSpans")},
    "Resource": {"attributes": (1, "KeyValue")},
    "ScopeSpans": {"scope": (1, "InstrumentationScope"), "spans": (2, "Span")},
    "InstrumentationScope": {"name": (1, "text"), "version": (2, "text")},
    "Span": {
        "traceId": (1, "hex"),
        "spanId": (2, "hex"),
        "parentSpanId": (4, "hex"),
        "name": (5, "text"),
        "kind": (6, "integer"),
        "startTimeUnixNano": (7, "fixed64"),
        "endTimeUnixNano": (8, "fixed64"),
        "attributes": (9, "KeyValue"),
        "events": (11, "Event"),
        "status": (15, "Status"),
    },
    "Event": {"timeUnixNano": (1, "fixed64"), "name": (2, "text")},
    "Status": {"message": (2, "text"), "code": (3, "integer")},
    "KeyValue": {"key": (1, "text"), "value": (2, "AnyValue")},
    "AnyValue": {
        "stringValue": (1, "text"),
        "boolValue": (2, "integer"),
        "intValue": (3, "integer"),
        "doubleValue": (4, "number"),
    },
}
"""Of each message the fields that `export_requests` gives: number and kind, or the message."""
_SCALARS: dict[str, Callable[[int, Any], bytes]] = {
    "text": field,
    "hex": lambda number, value: field(number, bytes.fromhex(value)),
    "integer": lambda number, value: field(number, int(value)),
    "fixed64": lambda number, value: fixed64(number, int(value)),
    "number": lambda number, value: field(number, float(value)),
}


def encode(message: Mapping[str, Any], kind: str = "ExportTraceServiceRequest") -> bytes:
    """A message of OTLP's JSON, as protobuf."""
    parts = []
    for name, value in message.items():
        number, what = _FIELDS[kind][name]
        for each in value if isinstance(value, list) else [value]:
            parts.append(_SCALARS[what](number, each) if what in _SCALARS else field(number, encode(each, what)))
    return b"".join(parts)


def push_grpc(trace: Trace, endpoint: Endpoint, only: RootIds | None = None) -> int:
    """Send a trace to an OTLP/gRPC endpoint, `grpc://HOST:4317` or `grpcs://…`; returns how many spans were sent.

    Raises: `ServiceError` if it does not take them, `MissingDependencyError` without gRPC.
    """
    grpc, count = _library(), 0
    with _channel(grpc, endpoint) as channel:
        export = channel.unary_unary(METHOD)
        for request in export_requests(trace, only, SPANS_AT_ONCE):
            _check(endpoint, _send(grpc, export, encode(request), endpoint))
            count += spans_count(request)
    return count


def _library() -> ModuleType:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes into the terminal what its errors say, too
    try:
        import grpc  # noqa: PLC0415 - others need none
    except ImportError:
        raise MissingDependencyError("gRPC is not installed", f"run: {install_command('otlp-grpc')}") from None
    return grpc


def _channel(grpc: ModuleType, endpoint: Endpoint) -> Any:
    parts = urlsplit(endpoint.url)
    try:
        address = f"{parts.netloc}" if parts.port else f"{parts.netloc}:{PORT}"
    except ValueError:
        address = ""
    if not parts.hostname or not address or "@" in address or parts.path.strip("/"):
        raise InputError(f"{endpoint.url} is no place of a gRPC server", f"give grpc://HOST:{PORT}")
    if not endpoint.uses_tls:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(_authorities(endpoint.authority)))


def _authorities(file: Path | None) -> bytes | None:
    """Certificates; without a file the system's, or where there are none those that gRPC brings."""
    system = ssl.get_default_verify_paths().cafile
    place = file or (Path(system) if system else None)
    try:
        return place.read_bytes() if place else None
    except OSError as error:
        raise InputError(f"{place} cannot be read: {error.strerror}", "give --ca FILE") from None


def _send(grpc: ModuleType, export: Any, body: bytes, endpoint: Endpoint) -> bytes:
    """The answer."""
    metadata = [(name.lower(), value) for name, value in endpoint.headers.items()]
    for name, _ in metadata:
        if not METADATA_NAME.fullmatch(name):
            raise InputError(f"gRPC has no header {name}", "use letters, digits, - and _ in its name")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return bytes(export(body, timeout=TIMEOUT_SECONDS, metadata=metadata))
        except grpc.RpcError as error:
            code, wait = error.code().name, _seconds_to_wait(error, attempt)
            if wait is None:
                what = f"{endpoint.url} did not take the spans{in_times(attempt)} ({code}: {error.details()})"
                raise ServiceError(what, _next_step(code)) from None
        time.sleep(wait)
    raise AssertionError


def _next_step(code: str) -> str:
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return "give --headers FILE with what it asks for"
    return f"give grpc://HOST:{PORT}, or grpcs:// if it speaks TLS" if code == "UNAVAILABLE" else "see its log"


def _seconds_to_wait(error: Any, attempt: int) -> float | None:
    """Until the next attempt; None if there should be none."""
    code, asked = error.code().name, _retry_delay(dict(error.trailing_metadata() or ()).get(STATUS_DETAILS))
    if code not in RETRYABLE or (code == "RESOURCE_EXHAUSTED" and asked is None):
        return None
    return seconds_to_wait(attempt, asked)


def _retry_delay(details: object) -> float | None:
    """Seconds, of the `RetryInfo` in a `google.rpc.Status`; None if there is none."""
    if not isinstance(details, bytes):
        return None
    try:
        for number, detail in read_fields(details):
            if number == 3 and isinstance(detail, bytes):
                about = dict(read_fields(detail))
                info, kind = about.get(2, b""), about.get(1, b"")
                if isinstance(kind, bytes) and isinstance(info, bytes) and kind.endswith(RETRY_INFO):
                    return _duration(dict(read_fields(info)).get(1, b""))
    except ValueError:
        pass
    return None


def _duration(message: int | bytes) -> float:
    """Seconds, of a `google.protobuf.Duration`."""
    said = dict(read_fields(message)) if isinstance(message, bytes) else {}
    seconds, nanos = (value if isinstance(value, int) else 0 for value in (said.get(1, 0), said.get(2, 0)))
    return seconds + nanos / 1e9


def _check(endpoint: Endpoint, answer: bytes) -> None:
    """Raises: `ServiceError` for an answer that says that spans were rejected, or is none."""
    try:
        partial = dict(read_fields(answer)).get(1, b"")
        said = dict(read_fields(partial)) if isinstance(partial, bytes) else {}
    except ValueError:
        raise ServiceError(f"{endpoint.url} does not answer as OTLP/gRPC does", f"give grpc://HOST:{PORT}") from None
    rejected, why = said.get(1, 0), said.get(2, b"")
    words = why.decode(errors="replace") if isinstance(why, bytes) else ""
    check_rejected(endpoint, rejected if isinstance(rejected, int) else 0, words)
