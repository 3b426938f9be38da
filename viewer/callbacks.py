"""The server's callbacks for selections; everything else happens in the browser (`assets/`)."""

from typing import NotRequired, TypedDict

import dash
from dash import ClientsideFunction, Input, Output
from dash.development.base_component import Component

from collector.queries import TraceView
from viewer.details import aligned_waterfall, waterfall
from viewer.layout import head


class Selection(TypedDict):
    """Whose waterfall the browser asks for, once it shows the ledger; and which request is compared with it."""

    request: int | None
    beside: NotRequired[int | None]


def add_start_callbacks(app: dash.Dash) -> None:
    """Those of the page without a trace."""
    app.clientside_callback(
        ClientsideFunction("twintap", "startUploads"), Output("started", "data"), Input("upload-files", "id")
    )


def add_callbacks(app: dash.Dash, trace: TraceView) -> None:
    """Register them on `app`."""
    app.clientside_callback(ClientsideFunction("twintap", "start"), Output("started", "data"), Input("meta", "data"))
    app.clientside_callback(
        ClientsideFunction("twintap", "zoomToBar"),
        Output("waterfall", "clickData"),
        Input("waterfall", "clickData"),
        prevent_initial_call=True,
    )

    @app.callback(Output("head", "children"), Input("renewed", "data"), prevent_initial_call=True)
    def show_newer(made: str) -> list[Component]:
        return head(trace)

    @app.callback(Output("request-waterfall", "children"), Input("selection", "data"), prevent_initial_call=True)
    def show_waterfall(selection: Selection | None) -> list[Component]:
        number, beside = (selection.get(name) if selection else None for name in ("request", "beside"))
        if not isinstance(number, int) or not trace.has_request(number):
            return []
        if isinstance(beside, int) and trace.has_request(beside):
            return aligned_waterfall(trace.spans(number), trace.spans(beside), beside)
        return [waterfall(trace.spans(number))]
