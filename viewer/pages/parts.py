"""Common parts of the pages: charts with their tables, rows of choices, and a text in place of missing data."""

from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from collector.queries import TraceView
from viewer.wording import plural

Cell = str | Component
Row = Sequence[Cell]


def heading(title: str, about: str) -> Component:
    """A page's title and what it answers."""
    return html.Header([html.H1(title), html.P(about, className="hint")])


def chart(name: str, title: str, figure: go.Figure, table: Component, note: str = "") -> Component:
    """A figure under its title, and the same as a table for who cannot see it. A click follows a link."""
    label: dict[str, Any] = {"aria-label": f"{title}. The same as a table below."}
    graph = dcc.Graph(
        id={"type": "chart", "name": name},
        figure=figure,
        config={"displayModeBar": False, "responsive": True},
        style={"height": f"{figure.layout.height}px"},
    )
    return html.Section(
        [
            html.H2([title, *([html.Small(f" {note}")] if note else [])]),
            html.Div(graph, role="img", className="chart", **label),
            html.Details([html.Summary("as a table"), table]),
        ],
        className="card",
        id=f"card-{name}",
    )


def table(head: Sequence[str], rows: Iterable[Row], caption: str = "") -> Component:
    """A table whose first column names the row."""
    body = [html.Tr([html.Th(row[0], scope="row"), *(html.Td(cell) for cell in row[1:])]) for row in rows]
    parts: list[Component] = [
        html.Thead(html.Tr([html.Th(name, scope="col") if name else html.Td() for name in head])),
        html.Tbody(body),
    ]
    return html.Div(
        html.Table([*([html.Caption(caption)] if caption else []), *parts], className="figures"), className="scroll"
    )


def choices(label: str, options: Iterable[tuple[str, str, bool]]) -> Component:
    """A row of links, of which one is chosen: each a text, where it leads, whether it is the one."""
    links = [
        html.Span(text, className="choice here", **_current())
        if chosen
        else dcc.Link(text, href=href, className="choice")
        for text, href, chosen in options
    ]
    return html.Div([html.Span(f"{label} ", className="hint"), *links], className="choices")


def nothing(title: str, *next_steps: Cell) -> Component:
    """Instead of what is not there: what to do about it."""
    return html.Section([html.H2(title), *(html.P(step) for step in next_steps)], className="card nothing")


def no_requests(trace: TraceView, what_then: str) -> Component:
    """Where a page is about requests and the trace has none; of its streams, where they are."""
    count = trace.streams.count
    steps: list[Cell] = [what_then]
    if count:
        words = f"This trace has {plural(count, 'stream')}, which no figure of requests counts: "
        steps.append(html.Span([words, dcc.Link("see Streams", href="/pages/streams"), "."]))
    return nothing("No requests were recognised in this trace", *steps)


def code(text: str) -> Component:
    """A command to type."""
    return html.Code(text)


def _current() -> dict[str, Any]:
    return {"aria-current": "true"}
