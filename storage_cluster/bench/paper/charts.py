"""Charts as document 000 has them: throughput, failures and retries (figures 3 to 8), use of the hosts (9 to 14).

A chart of throughput has four panels over one axis: throughput; objects that failed; those that (at a point that waits
for all of them) had no end when its time was over; retries. In one panel the retries, ten for an object, would flatten
all else.
"""

from collections.abc import Sequence
from typing import Any

from storage_cluster.bench.paper.experiment_000 import HOSTS, Found, Series
from storage_cluster.errors import MissingResourceError
from tracer.installation import install_command

_FIGURES = {
    ("hdd", "1B"): 3,
    ("hdd", "1KB"): 4,
    ("hdd", "1MB"): 5,
    ("ssd", "1B"): 6,
    ("ssd", "1KB"): 7,
    ("ssd", "1MB"): 8,
}
_COLOURS = {"client": "#2457c5", "proxy": "#c25700", "storage": "#1a7f4b"}
_SYMBOLS = {"client": "circle", "proxy": "square", "storage": "diamond"}
_WIDTHS = {"client": 11, "proxy": 6, "storage": 4}
"""Of lines, in the order in which they are drawn: one that lies on another leaves its edges to be seen."""
_COUNTS = (
    ("failures", "failures_count", "#c62828"),
    ("unfinished when the time was over", "unfinished_count", "#b77900"),
    ("retries", "retries_count", "#6b7a99"),
)
_FONT_SIZE, _TITLE_SIZE = 19, 22
WIDTH, HEIGHT = 960, 720


def number_of(media: str, size: str) -> int:
    """The figure of throughput of a curve; that of the hosts' use has six more."""
    return _FIGURES[media, size]


def figures(series: Series) -> dict[str, Any]:
    """`figure-03` and so on to its chart. Raises: MissingResourceError without plotly."""
    try:
        import plotly  # noqa: F401, PLC0415  of another extra
    except ModuleNotFoundError:
        raise MissingResourceError(
            "charts need plotly, which is not installed", f"run: {install_command('viewer')}"
        ) from None
    made = {f"figure-{_FIGURES[key]:02}": _throughput(key, points) for key, points in series.items()}
    made |= {f"figure-{_FIGURES[key] + 6:02}": _use(key, points) for key, points in series.items()}
    return dict(sorted(made.items()))


def _throughput(key: tuple[str, str], points: Sequence[Found]) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415
    from plotly.subplots import make_subplots  # noqa: PLC0415

    made = make_subplots(rows=4, shared_xaxes=True, vertical_spacing=0.045, row_heights=[0.46, 0.18, 0.18, 0.18])
    at = [_label(found) for found in points]
    rate = [found.throughput_per_s for found in points]
    line = {"color": "#2457c5", "width": 4}
    made.add_trace(
        go.Scatter(x=at, y=rate, name="throughput", mode="lines+markers", line=line, marker={"size": 10},
                   error_y=_interval(points)),
        row=1, col=1,
    )  # fmt: skip
    made.update_yaxes(title_text="requests/s", rangemode="tozero", row=1, col=1)
    for row, (name, field, colour) in enumerate(_COUNTS, 2):
        values = [getattr(found, field) for found in points]
        made.add_trace(
            go.Bar(x=at, y=values, name=name, marker={"color": colour}, text=_bar_labels(values),
                   textposition="outside", textangle=0, cliponaxis=False),
            row=row, col=1,
        )  # fmt: skip
        most = 1.6 * max(*values, 10)
        made.update_yaxes(range=[0, most], tickformat=",d", nticks=3, row=row, col=1)
        made.add_annotation(
            text=name, font={"color": colour}, showarrow=False, x=0, y=1, xref="x domain", yref="y domain",
            xanchor="left", yanchor="top", row=row, col=1,
        )  # fmt: skip
    made.update_xaxes(title_text="at once", row=4, col=1)
    made.update_layout(showlegend=False)  # each panel says what it shows
    return _with_layout(made, f"Figure {_FIGURES[key]}: {key[1]} on {key[0].upper()}")


def _interval(points: Sequence[Found]) -> dict[str, Any] | None:
    """The least and the greatest throughput of the rounds, as distances; None with one round."""
    if all(len(found.rounds_per_s) < 2 for found in points):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [max((found.throughput_per_s, *found.rounds_per_s)) - found.throughput_per_s for found in points],
        "arrayminus": [found.throughput_per_s - min((found.throughput_per_s, *found.rounds_per_s)) for found in points],
    }


def _bar_labels(values: Sequence[int]) -> list[str]:
    """Numbers at the bars that are there."""
    return [f"{value:,}" if value else "" for value in values]


def _use(key: tuple[str, str], points: Sequence[Found]) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415

    made = go.Figure()
    at = [_label(found) for found in points]
    for host in HOSTS:
        for what, values, dash in (
            ("CPU", [found.cpu_percent[host] for found in points], "dot"),
            ("I/O", [found.io_percent.get(host, 0.0) for found in points], "solid"),
        ):
            width = _WIDTHS[host] if what == "I/O" else 4
            line = {"color": _COLOURS[host], "dash": dash, "width": width}
            marker = {"size": width + 7, "symbol": _SYMBOLS[host]}
            made.add_trace(
                go.Scatter(x=at, y=values, name=f"{host} {what}", mode="lines+markers", line=line, marker=marker)
            )
    of = "of all the machine's cores" if any(found.is_modelled for found in points) else "of one core"
    most = max(100.0, *(max(*found.cpu_percent.values(), *found.io_percent.values()) for found in points))
    made.update_yaxes(title_text=f"% (CPU: {of})", range=[-3, 1.06 * most], dtick=20, zeroline=False)
    made.update_xaxes(title_text="at once")
    return _with_layout(made, f"Figure {_FIGURES[key] + 6}: use, {key[1]} on {key[0].upper()}")


def _label(found: Found) -> str:
    """A place on the axis: concurrency doubles from one to the next."""
    return str(found.concurrency)


def _with_layout(made: Any, title: str) -> Any:
    made.update_xaxes(type="category")
    made.update_layout(
        title={"text": title, "font": {"size": _TITLE_SIZE}}, template="plotly_white",
        width=WIDTH, height=HEIGHT, font={"size": _FONT_SIZE}, margin={"l": 90, "r": 20, "t": 50, "b": 60},
        legend={"orientation": "h", "y": -0.14},
    )  # fmt: skip
    return made
