"""Follows a live trace, which is replaced again and again: its state, and what a page needs to switch to a new
revision."""

from collections.abc import Sequence
from pathlib import Path

from flask import Flask, Response, jsonify
from msgspec import to_builtins

from collector.queries import TraceView
from viewer.layout import page_meta
from viewer.revisions import Revisions


def add_live(server: Flask, trace: TraceView, runs: Sequence[Path], revisions: Revisions) -> None:
    """Serve the state of the newest revision, and one revision's own description with the load of these `runs`."""

    @server.get("/api/live")
    def live() -> Response:
        return jsonify(to_builtins(revisions.refresh()))

    @server.get("/api/meta")
    def meta() -> Response:
        return jsonify(page_meta(trace, runs))
