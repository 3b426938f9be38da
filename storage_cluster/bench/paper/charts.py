"""Charts as document 000 has them: throughput, failures and retries (figures 3 to 8), use of the hosts (9 to 14)."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper.experiment_000 import HOSTS, Found, Series
from storage_cluster.bench.paper.statements_000 import Statement
from storage_cluster.bench.paper.traces import Traced
from storage_cluster.errors import MissingResourceError

_FIGURES = {
    ("hdd", "1B"): 3,
    ("hdd", "1KB"): 4,
    ("hdd", "1MB"): 5,
    ("ssd", "1B"): 6,
    ("ssd", "1KB"): 7,
    ("ssd", "1MB"): 8,
}
_COLOURS = {"client": "#2457c5", "proxy": "#c25700", "storage": "#1a7f4b"}


def write_html(series: Series, found: Sequence[Statement], traced: Sequence[Traced], path: Path, title: str) -> None:
    """One page with all charts and the table, which needs nothing from elsewhere. Raises: MissingResourceError."""
    try:
        from plotly.io import to_html  # noqa: PLC0415  of another extra
    except ModuleNotFoundError:
        raise MissingResourceError(
            "charts need plotly, which is not installed", "pip install 'twintap[viewer]'"
        ) from None
    figures = [*(_throughput(key, points) for key, points in series.items())]
    figures += (_use(key, points) for key, points in series.items())
    parts = [to_html(each, include_plotlyjs=n == 0, full_html=False) for n, each in enumerate(figures)]
    rows = "".join(_row(each) for each in found)
    page = (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>"
        "<style>body{font:14px system-ui;max-width:1200px;margin:1rem auto}.charts{display:grid;"
        "grid-template-columns:repeat(3,1fr)}td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #ddd;"
        "vertical-align:top}</style>"
        f"<h1>{html.escape(title)}</h1><table><tr><th>The paper says<th>Found here<th></tr>{rows}</table>"
        f"<div class=charts>{''.join(parts)}</div>{''.join(map(_trace, traced))}"
    )
    path.write_text(page, "utf-8")


def _row(each: Statement) -> str:
    mark = {True: "agrees", False: "differs", None: "not reached"}[each.agrees]
    return f"<tr><td>{html.escape(each.said)}<td>{html.escape(each.found)}<td>{mark}</tr>"


def _trace(each: Traced) -> str:
    how = f"tracer view {each.folder}"
    return f"<h2>{html.escape(each.title)}</h2><p><code>{html.escape(how)}</code><pre>{html.escape(each.said)}</pre>"


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
    made.update_yaxes(title_text="times", rangemode="tozero", secondary_y=True)
    return _framed(made, f"Figure {_FIGURES[key]}: {key[1]} on {key[0].upper()}")


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
    return _framed(made, f"Figure {_FIGURES[key] + 6}: use, {key[1]} on {key[0].upper()}")


def _framed(made: Any, title: str) -> Any:
    made.update_xaxes(type="log", dtick="D1", title_text="at once")
    made.update_xaxes(tickvals=[2**n for n in range(0, 12, 2)], ticktext=[str(2**n) for n in range(0, 12, 2)])
    made.update_layout(
        title={"text": title, "font": {"size": 14}}, template="plotly_white", height=320,
        margin={"l": 50, "r": 50, "t": 40, "b": 40}, legend={"orientation": "h", "y": -0.25},
    )  # fmt: skip
    return made
