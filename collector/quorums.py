"""Which answer of several servers asked at once let a request go on, in words.

A parent that asks several servers the same at once (an upload to three replicas) goes on when enough have answered.
Which was the last that mattered, and how much later the others came, is told by stamps of the parent's host alone. What
was given up before it went on was no part of the quorum.
"""

import polars as pl

from collector.durations import in_words
from collector.ends import end_name

ORDINALS = ("none", "first", "second", "third", "fourth", "fifth")
NUMBERS = ("no", "one", "two", "three", "four", "five")


def quorum_words(rows: pl.DataFrame) -> str:
    """Who came too late to matter for one request; "" if it asked nobody at once, or waited for all.

    Arguments: exchanges and spans of one trace, joined.
    """
    at_once = _asked_at_once(rows)
    if at_once.is_empty():
        return ""
    parent = rows.filter(pl.col("exchange_id") == at_once["parent_span_id"][0]).row(0, named=True)
    went_on, name = parent["response_first_sent_trace_ns"], parent["service"]
    if went_on is None:
        return ""  # it never did
    at_once = at_once.filter((pl.col("given_up") > went_on).fill_null(value=True))
    count = len(at_once)
    if count < 2:
        return ""
    late = at_once.filter((pl.col("returned") > went_on).fill_null(value=True))
    if late.is_empty():
        return ""
    words = [_late(host, returned, went_on) for host, returned in late.select("server_host", "returned").rows()]
    return f"{name} answered at the {_ordinal(count - len(late))} of {_number(count)}; " + ", ".join(words)


def _asked_at_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Of the trace's groups of requests to one service that began before the first of them was answered, the one with
    most: `parent_span_id, server_host, returned` (first byte at the parent), `given_up`, in order of answers."""
    asked = rows.filter(pl.col("parent_span_id").is_not_null() & (pl.col("exchange_id") > 0)).select(
        "parent_span_id", "service", "method", "server_host", began="start_trace_ns",
        returned="response_first_received_trace_ns", given_up="given_up_trace_ns",
    )  # fmt: skip
    group = ["parent_span_id", "service", "method"]
    together = asked.filter(pl.col("began") < pl.col("returned").min().over(group))
    sized = together.with_columns(size=pl.len().over(group), first=pl.col("began").min().over(group))
    most = sized.filter((pl.col("size") > 1) & (pl.col("size") == pl.col("size").max()))
    chosen = most.filter(pl.col("first") == pl.col("first").min())
    return chosen.sort("returned", nulls_last=True).select("parent_span_id", "server_host", "returned", "given_up")


def _late(host: str | None, returned: int | None, went_on: int) -> str:
    if returned is None:
        return f"{end_name(host)} never did, and that did not matter"
    return f"{end_name(host)} came {in_words(returned - went_on)} later and did not matter"


def _ordinal(count: int) -> str:
    return ORDINALS[count] if count < len(ORDINALS) else f"{count}th"


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)
