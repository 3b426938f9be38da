"""Lines of logs and spans of other tracers: what the timeline draws of them, and what the panel says."""

from collections.abc import Sequence

import numpy as np
from dash import html
from dash.development.base_component import Component
from flask import Flask, Response, abort, jsonify, request

from collector.queries import NO_REQUEST, AnnotationCounts, Annotations, OneAnnotation, Said, heading_of
from viewer.controls import action_button, request_button, toggle_button
from viewer.serialise import element_trees
from viewer.wording import duration, exact_time

WIDEST_NS = 1 << 52
LISTED = 20
JOINED_WORDS = {"id": "by its id", "connection": "by its connection", "time": "by time alone"}
UNJOINED = "of no request that is known"
EACH = (
    *("annotation_id", "kind", "lane", "start", "duration_ns", "uncertainty_ns", "name", "severity", "request"),
    *("format", "joined_by"),
)
"""What the page is given of each, in the order in which `assets/app/annotations.js` takes it."""


def add_annotation_routes(server: Flask, annotations: Annotations) -> None:
    """Serve the annotations of one trace."""

    @server.get("/api/annotations")
    def annotations_of_window() -> Response:
        from_ns, to_ns = _number("from"), _number("to")
        return jsonify({"from": from_ns, "to": to_ns, **_message(annotations, from_ns, to_ns)})

    @server.get("/api/annotations/<int:number>")
    def annotation(number: int) -> Response:
        found = annotations.one(number)
        if found is None:
            abort(404, "no such annotation")
        times = {"from": found.start_ns, "to": found.start_ns + found.duration_ns}
        request_number = None if found.request == NO_REQUEST else found.request
        return jsonify({**times, "request": request_number, "parts": element_trees(annotation_details(found))})

    @server.get("/api/annotations/beside")
    def annotation_beside() -> Response:
        return jsonify(annotations.beside(_number("number"), _number("at"), request.args.get("which") == "previous"))


def annotations_switch(annotations: Annotations) -> list[Component]:
    """A legend entry that shows or hides annotations, where the trace has any."""
    if not annotations.count:
        return []
    title = f"{annotations.count:,} of {annotations.sources}, below their host's line (j); [ and ] step through them"
    canvas = html.Canvas(className="chip", width=44, height=24)
    return [toggle_button([canvas, annotations.sources], "annotations", title)]


def annotation_details(found: OneAnnotation) -> list[Component]:
    """One annotation in the panel."""
    said = found.said
    off = "off by what is not known" if found.uncertainty_ns is None else f"± {duration(found.uncertainty_ns)}"
    facts = [("begins", f"{exact_time(found.start_ns)}, {off}"), ("from", found.source)]
    if found.duration_ns:
        facts.append(("lasts", duration(found.duration_ns)))
    if said is not None:
        facts.append(("joined", JOINED_WORDS[said.joined_by]))
        facts += [(phase.name, duration(phase.duration_ns)) for phase in said.phases]
        facts += [("compared", said.comparison)] if said.comparison else []
    else:
        facts.append(("joined", UNJOINED))
    steps = [
        action_button("‹", "previous-annotation", "Previous ([)", "small"),
        action_button("›", "next-annotation", "Next (])", "small"),
    ]
    rows = [html.Tr([html.Th(name), html.Td(value)]) for name, value in facts]
    buttons = [] if found.request == NO_REQUEST else [request_button(f"request #{found.request + 1}", found.request)]
    return [
        html.H3([f"{found.kind.capitalize()} ", *steps]),
        html.P(found.name, className="facts"),
        html.Table(html.Tbody(rows)),
        html.Pre(found.text, className="line", tabIndex="0"),
        *buttons,
    ]


def said_parts(said: Sequence[Said]) -> list[Component]:
    """What logs and other tracers say of a request, beside its ledger."""
    if not said:
        return []
    rows = [
        html.Li([html.B(each.by), f": {each.name} ", html.Small(each.words or "an instant", title=each.text)])
        for each in said[:LISTED]
    ]
    rest = len(said) - len(rows)
    more = [html.Li(f"… and {rest:,} more")] if rest else []
    return [html.H3(heading_of(said)), html.Ul([*rows, *more], className="said")]


def _message(annotations: Annotations, from_ns: int, to_ns: int) -> dict[str, object]:
    found = annotations.between(from_ns, to_ns)
    if isinstance(found, AnnotationCounts):
        nonzero = np.argwhere(found.counts)
        cells = [
            [found.lanes[lane], int(at), int(found.counts[lane, at]), int(found.errors_counts[lane, at])]
            for lane, at in nonzero.tolist()
        ]
        return {"each": None, "bin": found.bin_ns, "cells": cells}
    return {"each": [list(row) for row in found.select(EACH).iter_rows()], "bin": 0, "cells": []}


def _number(name: str) -> int:
    text = request.args.get(name, "")
    if not text.removeprefix("-").isdecimal() or len(text) > 17 or abs(int(text)) > WIDEST_NS:
        abort(400, f"`{name}` must be a whole number, at most 2^52")
    return int(text)
