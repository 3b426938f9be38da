"""Charts as document 003 has them (figures 4 to 9), and one of its proposal: several gateways behind a balancer."""

from collections.abc import Mapping
from typing import Any

from storage_cluster.bench.paper.experiment_003 import (
    BALANCED,
    FEW,
    GET_SIZES,
    GET_WORKERS,
    MANY,
    PUT_SIZES,
    PUT_WORKERS,
    SETUPS,
    Curve,
    Curves,
)
from storage_cluster.errors import MissingResourceError

_FIGURES = {
    "figure-04": ("Figure 4: GET of 1 MB, by workers", GET_WORKERS, 0),
    "figure-05": ("Figure 5: GET by size, 1 worker", GET_SIZES, FEW),
    "figure-06": ("Figure 6: GET by size, 16 workers", GET_SIZES, MANY),
    "figure-07": ("Figure 7: PUT of 1 MB, by workers", PUT_WORKERS, 0),
    "figure-08": ("Figure 8: PUT by size, 1 worker", PUT_SIZES, FEW),
    "figure-09": ("Figure 9: PUT by size, 16 workers", PUT_SIZES, MANY),
    "gateways-get": ("Gateways behind a balancer: GET of 1 MB, equal hosts", f"{BALANCED}-get", 0),
    "gateways-put": ("Gateways behind a balancer: PUT of 1 MB, equal hosts", f"{BALANCED}-put", 0),
}
_COLOURS = {
    "hdd": "#c25700",
    "ssd": "#2457c5",
    "ssd-no-cache": "#7a9be0",
    "ssd-bodies": "#1a7f4b",
    "hdd-cold": "#e0a06a",
    "ssd-cold": "#8d99ae",
    "equal-1": "#8d99ae",
    "equal-2": "#2457c5",
    "equal-3": "#1a7f4b",
}
_DASHED = ("ssd-no-cache", "hdd-cold", "ssd-cold")


def figures(curves: Curves) -> dict[str, Any]:
    """Each figure by its file's name. Raises: MissingResourceError without plotly."""
    try:
        import plotly  # noqa: F401, PLC0415  of another extra
    except ModuleNotFoundError:
        raise MissingResourceError(
            "charts need plotly, which is not installed", "pip install 'twintap[viewer]'"
        ) from None
    made = {}
    for name, (title, sweep, workers) in _FIGURES.items():
        chosen = {setup: curve for (at, setup, by), curve in curves.items() if (at, by) == (sweep, workers)}
        if chosen:
            made[name] = _figure(title, chosen, by_workers=not workers)
    return made


def _figure(title: str, chosen: Mapping[str, Curve], *, by_workers: bool) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415

    made = go.Figure()
    for setup, curve in chosen.items():
        at = [str(each.workers) if by_workers else each.size for each in curve]
        line = {"color": _COLOURS[setup], "dash": "dot" if setup in _DASHED else "solid"}
        rates = [each.mb_per_s for each in curve]
        made.add_trace(go.Scatter(x=at, y=rates, name=SETUPS[setup].words, line=line, mode="lines+markers"))
    made.update_xaxes(type="category", title_text="workers" if by_workers else "object size")
    made.update_yaxes(title_text="MB/s", rangemode="tozero")
    made.update_layout(
        title={"text": title, "font": {"size": 14}}, template="plotly_white", height=320,
        margin={"l": 50, "r": 20, "t": 40, "b": 40}, legend={"orientation": "h", "y": -0.25},
    )  # fmt: skip
    return made
