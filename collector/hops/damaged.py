"""Finds packets that arrived damaged: the receiver's capture has them with a wrong TCP checksum, so its TCP drops them.

Only packets whose bytes were retransmitted are examined: a damaged packet always is, few others are. Their bytes are
read from the captures a second time; that costs nothing if none of them was captured whole. An agent keeps only the
heads of packets, so it verifies each packet that it receives and marks those with a wrong checksum (core `capture`,
`checksum.rs`). A checksum is judged only if most others that the same host received are right: not if nobody fills them
in (veth, `lo`), and not if packets are known to be cut. A damaged packet is not delivered: its hop is lost, and the
wait lasts until its copy arrives.

Limits: a packet whose addresses, ports or sequence numbers are damaged matches another packet or none, so it only
counts as lost; an agent with `--payload none` sees no whole packets.

Source: RFC 9293 §3.1; `collector.decode.checksums`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from collector.clocks.alignment import to_trace_ns
from collector.decode.checksums import Checksum
from collector.hops.host_drops import GROUPS, copies_of, merge_groups, sequence_offsets, twice_received_connections
from collector.hops.matching import STATES
from collector.hops.retransmission_stalls import PAIR
from collector.trace.schema import HopState

LONGEST_PAYLOAD = 8_960
"""The payload of a jumbo frame. A longer packet was merged by the receiving host (GRO)."""
MOST_OTHER_PACKETS = 16
"""How many packets of each connection's receiver are examined beside the retransmitted ones."""
LEAST_GOOD, LEAST_GOOD_SHARE = 4, 0.8
"""How many other packets of a receiver must have a right checksum, and their share of those that can be judged."""
MOST_LOOKED_AT = 50_000
"""At most so many packets of a host are examined."""
SUSPECTS = {
    "connection_id": pl.Int64,
    "receive_host": pl.String,
    "receive_frame": pl.UInt32,
    "waited_ns": pl.Int64,  # until its copy arrived; null if it was not retransmitted and only serves as a comparison
}
FRAME = ["connection_id", "receive_host", "receive_frame"]
TRANSFER = ["connection_id", "from_client", "stream_start", "attempt"]
PACKETS = [*TRANSFER, *PAIR, "receive_trace_ns", "waited_ns"]
"""Columns of a damaged packet: its hop, when it arrived, and how long after it its copy arrived."""
ARRIVAL = ["connection_id", "host", "frame", "host_ns", "seq", "payload_len"]
Look = Callable[[str, Sequence[int]], Iterable[tuple[int, Checksum]]]
"""From a host and frame numbers (ascending) to the frames and their checksums; omits those that cannot be judged."""


