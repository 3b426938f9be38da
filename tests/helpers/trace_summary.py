"""A trace in a few lines of JSON that people can read in a diff: what the bundled captures are expected to give."""

import json
from collections import Counter
from typing import Any

import pyarrow.compute as pc

from collector.reporting.story import make_story
from collector.trace.reading import Trace

EXCHANGE_COLUMNS = (
    "client_host",
    "server_host",
    "service",
    "protocol",
    "method",
    "target",
    "status",
    "transaction_id",
    "request_bytes",
    "response_bytes",
    "complete",
)


def summarise(url: str) -> str:
    """Counts of hops by kind and state, the exchanges in order of time, the story, the tree of spans, findings."""
    summary = {
        "packets": {host.host: host.packets_count for host in Trace(url).info().hosts},
        "counters": {counter.name: counter.count for counter in Trace(url).info().counters},
        "hops": _hops(url),
        "exchanges": _exchanges(url),
        "spans": _spans(url),
        "story": _story(url),
        "findings": sorted(Trace(url).read("findings", ["kind"])["kind"].to_pylist()),
    }
    return json.dumps(summary, indent=1, ensure_ascii=False) + "\n"


def _story(url: str) -> dict[str, Any]:
    tables = (Trace(url).read(name) for name in ("spans", "exchanges", "clocks"))
    story = make_story(Trace(url).info(), *tables)
    return {"duration_ns": story.duration_ns, "parts_ns": {part.label: part.duration_ns for part in story.parts}}


def _hops(url: str) -> dict[str, dict[str, int]]:
    hops = Trace(url).read("hops", ["kind", "state"])
    counts = Counter(zip(hops["kind"].to_pylist(), hops["state"].to_pylist(), strict=True))
    kinds = sorted({kind for kind, _ in counts})
    return {kind: {state: count for (one, state), count in sorted(counts.items()) if one == kind} for kind in kinds}


def _exchanges(url: str) -> list[dict[str, Any]]:
    table = Trace(url).read("exchanges")
    ordered = table.take(pc.sort_indices(table, [("request_first_sent_trace_ns", "ascending")]))
    return ordered.select(EXCHANGE_COLUMNS).to_pylist()


def _spans(url: str) -> dict[str, int]:
    """How many spans hang below what, by which reason."""
    spans = Trace(url).read("spans", ["parent_span_id", "link_reason", "depth"]).to_pylist()
    return dict(sorted(Counter(f"depth {span['depth']} by {span['link_reason']}" for span in spans).items()))
