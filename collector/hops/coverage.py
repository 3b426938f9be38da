"""The intervals in which each point captured. A packet missing outside them is not lost: nobody was looking.

A capture begins and ends, is restarted, or stalls for a while. Packets that other hosts saw meanwhile have no other
end, and are no losses. A point's coverage is at first the span of each of its files: from the beginning that an agent's
section states, or else from the first packet, to the last packet. Consecutive files (`tcpdump -C`, `-G`) are one span,
except for holes:

- an agent's capture that was restarted (`twintap.since`) did not capture between its two runs;
- what lies before an agent's segment whose predecessor, by number, is not here, was captured but is not here;
- a silent point was not capturing if meanwhile other hosts received packets that it must have sent, and got
  acknowledgements for packets that they sent there. If a link is down, nothing is received or acknowledged.

Between two files a few such packets prove a hole. Within one file a capture seldom stops, so there many packets must be
missing, in both directions, for a while.

A capture that cannot keep up drops single packets and keeps others. That is no hole, but the time is *covered in part*.
The capture's statistics count the drops since the previous statistics (pcapng's Interface Statistics Blocks: an agent
writes them with each segment, `dumpcap` at the end). If they count at least as many drops as packets seem lost there, a
missing packet proves nothing: no loss is reported and no silence inferred (`collector.findings.captures`).

Limits: a hole during which no other captured host exchanged packets with this one is not detected, and does no harm.
`tcpdump` reports its drops only on standard error; acknowledgements reveal most of them (`capture_dropped`,
`collector.requests.gaps`). A capture on `any` reports the drops of all its interfaces together.
Source: draft-ietf-opsawg-pcapng §4.6.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector.clocks.alignment import to_trace_ns
from collector.decode.activity import DropSpan, FileSpan, HostActivity, PointActivity, Span
from collector.hops.sampling import ALL_KEPT, Sampling, with_depths
from collector.trace.arrow import plain_texts
from collector.trace.schema import HopState

Ints = NDArray[np.int64]

HOLE_LEAST_NS, HOLE_LEAST_SENT, HOLE_LEAST_RECEIVED = 200_000_000, 8, 2
"""A silence within one file is a hole if it lasts at least so long and at least so many sent and received packets of
the host are missing in it."""
BETWEEN_LEAST_SENT, BETWEEN_LEAST = 1, 2
"""Missing packets that prove a hole between two files: so many sent by the host, and so many in both directions."""
EDGE_NS = 1_000_000
"""Delays vary by so much: closer to a hole's edge, a packet may belong to its other side."""
SLICE_NS = 1_000_000
"""Missing packets are counted by slices of time of this length, so that memory does not grow with their number."""


class HostCoverage(Struct, frozen=True):
    """When a host's points captured, in the host's own time (ns): for each point ascending, disjoint spans.

    `drops`: for each point, the times that it covers in part; `doubtful`: those of them in which a missing packet
    proves nothing. `has_ended`: other hosts received packets from this one after its last span. Otherwise its last
    packet may be followed by silence.
    """

    points: tuple[tuple[Span, ...], ...]
    drops: tuple[tuple[DropSpan, ...], ...] = ()
    doubtful: tuple[tuple[Span, ...], ...] = ()
    has_ended: bool = False

    @property
    def whole(self) -> tuple[Span, ...]:
        """The spans in which at least one point captured."""
        return union(span for spans in self.points for span in spans)

    @property
    def in_part(self) -> tuple[DropSpan, ...]:
        """The times that any point covers in part, each once (a capture on `any` repeats them for each interface)."""
        return tuple(sorted({drop for of_point in self.drops for drop in of_point}, key=lambda drop: drop.from_ns))


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The union of the spans, as ascending spans that do not touch."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return tuple(joined)


