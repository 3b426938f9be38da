"""Charts as document 002 has them: throughput by streams (figures 4 and 5), five clients at once (6 and 7)."""

from collections.abc import Mapping
from typing import Any

from storage_cluster.bench.paper.client_002 import READ, WRITE
from storage_cluster.bench.paper.experiment_002 import SCALE, STREAMS, Done, is_seen_by_second, windows
from storage_cluster.bench.paper.statements_002 import five_means, levels
from storage_cluster.errors import MissingResourceError
from tracer.installation import install_command

_LOW, _HIGH, _REQUESTED, _FREE = "#2457c5", "#c25700", "#9aa5b8", "#1a7f4b"


def figures(done: Mapping[str, Done], size_bytes: int) -> dict[str, Any]:
    """`figure-04` and so on to its chart. Raises: MissingResourceError without plotly."""
    try:
        import plotly  # noqa: F401, PLC0415  of another extra
    except ModuleNotFoundError:
        raise MissingResourceError(
            "charts need plotly, which is not installed", f"run: {install_command('viewer')}"
        ) from None
    made = {}
    for direction, number, what in ((READ, 4, "Download"), (WRITE, 5, "Upload")):
        found = levels(done, direction, size_bytes)
        if found:
            made[f"figure-{number:02}"] = _streams(found, f"Figure {number}: {what} of one client")
    for direction, number, what in ((READ, 6, "downloads"), (WRITE, 7, "uploads")):
        points = {
            setup: done[f"five-{direction}-{setup}"]
            for setup in ("plain", "greedy", "none")
            if f"five-{direction}-{setup}" in done
        }
        if points:
            made[f"figure-{number:02}"] = _five(points, direction, f"Figure {number}: {what} of five clients at once")
    return made


def _streams(found: Mapping[int, Mapping[int, float]], title: str) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415

    made = go.Figure()
    names = ["one request", *(f"{streams} stream{'s' * (streams > 1)}" for streams in STREAMS if streams)]
    for (rate, means), colour in zip(found.items(), (_LOW, _HIGH), strict=False):
        reserved = rate / SCALE
        values = [means.get(streams) for streams in STREAMS]
        made.add_trace(go.Bar(x=names, y=values, name=f"{reserved:g} MB/s reserved", marker_color=colour))
        made.add_hline(y=reserved, line={"color": colour, "dash": "dot", "width": 1.5})
    return _with_layout(made, title)


def _five(points: Mapping[str, Done], direction: str, title: str) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415

    made = go.Figure()
    first = next(iter(points.values()))
    names = [name for name in first.outcomes if name != "greedy"]
    reserved = next((p for setup, p in points.items() if setup != "none"), None)
    if reserved is not None:
        rates = [reserved.outcomes[name].reserved_mb_per_s for name in names]
        made.add_trace(go.Bar(x=names, y=rates, name="reserved", marker_color=_REQUESTED))
    titles = {"plain": "alone", "greedy": "beside a greedy client", "none": "nobody reserves"}
    for (setup, point), colour in zip(points.items(), (_LOW, _HIGH, _FREE), strict=False):
        means = five_means(point, direction)
        low = [means[name] - min(windows(point, name, direction), default=0.0) for name in names]
        high = [max(windows(point, name, direction), default=0.0) - means[name] for name in names]
        bars = {"type": "data", "symmetric": False, "array": high, "arrayminus": low, "thickness": 1, "width": 3}
        values, is_seen = [means[name] for name in names], is_seen_by_second(point, names[0], direction)
        error_y = bars if is_seen else None
        made.add_trace(go.Bar(x=names, y=values, name=titles[setup], marker_color=colour, error_y=error_y))
    return _with_layout(made, f"{title}; lines: lowest and highest second")


def _with_layout(made: Any, title: str) -> Any:
    made.update_yaxes(title_text="MB/s", rangemode="tozero")
    made.update_layout(
        title={"text": title, "font": {"size": 14}}, template="plotly_white", height=360, barmode="group",
        margin={"l": 50, "r": 20, "t": 40, "b": 40}, legend={"orientation": "h", "y": -0.15},
    )  # fmt: skip
    return made
