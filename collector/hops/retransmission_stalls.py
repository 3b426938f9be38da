"""How long connections waited for retransmissions of lost packets, by pair of hosts.

A stall lasts from the first transmission of bytes (or of a SYN) that was lost to the transmission of the attempt that
arrived. Both times are of the sender's clock, so the duration is exact. Overlapping stalls in one direction of a
connection, as after the loss of several packets of a window, count once.
"""

import polars as pl

PAIR = ["send_host", "receive_host"]


def stalls(hops: pl.DataFrame, kind: str) -> pl.DataFrame:
    """The stalls after losses of one kind of hop, one row for each pair of hosts.

    Arguments: `hops`, columns of `collector.trace.schema.HOPS`; `kind`, `data` or `syn`.
    Returns: `send_host, receive_host, lost` (count), `cost_ns` (all stalls), `from_trace_ns, to_trace_ns` (first to
    last), `worst_ns`, and of the worst stall `connection_id, span_id`; costliest first.
    """
    lost = hops.filter((pl.col("kind") == kind) & (pl.col("state") == "lost"))
    waits = merged_waits(hops, kind)
    counts = lost.group_by(PAIR).agg(lost=pl.len())
    first = pl.col("connection_id", "span_id")
    begin, end = pl.col("from_trace_ns").min(), pl.col("to_trace_ns").max()
    waited = pl.col("to_trace_ns") - pl.col("from_trace_ns")
    worst = (
        waits.sort(waited, "connection_id", "stream_start", descending=[True, False, False])
        .group_by(PAIR, maintain_order=True)
        .agg(first.first(), begin, end, cost_ns=waited.sum(), worst_ns=waited.max())
    )
    return worst.join(counts, on=PAIR, nulls_equal=True).sort("cost_ns", descending=True)


def merged_waits(hops: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Each stall: `connection_id, from_client, send_host, receive_host, span_id, from_trace_ns, to_trace_ns`, the lost
    bytes' `stream_start`, and `copied_ns`, when the first of them were retransmitted."""
    lost = hops.filter((pl.col("kind") == kind) & (pl.col("state") == "lost"))
    again = hops.filter((pl.col("kind") == kind) & (pl.col("state") != "lost") & (pl.col("attempt") > 1))
    return _merge_overlapping(_waits(lost, again))


def _waits(lost: pl.DataFrame, again: pl.DataFrame) -> pl.DataFrame:
    """Each lost attempt with the first later transmission of its first byte; without one the wait has length 0."""
    keys = ["connection_id", "from_client"]
    copies = again.select(*keys, "stream_start", copy_end="stream_end", copied_ns="send_trace_ns").drop_nulls(
        "copied_ns"
    )
    pairs = lost.join(copies, on=keys, suffix="_copy").filter(
        (pl.col("stream_start_copy") <= pl.col("stream_start"))
        & ((pl.col("copy_end") > pl.col("stream_start")) | (pl.col("copy_end") == pl.col("stream_end")))
        & (pl.col("copied_ns") > pl.col("send_trace_ns"))
    )
    until = pairs.group_by(*keys, "stream_start", "send_trace_ns").agg(to_trace_ns=pl.col("copied_ns").min())
    waits = lost.join(until, on=[*keys, "stream_start", "send_trace_ns"], how="left")
    return waits.select(
        *keys,
        *PAIR,
        "stream_start",
        span_id="exchange_id",
        from_trace_ns="send_trace_ns",
        to_trace_ns=pl.coalesce("to_trace_ns", "send_trace_ns"),
    )


def _merge_overlapping(waits: pl.DataFrame) -> pl.DataFrame:
    """Overlapping waits of a flow, merged to one."""
    flow = ["connection_id", "from_client"]
    ordered = waits.sort(*flow, "from_trace_ns")
    reach = pl.col("to_trace_ns").cum_max().shift().over(flow)
    apart = (pl.col("from_trace_ns") > reach).fill_null(value=True)
    numbered = ordered.with_columns(run=apart.cast(pl.Int64).cum_sum().over(flow))
    return numbered.group_by(*flow, *PAIR, "run", maintain_order=True).agg(
        pl.col("span_id").first(),
        pl.col("from_trace_ns").min(),
        pl.col("to_trace_ns").max(),
        pl.col("stream_start").min(),
        copied_ns=pl.col("to_trace_ns").min(),
    )
