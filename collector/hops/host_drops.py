"""Finds packets that reached a host's capture but not its TCP: dropped inside the host, by a firewall or a full buffer.

A capture sees packets before the host's firewall and TCP do. So the capture has both the dropped packet and its later
retransmission (the copy). The acknowledgements that the receiver sent between the two show what its TCP had:

- It acknowledged the end of the range: TCP had it. The ACK was lost or late, and the copy was unnecessary.
- It sent a packet at least 0.3 ms after the first arrival whose ACK ends within the range; or, sooner, two such packets
  with SACK blocks: TCP did not have it, since every packet acknowledges all that TCP has.
- It sent one such packet with SACK blocks at any time, and no later bytes had arrived before the range: TCP did not
  have the range. The later bytes that TCP has arrived after it, and a host processes a connection's packets in order.
- It sent nothing for longer than an ACK may be delayed, and acknowledged the copy without a SACK block: TCP did not
  have it. Otherwise it would have acknowledged in time, and the copy would have caused a SACK block (DSACK).
- In all other cases nothing can be concluded, and the packet is not counted.

A packet that arrives after a copy with a later timestamp is no drop: TCP itself discards it (RFC 7323 §5, PAWS).

Limits: only if the receiver's host was captured, with directions. Behind a hole in the stream only the first cause is
counted, and others once the ACKs have reached them. Counts are therefore lower bounds.

Source: RFC 9293 §3.10.7.4 (an ACK carries RCV.NXT), RFC 1122 §4.2.3.2 and RFC 5681 §4.2 (an ACK is delayed less than
500 ms, and not behind a hole), RFC 2883 (DSACK); Linux, net/ipv4/tcp_input.c (tcp_data_queue), snmp_counter.rst.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.capture_files.records import Columns
from collector.hops.retransmission_stalls import PAIR
from collector.trace.arrow import numbers
from collector.trace.threshold import threshold

ACK, SYN = 0x10, 0x02
EVENT_COLUMNS = ["connection_id", "host", "frame", "host_ns", "direction", "seq", "ack", "flags", "window", "tsval"]
FOUND = {
    "connection_id": pl.Int64,
    "receive_host": pl.String,
    "receive_frame": pl.UInt32,  # of the packet that was dropped
    "waited_ns": pl.Int64,  # until its copy arrived, or from the copy of an earlier one that this wait overlaps
}
KEYS = ["connection_id", "receive_host", "receive_frame"]
SUMS = ("dropped", "cost_ns")


@dataclass(frozen=True, slots=True)
class HostDropThresholds:
    """By which ACKs show that a host's TCP never had a packet."""

    processed_within_ns: int = threshold(
        300_000,
        "TCP has a packet so long after the capture: a batch from the network card passes the capture as a whole, then "
        "TCP; if the packet waits for a process that holds the socket instead, no ACK is sent either",
    )
    hole_least_acks_count: int = threshold(
        2, "chosen: so many ACKs of a hole prove a drop sooner, since TCP acknowledges at once what fills a hole"
    )
    copy_least_gap_ns: int = threshold(
        100_000, "chosen: a copy that arrives sooner may be of the same batch from the network card"
    )
    delayed_ack_most_ns: int = threshold(
        210_000_000,
        "Linux delays no ACK longer (TCP_DELACK_MAX, 200 ms, plus a tick); other systems may, but then the copy causes "
        "a DSACK",
    )


def host_drops(events: pa.Table, hops: pa.Table, sack_hash: NDArray[np.uint32], limits: HostDropThresholds) -> pa.Table:
    """Received payload that the receiver's TCP never had (columns `FOUND`).

    Arguments: `events` and `hops` of whole connections, from `collector.hops.matching`; `sack_hash`, for each event a
    hash of its SACK blocks, 0 without any; thresholds. Cost: a pass over `hops`; more only for connections in which
    bytes arrived twice.
    """
    twice = twice_received_connections(hops)
    if not len(twice):
        return pl.DataFrame(schema=FOUND).to_arrow()
    mine = pc.is_in(events["connection_id"], twice)
    rows = pl.DataFrame(events.select([*EVENT_COLUMNS, "payload_len", "duplicate"]).filter(mine)).with_columns(
        pl.col(pl.Categorical).cast(pl.String), sack=pl.Series(sack_hash[mine.to_numpy(zero_copy_only=False)] != 0)
    )
    rows = rows.filter(~pl.col("duplicate")).sort("connection_id", "host", "host_ns", "frame")
    groups = rows.group_by("connection_id", "host", maintain_order=True).len()
    packets, found, end = _packets(rows), [], 0
    for connection, host, count in groups.iter_rows():
        begin, end = end, end + count
        of_host = {name: values[begin:end] for name, values in packets.items()}
        found += [(connection, host, frame, waited) for frame, waited in _at_host(of_host, limits)]
    return pl.DataFrame(found, FOUND, orient="row").to_arrow()


