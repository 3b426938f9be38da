"""Findings about where requests went: to handoffs, which stand in for another server, and to one server more than
others.

Neither is wrong by itself, so both are notices: handoffs keep a store writable, and popular objects attract requests.
Which writes went to handoffs is inferred from the failures before them (`collector.services.replicas`), or known from
ring files (`collector.services.rings`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from collector import _core
from collector.findings.finding import Finding, listing, times
from collector.findings.observations import Observations, Parts
from collector.findings.requests import Requests
from collector.requests.critical_path import NONE
from collector.services.ends import service_at
from collector.services.replicas import FAILED, stand_ins, target_parts
from collector.services.rings import NO_PLACES, Places
from collector.services.services import PARTS, has_ring
from collector.trace.arrow import indices, numbers
from collector.trace.schema import ID_STRIDE_BITS
from collector.trace.threshold import threshold
from collector.trace.time_columns import UNSEEN, Int64Array

SERVER_ERROR = 500
ROWS_AT_ONCE = 1 << 16
"""Of requests to devices, with their targets in words."""
_SERVER = ["service", "server_host"]
_SHOWN = ("exchange_id", "connection_id", "begin", "ended")
"""The columns that a finding about requests shows."""
_OF_ATTEMPTS = (
    *("exchange_id", "connection_id", "parent_span_id", "client_host", "server_host", "service", "method", "target"),
    *("status", "begin", "answered", "ended", "given_up"),
)
"""The columns needed of requests to devices."""


@dataclass(frozen=True, slots=True)
class PlacementThresholds:
    """By which load counts as uneven."""

    uneven_least_count: int = threshold(100, "chosen: of fewer requests, a server may get more by chance")
    uneven_ratio: float = threshold(2.0, "chosen: a server gets more than its part at so many times its peers' average")
    popular_share: float = threshold(
        0.5, "chosen: a target is named if it gets more than this share of the server's requests"
    )


def find(seen: Observations, limits: PlacementThresholds) -> Iterator[Finding]:
    """All findings about where requests went."""
    return placement_findings(seen.requests, seen.symptoms.unusable_connections, limits, seen.connections, seen.rings)


def placement_findings(
    requests: Requests,
    failed: pl.DataFrame,
    limits: PlacementThresholds,
    connections: Parts | None = None,
    rings: Places = NO_PLACES,
) -> Iterator[Finding]:
    """The findings `handoffs` and `uneven_load`.

    Arguments: `requests`, from `requests.requests_of`; `failed`, from
    `collector.hops.failed_connections.unusable_connections`; thresholds; `connections`;
    `rings`, the assignments of ring files, if any.
    """
    yield from _handoffs(requests, failed, connections, rings)
    yield from _uneven_load(requests, limits)


def _handoffs(requests: Requests, failed: pl.DataFrame, connections: Parts | None, rings: Places) -> Iterable[Finding]:
    """Findings about writes that went to another server than the one intended, by the intended host."""
    asked = requests.where(pl.col("device").is_not_null()) & (requests.partition != NONE) & requests.is_sure
    vain = np.zeros(len(asked), dtype=np.bool_)
    vain[requests.given_up()[0]] = True
    vain |= requests.statuses() >= SERVER_ERROR
    if connections is None or not asked.any() or not (rings.rings or len(failed) or (vain & asked).any()):
        return
    attempts = _attempts(requests, np.flatnonzero(asked), connections)
    stood_in = rings.stand_ins(attempts) if rings.rings else stand_ins(attempts, failed.select(list(FAILED)))
    (rows,) = _core.places(requests.exchange_id, [stood_in["exchange_id"].to_numpy()], ID_STRIDE_BITS)
    writes = (
        requests.frame(np.unique(rows), "service", "server_host", "status", *_SHOWN, "critical_ns")
        .join(stood_in, on="exchange_id")
        .filter(pl.col("status").is_between(200, 299))
    )
    for (host, service), each in writes.sort("begin", "exchange_id", "meant_for").group_by(
        "meant_for", "service", maintain_order=True
    ):
        hosts = each.select(pl.col("server_host").cast(pl.String).fill_null("a host that was not captured"))
        names = sorted(set(hosts.to_series().to_list()))
        yield Finding(
            severity="notice",
            kind="handoffs",
            host=str(host),
            service=str(service),
            touches=frozenset(names),
            count=len(each),
            **_evidence(each, "critical_ns"),
            text=f"{times(len(each), 'write')} meant for {service} on {host} went to handoffs on {listing(names)}"
            + (" (as the ring says)" if rings.rings else ""),
            remedy="find why that server or disk was skipped"
            + ("; the replicators move the copies back afterwards" if has_ring(str(service)) else ""),
        )


def _attempts(requests: Requests, rows: Int64Array, connections: Parts) -> Iterator[pl.DataFrame]:
    """Requests to devices (columns `device_calls.ATTEMPTS`), with `device, address, partition` for ring files; those of
    one parent in one frame.

    Arguments: `rows` of the requests; the table `connections`.
    """
    ends = _ServerEnds(connections)
    for some in _rows_by_parent(requests.parent, rows):
        yield _attempts_of_rows(requests, some, ends)


def _rows_by_parent(parents: Int64Array, rows: Int64Array) -> Iterator[Int64Array]:
    """About `ROWS_AT_ONCE` of the rows at a time, ascending, with all of each parent's."""
    parent = parents[rows]
    order = np.argsort(parent, kind="stable")
    rows, parent = rows[order], parent[order]
    ends = np.unique(np.searchsorted(parent, parent[ROWS_AT_ONCE::ROWS_AT_ONCE], side="right"))
    del order, parent
    for start, end in pairwise([0, *ends.tolist(), len(rows)]):
        if start < end:
            yield np.sort(rows[start:end])


