"""The Dash application over one opened trace."""

from pathlib import Path

import dash

from collector.queries import TraceView
from viewer.access import Access, guard
from viewer.callbacks import add_callbacks
from viewer.explaining import add_explaining
from viewer.finding import add_finding
from viewer.layout import page
from viewer.routes import add_routes
from viewer.saving import add_saving

ASSETS = Path(__file__).parent / "assets"


def create_app(trace: TraceView, access: Access | None = None) -> dash.Dash:
    """The viewer of `trace`; everything it needs is served from here."""
    app = dash.Dash(
        "viewer",
        assets_folder=str(ASSETS),
        serve_locally=True,
        title=f"{trace.summary.name} · Twintap",
        update_title="",
        suppress_callback_exceptions=True,  # the waterfall is there only while a request is selected
    )
    app.layout = page(trace)
    add_callbacks(app, trace)
    add_routes(app.server, trace)
    add_finding(app.server, trace)
    add_explaining(app.server, trace)
    add_saving(app.server, trace)
    guard(app.server, access or Access(), list(app.csp_hashes()))
    return app
