"""The page about calls between services: their number, size, duration and losses."""

from dash import html
from dash.development.base_component import Component

from collector.queries import Edge, Node
from viewer.figures.service_graph import MOST_EDGES_BY_HOST, graph_figure, is_bad
from viewer.navigation import PREFIX
from viewer.pages.address import Address, link
from viewer.pages.context import PageData
from viewer.pages.parts import Row, chart, choices, heading, nothing, table
from viewer.wording import bytes_in_words, duration

HEAD = (
    *("call", "exchanges", "failed", "given up", "outcome unknown", "bytes", "p50", "p99", "packets"),
    *("lost", "sent again"),
)


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    load = data.trace.load
    title = heading(
        "Services",
        "From left to right by how deep in a request they answer; on a line: how many exchanges, and their median "
        "duration. Dashed: something was seen to fail or was lost. Click one to see its requests.",
    )
    apart = _hosts_apart(data, address)
    graph = load.graph(apart)
    if not graph.edges:
        hint = "Hosts that exchange packets are on the timeline; services are known by the requests they answer."
        return [title, nothing("No exchange between services was recognised", hint)]
    options = [
        ("services", address.link(nodes="services"), not apart),
        ("services on hosts", address.link(nodes="hosts"), apart),
    ]
    figure = graph_figure(graph, edge_link, node_link)
    rows = [_row(edge) for edge in graph.edges]
    return [
        title,
        choices("Nodes", options),
        chart("services", "Calls", figure, table(HEAD, rows)),
        html.Section([html.H2("Every call"), table(HEAD, rows)], className="card", id="calls"),
    ]


def edge_link(edge: Edge) -> str:
    """The requests with that call."""
    return link(f"{PREFIX}requests", caller=edge.caller, callee=edge.callee)


def node_link(node: Node) -> str:
    """The requests with a call to that node, or for a client from it."""
    end = "caller" if node.x == 0 else "callee"
    return link(f"{PREFIX}requests", **{end: node.name})


def _row(edge: Edge) -> Row:
    words = f"{edge.caller} → {edge.callee}"
    name = html.A(
        f"✗ {words}" if is_bad(edge) else words, href=edge_link(edge), className="bad" if is_bad(edge) else ""
    )
    return (
        name,
        f"{edge.exchanges_count:,}",
        f"{edge.failed_count:,}",
        f"{edge.abandoned_count:,}",
        f"{edge.unknown_count:,}",
        bytes_in_words(edge.bytes),
        duration(edge.p50_ns),
        duration(edge.p99_ns),
        f"{edge.packets_count:,}",
        f"{edge.lost_count:,}",
        f"{edge.retransmitted_count:,}",
    )


def _hosts_apart(data: PageData, address: Address) -> bool:
    """Whether a service is a node on each of its hosts: as the address states, or where all calls then have labels."""
    wanted = address.text("nodes")
    return wanted == "hosts" or (wanted != "services" and len(data.trace.load.graph(True).edges) <= MOST_EDGES_BY_HOST)
