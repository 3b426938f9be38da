"""The layout of the page, built once for a trace. Texts from captures go through Dash's components, which escape
them."""

import ipaddress
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from collector.queries import (
    KINDS,
    STATES,
    Annotations,
    ArrowClass,
    Lane,
    Mark,
    MessageKinds,
    Request,
    Story,
    TraceView,
    Usage,
    faults,
    findings,
    in_words,
    load_steps,
    uncovered_marks,
)
from viewer.annotations import annotations_switch
from viewer.controls import action_button, class_button, request_button, toggle_button
from viewer.matching_quality import quality_line, quality_parts, warning_line
from viewer.navigation import TIMELINE, navigation, period_edges
from viewer.revisions import revision_name
from viewer.serialise import element_trees
from viewer.toolbar import (
    clock_switch,
    lane_menu,
    live_state,
    packet_fields,
    packet_list,
    save_menu,
    search_box,
    upload_dialog,
    upload_form,
)
from viewer.wording import (
    KIND_NAMES,
    compact,
    duration,
    duration_words,
    error_words,
    exact_time,
    facts_line,
    plural,
    request_title,
)

REQUESTS_LISTED = 200
RULER_PX = 30
"""Of the strip above the lanes that holds the labels of the ticks."""
TITLE_END = 14
"""Letters of a request's title that are always seen."""
PART_COLOURS = 10
LEGEND_SHARE = 0.015
"""Parts of the story below this are named only in the list of all of them."""
LEGEND = (
    (ArrowClass.DATA, "data", "Segments that carry bytes"),
    (ArrowClass.HANDSHAKE, "SYN, FIN", "Opening and closing of connections"),
    (ArrowClass.ACK, "ACK", "Acknowledgements, keepalives and window probes without bytes"),
    (ArrowClass.RETRANSMISSION, "sent again", "Retransmissions: the same bytes sent once more (thick)"),
    (ArrowClass.LOST, "lost, reset", "Sent but never arrived (dashed, ×), and connection resets"),
    (
        ArrowClass.ONE_SIDED,
        "one end only",
        "Seen at one end only: outside the other capture, dropped by it, or ambiguous",
    ),
    (ArrowClass.EARLY, "early", "Received before it was sent: so far, the clocks are proven wrong (red, thick)"),
)
ACTIONS = (
    ("‹", "previous-problem", "Previous problem (N)"),
    ("problem ›", "next-problem", "Next problem (n)"),
    ("fit", "fit", "The whole trace (0)"),
    ("packets", "packets", "The packets as a table (l)"),
    ("◐", "theme", "Light or dark (t)"),
    ("?", "help", "Keys (?)"),
)
KEYS = (
    ("wheel, W S, ↑ ↓", "zoom, at the cursor"),
    ("drag, A D, ← →", "pan; also shift + wheel"),
    ("double click", "zoom in there"),
    ("0", "the whole trace"),
    ("click", "an arrow: its packet, and its request lights up"),
    ("f", "fit the selected request"),
    ("y", "why the selected request took so long, against others of its class"),
    ("b", "how slow requests were and how many at once, or the counts of packets alone"),
    ("g", "colour by whose request a packet is of: a client's, or background work"),
    ("n, N", "next, previous problem"),
    (". ,", "next, previous packet of the selected packet's connection"),
    ("/, Enter, Shift+Enter", "search; next, previous hit"),
    ("u", "only the packets of requests that the search finds, or all again"),
    ("l", "the packets of the request, or in view, as a table"),
    ("x", "explain the selected packet, field by field"),
    ("j", "lines of logs and spans of other tracers, or none"),
    ("[ ]", "next, previous line of a log or span"),
    ("e", "save: picture, page, table, capture"),
    ("k", "copy a link to what is seen, with a note"),
    ("p", "how well packets were paired"),
    ("o", "open captures; or drop them on the page"),
    ("Space", "pause or follow a live trace"),
    ("c", "the hosts' own clocks, or one timescale"),
    ("Alt ↑ ↓", "on a host's name: move it; Enter splits it, Shift+Enter by process, Delete hides it"),
    (
        "F2, Space, m",
        "on a host's name: rename it (or double click); choose it (or Ctrl and click), merge what is chosen; Ctrl Z",
    ),
    ("t", "light or dark"),
    ("Esc", "deselect, close"),
    ("?", "this list"),
)


