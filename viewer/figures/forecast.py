"""How long the requests of a class took, and how long they would have taken: two rising curves."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viewer.figures.frame import STYLES, duration_axis, make_figure
from viewer.wording import duration

MOST_POINTS = 400
HEIGHT_PX = 300


def forecast_figure(was_ns: NDArray[np.int64], now_ns: NDArray[np.int64]) -> go.Figure:
    """The share of requests that took at most so long, as measured and as it would be; at most `MOST_POINTS` points of
    each."""
    figure = go.Figure()
    for name, values, look in (("as measured", was_ns, STYLES[0]), ("would be", now_ns, STYLES[1])):
        count = len(values)
        places = np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int))
        shown, shares = np.sort(values)[places], (places + 1) / count
        figure.add_scatter(
            x=shown,
            y=shares,
            name=name,
            mode="lines" if count > 1 else "markers",
            line={"shape": "hv", "color": look.colour, "dash": look.dash, "width": 2},
            marker={"color": look.colour, "symbol": look.symbol},
            hovertext=[
                f"{name}: {share:.1%} in {duration(int(took))}" for took, share in zip(shown, shares, strict=True)
            ],
            hoverinfo="text",
        )
    low_ns, high_ns = (max(1, int(of(np.concatenate([was_ns, now_ns])))) for of in (np.min, np.max))
    return make_figure(
        figure,
        HEIGHT_PX,
        showlegend=True,
        xaxis=duration_axis(low_ns, high_ns, "duration"),
        yaxis={"tickformat": ".0%", "range": [0, 1.02], "title": {"text": "requests", "standoff": 4}},
    )
