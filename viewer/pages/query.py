"""The page that asks the trace in SQL: a query, its rows with links into the picture, and a plot of two columns."""

import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from collector.queries.asking import AnswerColumn, SqlAnswer, ask, named_queries, query_views
from tracer.errors import TracerError
from viewer.figures.frame import make_figure, style
from viewer.pages.address import Address, link, request_link
from viewer.pages.context import PageData
from viewer.pages.parts import Cell, chart, choices, heading, nothing, table
from viewer.wording import plural

FIRST = "classes"
"""The saved query that the page opens with."""
SHOWN_ROWS, MOST_LINES = 200, 14
ROOM_NS = 1_000_000
"""Around a time that a row leads to."""
MOST_PLOTTED = 8
"""Columns to choose from."""


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    title = heading(
        "Query",
        "SQL over this trace: read-only, limited to 20 s and 512 MiB. Ids and times lead into the timeline.",
    )
    if not data.trace.summary.hops_count:
        return [
            title,
            nothing("There are no packets to ask about", "Capture again, while there is traffic."),
            _tables(),
        ]
    try:
        named = named_queries()
    except TracerError as error:
        return [title, nothing("A saved query cannot be read", str(error)), _tables()]
    sql = address.text("sql") or named[FIRST][1]
    ways = ((name, link(address.path, sql=text), text.strip() == sql.strip()) for name, (_, text) in named.items())
    saved = choices("Saved", ways)
    parts = [title, saved, _form(address, sql)]
    try:
        answer = ask(data.trace, sql)
    except TracerError as error:
        return [*parts, nothing("No result", str(error)), _tables()]
    return [*parts, *_plot(answer, address), _rows(answer), _tables()]


def _form(address: Address, sql: str) -> Component:
    lines = min(MOST_LINES, 2 + sql.count("\n"))
    box = dcc.Textarea(id="sql", name="sql", value=sql, rows=lines, spellCheck=False)
    button = html.Button("Ask (Ctrl+Enter)", type="submit")
    label = html.Label("A query in SQL (DuckDB's)", htmlFor="sql")
    return html.Form([label, box, button], action=address.path, method="get", id="query-form")


def _rows(answer: SqlAnswer) -> Component:
    shown = list(zip(answer.texts, answer.values, strict=True))[:SHOWN_ROWS]
    rows = [
        [_cell(answer, column, text, value) for column, text, value in zip(answer.columns, texts, values, strict=True)]
        for texts, values in shown
    ]
    count = f"more than {len(answer.texts):,} rows" if answer.is_cut else plural(len(answer.texts), "row")
    if len(answer.texts) > len(shown):
        count += f", of which {len(shown)} are shown"
    found = table(answer.names, rows) if rows else html.P("no rows")
    return html.Section([html.H2(count), found], className="card", id="rows")


def _cell(answer: SqlAnswer, column: AnswerColumn, text: str, value: object) -> Cell:
    if isinstance(value, int) and column.leads_to == "request" and value in answer.requests:
        return html.A(text, href=request_link(answer.requests[value]), title="Its packets")
    if isinstance(value, int) and column.leads_to == "connection":
        return html.A(text, href=f"/#find=conn%3A{value}", title="Its packets")
    if isinstance(value, int) and column.is_time:
        return html.A(text, href=f"/#from={value - ROOM_NS}&to={value + ROOM_NS}", title="What happened then")
    return text


def _plot(answer: SqlAnswer, address: Address) -> list[Component]:
    """The choice of two columns, and their plot."""
    numbers = [column.name for column in answer.columns if column.is_number and not column.leads_to]
    if len(answer.texts) < 2 or not numbers or len(answer.columns) < 2:
        return []
    y = address.text("y") if address.text("y") in numbers else ""
    ways = [("none", address.link(x=None, y=None), not y)]
    ways += [(name, address.link(y=name), name == y) for name in numbers[:MOST_PLOTTED]]
    parts = [choices("Plot", ways)]
    if not y:
        return parts
    across = [name for name in answer.names if name != y]
    x = address.one_of("x", across)
    parts.append(choices("over", [(name, address.link(x=name), name == x) for name in across[:MOST_PLOTTED]]))
    at_x, at_y = answer.names.index(x), answer.names.index(y)
    figure = _figure(answer, at_x, at_y)
    values = table((x, y), [(row[at_x], row[at_y]) for row in answer.texts[:SHOWN_ROWS]])
    return [*parts, chart("query", f"{y} over {x}", figure, values)]


def _figure(answer: SqlAnswer, at_x: int, at_y: int) -> go.Figure:
    column = answer.columns[at_x]
    y, x = ([row[at] for row in answer.values] for at in (at_y, at_x))
    title = column.name
    if column.is_time:
        x = [value / 1e9 if isinstance(value, int) else None for value in x]
        title += ": seconds since the trace began"
    elif not column.is_number:
        x = [row[at_x] for row in answer.texts]
    colour = style(0).colour
    is_scatter = column.is_time or column.is_number
    drawn = (
        go.Scatter(x=x, y=y, mode="markers", marker={"color": colour, "size": 6})
        if is_scatter
        else go.Bar(x=x, y=y, marker={"color": colour})
    )
    figure = go.Figure(drawn)
    return make_figure(figure, 360, xaxis_title=title, yaxis_title=answer.columns[at_y].name)


def _tables() -> Component:
    """What can be asked."""
    listed = [
        html.Details(
            [
                html.Summary([html.B(view.name), f" each row is {view.meaning}"]),
                table(("column", "meaning"), [(column.name, column.meaning) for column in view.columns]),
            ]
        )
        for view in query_views()
    ]
    return html.Section([html.H2("Tables"), *listed], className="card", id="tables")
