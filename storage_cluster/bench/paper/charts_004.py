"""The charts of document 004: op/s, MB/s and 90 % response time of each operation, with the interval of all rounds."""

from collections.abc import Sequence
from typing import Any

from storage_cluster.bench.paper.experiment_004 import Line

_FONT_SIZE, _TITLE_SIZE = 19, 22
_WIDTH, _HEIGHT = 960, 480


def figures(lines: Sequence[Line]) -> dict[str, Any]:
    """File name to chart: one for small objects, one for large ones, each with its own axes."""
    return {kind: _figure(kind, [each for each in lines if each.title.startswith(kind)]) for kind in ("small", "large")}


def _figure(kind: str, lines: Sequence[Line]) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415  of another extra
    from plotly.subplots import make_subplots  # noqa: PLC0415

    made = make_subplots(rows=1, cols=3, horizontal_spacing=0.12, subplot_titles=("op/s", "MB/s", "90 % within, s"))
    at = [each.title.removeprefix(f"{kind} ") for each in lines]
    rates = [(each.operations_per_s, each.least_per_s, each.greatest_per_s) for each in lines]
    responses = [tuple(ms / 1e3 for ms in (each.response_90_ms, *each.responses_90_ms)) for each in lines]
    for column, (values, error) in enumerate(
        (
            ([each.operations_per_s for each in lines], _interval(rates)),
            ([each.megabytes_per_s for each in lines], None),
            ([each.response_90_ms / 1e3 for each in lines], _interval(responses)),
        ),
        1,
    ):
        shown = [f"{value:,.3g}" for value in values]
        bars = go.Bar(
            x=at,
            y=values,
            text=shown,
            textposition="inside",
            insidetextanchor="middle",
            error_y=error,
            marker={"color": "#2457c5"},
        )
        made.add_trace(bars, row=1, col=column)
    rounds = lines[0].rounds_count if lines else 0
    made.update_yaxes(rangemode="tozero")
    made.update_annotations(font_size=_FONT_SIZE)
    made.update_layout(
        title={"text": f"{kind} objects: medians of {rounds} rounds; lines: all of them",
               "font": {"size": _TITLE_SIZE}},
        template="plotly_white", width=_WIDTH, height=_HEIGHT, font={"size": _FONT_SIZE}, showlegend=False,
        margin={"l": 60, "r": 20, "t": 90, "b": 50},
    )  # fmt: skip
    return made


def _interval(found: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    """The least and the greatest of all rounds, as distances from the median; each is (median, least, greatest)."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [greatest - median for median, _, greatest in found],
        "arrayminus": [median - least for median, least, _ in found],
    }
