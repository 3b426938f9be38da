"""Routes for the page of days. Times are whole seconds since the epoch, durations ns; null where there is nothing."""

import time
from collections.abc import Sequence

import numpy as np
from flask import Flask, Response, abort, jsonify, redirect, request
from werkzeug.wrappers import Response as AnyResponse

from collector.queries import Choice, Course, SeriesEntry, SeriesPart, SeriesView, Slow, Stretch
from tracer.errors import InputError, TracerError
from viewer.days.facts import facts_parts
from viewer.days.periods import OpenPeriods
from viewer.mounting import base_of
from viewer.serialise import element_trees

SECOND_NS = 10**9
MINUTE_SECONDS = 60
LONGEST_HOST = 300
WIDEST_SECONDS = 50 * 366 * 86_400
LOOK_SECONDS = 1.0
"""Between two looks at what is new."""


class Follower:
    """Looks at what is new in a series, at most once in a while."""

    def __init__(self, series: SeriesView) -> None:
        self._series, self._at, self.trouble = series, time.monotonic(), ""

    def look(self) -> None:
        """Read what is new; a series that cannot be read stays as it was, and `trouble` says why."""
        now = time.monotonic()
        if now - self._at < LOOK_SECONDS:
            return
        self._at = now
        try:
            self._series.refresh()
            self.trouble = ""
        except InputError as error:
            self.trouble = str(error)


def add_series_routes(server: Flask, series: SeriesView, follower: Follower, periods: OpenPeriods) -> None:
    """Serve what the page of days asks for, and the ways into periods."""

    @server.errorhandler(InputError)
    def report_damage(error: InputError) -> Response:
        return Response(str(error), status=409, mimetype="text/plain")

    @server.get("/api/series/state")
    def state() -> Response:
        follower.look()
        if request.args.get("version") == f"{series.version}":
            return jsonify(version=series.version, trouble=follower.trouble)
        choice, span = _choice(), series.span
        classes = series.classes(inner=choice.inner)
        return jsonify(
            version=series.version,
            trouble=follower.trouble,
            name=series.name,
            length=series.length_ns // SECOND_NS,
            span=None if span is None else [span[0] // SECOND_NS, span[1] // SECOND_NS],
            stretches=[_stretch(each) for each in series.stretches()],
            classes=[{"number": each.number, "host": each.server_host, "words": each.words} for each in classes],
            hosts=sorted({each.server_host for each in classes if each.server_host}),
            worst=[_slow(each) for each in series.worst(choice)],
        )

    @server.get("/api/series/part")
    def part() -> Response:
        begin, end = _seconds("from"), _seconds("to")
        if end <= begin or end - begin > WIDEST_SECONDS:
            abort(400, "`to` must be after `from`, by no more than 50 years")
        return jsonify(_part(series.part(begin * SECOND_NS, end * SECOND_NS, _choice())))

    @server.get("/api/series/periods/<name>")
    def period(name: str) -> Response:
        facts = series.facts(name)
        if facts is None:
            abort(404, "no such period")
        return jsonify(element_trees(facts_parts(name, facts)))

    @server.get("/period/<name>/at/<int:seconds>")
    def minute(name: str, seconds: int) -> AnyResponse:
        entry = series.entry(name)
        if entry is None or not entry.has_trace:
            return redirect(_days(name), 303)
        return redirect(f"{base_of(name)}/#{_stretch_of_trace(periods, entry, seconds)}", 303)

    @server.get("/period/<name>/days")
    def days(name: str) -> AnyResponse:
        return redirect(_days(name), 303)

    @server.get("/period/<name>/<any(next, previous):which>")
    def neighbour(name: str, which: str) -> AnyResponse:
        found = series.neighbour(name, backwards=which == "previous")
        if found is None:
            return redirect(_days(name), 303)
        place = found.period.name
        return redirect(f"{base_of(place)}/" if found.has_trace else _days(place), 303)

    @server.get("/period/<name>/")
    @server.get("/period/<name>/<path:rest>")
    def no_trace(name: str, rest: str = "") -> AnyResponse:
        """Of a period that has no trace (any more); one that has one is served before this is asked."""
        if rest.startswith("api/"):
            abort(410, "the trace of this period was removed")
        return redirect(_days(name), 303)

    @server.get("/api/<path:rest>")
    def nothing(rest: str) -> Response:  # otherwise Dash would answer with its page
        abort(404, f"nothing is served as {rest}")


def _stretch_of_trace(periods: OpenPeriods, entry: SeriesEntry, seconds: int) -> str:
    """The address, in a period's timeline, of a minute."""
    try:
        start_ns = periods.start_ns(entry)
    except (TracerError, OSError) as error:
        abort(503, f"the trace cannot be opened: {error}")
    begin = max(0, seconds * SECOND_NS - start_ns)
    return f"from={begin}&to={max(begin + SECOND_NS, (seconds + MINUTE_SECONDS) * SECOND_NS - start_ns)}"


def _days(name: str) -> str:
    return f"/#period={name}" if name.isalnum() else "/"


def _choice() -> Choice:
    number = request.args.get("class", "")
    return Choice(
        server_host=request.args.get("host", "")[:LONGEST_HOST],
        number=int(number) if number.isascii() and number.isdecimal() and len(number) <= 9 else None,
        inner=request.args.get("inner") == "1",
    )


def _seconds(name: str) -> int:
    text = request.args.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) * SECOND_NS < 1 << 63):
        abort(400, f"`{name}` must be seconds since the epoch")
    return int(text)


def _stretch(each: Stretch) -> dict[str, object]:
    return {
        "from": each.from_ns // SECOND_NS,
        "to": each.to_ns // SECOND_NS,
        "state": str(each.state),
        "problem": each.problem,
    }


def _slow(each: Slow) -> dict[str, object]:
    return {
        "at": each.minute_ns // SECOND_NS,
        "class": each.number,
        "words": each.words,
        "count": each.requests_count,
        "p99": round(each.p99_ns),
        "usual": round(each.usual_p99_ns),
    }


def _part(part: SeriesPart) -> dict[str, object]:
    return {
        "from": part.from_ns // SECOND_NS,
        "step": part.step_ns // SECOND_NS,
        "covered": (part.covered_ns // SECOND_NS).tolist(),
        "total": _course(part.total),
        "courses": [_course(each) for each in part.courses],
        "classes": part.classes_count,
        "hops": part.hops.tolist(),
        "lost": part.lost.tolist(),
    }


def _course(course: Course) -> dict[str, object]:
    return {
        "words": course.words,
        "number": course.number,
        "counts": course.counts.tolist(),
        "failed": course.failed.tolist(),
        "percentiles": [_whole(each) for each in course.percentiles_ns],
    }


def _whole(values: Sequence[float]) -> list[int | None]:
    known = np.nan_to_num(values, nan=-1).round().astype(np.int64).tolist()
    return [None if value < 0 else value for value in known]
