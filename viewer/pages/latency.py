"""The page about durations of requests, exchanges and packets: over time, by concurrency, class, service and hop."""

from collections.abc import Sequence
from functools import partial

from dash import html
from dash.development.base_component import Component

from collector.queries import PERCENTILES, AtConcurrency, Durations, Flight, RequestSelection, Scatter
from viewer.figures.latency import concurrency_figure, flight_figure, histogram_figure, scatter_figure
from viewer.navigation import PREFIX
from viewer.pages.address import Address, link, request_link
from viewer.pages.classes import chosen_class, chosen_outcome, class_choices, outcome_choices
from viewer.pages.context import PageData
from viewer.pages.parts import Row, chart, heading, no_requests, nothing, table
from viewer.wording import OUTCOME_WORDS, duration, exact_time

REQUESTS = f"{PREFIX}requests"
MOST_DRAWN = 6
"""Histograms in one picture; the table has all of them."""
LEAST_COUNT = 20
"""Fewest requests of a histogram: fewer show no shape."""
MOST_LISTED = 60
SUMMARY_HEAD = (
    *("what", "measured", "failed", "given up", "outcome unknown"),
    *(f"p{share:g}" for share in PERCENTILES),
    "longest",
)
MOST_STRETCHES = 12


def content(data: PageData, address: Address) -> list[Component]:
    """The page."""
    load = data.trace.load
    title = heading("Latency", "Click a dot, a cell or a bin to see the requests behind it.")
    if not data.trace.summary.roots_count:
        return [title, no_requests(data.trace, "Delays of packets are below."), _hops(load.hop_delays)]
    class_name = chosen_class(data.trace, address)
    outcome = chosen_outcome(address)
    selection = RequestSelection(class_name=class_name, outcome=outcome)
    controls = [class_choices(data.trace, address, class_name, all_of_them=True), outcome_choices(address, outcome)]
    found = load.latencies(selection)
    if not len(found.scatter.numbers):
        return [
            title,
            *controls,
            nothing("No request of this class has that outcome", "Choose all outcomes, or another class."),
        ]
    here = partial(link, REQUESTS, **{"class": class_name}, outcome=outcome or None)
    return [
        title,
        html.Div(controls, className="controls"),
        _dots(found.scatter, here()),
        html.Div(
            [_concurrency(found.by_concurrency), _flight(found.in_flight, here)],
            className="side-by-side",
        ),
        _classes(load.class_durations),
        _services(load.service_durations),
        _hops(load.hop_delays),
    ]


def summary_row(group: Durations) -> Row:
    """A group of durations as cells under `SUMMARY_HEAD`."""
    percentiles = (duration(each) for each in group.percentiles_ns)
    return (
        group.name,
        f"{group.count:,}",
        f"{group.failed_count:,}",
        f"{group.abandoned_count:,}",
        f"{group.unknown_count:,}",
        *percentiles,
        duration(group.longest_ns),
    )


def _dots(found: Scatter, area: str) -> Component:
    figure = scatter_figure(found, request_link, area)
    note = "the slowest and the failed ones as dots, all others counted" if found.grid is not None else ""
    order = sorted(range(len(found.numbers)), key=lambda at: -found.duration_ns[at])[:MOST_LISTED]
    rows = [
        (
            html.A(f"#{int(found.numbers[at]) + 1}", href=request_link(int(found.numbers[at]))),
            exact_time(int(found.start_ns[at])),
            duration(int(found.duration_ns[at])),
            OUTCOME_WORDS[str(found.outcome[at])],
        )
        for at in order
    ]
    return chart(
        "scatter",
        "When each began and how long it took",
        figure,
        table(("request", "began", "took", "outcome"), rows),
        note,
    )


def _concurrency(rows: Sequence[AtConcurrency]) -> Component:
    if not rows:
        return nothing("No latency by concurrency", "No request of a client is among these.")
    cells = [
        (
            f"{row.from_count:,} to {row.to_count:,}" if row.to_count > row.from_count else f"{row.from_count:,}",
            f"{row.requests_count:,}",
            f"{row.failed_count:,}",
            *(duration(value) for value in (row.p50_ns, row.p90_ns, row.p99_ns)),
        )
        for row in rows
    ]
    head = ("in flight", "requests", "failed", "p50", "p90", "p99")
    return chart("concurrency", "By how many were in flight", concurrency_figure(rows), table(head, cells))


def _flight(flight: Flight, here: partial[str]) -> Component:
    def stretch(from_ns: int, to_ns: int) -> str:
        return here(**{"from": from_ns, "to": to_ns})

    width = max(1, len(flight.most) // MOST_STRETCHES)
    rows = [
        (
            exact_time(at * flight.bin_ns),
            f"{int(flight.most[at : at + width].max()):,}",
            f"{int(flight.begun[at : at + width].sum()):,}",
            f"{int(flight.failed[at : at + width].sum()):,}",
        )
        for at in range(0, len(flight.most), width)
    ]
    made = table(("from", "most in flight", "began", "failed"), rows)
    return chart("flight", "In flight over time", flight_figure(flight, stretch), made)


def _classes(groups: Sequence[Durations]) -> Component:
    def stretch(name: str, low_ns: int, high_ns: int) -> str:
        return link(REQUESTS, **{"class": name}, least=low_ns, most=high_ns)

    return _histograms("classes", "Requests by class", groups, histogram_figure(_groups_to_draw(groups), stretch))


def _services(groups: Sequence[Durations]) -> Component:
    def stretch(name: str, low_ns: int, high_ns: int) -> str:
        return link(REQUESTS, callee=name)

    return _histograms(
        "services", "Exchanges by the service that answered", groups, histogram_figure(_groups_to_draw(groups), stretch)
    )


def _hops(groups: Sequence[Durations]) -> Component:
    if not groups:
        return nothing("No packet was seen at both ends", "Capture on both hosts at the same time.")
    note = "one way, with the clocks' uncertainty in it; the slowest median first"
    return _histograms(
        "hops", "Packets by pair of hosts", groups, histogram_figure(_groups_to_draw(groups), None), note
    )


def _groups_to_draw(groups: Sequence[Durations]) -> list[Durations]:
    """Those of which there are enough for a shape, the most frequent first."""
    often = [group for group in groups if group.count >= LEAST_COUNT] or list(groups)
    return sorted(often, key=lambda group: -group.count)[:MOST_DRAWN]


def _histograms(name: str, title: str, groups: Sequence[Durations], figure: object, note: str = "") -> Component:
    drawn = len(_groups_to_draw(groups))
    notes = [f"{drawn} of {len(groups)} drawn"] if len(groups) > drawn else []
    remarks = "; ".join([*notes, note] if note else notes)
    return html.Div(
        [
            chart(
                name, title, figure, table(SUMMARY_HEAD, [summary_row(each) for each in groups[:MOST_LISTED]]), remarks
            ),
        ]
    )
