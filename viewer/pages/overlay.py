"""The page that overlays many requests: what all of them have in common, and what only the slow ones have."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
from dash import html
from dash.development.base_component import Component
from msgspec import Struct

from collector.queries import ROWS_PER_LANE, Load, RequestOverlay, RequestSelection, TraceView
from viewer.figures.frame import BAD, STYLES
from viewer.figures.overlay import Strand, overlay_figure
from viewer.pages.address import Address, request_link
from viewer.pages.classes import chosen_class, class_choices
from viewer.pages.context import PageData
from viewer.pages.parts import chart, choices, heading, no_requests, table
from viewer.wording import duration, plural

COLUMNS = {"whole": 480, "half": 240}
CELLS = {"whole": 150_000, "half": 60_000}
"""Most of them in a picture: 4 bytes for 3, so that a page stays below 0.5 MB; with more lanes columns are wider."""
MOST_LANES = 24
"""With more hosts than this, those that serve the same are one line unless the address states otherwise."""
SLOWEST_COUNT = 3
MOST_ARROWS = 2_000
"""Of all single requests on top: SVG draws no more quickly."""
STRETCHES_COUNT = 8
Span = Literal["all", "90 %", "half"]
SPANS: tuple[Span, ...] = ("90 %", "half", "all")
QUANTILES = {"all": 1.0, "90 %": 0.9, "half": 0.5}


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    trace = data.trace
    title = heading(
        "Overlay",
        "Requests of one class, laid over each other where they began (or ended). The more of them have a packet at a "
        "time, the stronger its colour. The slowest are drawn on top; click one to open it.",
    )
    class_name = chosen_class(trace, address)
    if not class_name:
        return [title, no_requests(trace, "An overlay needs requests; the timeline holds the packets all the same.")]
    at_end, by_service = _aligned_at_end(address), _by_service(trace, address)
    span = address.one_of("span", SPANS)
    controls = [
        class_choices(trace, address, class_name, all_of_them=False),
        choices("Aligned at the", [(n, address.link(align=n), (n == "end") == at_end) for n in ("start", "end")]),
        choices("Lanes", [(n, address.link(lanes=n), (n == "services") == by_service) for n in ("hosts", "services")]),
        choices("Time to show that of", [(_span_words(n), address.link(span=n), n == span) for n in SPANS]),
    ]
    pictures = _Pictures(trace, trace.load.answer(_overlaid, class_name, at_end, by_service, span), at_end, by_service)
    return [title, html.Div(controls, className="controls"), *pictures.cards()]


class _Overlaid(Struct, frozen=True):
    """The requests of one class, laid over each other; slow and typical ones at the same scale."""

    slowest: tuple[int, ...]  # numbers
    median: int
    to_ns: int  # the time that is shown
    every: RequestOverlay
    slow: RequestOverlay
    typical: RequestOverlay


def _overlaid(load: Load, class_name: str, at_end: bool, by_service: bool, span: Span) -> _Overlaid:
    """Cost: 4 s of CPU time for 5 million requests."""
    selection = RequestSelection(class_name=class_name)
    requests = load.part(selection, "all")
    longest = requests["duration_ns"].quantile(QUANTILES[span], "higher")
    to_ns = max(1_000, int(longest or 0) * 21 // 20)
    ordered = requests.sort("duration_ns", "number", descending=[True, False])["number"]
    names = load.lane_names(by_service)
    rows = max(1, len(set(names)) - 1) * ROWS_PER_LANE + 1

    def lay(some: pl.DataFrame, width: str) -> RequestOverlay:
        from_ns, until_ns = (-to_ns, 0) if at_end else (-to_ns // 50, to_ns)
        columns = max(40, min(COLUMNS[width], CELLS[width] // rows))
        return load.overlay(some, (from_ns, until_ns, columns), at_end, by_service)

    return _Overlaid(
        slowest=tuple(ordered.head(SLOWEST_COUNT)),
        median=int(ordered[len(ordered) // 2]),
        to_ns=to_ns,
        every=lay(requests, "whole"),
        slow=lay(load.part(selection, "slow"), "half"),
        typical=lay(load.part(selection, "typical"), "half"),
    )


class _Pictures:
    """The page's pictures of one class: all of it, and slow against typical at the same scale."""

    def __init__(self, trace: TraceView, found: _Overlaid, at_end: bool, by_service: bool) -> None:
        self._trace, self._found, self._at_end = trace, found, at_end
        names = trace.load.lane_names(by_service)
        distinct = list(dict.fromkeys(names))
        self._lane_of = [distinct.index(name) for name in names]

    def cards(self) -> list[Component]:
        found = self._found
        drawn = tuple(dict.fromkeys([*found.slowest, found.median]))
        strands = self._strands(drawn, found.median)
        slow, typical = (plural(each.requests_count, "request") for each in (found.slow, found.typical))
        small = [
            self._card("slow", f"Slow: the slowest {slow}", found.slow, []),
            self._card("typical", f"Typical: the middle {typical}", found.typical, []),
        ]
        every = f"All {plural(found.every.requests_count, 'request')}"
        return [
            self._card("overlay", every, found.every, strands),
            self._singles(drawn, found.median),
            html.Div(small, className="side-by-side"),
        ]

    def _card(self, name: str, title: str, made: RequestOverlay, strands: Sequence[Strand]) -> Component:
        figure = overlay_figure(made, strands, self._lane_of)
        if self._at_end:
            label = figure.layout.xaxis.title
            label.text = "before the request's end" + str(label.text)[-4:]
        beyond = f", {made.beyond_count:,} of them outside this time" if made.beyond_count else ""
        note = f"{plural(made.packets_count, 'packet')} seen at both ends{beyond}"
        return chart(name, title, figure, _as_table(made), note)

    def _strands(self, numbers: Sequence[int], typical: int) -> list[Strand]:
        found, room = [], MOST_ARROWS
        for at, number in enumerate(numbers):
            arrows = self._trace.request_arrows(number, room)
            request = self._trace.request(number)
            if arrows is None:
                continue
            room -= len(arrows.number)
            is_typical = number == typical
            style = STYLES[2] if is_typical else (BAD, STYLES[3], STYLES[1])[at % 3]
            what = "the median" if is_typical else "the slowest" if not at else f"slow, no. {at + 1}"
            zero = request.end_ns if self._at_end else request.start_ns
            name = f"{what}: #{number + 1}, {duration(request.duration_ns)}"
            found.append(Strand(name, request_link(number), style, arrows, zero))
        return found

    def _singles(self, numbers: Sequence[int], typical: int) -> Component:
        rows = []
        for number in numbers:
            request = self._trace.request(number)
            words = f"#{number + 1} {request.title}"
            what = "median" if number == typical else "slow"
            rows.append((html.A(words, href=request_link(number)), what, duration(request.duration_ns)))
        return html.Div(table(("drawn on top", "which", "duration"), rows), id="singles")