def twice_received_connections(hops: pa.Table) -> pa.Array:
    """Connections in which bytes arrived again, of which some were retransmitted; perhaps a few others, never one less.

    Most retransmissions are the first to arrive. A flow's hops stand together and, where no byte arrived twice, in the
    order of the stream.
    """
    arrived = pc.is_valid(hops["receive_frame"])
    retransmitted = hops["connection_id"].filter(pc.and_(pc.greater(hops["attempt"], 1), arrived)).unique()
    if not len(retransmitted):
        return retransmitted
    carries = pc.and_(arrived, pc.less(hops["stream_start"], hops["stream_end"]))
    rows = hops.select(["connection_id", "from_client", "stream_start", "stream_end"]).filter(carries)
    connection, from_client, start, end = (numbers(column) for column in rows.columns)
    same_flow = (connection[1:] == connection[:-1]) & (from_client[1:] == from_client[:-1])
    again = pa.array(np.unique(connection[1:][same_flow & (start[1:] < end[:-1])]))
    return retransmitted.filter(pc.is_in(retransmitted, again))


def _packets(rows: pl.DataFrame) -> Columns:
    """What `_at_host` needs of each packet."""
    direction, has_ack = pl.col("direction"), (pl.col("flags") & ACK) > 0
    wanted = rows.select(
        *("host_ns", "window", "sack"),
        pl.col("seq", "ack", "payload_len", "frame", "tsval").cast(pl.Int64).fill_null(0),
        came=((direction == "receive") & (pl.col("payload_len") > 0)).fill_null(value=False),
        went=((direction == "send") & has_ack).fill_null(value=False),
        is_syn=(pl.col("flags") & SYN) > 0,
    )
    return {column.name: column.to_numpy() for column in wanted}


def _at_host(packets: Columns, limits: HostDropThresholds) -> Iterator[tuple[int, int]]:
    """The frames of a connection that one host's TCP never had, and the waits; from all packets that the host saw."""
    columns = {name: values[packets["came"]] for name, values in packets.items()}
    went = {name: values[packets["went"]] for name, values in packets.items()}
    if not len(columns["seq"]) or not len(went["seq"]):
        return
    base = int(columns["seq"][0])
    start = sequence_offsets(columns["seq"], base)
    acks = {
        "at": went["host_ns"],
        "ack": sequence_offsets(went["ack"], base),
        "sack": went["sack"],
        "closed": went["window"] == 0,
    }
    answers = went["host_ns"][went["is_syn"]]
    answered_ns = answers.max(initial=np.iinfo(np.int64).min)
    stamps = columns["tsval"]
    newest = np.maximum.accumulate(sequence_offsets(stamps, int(stamps[0])))
    reach = np.concatenate([[start[0]], np.maximum.accumulate(start + columns["payload_len"])[:-1]])
    reached_ns = np.iinfo(np.int64).min
    for first, copy in copies_of(start, start + columns["payload_len"]):
        begin, end = start[first], start[first] + columns["payload_len"][first]
        since, until = int(columns["host_ns"][first]), int(columns["host_ns"][copy])
        # While a server still answers the SYN, it has no connection that could take data: a full listen queue.
        old = sequence_offsets(stamps[first : first + 1], int(stamps[0]))[0] < newest[first]
        in_order = reach[first] <= begin
        if answered_ns < since and not old and _was_never_received(acks, begin, end, since, until, in_order, limits):
            yield int(columns["frame"][first]), max(until - max(since, reached_ns), 0)
            reached_ns = max(reached_ns, until)


def sequence_offsets(sequence: NDArray[np.int64], base: int) -> NDArray[np.int64]:
    """Signed distances of sequence numbers from `base` (RFC 9293 §3.4)."""
    return (sequence - base + (1 << 31)) % (1 << 32) - (1 << 31)


