"""Exchanges with what a diagnosis asks of them: whose child each is, how long its server itself took, on which device.

A server's own time is from the last byte of the request to the first of the answer, without the time in which it waited
for servers that it asked itself. So a server that waits for a slow one is not taken for slow.
"""

import polars as pl
import pyarrow as pa

from collector.findings.finding import frame
from collector.services import target_patterns
from collector.spans import LEDGER_COLUMNS

EXCHANGE_COLUMNS = [
    *("exchange_id", "connection_id", "client_host", "server_host", "service", "method", "target", "status"),
    *("protocol", "complete", "connect_start_trace_ns", "request_first_sent_trace_ns"),
    *("request_first_received_trace_ns", "request_last_received_trace_ns", "response_first_sent_trace_ns"),
    "continue_sent_trace_ns",
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns"),
]
SPAN_COLUMNS = ["span_id", "trace_id", "parent_span_id", "depth", "critical_ns", *LEDGER_COLUMNS]


def requests_of(exchanges: pa.Table, spans: pa.Table) -> pl.DataFrame:
    """Exchanges and their spans as one row each, with short names for the times, `own_ns` and `device`.

    Arguments: of `exchanges` at least `EXCHANGE_COLUMNS`, of `spans` `SPAN_COLUMNS`. Times are trace times in ns.
    Cost: a join and a sort of those that have a parent.
    """
    rows = frame(exchanges.select(EXCHANGE_COLUMNS)).join(
        frame(spans.select(SPAN_COLUMNS)), left_on="exchange_id", right_on="span_id", how="left", maintain_order="left"
    )
    rows = rows.with_columns(_device()).select(
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
    took = pl.col("answered") - pl.max_horizontal("arrived", "asked")
    return rows.join(_asking(rows), on="exchange_id", how="left", maintain_order="left").with_columns(
        own_ns=(took - pl.col("asking_ns").fill_null(0)).clip(lower_bound=0)
    )


def _device() -> pl.Expr:
    """The device that a target names, for services whose targets do."""
    device: pl.Expr = pl.lit(None, pl.String)
    for service, pattern in target_patterns().items():
        if "(?P<device>" in pattern:
            group = pl.col("target").str.extract_groups(pattern).struct.field("device")
            device = pl.when(pl.col("service") == service).then(group).otherwise(device)
    return device.alias("device")


def _asking(rows: pl.DataFrame) -> pl.DataFrame:
    """`exchange_id, asking_ns`: how long each waited for at least one of those that it asked, before it answered."""
    children = rows.filter(pl.col("parent_span_id").is_not_null()).select(
        "begin", "ended", exchange_id="parent_span_id"
    )
    windows = rows.select("exchange_id", "arrived", "asked", "answered")
    inside = children.join(windows, on="exchange_id").select(
        "exchange_id",
        start=pl.max_horizontal("begin", pl.max_horizontal("arrived", "asked")),
        end=pl.min_horizontal("ended", "answered"),
    )
    inside = inside.drop_nulls().filter(pl.col("end") > pl.col("start")).sort("exchange_id", "start")
    reach = pl.col("end").cum_max().shift().over("exchange_id")
    new = (pl.col("end") - pl.max_horizontal("start", reach)).clip(lower_bound=0)
    return inside.with_columns(new=new).group_by("exchange_id").agg(asking_ns=pl.col("new").sum())
