"""Writes the packets of all hosts as one pcapng file, in the order of time, for Wireshark.

One section holds an interface for each point of observation, `HOST/DEVICE`. Stamps are on the trace's one timescale, so
a packet stands after the one that caused it, on whichever host; or they are the hosts' own, as captured. Each packet
has a comment: its other end (the host and the number of the packet in that host's capture), how long it was on its way
and by how much that may be off, or why it has no other end; and its request.

Packets are read from the captures again, by the rules of `collector.queries.captured`. Those that the trace has no hop
for (what is not TCP) are left out.

Cost: reading the captures. Memory: about 200 bytes for each packet that is written.
"""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl

from collector.capture_files.readers import Interface, PacketCopy
from collector.queries.captured import (
    FLAGS,
    copies_of,
    interface_block,
    names_block,
    packet_block,
    section_block,
)
from collector.queries.selection import Selection, rows_of
from collector.queries.trace_view import TraceView
from collector.trace.durations import in_words, with_uncertainty
from collector.trace.model import HostInfo
from collector.trace.peer_names import PeerNames
from collector.trace.schema import HopState
from tracer.errors import InputError

MOST_PACKETS = 5_000_000
REORDERED = 4_096
"""Within a host's capture a packet may stand so many packets late: interfaces and processors are read in turns."""
_ENDS = ("send", "receive")
_COLUMNS = [
    *(f"{end}_{what}" for end in _ENDS for what in ("host", "frame", "host_ns", "trace_ns")),
    *("state", "attempt", "one_way_delay_ns", "uncertainty_ns", "likely_error_ns", "exchange_id"),
]
_WORDS = {
    HopState.LOST: "lost: it never arrived",
    HopState.CAPTURE_DROPPED: "the capture of its other end missed it",
    HopState.OUTSIDE_WINDOW: "its other end was not captured then",
    HopState.AMBIGUOUS: "ambiguous: several packets may be its other end",
    HopState.UNMATCHED: "its other end is not found",
}


class _Packet(NamedTuple):
    """A packet to be written; they are ordered by time, host and frame."""

    at_ns: int
    host: int
    frame: int
    point: tuple[str, int]  # the interface's name, its link type
    block: tuple[int, bytes, int, str]  # original length, bytes, flags, comment


def write_merged(trace: TraceView, selection: Selection | None, place: Path, *, own_clocks: bool = False) -> int:
    """Write the packets of a selection, or all, to the file `place`; returns how many.

    Arguments: `own_clocks`, whether stamps are the hosts' own.
    Raises: `InputError` if there are too many, or a capture is missing or is another one.
    """
    rows = trace.read_unchanged(lambda: _packets(trace, selection))
    if len(rows) > MOST_PACKETS:
        what = f"{len(rows):,} packets are more than the {MOST_PACKETS:,} of one file"
        raise InputError(what, "give --request, or --from and --until")
    clock = "each host's own clock" if own_clocks else "one clock for all hosts"
    streams = [_of_host(trace, at, host, rows, own_clocks) for at, host in enumerate(trace.info.hosts)]
    points: dict[tuple[str, int], int] = {}
    with _new_file(place) as file:
        file.write(section_block(f"Twintap: {trace.summary.name}, merged; times by {clock}"))
        file.write(names_block(PeerNames(trace.info).of_all()))
        for packet in heapq.merge(*streams):
            if packet.point not in points:
                points[packet.point] = len(points)
                name, link_type = packet.point
                file.write(interface_block(link_type, name))
            original_len, data, flags, comment = packet.block
            file.write(packet_block(points[packet.point], packet.at_ns, original_len, data, flags, comment))
    return len(rows)


