"""How well packets were paired: counts for each connection and direction, to be summed by hosts or over all.

A trace without these counts asks to be believed. Every packet that was captured is in one of them.
"""

import polars as pl
import pyarrow as pa

from collector.schema import HopKind, HopState, conform

COUNTS = (
    *(f"{state}_count" for state in HopState),
    "split_count",
    "retransmitted_count",
    "early_count",
    "bytes",
    "matched_bytes",
)
"""Columns of `schema.QUALITY` that add up."""


def quality_of(hops: pa.Table) -> pa.Table:
    """The table `quality` of these hops (whole connections, in the order that matching gives them).

    Source: `schema.QUALITY` says what each count is. Cost: one pass.
    """
    frame = pl.DataFrame(hops.select(_NEEDED))
    state, kind = pl.col("state"), pl.col("kind")
    matched = state == HopState.MATCHED
    length = pl.col("stream_end") - pl.col("stream_start")
    counts = {f"{name}_count": (state == name).sum() for name in HopState}
    rows = frame.group_by("connection_id", "send_host", "receive_host", maintain_order=True).agg(
        **counts,
        split_count=(matched & (kind == HopKind.DATA) & _shares_an_end()).sum(),
        retransmitted_count=(pl.col("attempt") > 1).sum(),
        early_count=(pl.col("one_way_delay_ns") < 0).sum(),
        bytes=length.filter(_in_window()).sum(),
        matched_bytes=length.filter(matched).sum(),
    )
    return conform("quality", rows.to_arrow())


def telling_hops(hops: pa.Table) -> pa.Table:
    """Hops of the connections in which anything but plain success happened: what `findings` needs of them."""
    frame = pl.DataFrame(hops.select(["connection_id", "state", "attempt", "kind"]))
    trouble = (pl.col("state") != HopState.MATCHED) | (pl.col("attempt") > 1) | (pl.col("kind") == HopKind.RST)
    answers = (pl.col("kind") == HopKind.SYN_ACK) | (pl.col("kind") == HopKind.DATA)
    unanswered = ~answers.any().over("connection_id")
    connections = frame.filter(trouble | unanswered)["connection_id"].unique()
    keep = frame.select(pl.col("connection_id").is_in(connections.implode())).to_series()
    return hops.filter(keep.to_arrow())


_NEEDED = [
    "connection_id",
    "send_host",
    "receive_host",
    "state",
    "kind",
    "attempt",
    "one_way_delay_ns",
    "stream_start",
    "stream_end",
    "send_frame",
    "receive_frame",
]


def _in_window() -> pl.Expr:
    """Bytes that could have been seen at both ends, each counted once however often it was sent."""
    return (pl.col("state") != HopState.OUTSIDE_WINDOW) & (pl.col("state") != HopState.LOST)


def _shares_an_end() -> pl.Expr:
    """The hop before or after it in its flow is of the same send or of the same receive."""

    def same(column: str, by: int) -> pl.Expr:
        return (pl.col(column) == pl.col(column).shift(by)) & (
            pl.col("connection_id") == pl.col("connection_id").shift(by)
        )

    neighbours = [same(column, by) for column in ("send_frame", "receive_frame") for by in (1, -1)]
    return pl.any_horizontal(neighbours).fill_null(value=False)
