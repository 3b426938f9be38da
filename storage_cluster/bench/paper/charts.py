"""Charts as document 000 has them: throughput, failures and retries (figures 3 to 8), use of the hosts (9 to 14)."""

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

    made = make_subplots(specs=[[{"secondary_y": True}]])
    at = [found.concurrency for found in points]
    rate = [found.throughput_per_s for found in points]
    made.add_trace(go.Scatter(x=at, y=rate, name="throughput", line={"color": "#2457c5"}))
    for name, values, colour in (
        ("retries", [found.retries_count for found in points], "#c25700"),
        ("failures", [found.failures_count for found in points], "#c62828"),
    ):
        made.add_trace(go.Scatter(x=at, y=values, name=name, line={"color": colour, "dash": "dot"}), secondary_y=True)
    made.update_yaxes(title_text="requests/s", rangemode="tozero", secondary_y=False)
    most = max(max(found.retries_count, found.failures_count) for found in points)
    made.update_yaxes(
        title_text="times",
        tickmode="auto",
        range=[0, 1.05 * max(most, 10)],
        tickformat=",d",
        showgrid=False,
        secondary_y=True,
    )
    return _with_layout(made, f"Figure {_FIGURES[key]}: {key[1]} on {key[0].upper()}")


def _use(key: tuple[str, str], points: Sequence[Found]) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415

    made = go.Figure()
    at = [found.concurrency for found in points]
    for host in HOSTS:
        cpu = [found.cpu_percent[host] for found in points]
        made.add_trace(go.Scatter(x=at, y=cpu, name=f"{host} CPU", line={"color": _COLOURS[host], "dash": "dot"}))
    io = [found.io_percent["storage"] for found in points]
    made.add_trace(go.Scatter(x=at, y=io, name="storage I/O", line={"color": _COLOURS["storage"]}))
    made.update_yaxes(title_text="% (CPU: of one core)", rangemode="tozero")
    return _with_layout(made, f"Figure {_FIGURES[key] + 6}: use, {key[1]} on {key[0].upper()}")


def _with_layout(made: Any, title: str) -> Any:
    made.update_xaxes(type="log", dtick="D1", title_text="at once")
    made.update_xaxes(tickvals=[2**n for n in range(0, 12, 2)], ticktext=[str(2**n) for n in range(0, 12, 2)])
    made.update_layout(
        title={"text": title, "font": {"size": 14}}, template="plotly_white", height=320,
        margin={"l": 50, "r": 50, "t": 40, "b": 40}, legend={"orientation": "h", "y": -0.25},
    )  # fmt: skip
    return made
