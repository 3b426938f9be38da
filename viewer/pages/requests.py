"""Every request of the trace: filtered by class, outcome, time, duration, call or text; sorted; a hundred at a time."""

from collections.abc import Sequence
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from collector.queries import ORDERS, RequestRow, RequestSelection
from viewer.pages.address import Address, request_link
from viewer.pages.classes import chosen_class, chosen_outcome, class_choices, outcome_choices
from viewer.pages.context import PageData
from viewer.pages.parts import Row, choices, heading, no_requests, nothing, table
from viewer.toolbar import SEARCH_WORDS
from viewer.wording import bytes_in_words, duration, duration_words, exact_time, plural, status_words

PAGE_ROWS = 100
SEARCH_EXAMPLE = "path, id, host, status:5xx, lost or >50ms, not …"
HEAD = ("request", "status", "duration", "began", "bytes", "in flight", "from → to", "transaction id", "class")
TIMES = ("from", "to", "least", "most")


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    trace = data.trace
    title = heading("Requests", "Click one to see its packets and where its time went.")
    if not trace.summary.roots_count:
        return [title, no_requests(trace, "The timeline holds all packets all the same.")]
    class_name = chosen_class(trace, address, usual="")
    selection, problem = selection_of(data, address, class_name)
    order = address.one_of("order", ORDERS)
    first = PAGE_ROWS * (address.whole("page") or 0)
    count, rows = trace.load.rows(selection, order, first, PAGE_ROWS)
    return [
        title,
        class_choices(trace, address, class_name, all_of_them=True),
        choices("Order", [(name, address.link(order=name, page=None), name == order) for name in ORDERS]),
        outcome_choices(address, selection.outcome),
        _search(address),
        *_filter_notes(address, selection),
        nothing("This search makes no sense", problem) if problem else _request_list(address, rows, first, count),
    ]


def selection_of(data: PageData, address: Address, class_name: str) -> tuple[RequestSelection, str]:
    """What the address asks for; and what is wrong with its search, "" if nothing."""
    hits = data.search.hits(address.text("text")) if address.text("text") else None
    selection = RequestSelection(
        class_name=class_name,
        outcome=chosen_outcome(address),
        from_ns=address.whole("from"),
        to_ns=address.whole("to"),
        least_ns=address.whole("least"),
        most_ns=address.whole("most"),
        caller=address.text("caller"),
        callee=address.text("callee"),
        found=None if hits is None else hits.requests,
    )
    return selection, "" if hits is None else hits.problem


def _search(address: Address) -> Component:
    """A form that needs no script: it leads to the same address with another text."""
    kept: list[Component] = [
        dcc.Input(type="hidden", name=name, value=value)
        for name, value in address.values
        if name not in ("text", "page")
    ]
    label: dict[str, Any] = {"aria-label": "Search, in the words of the timeline's search"}
    field = dcc.Input(
        type="search",
        name="text",
        value=address.text("text"),
        placeholder=SEARCH_EXAMPLE,
        list=SEARCH_WORDS,
        autoComplete="off",
    )
    words = html.Datalist(id=SEARCH_WORDS)
    parts = [*kept, html.Label(["Search ", field], **label), words, html.Button("search", type="submit")]
    return html.Form(parts, action=address.path, method="GET", className="search")


def _filter_notes(address: Address, selection: RequestSelection) -> list[Component]:
    """What else the list is narrowed to, and a way out."""
    words = []
    if selection.from_ns is not None or selection.to_ns is not None:
        words.append(f"began from {_time(selection.from_ns)} to {_time(selection.to_ns)}")
    if selection.least_ns is not None or selection.most_ns is not None:
        words.append(f"took from {_long(selection.least_ns)} to {_long(selection.most_ns)}")
    if selection.caller or selection.callee:
        words.append(f"with a call from {selection.caller or 'anywhere'} to {selection.callee or 'anywhere'}")
    if not words:
        return []
    out = address.link(**dict.fromkeys((*TIMES, "caller", "callee", "page")))
    return [html.P([f"Only those that {'; '.join(words)}. ", dcc.Link("show all", href=out)], className="narrowed")]


def _request_list(address: Address, rows: Sequence[RequestRow], first: int, count: int) -> Component:
    if not rows:
        every = dcc.Link("show all requests", href=address.path)
        return nothing("No request is like this", "Ask for less: another class, a longer time, no text.", every)
    last = first + len(rows)
    page = first // PAGE_ROWS
    steps = [
        *([dcc.Link("‹ previous", href=address.link(page=page - 1 or None))] if first else []),
        html.Span(f"{first + 1:,} to {last:,} of {plural(count, 'request')}"),
        *([dcc.Link("next ›", href=address.link(page=page + 1))] if last < count else []),
    ]
    return html.Div([html.P(steps, className="steps"), table(HEAD, [_row(row) for row in rows])], id="request-table")


def _row(row: RequestRow) -> Row:
    status = status_words(row.answer, row.outcome)
    return (
        html.A(f"#{row.number + 1} {row.words}".strip(), href=request_link(row.number), title=row.words),
        html.B(status, className="bad") if row.outcome == "failed" else status,
        duration_words(row.duration_ns, ended=row.ended),
        exact_time(row.start_ns),
        bytes_in_words(row.bytes),
        f"{row.in_flight:,}",
        f"{row.client or '?'} → {row.server or '?'}",
        row.transaction_id,
        row.class_name,
    )


def _time(time_ns: int | None) -> str:
    return "any time" if time_ns is None else exact_time(time_ns)


def _long(time_ns: int | None) -> str:
    return "any time" if time_ns is None else duration(time_ns)
