"""Exports a trace for ui.perfetto.dev and `trace_processor`: Perfetto's own protobuf.

Each host is a process. In it are:

- a track for each service, with a slice for each request that it served, and where its time went as arguments; where
  requests overlap, further tracks of that name, so that slices of a track do not overlap. A flow leads from the slice
  of the caller to that of the called;
- *requests in progress*, a counter, and *bytes on the way from here*: sent, and not yet received;
- a track for each host that it exchanges packets with. A packet is an instant at its sender and one at its receiver,
  with a flow from one to the other; one that arrived in parts, or of which one end was not captured, is there as in the
  table `hops`, whose columns are its arguments (`packet` is the row, from 1);
- findings, as instants.

Timestamps are trace times. Where the clocks' error makes a packet arrive before it was sent, or a call begin before its
caller, there is no flow, since it would point the wrong way; `packet` and `parent_span_id` join them still.

Memory: 600 bytes for each span, 40 for each packet. Cost: 15 s for a million packets with 70,000 spans.
Limits: of more than `MOST_PACKETS` packets none is there, since the page that shows them has 2 GB.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct, field

from collector.export.perfetto_format import (
    COUNT,
    SIZE_BYTES,
    EventType,
    counter_track,
    counts,
    event,
    head,
    instants,
    plain_track,
    process_track,
)
from collector.export.timed_spans import RootIds, timed_spans
from collector.reporting import story
from collector.reporting.peers import PEERS, peers_of_connections, with_peers
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import SPANS, HopKind, HopState
from collector.trace.time_columns import Int64Array

MOST_PACKETS = 1_000_000
"""Some 300 MB of file."""
LEDGER = [name for name in SPANS.names if name.endswith("_ns")]
SLICE_ARGUMENTS = (
    *("exchange_id", "trace_id", "parent_span_id", "connection_id", "client_host", "status", "result", "outcome"),
    *("transaction_id", "link_reason", "confidence", "uncertainty_ns", "likely_error_ns", *LEDGER),
)
REQUESTS, IN_PROGRESS, ON_THE_WAY, PACKETS = range(4)
"""The order of a host's tracks."""
ENDS = ("send", "receive")
NAMES = tuple(f"{end} {kind}" for end in ENDS for kind in HopKind)
STATES = tuple(HopState)
ARGUMENTS = (
    *("packet", "connection_id", "attempt", "bytes", "state", "frame"),
    *("other_frame", "exchange_id", "one_way_delay_ns", "uncertainty_ns", "likely_error_ns"),
)
SOME_LACK = ARGUMENTS[5:]
"""Those that a packet may lack."""
CALL = 1 << 63
"""Flows of calls are numbered from here on, those of packets from 1."""
FLOW, LAST_OF_FLOW = 47, 48
"""Fields of an event: flows that go through it, or end in it."""
_COLUMNS = [
    *(f"{end}_{what}" for end in ENDS for what in ("host", "frame", "trace_ns")),
    *("connection_id", "from_client", "kind", "stream_start", "stream_end", "attempt", "state", "exchange_id"),
    *("one_way_delay_ns", "uncertainty_ns", "likely_error_ns"),
]