class _ServerEnds:
    """The server's address and port of each connection."""

    def __init__(self, connections: Parts) -> None:
        ids, ports, hosts, known = [], [], [], dict[str, int]()
        for part in connections(("connection_id", "server_addr", "server_port")):
            codes, names = indices(part["server_addr"])
            numbered = np.array([*(known.setdefault(name, len(known)) for name in names), NONE], np.int32)
            hosts.append(numbered[codes])
            ids.append(numbers(part["connection_id"]))
            ports.append(numbers(part["server_port"]))
        self._ids = np.concatenate([np.empty(0, np.int64), *ids])
        order = np.argsort(self._ids, kind="stable")
        self._ids, self._names = self._ids[order], pl.Series([*known], dtype=pl.String)
        self._ports = np.concatenate([np.empty(0, np.uint16), *ports])[order]
        self._hosts = np.concatenate([np.empty(0, np.int32), *hosts])[order]

    def of(self, connection_ids: pl.Series) -> pl.DataFrame:
        """`server_addr, server_port` of each connection, null if unknown."""
        wanted = connection_ids.to_numpy()
        place = np.searchsorted(self._ids, wanted)
        place[place == len(self._ids)] = NONE
        found = pl.Series(np.append(self._ids, NONE)[place] == wanted)
        hosts, ports = (pl.Series(np.append(of, np.zeros(1, of.dtype))[place]) for of in (self._hosts, self._ports))
        return pl.DataFrame({"code": hosts, "server_port": ports, "found": found}).select(
            server_addr=self._names.gather(pl.select(pl.when(found & (hosts >= 0)).then(hosts)).to_series()),
            server_port=pl.when("found").then("server_port"),
        )


