"""Exports the packets of one request as a log for ShiViz, which draws hosts and what happened before what.

Each packet is two events, at its sender and at its receiver, or one, where the other end was not captured. Their vector
clocks are made from the packets alone: an event is after those before it on its host, and a receive after its send. So
the picture holds whatever the clocks of the hosts say. On a host events are in the order of its own capture.

Source: Mattern 1989 for the clocks; bestchai.bitbucket.io/shiviz for the format: of a file that is uploaded the first
line is the expression by which it is read (ours is the page's default, for who pastes it), the second divides runs.
"""

import heapq
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from collector.export.timed_spans import RootIds, spans_of_one
from collector.reporting import story
from collector.trace.reading import Trace
from tracer.errors import InputError

EXPRESSION = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
MOST_EVENTS = 20_000
"""ShiViz lays all events out; above some thousands it is slow."""
_Event = tuple[int, int, int]
"""A packet's number in its host's capture, the number of its hop, and which end: 0 that it was sent, 1 received."""
_ENDS = ("send", "receive")
_COLUMNS = [
    *(f"{end}_{what}" for end in _ENDS for what in ("host", "frame", "host_ns")),
    *("exchange_id", "kind", "stream_start", "stream_end", "attempt", "state"),
]


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write the request of this `trace_id`, else the longest, to the file `place`; returns it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("w", encoding="utf-8") as file:
        file.write(f"{EXPRESSION}\n\n")
        for host, clock, words in events(trace, only):
            file.write(f"{words}\n{host} {json.dumps(clock)}\n")
    return [place]


def events(trace: Trace, only: RootIds | None = None) -> Iterator[tuple[str, dict[str, int], str]]:
    """The events in an order that respects what happened before what: host, vector clock, words."""
    spans = spans_of_one(trace, only)
    names = {row["exchange_id"]: story.request_name(row) for row in spans.iter_rows(named=True)}
    is_wanted = pl.col("exchange_id").is_in(pl.Series(list(names), dtype=pl.Int64).implode())
    parts = [pl.DataFrame(batch).filter(is_wanted) for batch in trace.batches("hops", _COLUMNS)]
    hops = pl.concat(parts).with_columns(pl.col(pl.Categorical).cast(pl.String)) if parts else pl.DataFrame()
    if 2 * len(hops) > MOST_EVENTS:
        what = f"the request has {len(hops):,} packets, more than the {MOST_EVENTS // 2:,} that ShiViz can draw"
        raise InputError(what, "choose another one with --request")
    yield from _with_clocks(hops.to_dicts(), names)


def _with_clocks(
    hops: Sequence[Mapping[str, Any]], names: Mapping[int, str]
) -> Iterator[tuple[str, dict[str, int], str]]:
    """Each host's events in the order of its capture; a receive waits for its send."""
    queues: dict[str, list[_Event]] = defaultdict(list)
    for number, hop in enumerate(hops):
        for side, end in enumerate(_ENDS):
            if hop[f"{end}_host_ns"] is not None:
                place = hop[f"{end}_host_ns"] if hop[f"{end}_frame"] is None else hop[f"{end}_frame"]
                queues[hop[f"{end}_host"]].append((place, number, side))
    for queue in queues.values():
        heapq.heapify(queue)
    clocks: dict[str, dict[str, int]] = {host: {} for host in queues}
    sent: dict[int, dict[str, int]] = {}
    while any(queues.values()):
        host = _ready(queues, hops, sent)
        _, number, side = heapq.heappop(queues[host])
        clock = clocks[host]
        if side:
            for other, count in sent.get(number, {}).items():
                clock[other] = max(clock.get(other, 0), count)
        clock[_safe(host)] = clock.get(_safe(host), 0) + 1
        if not side:
            sent[number] = dict(clock)
        yield _safe(host), dict(clock), _words(hops[number], side, names)


def _ready(
    queues: Mapping[str, list[_Event]], hops: Sequence[Mapping[str, Any]], sent: Mapping[int, dict[str, int]]
) -> str:
    """A host whose next event may happen; if each waits for another (a damaged trace), the first of them."""
    waiting = [host for host, queue in queues.items() if queue]
    for host in waiting:
        _, number, side = queues[host][0]
        if not side or hops[number]["send_host_ns"] is None or number in sent:
            return host
    return waiting[0]


def _words(hop: Mapping[str, Any], side: int, names: Mapping[int, str]) -> str:
    size = hop["stream_end"] - hop["stream_start"]
    other = hop[f"{_ENDS[1 - side]}_host"] or "?"
    what = f"{str(hop['kind']).upper()}{f' {size:,} bytes' if size else ''}"
    again = f", attempt {hop['attempt']}" if hop["attempt"] > 1 else ""
    fate = "" if hop["state"] == "matched" else f", {hop['state']}"
    way = f"sends {what} to {other}" if side == 0 else f"receives {what} from {other}"
    return f"{way}{again}{fate}: {names[hop['exchange_id']]}".replace("\n", " ")


def _safe(host: str) -> str:
    """A host's name without blanks, as the format needs it."""
    return re.sub(r"\s", "_", host)
