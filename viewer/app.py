"""The Dash application over one opened trace."""

import dash
from dash.exceptions import DependencyException
from flask import Flask, Response

from collector.queries import TraceSearch, TraceView
from viewer.access import Access, guard
from viewer.callbacks import add_callbacks, add_start_callbacks
from viewer.explaining import add_explaining
from viewer.layout import page, start_page
from viewer.live import add_live
from viewer.mounting import with_links_below
from viewer.narrowing import Narrowing
from viewer.page_shell import add_joined_assets, new_app
from viewer.pages.app import create_pages
from viewer.pages.context import Companions, PageData
from viewer.revisions import Revisions
from viewer.routes import add_routes
from viewer.saving import add_saving
from viewer.search_routes import add_search_routes
from viewer.upload_routes import add_uploads
from viewer.uploads import Uploads
from viewer.warming import add_warming

TIMELINE_ENTRY = "main.js"


def make_viewer(
    trace: TraceView | None, access: Access, companions: Companions | None = None
) -> tuple[Revisions, Uploads]:
    """The viewer of a trace, or without one of what is uploaded; it follows newer revisions, and shows uploads."""
    uploads: Uploads

    def make(trace: TraceView | None, revisions: Revisions) -> Flask:
        app = create_start_app(access) if trace is None else create_app(trace, access, companions, revisions)
        add_uploads(app.server, lambda: uploads)
        return app.server

    revisions = Revisions(trace, make)
    uploads = Uploads(revisions.show)
    return revisions, uploads


def create_start_app(access: Access) -> dash.Dash:
    """The page without a trace: it takes captures."""
    app = _app_of("Twintap")
    app.layout = start_page()
    add_start_callbacks(app)
    guard(app.server, access, list(app.csp_hashes()))
    return app


def create_app(
    trace: TraceView,
    access: Access | None = None,
    companions: Companions | None = None,
    revisions: Revisions | None = None,
    base: str = "",
) -> dash.Dash:
    """The viewer of `trace` and of its `companions`; it serves everything that the page needs.

    With `revisions`, the page follows newer ones. `base`: what stands before the paths at which it is mounted.
    """
    app = _app_of(f"{trace.summary.name} · Twintap", base)
    data = PageData(trace, TraceSearch(trace), companions or Companions())
    runs = trace.runs_beside() or data.runs()
    app.layout = with_links_below(base, page(trace, runs, followed=revisions is not None, in_series=bool(base)))
    narrowing = Narrowing(trace, data.search)
    add_callbacks(app, trace)
    add_routes(app.server, trace, narrowing)
    add_search_routes(app.server, trace, data.search, narrowing)
    add_explaining(app.server, trace)
    add_saving(app.server, trace, narrowing)
    if revisions is not None:
        add_live(app.server, trace, runs, revisions)
    pages = create_pages(app.server, data, base)
    add_warming(app.server, data)
    guard(app.server, access or Access(), [*app.csp_hashes(), *pages.csp_hashes()])
    return app


def _app_of(title: str, base: str = "") -> dash.Dash:
    app = new_app("viewer", TIMELINE_ENTRY, title, base=base, with_figures=False)
    add_joined_assets(app.server)

    @app.server.errorhandler(DependencyException)
    def unknown_part(error: DependencyException) -> Response:  # of Dash's own scripts
        return Response("there is no such part\n", 404, mimetype="text/plain")

    return app
