"""The pages' own Dash application, on the same server as the timeline: the address decides what is shown."""

from collections.abc import Callable
from typing import Any

import dash
from dash import ALL, ClientsideFunction, Input, Output, dcc, html
from dash.development.base_component import Component
from flask import Flask

from collector.queries import TraceView
from viewer.mounting import with_links_below
from viewer.navigation import PAGES, PREFIX, navigation
from viewer.page_shell import new_app
from viewer.pages import bench, compare, latency, overlay, quality, query, requests, services, streams, what_if
from viewer.pages.address import Address
from viewer.pages.context import PageData
from viewer.pages.parts import nothing

PAGES_ENTRY = "pages.js"
Content = Callable[[PageData, Address], list[Component]]
CONTENTS: dict[str, Content] = {
    f"{PREFIX}requests": requests.content,
    f"{PREFIX}overlay": overlay.content,
    f"{PREFIX}services": services.content,
    f"{PREFIX}streams": streams.content,
    f"{PREFIX}latency": latency.content,
    f"{PREFIX}quality": quality.content,
    f"{PREFIX}bench": bench.content,
    f"{PREFIX}compare": compare.content,
    f"{PREFIX}what-if": what_if.content,
    f"{PREFIX}query": query.content,
}


def create_pages(server: Flask, data: PageData, base: str = "") -> dash.Dash:
    """The pages of a trace below `PREFIX`. `base`: what stands before all paths where they are mounted."""
    title = f"{data.trace.summary.name} · Twintap"
    app = new_app("viewer.pages", PAGES_ENTRY, title, PREFIX, base, server=server)
    app.layout = with_links_below(base, _frame(data.trace, in_series=bool(base)))

    @app.callback(
        Output("content", "children"),
        Output("top", "children"),
        Input("address", "pathname"),
        Input("address", "search"),
    )
    def show(path: str | None, search: str | None) -> tuple[list[Component], Component]:
        address = Address.of((path or PREFIX).removeprefix(base), search or "")
        content, row = page_content(data, address), navigation(address.path, in_series=bool(base))
        return with_links_below(base, content), with_links_below(base, row)

    app.clientside_callback(
        ClientsideFunction("twintap", "followLink"),
        Output("followed", "data"),
        Input({"type": "chart", "name": ALL}, "clickData"),
        prevent_initial_call=True,
    )
    return app


def page_content(data: PageData, address: Address) -> list[Component]:
    """What a page shows; for an address that leads nowhere, where to go instead."""
    content = CONTENTS.get(address.path)
    if content is None:
        links: list[Any] = [html.Li(dcc.Link(page.name, href=page.path)) for page in PAGES[1:]]
        return [nothing("There is no such page", "These are:", html.Ul(links))]
    return content(data, address)


def _frame(trace: TraceView, *, in_series: bool) -> Component:
    brand = html.Span([html.B("Twintap"), f" {trace.summary.name}"], className="brand")
    theme: dict[str, Any] = {"data-pages-action": "theme"}
    button = html.Button("light / dark", title="Theme (t)", **theme)
    return html.Div(
        [
            dcc.Location(id="address"),
            dcc.Store(id="followed"),
            html.Header([html.Div(navigation("", in_series=in_series), id="top"), brand, button], id="pages-head"),
            html.Main(html.P("loading…", className="hint"), id="content"),
        ],
        id="pages",
    )
