"""Two groups of requests side by side: where each spends its time."""

from html import escape

import plotly.graph_objects as go

from collector.queries import KindComparison
from viewer.figures.frame import STYLES, make_figure, unit_of
from viewer.wording import duration

STAGE_PX = 40
MOST_STAGES = 12


def differences_figure(kind: KindComparison, first: str, second: str) -> go.Figure:
    """Means of the stages of one kind of request, the largest difference on top; the groups are called so."""
    stages = kind.stages[:MOST_STAGES]
    longest = max((value for stage in stages for value in (stage.first_ns, stage.second_ns)), default=1)
    unit_ns, unit = unit_of(longest)
    names = [escape(f"{stage.stage} {'●' if stage.is_significant else '○'}") for stage in stages]
    figure = go.Figure()
    sides = ((first, "first_ns", STYLES[0], ""), (second, "second_ns", STYLES[1], "/"))
    for name, field, look, pattern in sides:
        values = [getattr(stage, field) for stage in stages]
        figure.add_bar(
            orientation="h",
            y=names,
            x=[value / unit_ns for value in values],
            name=escape(name),
            marker={"color": look.colour, "pattern": {"shape": pattern, "size": 6}},
            hovertext=[f"{escape(name)}: {duration(value)}" for value in values],
            hoverinfo="text",
        )
    return make_figure(
        figure,
        max(180, STAGE_PX * len(stages) + 110),
        margin={"l": 230, "r": 18, "t": 28, "b": 44},
        barmode="group",
        showlegend=True,
        xaxis={"title": {"text": f"mean, {unit}", "standoff": 4}, "rangemode": "tozero"},
        yaxis={"autorange": "reversed"},
    )
