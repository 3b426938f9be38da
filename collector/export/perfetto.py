"""Exports a trace for ui.perfetto.dev and chrome://tracing: Chrome's trace-event JSON.

Each host is a process. Each span that the host served is a slice in it, on the first free track. An arrow (flow) leads
from parent to child. Each finding with a time is an instant. Times are µs from the trace's first moment, with fractions
to the nanosecond.

Source: "Trace Event Format" (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
Limits: packets are left out; a trace of millions of arrows is for `tracer view`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from collector.export.timed_spans import RootIds, timed_spans
from collector.reporting import story
from collector.trace.reading import Trace
from collector.trace.schema import SPANS

LEDGER = [name for name in SPANS.names if name.endswith("_ns")]


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write a trace, or only the requests with these `trace_id`s, to the file `place`; returns it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    events = list(trace_events(trace, only))
    place.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}), encoding="utf-8")
    return [place]


def trace_events(trace: Trace, only: RootIds | None = None) -> Iterator[dict[str, Any]]:
    """The events of a trace, in the format's structure."""
    info = trace.info()
    timed = timed_spans(trace, only)
    spans = timed.with_columns(track=_tracks(timed))
    findings = _frame(trace, "findings").drop_nulls("from_trace_ns")
    names = [host.host for host in info.hosts]
    hosts = {name: number for number, name in enumerate(sorted({*names, *spans["host"]}, key=_place(names)), 1)}
    origin = min([*spans["start"], *findings["from_trace_ns"]], default=0)
    for name, number in hosts.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
    places = {}
    for row in spans.iter_rows(named=True):
        places[row["exchange_id"]] = row
        yield _slice(row, hosts, origin)
        parent = places.get(row["parent_span_id"])
        if parent is not None:
            yield from _arrow(parent, row, hosts, origin)
    for row in findings.iter_rows(named=True):
        yield _instant(row, hosts, origin)


def _place(names: list[str]) -> Any:
    return lambda name: (names.index(name) if name in names else len(names), name)


def _frame(trace: Trace, table: str) -> pl.DataFrame:
    frame = pl.from_arrow(trace.read(table))
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _tracks(timed: pl.DataFrame) -> pl.Series:
    """For each span, the first track of its host that is free when it starts: slices of a track must not overlap."""
    order = timed.with_row_index("row").sort("host", "start", "end", "row")
    tracks, free = [0] * len(timed), dict[str, list[int]]()
    for row, host, start, end in order.select("row", "host", "start", "end").iter_rows():
        ends = free.setdefault(host, [])
        place = next((number for number, until in enumerate(ends) if until <= start), len(ends))
        ends[place : place + 1] = [end]
        tracks[row] = place + 1
    return pl.Series(tracks, dtype=pl.Int64)


def _us(at_ns: int, origin: int) -> float:
    return (at_ns - origin) / 1000


def _slice(row: dict[str, Any], hosts: dict[str, int], origin: int) -> dict[str, Any]:
    keys = ("exchange_id", "trace_id", "parent_span_id", "connection_id", "client_host", "status", "result", "outcome")
    shown = {
        key: row[key] for key in (*keys, "transaction_id", "link_reason", "confidence", *LEDGER) if row[key] is not None
    }
    return {
        "ph": "X",
        "name": story.request_name(row),
        "cat": row["service"],
        "pid": hosts[row["host"]],
        "tid": row["track"],
        "ts": _us(row["start"], origin),
        "dur": (row["end"] - row["start"]) / 1000,
        "args": shown,
    }


def _arrow(
    parent: dict[str, Any], child: dict[str, Any], hosts: dict[str, int], origin: int
) -> Iterator[dict[str, Any]]:
    """An arrow from the parent, at the child's start (clipped to the parent), to the child."""
    at = min(max(child["start"], parent["start"]), parent["end"])
    for phase, row, time in (("s", parent, at), ("f", child, child["start"])):
        event = {"ph": phase, "name": "call", "cat": "link", "id": child["exchange_id"], "ts": _us(time, origin)}
        event |= {"pid": hosts[row["host"]], "tid": row["track"]}
        yield event | ({"bp": "e"} if phase == "f" else {})


def _instant(row: dict[str, Any], hosts: dict[str, int], origin: int) -> dict[str, Any]:
    return {
        "ph": "i",
        "name": row["kind"],
        "cat": "finding",
        "s": "p" if row["host"] in hosts else "g",
        "pid": hosts.get(row["host"], 0),
        "tid": 0,
        "ts": _us(row["from_trace_ns"], origin),
        "args": {"text": row["text"], "remedy": row["remedy"], "cost_ns": row["cost_ns"]},
    }
