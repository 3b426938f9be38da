"""Compares two groups of a trace's requests, or the calls that two hosts answer, stage by stage.

Requests are chosen by searches; their stages are those of `collector.reporting.stage_times`. If no kind of request is
in both groups (PUT against GET), all requests of each are compared as one kind.

Calls are compared by what was asked, where it is the same at both hosts: the server's time, from the request's last
byte arriving to the answer's first leaving (none, if it answered before); and all else, which is sending both: from
the first byte leaving to the last arriving, with whatever pauses their senders made. Both ways are one stage, since
an error of the clocks would make one longer at one host than at the other. If these are not known of nearly all calls
at either host (it is not captured), the whole call is one stage at both. What a server asked of others meanwhile is
part of its time.
"""

import polars as pl

from collector.queries.search import found_roots
from collector.queries.trace_view import TraceView
from collector.reporting.comparison import Comparison, compare
from tracer.errors import InputError

EVERY_KIND = "all requests"
DIVIDED_SHARE = 0.9
"""Calls are divided into stages if so many of each host's can be."""
AT_SERVER, SENDING, UNDIVIDED = "server", "sending request and answer", "call"
_TIMES = {
    "asked": "request_first_sent_trace_ns",
    "arrived": "request_last_received_trace_ns",
    "answered": "response_first_sent_trace_ns",
    "done": "response_last_received_trace_ns",
}


def compare_found(trace: TraceView, first: str, second: str = "") -> Comparison:
    """The requests of clients that a search finds, against those that another one finds, or else all others. What both
    find is in the first group only.

    Raises: `InputError` for a search that makes no sense, or if a group is empty.
    """
    stages, found = trace.stages(), pl.Series(found_roots(trace, first))
    is_mine = pl.col("trace_id").is_in(found.implode())
    mine, others = stages.filter(is_mine), stages.filter(~is_mine)
    words = f"not ({first})"
    if second:
        words = f"({second}) and {words}"
        others = others.filter(pl.col("trace_id").is_in(pl.Series(found_roots(trace, second)).implode()))
    for group, query in ((mine, first), (others, words)):
        if group.is_empty():
            raise InputError(f"{query!r} finds no request of a client with a known duration", "docs/search.md")
    by_kind = compare(others, mine, words, first)
    if by_kind.kinds or by_kind.untested:
        return by_kind
    kind = pl.lit(EVERY_KIND, pl.Categorical)
    return compare(others.with_columns(kind=kind), mine.with_columns(kind=kind), words, first)


def compare_servers(trace: TraceView, first: str, second: str) -> Comparison:
    """The calls that two hosts answer; differences are those of the first against the second.

    Raises: `InputError` if one of them answers none.
    """
    calls = trace.read_unchanged(lambda: _calls(trace))
    mine, others = (calls.filter(pl.col("host") == host) for host in (first, second))
    for host, group in ((first, mine), (second, others)):
        if group.is_empty():
            served = sorted(calls["host"].unique())
            raise InputError(f"{host} answers no call", f"there are: {', '.join(served)}" if served else "")
    is_divided = all(group["is_divided"].sum() >= DIVIDED_SHARE * len(group) for group in (mine, others))
    stages = [_stages(group, is_divided=is_divided) for group in (others, mine)]
    return compare(stages[0], stages[1], second, first)


def _calls(trace: TraceView) -> pl.DataFrame:
    """The calls whose duration is known: `request` (a number in the order of time), `host, kind`, the duration of each
    stage, and `is_divided`, whether it is known of all."""
    columns = ("exchange_id", "server_host", "service", "operation", "method", "is_stream", *_TIMES.values())
    rows = pl.DataFrame(trace.stored.read("exchanges", columns)).with_columns(pl.col(pl.Categorical).cast(pl.String))
    times = {name: pl.col(column) for name, column in _TIMES.items()}
    whole, at_server = times["done"] - times["asked"], (times["answered"] - times["arrived"]).clip(lower_bound=0)
    spent = {AT_SERVER: at_server, SENDING: whole - at_server, UNDIVIDED: whole}
    answered = rows.filter(~pl.col("is_stream").fill_null(value=False) & pl.col("server_host").is_not_null())
    asked = pl.coalesce("operation", "method", pl.lit("request"))
    known = answered.sort(times["asked"], "exchange_id").select(
        host="server_host",
        kind=pl.format("{} at {}", asked, pl.col("service").fill_null("")),
        is_divided=pl.all_horizontal(each.is_not_null() for each in times.values()),
        **spent,
    )
    return known.drop_nulls(UNDIVIDED).with_row_index("request")


def _stages(calls: pl.DataFrame, *, is_divided: bool) -> pl.DataFrame:
    """The calls in the form that `compare` takes."""
    names = [AT_SERVER, SENDING] if is_divided else [UNDIVIDED]
    rows = calls.filter("is_divided") if is_divided else calls
    stages = rows.unpivot(names, index=["request", "kind"], variable_name="stage", value_name="duration_ns")
    return stages.with_columns(pl.col("kind", "stage").cast(pl.Categorical))
