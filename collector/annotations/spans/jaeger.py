"""Spans in the JSON of Jaeger's interface and query service: an object whose `data` holds traces.

Times are in microseconds; which process wrote a span is looked up in its trace.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from collector.annotations.spans.given import GivenSpan, hexadecimal

SIDES = {"client": "client", "producer": "client", "server": "server", "consumer": "server"}
LATEST_US = (1 << 63) // 1_000 - 1


def is_jaeger(document: object) -> bool:
    """Whether an object is one of Jaeger: traces, or a single one."""
    return bool(_traces(document))


def jaeger_spans(document: Mapping[str, Any]) -> Iterator[GivenSpan | None]:
    """The spans of an object; None for each that lacks an id or a time."""
    for trace in _traces(document):
        processes = trace.get("processes")
        for span in trace["spans"]:
            if isinstance(span, dict):
                yield _span(span, _process(span, processes if isinstance(processes, dict) else {}))


def _traces(document: object) -> list[dict[str, Any]]:
    given = document.get("data", [document]) if isinstance(document, dict) else []
    several = given if isinstance(given, list) else []
    return [each for each in several if isinstance(each, dict) and isinstance(each.get("spans"), list)]


def _process(span: Mapping[str, Any], processes: Mapping[str, Any]) -> dict[str, str]:
    process = span.get("process") or processes.get(str(span.get("processID", "")))
    if not isinstance(process, dict):
        return {}
    return {"service.name": str(process.get("serviceName", ""))} | _tags(process.get("tags"))


def _span(span: Mapping[str, Any], process: Mapping[str, str]) -> GivenSpan | None:
    ids = hexadecimal(span.get("traceID"), 32), hexadecimal(span.get("spanID"), 16)
    begin_us, duration_us = span.get("startTime"), span.get("duration")
    if not all(ids) or not _is_time(begin_us) or not _is_time(duration_us):
        return None
    attributes = _tags(span.get("tags"))
    return GivenSpan(
        format="jaeger",
        trace_id=ids[0],
        span_id=ids[1],
        parent_span_id=_parent(span),
        name=str(span.get("operationName", "")),
        side=SIDES.get(attributes.get("span.kind", ""), ""),
        begin_ns=int(begin_us or 0) * 1_000,
        end_ns=(int(begin_us or 0) + int(duration_us or 0)) * 1_000,
        process=process,
        attributes=attributes,
        is_error=attributes.get("error", "").lower() == "true",
    )


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LATEST_US // 2


def _parent(span: Mapping[str, Any]) -> str:
    references = span.get("references")
    for each in references if isinstance(references, list) else []:
        if isinstance(each, dict) and each.get("refType") == "CHILD_OF" and each.get("traceID") == span.get("traceID"):
            return hexadecimal(each.get("spanID"), 16)
    return hexadecimal(span.get("parentSpanID"), 16)


def _tags(given: object) -> dict[str, str]:
    tags = given if isinstance(given, list) else []
    return {str(each.get("key", "")): str(each.get("value", "")) for each in tags if isinstance(each, dict)}