def page(trace: TraceView, runs: Sequence[Path] = (), followed: bool = False, *, in_series: bool = False) -> Component:
    """Everything on the page. `runs`: folders of the load generator's. `followed`: the page follows newer
    revisions. `in_series`: the trace is that of a period."""
    return html.Div(
        [
            dcc.Store(id="meta", data={**page_meta(trace, runs), "followed": followed}),
            dcc.Store(id="selection"),
            dcc.Store(id="started"),
            dcc.Store(id="renewed"),
            navigation(TIMELINE.path, in_series=in_series),
            html.Div(live_state(), id="live"),
            html.Header(head(trace), id="head"),
            _bar(trace, followed),
            _minimap(),
            html.Main([_timeline(trace, in_series=in_series), _panel(trace)]),
            packet_list(),
            html.Div(id="tip", role="status"),
            html.Div(id="banner", role="alert"),
            html.Dialog(id="help"),
            html.Dialog(id="pairing", **_with_name("How well packets were paired")),
            *([upload_dialog()] if followed else []),
        ],
        id="page",
    )


def page_meta(trace: TraceView, runs: Sequence[Path] = ()) -> dict[str, object]:
    """What the timeline in the browser needs to know from the start; times in ns since the trace's start."""
    summary, command = trace.summary, trace.command
    return {
        "made": revision_name(trace),
        "startNs": f"{trace.start_ns}",
        "duration": trace.duration_ns,
        "lanes": [lane.host for lane in trace.lanes],
        **_lanes_meta(trace),
        "typical": trace.typical_delay_ns.tolist(),
        "kinds": [KIND_NAMES[kind] for kind in KINDS],
        "messages": [kind.name.lower() for kind in MessageKinds if kind.name],
        "states": [str(state) for state in STATES],
        "classCounts": [compact(count) for count in summary.class_counts],
        "hops": summary.hops_count,
        "roots": summary.roots_count,
        "firstHop": summary.first_hop_ns,
        "lastHop": summary.last_hop_ns,
        "rulerHeight": RULER_PX,
        "clocksApart": trace.clocks_apart_ns,
        "strips": list(Usage(trace).names),
        "findings": [_mark(each) for each in findings(trace)],
        "uncovered": [_mark(each) for each in uncovered_marks(trace)],
        "faults": [_mark(each) for each in faults(trace)],
        "load": [_mark(each) for each in load_steps(trace, runs)],
        "command": command
        and {"text": shlex.join(command.argv), "lane": command.lane, "from": command.from_ns, "to": command.to_ns},
        "parts": {
            "requests": element_trees(request_list(trace)),
            "pairing": element_trees(quality_parts(trace.pairing, trace.summary.warnings)),
            "help": element_trees(_help()),
        },
        "requestTimes": [[each.number, each.start_ns, each.end_ns] for each in trace.requests(REQUESTS_LISTED)],
    }


def _mark(mark: Mark) -> dict[str, object]:
    return {"kind": mark.kind, "lane": mark.lane, "from": mark.from_ns, "to": mark.to_ns, "text": mark.text}


def _lanes_meta(trace: TraceView) -> dict[str, object]:
    """Between which ends packets pass, and by what hosts may be grouped."""
    pairs = trace.pairs
    outward = [next((each for each in lane.addresses if not each.startswith("127.")), "") for lane in trace.lanes]
    return {
        "pairs": np.stack((pairs.source, pairs.target), axis=1).tolist(),
        "pairServices": np.stack((pairs.source_service, pairs.target_service), axis=1).tolist(),
        "services": list(trace.services),
        "pairProcesses": np.stack((pairs.source_process, pairs.target_process), axis=1).tolist(),
        "processes": list(trace.processes),
        "ends": trace.ends.tolist() if trace.counted_by_end else None,
        "laneGroups": {
            "role": [", ".join(lane.services) or "clients" for lane in trace.lanes],
            "prefix": [without_number(lane.host) for lane in trace.lanes],
            "subnet": [subnet_of(address) for address in outward],
        },
    }


