"""Exports the HTTP requests that clients made as an HTTP Archive (HAR 1.2), which browsers' tools and many others open.

Of a request's time `blocked` is its client's pause before the first byte, `connect` the handshakes of TCP and TLS,
`ssl` that of TLS, `send` the request on its way, `wait` the server, its calls included, and `receive` the answer on its
way; what cannot be divided, because one end was not captured, is `wait`. Headers and bodies are not kept by captures,
so they are empty; sizes are those on the wire. Requests of other protocols are left out.

Source: "HTTP Archive (HAR) format", version 1.2 (w3c.github.io/web-performance/specs/HAR/Overview.html).
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import polars as pl

from collector.export.otlp import HTTP_PROTOCOLS
from collector.export.timed_spans import RootIds, timed_spans
from collector.trace.reading import Trace

APART = ("connect_ns", "tls_ns", "request_network_ns", "response_network_ns")
_OF_CONNECTION = ["connection_id", "tls_opened", "server_addr"]
UNKNOWN = -1
"""Of a size or a time, as HAR has it."""


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write the archive of a trace, or of the requests with these `trace_id`s only, to the file `place`; returns it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    creator = {"name": "Twintap", "version": trace.info().tool_version}
    log = {"version": "1.2", "creator": creator, "entries": list(har_entries(trace, only))}
    place.write_text(json.dumps({"log": log}, ensure_ascii=False), encoding="utf-8")
    return [place]


def har_entries(trace: Trace, only: RootIds | None = None) -> Iterator[dict[str, Any]]:
    """The entries of the archive, by time."""
    rows, opened = timed_spans(trace, only), pl.DataFrame(trace.read("connections", _OF_CONNECTION))
    rows = rows.join(opened, on="connection_id", how="left", maintain_order="left")
    is_asked = (
        pl.col("parent_span_id").is_null()
        & ~pl.col("background").fill_null(value=False)
        & pl.col("method").is_not_null()
    )
    chosen = rows.filter(is_asked & pl.col("protocol").cast(pl.String).is_in(HTTP_PROTOCOLS))
    for row in chosen.sort("start").iter_rows(named=True):
        yield _entry(row)


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    timings = _timings(row)
    version = row["protocol"].upper()
    status = row["status"] or 0
    return {
        "startedDateTime": _moment(row["start"]),
        "time": sum(value for name, value in timings.items() if value > 0 and name != "ssl"),
        "request": {
            "method": row["method"],
            "url": _url(row),
            "httpVersion": version,
            "cookies": [],
            "headers": [],
            "queryString": [],
            "headersSize": UNKNOWN,
            "bodySize": UNKNOWN if row["request_bytes"] is None else row["request_bytes"],
        },
        "response": {
            "status": status,
            "statusText": HTTPStatus(status).phrase if status in {each.value for each in HTTPStatus} else "",
            "httpVersion": version,
            "cookies": [],
            "headers": [],
            "content": {"size": row["response_bytes"] or 0, "mimeType": "x-unknown"},
            "redirectURL": "",
            "headersSize": UNKNOWN,
            "bodySize": UNKNOWN if row["response_bytes"] is None else row["response_bytes"],
        },
        "cache": {},
        "timings": timings,
        "connection": str(row["connection_id"]),
        **({"serverIPAddress": row["server_addr"]} if row["server_addr"] else {}),
        "comment": f"{row['client_host'] or '?'} → {row['server_host'] or '?'}, {row['outcome']}",
    }


def _timings(row: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds. `connect` includes `ssl`, as HAR has it."""
    ns = {name: row[name] or 0 for name in ("pause_ns", *APART)}
    waited = row["end"] - row["start"] - sum(ns.values())
    opened = row["connect_start_trace_ns"] is not None
    return {
        "blocked": ns["pause_ns"] / 1e6,
        "dns": UNKNOWN,
        "connect": (ns["connect_ns"] + ns["tls_ns"]) / 1e6 if opened else UNKNOWN,
        "ssl": ns["tls_ns"] / 1e6 if ns["tls_ns"] else UNKNOWN,
        "send": ns["request_network_ns"] / 1e6,
        "wait": waited / 1e6,
        "receive": ns["response_network_ns"] / 1e6,
    }


def _url(row: Mapping[str, Any]) -> str:
    """The absolute URL; the host's name stands in for a domain name that the request does not give."""
    target = row["target"] or "/"
    if "://" in target:
        return target
    scheme, host = "https" if row["tls_opened"] else "http", row["authority"] or row["server_host"] or "unknown"
    return f"{scheme}://{host}{target if target.startswith('/') else '/'}"


def _moment(at_ns: int) -> str:
    seconds, rest = divmod(at_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"