def suspects(events: pa.Table, hops: pa.Table, marking: Collection[str] = ()) -> pl.DataFrame:
    """Received payload that was captured whole and was retransmitted, and some other packets (columns `SUSPECTS`).

    Arguments: as for `host_drops.host_drops`; `marking`, the hosts whose agents marked damaged packets, which then need
    not be captured whole. Cost: negligible without retransmissions.
    """
    twice = twice_received_connections(hops)
    found: list[tuple[int, str, int, int | None]] = []
    for (connection, host), rows in _arrivals(events, twice, marking).group_by(
        "connection_id", "host", maintain_order=True
    ):
        columns = {name: rows[name].to_numpy().astype(np.int64) for name in ("host_ns", "seq", "payload_len")}
        start = sequence_offsets(columns["seq"], int(columns["seq"][0]))
        again = dict(copies_of(start, start + columns["payload_len"]))
        if not again:
            continue
        others = {
            *range(0, len(rows), max(1, len(rows) // MOST_OTHER_PACKETS)),
            *list(again.values())[:MOST_OTHER_PACKETS],
        } - again.keys()
        waited = {first: int(columns["host_ns"][copy] - columns["host_ns"][first]) for first, copy in again.items()}
        frames = rows["frame"].to_list()
        found += [(connection, host, frames[row], waited.get(row)) for row in sorted(waited.keys() | others)]
    return pl.DataFrame(found, SUSPECTS, orient="row")


def _arrivals(events: pa.Table, connections: pa.Array, marking: Collection[str]) -> pl.DataFrame:
    """Received packets of these connections that can be judged and are not merged, by connection, host and time."""
    if not len(connections):
        return pl.DataFrame(events.select(ARRIVAL).slice(0, 0))
    marked = pc.is_in(events["host"].cast(pa.string()), pa.array(sorted(marking), pa.string()))
    whole = pc.or_(pc.greater_equal(events["captured_len"], events["original_len"]), marked)
    usual = pc.and_(pc.greater(events["payload_len"], 0), pc.less_equal(events["payload_len"], LONGEST_PAYLOAD))
    mine = pc.and_(pc.is_in(events["connection_id"], connections), pc.and_(whole, usual))
    rows = pl.DataFrame(events.select([*ARRIVAL, "direction", "duplicate"]).filter(mine))
    rows = rows.with_columns(pl.col(pl.Categorical).cast(pl.String))
    came = rows.filter((pl.col("direction") == "receive") & ~pl.col("duplicate"))
    return came.sort("connection_id", "host", "host_ns", "frame")


def find_damaged(suspected: Sequence[pl.DataFrame], look: Look) -> pl.DataFrame:
    """The suspects that are damaged (columns `SUSPECTS`).

    Arguments: `suspected`, the `suspects` of all partitions; `look`, which computes checksums of captured packets.
    """
    every = pl.concat([pl.DataFrame(schema=SUSPECTS), *(part for part in suspected if len(part))])
    found = [every.clear()]
    for (host,), rows in every.sort("receive_frame").group_by("receive_host", maintain_order=True):
        found.append(_damaged_at(str(host), rows.head(MOST_LOOKED_AT), look))
    return pl.concat(found).sort(FRAME)


def _damaged_at(host: str, rows: pl.DataFrame, look: Look) -> pl.DataFrame:
    looked_at = dict(look(host, rows["receive_frame"].to_list()))
    checksum = rows["receive_frame"].replace_strict(looked_at, default=Checksum.UNKNOWN, return_dtype=pl.String)
    rows = rows.with_columns(checksum=checksum)
    others = Counter(rows.filter(pl.col("waited_ns").is_null())["checksum"].to_list())
    judged = sum(others[each] for each in (Checksum.GOOD, Checksum.BAD, Checksum.UNFILLED))
    if others[Checksum.GOOD] < max(LEAST_GOOD, LEAST_GOOD_SHARE * judged):
        return rows.clear().select(list(SUSPECTS))
    bad = (pl.col("checksum") == Checksum.BAD) & pl.col("waited_ns").is_not_null()
    return rows.filter(bad).select(list(SUSPECTS))


def mark_undelivered(hops: pa.Table, damaged_packets: pl.DataFrame, clocks: pa.Table) -> tuple[pa.Table, pl.DataFrame]:
    """`hops` (not aligned), with damaged packets marked lost; and these packets (columns `PACKETS`).

    Arguments: `damaged_packets`, from `find_damaged`; `clocks` as in the trace.
    """
    names = [*TRANSFER, *PAIR, "receive_frame", "receive_host_ns"]
    rows = pl.DataFrame(hops.select(names)).with_columns(pl.col(PAIR).cast(pl.String)).with_row_index("row")
    came = rows.join(damaged_packets, on=FRAME)
    at = np.zeros(hops.num_rows, dtype=np.bool_)
    at[came["row"].to_numpy()] = True
    for name in ("receive_frame", "receive_host_ns"):
        hops = _with_column(hops, name, pc.if_else(pa.array(at), None, hops[name]))
    states = hops["state"].combine_chunks()
    codes = np.where(at, STATES.index(HopState.LOST).as_py(), states.indices.to_numpy()).astype(np.int32)
    hops = _with_column(hops, "state", pa.DictionaryArray.from_arrays(pa.array(codes), STATES))
    there = pc.or_(pc.is_valid(hops["send_frame"]), pc.is_valid(hops["receive_frame"]))
    each = came.unique(FRAME, keep="first", maintain_order=True)
    stamps = each["receive_host_ns"].to_arrow()
    at_ns = to_trace_ns(each["receive_host"].to_arrow().cast(pa.string()), stamps, clocks)
    return hops.filter(there), each.with_columns(receive_trace_ns=pl.Series(at_ns)).select(PACKETS)


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def damaged_by_host_pair(each: pl.DataFrame | None, hops: pl.DataFrame) -> pl.DataFrame:
    """Damaged packets by pair of hosts, with the columns of `host_drops.GROUPS`.

    Arguments: `each`, with columns `PACKETS`; the hops of their connections, with exchanges.
    """
    if each is None:
        return pl.DataFrame(schema=GROUPS)
    owners = hops.select(*TRANSFER, span_id="exchange_id").unique(TRANSFER, keep="first")
    rows = each.join(owners, on=TRANSFER, how="left", maintain_order="left")
    begin, end = pl.col("receive_trace_ns"), pl.col("receive_trace_ns") + pl.col("waited_ns")
    cases = rows.select(
        *PAIR,
        "connection_id",
        "span_id",
        dropped=pl.lit(1, pl.Int64),
        cost_ns="waited_ns",
        worst_ns="waited_ns",
        from_trace_ns=begin,
        to_trace_ns=end,
        begin_ns=begin,
        end_ns=end,
    )
    return merge_groups(cases).select(list(GROUPS))


def drops_of_intact(drops: pa.Table, damaged_packets: pl.DataFrame) -> pa.Table:
    """The rows of `host_drops.host_drops` without those of damaged packets."""
    return pl.DataFrame(drops).join(damaged_packets, on=FRAME, how="anti").to_arrow()


def without_damaged(hops: pl.DataFrame, each: pl.DataFrame | None) -> pl.DataFrame:
    """The hops without those of damaged packets. Arguments: `each`, with columns `PACKETS`."""
    return hops if each is None else hops.join(each, on=TRANSFER, how="anti", maintain_order="left")
