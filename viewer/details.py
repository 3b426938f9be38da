"""The details of a selected request: its description and ledger, then its waterfall, which takes longer to draw."""

from collections.abc import Sequence

import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from collector.queries import Request, Said, Span
from collector.queries.match_calls import match_calls
from viewer.annotations import said_parts
from viewer.controls import action_button, find_button
from viewer.figures.waterfall import MOST_SPANS, PHASES, SILENCE_COLOURS, aligned_figure, waterfall_figure
from viewer.ledger import STAGES, LedgerRow, ledger_rows
from viewer.wording import duration, error_words, plural, request_title

DOUBTS_LISTED = 8
SMALL_SHARE = 0.01
"""Parts below this are folded away."""
_PHASE_OF = {
    "client_ns": "not yet asked",
    "connect_ns": "connecting",
    "request_network_ns": "request on its way",
    "work_ns": "at work",
    "response_network_ns": "answer on its way",
}
_OTHERS = {
    "tls_ns": "#a78bfa",
    "queue_ns": "#c27c00",
    "fan_out_wait_ns": "#a16207",
    "server_or_network_ns": "#57809a",
    "stall_ns": "#d1242f",
    "request_idle_ns": "#9aa1ac",
    "response_idle_ns": "#0e9384",
    "send_held_ns": "#be185d",
    "reader_wait_ns": "#ea580c",
}
"""Stages that no phase of a single span is."""
SILENCE_WORDS = {"idle": "nothing to send", "held": "held by TCP", "unread": "receiver did not read"}
"""The strips within the waterfall's bars, by `Silence.cause`."""
STAGE_COLOURS = {name: dict(PHASES)[phase] for name, phase in _PHASE_OF.items()} | _OTHERS
assert set(STAGE_COLOURS) == set(STAGES)


def request_details(request: Request, spans: Sequence[Span], said: Sequence[Said] = ()) -> list[Component]:
    """One request in words and numbers: HTML only, so that the page makes it without Dash (`viewer.serialise`)."""
    trouble = plural(request.problems_count, "problem") if request.problems_count else "no problems"
    facts = [
        f"{duration(request.duration_ns, 4)}{_uncertainty(spans[0])}",
        plural(request.spans_count, "exchange"),
        plural(request.hops_count, "arrow"),
        trouble,
    ]
    if spans[0].pause_ns > SMALL_SHARE * request.duration_ns:
        facts.append(f"not in it: {duration(spans[0].pause_ns)} in which its client had connected and asked nothing")
    return [
        html.Header(
            [
                html.H2(f"Request #{request.number + 1}"),
                action_button("fit", "fit-request", "Zoom to this request (f)", "small"),
                action_button("×", "deselect", "Deselect (Esc)", "small"),
            ]
        ),
        html.P(request_title(request), className="target"),
        html.P(" · ".join(facts), className="facts"),
        *_upload(spans[0]),
        html.H3("Where its time went"),
        _ledger(ledger_rows(spans), request.duration_ns),
        action_button("Why so long?", "why", "Compare it with others of its class (y)", "small"),
        html.Div(id="request-why"),
        *said_parts(said),
        html.H3(f"Its exchanges{_limit_note(len(spans))}"),
        _phase_legend(spans),
        *_doubts(spans),
    ]


def _upload(root: Span) -> list[Component]:
    """The multipart upload that a request is part of, with a button that finds all of it."""
    if not root.upload:
        return []
    return [html.P(["of upload ", find_button(root.upload, f"upload:{root.upload}")], className="facts")]


def waterfall(spans: Sequence[Span]) -> Component:
    """Its exchanges as a chart."""
    return _graph(waterfall_figure(spans))


def aligned_waterfall(spans: Sequence[Span], other: Sequence[Span], other_number: int) -> list[Component]:
    """Its exchanges beside those of another request."""
    name = f"#{other_number + 1}"
    figure = aligned_figure(match_calls(spans[:MOST_SPANS], other[:MOST_SPANS]), name)
    words = f"Thin bars below: the same exchanges of {name}, from its own beginning."
    return [html.P(words, className="facts"), _graph(figure)]


def _graph(figure: go.Figure) -> Component:
    return dcc.Graph(id="waterfall", figure=figure, config={"displayModeBar": False, "responsive": True})


def _uncertainty(root: Span) -> str:
    return "" if root.uncertainty_ns is None else f" {error_words(root.uncertainty_ns, root.likely_error_ns)}"


def _limit_note(count: int) -> str:
    return f" (the first {MOST_SPANS} of {count:,})" if count > MOST_SPANS else ""


def _ledger(rows: Sequence[LedgerRow], whole_ns: int) -> Component:
    total = sum(row.duration_ns for row in rows)
    assert total == whole_ns, "the ledger adds up"
    large = [row for row in rows if row.share >= SMALL_SHARE]
    small = [row for row in rows if row.share < SMALL_SHARE]
    foot = html.Tr([html.Td("all of it"), html.Td(duration(whole_ns, 4)), html.Td("100 %")])
    parts: list[Component] = [html.Table([html.Tbody(_ledger_rows(large)), html.Tfoot(foot)], className="ledger")]
    if small:
        words = f"of it in {plural(len(small), 'smaller part')}: {duration(sum(row.duration_ns for row in small))}"
        table = html.Table(html.Tbody(_ledger_rows(small)), className="ledger")
        parts.append(html.Details([html.Summary(words), table]))
    return html.Div(parts)


def _ledger_rows(rows: Sequence[LedgerRow]) -> list[Component]:
    return [html.Tr(_ledger_cells(row), style=_bar_behind(row)) for row in rows]


def _ledger_cells(row: LedgerRow) -> list[Component]:
    return [
        html.Td(row.text, title=row.text),
        html.Td(duration(row.duration_ns)),
        html.Td(f"{row.share:.0%}" if row.share >= 0.01 else "<1 %"),
    ]


def _bar_behind(row: LedgerRow) -> dict[str, str]:
    """A row's share as a bar behind its text."""
    colour = STAGE_COLOURS.get(row.stage, "#8a8f98")
    width = f"{100 * max(0.0, row.share):.2f}%"
    return {"background": f"linear-gradient(to right, {colour}55 {width}, transparent {width})"}


def _doubts(spans: Sequence[Span]) -> list[Component]:
    """The least certain links of a request, with their next candidates."""
    unsure = sorted((span for span in spans if span.doubt), key=lambda span: span.confidence or 0.0)
    if not unsure:
        return []
    shown = [html.Li([html.B(span.title), f": {span.doubt}"]) for span in unsure[:DOUBTS_LISTED]]
    rest = len(unsure) - len(shown)
    more = [html.Li(f"… and {rest:,} more, dashed below")] if rest else []
    return [
        html.Details(
            [html.Summary(f"{plural(len(unsure), 'call')} with an uncertain parent"), html.Ul([*shown, *more])]
        )
    ]


def _phase_legend(spans: Sequence[Span]) -> Component:
    """The waterfall's colours; those of silences only where there are any."""
    uncertain = any(span.doubt for span in spans)
    silent = {silence.cause for span in spans for silence in span.silences}
    strips = [(SILENCE_WORDS[cause], SILENCE_COLOURS[cause]) for cause in SILENCE_WORDS if cause in silent]
    entries = [html.Span([html.I(style={"background": colour}), name]) for name, colour in [*PHASES, *strips]]
    faint = html.Span("faint: off the critical path", title="Nothing waited for it: had it been quicker, all the same")
    dashed = html.Span("dashed: its parent is uncertain", title="Linked by inference; another request may have asked")
    return html.P([*entries, faint, *([dashed] if uncertain else [])], className="phases")
