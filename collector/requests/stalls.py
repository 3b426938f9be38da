"""Computes how long each exchange waited for lost packets: a SYN or its answer, bytes of its request or response."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from collector.hops.retransmission_stalls import merged_waits
from collector.trace.arrow import indices
from collector.trace.schema import HopKind, HopState, conform

KINDS = (HopKind.SYN, HopKind.SYN_ACK, HopKind.DATA)
COLUMNS = [
    *("connection_id", "kind", "from_client", "send_host", "send_trace_ns", "receive_host"),
    *("stream_start", "stream_end", "attempt", "state", "exchange_id"),
]


def with_stalls(exchanges: pa.Table, hops: pa.Table) -> pa.Table:
    """`exchanges` with its columns `*_stall_ns` filled in.

    Arguments: both tables of `collector.trace.schema`, `hops` with `exchange_id`.
    """
    place, states = indices(hops["state"])
    lost = place == states.index(HopState.LOST) if HopState.LOST in states else np.empty(0, np.bool_)
    if not lost.any():
        return exchanges
    touched = hops["connection_id"].filter(pa.array(lost)).unique()
    mine = pl.DataFrame(hops.select(COLUMNS).filter(pc.is_in(hops["connection_id"], touched)))
    mine = mine.with_columns(pl.col(pl.Categorical).cast(pl.String))
    asking = pl.DataFrame(exchanges.select(["exchange_id", "client_host"])).with_columns(
        pl.col("client_host").cast(pl.String)
    )
    found = pl.concat([merged_waits(mine, kind).with_columns(kind=pl.lit(str(kind))) for kind in KINDS])
    waits = found.join(asking, left_on="span_id", right_on="exchange_id", how="inner")
    took = pl.col("to_trace_ns") - pl.col("from_trace_ns")
    data, asked = pl.col("kind") == HopKind.DATA, pl.col("send_host").eq_missing(pl.col("client_host"))
    sums = waits.group_by("span_id").agg(
        connect_stall_ns=took.filter(~data).sum(),
        request_stall_ns=took.filter(data & asked).sum(),
        response_stall_ns=took.filter(data & ~asked).sum(),
    )
    columns = pl.DataFrame(exchanges.select(["exchange_id"])).join(
        sums, left_on="exchange_id", right_on="span_id", how="left", maintain_order="left"
    )
    rest = exchanges.drop_columns(sums.columns[1:])
    for name in sums.columns[1:]:
        rest = rest.append_column(name, columns[name].to_arrow())
    return conform("exchanges", rest)