def _attempts_of_rows(requests: Requests, rows: Int64Array, ends: _ServerEnds) -> pl.DataFrame:
    """The result of `_attempts` for some rows."""
    frame = requests.frame(rows, *_OF_ATTEMPTS).with_columns(
        pl.col(pl.Categorical).cast(pl.String), asked_ns=_parent_arrivals(requests, rows)
    )
    frame = frame.hstack(ends.of(frame["connection_id"]))
    parts = target_parts(frame).rename({"partition": "named", "device": "disk"})
    failed = (pl.col("status") >= SERVER_ERROR) | pl.col("given_up").is_not_null()
    return (
        frame.join(parts, on="exchange_id")
        .sort("exchange_id")
        .select(
            *("exchange_id", "parent_span_id", "client_host", "service", "method", "server_port", "asked_ns"),
            server=pl.coalesce("server_host", "server_addr"),
            place=pl.concat_str(
                *(pl.col(name).fill_null("") for name in ("named", "account", "container")), separator="/"
            ),
            thing=pl.concat_str(*(pl.col(name).fill_null("") for name in ("named", *PARTS[2:])), separator="/"),
            begin_ns="begin",
            failed_ns=pl.when(failed).then(pl.coalesce("given_up", "answered", "ended", "begin")),
            device="disk",
            address="server_addr",
            partition=pl.col("named").cast(pl.Int64, strict=False),
        )
    )


def _parent_arrivals(requests: Requests, rows: Int64Array) -> pl.Series:
    """When each request's parent reached its server, or else began; null if neither is known."""
    parent = requests.parent[rows]
    at = np.where(requests.asked[parent] == UNSEEN, requests.begin[parent], requests.asked[parent])
    return pl.Series(at).replace(UNSEEN, None)


def _uneven_load(requests: Requests, limits: PlacementThresholds) -> Iterable[Finding]:
    """Findings about servers that get many more requests of waiting clients than their peers, and their main target."""
    waited = requests.groups.filter(pl.col("waited") > 0).drop_nulls(_SERVER)
    counts = waited.group_by(_SERVER).agg(count=pl.col("waited").sum())
    hosts = pl.len().over("service")
    others = (pl.col("count").sum().over("service") - pl.col("count")) / (hosts - 1)
    counts = counts.filter(hosts > 1).with_columns(others=others)
    much = pl.col("count") >= pl.max_horizontal(limits.uneven_least_count, limits.uneven_ratio * pl.col("others"))
    for row in counts.filter(much).sort("count", *_SERVER, descending=[True, False, False]).iter_rows(named=True):
        same = (pl.col("server_host") == row["server_host"]) & (pl.col("service") == row["service"])
        here = requests.frame(requests.where(same) & requests.waited, "target", *_SHOWN, "own_ns", "critical_ns")
        cost = _evidence(here.with_columns(own=pl.min_horizontal("own_ns", "critical_ns")), "own")
        beyond = 1 - row["others"] / row["count"]
        yield Finding(
            severity="notice",
            kind="uneven_load",
            host=row["server_host"],
            service=row["service"],
            count=row["count"],
            **cost | {"cost_ns": round(cost["cost_ns"] * beyond)},
            text=f"{service_at(row['service'], row['server_host'])} got {times(row['count'], 'request')}; its peers "
            f"got {row['others']:,.0f} on average" + _popular_target_words(here, limits.popular_share),
            remedy=f"check whether {_distributor(row['service'])} or a few popular targets send them there",
        )


def _distributor(service: str) -> str:
    """What distributes requests over the servers of a service, as far as known."""
    return "the ring's weights" if has_ring(service) else "what spreads requests over its servers (a load balancer)"


def _popular_target_words(here: pl.DataFrame, least_share: float) -> str:
    """A clause that names the target of most of these requests, if it is one."""
    targets = here["target"].drop_nulls().value_counts(sort=True)
    target, count = targets.row(0) if len(targets) else ("", 0)
    return f"; {count:,} of the requests were for {target}" if count > least_share * len(here) else ""


def _evidence(rows: pl.DataFrame, cost: str) -> dict[str, Any]:
    """The fields of a finding about these requests: their time, their cost, and the costliest one."""
    worst = rows.sort(cost, "exchange_id", descending=[True, False], nulls_last=True).row(0, named=True)
    return {
        "connection_id": worst["connection_id"],
        "span_id": worst["exchange_id"],
        "from_trace_ns": rows["begin"].min(),
        "to_trace_ns": rows["ended"].max(),
        "cost_ns": int(rows[cost].sum() or 0),
    }
