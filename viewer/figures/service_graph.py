"""Services as boxes, calls as arrows between them."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import log10

import plotly.graph_objects as go

from collector.queries import Edge, Node, ServiceGraph
from viewer.figures.frame import BAD, CLEAR, STYLES, framed
from viewer.wording import bytes_in_words, compact, duration

Place = tuple[float, float]
NODE_PX = 62
HEIGHTS_PX = (380, 1_400)
LABELLED = 16
"""With more calls than this their labels would hide each other: hovering and the table tell."""
HANDLES = (0.3, 0.7)
"""How far along an arrow its head and label are: spread between these, so that those of one layer do not meet."""


def graph_figure(graph: ServiceGraph, edge_link: Callable[[Edge], str], node_link: Callable[[Node], str]) -> go.Figure:
    """The graph; calls that failed or lost packets are dashed and in another colour. A click on what has a link follows
    it."""
    places = {node.name: (node.x, node.y) for node in graph.nodes}
    figure = go.Figure()
    most = max((edge.exchanges_count for edge in graph.edges), default=1)
    handles = _handle_places(graph.edges, places)
    for edge, handle in zip(graph.edges, handles, strict=True):
        figure.add_trace(_arrow(edge, places, handle, most))
    figure.add_trace(_handles(graph, handles, edge_link))
    figure.add_trace(_nodes(graph, node_link))
    layer = max((sum(other.x == node.x for other in graph.nodes) for node in graph.nodes), default=1)
    height = min(max(NODE_PX * layer + 90, HEIGHTS_PX[0]), HEIGHTS_PX[1])
    return framed(
        figure,
        height,
        showlegend=False,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        xaxis={"visible": False, "range": [-0.14, 1.14]},
        yaxis={"visible": False, "range": [-0.12, 1.14]},
    )


def is_bad(edge: Edge) -> bool:
    """Whether something went wrong on it."""
    return bool(edge.failed_count or edge.lost_count)


def edge_words(edge: Edge) -> str:
    """All that is known of a call."""
    lost = f", {edge.lost_count:,} of {edge.packets_count:,} packets lost or sent again" if edge.lost_count else ""
    failed = f", {edge.failed_count:,} failed" if edge.failed_count else ""
    return (
        f"{edge.caller} → {edge.callee}: {edge.exchanges_count:,} exchanges{failed}, {bytes_in_words(edge.bytes)}, "
        f"p50 {duration(edge.p50_ns)}, p99 {duration(edge.p99_ns)}{lost}"
    )


def _handle_places(edges: Sequence[Edge], places: Mapping[str, Place]) -> list[Place]:
    """A place on each arrow; of those between the same two layers each is further along than the one above it."""
    groups: dict[tuple[float, float], list[int]] = {}
    for at, edge in enumerate(edges):
        groups.setdefault((places[edge.caller][0], places[edge.callee][0]), []).append(at)
    found = [(0.0, 0.0)] * len(edges)
    for group in groups.values():
        group.sort(key=lambda at: -places[edges[at].caller][1] - places[edges[at].callee][1])
        for rank, at in enumerate(group):
            (x1, y1), (x2, y2) = places[edges[at].caller], places[edges[at].callee]
            share = HANDLES[0] + (HANDLES[1] - HANDLES[0]) * (rank + 0.5) / len(group)
            loop = 0.09 if edges[at].caller == edges[at].callee else 0.0
            found[at] = (x1 + (x2 - x1) * share, y1 + (y2 - y1) * share + loop)
    return found


def _arrow(edge: Edge, places: Mapping[str, Place], handle: Place, most: int) -> go.Scatter:
    (x1, y1), (x2, y2) = places[edge.caller], places[edge.callee]
    look = BAD if is_bad(edge) else STYLES[0]
    width = 1 + 3 * log10(1 + edge.exchanges_count) / log10(1 + most)
    if edge.caller == edge.callee:  # a loop above its node
        x, y = [x1 - 0.02, x1 - 0.03, x1 + 0.03, x1 + 0.02], [y1 + 0.02, y1 + 0.09, y1 + 0.09, y1 + 0.02]
    else:
        x, y = [x1, handle[0], x2], [y1, handle[1], y2]
    return go.Scatter(
        x=x,
        y=y,
        mode="lines+markers",
        line={"color": look.colour, "width": width, "dash": look.dash if is_bad(edge) else "solid"},
        marker={
            "symbol": "arrow",
            "angleref": "previous",
            "color": look.colour,
            "line": {"width": 0},
            "size": [0, 14, 0] if len(x) == 3 else [0, 0, 0, 12],
        },
        opacity=0.8,
        hoverinfo="skip",
    )


def _handles(graph: ServiceGraph, places: Sequence[Place], link: Callable[[Edge], str]) -> go.Scatter:
    """What is pointed at on each arrow, and its label."""
    labelled = len(graph.edges) <= LABELLED
    return go.Scatter(
        x=[x for x, _ in places],
        y=[y for _, y in places],
        mode="markers+text" if labelled else "markers",
        marker={"size": 22, "color": CLEAR},
        text=[f"{compact(edge.exchanges_count)} · {duration(edge.p50_ns, 2)}" for edge in graph.edges],
        textposition="top center",
        textfont={"size": 11},
        customdata=[link(edge) for edge in graph.edges],
        hovertext=[_hover(edge) for edge in graph.edges],
        hoverinfo="text",
    )


def _nodes(graph: ServiceGraph, link: Callable[[Node], str]) -> go.Scatter:
    return go.Scatter(
        x=[node.x for node in graph.nodes],
        y=[node.y for node in graph.nodes],
        mode="markers+text",
        marker={"symbol": "square", "size": 20, "color": STYLES[2].colour, "line": {"width": 0}},
        text=[escape(node.name) for node in graph.nodes],
        textposition="bottom center",
        textfont={"size": 12, "weight": "bold"},
        customdata=[link(node) for node in graph.nodes],
        hovertext=[f"{escape(node.name)}: click for its requests" for node in graph.nodes],
        hoverinfo="text",
    )


def _hover(edge: Edge) -> str:
    """The same in lines."""
    return escape(edge_words(edge)).replace(", ", "<br>").replace(": ", "<br>", 1)
