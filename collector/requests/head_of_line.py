"""Requests that waited on their connection behind the response to the previous one (HTTP pipelining, RFC 9112 §9.3.2).

A server answers requests in their order. A request that has completely arrived while the server still sends the
previous response waits until the last byte of that response has left; both times are of the server's clock. Streams of
HTTP/2 do not wait for each other, and nothing is known of protocols that cannot be read.

Limits: a client that holds a request back until its connection is free causes no wait that packets show.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa

from collector import _core
from collector.requests.exchanges import HTTP, UNSEEN
from collector.trace.arrow import indices, numbers
from collector.trace.threshold import threshold

PLACE = ["client_host", "server_host", "service"]
GROUP_COLUMNS = {
    **dict.fromkeys(PLACE, pl.String),
    **dict.fromkeys(("count", "cost_ns", "begin_ns", "end_ns", "worst_ns"), pl.Int64),
    **dict.fromkeys(("connection_id", "span_id", "from_trace_ns", "to_trace_ns"), pl.Int64),
}
"""Columns of `head_of_line`."""


@dataclass(frozen=True, slots=True)
class HeadOfLineThresholds:
    """Which waits behind another response count."""

    least_ns: int = threshold(1_000_000, "chosen: shorter waits are ignored, as shorter pauses of senders are")


def head_of_line(exchanges: pa.Table, limits: HeadOfLineThresholds) -> pl.DataFrame:
    """Requests that waited behind another's response, one row for each of `PLACE`.

    Arguments: all exchanges of some connections, in order of time; thresholds.
    Returns: columns `GROUP_COLUMNS`: `count` (requests), `cost_ns` (sum of all waits), `begin_ns, end_ns` (first to
    last), and for the longest wait `worst_ns, connection_id, span_id, from_trace_ns, to_trace_ns`; costliest first.
    Cost: ~10 ns an exchange.
    """
    came = numbers(exchanges["request_last_received_trace_ns"], UNSEEN)
    free = numbers(exchanges["response_last_sent_trace_ns"], UNSEEN)
    after, before = _core.rows_behind(numbers(exchanges["connection_id"]), came, free, limits.least_ns)
    if not len(after):
        return _no_blocked_responses()
    place, protocols = indices(exchanges["protocol"])
    in_order = np.array([name == HTTP for name in protocols])[place[after]]
    after, before = after[in_order], before[in_order]
    names = ["exchange_id", "connection_id", *PLACE]
    rows = pl.DataFrame(exchanges.select(names).take(after)).with_columns(
        pl.col(PLACE).cast(pl.String),
        pl.Series("from_trace_ns", came[after]),
        pl.Series("to_trace_ns", free[before]),
        count=pl.lit(1, pl.Int64),
        span_id="exchange_id",
    )
    wait = pl.col("to_trace_ns") - pl.col("from_trace_ns")
    rows = rows.with_columns(cost_ns=wait, worst_ns=wait, begin_ns="from_trace_ns", end_ns="to_trace_ns")
    return merge_groups(rows.select(*GROUP_COLUMNS))


@cache
def _no_blocked_responses() -> pl.DataFrame:
    return pl.DataFrame(schema=GROUP_COLUMNS)


def merge_groups(groups: pl.DataFrame) -> pl.DataFrame:
    """Rows of several partitions, merged to one for each of `PLACE`."""
    worst = ("worst_ns", "connection_id", "span_id", "from_trace_ns", "to_trace_ns")
    return (
        groups.sort("worst_ns", descending=True, maintain_order=True)
        .group_by(PLACE, maintain_order=True)
        .agg(pl.col("count", "cost_ns").sum(), pl.col("begin_ns").min(), pl.col("end_ns").max(), pl.col(worst).first())
        .sort("cost_ns", descending=True, maintain_order=True)
    )
