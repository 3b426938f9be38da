"""Exports the requests of a trace as OpenTelemetry spans: OTLP in JSON, to a file; `otlp_push` sends them.

Each exchange is a span of kind SERVER: from its client's first packet to the answer's last, on one timescale. Its
resource is the service that answered, on its host. Its parent is that of the trace; how that is known, how sure it
is, by how much times may be off, and where the time went are attributes `twintap.…`. What the packets show of the
protocol has the names of OpenTelemetry's semantic conventions.

Ids: a trace's 16 bytes and a span's 8 are hashes of the ids of this trace and of the time when it was made, so two
exports of a trace are equal, and those of two traces differ.

In a file each line is an `ExportTraceServiceRequest` of at most `SPANS_AT_ONCE` spans, as the collector's file
exporter writes and its `otlpjsonfile` receiver reads.

Source: OTLP 1.3 (opentelemetry.io/docs/specs/otlp), its JSON encoding; semantic conventions for HTTP, databases, RPC.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collector.export.timed_spans import RootIds, timed_spans
from collector.reporting import story
from collector.requests.outcomes import Outcome
from collector.requests.protocols import WITH_SHAPES
from collector.requests.spans import LEDGER_COLUMNS
from collector.services.ends import end_name
from collector.trace.reading import Trace

SPANS_AT_ONCE = 5_000
SERVER, ERROR = 2, 2
"""Of the enumerations `SpanKind` and `StatusCode`."""
SCOPE = "twintap"
HTTP_PROTOCOLS = ("http/1.0", "http/1.1", "http/2")


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write a trace, or only the requests with these `trace_id`s, to the file `place`; returns it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("w", encoding="utf-8") as file:
        for request in export_requests(trace, only):
            file.write(json.dumps(request, ensure_ascii=False) + "\n")
    return [place]


def export_requests(
    trace: Trace, only: RootIds | None = None, spans_at_once: int = SPANS_AT_ONCE
) -> Iterator[dict[str, Any]]:
    """The trace as `ExportTraceServiceRequest`s."""
    info, spans = trace.info(), timed_spans(trace, only)
    ids = Ids(f"{info.created_ns}")
    for part in spans.sort("trace_id", maintain_order=True).iter_slices(spans_at_once):
        by_resource = part.partition_by("service", "host", maintain_order=True)
        yield {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(_resource(rows.row(0, named=True)))},
                    "scopeSpans": [
                        {
                            "scope": {"name": SCOPE, "version": info.tool_version},
                            "spans": [_span(row, ids) for row in rows.iter_rows(named=True)],
                        }
                    ],
                }
                for rows in by_resource
            ]
        }


def spans_count(request: Mapping[str, Any]) -> int:
    """How many spans an `ExportTraceServiceRequest` has."""
    return sum(len(each["scopeSpans"][0]["spans"]) for each in request["resourceSpans"])


class Ids:
    """Ids of traces and spans as other tools have them: hexadecimal hashes."""

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def of_trace(self, number: int) -> str:
        """16 bytes, as 32 digits."""
        return self._hash("trace", number, 16)

    def of_span(self, number: int) -> str:
        """8 bytes, as 16 digits."""
        return self._hash("span", number, 8)

    def _hash(self, what: str, number: int, size: int) -> str:
        return hashlib.blake2b(f"{self._salt} {what} {number}".encode(), digest_size=size).hexdigest()


def _resource(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "service.name": row["service"] or end_name(row["server_host"], row["server_peer"]),
        "host.name": row["host"],
    }


def _span(row: Mapping[str, Any], ids: Ids) -> dict[str, Any]:
    parent = row["parent_span_id"]
    span = {
        "traceId": ids.of_trace(row["trace_id"]),
        "spanId": ids.of_span(row["exchange_id"]),
        "name": span_name(row),
        "kind": SERVER,
        "startTimeUnixNano": str(row["start"]),
        "endTimeUnixNano": str(row["end"]),
        "attributes": _attributes(span_attributes(row)),
        "events": _events(row),
        "status": {"code": ERROR, "message": row["result"] or ""} if row["outcome"] == Outcome.FAILED else {},
    }
    return span if parent is None else span | {"parentSpanId": ids.of_span(parent)}


def span_name(row: Mapping[str, Any]) -> str:
    """The operation or the method; a target has too many values for a name."""
    return row["operation"] or row["method"] or story.request_name(row)


def span_attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a span beside its times, by attribute; unknown ones are left out."""
    is_http = row["protocol"] in HTTP_PROTOCOLS
    found = {
        "http.request.method": row["method"] if is_http else None,
        "url.path": row["target"] if is_http else None,
        "http.response.status_code": row["status"] if is_http else None,
        "db.query.text": row["target"] if row["protocol"] in WITH_SHAPES else None,
        "network.protocol.name": row["protocol"],
        "server.address": row["authority"],
        "client.address": row["client_host"] or row["client_peer"],
        "twintap.target": None if is_http else row["target"],
        "twintap.operation": row["operation"],
        "twintap.outcome": row["outcome"],
        "twintap.result": row["result"],
        "twintap.transaction_id": row["transaction_id"],
        "twintap.exchange_id": row["exchange_id"],
        "twintap.connection_id": row["connection_id"],
        "twintap.link.reason": row["link_reason"],
        "twintap.link.confidence": row["confidence"],
        "twintap.time.error_ns": row["likely_error_ns"],
        "twintap.time.bound_ns": row["uncertainty_ns"],
        "twintap.request_bytes": row["request_bytes"],
        "twintap.response_bytes": row["response_bytes"],
    }
    found |= {f"twintap.ledger.{name}": row[name] or None for name in LEDGER_COLUMNS}
    return {name: value for name, value in found.items() if value not in (None, "")}


EVENTS = {
    "request_last_received_trace_ns": "request arrived",
    "response_first_sent_trace_ns": "answer begun",
    "given_up_trace_ns": "given up",
}
"""Times within a span that are events, by their column."""


def _events(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = [(row[name], words) for name, words in EVENTS.items() if row[name] is not None]
    return [{"timeUnixNano": str(at), "name": words} for at, words in sorted(known)]


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}
