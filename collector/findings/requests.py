"""Exchanges with what a diagnosis asks of them: whose child each is, how long its server itself took, on which device,
and whether a client waits for it.

A server's own time is from the last byte of the request to the first of the answer, without the time in which it waited
for servers that it asked itself. So a server that waits for a slow one is not taken for slow.
"""

import numpy as np
import polars as pl
import pyarrow as pa

from collector.critical_path import NONE
from collector.findings.finding import frame
from collector.foreground import of_clients
from collector.runs import reached_before, run_starts
from collector.services import device_patterns
from collector.spans import LEDGER_COLUMNS, places

EXCHANGE_COLUMNS = [
    *("exchange_id", "connection_id", "client_host", "server_host", "service", "method", "target", "status"),
    *("protocol", "complete", "connect_start_trace_ns", "request_first_sent_trace_ns"),
    *("request_first_received_trace_ns", "request_last_received_trace_ns", "response_first_sent_trace_ns"),
    *("continue_sent_trace_ns", "background"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns"),
]
SPAN_COLUMNS = ["span_id", "trace_id", "parent_span_id", "depth", "critical_ns", *LEDGER_COLUMNS]


def requests_of(exchanges: pa.Table, spans: pa.Table) -> pl.DataFrame:
    """Exchanges and their spans as one row each, with short names for the times, `own_ns`, `device`, and
    `waited`: whether it is a client's or is done for one (`collector.foreground`).

    Arguments: of `exchanges` at least `EXCHANGE_COLUMNS`, of `spans` `SPAN_COLUMNS`. Times are trace times in ns.
    Cost: a join and a sort of those that have a parent.
    """
    rows = _together(frame(exchanges.select(EXCHANGE_COLUMNS)), frame(spans.select(SPAN_COLUMNS)))
    rows = rows.with_columns(device=_devices(rows)).select(
        *(
            "exchange_id",
            "connection_id",
            "client_host",
            "server_host",
            "service",
            "method",
            "status",
            "device",
            "target",
            "background",
        ),
        *("trace_id", "parent_span_id", "depth", "critical_ns"),
        network_ns=pl.sum_horizontal("connect_ns", "request_network_ns", "response_network_ns", "stall_ns"),
        readable=pl.col("protocol") != "unknown",
        complete="complete",
        begin=pl.coalesce("connect_start_trace_ns", "request_first_sent_trace_ns", "request_first_received_trace_ns"),
        asked=pl.coalesce("request_first_received_trace_ns", "request_last_received_trace_ns"),
        arrived="request_last_received_trace_ns",
        invited="continue_sent_trace_ns",
        answered="response_first_sent_trace_ns",
        ended=pl.coalesce("response_last_received_trace_ns", "response_last_sent_trace_ns", "given_up_trace_ns"),
        given_up="given_up_trace_ns",
    )
    mine = of_clients(rows.filter(pl.col("depth") == 0), rows)["trace_id"].implode()
    took = pl.col("answered") - pl.max_horizontal("arrived", "asked")
    return rows.with_columns(asking_ns=_asking(rows)).with_columns(
        own_ns=(took - pl.col("asking_ns").fill_null(0)).clip(lower_bound=0),
        waited=pl.col("trace_id").is_in(mine),
    )


def _together(exchanges: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Each exchange with its span: in a trace's own tables they stand in the same order."""
    if exchanges["exchange_id"].equals(spans["span_id"]):
        return exchanges.hstack(spans.drop("span_id"))
    return exchanges.join(spans, left_on="exchange_id", right_on="span_id", how="left", maintain_order="left")


def _devices(rows: pl.DataFrame) -> pl.Series:
    """The device that a target names, for services whose targets do."""
    targets = rows.select("service", "target").with_row_index("row")
    found = [pl.DataFrame(schema={"row": pl.UInt32, "device": pl.String})]
    for service, pattern in device_patterns().items():
        device = pl.col("target").str.extract(pattern)
        found.append(targets.filter(pl.col("service") == service).select("row", device=device))
    named = pl.concat(found)
    return pl.Series("device", [None], pl.String).new_from_index(0, len(rows)).scatter(named["row"], named["device"])


def _asking(rows: pl.DataFrame) -> pl.Series:
    """How long each waited for at least one of those that it asked, before it answered; null for none."""
    parent = pl.Series(places(rows["exchange_id"], rows["parent_span_id"]))
    children = rows.select("begin", "ended", parent=parent).filter(pl.col("parent") != NONE)
    heard = rows.select(heard=pl.max_horizontal("arrived", "asked"), answered="answered")[children["parent"]]
    inside = children.hstack(heard).select(
        "parent", start=pl.max_horizontal("begin", "heard"), end=pl.min_horizontal("ended", "answered")
    )
    inside = inside.drop_nulls().filter(pl.col("end") > pl.col("start"))
    parents, start, end = (inside[name].to_numpy() for name in ("parent", "start", "end"))
    order = np.lexsort((start, parents))
    parents, start, end = parents[order], start[order], end[order]
    new = np.maximum(end - np.maximum(start, reached_before(end, parents, 0)), 0)
    starts = run_starts(parents)
    waited = np.zeros(len(rows), dtype=np.int64)
    if len(starts):
        waited[parents[starts]] = np.add.reduceat(new, starts)
    asked_none = np.ones(len(rows), dtype=np.bool_)
    asked_none[parents[starts]] = False
    return pl.select(pl.when(~pl.Series(asked_none)).then(pl.Series(waited))).to_series()
