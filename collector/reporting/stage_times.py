"""Divides each request's time into stages: the ledger of its spans, summed by activity and by service.

Stages have readable names: `uplink to swift-proxy`, `work in swift-object`. Between servers, both directions of the
network are one stage, since clock offsets cancel in their sum. The same holds between clients and a service if the
clocks do not determine how the sum is split, as in the report's sentence (`collector.reporting.story`). The stages of a
request sum up exactly to its duration, as the ledger does (`collector.requests.critical_path`).
"""

from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa

from collector.reporting import story
from collector.reporting.request_rows import RequestRows

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
_DIRECTIONS = tuple(f"{_FRONT[name]} " for name in ("request_network_ns", "response_network_ns"))
_BOTH_DIRECTIONS = "to {} and back (both ways; which way is not known)"
_BEHIND = _FRONT | {"request_network_ns": "network to and from", "response_network_ns": "network to and from"}
"""Stages of the spans below it."""
ADDED_AT_ONCE = 500_000
"""Times of requests that are added up at once."""
_PLACE = ("depth", "service", "exchange_id", "server_host")
"""Columns that determine a stage's name, in addition to the ledger's column."""
STAGE_COLUMNS = ("trace_id", *_PLACE, *_FRONT)
"""The columns of all rows that `stages_of` adds up."""
_OF_ROOTS = (
    *("exchange_id", "method", "operation", "service", "request_network_ns", "response_network_ns", "uncertainty_ns"),
    *story.OUTERMOST_COLUMNS,
)
NEVER_CAME = "that never came"
"""The end of the name of a stage in which a request waited for a connection that was not made."""


def request_stages(spans: pa.Table, exchanges: pa.Table) -> pl.DataFrame:
    """The stages of each of the clients' requests.

    Arguments: the tables `spans` and `exchanges` of a trace. Waits for connections that were never established count as
    the waiting server's own time here; `stages_of` separates them, for rows from `story.with_failed_connects`.
    Returns: `trace_id, kind` (`PUT at swift-proxy`), `request` (its number in the order of time, from 0), `stage,
    duration_ns`: one row for each request and stage that took time; only outermost requests of known length
    (`story.outermost`). Texts are categories.
    """
    rows = RequestRows.of_tables(spans, exchanges)
    return stages_of(rows.columns(*STAGE_COLUMNS), clients_roots(rows))


def clients_roots(rows: RequestRows) -> pl.DataFrame:
    """The outermost requests, with the columns that `stages_of` needs."""
    return story.outermost(rows.columns(*_OF_ROOTS).with_columns(began_trace_ns=rows.starts()))


def stages_of(rows: pl.DataFrame, roots: pl.DataFrame) -> pl.DataFrame:
    """The result of `request_stages`. Arguments: `rows` with `STAGE_COLUMNS`, from `story.with_failed_connects`; their
    `clients_roots`. Memory: about 40 bytes for each request and stage, and as much to sum them."""
    kind = _stage_names(roots, _kinds(), "method", "operation", "service")
    of_roots = roots.select("trace_id", "began_trace_ns", kind=kind, is_asked=pl.lit(value=True))
    of_roots = of_roots.sort("began_trace_ns", "trace_id").with_row_index("request").drop("began_trace_ns")
    of = rows.select("trace_id", *_PLACE).join(of_roots, on="trace_id", how="left", maintain_order="left")
    of = of.select(
        *("trace_id", "kind", "request", "is_asked", "service"),
        failed_server=pl.when(story.IS_FAILED_CONNECT).then("server_host"),
        is_root=pl.col("depth") == 0,
        is_alone=pl.col("trace_id").is_unique(),
    )
    parts = []
    for name in _FRONT:
        part = of.with_columns(duration_ns=rows[name]).filter((pl.col("duration_ns") > 0) & pl.col("is_asked"))
        stage = _stage_names(part, _stages(name), "is_root", "service", "failed_server")
        parts.append(part.select("trace_id", "kind", "request", "duration_ns", "is_alone", stage=stage))
    del of, rows
    stages = pl.concat(parts)
    sums = _sum_stages(stages.filter(~pl.col("is_alone")))
    alone = stages.filter("is_alone").select(sums.columns)  # nothing to add up: each stage is there once
    return _with_merged_directions(pl.concat([alone, sums]), _split_unknown(roots))


def _kinds() -> pl.Expr:
    asked = pl.coalesce(pl.col("operation", "method").cast(pl.String), pl.lit("request"))
    return pl.format("{} at {}", asked, pl.col("service"))


