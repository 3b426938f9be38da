"""Detects replicas that lack an object: one request asked several servers for it; one answered 404, another had it.

Three conditions must hold. The targets name the same object (apart from the device). The successful answer came from
another server or device, which never answered 404 to the same question itself: an object that appears meanwhile, as one
that a client polls for, is not missing. And between the two answers no server of the service was asked to change the
object: a PUT or DELETE explains a 404.

    HEAD /d1/12/AUTH_a → 404 (storage1), PUT /d1/12/AUTH_a, HEAD /d2/12/AUTH_a → 204 (storage2): storage1 lacks nothing

Limits: a change is not noticed if its target is hidden, or if it was not made by requests to that service.

Cost: a pass over the requests; further work only for those answered 404.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import polars as pl

from collector import _core
from collector.findings.finding import Finding, times
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.services.ends import service_at
from collector.services.replicas import target_parts
from collector.services.services import PARTS, has_ring
from collector.trace.time_columns import Int64Array

NOT_FOUND = 404
READS = ["GET", "HEAD"]
ROWS_AT_ONCE = 1 << 16
"""Of requests with their targets in words."""
_QUESTION = ["parent_span_id", "service", "method", "thing"]
_PLACE = ["server_host", "device"]
_NEEDED = (
    *("exchange_id", "connection_id", "parent_span_id", "service", "method", "target", *_PLACE, "begin", "ended"),
    "critical_ns",
)
"""The columns needed of requests that may be about one thing."""


def find(seen: Observations) -> Iterable[Finding]:
    """All findings about replicas that lack an object."""
    return missing_replicas(seen.requests)


def missing_replicas(requests: Requests) -> Iterable[Finding]:
    """The findings `missing_replica`, one for each server."""
    in_vain, in_full = _answers(requests)
    if not len(in_vain):
        return
    missing = _without_change(requests, pl.concat(_pairs_of_answers(requests, in_vain, in_full)))
    for (host, service), rows in missing.sort("begin", "exchange_id").group_by(
        "server_host", "service", maintain_order=True
    ):
        first, cost_ns = rows.row(0, named=True), int(rows["critical_ns"].sum() or 0)
        name = None if host is None else str(host)
        yield Finding(
            severity="warning",
            kind="missing_replica",
            host=name,
            service=str(service),
            connection_id=first["connection_id"],
            span_id=first["exchange_id"],
            from_trace_ns=first["begin"],
            to_trace_ns=rows["ended"].max(),  # type: ignore[arg-type]
            count=len(rows),
            cost_ns=cost_ns,
            text=f"{service_at(str(service), name)} lacks data that another replica has: it answered 404 to "
            f"{times(len(rows), 'request')} that another replica answered, and no request changed the data in between",
            remedy=_remedy(str(service)),
        )


def _remedy(service: str) -> str:
    if not has_ring(service):
        return "read that server's log, and compare its data with that of the others"
    return (
        "look in its log for a quarantined or deleted file (a damaged replica is set aside), and check whether the "
        "replicators restore it"
    )


def _answers(requests: Requests) -> tuple[Int64Array, Int64Array]:
    """Rows of reads that were answered 404, and rows of successful reads, if one parent asked both the same
    question."""
    status = requests.statuses()
    asked = requests.is_sure & requests.where(pl.col("method").is_in(READS))
    in_vain = np.flatnonzero((status == NOT_FOUND) & asked)
    if not len(in_vain):
        return in_vain, in_vain
    asks = np.zeros(len(asked), dtype=np.bool_)
    asks[requests.parent[in_vain]] = True
    in_full = np.flatnonzero((status >= 200) & (status <= 299) & asked)
    in_full = in_full[asks[requests.parent[in_full]]]
    kind, kinds = _core.row_groups([requests.codes[name] for name in ("service", "method")])
    not_there, is_there = (
        requests.parent[rows] * len(kinds) + kind[requests.group[rows]] for rows in (in_vain, in_full)
    )
    return in_vain[np.isin(not_there, is_there)], in_full[np.isin(is_there, not_there)]


def _by_thing(requests: Requests, rows: Int64Array) -> pl.DataFrame:
    """Requests with `thing`, their target without the device, by time; those without a target are omitted."""
    frame = requests.frame(rows, *_NEEDED).with_columns(pl.col(pl.Categorical).cast(pl.String))
    parts = target_parts(frame).drop("device")
    named = pl.concat_str(*(pl.col(part).fill_null("") for part in PARTS[1:]), separator="/").str.strip_chars_end("/")
    things = parts.select("exchange_id", thing=named).filter(pl.col("thing") != "")
    return (
        frame.join(things, on="exchange_id", how="left")
        .with_columns(thing=pl.coalesce("thing", "target"))
        .drop_nulls(["thing", "begin"])
        .sort("begin", "exchange_id")
    )


def _pairs_of_answers(requests: Requests, in_vain: Int64Array, in_full: Int64Array) -> Iterator[pl.DataFrame]:
    """`_pairs` of the answers to some parents at a time."""
    asks_in_vain, asks_in_full = requests.parent[in_vain], requests.parent[in_full]
    edges = np.unique([0, *np.sort(asks_in_vain)[ROWS_AT_ONCE::ROWS_AT_ONCE].tolist(), len(requests.parent)])
    for first, last in pairwise(edges.tolist()):
        vain = in_vain[(asks_in_vain >= first) & (asks_in_vain < last)]
        full = in_full[(asks_in_full >= first) & (asks_in_full < last)]
        yield _pairs(_by_thing(requests, vain), _by_thing(requests, full))


def _pairs(vain: pl.DataFrame, full: pl.DataFrame) -> pl.DataFrame:
    """Each unsuccessful read with the nearest successful answer to its question: `since`, `until` span both."""
    there = full.select(*_QUESTION, "begin", "ended", *(pl.col(name).alias(f"other_{name}") for name in _PLACE))
    near = vain.join_asof(
        there.rename({"ended": "other_ended"}).with_columns(other_begin="begin"),
        on="begin",
        by=_QUESTION,
        strategy="nearest",
        check_sortedness=False,
    ).filter(pl.col("other_begin").is_not_null())
    in_vain = vain.select(*_QUESTION, *(pl.col(name).alias(f"other_{name}") for name in _PLACE)).unique()
    elsewhere = near.join(in_vain, on=in_vain.columns, how="anti", nulls_equal=True)
    return elsewhere.with_columns(
        since=pl.min_horizontal("begin", "other_begin"), until=pl.max_horizontal("ended", "other_ended")
    )


def _without_change(requests: Requests, reads: pl.DataFrame) -> pl.DataFrame:
    """The pairs between whose answers no request to change the object was made."""
    if reads.is_empty():
        return reads
    mine = pl.col("service").cast(pl.String).is_in(reads["service"].unique().to_list())
    writes = mine & ~pl.col("method").cast(pl.String).is_in(READS)
    asked = reads.select("exchange_id", "service", "since", "until", path=_path())
    meets = (pl.col("changed") <= pl.col("until")) & (pl.col("settled").fill_null(pl.col("until")) >= pl.col("since"))
    rows, explained = np.flatnonzero(requests.where(writes)), [reads.select("exchange_id").clear()]
    for start in range(0, len(rows), ROWS_AT_ONCE):
        changes = _by_thing(requests, rows[start : start + ROWS_AT_ONCE])
        changes = changes.select("service", changed="begin", settled="ended", path=_path())
        explained.append(asked.join(changes, on=["service", "path"]).filter(meets).select("exchange_id"))
    return reads.join(pl.concat(explained), on="exchange_id", how="anti")


def _path() -> pl.Expr:
    """The target of an object without its query."""
    return pl.col("thing").str.replace(r"[?].*$", "")
