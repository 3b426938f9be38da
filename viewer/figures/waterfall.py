"""The waterfall of a request: one bar for each span, from its first packet to its last, divided into phases."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

import plotly.graph_objects as go

from collector.queries import Span
from viewer.figures.frame import unit_of
from viewer.ledger import on_critical_path, place
from viewer.wording import answer_words, duration

MOST_SPANS = 200
ROW_PX = 38
OFF_PATH_OPACITY = 0.35
PHASES = (
    ("connecting", "#8b5cf6"),
    ("not yet asked", "#9aa1ac"),
    ("request on its way", "#2f81f7"),
    ("at work", "#0e9384"),
    ("answer on its way", "#5b9bf8"),
)
"""Name and colour, in the order in which they follow each other; until it asks, the time is the client's own."""
UNCERTAIN_COLOUR = "#c27c00"
"""Of the frame around a span whose parent is uncertain; 3:1 on both papers."""
SILENCES = {
    "idle": "nothing on its way: the sender had nothing to send",
    "held": "nothing on its way: TCP held the sender (window, delayed ACK)",
    "unread": "nothing on its way: the receiver did not read (window closed)",
}
"""Why none of a message's bytes was on the way, by `Silence.cause`."""
SILENCE_COLOURS = {"idle": "#aab1bd", "held": "#be185d", "unread": "#ea580c"}
"""Seen on both papers, and none a shade of a phase's."""
Interval = tuple[int, int]


def waterfall_figure(spans: Sequence[Span]) -> go.Figure:
    """The first `MOST_SPANS` spans of a request, root on top, times from the root's start.

    A bar's `customdata` is where it begins and ends in the trace, ns.
    """
    shown = spans[:MOST_SPANS]
    start_ns, end_ns = spans[0].start_ns, max(span.end_ns for span in spans)
    unit_ns, unit = unit_of(end_ns - start_ns)
    layout = go.Layout(
        annotations=[
            _title(span, row) for row, span in enumerate(shown)
        ],  # at once: one by one, each costs all before it
        shapes=[_dashed_line(span, row, start_ns, unit_ns) for row, span in enumerate(shown) if span.doubt],
        barmode="overlay",
        height=ROW_PX * len(shown) + 40,
        margin={"l": 4, "r": 8, "t": 0, "b": 32},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        dragmode=False,
        font={"family": "system-ui, sans-serif", "size": 12},
        hoverlabel={"align": "left"},
        xaxis={"title": {"text": unit, "standoff": 4}, "fixedrange": True, "zeroline": False, "rangemode": "tozero"},
        yaxis={"visible": False, "fixedrange": True, "range": [len(shown) - 0.35, -0.6]},
    )
    bars = [_bars(shown, phase, start_ns, unit_ns) for phase in range(len(PHASES))]
    silent = [_silent_bars(shown, cause, start_ns, unit_ns) for cause in SILENCES]
    return go.Figure([*bars, *(trace for trace in silent if trace.x)], layout)


def _dashed_line(span: Span, row: int, start_ns: int, unit_ns: int) -> go.layout.Shape:
    """A dashed frame around a span whose parent is uncertain."""
    begin, end = ((at - start_ns) / unit_ns for at in (span.start_ns, span.end_ns))
    line = {"color": UNCERTAIN_COLOUR, "dash": "dash", "width": 1.5}
    return go.layout.Shape(type="rect", x0=begin, x1=end, y0=row - 0.14, y1=row + 0.34, line=line)


def phases(span: Span) -> tuple[Interval | None, ...]:
    """When each of `PHASES` began and ended, trace ns; None where a bound is not known."""
    connected_ns = span.request_sent_ns if span.connected_ns is None else span.connected_ns
    asked = (span.request_sent_ns, span.request_received_ns, span.response_sent_ns)
    bounds = (span.start_ns, connected_ns, *asked, span.end_ns)
    return tuple(
        None if begin is None or end is None or end <= begin else (begin, end) for begin, end in pairwise(bounds)
    )


def _bars(spans: Sequence[Span], phase: int, start_ns: int, unit_ns: int) -> go.Bar:
    name, colour = PHASES[phase]
    rows = [(row, span, interval) for row, span in enumerate(spans) if (interval := phases(span)[phase])]
    return go.Bar(
        orientation="h",
        name=name,
        marker={"color": colour, "line": {"width": 0}, "opacity": [_strength(span) for _, span, _ in rows]},
        width=0.34,
        y=[row + 0.1 for row, _, _ in rows],
        base=[(begin - start_ns) / unit_ns for _, _, (begin, _) in rows],
        x=[(end - begin) / unit_ns for _, _, (begin, end) in rows],
        customdata=[[span.start_ns, span.end_ns] for _, span, _ in rows],
        hovertext=[_hover(span, name, interval) for _, span, interval in rows],
        hoverinfo="text",
    )


def _silent_bars(spans: Sequence[Span], cause: str, start_ns: int, unit_ns: int) -> go.Bar:
    """Stretches of messages in which none of their bytes was on the way, over the bars of these."""
    rows = [
        (row, span, silence) for row, span in enumerate(spans) for silence in span.silences if silence.cause == cause
    ]
    return go.Bar(
        orientation="h",
        name=SILENCES[cause],
        marker={
            "color": SILENCE_COLOURS[cause],
            "line": {"width": 0},
            "opacity": [_strength(span) for _, span, _ in rows],
        },
        width=0.2,
        y=[row + 0.1 for row, _, _ in rows],
        base=[(silence.from_ns - start_ns) / unit_ns for _, _, silence in rows],
        x=[(silence.to_ns - silence.from_ns) / unit_ns for _, _, silence in rows],
        customdata=[[span.start_ns, span.end_ns] for _, span, _ in rows],
        hovertext=[_hover(span, SILENCES[cause], (silence.from_ns, silence.to_ns)) for _, span, silence in rows],
        hoverinfo="text",
    )


def _strength(span: Span) -> float:
    """Bars off the critical path are faint: however much shorter, the request would have taken as long."""
    return 1.0 if on_critical_path(span) else OFF_PATH_OPACITY


def _title(span: Span, row: int) -> go.layout.Annotation:
    outcome = answer_words(span.answer, span.outcome)
    room = 50 - 2 * span.depth
    asked = span.title if len(span.title) <= room else span.title[: room - 12] + "…" + span.title[-11:]
    text = f"<b>{escape(span.server_host or '?')}</b> {escape(asked)}{outcome}"
    return go.layout.Annotation(
        x=0, xref="paper", xanchor="left", xshift=10 * span.depth, y=row - 0.3, text=text, showarrow=False
    )


def _hover(span: Span, name: str, interval: Interval) -> str:
    begin, end = interval
    lines = [
        f"{escape(span.title)}",
        f"{escape(span.client_host or '?')} → {escape(place(span))}",
        f"{name}: {duration(end - begin)} of {duration(span.duration_ns)}",
    ]
    if not on_critical_path(span):
        lines.append("off the critical path: nothing waited for it")
    if span.link_reason:
        if span.doubt:
            lines.append(escape(span.doubt))
        sure = "" if span.confidence is None else f", confidence {span.confidence:.0%}"
        lines.append(f"joined by {span.link_reason.replace('_', ' ')}{sure}")
    return "<br>".join(lines)