@contextmanager
def _new_file(place: Path) -> Iterator[IO[bytes]]:
    """The file `place`, to be written; it is there only when all of it is."""
    partial = place.with_name(f".{place.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.rename(place)
    finally:
        partial.unlink(missing_ok=True)


def _packets(trace: TraceView, selection: Selection | None) -> pl.DataFrame:
    """The packet at each end of the hops, each once, by host and frame, with what its comment says."""
    stored = trace.stored
    tables = (
        stored.batches("hops", _COLUMNS)
        if selection is None
        else stored.chosen_rows("hops", _COLUMNS, rows_of(trace, selection))
    )
    parts = []
    for table in tables:
        frame = pl.DataFrame(table).with_columns(pl.col(pl.Categorical).cast(pl.String))
        for end, other in (_ENDS, _ENDS[::-1]):
            ours = {what: f"{end}_{what}" for what in ("host", "frame", "host_ns", "trace_ns")}
            theirs = {f"other_{what}": f"{other}_{what}" for what in ("host", "frame")}
            parts.append(
                frame.select(
                    **ours, **theirs, is_sent=pl.lit(end == "send"),
                    **{name: name for name in _COLUMNS if not name.startswith(_ENDS)},
                ).drop_nulls("frame")
            )  # fmt: skip
    if not parts:
        raise InputError("there is no packet", f"the trace lasts {in_words(trace.duration_ns)}")
    matched = pl.col("state") == HopState.MATCHED
    ordered = pl.concat(parts).sort(~matched, "other_frame")
    found = ordered.group_by("host", "frame").agg(
        pl.all().exclude("other_frame").first(),
        other_frame=pl.col("other_frame").min(),
        last_other_frame=pl.col("other_frame").max(),
        in_part=matched.any() & ~matched.all(),
    )
    numbers = trace.requests_of_exchanges()
    return found.join(numbers, on="exchange_id", how="left").sort("host", "frame")


def _of_host(trace: TraceView, place: int, host: HostInfo, rows: pl.DataFrame, own_clocks: bool) -> Iterator[_Packet]:
    """The packets of a host in the order of time."""
    mine = rows.filter(pl.col("host") == host.host)
    copies = copies_of(trace, host, mine["frame"].to_list(), mine["host_ns"].to_list())
    waiting: list[_Packet] = []
    for (interface, copy), row in zip(copies, mine.iter_rows(named=True), strict=True):
        heapq.heappush(waiting, _packet(place, host.host, interface, copy, row, own_clocks))
        if len(waiting) > REORDERED:
            yield heapq.heappop(waiting)
    while waiting:
        yield heapq.heappop(waiting)


def _packet(
    place: int, host: str, interface: Interface, copy: PacketCopy, row: dict[str, Any], own_clocks: bool
) -> _Packet:
    at_ns = copy.host_ns if own_clocks or row["trace_ns"] is None else row["trace_ns"]
    point = (f"{host}/{interface.name}" if interface.name else host, interface.link_type)
    return _Packet(
        at_ns, place, copy.frame, point, (copy.original_len, copy.data, FLAGS[copy.direction], _comment(row))
    )


def _comment(row: dict[str, Any]) -> str:
    """What the trace knows of a packet."""
    parts = [_other_end(row)]
    if row["attempt"] > 1:
        parts.append(f"attempt {row['attempt']}")
    if row["request"] is not None:
        parts.append(f"request #{row['request'] + 1}")
    return "; ".join(parts)


def _other_end(row: dict[str, Any]) -> str:
    if row["state"] != HopState.MATCHED:
        return _WORDS[HopState(row["state"])]
    first, last = row["other_frame"], row["last_other_frame"]
    numbers = f"packet {first:,}" if first == last else f"packets {first:,} to {last:,}"
    way = "to" if row["is_sent"] else "from"
    return f"{way} {numbers} of {row['other_host']}{_time_on_its_way(row)}{', in part' if row['in_part'] else ''}"


def _time_on_its_way(row: dict[str, Any]) -> str:
    delay_ns, bound_ns = row["one_way_delay_ns"], row["uncertainty_ns"]
    if delay_ns is None:
        return ""
    words = in_words(delay_ns) if bound_ns is None else with_uncertainty(delay_ns, bound_ns, row["likely_error_ns"])
    return f", {words} on its way"
