"""The viewer of a series as one WSGI application: the page of days, and below it the viewers of periods."""

from collections.abc import Iterable
from typing import Any

import dash
from dash import ClientsideFunction, Input, Output
from flask import Flask

from collector.queries import SeriesView
from tracer.errors import TracerError
from viewer.access import Access, guard
from viewer.days.layout import days_page
from viewer.days.periods import OpenPeriods, StartResponse, answer_below, named_period
from viewer.days.routes import Follower, add_series_routes
from viewer.page_shell import add_joined_assets, new_app

DAYS_ENTRY = "days.js"
OF_THE_SERIES = ("/days", "/next", "/previous")
"""Below a period's address, what leads away from it."""


class SeriesSite:
    """Answers each request from the page of days, or from the viewer of the period that its path names."""

    def __init__(self, series: SeriesView, access: Access) -> None:
        self._series, self._follower = series, Follower(series)
        self.periods = OpenPeriods(series.trace_place, access)
        self._days = _create_days_app(series, access, self._follower, self.periods)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """As WSGI has it. Who may not see the page of days sees no period, and opens none."""
        named = named_period(environ.get("PATH_INFO", ""))
        if named is None or named[1] in OF_THE_SERIES or named[1].startswith("/at/"):
            return self._days(environ, start_response)
        self._follower.look()
        entry = self._series.entry(named[0])
        with self._days.request_context(environ):
            refused = self._days.preprocess_request()
        if entry is None or not entry.has_trace or refused is not None:
            return self._days(environ, start_response)
        try:
            app = self.periods.app(entry)
        except (TracerError, OSError) as error:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"The trace of this period cannot be opened: {error}\n".encode()]
        return answer_below(app, named[0], environ, start_response)


def _create_days_app(series: SeriesView, access: Access, follower: Follower, periods: OpenPeriods) -> Flask:
    app = new_app("viewer.days", DAYS_ENTRY, f"{series.name} · Twintap")
    add_joined_assets(app.server)
    app.layout = days_page(series.name)
    _add_callbacks(app)
    add_series_routes(app.server, series, follower, periods)
    guard(app.server, access, list(app.csp_hashes()))
    return app.server


def _add_callbacks(app: dash.Dash) -> None:
    app.clientside_callback(
        ClientsideFunction("twintap", "startDays"), Output("started", "data"), Input("meta", "data")
    )
