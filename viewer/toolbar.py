"""The tools beside the timeline: search, the list of packets, saving; `assets/` implements their actions."""

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from viewer.controls import action_button
from viewer.uploads import MOST_BYTES, MOST_FILES

PICTURES = (
    ("share", "Copy a link (k)", "To this view, with a note, for somebody who opens this trace, too"),
    ("picture-png", "PNG picture", "The timeline as you see it"),
    ("picture-svg", "SVG picture", "The same as lines, for a document"),
    ("picture-html", "One-file HTML page", "Picture, story and the selected request; opens anywhere"),
)
TABLES = (
    ("csv", "CSV table", "A row for each packet's way from host to host"),
    ("parquet", "Parquet table", "The same, with its types"),
    (
        "merged",
        "pcapng on one clock",
        "All hosts' packets in one file, in order, with comments; opens in Wireshark",
    ),
    ("pcapng", "pcapng as captured", "The packets themselves, cut from the captures, by each host's own clock"),
)
REQUESTS = (
    ("otlp", "OpenTelemetry spans", "As a collector's file exporter writes them: OTLP in JSON lines"),
    ("jaeger", "Jaeger's JSON", "For Jaeger's page: JSON File"),
    ("har", "HAR", "The clients' HTTP requests, for browsers' tools"),
    ("perfetto", "Perfetto trace", "Requests, their packets and counters, for ui.perfetto.dev"),
    ("mermaid", "Mermaid diagram", "The request, or the longest of those in view, as a sequence diagram"),
)
ENDINGS = {
    **{form: form for form, *_ in TABLES},
    **{"merged": "one-clock.pcapng", "otlp": "otlp.jsonl", "jaeger": "jaeger.json", "har": "har"},
    **{"perfetto": "pftrace", "mermaid": "mmd"},
}
"""What the names of the files end with."""
COLUMNS = ("#", "sent", "received", "from → to", "what", "bytes", "state", "request")
SEARCH_HINT = "Search: id, path, host, lost, >5ms  ( / )"
ONLY = "Show only the packets of requests that are found, or all again (u)"
SEARCH_WORDS = "search-words"
"""The list of what the last word of a search may become; `assets/page/complete.js` fills it."""


def search_box() -> Component:
    """Where one types what one looks for; and how many there are."""
    label: dict[str, Any] = {"aria-label": "Search the trace"}
    pressed: dict[str, Any] = {"data-action": "only-hits", "aria-pressed": "false"}
    return html.Div(
        [
            dcc.Input(
                id="search-text",
                type="text",
                placeholder=SEARCH_HINT,
                maxLength=500,
                autoComplete="off",
                list=SEARCH_WORDS,
            ),
            html.Datalist(id=SEARCH_WORDS),
            action_button("‹", "previous-hit", "Previous hit (Shift+Enter)", "small"),
            action_button("›", "next-hit", "Next hit (Enter)", "small"),
            html.Button("only", id="search-only", title=ONLY, className="small", **pressed),
            html.Div(id="search-result", role="status"),
        ],
        id="search",
        role="search",
        **label,
    )


def live_state() -> list[Component]:
    """How far behind a live trace is; shown only for one."""
    return [
        html.Span(id="live-state", role="status", hidden=True),
        html.Button("pause", id="live-button", title="Pause or follow (Space)", hidden=True, **_action("follow")),
    ]


def save_menu() -> Component:
    """Pictures of the view; the packets of the selected request or, without one, of the view; and the requests."""
    pictures = [action_button(text, action, title) for action, text, title in PICTURES]
    tables, requests = (
        [_link(text, title, {"data-save": form, "data-ending": ENDINGS[form]}) for form, text, title in forms]
        for forms in (TABLES, REQUESTS)
    )
    packets, exported = html.H2("", id="save-what"), html.H2("", id="save-requests")
    return html.Details(
        [
            html.Summary("save ▾", title="Save the picture, or the packets (e)"),
            html.Div([html.H2("What you see"), *pictures, packets, *tables, exported, *requests]),
        ],
        id="save",
        className="menu",
    )


def upload_dialog() -> Component:
    """Where captures of several hosts are dropped, their hosts confirmed, and a trace is made of them."""
    label: dict[str, Any] = {"aria-label": "Open captures"}
    close = html.Header([html.H2("Open captures"), action_button("close", "close", "Close (Esc)", "small")])
    return html.Dialog([close, *upload_form()], id="upload", **label)


def upload_form() -> list[Component]:
    """What the dialog holds; the page without a trace shows it by itself."""
    multiple: dict[str, Any] = {"data-upload": "drop"}
    return [
        html.P(
            "Drop the captures of several hosts here (pcap, pcapng; also .gz, .zst), or choose them. They stay on the "
            f"viewer's machine until it ends; all together up to {MOST_BYTES >> 30} GiB in {MOST_FILES} files."
        ),
        html.Div(_choose_button(), id="upload-drop", **multiple),
        html.Div(id="upload-files"),
        html.P(id="upload-state", role="status"),
        html.Button("make the trace", id="upload-make", className="small", disabled=True),
    ]


def _choose_button() -> Component:
    """Off until the page takes files (`uploads.js`): before that, the browser would open what is dropped."""
    return html.Button("choose files…", id="upload-choose", className="small", disabled=True)


def lane_menu() -> Component:
    """Which hosts are shown, and how; `assets/page/lane_labels.js` fills it."""
    summary = html.Summary("hosts ▾", id="lanes-summary", title="Hide, group and split hosts")
    return html.Details([summary, html.Div(id="lane-menu")], id="lanes-box", className="menu")


def clock_switch(apart_ns: int) -> list[Component]:
    """Between the trace's timescale and the hosts' own clocks, where these differ."""
    title = "Show each packet at its own host's clock, uncorrected (c)"
    return [action_button("raw clocks", "clocks", title)] if apart_ns else []


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
    name: dict[str, Any] = {"aria-labelledby": "packets-title"}
    return html.Section([title, body], id="packets", hidden=True, **name)


def _action(name: str) -> dict[str, Any]:
    return {"data-action": name}


def _link(text: str, title: str, data: dict[str, Any]) -> Component:
    """Where it leads is set when the menu opens."""
    return html.A(text, href="", download="", title=title, **data)
