"""Figures of durations: as dots, by concurrency, over time, and as histograms."""

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go

from collector.queries import AtConcurrency, Durations, Flight, Scatter
from viewer.figures.frame import BAD, SCALE, STYLES, doubling_axis, duration_axis, make_figure, style, unit_of
from viewer.wording import OUTCOME_WORDS, duration, duration_words

MOST_WITH_LABELS = 8
"""Up to so many requests, each whole number on the axis has a label: there is no half request."""
OUTCOME_STYLES = (("ok", STYLES[0]), ("unknown", STYLES[5]), ("abandoned", STYLES[1]), ("failed", BAD))
"""Of dots; what is drawn last lies on top."""
Link = Callable[[int, int], str]
"""Where a stretch of time or of durations leads: from, to."""


def scatter_figure(scatter: Scatter, link: Callable[[int], str], area_link: str) -> go.Figure:
    """Requests by when they began and how long they took.

    Arguments: `link` of a request's number; `area_link`, where a cell of the grid leads, less its bounds.
    """
    unit_ns, unit = unit_of(int(scatter.time_edges_ns[-1]))
    figure = go.Figure()
    if scatter.grid is not None:
        figure.add_trace(_grid(scatter, unit_ns))
        figure.layout.meta = _cell_meta(scatter, unit_ns, area_link)
    for outcome, look in OUTCOME_STYLES:
        name, at = f"outcome {OUTCOME_WORDS[outcome]}", np.flatnonzero(scatter.outcome == outcome)
        if not len(at):
            continue
        figure.add_scatter(
            x=scatter.start_ns[at] / unit_ns,
            y=np.maximum(scatter.duration_ns[at], 1),
            mode="markers",
            name=name,
            marker={"color": look.colour, "symbol": look.symbol, "size": 6, "opacity": 0.8},
            customdata=[link(number) for number in scatter.numbers[at].tolist()],
            hovertext=[
                f"#{number + 1}: {duration_words(took, ended=ended)}"
                for number, took, ended in zip(
                    *(values[at].tolist() for values in (scatter.numbers, scatter.duration_ns, scatter.ended)),
                    strict=True,
                )
            ],
            hoverinfo="text",
        )
    low, high = scatter.duration_edges_ns[0], scatter.duration_edges_ns[-1]
    return make_figure(
        figure,
        360,
        showlegend=True,
        xaxis={"title": {"text": f"began, {unit}", "standoff": 4}, "range": [0, scatter.time_edges_ns[-1] / unit_ns]},
        yaxis=duration_axis(low, high, "duration"),
    )


def concurrency_figure(rows: Sequence[AtConcurrency]) -> go.Figure:
    """Percentiles of durations by how many requests were in flight."""
    figure = go.Figure()
    at = [row.from_count for row in rows]
    for number, name in enumerate(("p50", "p90", "p99")):
        values = [getattr(row, f"{name}_ns") for row in rows]
        look = style(number)
        figure.add_scatter(
            x=at,
            y=values,
            name=name,
            mode="lines+markers",
            line={"color": look.colour, "dash": look.dash, "width": 2},
            marker={"color": look.colour, "symbol": look.symbol, "size": 8},
            hovertext=[
                f"{name} {duration(value)} of {row.requests_count:,}" for value, row in zip(values, rows, strict=True)
            ],
            hoverinfo="text",
        )
    values = [value for row in rows for value in (row.p50_ns, row.p99_ns)] or [1, 10]
    return make_figure(
        figure,
        320,
        xaxis=doubling_axis(at, "in flight when it began (or more)"),
        yaxis=duration_axis(max(1, min(values)), max(values), "duration"),
    )


