"""The waterfall of a request: one bar for each span, from its first packet to its last, divided into phases; alone, or
with the same call of another request below each, both from the beginning of their own request."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

import plotly.graph_objects as go
from msgspec import Struct

from collector.queries import Span
from collector.queries.match_calls import CallPair
from viewer.figures.frame import unit_of
from viewer.ledger import on_critical_path, place
from viewer.wording import answer_words, duration

MOST_SPANS = 200
ROW_PX, PAIR_ROW_PX = 38, 50
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


class _Strip(Struct, frozen=True):
    """The bars of a request: its spans with their rows, the trace's time at which the figure begins for it, and the
    middle and the width of its bars in a row that is 1 wide."""

    rows: Sequence[tuple[int, Span]]
    start_ns: int
    unit_ns: int
    middle: float = 0.1
    width: float = 0.34
    whose: str = ""  # in hover texts, of a request that is not the selected one

    def at(self, trace_ns: int) -> float:
        """A time of the trace on the axis."""
        return (trace_ns - self.start_ns) / self.unit_ns


def waterfall_figure(spans: Sequence[Span]) -> go.Figure:
    """The first `MOST_SPANS` spans of a request, root on top, times from the root's start.

    A bar's `customdata` is where it begins and ends in the trace, ns.
    """
    shown = spans[:MOST_SPANS]
    start_ns, end_ns = spans[0].start_ns, max(span.end_ns for span in spans)
    unit_ns, unit = unit_of(end_ns - start_ns)
    strip = _Strip(list(enumerate(shown)), start_ns, unit_ns)
    titles = [_title(span, row) for row, span in enumerate(shown)]
    return go.Figure(_strip_bars(strip), _layout(titles, [strip], unit, ROW_PX))


def aligned_figure(pairs: Sequence[CallPair], other: str) -> go.Figure:
    """The first `MOST_SPANS` pairs of calls of two requests, each from the start of its own root: the selected one's
    bars as `waterfall_figure` has them, below each the thinner one of the request called `other`."""
    shown = pairs[:MOST_SPANS]
    mine = [(row, pair.mine) for row, pair in enumerate(shown) if pair.mine]
    others = [(row, pair.other) for row, pair in enumerate(shown) if pair.other]
    longest_ns = max(max(span.end_ns for _, span in spans) - spans[0][1].start_ns for spans in (mine, others))
    unit_ns, unit = unit_of(longest_ns)
    strips = [
        _Strip(mine, mine[0][1].start_ns, unit_ns, middle=0.03, width=0.26),
        _Strip(others, others[0][1].start_ns, unit_ns, middle=0.3, width=0.16, whose=other),
    ]
    titles = [_title(pair.either, row, _absence(pair, other)) for row, pair in enumerate(shown)]
    bars = [bar for strip in strips for bar in _strip_bars(strip)]
    return go.Figure(bars, _layout(titles, strips[:1], unit, PAIR_ROW_PX))


def _absence(pair: CallPair, other: str) -> str:
    return f" (only in {other})" if pair.mine is None else f" (not in {other})" if pair.other is None else ""


def _layout(titles: Sequence[go.layout.Annotation], strips: Sequence[_Strip], unit: str, row_px: int) -> go.Layout:
    frames = [_dashed_line(strip, span, row) for strip in strips for row, span in strip.rows if span.doubt]
    return go.Layout(
        annotations=titles,  # at once: one by one, each costs all before it
        shapes=frames,
        barmode="overlay",
        height=row_px * len(titles) + 40,
        margin={"l": 4, "r": 8, "t": 0, "b": 32},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        dragmode=False,
        font={"family": "system-ui, sans-serif", "size": 12},
        hoverlabel={"align": "left"},
        xaxis={"title": {"text": unit, "standoff": 4}, "fixedrange": True, "zeroline": False, "rangemode": "tozero"},
        yaxis={"visible": False, "fixedrange": True, "range": [len(titles) - 0.35, -0.6]},
    )


def _dashed_line(strip: _Strip, span: Span, row: int) -> go.layout.Shape:
    """A dashed frame around a span whose parent is uncertain."""
    line = {"color": UNCERTAIN_COLOUR, "dash": "dash", "width": 1.5}
    low, high = row + strip.middle - 0.24, row + strip.middle + 0.24
    return go.layout.Shape(
        type="rect", x0=strip.at(span.start_ns), x1=strip.at(span.end_ns), y0=low, y1=high, line=line
    )


def phases(span: Span) -> tuple[Interval | None, ...]:
    """When each of `PHASES` began and ended, trace ns; None where a bound is not known."""
    connected_ns = span.request_sent_ns if span.connected_ns is None else span.connected_ns
    asked = (span.request_sent_ns, span.request_received_ns, span.response_sent_ns)
    bounds = (span.start_ns, connected_ns, *asked, span.end_ns)
    return tuple(
        None if begin is None or end is None or end <= begin else (begin, end) for begin, end in pairwise(bounds)
    )


def _strip_bars(strip: _Strip) -> list[go.Bar]:
    """Those of each phase, and over them those of silences, where there are any."""
    found = []
    for phase, (name, colour) in enumerate(PHASES):
        rows = [(row, span, interval) for row, span in strip.rows if (interval := phases(span)[phase])]
        found.append(_bars(strip, rows, name, colour, strip.width))
    for cause, words in SILENCES.items():
        silent = [
            (row, span, (silence.from_ns, silence.to_ns))
            for row, span in strip.rows
            for silence in span.silences
            if silence.cause == cause
        ]
        if silent:
            found.append(_bars(strip, silent, words, SILENCE_COLOURS[cause], 0.6 * strip.width))
    return found


def _bars(strip: _Strip, rows: Sequence[tuple[int, Span, Interval]], name: str, colour: str, width: float) -> go.Bar:
    return go.Bar(
        orientation="h",
        name=name,
        marker={"color": colour, "line": {"width": 0}, "opacity": [_strength(span) for _, span, _ in rows]},
        width=width,
        y=[row + strip.middle for row, _, _ in rows],
        base=[strip.at(begin) for _, _, (begin, _) in rows],
        x=[(end - begin) / strip.unit_ns for _, _, (begin, end) in rows],
        customdata=[[span.start_ns, span.end_ns] for _, span, _ in rows],
        hovertext=[_hover(span, name, interval, strip.whose) for _, span, interval in rows],
        hoverinfo="text",
    )


def _strength(span: Span) -> float:
    """Bars off the critical path are faint: however much shorter, the request would have taken as long."""
    return 1.0 if on_critical_path(span) else OFF_PATH_OPACITY


def _title(span: Span, row: int, note: str = "") -> go.layout.Annotation:
    outcome = answer_words(span.answer, span.outcome)
    room = 50 - 2 * span.depth
    asked = span.title if len(span.title) <= room else span.title[: room - 12] + "…" + span.title[-11:]
    text = f"<b>{escape(span.server or '?')}</b> {escape(asked)}{outcome}{note}"
    return go.layout.Annotation(
        x=0, xref="paper", xanchor="left", xshift=10 * span.depth, y=row - 0.3, text=text, showarrow=False
    )


def _hover(span: Span, name: str, interval: Interval, whose: str) -> str:
    begin, end = interval
    lines = [
        f"{whose}: {escape(span.title)}" if whose else escape(span.title),
        f"{escape(span.client or '?')} → {escape(place(span))}",
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