def _stages(name: str) -> pl.Expr:
    """The stage name of a ledger column."""
    words = pl.when("is_root").then(pl.lit(_FRONT[name])).otherwise(pl.lit(_BEHIND[name]))
    failed = pl.format(f"connections to {{}} {NEVER_CAME}", pl.col("failed_server"))
    return pl.when(pl.col("failed_server").is_not_null()).then(failed).otherwise(pl.format("{} {}", words, "service"))


def _stage_names(rows: pl.DataFrame, name: pl.Expr, *by: str) -> pl.Series:
    """A text for each row, as a category, computed once for all rows that are equal in the columns `by`."""
    alike = rows.select(by).unique()
    texts = alike.with_columns(pl.col(pl.Categorical).cast(pl.String)).select(name=name.cast(pl.Categorical))
    known = rows.select(by).join(alike.hstack(texts), on=by, how="left", nulls_equal=True, maintain_order="left")
    return known["name"]


def request_durations(stages: pl.DataFrame) -> pl.DataFrame:
    """How long each request took: `request, kind, took`, in the order of time. Arguments: their stages, from
    `request_stages`."""
    request, kind = stages["request"].to_numpy(), stages["kind"].cast(pl.Categorical)
    took = np.bincount(request, weights=stages["duration_ns"].to_numpy())
    row_of = np.full(len(took), -1)
    row_of[request] = np.arange(len(request))
    there = np.flatnonzero(row_of >= 0)
    return pl.DataFrame(
        {
            "request": there.astype(np.uint32),
            "kind": kind.gather(row_of[there]),
            "took": took[there].astype(np.int64),
        }
    )


def stages_of_some(stages: pl.DataFrame, some: pl.DataFrame) -> pl.DataFrame:
    """The stages of some requests. Arguments: rows from `request_durations` of the same stages."""
    request = stages["request"].to_numpy()
    chosen = np.zeros(int(request.max(initial=0)) + 1, np.bool_)
    chosen[some["request"].to_numpy()] = True
    return stages.filter(pl.Series(chosen[request], dtype=pl.Boolean))


def stage_name(column: str, service: str, *, is_root: bool) -> str:
    """The stage of a ledger column of a span."""
    return f"{(_FRONT if is_root else _BEHIND)[column]} {service}"


def merged_stage_name(service: str) -> str:
    """The stage of both directions to and from a service, where the clocks do not determine how they are split."""
    return _BOTH_DIRECTIONS.format(service)


def merge_directions_alike(groups: Iterable[pl.DataFrame]) -> list[pl.DataFrame]:
    """Groups of requests' stages (from `request_stages`): if both directions to a service are one stage in one group,
    they are in all groups."""
    every = list(groups)
    stages = {stage for group in every for stage in group["stage"].unique()}
    services = {stage.removeprefix(prefix) for stage in stages for prefix in _DIRECTIONS if stage.startswith(prefix)}
    return [
        _with_merged_directions(group, [name for name in services if _BOTH_DIRECTIONS.format(name) in stages])
        for group in every
    ]


def _split_unknown(roots: pl.DataFrame) -> list[str]:
    """Services for which the clocks do not determine how a round trip is split, over all requests together."""
    there, back, doubt = pl.col("request_network_ns"), pl.col("response_network_ns"), pl.col("uncertainty_ns")
    both = roots.filter((there > 0) & (back > 0)).group_by("service")
    sums = both.agg(whole=(there + back).sum(), doubt=doubt.sum(), mean=(there + back).mean())
    is_open = (pl.col("doubt") >= story.OPEN_SHARE * pl.col("whole")) & (pl.col("mean") >= story.OPEN_LEAST_NS)
    return sums.filter(is_open)["service"].to_list()


def _with_merged_directions(stages: pl.DataFrame, services: Iterable[str]) -> pl.DataFrame:
    """`stages` with both directions to and from each of these services merged to one stage."""
    whole = {f"{prefix}{name}": _BOTH_DIRECTIONS.format(name) for name in services for prefix in _DIRECTIONS}
    if not whole:
        return stages
    return _sum_stages(stages.with_columns(stage=_stage_names(stages, pl.col("stage").replace(whole), "stage")))


def _sum_stages(stages: pl.DataFrame) -> pl.DataFrame:
    """Add up each request's stages, `ADDED_AT_ONCE` rows at a time: a sum over groups needs twice their memory."""
    of_request, turns = pl.col("kind", "request").first(), 1 + len(stages) // ADDED_AT_ONCE
    turn = pl.col("trace_id") % turns
    parts = (
        stages.filter(turn == each).group_by("trace_id", "stage").agg(of_request, pl.col("duration_ns").sum())
        for each in range(turns)
    )
    return pl.concat(parts).select("trace_id", "kind", "request", "stage", "duration_ns")
