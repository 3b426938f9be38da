"""Where requests went: to servers that stood in for another, and to one server more than to its peers.

Neither is wrong by itself, so both are notices: a handoff is what keeps a store writable, and popular objects are
where they are. Roles of devices are told from what was asked (`collector.replicas`).
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.critical_path import NONE
from collector.findings.finding import Finding, listed, times
from collector.findings.requests import Requests
from collector.replicas import DEVICE, HANDOFF, PRIMARY, WRITES, device_roles
from tracer import _core

UNEVEN_LEAST, UNEVEN_RATIO = 100, 2.0
"""A server gets more than its share if it gets so many requests, and this many times what its peers get on average."""
POPULAR_SHARE = 0.5
"""Of a server's requests, that are for one thing, from which on it is named."""
_SERVER = ["service", "server_host"]


def placement_findings(requests: Requests) -> Iterator[Finding]:
    """Handoffs and uneven load. Arguments: as `requests.requests_of`."""
    yield from _handoffs(requests)
    yield from _uneven(requests)


def _handoffs(requests: Requests) -> Iterable[Finding]:
    """Writes that went to another server than they were meant for, by the host they were meant for."""
    on_device = requests.where(pl.col("method").is_in(WRITES) & pl.col("device").is_not_null())
    is_write = on_device & (requests.partition != NONE) & (requests.parent != NONE)
    roles = device_roles(*_written(requests, is_write))
    if not (roles["role"] == HANDOFF).any():
        return
    writes = requests.frame(is_write).join(roles, on=DEVICE, maintain_order="left")
    stood_in = writes.filter((pl.col("role") == HANDOFF) & pl.col("status").is_between(200, 299))
    for (host, service), rows in (
        stood_in.join(_passed_over(writes), on=["parent_span_id", "service", "partition"])
        .unique(["exchange_id", "meant_for"], maintain_order=True)
        .sort("begin", "exchange_id", "meant_for")
        .group_by("meant_for", "service", maintain_order=True)
    ):
        hosts = sorted(set(rows["server_host"].to_list()))
        yield Finding(
            severity="notice",
            kind="handoffs",
            host=str(host),
            service=str(service),
            touches=frozenset(hosts),
            count=len(rows),
            **_evidence(rows, "critical_ns"),
            text=f"{times(len(rows), 'write')} meant for {service} on {host} went to handoffs on {listed(hosts)}",
            remedy="see why that server or disk was passed over; the replicators bring the copies home afterwards",
        )


def _written(requests: Requests, is_write: NDArray[np.bool_]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """How often each device was written to for each partition, and how many together, as `device_roles` takes it."""
    rows = np.flatnonzero(is_write)
    device, service = (
        _core.row_groups([requests.codes[name] for name in names])[0]
        for names in (["service", "server_host", "device"], ["service"])
    )
    group, partition = requests.group[rows], requests.partition[rows]
    number, first = _core.row_groups([device[group], partition])
    devices = requests.groups[group[first]].select("service", "server_host", "device")
    devices = devices.with_columns(
        partition=pl.Series(partition[first]), asked=pl.Series(np.bincount(number, minlength=len(first)))
    ).select(*DEVICE, "asked")
    kind = np.full(len(is_write), NONE, np.int32)
    kind[rows], of_kind = _core.row_groups([service[group], partition])
    schema = {"kind": pl.Int32, "replicas": pl.Int64, "often": pl.Int64}
    together = pl.DataFrame(_core.asked_together(requests.parent, kind), schema, orient="row")
    services = requests.groups["service"][group[of_kind]]
    together = together.select("replicas", "often", service=services.gather(together["kind"]))
    return devices, together


def _passed_over(writes: pl.DataFrame) -> pl.DataFrame:
    """`parent_span_id, service, partition, meant_for`: hosts with a primary that did not take a write."""
    place = ["service", "partition", "server_host", "device"]
    primaries = writes.filter(pl.col("role") == PRIMARY).select(place).unique()
    took = writes.filter(pl.col("status").is_between(200, 299)).select("parent_span_id", *place)
    groups = writes.filter(pl.col("role") == HANDOFF).select("parent_span_id", "service", "partition").unique()
    due = groups.join(primaries, on=["service", "partition"])
    missed = due.join(took, on=["parent_span_id", *place], how="anti")
    return missed.select("parent_span_id", "service", "partition", meant_for="server_host")


def _uneven(requests: Requests) -> Iterable[Finding]:
    """Servers that get much more than their peers of what clients wait for, and what of."""
    waited = requests.groups.filter(pl.col("waited") > 0).drop_nulls(_SERVER)
    counts = waited.group_by(_SERVER).agg(count=pl.col("waited").sum())
    hosts = pl.len().over("service")
    others = (pl.col("count").sum().over("service") - pl.col("count")) / (hosts - 1)
    counts = counts.filter(hosts > 1).with_columns(others=others)
    much = (pl.col("count") >= UNEVEN_LEAST) & (pl.col("count") >= UNEVEN_RATIO * pl.col("others"))
    for row in counts.filter(much).sort("count", *_SERVER, descending=[True, False, False]).iter_rows(named=True):
        same = (pl.col("server_host") == row["server_host"]) & (pl.col("service") == row["service"])
        here = requests.frame(requests.where(same) & requests.waited)
        cost = _evidence(here.with_columns(own=pl.min_horizontal("own_ns", "critical_ns")), "own")
        beyond = 1 - row["others"] / row["count"]
        yield Finding(
            severity="notice",
            kind="uneven_load",
            host=row["server_host"],
            service=row["service"],
            count=row["count"],
            **cost | {"cost_ns": round(cost["cost_ns"] * beyond)},
            text=f"{row['service']} on {row['server_host']} got {times(row['count'], 'request')}, where its peers got "
            f"{row['others']:,.0f} on average" + _popular(here),
            remedy="see whether the ring's weights, a load balancer or a few popular objects send them there",
        )


def _popular(here: pl.DataFrame) -> str:
    """What most of these requests are for, if it is one thing."""
    targets = here["target"].drop_nulls().value_counts(sort=True)
    target, count = targets.row(0) if len(targets) else ("", 0)
    return f"; {times(count, 'request')} of them for {target}" if count > POPULAR_SHARE * len(here) else ""


def _evidence(rows: pl.DataFrame, cost: str) -> dict[str, Any]:
    """Their time, what they cost, and the one that cost most."""
    worst = rows.sort(cost, "exchange_id", descending=[True, False], nulls_last=True).row(0, named=True)
    return {
        "connection_id": worst["connection_id"],
        "span_id": worst["exchange_id"],
        "from_trace_ns": rows["begin"].min(),
        "to_trace_ns": rows["ended"].max(),
        "cost_ns": int(rows[cost].sum() or 0),
    }
