"""The page about how far the trace can be trusted: drops of captures, matching of packets, alignment of clocks."""

from dash import html
from dash.development.base_component import Component

from collector.queries import Lane
from viewer.matching_quality import connection_words, meanings_table, pairs_table, warning_line
from viewer.pages.address import Address
from viewer.pages.context import PageData
from viewer.pages.parts import heading, nothing, table
from viewer.wording import delay, duration, plural


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    pairing, summary = data.trace.pairing, data.trace.summary
    title = heading("Quality", "What was seen at both ends, what was not, and how well the hosts' clocks are known.")
    if not summary.hops_count:
        return [title, nothing("No packets in this trace", "Was the right interface captured while the traffic ran?")]
    summary_lines = [html.P(f"{pairing.words}; {pairing.hops_words}."), *(html.P(note) for note in pairing.notes)]
    return [
        title,
        html.Section([*summary_lines, *(warning_line(each) for each in summary.warnings)], className="card"),
        html.Section(
            [html.H2("By pair of hosts"), pairs_table(pairing.host_pairs), meanings_table()], className="card"
        ),
        _connections(data),
        _clocks(data),
    ]


def _connections(data: PageData) -> Component:
    worst = data.trace.pairing.worst_connections
    if not worst:
        return html.Section(html.P("No connection lost a packet or left one unpaired."), className="card")
    count = plural(data.trace.pairing.imperfect_connections_count, "connection")
    rows = [html.Li(html.A(connection_words(each), href=f"/connection/{each.connection_id}")) for each in worst]
    words = html.Small(f"the worst {len(worst):,} of {count}; each leads to its first packet in trouble")
    return html.Section([html.H2(["Losses and unpaired packets ", words]), html.Ul(rows)], className="card", id="worst")


def _offset(lane: Lane) -> str:
    """A clock's offset with its errors."""
    if lane.clock_offset_ns is None:
        return "unknown"
    return delay(lane.clock_offset_ns, lane.clock_uncertainty_ns, lane.clock_likely_error_ns)


def _clocks(data: PageData) -> Component:
    rows = [
        (
            lane.host,
            lane.clock,
            _offset(lane),
            plural(lane.packets_count, "packet"),
        )
        for lane in data.trace.lanes
    ]
    widest = [lane.clock_uncertainty_ns for lane in data.trace.lanes if lane.clock_uncertainty_ns is not None]
    words = f"no error bar is wider than {duration(max(widest))}" if widest else "no clock could be put in line"
    head = ("host", "clock", "offset from the reference", "seen")
    return html.Section([html.H2(["Clocks ", html.Small(words)]), table(head, rows)], className="card", id="clocks")
