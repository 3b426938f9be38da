"""The figures as a table in Markdown, and as the page docs/linking-accuracy.md with its picture."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from benchmarks.linking.measure import METHODS, OURS, Scored
from benchmarks.linking.scoring import Bin
from benchmarks.viewer_session import browser

PAGE, PICTURE = "linking-accuracy.md", "images/linking-calibration.png"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
"""Of the page, what is written anew."""
WIDTH, HEIGHT = 900, 620
COLOURS = {OURS: "#0072B2", "FCFS": "#C27C00", "WAP5": "#6B7280"}
DASHES = {OURS: "solid", "FCFS": "dot", "WAP5": "dash"}


def lines(scored: Sequence[Scored]) -> list[str]:
    """The tables: ids visible, ids hidden."""
    return [*_visible(scored), "", *_lines_without_ids(scored)]


def _visible(scored: Sequence[Scored]) -> list[str]:
    head = [
        "| ids visible | at once | exchanges | complete requests | whole | with a foreign exchange "
        "| ledger adds up | agrees with the client | apart: median, worst |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    return head + [_visible_row(one) for one in scored]


def _visible_row(one: Scored) -> str:
    whole, ledger = one.whole, one.ledger
    measured = ledger.measured_count
    agrees = f"{_percent(ledger.agreeing_count, measured)} of {measured:,}" if measured else "not measured"
    apart = f"{ledger.median_difference_ns / 1e3:,.0f}, {ledger.worst_difference_ns / 1e3:,.0f} µs" if measured else ""
    return (
        f"| {one.case.words} | {one.case.at_once} | {one.exchanges_count:,} | {whole.complete_count:,} "
        f"| {_percent(whole.whole_count, whole.complete_count)} | {whole.foreign_count} "
        f"| {_percent(ledger.adding_up_count, ledger.requests_count)} | {agrees} | {apart} |"
    )


def _lines_without_ids(scored: Sequence[Scored]) -> list[str]:
    methods = (OURS, *METHODS)
    head = [
        f"| ids hidden | at once | links | {' | '.join(f'{name}, right' for name in methods)} "
        f"| errors of ours over the better's | {' | '.join(f'{name}, ECE' for name in methods)} |",
        "|---|--:|--:|" + "--:|" * (2 * len(methods) + 1),
    ]
    return head + [_hidden_row(one, methods) for one in scored]


def _hidden_row(one: Scored, methods: Sequence[str]) -> str:
    wrong = {name: 1 - one.hidden[name].accuracy for name in methods}
    better = min(wrong[name] for name in METHODS)
    ratio = f"{wrong[OURS] / better:.2f}" if better else "–"
    right = " | ".join(_percent(one.hidden[name].right_count, one.hidden[name].scored_count) for name in methods)
    errors = " | ".join(f"{one.hidden[name].calibration_error:.3f}" for name in methods)
    count = f"{one.hidden[OURS].scored_count:,}"
    return f"| {one.case.words} | {one.case.at_once} | {count} | {right} | {ratio} | {errors} |"


def _percent(part: int, whole: int) -> str:
    """Never rounded up to 100."""
    if not whole:
        return "–"
    return "100 %" if part == whole else f"{np.floor(10_000 * part / whole) / 100:.2f} %"


def write_page(scored: Sequence[Scored], docs: Path) -> None:
    """Write the measured part of the page anew, and draw its picture."""
    page = docs / PAGE
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines(scored)) + f"\n\n{END}{after}")
    _draw(scored, docs / PICTURE)


def _draw(scored: Sequence[Scored], path: Path) -> None:
    figure = go.Figure()
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", name="as it should be", line={"color": "#111827", "width": 1})
    for name in (OURS, *METHODS):
        bins = _merge_bins([bin_ for one in scored for bin_ in one.hidden[name].bins])
        figure.add_scatter(
            x=[one.confidence for one in bins],
            y=[one.right_share for one in bins],
            mode="lines+markers",
            name=name,
            line={"color": COLOURS[name], "dash": DASHES[name]},
            marker={"size": [6 + 3 * np.log10(one.count) for one in bins]},
        )
    figure.update_layout(
        title="Of the links given a confidence, the share that is right (ids hidden, all recordings)",
        template="plotly_white",
        xaxis={"title": "confidence given", "range": [0, 1.02]},
        yaxis={"title": "share that is right", "range": [0, 1.05]},
        legend={"x": 0.02, "y": 0.98},
        margin={"l": 60, "r": 20, "t": 60, "b": 60},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_content(figure.to_html(include_plotlyjs=True, default_width=WIDTH, default_height=HEIGHT))
        page.wait_for_selector(".main-svg")
        page.screenshot(path=str(path))


def _merge_bins(bins: Sequence[Bin]) -> list[Bin]:
    """Bins of many traces, by tenths of confidence."""
    found = []
    for tenth in sorted({min(9, int(10 * one.confidence)) for one in bins}):
        mine = [one for one in bins if min(9, int(10 * one.confidence)) == tenth]
        count = sum(one.count for one in mine)
        confidence = sum(one.confidence * one.count for one in mine) / count
        found.append(Bin(confidence, sum(one.right_share * one.count for one in mine) / count, count))
    return found
