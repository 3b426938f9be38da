"""Services as boxes, calls as arrows between them."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import log10

import plotly.graph_objects as go

from collector.queries import Edge, Node, ServiceGraph
from viewer.figures.frame import BAD, STYLES, TRANSPARENT, make_figure
from viewer.wording import bytes_in_words, compact, duration, outcome_words

Place = tuple[float, float]
NODE_PX = 62
HEIGHTS_PX = (380, 1_400)
MOST_EDGES_BY_HOST = 16
"""With more calls than this, services are not separated by host, unless the user asks for it."""
SHARES = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18)
"""How far along an arrow its head and label may be."""
WIDTH_PX, LABEL_PX = 900, (84, 24)
"""Of the picture on a small screen, and of a label: one that would hide another is left to hovering and the table."""
NAME_PX = 36
"""So far below a node an arrow's label, which is above its place, would hide the node's name."""
LOOP_HEIGHT = 0.09
"""Height above its node of the label for calls of a service to itself."""


def graph_figure(graph: ServiceGraph, edge_link: Callable[[Edge], str], node_link: Callable[[Node], str]) -> go.Figure:
    """The graph; calls that failed or lost packets are dashed and in another colour. A click on what has a link follows
    it."""
    places = {node.name: (node.x, node.y) for node in graph.nodes}
    figure = go.Figure()
    most = max((edge.exchanges_count for edge in graph.edges), default=1)
    layer = max((sum(other.x == node.x for other in graph.nodes) for node in graph.nodes), default=1)
    height = min(max(NODE_PX * layer + 90, HEIGHTS_PX[0]), HEIGHTS_PX[1])
    handles = _handle_places(graph.edges, places, height / 1.3)
    for edge, (handle, _) in zip(graph.edges, handles, strict=True):
        figure.add_trace(_arrow(edge, places, handle, most))
    figure.add_trace(_handles(graph, handles, edge_link))
    figure.add_trace(_nodes(graph, node_link))
    return make_figure(
        figure,
        height,
        showlegend=False,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        xaxis={"visible": False, "range": [-0.14, 1.14]},
        yaxis={"visible": False, "range": [-0.12, 1.14]},
    )


def is_bad(edge: Edge) -> bool:
    """Whether a request failed or a packet was lost on it. What was sent again alone is no proof of either."""
    return bool(edge.failed_count or edge.lost_count)


def edge_words(edge: Edge) -> str:
    """All that is known of a call."""
    lost = f", {edge.lost_count:,} of {edge.packets_count:,} packets lost" if edge.lost_count else ""
    lost += f", {edge.retransmitted_count:,} sent again" if edge.retransmitted_count else ""
    outcomes = outcome_words(edge.failed_count, edge.abandoned_count, edge.unknown_count)
    return (
        f"{edge.caller} → {edge.callee}: {edge.exchanges_count:,} exchanges{outcomes}, {bytes_in_words(edge.bytes)}, "
        f"p50 {duration(edge.p50_ns)}, p99 {duration(edge.p99_ns)}{lost}"
    )


def _handle_places(edges: Sequence[Edge], places: Mapping[str, Place], height_px: float) -> list[tuple[Place, bool]]:
    """A place on each arrow for its head, and whether its label has room there: as far from all others as can be."""
    names = [(x, y - NAME_PX / height_px) for x, y in places.values()]
    taken, found = [*places.values(), *names], list[tuple[Place, bool]]()

    def room(place: Place) -> float:
        """How many labels fit between it and what is nearest."""
        apart = ((abs(x - place[0]) * WIDTH_PX, abs(y - place[1]) * height_px) for x, y in taken)
        return min(max(dx / LABEL_PX[0], dy / LABEL_PX[1]) for dx, dy in apart)

    for edge in edges:  # most exchanges first
        (x1, y1), (x2, y2) = places[edge.caller], places[edge.callee]
        loop = LOOP_HEIGHT if edge.caller == edge.callee else 0.0
        place = max(((x1 + (x2 - x1) * share, y1 + (y2 - y1) * share + loop) for share in SHARES), key=room)
        found.append((place, room(place) >= 1))
        taken.append(place)
    return found


def _arrow(edge: Edge, places: Mapping[str, Place], handle: Place, most: int) -> go.Scatter:
    (x1, y1), (x2, y2) = places[edge.caller], places[edge.callee]
    look = BAD if is_bad(edge) else STYLES[0]
    width = 1 + 3 * log10(1 + edge.exchanges_count) / log10(1 + most)
    if edge.caller == edge.callee:  # a loop above its node
        x, y = [x1 - 0.02, x1 - 0.03, x1 + 0.03, x1 + 0.02], [y1 + 0.02, y1 + LOOP_HEIGHT, y1 + LOOP_HEIGHT, y1 + 0.02]
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


def _handles(graph: ServiceGraph, handles: Sequence[tuple[Place, bool]], link: Callable[[Edge], str]) -> go.Scatter:
    """What is pointed at on each arrow, and its label."""
    words = [f"{compact(edge.exchanges_count)} · {duration(edge.p50_ns, 2)}" for edge in graph.edges]
    return go.Scatter(
        x=[x for (x, _), _ in handles],
        y=[y for (_, y), _ in handles],
        mode="markers+text",
        marker={"size": 22, "color": TRANSPARENT},
        text=[text if roomy else "" for text, (_, roomy) in zip(words, handles, strict=True)],
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
