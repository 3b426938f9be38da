"""The page that says how long requests would have taken if the network or a server were otherwise."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from dash import dcc, html
from dash.development.base_component import Component

from collector.queries import TraceView
from collector.queries.what_if import Changes, ClassForecast, Forecast, what_if
from collector.queries.what_if_text import ASSUMPTIONS
from tracer.errors import InputError
from viewer.figures.forecast import forecast_figure
from viewer.pages.address import Address
from viewer.pages.context import PageData
from viewer.pages.parts import Row, chart, code, heading, no_requests, nothing, table
from viewer.toolbar import SEARCH_WORDS
from viewer.wording import duration, plural

FIELDS = ("quorum", "loss", "nodelay", "way", "slow", "fast", "host", "own", "search")
"""Names of the form's fields."""
NONE, YES = "", "yes"
HEAD = ("class", "requests", "changed", "p50", "would be", "p99", "would be")
MOST_CHARTS = 6
LEAST_CHARTED = 2
"""Requests of a class: of one the table says it all."""


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    title = heading(
        "What if",
        "Each request is played again with something changed: what it waited for stays, so a call that becomes quicker "
        "uncovers the next slowest.",
    )
    if not data.trace.summary.roots_count:
        return [title, no_requests(data.trace, "Requests are played again, and there is none.")]
    parts = [title, _form(data.trace, address)]
    if not any(address.text(name) for name in FIELDS if name != "search"):
        command = html.P(["On the command line: ", code("tracer what-if TRACE --quorum 1")], className="hint")
        return [*parts, nothing("Nothing is changed yet", "Choose one or several changes above."), command]
    try:
        found = _forecast(data.trace, address)
    except InputError as error:
        return [*parts, nothing("This cannot be played", str(error))]
    return [*parts, *_cards(found)]


def _form(trace: TraceView, address: Address) -> Component:
    """What may be changed; it needs no script."""
    hosts = {lane.host: lane.host for lane in trace.lanes if lane.services}
    yes = {YES: "yes"}
    labels = [
        _number("Quorum ", "quorum", address, "as many as it was"),
        html.Label(["No loss ", _select("loss", yes, address)]),
        html.Label(["TCP_NODELAY ", _select("nodelay", yes, address)]),
        _number("Round trips × ", "way", address, "1"),
        html.Label(["Server ", _select("slow", hosts, address)]),
        html.Label(["as fast as ", _select("fast", hosts, address)]),
        html.Label(["Own time of ", _select("host", hosts, address)]),
        _number("× ", "own", address, "1"),
        html.Label(
            [
                "Only requests ",
                dcc.Input(
                    type="search", name="search", value=address.text("search"), placeholder="all", list=SEARCH_WORDS
                ),
            ]
        ),
    ]
    parts = [*labels, html.Datalist(id=SEARCH_WORDS), html.Button("play", type="submit")]
    return html.Form(parts, id="what-if", action=address.path, method="GET", className="search")


def _number(text: str, name: str, address: Address, hint: str) -> Component:
    field = dcc.Input(type="text", name=name, value=address.text(name), placeholder=hint, size="8")
    return html.Label([text, field])


def _select(name: str, options: Mapping[str, str], address: Address) -> Component:
    chosen = address.text(name)
    every = {NONE: "as it was", **options}
    return html.Select(
        [html.Option(text, value=value, selected=value == chosen) for value, text in every.items()], name=name
    )


def _changes(address: Address) -> Changes:
    """What the form asks for. Raises: `InputError` for a number that is none, or half of a pair."""
    slow, fast, host, own = (address.text(name) for name in ("slow", "fast", "host", "own"))
    if bool(slow) != bool(fast) or bool(host) != bool(own):
        raise InputError("one half of a change is missing", "a server needs another one, or a factor, beside it")
    quorum = _value(address.text("quorum"))
    if quorum is not None and quorum != int(quorum):
        raise InputError("a quorum is a whole number", "1 for the first answer")
    return Changes(
        quorum=None if quorum is None else int(quorum),
        no_loss=address.text("loss") == YES,
        no_delay=address.text("nodelay") == YES,
        round_trip=1.0 if (way := _value(address.text("way"))) is None else way,
        as_fast={slow: fast} if slow else None,
        own_time=None if (ratio := _value(own)) is None else {host: ratio},
    )


def _value(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{text!r} is no number", "0.5 for half of it")
    return value


def _forecast(trace: TraceView, address: Address) -> Forecast:
    return _cached_forecast(trace, tuple((name, address.text(name)) for name in FIELDS))


@lru_cache(maxsize=4)
def _cached_forecast(trace: TraceView, given: tuple[tuple[str, str], ...]) -> Forecast:
    """Kept, for it takes a second for some twenty thousand calls."""
    return what_if(trace, _changes(Address("", given)), dict(given)["search"])


def _cards(found: Forecast) -> list[Component]:
    rows: list[Row] = [_row(each) for each in found.classes]
    limits = [html.Li(limit) for limit in found.limits]
    if found.left_count:
        words = f"{plural(found.left_count, 'request')} without a known end, or given up: in no figure"
        limits.append(html.Li(words))
    parts: list[Component] = [html.P(html.B(f"With {found.changes}"), id="changes"), table(HEAD, rows)]
    if limits:
        parts.append(html.Ul(limits, className="hint", id="limits"))
    parts.append(html.P(ASSUMPTIONS, className="hint"))
    return [html.Section(parts, className="card"), *_charts(found.classes, found)]


def _row(each: ClassForecast) -> Row:
    times = (each.p50_ns, each.p50_now_ns, each.p99_ns, each.p99_now_ns)
    return (each.name, f"{each.count:,}", f"{each.changed_count:,}", *(duration(time) for time in times))


def _charts(classes: Sequence[ClassForecast], found: Forecast) -> list[Component]:
    shown = [each for each in classes if each.changed_count and each.count >= LEAST_CHARTED][:MOST_CHARTS]
    return [
        chart(
            f"forecast-{place}",
            each.name,
            forecast_figure(*found.durations_ns[each.name]),
            table(HEAD, [_row(each)]),
            "requests that took at most so long",
        )
        for place, each in enumerate(shown)
    ]
