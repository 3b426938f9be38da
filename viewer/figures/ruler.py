"""The time axis of the timeline: an empty figure whose ticks the browser sets when a gesture has ended."""

import plotly.graph_objects as go

HEIGHT_PX = 30
"""Of the strip that holds the ticks' labels, above the lanes."""


def ruler_figure(duration_ns: int) -> go.Figure:
    """An x axis in ns since the trace's start, its labels on top."""
    points = go.Scatter(x=[0, duration_ns], y=[0, 0], mode="markers", marker={"opacity": 0}, hoverinfo="skip")
    layout = go.Layout(
        margin={"l": 0, "r": 0, "t": HEIGHT_PX, "b": 0},
        autosize=True,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        dragmode=False,
        font={"family": "system-ui, sans-serif", "size": 12},
        xaxis={
            "side": "top",
            "range": [0, duration_ns],
            "fixedrange": True,
            "tickmode": "array",
            "tickvals": [],
            "ticktext": [],
            "ticks": "",
            "zeroline": False,
            "showline": False,
        },
        yaxis={"visible": False, "fixedrange": True, "range": [0, 1]},
    )
    return go.Figure(points, layout)
