"""Published ways to infer which request made which, without ids: what ours is held against.

Both take the table `exchanges` and give `exchange_id, parent_id, confidence`, as `collector.requests.spans` has them of
ours. Of every exchange that a serving host made as a client they name a parent among the exchanges that this host
served.

FCFS: a server takes requests in the order they come, and sends for one before the next. The calls of a host to a
service, in order of time, are dealt to the requests that it serves in order of arrival, each getting as many as the
average (calls over requests, rounded up), while it is open. The plain form, the i-th call to the i-th request, knows
neither optional nor parallel calls, and would be wrong almost everywhere here.

WAP5: a call was caused by one of the messages that came before it, with a probability that falls exponentially with the
delay; the mean of that exponential, for each pair of host and called service, is the mean delay from the latest message
before. What came longer ago than four means is no candidate. The likeliest is the parent; its share of all candidates'
probability is the confidence.

Sources: Reynolds et al., "WAP5: Black-box Performance Debugging for Wide-Area Systems", WWW 2006, §4.3; Ashok et al.,
"TraceWeaver: Distributed Request Tracing for Microservices Without Application Modification", SIGCOMM 2024, §6, which
compares with both, and whose artifact gives the cut at four means. Departures, both in the baselines' favour: FCFS as
said; in WAP5 a request that was answered already when the call left is no candidate.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.trace.time_columns import Int64Array

Doubles = NDArray[np.float64]
Assign = Callable[[Int64Array, Int64Array, Int64Array], tuple[Int64Array, Doubles]]
"""Times at which parents opened (ascending) and closed, and calls left (ascending): each call's parent or -1, and how
sure that is."""

NONE = -1
FOREVER = np.iinfo(np.int64).max
WAP5_REACH = 4.0
"""Candidates are no older than so many mean delays."""


def fcfs(exchanges: pa.Table) -> pl.DataFrame:
    """Links by order of arrival; confidence is always 1, as the method has none."""
    return _link_calls(exchanges, _fcfs)


def wap5(exchanges: pa.Table) -> pl.DataFrame:
    """Links by delay."""
    return _link_calls(exchanges, _wap5)


def _link_calls(exchanges: pa.Table, assign: Assign) -> pl.DataFrame:
    """`assign`, for the calls of each host to each service."""
    frame = pl.DataFrame(exchanges)
    began = pl.coalesce("request_first_sent_trace_ns", "request_first_received_trace_ns")
    opened = pl.coalesce("request_first_received_trace_ns", "request_first_sent_trace_ns")
    closed = pl.coalesce("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns")
    calls = frame.select("exchange_id", "service", host=pl.col("client_host").cast(pl.String), at=began)
    parents = frame.select(
        host=pl.col("server_host").cast(pl.String), parent_id="exchange_id", opened=opened, closed=closed
    ).drop_nulls(["host", "opened"])
    found = [pl.DataFrame(schema={"exchange_id": pl.Int64, "parent_id": pl.Int64, "confidence": pl.Float64})]
    for (host, _), group in calls.drop_nulls(["host", "at"]).group_by("host", "service", maintain_order=True):
        here = parents.filter(pl.col("host") == host).sort("opened", "parent_id")
        mine = group.sort("at", "exchange_id")
        place, confidence = assign(
            here["opened"].to_numpy(), here["closed"].fill_null(FOREVER).to_numpy(), mine["at"].to_numpy()
        )
        ids = np.append(here["parent_id"].to_numpy(), NONE)[place]
        linked = mine.select("exchange_id", parent_id=pl.Series(ids), confidence=pl.Series(confidence))
        found.append(linked.filter((pl.col("parent_id") != NONE) & (pl.col("parent_id") != pl.col("exchange_id"))))
    return pl.concat(found)


def _fcfs(opened: Int64Array, closed: Int64Array, calls: Int64Array) -> tuple[Int64Array, Doubles]:
    """Each call to the earliest open parent that has not had its share."""
    place = np.full(len(calls), NONE)
    share = -(-len(calls) // max(1, len(opened)))
    had = np.zeros(len(opened), dtype=np.int64)
    first = 0
    for number, at in enumerate(calls):
        while first < len(opened) and (had[first] >= share or closed[first] < at):
            first += 1
        for candidate in range(first, int(np.searchsorted(opened, at, side="right"))):
            if had[candidate] < share and closed[candidate] >= at:
                place[number] = candidate
                had[candidate] += 1
                break
    return place, np.ones(len(calls))


def _wap5(opened: Int64Array, closed: Int64Array, calls: Int64Array) -> tuple[Int64Array, Doubles]:
    """Each call to the likeliest parent by its delay."""
    place, confidence = np.full(len(calls), NONE), np.zeros(len(calls))
    latest = np.searchsorted(opened, calls, side="right") - 1
    caused = latest >= 0
    if not caused.any():
        return place, confidence
    mean = float(np.mean((calls - opened[latest.clip(min=0)])[caused])) or 1.0
    for number in np.flatnonzero(caused):
        oldest = int(np.searchsorted(opened, calls[number] - WAP5_REACH * mean, side="left"))
        candidates = np.arange(oldest, latest[number] + 1)
        candidates = candidates[closed[candidates] >= calls[number]]
        if len(candidates):
            likely = np.exp(-(calls[number] - opened[candidates]) / mean)
            best = int(np.argmax(likely))
            place[number], confidence[number] = candidates[best], likely[best] / likely.sum()
    return place, confidence
