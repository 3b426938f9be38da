"""Builds the graph of calls between services and hosts, with counts for each edge.

The caller of an exchange is the service of its parent span. Without a parent it is the program that its User-Agent
names (a daemon such as `object-replicator`; `exchanges.client_service`), or else the host: a client. Layers correspond
to the depth at which a service mostly answers in clients' requests, so that requests run from left to right. Within a
layer, nodes are placed close to their callers and callees, by networkx.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.execution.long_columns import LongColumns
from collector.queries.row_parts import DistinctRows, parts_of
from collector.requests.critical_path import NONE
from collector.requests.outcomes import Outcome, is_abandoned, measured_ns
from collector.services.ends import UNCAPTURED
from collector.trace.schema import ID_STRIDE_BITS

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

    hops: NDArray[np.uint32]
    lost: NDArray[np.uint32]
    retransmitted: NDArray[np.uint32]


class ServiceGraph(Struct, frozen=True):
    """Nodes, from the clients on, and edges, those with the most exchanges first."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def service_graph(ends: pl.DataFrame) -> ServiceGraph:
    """The graph of a trace.

    Arguments: `ends`, from `Calls.ends`.
    """
    took = measured_ns()
    rows = (
        ends.drop("request", "depth", "own", "pair")
        .group_by("caller", "callee")
        .agg(
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
    )
    ordered = rows.with_columns(pl.col("caller", "callee").cast(pl.String)).sort(
        "exchanges_count", "caller", "callee", descending=[True, False, False]
    )
    edges = tuple(Edge(**row) for row in ordered.iter_rows(named=True))
    return ServiceGraph(_place_nodes(edges, ends), edges)


class Calls(Struct, frozen=True):
    """Every exchange with what it cost, and both its ends as numbers."""

    rows: pl.DataFrame  # `request, depth, pair, duration_ns, outcome, bytes, packets_count, lost_count,
    # retransmitted_count, own` (no daemon asked)
    pairs: tuple[pl.DataFrame, pl.DataFrame]  # `caller, callee` of each `pair`; the second with hosts apart

    def ends(self, hosts_apart: bool) -> pl.DataFrame:
        """Every exchange with its `caller` and `callee`, as categories. Arguments: `hosts_apart`: a service on two
        hosts is two nodes."""
        names = self.pairs[hosts_apart].with_columns(pl.all().cast(pl.Categorical))
        return self.rows.with_columns(name.gather(self.rows["pair"]) for name in names)

    def requests_between(self, caller: str, callee: str, hosts_apart: bool) -> pl.Series:
        """The numbers of the requests that include a call from one node to another; "" is any."""
        fits = [pl.col(name) == node for name, node in (("caller", caller), ("callee", callee)) if node]
        pairs = self.pairs[hosts_apart].with_row_index("pair").filter(fits)["pair"]
        return self.rows.lazy().filter(pl.col("pair").is_in(pairs.implode())).select("request").collect().to_series()


_ENDS = ("service", "server_host", "server_peer", "client_host", "client_peer", "client_service")
_OF_CALLS = ("request", "depth", "duration_ns", "outcome", "request_bytes", "response_bytes", "background")
_COLUMNS = (
    *("request", "depth", "pair", "duration_ns", "bytes", "packets_count", "lost_count", "retransmitted_count", "own"),
)


def calls_of(spans: pl.DataFrame, counts: HopCounts, spill: Path | None = None) -> Calls:
    """The calls of a trace.

    Arguments: `spans` as `SpanTrees.frame`, and `counts` of each; where files go that hold what does not fit in memory.
    Memory: 50 bytes an exchange, of long tables in files; 30 beside while this runs.
    Raises: `ResourceError` if there is no room.
    """
    ends, pairs, outcomes = DistinctRows(), DistinctRows(), DistinctRows()
    both = pl.col("request_bytes").fill_null(0) + pl.col("response_bytes").fill_null(0)
    with LongColumns(spill) as kept:
        for part in parts_of(spans.select("span_id", "parent_span_id", *_ENDS)):
            kept.add(
                end=ends.numbers(part.select(_ENDS)),
                span_id=part["span_id"].to_numpy(),
                parent=part["parent_span_id"].fill_null(NONE).to_numpy(),
            )
        end = kept.whole("end")
        (parents,) = _core.places(kept.whole("span_id"), [kept.whole("parent")], ID_STRIDE_BITS)
        asked_by = np.append(end, np.int32(NONE))[parents]
        del parents
        begin = 0
        for part in parts_of(spans.select(_OF_CALLS)):
            here = slice(begin, begin + len(part))
            begin += len(part)
            pair = pl.DataFrame({"end": end[here], "asked_by": asked_by[here]})
            kept.add(
                request=part["request"].to_numpy(),
                depth=part["depth"].to_numpy(),
                pair=pairs.numbers(pair),
                duration_ns=part["duration_ns"].to_numpy(),
                outcome=outcomes.numbers(part.select(pl.col("outcome").fill_null(str(Outcome.UNKNOWN)))),
                bytes=part.select(both).to_series().to_numpy(),
                packets_count=counts.hops[here],
                lost_count=counts.lost[here],
                retransmitted_count=counts.retransmitted[here],
                own=part.select(~pl.col("background").fill_null(value=False)).to_series().to_numpy(),
            )
        rows = pl.DataFrame({name: kept.whole(name) for name in _COLUMNS})
        rows = rows.with_columns(outcome=outcomes.category(kept.whole("outcome")))
    named = [_names(pairs.frame(), ends.frame(), hosts_apart) for hosts_apart in (False, True)]
    return Calls(rows, (named[0], named[1]))


def _names(pairs: pl.DataFrame, ends: pl.DataFrame, hosts_apart: bool) -> pl.DataFrame:
    """The `caller` and the `callee` of each pair: an end, and the one that it was asked by, each a row of `ends`."""
    host = pl.coalesce("server_host", "server_peer", pl.lit(UNCAPTURED))
    service = pl.when(pl.col("service").fill_null("") != "").then(pl.col("service"))
    on_host = pl.when(service.is_null()).then(host).otherwise(pl.format("{} on {}", service, host))
    named = ends.with_columns(callee=on_host if hosts_apart else service.fill_null(host))
    named = named.with_columns(end=pl.int_range(pl.len(), dtype=pl.Int32))
    parents = named.select("end", asked_by="callee", asked_on="server_host")
    rows = pairs.rename({"asked_by": "parent"}).join(named, on="end", how="left", maintain_order="left")
    rows = rows.join(parents, left_on="parent", right_on="end", how="left", maintain_order="left")
    same = pl.col("asked_by").is_not_null() & pl.col("asked_on").eq_missing(pl.col("client_host"))
    client, said = pl.coalesce("client_host", "client_peer", pl.lit(UNCAPTURED)), pl.col("client_service")
    itself = pl.format("{} on {}", said, client) if hosts_apart else said
    caller = pl.when(same).then(pl.col("asked_by")).otherwise(pl.coalesce(itself, client))
    return rows.select("callee", caller=caller)


def _place_nodes(edges: tuple[Edge, ...], ends: pl.DataFrame) -> tuple[Node, ...]:
    """The nodes with their positions: pure callers on the left, then by the depth at which a node mostly answers."""
    if not edges:
        return ()
    import networkx as nx  # noqa: PLC0415  every `tracer report` would wait for it

    depth = pl.coalesce(pl.col("depth").filter("own").mode().min(), pl.col("depth").mode().min())
    layers = dict(ends.select("callee", "depth", "own").group_by("callee").agg(layer=depth + 1).iter_rows())
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
