"""How senders noticed lost data and retransmitted it: by ACKs of later bytes, by a timer, or at a message's end.

| how | meaning |
|---|---|
| `fast` | later bytes arrived, the receiver's ACKs showed it, and the copy followed one of them: about a round trip |
| `timeout` | later bytes arrived, but no ACK did for a while before the copy: the sender's timer |
| `tail` | nothing sent after the lost bytes arrived, so only a timer (RTO, or a probe, RFC 8985 §7) reveals the loss |

A stall is classified by its first copy. Source: RFC 5681 §3.2, RFC 6298, RFC 8985.
"""

from dataclasses import dataclass

import polars as pl

from collector.hops.retransmission_stalls import PAIR, merged_waits
from collector.trace.threshold import threshold

KEYS = ["how", *PAIR]
FLOW = ["connection_id", "from_client"]


@dataclass(frozen=True, slots=True)
class RecoveryThresholds:
    """By which a retransmission by a timer is distinguished from one that ACKs caused."""

    quiet_share: float = threshold(
        0.25,
        "if no ACK came during so large a share of the wait before the copy, the timer caused it: RACK waits for a "
        "quarter of the round trip after an ACK (RFC 8985 §6.2)",
    )


def recoveries(hops: pl.DataFrame, limits: RecoveryThresholds) -> pl.DataFrame:
    """Stalls after lost data, grouped by how they ended: one row for each `how, send_host, receive_host`.

    Arguments: `hops`, all hops of some connections, columns of `collector.trace.schema.HOPS`; thresholds. Stalls
    without a copy are omitted.
    Returns: `count` (stalls), `cost_ns`, `behind_bytes` (bytes that had arrived but were useless until the copies
    came), `begin_ns, end_ns` (first to last), and for the longest stall `worst_ns, connection_id, span_id,
    from_trace_ns, to_trace_ns`; costliest first.
    """
    waits = merged_waits(hops, "data").filter(pl.col("to_trace_ns") > pl.col("from_trace_ns"))
    hops = hops if len(waits) else hops.clear()  # without a stall nothing is looked up in them
    rows = waits.with_row_index("stall")
    wait = pl.col("copied_ns") - pl.col("from_trace_ns")
    quiet = pl.col("copied_ns") - pl.max_horizontal("from_trace_ns", "heard_ns")
    by_timer = pl.when(quiet >= limits.quiet_share * wait).then(pl.lit("timeout")).otherwise(pl.lit("fast"))
    how = pl.when(pl.col("behind_bytes").is_not_null()).then(by_timer).otherwise(pl.lit("tail"))
    stalled = rows.join(_bytes_behind(rows, hops), on="stall", how="left").sort("copied_ns")
    stalled = stalled.join_asof(
        _arrivals_at_sender(hops),
        left_on="copied_ns",
        right_on="heard_ns",
        by=FLOW,
        coalesce=False,
        check_sortedness=False,
    ).with_columns(how=how, worst_ns=pl.col("to_trace_ns") - pl.col("from_trace_ns"))
    return merge_groups(
        stalled.with_columns(
            pl.col("behind_bytes").fill_null(0),
            count=pl.lit(1, pl.Int64),
            cost_ns="worst_ns",
            begin_ns="from_trace_ns",
            end_ns="to_trace_ns",
        ).select(*KEYS, *SUMS, "begin_ns", "end_ns", *WORST)
    )


SUMS = ("count", "cost_ns", "behind_bytes")
WORST = ("worst_ns", "connection_id", "span_id", "from_trace_ns", "to_trace_ns")


def merge_groups(groups: pl.DataFrame) -> pl.DataFrame:
    """Rows of several partitions, merged to one for each of `KEYS`."""
    return (
        groups.sort("worst_ns", descending=True, maintain_order=True)
        .group_by(KEYS, maintain_order=True)
        .agg(pl.col(SUMS).sum(), pl.col("begin_ns").min(), pl.col("end_ns").max(), pl.col(WORST).first())
        .sort("cost_ns", descending=True, maintain_order=True)
    )


def _bytes_behind(stalls: pl.DataFrame, hops: pl.DataFrame) -> pl.DataFrame:
    """`stall, behind_bytes`: the stalls during which later bytes were sent before the copy and arrived; how many."""
    arrived = hops.filter((pl.col("kind") == "data") & pl.col("receive_trace_ns").is_not_null())
    further = arrived.select(*FLOW, "stream_end", further="stream_start", left_ns="send_trace_ns")
    pairs = stalls.select("stall", *FLOW, "stream_start", "copied_ns").join(further, on=FLOW)
    before = (pl.col("further") > pl.col("stream_start")) & (pl.col("left_ns") < pl.col("copied_ns"))
    return pairs.filter(before).group_by("stall").agg(behind_bytes=(pl.col("stream_end") - pl.col("further")).sum())


def _arrivals_at_sender(hops: pl.DataFrame) -> pl.DataFrame:
    """When packets of the other side reached each flow's sender: `connection_id, from_client, heard_ns`, by time."""
    heard = pl.coalesce("receive_trace_ns", "send_trace_ns")
    return (
        hops.select("connection_id", from_client=~pl.col("from_client"), heard_ns=heard).drop_nulls().sort("heard_ns")
    )
