"""When servers sent something in streams: a server that does is not silent, whatever requests wait for."""

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

COLUMNS = (
    *("server_host", "service", "is_stream"),
    *("response_first_sent_trace_ns", "response_first_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns"),
)
"""Of `exchanges`."""


def said_in_streams(exchanges: Iterable[pa.Table]) -> pl.DataFrame:
    """`server_host, service, at`: the first and the last byte that each server sent in each stream, in trace time (ns).

    Arguments: parts of `exchanges` with `COLUMNS`.
    """
    nothing = pl.DataFrame(schema={"server_host": pl.String, "service": pl.String, "at": pl.Int64})
    return pl.concat([nothing, *(_of_part(part) for part in exchanges)])


def _of_part(part: pa.Table) -> pl.DataFrame:
    streams = pl.DataFrame(part.select(COLUMNS).filter(part["is_stream"]))
    times = (
        pl.coalesce(f"response_{which}_sent_trace_ns", f"response_{which}_received_trace_ns")
        for which in ("first", "last")
    )
    ends = (pl.col("server_host", "service").cast(pl.String), pl.concat_list(*times).alias("at"))
    return streams.select(*ends).explode("at").drop_nulls().unique(maintain_order=True)
