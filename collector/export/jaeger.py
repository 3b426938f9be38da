"""Exports the requests of a trace as Jaeger's JSON, which its page opens ("JSON File").

Spans and their attributes are those of `collector.export.otlp`; times are µs, as Jaeger has them, so what is shorter
shows as 0, and `twintap.start_ns` keeps the rest. Each service on a host is a process.

Source: the model that Jaeger's query service returns (`/api/traces`).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from collector.export.otlp import EVENTS, Ids, span_attributes, span_name
from collector.export.timed_spans import RootIds, timed_spans
from collector.requests.outcomes import Outcome
from collector.services.ends import end_name
from collector.trace.reading import Trace


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write a trace, or only the requests with these `trace_id`s, to the file `place`; returns it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("w", encoding="utf-8") as file:
        before = '{"data": [\n'
        for each in jaeger_traces(trace, only):
            file.write(before + json.dumps(each, ensure_ascii=False))
            before = ",\n"
        file.write('{"data": []}\n' if before.startswith("{") else "\n]}\n")
    return [place]


def jaeger_traces(trace: Trace, only: RootIds | None = None) -> Iterator[dict[str, Any]]:
    """Each request with its calls as one of Jaeger's traces."""
    ids = Ids(f"{trace.info().created_ns}")
    for rows in timed_spans(trace, only).partition_by("trace_id", maintain_order=True):
        yield _trace(rows, ids)


def _trace(rows: pl.DataFrame, ids: Ids) -> dict[str, Any]:
    known = rows.select("service", "host").unique(maintain_order=True).rows()
    places = {place: f"p{at}" for at, place in enumerate(known, 1)}
    spans = [_span(row, ids, places) for row in rows.iter_rows(named=True)]
    processes = {
        name: {
            "serviceName": service or end_name(None),
            "tags": [{"key": "host.name", "type": "string", "value": host}],
        }
        for (service, host), name in places.items()
    }
    return {"traceID": spans[0]["traceID"], "spans": spans, "processes": processes}


def _span(row: Mapping[str, Any], ids: Ids, places: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    trace_id, parent = ids.of_trace(row["trace_id"]), row["parent_span_id"]
    reference = {"refType": "CHILD_OF", "traceID": trace_id}
    tags = {"span.kind": "server", "twintap.start_ns": row["start"], **span_attributes(row)}
    if row["outcome"] == Outcome.FAILED:
        tags["error"] = True
    events = ((row[name], words) for name, words in EVENTS.items() if row[name] is not None)
    return {
        "traceID": trace_id,
        "spanID": ids.of_span(row["exchange_id"]),
        "operationName": span_name(row),
        "references": [] if parent is None else [reference | {"spanID": ids.of_span(parent)}],
        "startTime": row["start"] // 1000,
        "duration": (row["end"] - row["start"]) // 1000,
        "tags": [{"key": name, "type": _type(value), "value": value} for name, value in tags.items()],
        "logs": [
            {"timestamp": at // 1000, "fields": [{"key": "event", "type": "string", "value": words}]}
            for at, words in sorted(events)
        ],
        "processID": places[row["service"], row["host"]],
        "warnings": None,
    }


def _type(value: object) -> str:
    kinds = {bool: "bool", int: "int64", float: "float64"}
    return kinds.get(type(value), "string")