def head(trace: TraceView) -> list[Component]:
    """The story and the facts, on top of the page."""
    summary = trace.summary
    brand = html.Span([html.B("Twintap"), f" {summary.name}"], className="brand")
    facts = " · ".join([*facts_line(summary, len(trace.lanes)), ""])
    return [
        html.H1(_with_code(trace.story.sentence)),
        _story_bar(trace.story),
        html.P([brand, facts, quality_line(trace.pairing), *_reads(trace)], id="facts"),
        *(warning_line(each) for each in summary.warnings),
    ]


def _reads(trace: TraceView) -> list[Component]:
    """What was read of a trace on an object store; the page renews it with each answer."""
    if trace.reads is None:
        return []
    return [html.Span(f"read {trace.reads.words}", id="reads", title=f"Read of {trace.url} by this viewer")]


def _with_code(text: str) -> list[str | Component]:
    """What stands between backticks as code."""
    return [html.Code(part) if at % 2 else part for at, part in enumerate(text.split("`"))]


def _story_bar(story: Story) -> Component:
    """The story's parts as one bar, as long as the page, a legend of the larger ones, the largest first, and a list."""
    whole = max(1, sum(part.duration_ns for part in story.parts))
    parts = [(at % PART_COLOURS, part) for at, part in enumerate(story.parts) if part.duration_ns > 0]
    texts = {part: part.words for _, part in parts}
    bar = [
        html.Div(
            className=f"part part-{colour}",
            style={"flexGrow": part.duration_ns / whole},
            title=f"{part.label}: {texts[part]}",
        )
        for colour, part in parts
    ]
    legend = [
        html.Span([html.I(className=f"part-{colour}"), f"{part.label} ", html.B(in_words(part.duration_ns))])
        for colour, part in sorted(parts, key=lambda each: -each[1].duration_ns)
        if part.duration_ns >= LEGEND_SHARE * whole
    ]
    rows = [
        html.Tr([html.Td(html.I(className=f"part-{colour}")), html.Td(part.label), html.Td(texts[part])])
        for colour, part in parts
    ]
    every = html.Details(
        [html.Summary(f"all {len(parts)} parts ▾"), html.Div(html.Table(html.Tbody(rows), className="figures"))],
        id="parts",
        className="menu",
    )
    foot = [html.P(legend, className="parts-legend"), *([every] if len(parts) > len(legend) else [])]
    return html.Div([html.Div(bar, className="parts"), html.Div(foot, className="parts-foot")], id="story")


def _minimap() -> Component:
    """The whole trace, and the window of it that the timeline shows."""
    label: dict[str, Any] = {"aria-label": "The whole trace"}
    title = "The whole trace; drag the window. Orange: how much slower than usual requests were"
    return html.Div(html.Canvas(id="minimap"), id="minimap-box", role="region", title=title, **label)


def _bar(trace: TraceView, followed: bool) -> Component:
    counts = trace.summary.class_counts
    chips = [
        class_button(
            [html.Canvas(className="chip", width=44, height=24), text, html.Small(compact(counts[kind]))],
            int(kind),
            f"{what}: {counts[kind]:,}. Click to hide or show.",
        )
        for kind, text, what in LEGEND
        if kind is not ArrowClass.EARLY or counts[kind] or trace.clocks_apart_ns
    ]
    chips += [*_bands_switch(trace), *_background_switch(trace), *annotations_switch(Annotations(trace))]
    actions = [action_button(text, action, title) for text, action, title in ACTIONS]
    more = [action_button("open…", "open-captures", "Open captures of several hosts (o)")] if followed else []
    return html.Nav(
        [
            html.Div(chips, id="legend"),
            html.Div(
                [*clock_switch(trace.clocks_apart_ns), *actions, *more, lane_menu(), save_menu()],
                id="actions",
            ),
        ],
        id="bar",
    )


