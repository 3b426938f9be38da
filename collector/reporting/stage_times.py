"""Each request's time by stage: the ledger of its spans, summed by what was going on and by service.

A stage is named as people speak of it: `uplink to swift-proxy`, `work in swift-object`. Between servers both directions
of the network are one stage, since clock offsets cancel in their sum. So are both ways between clients and a service
where the clocks leave open how their sum is split, as the sentence has it (`collector.reporting.story`). The stages of
a request add up exactly to its duration, as the ledger does (`collector.requests.critical_path`).
"""

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

from collector.reporting import story

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
_WAYS = tuple(f"{_FRONT[name]} " for name in ("request_network_ns", "response_network_ns"))
_BOTH_WAYS = "to {} and back (both ways; which way is not known)"
_BEHIND = _FRONT | {"request_network_ns": "network to and from", "response_network_ns": "network to and from"}
"""Stages of the spans below it."""
_OF_ROOTS = ("request_network_ns", "response_network_ns", "uncertainty_ns")


def request_stages(spans: pa.Table, exchanges: pa.Table) -> pl.DataFrame:
    """Where the time of each request of the clients went.

    Arguments: the tables `spans` and `exchanges` of a trace. What was waited for connections that never came is the
    own time of who waited here; `stages_of` has it apart, of rows as `story.with_waits_in_vain` makes them.
    Returns: `trace_id, kind` (`PUT at swift-proxy`), `began_trace_ns, stage, duration_ns`: one row for each request and
    stage that took time, the outermost requests of known length only (`story.outermost`).
    """
    rows = story.joined(spans, exchanges)
    return stages_of(rows, asked_roots(rows))


def asked_roots(rows: pl.DataFrame) -> pl.DataFrame:
    """The outermost requests of `rows`, as `story.joined` makes them, with what `stages_of` needs of them."""
    began = pl.min_horizontal(pl.col("^.*_trace_ns$"))
    return story.outermost(rows.select(*story.REQUEST_COLUMNS, *_OF_ROOTS, began_trace_ns=began))


def stages_of(rows: pl.DataFrame, roots: pl.DataFrame) -> pl.DataFrame:
    """As `request_stages`, of `rows` as `story.joined` makes them, and of the `asked_roots` of them."""
    kind = pl.format("{} at {}", pl.col("method").fill_null("request"), pl.col("service"))
    asked = roots.select("trace_id", "began_trace_ns", kind=kind)
    of = ["trace_id", "depth", "service", "exchange_id", "server_host"]
    mine = rows.select(*of, *_FRONT).join(asked, on="trace_id")
    long = pl.concat(
        mine.filter(pl.col(name) > 0).select(
            *of, "kind", "began_trace_ns", variable=pl.lit(name), duration_ns=pl.col(name)
        )
        for name in _FRONT
    )
    front, behind = (pl.col("variable").replace_strict(words) for words in (_FRONT, _BEHIND))
    words = pl.when(pl.col("depth") == 0).then(front).otherwise(behind)
    named = long.with_columns(stage=pl.format("{} {}", words, "service"))
    vain = pl.format("connections to {} that never came", pl.col("server_host"))
    named = named.with_columns(stage=pl.when(story.IN_VAIN).then(vain).otherwise("stage"))
    return _with_both_ways(_added(named), _split_unknown(roots))


def alike(groups: Iterable[pl.DataFrame]) -> list[pl.DataFrame]:
    """Groups of requests' stages (as `request_stages`), with both ways to a service as one stage in all of them if they
    are in one."""
    every = list(groups)
    stages = {stage for group in every for stage in group["stage"].unique()}
    services = {stage.removeprefix(prefix) for stage in stages for prefix in _WAYS if stage.startswith(prefix)}
    return [_with_both_ways(group, [name for name in services if _BOTH_WAYS.format(name) in stages]) for group in every]


def _split_unknown(roots: pl.DataFrame) -> list[str]:
    """Services of which the clocks do not tell how a round trip to them is split, by all requests together."""
    there, back, doubt = pl.col("request_network_ns"), pl.col("response_network_ns"), pl.col("uncertainty_ns")
    both = roots.filter((there > 0) & (back > 0)).group_by("service")
    sums = both.agg(whole=(there + back).sum(), doubt=doubt.sum(), mean=(there + back).mean())
    is_open = (pl.col("doubt") >= story.OPEN_SHARE * pl.col("whole")) & (pl.col("mean") >= story.OPEN_LEAST_NS)
    return sums.filter(is_open)["service"].to_list()


def _with_both_ways(stages: pl.DataFrame, services: Iterable[str]) -> pl.DataFrame:
    """`stages` with what is to and from these services as one each."""
    whole = {f"{prefix}{name}": _BOTH_WAYS.format(name) for name in services for prefix in _WAYS}
    return _added(stages.with_columns(pl.col("stage").replace(whole))) if whole else stages


def _added(stages: pl.DataFrame) -> pl.DataFrame:
    return stages.group_by("trace_id", "kind", "began_trace_ns", "stage").agg(pl.col("duration_ns").sum())
