"""The Dash application over one opened trace."""

from pathlib import Path

import dash

from collector.queries import TraceView
from viewer.access import Access, guard
from viewer.callbacks import add_callbacks
from viewer.explaining import add_explaining
from viewer.finding import add_finding
from viewer.layout import page
from viewer.pages.app import create_pages
from viewer.pages.context import Beside
from viewer.routes import add_routes
from viewer.saving import add_saving

ASSETS = Path(__file__).parent / "assets"


def create_app(trace: TraceView, access: Access | None = None, beside: Beside | None = None) -> dash.Dash:
    """The viewer of `trace` and of what stands `beside` it; everything it needs is served from here."""
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
    pages = create_pages(app.server, trace, beside or Beside(), ASSETS)
    guard(app.server, access or Access(), [*app.csp_hashes(), *pages.csp_hashes()])
    return app