def _bands_switch(trace: TraceView) -> list[Component]:
    """Shows or hides how slow requests were and how many at once; not of a trace that is far away, whose requests would
    all be read for it."""
    if trace.reads is not None or not trace.summary.roots_count:
        return []
    title = (
        "Where packets are counted: upwards from each host that serves how slow its requests were (p99, times as long "
        "as usual; full at 32), downwards how many at once (b)"
    )
    return [toggle_button([html.Canvas(className="chip", width=44, height=24), "slow, at once"], "bands", title)]


def _background_switch(trace: TraceView) -> list[Component]:
    """Colours arrows by whose request they are of, where not all are clients'."""
    others = trace.summary.roots_count - trace.summary.requests_count
    if trace.reads is not None or not others:
        return []
    title = (
        "Colour arrows by whose request they are of: clients' requests blue, background work (replicators, updaters) "
        "brown and thick, the rest grey; problems stay as they are (g)"
    )
    return [toggle_button([html.Canvas(className="chip", width=44, height=24), "background"], "background", title)]


def _timeline(trace: TraceView, *, in_series: bool) -> Component:
    prefix = common_prefix([service for lane in trace.lanes for service in lane.services])
    empty = [] if trace.summary.hops_count else [_empty()]
    return html.Section(
        [
            html.Div(
                [
                    html.Div(html.Div(), id="lane-scroll"),
                    html.Button("", id="merge-chosen", title="Show the chosen hosts as one row", hidden=True),
                    *(_lane_label(lane, prefix) for lane in trace.lanes),
                ],
                id="lanes",
            ),
            html.Div(
                [
                    html.Canvas(id="arrows", tabIndex="0", role="application", **_label(trace)),
                    html.Div(id="cursor"),
                    html.Div(id="base"),
                    html.Div(id="nowhere", role="status"),
                    html.Div(id="note", role="note"),
                    html.Span("loading…", id="badge", role="status"),
                    *empty,
                    *(period_edges() if in_series else []),
                ],
                id="plot",
            ),
        ],
        id="timeline",
    )


def _with_name(text: str) -> dict[str, Any]:
    return {"aria-label": text}


def _label(trace: TraceView) -> dict[str, Any]:
    text = (
        f"Timeline of {plural(trace.summary.hops_count, 'packet')} between {plural(len(trace.lanes), 'host')}. "
        "Arrow keys move and zoom, n goes to the next problem; the list of requests beside it holds the same as text."
    )
    return _with_name(text)


def common_prefix(services: list[str]) -> str:
    """The first word that the names of all services share, with its hyphen: `swift-`; nothing for a single name."""
    prefixes = {"".join(service.partition("-")[:2]) for service in services}
    shared = prefixes.pop() if len(prefixes) == 1 < len(set(services)) else ""
    return shared if shared.endswith("-") else ""


def without_number(host: str) -> str:
    """What alike hosts share: `storage` of `storage12`, `storage.lab` of `storage-12.lab`, `10.0.0` of `10.0.0.5`."""
    is_address = ":" in host or host.replace(".", "").isdecimal()
    name, dot, domain = (host, "", "") if is_address else host.partition(".")
    prefix = name.rstrip("0123456789").rstrip("-_.")
    return f"{prefix}{dot}{domain}" if prefix else host


