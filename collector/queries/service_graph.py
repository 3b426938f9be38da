"""Builds the graph of calls between services and hosts, with counts for each edge.

The caller of an exchange is the service of its parent span. Without a parent it is the program that its User-Agent
names (a daemon such as `object-replicator`; `exchanges.client_service`), or else the host: a client. Layers correspond
to the depth at which a service mostly answers in clients' requests, so that requests run from left to right. Within a
layer, nodes are placed close to their callers and callees, by networkx.
"""

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.requests.outcomes import Outcome, is_abandoned, measured_ns
from collector.services.ends import UNCAPTURED

if TYPE_CHECKING:
    import networkx as nx

ORDER_SWEEPS = 4


class Node(Struct, frozen=True):
    """A service on a host, a service on all its hosts, or a client; its position in a picture of size 1 × 1."""

    name: str
    x: float
    y: float


class Edge(Struct, frozen=True):
    """The calls from one node to another."""

    caller: str
    callee: str
    exchanges_count: int
    failed_count: int  # this and the next two by `collector.requests.outcomes`
    abandoned_count: int
    unknown_count: int
    bytes: int  # both directions, heads included
    p50_ns: int  # this and the next without abandoned ones, if there are others
    p99_ns: int
    packets_count: int
    lost_count: int  # packets
    retransmitted_count: int


class HopCounts(Struct, frozen=True):
    """For each span: the number of its hops, of those lost, and of those sent again."""

    hops: NDArray[np.int64]
    lost: NDArray[np.int64]
    retransmitted: NDArray[np.int64]


class ServiceGraph(Struct, frozen=True):
    """Nodes, from the clients on, and edges, those with the most exchanges first."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def service_graph(ends: pl.DataFrame) -> ServiceGraph:
    """The graph of a trace.

    Arguments: `ends`, from `call_ends`.
    """
    took = measured_ns()
    rows = ends.group_by("caller", "callee").agg(
        exchanges_count=pl.len(),
        failed_count=(pl.col("outcome") == Outcome.FAILED).sum(),
        abandoned_count=is_abandoned().sum(),
        unknown_count=(pl.col("outcome") == Outcome.UNKNOWN).sum(),
        bytes=pl.col("bytes").sum(),
        p50_ns=took.quantile(0.5, "higher").cast(pl.Int64),
        p99_ns=took.quantile(0.99, "higher").cast(pl.Int64),
        packets_count=pl.col("packets_count").sum(),
        lost_count=pl.col("lost_count").sum(),
        retransmitted_count=pl.col("retransmitted_count").sum(),
    )
    ordered = rows.sort("exchanges_count", "caller", "callee", descending=[True, False, False])
    edges = tuple(Edge(**row) for row in ordered.iter_rows(named=True))
    return ServiceGraph(_place_nodes(edges, ends), edges)


def call_ends(spans: pl.DataFrame, counts: HopCounts, hosts_apart: bool) -> pl.DataFrame:
    """Both ends of every exchange: `request, depth, caller, callee, duration_ns, outcome, bytes, packets_count,
    lost_count, retransmitted_count, own` (no daemon asked).

    Arguments: `spans` as `SpanTrees.frame`, and `counts` of each; `hosts_apart`: a service on two hosts is two
    nodes.
    """
    host = pl.coalesce("server_host", "server_peer", pl.lit(UNCAPTURED))
    service = pl.when(pl.col("service").fill_null("") != "").then(pl.col("service"))
    on_host = pl.when(service.is_null()).then(host).otherwise(pl.format("{} on {}", service, host))
    callee = on_host if hosts_apart else service.fill_null(host)
    rows = spans.with_columns(
        callee=callee,
        packets_count=pl.Series(counts.hops[: len(spans)]),
        lost_count=pl.Series(counts.lost[: len(spans)]),
        retransmitted_count=pl.Series(counts.retransmitted[: len(spans)]),
    )
    parents = rows.select(parent_span_id="span_id", asked_by="callee", asked_on="server_host")
    rows = rows.join(parents, on="parent_span_id", how="left", maintain_order="left")
    same = pl.col("asked_by").is_not_null() & pl.col("asked_on").eq_missing(pl.col("client_host"))
    client, said = pl.coalesce("client_host", "client_peer", pl.lit(UNCAPTURED)), pl.col("client_service")
    itself = pl.format("{} on {}", said, client) if hosts_apart else said
    return rows.select(
        "request",
        "depth",
        "callee",
        "packets_count",
        "lost_count",
        "retransmitted_count",
        own=~pl.col("background").fill_null(value=False),
        caller=pl.when(same).then(pl.col("asked_by")).otherwise(pl.coalesce(itself, client)),
        duration_ns="duration_ns",
        outcome=pl.col("outcome").fill_null(str(Outcome.UNKNOWN)),
        bytes=pl.col("request_bytes").fill_null(0) + pl.col("response_bytes").fill_null(0),
    )


def _place_nodes(edges: tuple[Edge, ...], ends: pl.DataFrame) -> tuple[Node, ...]:
    """The nodes with their positions: pure callers on the left, then by the depth at which a node mostly answers."""
    if not edges:
        return ()
    import networkx as nx  # noqa: PLC0415  every `tracer report` would wait for it

    depth = pl.coalesce(pl.col("depth").filter("own").mode().min(), pl.col("depth").mode().min())
    layers = dict(ends.group_by("callee").agg(layer=depth + 1).iter_rows())
    graph = nx.DiGraph((edge.caller, edge.callee) for edge in edges)
    names: dict[int, list[str]] = {}
    for name in sorted(graph):
        names.setdefault(layers.get(name, 0), []).append(name)
    places = nx.multipartite_layout(graph, subset_key=_order_layers(graph, dict(sorted(names.items()))))
    every = np.array(list(places.values()))
    low, span = every.min(axis=0), np.maximum(np.ptp(every, axis=0), 1e-9)
    scaled = {name: (place - low) / span for name, place in places.items()}
    return tuple(Node(name, float(scaled[name][0]), float(1 - scaled[name][1])) for name in places)


def _order_layers(graph: "nx.DiGraph", layers: dict[int, list[str]]) -> dict[int, list[str]]:
    """The layers, each ordered so that nodes are close to their neighbours (the barycentre heuristic).

    Source: Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system structures" (1981).
    """
    ordered = {layer: list(names) for layer, names in layers.items()}
    for _ in range(ORDER_SWEEPS):
        for names in ordered.values():
            at = {name: (place + 0.5) / len(each) for each in ordered.values() for place, name in enumerate(each)}
            mean = {
                name: float(np.mean([at[each] for each in (*graph.predecessors(name), *graph.successors(name))]))
                for name in names
            }
            names.sort(key=mean.__getitem__)
    return ordered
