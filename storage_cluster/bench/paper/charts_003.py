"""Charts as document 003 has them (figures 4 to 9), and one of its proposal: several gateways behind a balancer."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from storage_cluster.bench.paper import arrows
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
from storage_cluster.bench.paper.traces import Traced
from storage_cluster.errors import MissingResourceError
from tracer.installation import install_command

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
    "ssd-processes": "#8a3ffc",
    "hdd-cold": "#e0a06a",
    "ssd-cold": "#8d99ae",
    "equal-1": "#8d99ae",
    "equal-2": "#2457c5",
    "equal-3": "#1a7f4b",
}
_OTHER = "network and connections"
_LEDGER = {
    "gateway: work": r"^work in s3$",
    "gateway: queue": r"^queue of s3$",
    "storage waits for the gateway to read": r"^receiver did not read, to and from swift-",
    "gateway: pauses in its answers": r"^pauses in the answer of s3$",
    "storage servers": r"^(work in|queue of|pauses in the answer of) swift-",
}
"""Groups of the stages of a mean request."""
_LEDGER_COLOURS = {
    "gateway: work": "#c25700",
    "gateway: queue": "#e08a3c",
    "storage waits for the gateway to read": "#f0c090",
    "gateway: pauses in its answers": "#b0a0c8",
    "storage servers": "#1a7f4b",
    _OTHER: "#8d99ae",
}
_IN_LEDGER = ("trace-get-", "trace-one-gateway")
_SHOWN_PERCENT = 4
_DASHED = ("ssd-no-cache", "hdd-cold", "ssd-cold")


def figures(curves: Curves, traced: Sequence[Traced] = ()) -> dict[str, Any]:
    """Each figure by its file's name. Raises: MissingResourceError without plotly."""
    try:
        import plotly  # noqa: F401, PLC0415  of another extra
    except ModuleNotFoundError:
        raise MissingResourceError(
            "charts need plotly, which is not installed", f"run: {install_command('viewer')}"
        ) from None
    made = {}
    for name, (title, sweep, workers) in _FIGURES.items():
        chosen = {setup: curve for (at, setup, by), curve in curves.items() if (at, by) == (sweep, workers)}
        if chosen:
            made[name] = _figure(title, chosen, by_workers=not workers)
    by_concurrency = [each for each in traced if each.folder.name.startswith(_IN_LEDGER) and each.stages_ns]
    if by_concurrency:
        made["ledger"] = _ledger(by_concurrency)
    for each in traced:
        if each.is_picture and each.csv_path.is_dir():
            picture = arrows.read_picture(each.title, each.folder, each.csv_path)
            made[each.folder.name] = arrows.figure(dataclasses.replace(picture, began_ns=0))
    return made


def _ledger(traced: Sequence[Traced]) -> Any:
    """Where the time of a mean read went, by workers."""
    from plotly import graph_objects as go  # noqa: PLC0415

    shares = {each.title.partition(" by ")[2].replace(", ", ",<br>"): ledger_shares(each.stages_ns) for each in traced}
    made = go.Figure()
    for group, colour in _LEDGER_COLOURS.items():
        values = [100 * found.get(group, 0.0) for found in shares.values()]
        text = [f"{value:.0f} %" if value >= _SHOWN_PERCENT else "" for value in values]
        made.add_trace(
            go.Bar(x=list(shares), y=values, name=group, marker_color=colour, text=text, textposition="inside")
        )
    made.update_yaxes(title_text="% of the time of a mean read")
    title = "Where the time of GETs of 1 MB goes, by workers"
    made.update_layout(barmode="stack", **_layout(title))
    return made


def ledger_shares(stages_ns: Mapping[str, int]) -> dict[str, float]:
    """The shares of the groups of stages."""
    grouped: dict[str, int] = {}
    for label, spent_ns in stages_ns.items():
        group = next((name for name, pattern in _LEDGER.items() if re.search(pattern, label)), _OTHER)
        grouped[group] = grouped.get(group, 0) + spent_ns
    whole = sum(grouped.values())
    return {group: spent / whole for group, spent in grouped.items()} if whole else {}


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
    made.update_layout(**_layout(title))
    return made


def _layout(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 14}}, "template": "plotly_white", "height": 320,
        "margin": {"l": 50, "r": 20, "t": 40, "b": 40}, "legend": {"orientation": "h", "y": -0.25},
    }  # fmt: skip
