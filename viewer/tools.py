"""What the page offers beside the picture: search, the list of packets, saving. `assets/` does what they say."""

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from viewer.controls import action_button

PICTURES = (
    ("picture-png", "PNG picture", "The timeline as you see it"),
    ("picture-svg", "SVG picture", "The same as lines, for a document"),
    ("picture-html", "One-file HTML page", "Picture, story and the selected request; opens anywhere"),
)
TABLES = (
    ("csv", "CSV table", "A row for each packet's way from host to host"),
    ("parquet", "Parquet table", "The same, with its types"),
    ("pcapng", "pcapng capture", "The packets themselves, cut from the captures; opens in Wireshark"),
)
COLUMNS = ("#", "sent", "received", "from → to", "what", "bytes", "state", "request")
SEARCH_HINT = "Search: id, path, host, ADDR:PORT, #12, >5ms  ( / )"


def search_box() -> Component:
    """Where one types what one looks for; and how many there are."""
    label: dict[str, Any] = {"aria-label": "Search the trace"}
    return html.Div(
        [
            dcc.Input(id="search-text", type="text", placeholder=SEARCH_HINT, maxLength=500, autoComplete="off"),
            action_button("‹", "previous-hit", "Previous hit (Shift+Enter)", "small"),
            action_button("›", "next-hit", "Next hit (Enter)", "small"),
            html.Div(id="search-result", role="status"),
        ],
        id="search",
        role="search",
        **label,
    )


def save_menu() -> Component:
    """Pictures of the view, and the packets of the selected request or, without one, of the view."""
    pictures = [action_button(text, action, title) for action, text, title in PICTURES]
    tables = [_link(text, title, {"data-save": form}) for form, text, title in TABLES]
    return html.Details(
        [
            html.Summary("save ▾", title="Save the picture, or the packets (e)"),
            html.Div([html.H4("What you see"), *pictures, html.H4("", id="save-what"), *tables]),
        ],
        id="save",
    )


def packet_fields() -> Component:
    """Under the selected packet: what explains it field by field."""
    buttons = [
        action_button("explain field by field", "explain", "As it was sent (x)", "small"),
        action_button("as received", "explain-received", "As it arrived", "small"),
    ]
    return html.Div([html.Div(buttons, id="explain-buttons", hidden=True), html.Div(id="packet-fields")])


def packet_list() -> Component:
    """The packets as a table: of the selected request or, without one, of the view. Rows come when scrolled to."""
    head = html.Div(
        [html.Span(name, role="columnheader") for name in COLUMNS], role="row", className="packet-row packet-head"
    )
    label: dict[str, Any] = {"aria-label": "Packets in order of time"}
    body = html.Div([head, html.Div(id="packet-rows")], id="packet-scroll", tabIndex="0", role="grid", **label)
    title = html.Header(
        [
            html.H2("", id="packets-title"),
            html.Span("↑ ↓ move, Enter selects and explains, Esc closes", className="hint"),
            action_button("×", "packets", "Close the list (l)", "small"),
        ]
    )
    return html.Section([title, body], id="packets", hidden=True)


def _link(text: str, title: str, data: dict[str, Any]) -> Component:
    """Where it leads is set when the menu opens."""
    return html.A(text, href="", download="", title=title, **data)
