"""Requests that waited on their connection behind the response to the one before (HTTP pipelining, RFC 9112 §9.3.2).

A server answers in the order of requests. One that was whole at the server while it still answered the one before could
not be answered, however quick it is: from then until the last byte of that response left, both at the server's clock.
Streams of HTTP/2 do not wait for each other, and of a protocol that is not read nothing is known.

Limits: only what was sent early waits where packets see it; a client that holds a request back until its connection is
free shows nothing.
"""

from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa

from collector.requests.exchanges import HTTP, UNSEEN
from collector.trace.arrow import indices, numbers
from tracer import _core

LEAST_NS = 1_000_000
"""A shorter wait is told by nobody."""
PLACE = ["client_host", "server_host", "service"]
TOLD = {
    **dict.fromkeys(PLACE, pl.String),
    **dict.fromkeys(("count", "cost_ns", "begin_ns", "end_ns", "worst_ns"), pl.Int64),
    **dict.fromkeys(("connection_id", "span_id", "from_trace_ns", "to_trace_ns"), pl.Int64),
}
"""Columns of `head_of_line`."""


def head_of_line(exchanges: pa.Table) -> pl.DataFrame:
    """Requests that waited behind another's response, one row for each of `PLACE`.

    Arguments: all exchanges of some connections, in order of time.
    Returns: `TOLD`: `count` (requests), `cost_ns` (all waits), `begin_ns, end_ns` (first to last), and of the longest
    wait `worst_ns, connection_id, span_id, from_trace_ns, to_trace_ns`; costliest first. Cost: ~10 ns an exchange.
    """
    came = numbers(exchanges["request_last_received_trace_ns"], UNSEEN)
    free = numbers(exchanges["response_last_sent_trace_ns"], UNSEEN)
    after, before = _core.rows_behind(numbers(exchanges["connection_id"]), came, free, LEAST_NS)
    if not len(after):
        return _nothing()
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
    return added(rows.select(*TOLD))


@cache
def _nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=TOLD)


def added(groups: pl.DataFrame) -> pl.DataFrame:
    """Rows of several parts as one for each of `PLACE`."""
    worst = ("worst_ns", "connection_id", "span_id", "from_trace_ns", "to_trace_ns")
    return (
        groups.sort("worst_ns", descending=True, maintain_order=True)
        .group_by(PLACE, maintain_order=True)
        .agg(pl.col("count", "cost_ns").sum(), pl.col("begin_ns").min(), pl.col("end_ns").max(), pl.col(worst).first())
        .sort("cost_ns", descending=True, maintain_order=True)
    )
