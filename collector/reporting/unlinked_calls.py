"""Says where a request's time may hold waits for calls whose request is not known.

A call without a parent is in no request's ledger, so what a request waited for it counts as the own time of the service
that made it, or as its queue up to the first call that was linked: a page that waited 220 ms for its pool's statements,
none of which was linked, spent "235 ms in app".
Which of the calls were its own is not known, only that its host made such calls while it was under way.

Limits: a call that a host made for itself, with no rhythm of its own to show it (`collector.services.client_requests`),
is named, too.
"""

from collections.abc import Iterable

import polars as pl

from collector.trace.request_times import BEGIN, END

LEAST_SHARE = 0.1
"""Chosen: of a request's time, its own in a service, and that in which such calls were under way; what is below is not
mentioned."""
MOST_NAMED = 2
"""Kinds of calls that are named in a sentence."""
CALL_COLUMNS = ("depth", "client_host", "service", "background", *BEGIN.columns, *END.columns)
"""What `unlinked_words` asks of all rows."""


def unlinked_words(calls: Iterable[pl.DataFrame], mine: pl.DataFrame) -> str:
    """A sentence, preceded by a space; "" without such calls.

    Arguments: all rows of a trace with `CALL_COLUMNS`, in any number of parts; those of one request with `depth`,
    `server_host`, `service`, the ledger's `queue_ns` and `work_ns`, `start_trace_ns` and `end_trace_ns`.
    """
    root = mine.filter(pl.col("depth") == 0).select("start_trace_ns", "end_trace_ns").drop_nulls()
    if root.is_empty():
        return ""
    begin, end = int(root["start_trace_ns"].to_numpy().min()), int(root["end_trace_ns"].to_numpy().max())
    own = pl.sum_horizontal("queue_ns", "work_ns")
    spent = mine.group_by("service", pl.col("server_host").alias("client_host"), maintain_order=True).agg(own=own.sum())
    long = spent.filter((pl.col("own") > 0) & (pl.col("own") >= LEAST_SHARE * pl.col("own").sum()))
    named_callers = long.select(
        pl.col("client_host").cast(pl.String), caller=pl.col("service").cast(pl.String)
    ).drop_nulls()
    if named_callers.is_empty():
        return ""
    is_unlinked = (pl.col("depth") == 0) & ~pl.col("background").fill_null(value=False)
    under_way = END.expr().fill_null(end).clip(begin, end) - BEGIN.expr().clip(begin, end)
    sums = [pl.col("count", "is_unlinked", "under_way").sum()]
    names, count = ["client_host", "service"], pl.lit(1, pl.Int64)
    each = {"is_unlinked": is_unlinked.cast(pl.Int64), "under_way": pl.when(is_unlinked).then(under_way)}
    asked = (part.select(*names, count=count, **each) for part in calls)
    kinds = (part.group_by(names).agg(sums).with_columns(pl.col(names).cast(pl.String)) for part in asked)
    counted = pl.concat(kinds).group_by(names).agg(sums)
    named = (
        counted.filter((pl.col("under_way") > 0) & (pl.col("under_way") >= LEAST_SHARE * (end - begin)))
        .join(named_callers, on="client_host")
        .sort("is_unlinked", "service", descending=[True, False])
    )
    return "".join(
        f" The time of {caller} may hold waits for calls whose request is not known: {_counts(kinds)}."
        for (caller,), kinds in named.group_by("caller", maintain_order=True)
    )


def _counts(kinds: pl.DataFrame) -> str:
    """`1,580 of 2,435 to pgb:6432, 54 of 484 to redis`."""
    counts = kinds.select("is_unlinked", "count", "service").head(MOST_NAMED).iter_rows()
    return ", ".join(f"{unlinked:,} of {count:,} to {service}" for unlinked, count, service in counts)