def _as_table(overlay: RequestOverlay) -> Component:
    """Packets that cross the middle between two lanes, by stretches of the time shown."""
    lanes = overlay.lanes
    middle = [at * ROWS_PER_LANE + ROWS_PER_LANE // 2 for at in range(len(lanes) - 1)]
    parts = np.array_split(overlay.counts.astype(np.int64), STRETCHES_COUNT, axis=1)
    width = (overlay.to_ns - overlay.from_ns) / STRETCHES_COUNT
    head = ["between", *(f"from {duration(int(overlay.from_ns + at * width), 2)}" for at in range(STRETCHES_COUNT))]
    rows = [
        (f"{lanes[at]} and {lanes[at + 1]}", *(f"{int(part[row].sum()):,}" for part in parts))
        for at, row in enumerate(middle)
    ]
    return table(head, rows, "Packets that cross the space between two lanes")


def _aligned_at_end(address: Address) -> bool:
    return address.text("align") == "end"


def _by_service(trace: TraceView, address: Address) -> bool:
    wanted = address.text("lanes")
    return wanted == "services" or (wanted != "hosts" and len(trace.lanes) > MOST_LANES)


def _span_words(span: Span) -> str:
    return {"all": "all requests", "90 %": "90 % of the requests", "half": "half of them"}[span]