def write(trace: Trace, place: Path, only: RootIds | None = None) -> list[Path]:
    """Write a trace, or only the requests with these `trace_id`s and their packets, to the file `place`; returns it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        for part in _messages(trace, only):
            file.write(part)
    return [place]


def left_out(trace: Trace, only: RootIds | None = None) -> str:
    """What `write` leaves out, in words; empty if nothing."""
    if only is None or trace.rows_count("hops") <= MOST_PACKETS:
        return _words_left_out(trace.rows_count("hops"))
    return _words_left_out(_Packets.of(trace, timed_spans(trace, only)).count)


def _words_left_out(count: int) -> str:
    words = f"without its {count:,} packets: at most {MOST_PACKETS:,} are written; choose some requests with --search"
    return words if count > MOST_PACKETS else ""


class _Packets(Struct, frozen=True):
    """The hops that are exported: how many, the first time of them, and which exchanges they are of (None: all)."""

    count: int
    first_ns: int | None
    exchanges: pl.Series | None

    @classmethod
    def of(cls, trace: Trace, spans: pl.DataFrame | None) -> "_Packets":
        found = cls(0, None, None if spans is None else spans["exchange_id"])
        count, times = 0, []
        for part in found.parts(trace, ["send_trace_ns", "receive_trace_ns", "exchange_id"]):
            count += len(part)
            times.append(part.select(pl.min_horizontal(pl.col("send_trace_ns", "receive_trace_ns").min())).item())
        return cls(count, min((at for at in times if at is not None), default=None), found.exchanges)

    def parts(self, trace: Trace, columns: list[str]) -> Iterator[pl.DataFrame]:
        """Some columns of the hops, each with its row in the table from 1 (`packet`), a part at a time."""
        first = 1
        for batch in trace.batches("hops", columns):
            part = pl.DataFrame(batch).with_row_index("packet", first).cast({"packet": pl.Int64})
            first += batch.num_rows
            yield part if self.exchanges is None else part.filter(pl.col("exchange_id").is_in(self.exchanges.implode()))


def _messages(trace: Trace, only: RootIds | None) -> Iterator[bytes]:
    """The file, a piece at a time."""
    spans = timed_spans(trace, only).sort("start", "depth", "end", maintain_order=True)
    findings = pl.DataFrame(trace.read("findings")).cast({pl.Categorical: pl.String}).drop_nulls("from_trace_ns")
    packets = _Packets.of(trace, None if only is None else spans)
    times = [spans["start"].min(), findings["from_trace_ns"].min(), packets.first_ns]
    origin = min((at for at in times if isinstance(at, int)), default=0)
    yield head(origin, NAMES, ARGUMENTS, STATES)
    tracks = _Tracks()
    for host in _hosts(trace.info(), spans):
        tracks.process(host)
    yield from _slices(spans, tracks)
    yield from _in_progress(spans, tracks)
    for row in findings.iter_rows(named=True):
        yield from _instant(row, tracks)
    if packets.count <= MOST_PACKETS:
        yield from _packet_events(packets.parts(trace, _COLUMNS), peers_of_connections(trace), tracks)
    else:
        track = tracks.plain(None, _words_left_out(packets.count), 0)
        yield tracks.announcements() + event(EventType.INSTANT, origin, track, "packets are left out")
    yield tracks.announcements()


def _hosts(info: TraceInfo, spans: pl.DataFrame) -> list[str]:
    captured = [host.host for host in info.hosts]
    return list(dict.fromkeys([*captured, *sorted(spans["host"].unique())]))


class _Tracks(Struct):
    """The tracks that events are on, numbered from 1, and what announces those that are new."""

    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    _new: list[bytes] = field(default_factory=list)

    def process(self, host: str) -> int:
        """That of a host."""
        number, is_new = self._number("host", host)
        if is_new:
            self._new.append(process_track(number, number, host))
        return number

    def plain(self, host: str | None, name: str, rank: int, lane: int = 0) -> int:
        """One of a host, or of all, by its name; of several of that name by its lane."""
        parent = None if host is None else self.process(host)
        number, is_new = self._number("plain", host, name, rank, lane)
        if is_new:
            self._new.append(plain_track(number, name, rank, parent))
        return number

    def counter(self, host: str, name: str, rank: int, unit: int) -> int:
        """A counter of a host."""
        parent = self.process(host)
        number, is_new = self._number("counter", host, name)
        if is_new:
            self._new.append(counter_track(number, name, rank, parent, unit))
        return number

    def _number(self, *key: object) -> tuple[int, bool]:
        known = len(self._numbers)
        number = self._numbers.setdefault(key, known + 1)
        return number, number > known

    def announcements(self) -> bytes:
        """Those of new tracks, which come before their events."""
        said = b"".join(self._new)
        self._new.clear()
        return said


def _slices(spans: pl.DataFrame, tracks: _Tracks) -> Iterator[bytes]:
    starts = dict(spans.select("exchange_id", "start").iter_rows())
    calls = defaultdict(list)
    for parent, child, start in spans.select("parent_span_id", "exchange_id", "start").iter_rows():
        if parent in starts and starts[parent] <= start:
            calls[parent].append(child)
    flowing = {child for children in calls.values() for child in children}
    lanes = _Lanes()
    for row in spans.iter_rows(named=True):
        name, number = row["service"] or "requests", row["exchange_id"]
        lane = lanes.take((row["host"], name), row["start"], row["end"])
        track = tracks.plain(row["host"], name, REQUESTS, lane)
        yield tracks.announcements()
        yield event(
            EventType.SLICE_BEGIN,
            row["start"],
            track,
            story.request_name(row),
            "request",
            {key: row[key] for key in SLICE_ARGUMENTS if row[key] is not None},
            [CALL | child for child in calls.get(number, ())],
            [CALL | number] if number in flowing else [],
        )
        yield event(EventType.SLICE_END, row["end"], track)


class _Lanes:
    """For each slice the first lane of its track that is free when it starts; they come by their start."""

    def __init__(self) -> None:
        self._busy: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._free: dict[tuple[str, str], list[int]] = {}

    def take(self, track: tuple[str, str], start: int, end: int) -> int:
        """The lane, from 0, which is not free until `end`."""
        busy, free = self._busy.setdefault(track, []), self._free.setdefault(track, [])
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, lane))
        return lane


def _in_progress(spans: pl.DataFrame, tracks: _Tracks) -> Iterator[bytes]:
    steps = pl.concat(
        [spans.select("host", at=when, step=pl.lit(step, pl.Int64)) for when, step in (("start", 1), ("end", -1))]
    )
    yield from _levels(steps, tracks, "requests in progress", IN_PROGRESS, COUNT)


def _levels(steps: pl.DataFrame, tracks: _Tracks, name: str, rank: int, unit: int) -> Iterator[bytes]:
    """A counter for each host, from its `step`s up and down `at` times."""
    by_time = steps.group_by("host", "at").agg(pl.col("step").sum()).sort("host", "at")
    for each in by_time.partition_by("host", maintain_order=True):
        track = tracks.counter(each["host"][0], name, rank, unit)
        yield tracks.announcements()
        yield counts(each["at"].to_numpy(), track, each["step"].cum_sum().to_numpy())


def _instant(row: Mapping[str, Any], tracks: _Tracks) -> Iterator[bytes]:
    host = row["host"]
    track = tracks.plain(None, "findings", 0) if host is None else tracks.process(host)
    keys = ("text", "remedy", "severity", "cause", "cost_ns", "count", "peer_host", "connection_id", "span_id")
    yield tracks.announcements()
    said = {key: row[key] for key in keys if row[key] is not None}
    yield event(EventType.INSTANT, row["from_trace_ns"], track, row["kind"], "finding", said)


def _packet_events(parts: Iterator[pl.DataFrame], peers: pl.DataFrame, tracks: _Tracks) -> Iterator[bytes]:
    steps = []
    for part in parts:
        packets = _with_peers_of_ends(_with_numbers(part), peers)
        sent = packets.filter(pl.col("flows") & (pl.col("bytes") > 0))
        steps.append(sent.select(host="send_host", at="send_trace_ns", step="bytes"))
        steps.append(sent.select(host="send_host", at="receive_trace_ns", step=-pl.col("bytes")))
        for end, other in (ENDS, ENDS[::-1]):
            yield from _events_of_end(packets, end, other, tracks)
    if steps:
        yield from _levels(pl.concat(steps), tracks, "bytes on the way from here", ON_THE_WAY, SIZE_BYTES)


def _with_numbers(part: pl.DataFrame) -> pl.DataFrame:
    """Hops with their interned values, their sizes, and whether a flow leads from their sender to their receiver."""
    texts = part.with_columns(pl.col(pl.Categorical).cast(pl.String))
    names = {kind.value: place for place, kind in enumerate(HopKind, 1)}
    states = {state.value: place for place, state in enumerate(STATES, 1)}
    return texts.with_columns(
        pl.col("kind").replace_strict(names, return_dtype=pl.Int64),
        pl.col("state").replace_strict(states, return_dtype=pl.Int64),
        bytes=pl.col("stream_end") - pl.col("stream_start"),
        flows=(
            (pl.col("state") == HopState.MATCHED) & (pl.col("send_trace_ns") <= pl.col("receive_trace_ns"))
        ).fill_null(value=False),
    )


def _with_peers_of_ends(packets: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """`packets` with the names of ends without a capture, `send_peer` and `receive_peer`."""
    client, server = PEERS
    known = with_peers(packets, peers)
    return known.with_columns(
        send_peer=pl.when("from_client").then(client).otherwise(server),
        receive_peer=pl.when("from_client").then(server).otherwise(client),
    )


def _events_of_end(packets: pl.DataFrame, end: str, other: str, tracks: _Tracks) -> Iterator[bytes]:
    ours = packets.drop_nulls(f"{end}_trace_ns").with_columns(
        at=f"{end}_trace_ns",
        host=pl.col(f"{end}_host").fill_null("?"),
        peer=pl.coalesce(f"{other}_host", f"{other}_peer", pl.lit("?")),
        name=pl.col("kind") + len(HopKind) * ENDS.index(end),
        frame=f"{end}_frame",
        other_frame=f"{other}_frame",
    )
    pairs = ours.select("host", "peer").unique(maintain_order=True)
    numbers = [tracks.plain(host, f"packets with {peer}", PACKETS) for host, peer in pairs.iter_rows()]
    yield tracks.announcements()
    placed = ours.join(pairs.with_columns(track=pl.Series(numbers, dtype=pl.Int64)), on=["host", "peer"], how="left")
    field_number = FLOW if end == "send" else LAST_OF_FLOW
    known = [pl.col(name).is_not_null().alias(f"has_{name}") for name in SOME_LACK]
    for alike in placed.with_columns(known).partition_by("flows", *(f"has_{name}" for name in SOME_LACK)):
        yield _instants(alike, end, field_number)


def _instants(alike: pl.DataFrame, end: str, flow_field: int) -> bytes:
    """The events of packets that have and lack the same."""

    def numbers(name: str) -> Int64Array:
        return alike[name].cast(pl.Int64).to_numpy()

    said = {
        place: numbers(name)
        for place, name in enumerate(ARGUMENTS, 1)
        if name != "state" and alike[name].null_count() == 0
    }
    return instants(
        numbers("at"),
        numbers("track"),
        numbers("name"),
        f"packet,{end}",
        said,
        {ARGUMENTS.index("state") + 1: numbers("state")},
        (flow_field, numbers("packet")) if alike["flows"][0] else None,
    )
