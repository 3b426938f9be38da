"""Each request's time by stage: the ledger of its spans, summed by what was going on and by service.

A stage is named as people speak of it: `uplink to swift-proxy`, `work in swift-object`. Between servers both directions
of the network are one stage, since clock offsets cancel in their sum. The stages of a request add up exactly to its
duration, as the ledger does (`collector.critical_path`).
"""

import polars as pl
import pyarrow as pa

from collector import story

_FRONT = {
    "client_ns": "client before sending the body to",
    "connect_ns": "connecting to",
    "tls_ns": "TLS handshake with",
    "request_network_ns": "uplink to",
    "queue_ns": "queue of",
    "work_ns": "work in",
    "fan_out_wait_ns": "slower of parallel calls to",
    "server_or_network_ns": "server or network of",
    "response_network_ns": "downlink from",
    "stall_ns": "retransmission to and from",
    "request_idle_ns": "pauses in the request to",
    "response_idle_ns": "pauses in the answer of",
    "send_held_ns": "TCP held the sender, to and from",
    "reader_wait_ns": "receiver did not read, to and from",
}
"""Stages of the root span."""
_BEHIND = _FRONT | {"request_network_ns": "network to and from", "response_network_ns": "network to and from"}
"""Stages of the spans below it."""


def request_stages(spans: pa.Table, exchanges: pa.Table) -> pl.DataFrame:
    """Where the time of each request of the clients went.

    Arguments: the tables `spans` and `exchanges` of a trace. What was waited for connections that never came is the
    own time of who waited here; `stages_of` has it apart, of rows as `story.with_waits_in_vain` makes them.
    Returns: `trace_id, kind` (`PUT at swift-proxy`), `began_trace_ns, stage, duration_ns`: one row for each request and
    stage that took time, the outermost requests of known length only (`story.outermost`).
    """
    rows = story.joined(spans, exchanges)
    return stages_of(rows, story.outermost(rows))


def stages_of(rows: pl.DataFrame, roots: pl.DataFrame) -> pl.DataFrame:
    """As `request_stages`, of `rows` as `story.joined` makes them and of those `roots`."""
    began = pl.min_horizontal(pl.col("^.*_trace_ns$"))
    kind = pl.format("{} at {}", pl.col("method").fill_null("request"), pl.col("service"))
    asked = roots.select("trace_id", kind=kind, began_trace_ns=began)
    of = ["trace_id", "depth", "service", "exchange_id", "server_host"]
    mine = rows.select(*of, *_FRONT).join(asked, on="trace_id")
    long = mine.unpivot(list(_FRONT), index=[*of, "kind", "began_trace_ns"], value_name="duration_ns")
    long = long.filter(pl.col("duration_ns") > 0)
    front, behind = (pl.col("variable").replace_strict(words) for words in (_FRONT, _BEHIND))
    words = pl.when(pl.col("depth") == 0).then(front).otherwise(behind)
    named = long.with_columns(stage=pl.format("{} {}", words, "service"))
    vain = pl.format("connections to {} that never came", pl.col("server_host"))
    named = named.with_columns(stage=pl.when(story.IN_VAIN).then(vain).otherwise("stage"))
    return named.group_by("trace_id", "kind", "began_trace_ns", "stage").agg(pl.col("duration_ns").sum())