def subnet_of(address: str) -> str:
    """The network that an address is taken to be of: /24, or /64 of IPv6."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return "no address"
    return str(ipaddress.ip_network((known, 24 if known.version == 4 else 64), strict=False))


def _lane_label(lane: Lane, prefix: str) -> Component:
    under = ", ".join(service.removeprefix(prefix) for service in lane.services)
    under = under if lane.packets_count else "no packets"
    clock = lane.clock
    if lane.clock_uncertainty_ns is not None and lane.clock_offset_ns is not None:
        errors = error_words(lane.clock_uncertainty_ns, lane.clock_likely_error_ns)
        clock += f": offset {duration(lane.clock_offset_ns)} {errors}"
    addresses = ", ".join(lane.addresses) or "address unknown"
    outward = [each for each in lane.addresses if not each.startswith("127.") and each != "::1"]
    services = ", ".join(lane.services) or "serves nothing seen"
    title = f"{lane.host} ({addresses}): {services}; {plural(lane.packets_count, 'packet')}; {clock}"
    return html.Div(
        [html.B(lane.host), html.Span(", ".join(outward[:2])), html.Span(under, className="services")],
        className="lane",
        title=title,
    )


def _panel(trace: TraceView) -> Component:
    return html.Aside(
        [
            search_box(),
            html.Div(id="request-details"),
            html.Div(id="request-waterfall"),
            html.Div(id="packet-details"),
            packet_fields(),
            html.Div(id="requests"),
        ],
        id="panel",
    )


def request_list(trace: TraceView) -> list[Component]:
    """The slowest requests, each a button that selects it."""
    requests, summary = trace.requests(REQUESTS_LISTED), trace.summary
    if not requests:
        text = (
            "No requests were recognised in these packets. The arrows are all there; `tracer report` gives the reasons."
        )
        text = text if summary.hops_count else "Where there are no packets, there are no requests."
        return [html.H2("Requests"), html.P(text, className="hint")]
    longest = max(1, requests[0].duration_ns)
    count = summary.requests_count
    note = f"the {len(requests)} slowest of {count:,}" if count > len(requests) else "slowest first"
    rows = [html.Li(_request_row(request, longest)) for request in requests]
    others = summary.roots_count - summary.requests_count
    whose = "of no client (daemons' own, and calls whose request is not known)"
    more = f" The page Requests has {plural(others, 'request')} {whose}, too."
    hint = html.P(
        "Click a request, or an arrow, to see where its time went." + (more if others else ""), className="hint"
    )
    return [html.H2(["Requests ", html.Small(note)]), hint, html.Ol(rows)]


def _request_row(request: Request, longest_ns: int) -> Component:
    trouble = f", {plural(request.problems_count, 'problem')}" if request.problems_count else ""
    detail = f"{exact_time(request.start_ns)} · {request.client or '?'} → {request.server or '?'}{trouble}"
    return request_button(
        [
            _title(request_title(request)),
            html.Span(duration_words(request.duration_ns, ended=request.ended), className="how-long"),
            html.Span(html.I(style={"width": f"{100 * request.duration_ns / longest_ns:.2f}%"}), className="bar"),
            html.Small(detail),
        ],
        request.number,
    )


def _title(text: str) -> Component:
    """The text in one line; a long text loses its middle, since its ends distinguish requests."""
    return html.Span([html.Span(text[:-TITLE_END]), html.Span(text[-TITLE_END:])], className="what", title=text)


def start_page() -> Component:
    """The page without a trace: where captures are dropped, and what makes a trace otherwise."""
    ways = [
        ("tracer record -- COMMAND", "captures on all hosts of a cluster while a command runs"),
        ("tracer replay -o TRACE FILE…", "makes a trace of captures that are on this machine"),
        ("tracer view TRACE", "opens a trace"),
    ]
    rows = [html.Tr([html.Td(html.Code(words)), html.Td(what)]) for words, what in ways]
    return html.Div(
        [
            dcc.Store(id="started"),
            html.H1([html.B("Twintap"), " shows each packet of a distributed system on its way from host to host"]),
            html.Section(upload_form(), className="card"),
            html.H2("Or, in a terminal"),
            html.Table(html.Tbody(rows)),
            html.Div(id="banner", role="alert"),
        ],
        id="start",
    )


def _empty() -> Component:
    return html.Div(
        [
            html.H2("No packets in this trace"),
            html.P("Was the right interface captured, and did the traffic run while the agents did?"),
            html.P(["Try: ", html.Code("tracer record -- COMMAND"), " or ", html.Code("tracer replay DIR")]),
        ],
        className="empty",
    )


def _help() -> list[Component]:
    rows = [html.Tr([html.Th(keys), html.Td(what)]) for keys, what in KEYS]
    close = action_button("close", "close")
    return [html.H2("Keys and gestures"), html.Table(html.Tbody(rows)), close]
