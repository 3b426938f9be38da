"""Figures of runs by concurrency, as in the paper's figures 3 to 14: throughput, failures, usage of the hosts."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from collector.queries import RUN_PERCENTILES, BenchRun, Operation
from viewer.figures.frame import BAD, STYLES, Style, doubling_axis, duration_axis, make_figure, style, unit_of
from viewer.wording import duration

Link = Callable[[BenchRun], str]
HEIGHT_PX = 320
AT_ONCE = "at once"


def throughput_figure(series: dict[str, list[BenchRun]], link: Link) -> go.Figure:
    """Operations that went well, a second."""
    figure = go.Figure()
    for at, (name, runs) in enumerate(series.items()):
        values = [run.throughput_per_s for run in runs]
        words = [f"{value:,.1f}/s" for value in values]
        figure.add_trace(_line(name, runs, values, words, style(at), link))
    return _over_concurrency(figure, series, {"title": {"text": "operations/s", "standoff": 4}, "rangemode": "tozero"})


def trouble_figure(series: dict[str, list[BenchRun]], link: Link) -> go.Figure:
    """Failures of operations and retries of attempts."""
    figure = go.Figure()
    for at, (name, every) in enumerate(series.items()):
        for what, look in (("retries", style(at)), ("failures", BAD)):
            runs = [run for run in every if getattr(run, f"{what}_count") is not None]
            values = [getattr(run, f"{what}_count") for run in runs]
            if any(values) or (runs and what == "retries"):
                words = [f"{value:,} {what}" for value in values]
                symbol = look._replace(symbol=look.symbol if what == "failures" else f"{look.symbol}-open")
                figure.add_trace(_line(f"{name}: {what}", runs, values, words, symbol, link))
    return _over_concurrency(figure, series, {"title": {"text": "times", "standoff": 4}, "rangemode": "tozero"})


def latency_figure(series: dict[str, list[BenchRun]], link: Link) -> go.Figure:
    """The median and the highest percentile of operations that went well."""
    figure = go.Figure()
    values_all: list[int] = []
    for at, (name, runs) in enumerate(series.items()):
        good = [run for run in runs if run.percentiles_ns]
        for place, dash in ((0, "solid"), (len(RUN_PERCENTILES) - 1, "dot")):
            values = [run.percentiles_ns[place] for run in good]
            label = f"{name}: p{RUN_PERCENTILES[place]:g}"
            words = [duration(value) for value in values]
            figure.add_trace(_line(label, good, values, words, style(at)._replace(dash=dash), link))
            values_all += values
    low, high = min(values_all, default=1), max(values_all, default=10)
    return _over_concurrency(figure, series, duration_axis(low, high, "response time"))


def use_figure(runs: Sequence[BenchRun], link: Link) -> go.Figure:
    """CPU of each host, and the busiest disk of each that has one, of the runs of one series."""
    figure = go.Figure()
    hosts = list(dict.fromkeys(use.host for run in runs for use in run.use))
    for at, host in enumerate(hosts):
        found = [(run, use) for run in runs for use in run.use if use.host == host]
        cpu = [(run, use.cpu_percent) for run, use in found if use.cpu_percent is not None]
        disk = [(run, use.disk_percent) for run, use in found if use.disk_percent is not None]
        looks = style(at)._replace(dash="dot"), style(at)._replace(dash="solid", symbol="hexagram")
        for what, values, look in (("CPU", cpu, looks[0]), ("I/O", disk, looks[1])):
            if not values:
                continue
            words = [f"{value:.1f} %" for _, value in values]
            label = f"{host} {what}"
            figure.add_trace(_line(label, [run for run, _ in values], [v for _, v in values], words, look, link))
    axis = {"title": {"text": "% (CPU: of one core)", "standoff": 4}, "rangemode": "tozero"}
    return _over_concurrency(figure, {"": list(runs)}, axis)


def operations_figure(operations: Sequence[Operation], links: Sequence[str | None], started_ns: int) -> go.Figure:
    """Attempts of one run by when they began and how long they took; `links` to their requests, where there are any."""
    span_ns = max((each.start_ns - started_ns for each in operations), default=1)
    unit_ns, unit = unit_of(span_ns)
    figure = go.Figure()
    for name, bad, look in (("went well", False, STYLES[0]), ("failed", True, BAD)):
        at = [
            place for place, each in enumerate(operations) if bool(each.error) == bad and each.response_ns is not None
        ]
        if not at:
            continue
        chosen = [operations[place] for place in at]
        took_ns = [each.response_ns or 1 for each in chosen]
        figure.add_scatter(
            x=[(each.start_ns - started_ns) / unit_ns for each in chosen],
            y=took_ns,
            name=name,
            mode="markers",
            marker={"color": look.colour, "symbol": look.symbol, "size": 6, "opacity": 0.8},
            customdata=[links[place] or "" for place in at],
            hovertext=[
                f"{escape(each.op)} {escape(each.file)}: {'failed after ' if each.error else ''}{duration(took)}"
                for each, took in zip(chosen, took_ns, strict=True)
            ],
            hoverinfo="text",
        )
    times = [each.response_ns for each in operations if each.response_ns is not None] or [1]
    axis = {"title": {"text": f"began, {unit}", "standoff": 4}}
    y_axis = duration_axis(max(1, min(times)), max(times), "response time")
    return make_figure(figure, HEIGHT_PX, showlegend=True, xaxis=axis, yaxis=y_axis)


def _line(
    name: str, runs: Sequence[BenchRun], values: Sequence[float], words: Sequence[str], look: Style, link: Link
) -> go.Scatter:
    return go.Scatter(
        x=[run.concurrency for run in runs],
        y=list(values),
        name=escape(name),
        mode="lines+markers",
        line={"color": look.colour, "dash": look.dash, "width": 2},
        marker={"color": look.colour, "symbol": look.symbol, "size": 9},
        customdata=[link(run) for run in runs],
        hovertext=[
            f"{escape(name)}<br>{run.concurrency:,} at once: {text}" for run, text in zip(runs, words, strict=True)
        ],
        hoverinfo="text",
    )


def _over_concurrency(figure: go.Figure, series: dict[str, list[BenchRun]], y_axis: Mapping[str, object]) -> go.Figure:
    counts = sorted({run.concurrency for runs in series.values() for run in runs})
    return make_figure(figure, HEIGHT_PX, showlegend=True, xaxis=doubling_axis(counts, AT_ONCE), yaxis=y_axis)