def flight_figure(flight: Flight, link: Link) -> go.Figure:
    """Requests in flight over time, and those that failed."""
    bins = len(flight.most)
    unit_ns, unit = unit_of(flight.bin_ns * bins)
    begin = np.arange(bins) * flight.bin_ns
    links = [link(int(at), int(at + flight.bin_ns)) for at in begin]
    figure = go.Figure()
    figure.add_scatter(
        x=begin / unit_ns,
        y=flight.most,
        name="in flight, the most in each moment",
        line={"color": STYLES[0].colour, "shape": "hv", "width": 1.5},
        fill="tozeroy",
        fillcolor="rgba(47,127,214,0.18)",
        customdata=links,
        hovertemplate=f"%{{y}} in flight at %{{x:.4g}} {unit}<extra></extra>",
    )
    failed = np.flatnonzero(flight.failed)
    if len(failed):
        figure.add_scatter(
            x=begin[failed] / unit_ns,
            y=flight.failed[failed],
            mode="markers",
            name="failed then",
            marker={"color": BAD.colour, "symbol": BAD.symbol, "size": 8},
            customdata=[links[at] for at in failed],
            hovertemplate=f"%{{y}} failed at %{{x:.4g}} {unit}<extra></extra>",
        )
    return make_figure(
        figure,
        280,
        xaxis={"title": {"text": f"time, {unit}", "standoff": 4}, "range": [0, flight.bin_ns * bins / unit_ns]},
        yaxis={
            "title": {"text": "requests", "standoff": 4},
            "rangemode": "tozero",
            "dtick": 1 if np.max(flight.most, initial=0) <= MOST_WITH_LABELS else None,
        },
    )


def histogram_figure(groups: Sequence[Durations], link: Callable[[str, int, int], str] | None) -> go.Figure:
    """The share of each group that took so long, as outlines over each other."""
    figure = go.Figure()
    for at, group in enumerate(groups):
        look = style(at)
        edges, share = group.edges_ns, group.bins / max(1, group.count)
        customdata = [link(group.name, int(low), int(high)) for low, high in pairwise(edges)] if link else None
        figure.add_scatter(
            x=np.sqrt(edges[:-1] * edges[1:]),
            y=share * 100,
            name=escape(group.name),
            mode="lines+markers",
            line={"color": look.colour, "dash": look.dash, "shape": "hvh", "width": 1.8},
            marker={"color": look.colour, "symbol": look.symbol, "size": np.where(group.bins > 0, 6, 0)},
            customdata=customdata,
            hovertext=[
                f"{escape(group.name)}: {count:,} took {duration(int(low))} to {duration(int(high))}"
                for count, (low, high) in zip(group.bins.tolist(), pairwise(edges), strict=True)
            ],
            hoverinfo="text",
        )
    low = min((float(group.edges_ns[0]) for group in groups), default=1.0)
    high = max((float(group.edges_ns[-1]) for group in groups), default=10.0)
    return make_figure(
        figure,
        320,
        showlegend=True,
        xaxis=duration_axis(max(1.0, low), high, "duration"),
        yaxis={"title": {"text": "% of them", "standoff": 4}, "rangemode": "tozero"},
    )


def _grid(scatter: Scatter, unit_ns: int) -> go.Heatmap:
    assert scatter.grid is not None
    edges = scatter.duration_edges_ns
    return go.Heatmap(
        z=np.log10(scatter.grid + 1.0).astype(np.float32),
        x=(scatter.time_edges_ns[:-1] + scatter.time_edges_ns[1:]) / 2 / unit_ns,
        y=np.sqrt(edges[:-1] * edges[1:]),
        text=scatter.grid,
        colorscale=SCALE,
        showscale=False,
        hovertemplate="%{text:,} requests<extra></extra>",
    )


def _cell_meta(scatter: Scatter, unit_ns: int, area_link: str) -> dict[str, object]:
    """What `assets/app/pages.js` needs to turn a click on a cell into an address."""
    times, durations = scatter.time_edges_ns, scatter.duration_edges_ns
    return {
        "link": area_link,
        "unit": unit_ns,
        "half": float(times[1] - times[0]) / 2,
        "factor": float(np.sqrt(durations[1] / durations[0])),
    }