def subtract_spans(spans: Sequence[Span], holes: Iterable[Span]) -> tuple[Span, ...]:
    """The spans minus the holes; the holes' own edges stay covered. Pieces no longer than an edge are omitted."""
    left = list(spans)
    for begin, end in holes:
        kept = []
        for first, last in left:
            if begin >= last or end <= first:
                kept.append((first, last))
                continue
            kept += [(first, begin)] if begin > first else []
            kept += [(end, last)] if end < last else []
        left = kept
    return tuple(left)


def covers(spans: Sequence[Span], at_ns: Ints, edge_ns: int = 0, hole_edge_ns: int = EDGE_NS) -> NDArray[np.bool_]:
    """Whether each time is within a span.

    Arguments: `spans` ascending and disjoint; `at_ns`, shape (n,), on the same clock; the spans are shortened by
    `edge_ns` at the outer edges and by `hole_edge_ns` (or `edge_ns`, if larger) at the edges of holes.
    Cost: a binary search for each time.
    """
    if not spans:
        return np.zeros(len(at_ns), dtype=np.bool_)
    begin, end = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    inner = max(edge_ns, hole_edge_ns)
    begin[0] += edge_ns
    begin[1:] += inner
    end[-1] -= edge_ns
    end[:-1] -= inner
    place = np.searchsorted(begin, at_ns, side="right") - 1
    return (place >= 0) & (at_ns <= end[place])


MISSING_SCHEMA = pl.Schema(
    {
        "host": pl.String,
        "peer": pl.String,
        "client_addr": pl.String,
        "server_addr": pl.String,
        "sent": pl.Boolean,
        "host_ns": pl.Int64,
        "count": pl.UInt32,
    }
)


NOTHING_MISSING = pl.DataFrame(schema=MISSING_SCHEMA)
MISSING = (HopState.CAPTURE_DROPPED, HopState.OUTSIDE_WINDOW)
"""States of packets that passed a capture without being recorded."""


