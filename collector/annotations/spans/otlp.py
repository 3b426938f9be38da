"""Spans in OTLP's JSON: an object with `resourceSpans`, as OpenTelemetry's file exporter and collector write it.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids are hexadecimal, 64-bit numbers may be
texts, `kind` is a number or its name.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from collector.annotations.spans.given import GivenSpan, hexadecimal

_SIDES = {"2": "server", "3": "client", "4": "client", "5": "server"}
"""By `kind`; a producer's message is sent by it, a consumer's is received."""
_NAMES = {"SPAN_KIND_SERVER": "2", "SPAN_KIND_CLIENT": "3", "SPAN_KIND_PRODUCER": "4", "SPAN_KIND_CONSUMER": "5"}
ERROR = ("2", "STATUS_CODE_ERROR")


def is_otlp(document: object) -> bool:
    """Whether an object is one of OTLP."""
    return isinstance(document, dict) and isinstance(document.get("resourceSpans"), list)


def otlp_spans(document: Mapping[str, Any]) -> Iterator[GivenSpan | None]:
    """The spans of an object; None for each that lacks an id or a time."""
    for resource in _objects(document.get("resourceSpans")):
        process = _attributes(_object(resource.get("resource")).get("attributes"))
        scopes = resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")
        for scope in _objects(scopes):
            for span in _objects(scope.get("spans")):
                yield _span(span, process)


def _span(span: Mapping[str, Any], process: Mapping[str, str]) -> GivenSpan | None:
    begin_ns, end_ns = (_nanoseconds(span.get(name)) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    ids = hexadecimal(span.get("traceId"), 32), hexadecimal(span.get("spanId"), 16)
    if begin_ns is None or end_ns is None or not all(ids):
        return None
    kind = str(span.get("kind", ""))
    return GivenSpan(
        format="otlp",
        trace_id=ids[0],
        span_id=ids[1],
        parent_span_id=hexadecimal(span.get("parentSpanId"), 16),
        name=str(span.get("name", "")),
        side=_SIDES.get(_NAMES.get(kind, kind), ""),
        begin_ns=begin_ns,
        end_ns=end_ns,
        process=process,
        attributes=_attributes(span.get("attributes")),
        is_error=str(_object(span.get("status")).get("code", "")) in ERROR,
    )


def _attributes(given: object) -> dict[str, str]:
    return {str(each.get("key", "")): _text(each.get("value")) for each in _objects(given)}


def _text(value: object) -> str:
    """A value as text: of several, all."""
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    several = _object(value.get("arrayValue")).get("values")
    if several is not None:
        return ", ".join(_text(each) for each in _objects(several))
    return ", ".join(str(each) for each in value.values())


def _nanoseconds(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < 1 << 63 else None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
