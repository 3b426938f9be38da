"""Describes parallel calls of a request to several servers, and whether it waited for a quorum of them.

A parent that sends several servers the same request (an upload to three replicas) may continue when enough of them have
answered. This can be seen only if the parent answered before the last of them did: then it waited for a quorum.
Otherwise it waited for the slower of its calls, whatever they were for. Calls are for the same object if method and
target are equal, except for the target's first segment, which names a device in Swift; calls without a visible target
are never treated as replicas. All timestamps compared are of the parent's host. Calls given up before they were
answered are ignored.
"""

import numpy as np
import polars as pl

from collector.services.ends import end_name
from collector.trace.durations import in_words

ORDINALS = ("none", "first", "second", "third", "fourth", "fifth")
FAN_OUT_COLUMNS = (
    *("exchange_id", "parent_span_id", "service", "method", "server_host", "target", "start_trace_ns", "end_trace_ns"),
    *("response_first_received_trace_ns", "given_up_trace_ns", "response_last_sent_trace_ns"),
)
"""Columns that `fan_out_waits` needs beside `fan_out_wait_ns`."""
FOREVER = np.iinfo(np.int64).max
"""The end of a call whose end was not captured."""
NUMBERS = ("no", "one", "two", "three", "four", "five")


def quorum_words(rows: pl.DataFrame) -> str:
    """The servers that answered too late to matter for one request; "" without parallel calls, or if it waited for all.

    Arguments: exchanges and spans of one trace, joined.
    """
    at_once = _largest_parallel_calls(rows)
    if at_once.is_empty():
        return ""
    parent = rows.filter(pl.col("exchange_id") == at_once["parent_span_id"][0]).row(0, named=True)
    went_on, name = parent["response_last_sent_trace_ns"], parent["service"]
    if went_on is None:
        return ""  # it never did
    at_once = at_once.filter((pl.col("given_up") > went_on).fill_null(value=True))
    count = len(at_once)
    if count < 2:
        return ""
    late = at_once.filter((pl.col("returned") > went_on).fill_null(value=True))
    if late.is_empty():
        return ""
    words = [_late_words(host, returned, went_on) for host, returned in late.select("server_host", "returned").rows()]
    return f"{name} answered at the {_ordinal(count - len(late))} of {_number(count)}; " + ", ".join(words)


def fan_out_waits(rows: pl.DataFrame) -> pl.DataFrame:
    """The waits for parallel calls, by service and kind, in order of their first row.

    Arguments: `rows`, exchanges and spans joined (`FAN_OUT_COLUMNS`; without a wait none of these).
    Returns: `label` (`waiting for the quorum of swift-object`), `fan_out_wait_ns`.
    """
    waited = rows.filter(pl.col("fan_out_wait_ns") > 0)
    if waited.is_empty():
        return pl.DataFrame(schema={"label": pl.String, "fan_out_wait_ns": pl.Int64})
    calls = rows.filter(pl.col("exchange_id") > 0).select(
        "parent_span_id", "service", "method", "server_host", "target", "exchange_id",
        like=_target_without_device(),
        begin="start_trace_ns", end=pl.coalesce("end_trace_ns", pl.lit(FOREVER)),
        returned=pl.coalesce("response_first_received_trace_ns", "given_up_trace_ns", pl.lit(FOREVER)),
    )  # fmt: skip
    went_on = rows.select(parent_span_id="exchange_id", went_on="response_last_sent_trace_ns")
    mine = calls.filter(pl.col("exchange_id").is_in(waited["exchange_id"].implode()))
    pairs = mine.join(calls, on=["parent_span_id", "service"], suffix="_other").join(
        went_on, on="parent_span_id", how="left"
    )
    pairs = pairs.filter((pl.col("begin_other") < pl.col("end")) & (pl.col("end_other") > pl.col("begin")))
    alike = (pl.col("method") == pl.col("method_other")) & (pl.col("like") == pl.col("like_other"))
    elsewhere = pl.col("server_host").ne_missing(pl.col("server_host_other")) | (
        pl.col("target") != pl.col("target_other")
    )
    is_late = alike & elsewhere & (pl.col("returned_other") > pl.col("went_on"))
    groups = pairs.group_by("exchange_id").agg(count=pl.len(), quorum=is_late.fill_null(value=False).any())
    labelled = waited.join(groups, on="exchange_id", how="left", maintain_order="left")
    kinds = labelled.group_by("service", "quorum", maintain_order=True).agg(
        pl.col("fan_out_wait_ns").sum(), least=pl.col("count").min(), most=pl.col("count").max()
    )
    return kinds.select(label=_label(), fan_out_wait_ns="fan_out_wait_ns")


def _target_without_device() -> pl.Expr:
    """The target without the device."""
    named = pl.col("target").str.replace(r"^/[^/]*", "")
    return pl.when(pl.col("target").str.count_matches("/") > 2).then(named).otherwise("target")


def _label() -> pl.Expr:
    several = (
        pl.when(pl.col("least") == pl.col("most")).then(pl.col("most").cast(pl.String)).otherwise(pl.lit("several"))
    )
    slower = pl.format("waiting for the slower of {} parallel calls to {}", several, "service")
    return pl.when("quorum").then(pl.format("waiting for the quorum of {}", "service")).otherwise(slower)


def _largest_parallel_calls(rows: pl.DataFrame) -> pl.DataFrame:
    """The largest group of parallel calls in a trace (to several servers of one service for the same object, all begun
    before the first was answered): `parent_span_id, server_host, returned` (first byte at the parent), `given_up`, in
    order of answers."""
    calls = rows.filter(pl.col("parent_span_id").is_not_null() & (pl.col("exchange_id") > 0)).select(
        *("parent_span_id", "service", "method", "server_host", "target"),
        like=_target_without_device(),
        began="start_trace_ns",
        returned="response_first_received_trace_ns",
        given_up="given_up_trace_ns",
    )
    group = ["parent_span_id", "service", "method", "like"]
    parallel = calls.drop_nulls("like").filter(pl.col("began") < pl.col("returned").min().over(group))
    several = pl.struct("server_host", "target").n_unique().over(group) > 1
    sized = parallel.filter(several).with_columns(size=pl.len().over(group), first=pl.col("began").min().over(group))
    most = sized.filter((pl.col("size") > 1) & (pl.col("size") == pl.col("size").max()))
    chosen = most.filter(pl.col("first") == pl.col("first").min())
    return chosen.sort("returned", nulls_last=True).select("parent_span_id", "server_host", "returned", "given_up")


def _late_words(host: str | None, returned: int | None, went_on: int) -> str:
    if returned is None:
        return f"{end_name(host)} never did, and that did not matter"
    return f"{end_name(host)} came {in_words(returned - went_on)} later and did not matter"


def _ordinal(count: int) -> str:
    return ORDINALS[count] if count < len(ORDINALS) else f"{count}th"


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)
