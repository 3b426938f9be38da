"""The page of days, built once; `assets/app/days.js` fills it."""

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from viewer.controls import action_button

SHOWN = (("latency", "latency"), ("requests", "requests/s"), ("failed", "failed"), ("packets", "packets"))
STATES = (
    ("trace", "trace kept", "Click a minute of it to open its timeline there"),
    ("summary", "summary only", "Its trace was removed; counts, percentiles and findings stay"),
    ("failed", "failed", "No trace could be made of it, so nothing is known"),
    ("nothing", "nothing captured", "No packet was captured then: that is not the same as no request"),
)
WIDTHS = (("hour", "1"), ("6 h", "6"), ("day", "24"), ("week", "168"))
KEYS = (
    ("wheel, + −, W S, ↑ ↓", "zoom, at the cursor"),
    ("drag, A D, ← →", "move through time; also shift + wheel"),
    ("drag on the strip", "show what the drag covers"),
    ("Home, End", "to the first, the last period"),
    ("0", "all of it"),
    ("n, N", "next, previous slow minute"),
    ("click, Enter", "a minute: open its timeline, or what its summary knows; from far away, zoom in first"),
    ("t", "light or dark"),
    ("Esc", "deselect, close"),
    ("?", "this list"),
)


def days_page(name: str) -> Component:
    """Everything on the page of a series."""
    picture: dict[str, Any] = {
        "aria-label": "Latency, requests, failures and packets over time; the panel has the same"
    }
    return html.Div(
        [
            dcc.Store(id="meta", data={"series": name}),
            dcc.Store(id="started"),
            html.Header(
                [html.Span([html.B("Twintap"), f" {name}"], className="brand"), html.H1("loading…", id="days-title")],
                id="head",
            ),
            _bar(),
            html.Div(html.Canvas(id="days-strip"), id="days-strip-box", title="All of it; drag to choose a stretch"),
            html.Main(
                [
                    html.Div(
                        [html.Canvas(id="days-picture", tabIndex="0", role="img", **picture)],
                        id="days-plot",
                    ),
                    html.Aside([html.Section(id="days-period"), html.Section(id="days-worst")], id="days-side"),
                ]
            ),
            html.Div(id="tip", role="status"),
            html.Div(id="banner", role="alert"),
            html.Dialog([html.H2("Keys"), html.Dl(_keys())], id="help"),
        ],
        id="page",
        className="days",
    )


def _bar() -> Component:
    states = [
        html.Span([html.Canvas(className="chip", width=44, height=24, **_data("state", state)), text], title=title)
        for state, text, title in STATES
    ]
    shown = [
        html.Button(text, className="small", **_data("show", name) | {"aria-pressed": "true"}) for name, text in SHOWN
    ]
    widths = [html.Button(text, className="small", **_data("width", hours)) for text, hours in WIDTHS]
    return html.Nav(
        [
            html.Div(
                [
                    _choice("days-class", "class"),
                    _choice("days-host", "server"),
                    _choice("days-inner", "of"),
                    html.Span(["show ", *shown], className="hint group"),
                    html.Span([*widths, action_button("all", "whole", "All of it (0)", "small")], className="group"),
                    action_button("‹", "previous-slow", "Previous slow minute (N)"),
                    action_button("slow minute ›", "next-slow", "Next slow minute (n)"),
                    action_button("◐", "theme", "Light or dark (t)"),
                    action_button("?", "help", "Keys (?)"),
                ],
                id="days-controls",
            ),
            html.Div([*states, html.Span(id="days-about")], id="days-states"),
        ],
        id="days-bar",
    )


def _choice(name: str, label: str) -> Component:
    return html.Label([f"{label} ", html.Select(id=name)], className="hint")


def _data(name: str, value: str) -> dict[str, Any]:
    return {f"data-{name}": value}


def _keys() -> list[Component]:
    return [part for keys, what in KEYS for part in (html.Dt(keys), html.Dd(what))]
