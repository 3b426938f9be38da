"""Exports one request as a Mermaid sequence diagram: hosts as participants, each exchange as two arrows, by time.

Times are since the request's beginning, on the trace's one timescale. Above `MOST_EXCHANGES` the rest is counted.

Source: mermaid.js.org/syntax/sequenceDiagram.html.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collector.export.timed_spans import RootIds, spans_of_one
from collector.reporting import story
from collector.requests.results import answer_text
from collector.services.ends import end_name
from collector.trace.durations import in_words
from collector.trace.reading import Trace

MOST_EXCHANGES, MOST_CHARACTERS = 60, 80


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write the request of this `trace_id`, else the longest, to the file `place`; returns it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join(diagram(trace, only)) + "\n", encoding="utf-8")
    return [place]


def diagram(trace: Trace, only: RootIds | None = None) -> Iterator[str]:
    """The lines of the diagram."""
    rows = spans_of_one(trace, only)
    yield "sequenceDiagram"
    spans = rows.sort("start", "depth").head(MOST_EXCHANGES).to_dicts()
    hosts = dict.fromkeys(host for row in spans for host in (_client(row), _server(row)))
    names = {host: f"h{at}" for at, host in enumerate(hosts)}
    for host, name in names.items():
        yield f"    participant {name} as {_safe(host)}"
    origin = min((row["start"] for row in spans), default=0)
    arrows = [arrow for at, row in enumerate(spans) for arrow in _arrows(row, at, origin)]
    for *_, source, target, line, words in sorted(arrows):
        yield f"    {names[source]}{line}{names[target]}: {words}"
    if len(rows) > len(spans):
        yield f"    Note over {next(iter(names.values()))}: and {len(rows) - len(spans):,} more exchanges"


def _arrows(row: dict[str, Any], at: int, origin: int) -> Iterator[tuple[int, int, int, str, str, str, str]]:
    """The request and the answer: time, rank, place, from, to, kind of line, words."""
    client, server = _client(row), _server(row)
    asked = f"+{in_words(row['start'] - origin)} {_safe(story.request_name(row))}"
    yield row["start"], 0, at, client, server, "->>", asked
    answer = answer_text(row["status"] or 0, row["result"] or "") or row["outcome"] or "end"
    words = f"+{in_words(row['end'] - origin)} {_safe(answer)}, {in_words(row['end'] - row['start'])}"
    yield row["end"], 1, -at, server, client, "-->>", words


def _client(row: dict[str, Any]) -> str:
    return str(row["client_host"] or row["client_peer"] or "client")


def _server(row: dict[str, Any]) -> str:
    return str(row["server_host"] or row["server_peer"] or row["service"] or end_name(None))


def _safe(text: str) -> str:
    """A text with Mermaid's codes for characters that mean something in a diagram."""
    short = text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
    return re.sub(r"[^\w ./:?&=+*@(),…→ -]", lambda found: f"#{ord(found[0])};", short)