def copies_of(start: NDArray[np.int64], end: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Rows of arrivals (in order of time) whose bytes arrived again, each with the first row that repeats its start."""
    reach = np.maximum.accumulate(end)
    again = np.flatnonzero(start[1:] < reach[:-1]) + 1
    by_start = np.argsort(start, kind="stable")
    starts = start[by_start]
    for copy in again.tolist():
        near = by_start[slice(*np.searchsorted(starts, [start[copy] - MOST_BYTES, end[copy]]))]
        before = near[(near < copy) & (end[near] > start[copy])]
        # Of those not yet made good; a range that came three times is two packets and their copies.
        if len(before) and start[copy] <= start[before.max()]:
            yield int(before.max()), copy


MOST_BYTES = 1 << 17
"""No captured packet is longer."""


def _was_never_received(
    acks: Columns, begin: int, end: int, since: int, until: int, in_order: bool, limits: HostDropThresholds
) -> bool:
    """Whether TCP never had the bytes from `begin` to `end`, which arrived at `since` and again at `until`.

    Arguments: `in_order`, whether no later bytes had arrived before them.
    """
    known, before, after = np.searchsorted(acks["at"], [since, since + limits.processed_within_ns, until], side="right")
    had = acks["ack"][:after].max(initial=np.iinfo(np.int64).min)
    if had >= end or acks["closed"][max(known - 1, 0) : known].any():  # a probe of a closed window is not for keeps
        return False
    at_once = slice(int(np.searchsorted(acks["at"], since, side="right")), int(after))
    behind = (acks["ack"][at_once] >= begin) & (acks["ack"][at_once] < end) & acks["sack"][at_once]
    if in_order and behind.any():
        return True
    lacking = (acks["ack"][known:after] >= begin) & (acks["ack"][known:after] < end)
    repeated = (
        until - since >= limits.copy_least_gap_ns
        and (lacking & acks["sack"][known:after]).sum() >= limits.hole_least_acks_count
    )
    if repeated or lacking[before - known :].any():
        return True
    quiet = known == after
    answer = slice(int(after), int(after) + 1)
    made_good = (acks["ack"][answer] >= end) & ~acks["sack"][answer]
    return bool(quiet and until - since >= limits.delayed_ack_most_ns and made_good.any())


def drops_by_host_pair(drops: pa.Table | None, hops: pl.DataFrame) -> pl.DataFrame:
    """Drops by pair of hosts (columns `GROUPS`).

    Arguments: `drops`, from `host_drops`; the aligned hops of their connections.
    """
    if drops is None or not drops.num_rows:
        return pl.DataFrame(schema=GROUPS)
    came = hops.filter(pl.col("kind") == "data").unique([*KEYS], keep="first", maintain_order=True)
    rows = pl.DataFrame(drops).join(came, on=KEYS)
    each = rows.select(
        *PAIR,
        "connection_id",
        span_id="exchange_id",
        dropped=pl.lit(1, pl.Int64),
        cost_ns="waited_ns",
        worst_ns="waited_ns",
        from_trace_ns="receive_trace_ns",
        to_trace_ns=pl.col("receive_trace_ns") + pl.col("waited_ns"),
        begin_ns="receive_trace_ns",
        end_ns=pl.col("receive_trace_ns") + pl.col("waited_ns"),
    )
    return merge_groups(each).select(list(GROUPS))


GROUPS = {
    **dict.fromkeys(PAIR, pl.String),
    **dict.fromkeys((*SUMS, "worst_ns", "begin_ns", "end_ns"), pl.Int64),
    **dict.fromkeys(("connection_id", "span_id", "from_trace_ns", "to_trace_ns"), pl.Int64),
}
"""One row for each pair of hosts: packets dropped, how long connections waited, first to last, and the longest wait."""


def merge_groups(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of several partitions, merged to one for each pair of hosts."""
    return (
        rows.sort("worst_ns", descending=True, maintain_order=True)
        .group_by(PAIR, maintain_order=True)
        .agg(
            pl.col(SUMS).sum(),
            pl.col("worst_ns").first(),
            pl.col("begin_ns").min(),
            pl.col("end_ns").max(),
            pl.col("connection_id", "span_id", "from_trace_ns", "to_trace_ns").first(),
        )
        .sort("cost_ns", descending=True, maintain_order=True)
    )