def missing_packets(
    hops: pa.Table,
    connections: pa.Table,
    states: Sequence[HopState] = MISSING,
    sampling: Sampling = ALL_KEPT,
    depths: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Packets missing in the capture of a host that, as other captures show, sent or received them; counted by slice.

    Arguments: `hops` of whole `connections`, not aligned yet; `states` of the hops that count; `depths` of the
        connections, if a host kept only some of them at some time (`sampling`): those count for nothing there.
    Returns: a row for each `host` whose capture lacks them, `peer` that saw them, pair of addresses, direction (`sent`:
    by the host) and slice (`host_ns`, in the peer's own time).
    Cost: negligible if no packet is missing.
    """
    state = hops["state"].combine_chunks()
    texts = state.dictionary.to_pylist()
    lacking = [texts.index(each) for each in states]
    # Of a host that nobody captured nothing is missing.
    known = pc.and_(hops["send_host"].is_valid(), hops["receive_host"].is_valid()).to_numpy()
    rows = np.flatnonzero(np.isin(state.indices.to_numpy(), lacking) & known)
    if not len(rows):
        return pl.DataFrame(schema=MISSING_SCHEMA)
    names = ["connection_id", "send_host", "receive_host", "send_host_ns", "receive_host_ns"]
    lone = pl.DataFrame(plain_texts(hops.select(names).take(rows)))
    sent = pl.col("send_host_ns").is_null()
    stamp = pl.coalesce("send_host_ns", "receive_host_ns")
    found = lone.select(
        "connection_id",
        host=pl.when(sent).then("send_host").otherwise("receive_host"),
        peer=pl.when(sent).then("receive_host").otherwise("send_host"),
        sent=sent,
        host_ns=stamp - stamp % SLICE_NS + SLICE_NS // 2,
    ).drop_nulls()
    if depths is not None:
        found = found.filter(~sampling.ever_left_out(with_depths(found, depths), "host"))
    ends = pl.DataFrame(plain_texts(connections.select(["connection_id", "client_addr", "server_addr"])))
    found = found.join(ends, on="connection_id")
    keys = [name for name in MISSING_SCHEMA if name != "count"]
    return found.group_by(keys).agg(pl.len().alias("count")).cast(MISSING_SCHEMA)


def merge_missing(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The missing packets of all partitions."""
    return pl.concat([pl.DataFrame(schema=MISSING_SCHEMA), *(part for part in parts if len(part))])


def coverages(
    activities: Mapping[str, HostActivity],
    missing: pl.DataFrame,
    clocks: pa.Table,
    lost: pl.DataFrame = NOTHING_MISSING,
) -> dict[str, HostCoverage]:
    """The intervals in which each host's points captured.

    Arguments: `activities` by host; `missing`, from `missing_packets`, of all connections; `clocks` as in the trace;
    `lost`, in the form of `missing`: packets that seem lost on the way to the host.
    """
    found = {}
    for host, activity in activities.items():
        at_points = list(_at_points(host, activity, missing, clocks))
        points = [_point_coverage(point, *at_point) for point, at_point in zip(activity.points, at_points, strict=True)]
        drops = tuple(point.drops for point in activity.points)
        doubtful: list[tuple[Span, ...]] = [()] * len(points)
        if any(drops):
            lost_at = _at_points(host, activity, lost, clocks)
            doubtful = [
                _doubtful_spans(point.drops, *at_point)
                for point, at_point in zip(activity.points, lost_at, strict=True)
            ]
        has_ended = bool(points) and _sent_after(points, at_points) >= BETWEEN_LEAST_SENT
        found[host] = HostCoverage(tuple(points), drops, tuple(doubtful), has_ended)
    return found


def _sent_after(points: Sequence[tuple[Span, ...]], at_points: Sequence[tuple[Ints, NDArray[np.bool_], Ints]]) -> int:
    """How many packets the host sent after all its points had stopped capturing."""
    end_ns = max((spans[-1][1] for spans in points if spans), default=None)
    if end_ns is None:
        return 0
    return sum(int(count[sent & (stamps > end_ns + EDGE_NS)].sum()) for stamps, sent, count in at_points)


def _doubtful_spans(drops: Sequence[DropSpan], stamps: Ints, _: NDArray[np.bool_], count: Ints) -> tuple[Span, ...]:
    """The times in which a capture dropped at least as many packets as seem lost there."""
    sums = np.concatenate([[0], np.cumsum(count)])

    def lost_within(drop: DropSpan) -> int:
        first, last = np.searchsorted(stamps, drop.from_ns), np.searchsorted(stamps, drop.to_ns, side="right")
        return int(sums[last] - sums[first])

    return union((drop.from_ns, drop.to_ns) for drop in drops if drop.count >= lost_within(drop))


def _at_points(
    host: str, activity: HostActivity, missing: pl.DataFrame, clocks: pa.Table
) -> Iterator[tuple[Ints, NDArray[np.bool_], Ints]]:
    """The result of `_at_point` for each point."""
    own = missing.filter(pl.col("host") == host)
    stamps = _stamps_at(host, own, clocks)
    return (_at_point(number, activity, own, stamps) for number in range(len(activity.points)))


def _stamps_at(host: str, missing: pl.DataFrame, clocks: pa.Table) -> Ints:
    """The host's times of missing packets: the peers' times, converted to the trace's timescale and then to the
    host."""
    if missing.is_empty():
        return np.empty(0, dtype=np.int64)
    at = to_trace_ns(missing["peer"].to_arrow().cast(pa.string()), missing["host_ns"].to_arrow(), clocks)
    return to_host_ns(host, at, clocks)


def to_host_ns(host: str, trace_ns: Ints, clocks: pa.Table) -> Ints:
    """A host's own times at given trace times, same shape. Within a step of its clock, the line before the step
    holds."""
    rows = sorted((row for row in clocks.to_pylist() if row["host"] == host), key=lambda row: row["from_host_ns"])
    stamps = trace_ns.copy()
    for row in rows:
        elapsed = trace_ns + row["offset_ns"] - row["from_host_ns"]
        on_line = trace_ns + row["offset_ns"] + np.rint(row["skew_ppb"] * (elapsed / 1e9)).astype(np.int64)
        of_row = (on_line >= row["from_host_ns"]) | (row is rows[0])
        stamps = np.where(of_row, on_line, stamps)
    return stamps


def _at_point(
    number: int, activity: HostActivity, missing: pl.DataFrame, stamps: Ints
) -> tuple[Ints, NDArray[np.bool_], Ints]:
    """The missing packets that pass a point: their times, whether the host sent them, and their counts."""
    pairs = missing.select("client_addr", "server_addr")
    known = {pair: number in activity.points_of(pair) for pair in set(pairs.rows())}
    here = np.array([known[pair] for pair in pairs.iter_rows()], dtype=np.bool_)
    order = np.argsort(stamps[here], kind="stable")
    sent, count = (missing[name].to_numpy()[here][order] for name in ("sent", "count"))
    return stamps[here][order], sent, count.astype(np.int64)


def _point_coverage(point: PointActivity, stamps: Ints, sent: NDArray[np.bool_], count: Ints) -> tuple[Span, ...]:
    spans, between, restarts = _file_spans(point.files)
    if not spans:
        return ()
    whole = (spans[0][0], spans[-1][1])
    sums = [np.concatenate([[0], np.cumsum(np.where(way, count, 0))]) for way in (sent, ~sent)]

    def missing_in(silence: Span) -> tuple[int, int]:
        first, last = np.searchsorted(stamps, silence[0]), np.searchsorted(stamps, silence[1], side="right")
        return int(sums[0][last] - sums[0][first]), int(sums[1][last] - sums[1][first])

    def is_hole(silence: Span) -> bool:
        from_host, to_host = missing_in(silence)
        if any(silence[0] <= begin and end <= silence[1] for begin, end in between):
            return from_host >= BETWEEN_LEAST_SENT and from_host + to_host >= BETWEEN_LEAST
        long = silence[1] - silence[0] >= HOLE_LEAST_NS
        return long and from_host >= HOLE_LEAST_SENT and to_host >= HOLE_LEAST_RECEIVED

    holes = [silence for silence in _silences(point, whole, between) if is_hole(silence)]
    return subtract_spans(subtract_spans(spans, holes), restarts)


def _file_spans(files: Sequence[FileSpan]) -> tuple[tuple[Span, ...], list[Span], list[Span]]:
    """The spans of files, consecutive ones merged; the times between them; those between two runs of a capture."""
    ordered = sorted(files, key=lambda file: file.from_ns)
    between: list[Span] = []
    restarts: list[Span] = []
    end_ns, since_ns, spans = None, None, []
    for file in ordered:
        begin = file.from_ns
        if file.after_gap:
            if end_ns is not None and begin > end_ns:
                restarts.append((end_ns, begin))
        elif file.since_ns is not None and file.since_ns != since_ns:
            begin = min(begin, file.since_ns)
            if end_ns is not None and since_ns is not None and begin > end_ns:
                restarts.append((end_ns, begin))
        if end_ns is not None and begin > end_ns:
            between.append((end_ns, begin))
        spans.append((begin if end_ns is None else min(begin, max(end_ns, begin)), file.to_ns))
        end_ns, since_ns = max(file.to_ns, end_ns or file.to_ns), file.since_ns
    joined = union([*spans, *between])
    return joined, between, restarts


def _silences(point: PointActivity, whole: Span, between: Sequence[Span]) -> list[Span]:
    """Times without a packet: between packets, between files, and before the first and after the last one."""
    if point.span is None:
        return [whole]
    edges = [(whole[0], point.span[0]), (point.span[1], whole[1])]
    own = [*point.silences, *(span for span in edges if span[0] < span[1])]
    short = [span for span in between if not any(one[0] <= span[0] and span[1] <= one[1] for one in own)]
    return [*own, *short]
