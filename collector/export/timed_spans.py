"""The spans of a trace with the times and names that other tools need, for every export of requests."""

import polars as pl

from collector.reporting.request_rows import RequestRows, RootIds
from collector.trace.reading import Trace
from collector.trace.request_times import shown_end, shown_start


def timed_spans(trace: Trace, only: RootIds | None = None) -> pl.DataFrame:
    """Every span with its exchange, parents before children; `host`, where it was served, `start` and `end` (trace
    times, ns). Those without any time are left out. Memory: about 600 bytes a span.

    Arguments: `only`, the `trace_id`s of some requests, with their calls.
    """
    rows = RequestRows.of_trace(trace, only).whole()
    timed = rows.with_columns(
        host=pl.coalesce("server_host", "server_peer", "client_host", pl.lit("?")),
        start=shown_start(rows.columns),
        end=shown_end(rows.columns),
    )
    return timed.with_columns(end=pl.max_horizontal("end", "start")).drop_nulls("start").sort("depth", "start")


def spans_of_one(trace: Trace, only: RootIds | None = None) -> pl.DataFrame:
    """The same of one request: the longest, or the longest of some."""
    spans = timed_spans(trace, only)
    if spans.is_empty():
        return spans
    roots = spans.filter(pl.col("depth") == 0).sort("trace_id")
    longest = roots[int((roots["end"] - roots["start"]).arg_max() or 0)]
    return spans.filter(pl.col("trace_id") == longest["trace_id"][0])
