"""The common parts of all charts: margins, time axes, and series that are distinct also for colour-blind readers.

Text and grid have the page's colours by its style sheet. The colours of series have a contrast of at least 3:1 on both
themes, and each series has a dash and a symbol of its own.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import plotly.graph_objects as go

from viewer.wording import duration

TRANSPARENT = "rgba(0,0,0,0)"
FONT = {"family": "system-ui, sans-serif", "size": 12}


class Style(NamedTuple):
    """The look that distinguishes a series from the others."""

    colour: str
    dash: str
    symbol: str


STYLES = (
    Style("#2f7fd6", "solid", "circle"),
    Style("#c27c00", "dash", "square"),
    Style("#0e9384", "dot", "diamond"),
    Style("#a855f7", "dashdot", "triangle-up"),
    Style("#d6246e", "longdash", "x"),
    Style("#6b7788", "longdashdot", "cross"),
)
BAD = STYLES[4]
"""Of failures."""
_COMMON: Mapping[str, Any] = MappingProxyType(
    {
        "margin": {"l": 64, "r": 18, "t": 28, "b": 44},
        "paper_bgcolor": TRANSPARENT,
        "plot_bgcolor": TRANSPARENT,
        "font": FONT,
        "dragmode": False,
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0},
        "xaxis": {"fixedrange": True, "zeroline": False},
        "yaxis": {"fixedrange": True, "zeroline": False},
    }
)
SCALE = ((0.0, "rgba(47,127,214,0)"), (0.02, "rgba(47,127,214,0.22)"), (0.6, "rgba(47,127,214,1)"), (1.0, "#e08a00"))
"""Of densities: from nothing, whatever the paper, to what stands out on it."""


def style(at: int) -> Style:
    """Of the series at a place; after the last they begin again."""
    return STYLES[at % len(STYLES)]


def make_figure(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    """A figure as all are: no margin to waste, legend below, nothing to drag.

    Set key by key: `update_layout` looks for each part of each key in all of the layout, which takes ten times as long.
    """
    for key, value in {**_COMMON, "height": height, **layout}.items():
        common = _COMMON.get(key)
        figure.layout[key] = {**common, **value} if isinstance(common, dict) else value
    return figure


TICKS = (((1, 3), 4.0), ((1, 2, 5), 2.0), (range(1, 10), 1.2), (range(10, 100, 2), 1.02), ((1, 3), 4.0))
"""Where an axis of durations may have its labels, coarse ones first, and how far beyond the data; the last for data
that is one point."""
FEWEST_TICKS, MOST_TICKS = 2, 8


def unit_of(span_ns: int) -> tuple[int, str]:
    """The unit in which an axis so long is labelled, and its name."""
    for unit_ns, unit in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")):
        if span_ns >= 2 * unit_ns:
            return unit_ns, unit
    return 1, "ns"


def duration_axis(low_ns: float, high_ns: float, title: str) -> dict[str, Any]:
    """A logarithmic axis in ns, labelled in the units that suit."""
    shown = _ticks(low_ns, high_ns)
    if len(shown) > MOST_TICKS:
        shown = [tick for tick in shown if str(tick).startswith("1")]
    return {
        "type": "log",
        "title": {"text": title, "standoff": 4},
        "tickvals": shown,
        "ticktext": _different([[duration(tick, digits) for tick in shown] for digits in range(2, 20)]),
    }


def _different(choices: Sequence[list[str]]) -> list[str]:
    """The first of several ways to write some labels by which all differ, or the last."""
    return next((labels for labels in choices if len(set(labels)) == len(labels)), choices[-1])


def _ticks(low_ns: float, high_ns: float) -> list[int]:
    """At 1 and 3 of each power of ten; at less where the data are so narrow that fewer than two of these lie inside; at
    round steps, as on an even axis, where they are narrower still."""
    ticks: list[int] = []
    for sizes, room in TICKS:
        every = [size * 10**power for power in range(13) for size in sizes]
        ticks = [tick for tick in every if low_ns / room <= tick <= high_ns * room]
        if sum(low_ns <= tick <= high_ns for tick in ticks) >= FEWEST_TICKS:
            return ticks
    steps = (size * 10**power for power in reversed(range(13)) for size in (5, 2, 1))
    for step in steps:
        even = list(range(math.ceil(low_ns / step) * step, math.floor(high_ns) + 1, step))
        if len(even) >= FEWEST_TICKS:
            return even
    return ticks or [round(low_ns)]


def doubling_axis(values: Sequence[int], title: str) -> dict[str, Any]:
    """A logarithmic axis of counts, labelled at powers of two."""
    ticks = [1 << power for power in range(max(values, default=1).bit_length() + 1)]
    shown = [tick for tick in ticks if min(values, default=1) / 2 <= tick <= max(values, default=1) * 2]
    return {
        "type": "log",
        "title": {"text": title, "standoff": 4},
        "tickvals": shown,
        "ticktext": [f"{tick:,}" for tick in shown],
    }
