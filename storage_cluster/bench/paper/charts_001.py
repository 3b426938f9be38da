"""Charts as document 001 has them (figures 3 to 5), and two that it lacks: what a proxy costs, and where that goes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage_cluster.bench.paper.experiment_001 import (
    EXT3,
    EXT4,
    FEW,
    LARGER_KB,
    MANY,
    MIXED,
    PROXY,
    SATURATING,
    SETUPS,
    Measured,
    Plan,
    Results,
    store_for,
)
from storage_cluster.bench.paper.statements_001 import OVERHEAD_MAX_PERCENT, overhead_percent
from storage_cluster.bench.paper.traces_001 import (
    AFTER,
    ANSWER,
    BACK,
    BEFORE,
    BODY_IN,
    BODY_OUT,
    CONNECT,
    STAGES,
    STORE,
    Writes,
)
from storage_cluster.errors import MissingResourceError
from tracer.installation import install_command

_COLOURS = {"none": "#8d99ae", "paper": "#c25700", "improved": "#2457c5", EXT3: "#c25700", EXT4: "#2457c5"}
_STAGE_COLOURS = {
    BODY_IN: "#7a9be0",
    BEFORE: "#c62828",
    CONNECT: "#e0a06a",
    BODY_OUT: "#2457c5",
    STORE: "#8d99ae",
    ANSWER: "#b9c2d0",
    AFTER: "#c25700",
    BACK: "#d8dde6",
}


def figures(plan: Plan, results: Results, writes: Sequence[Writes]) -> dict[str, Any]:
    """Each figure by its file's name. Raises: MissingResourceError without plotly."""
    try:
        import plotly  # noqa: F401, PLC0415  of another extra
    except ModuleNotFoundError:
        raise MissingResourceError(
            "charts need plotly, which is not installed", f"run: {install_command('viewer')}"
        ) from None
    made = {
        "figure-03": _filesystems(plan, results),
        "figure-04": _by_size(plan, results),
        "figure-05": _mixed_sizes(results),
        "overhead": _overheads(results),
    }
    return made | ({"stages": _stages(writes)} if writes else {})


def _filesystems(plan: Plan, results: Results) -> Any:
    series = {
        target: [results.get(("filesystems", "put", target, size_kb, MANY)) for size_kb in plan.filesystem_sizes_kb]
        for target in (EXT3, EXT4)
    }
    labels = [f"{size_kb} KB" for size_kb in plan.filesystem_sizes_kb]
    return _bars("Figure 3: writes without a proxy, 8 workers", labels, series, "objects/s", _per_s)


def _by_size(plan: Plan, results: Results) -> Any:
    def past(size_kb: int) -> Measured | None:
        found = (results.get((setup, "put", store_for(size_kb), size_kb, FEW)) for setup in ("paper", "improved"))
        return max(filter(None, found), key=_per_s, default=None)

    series = {"none": [past(size_kb) for size_kb in plan.sizes_kb]} | {
        setup: [results.get((setup, "put", PROXY, size_kb, FEW)) for size_kb in plan.sizes_kb]
        for setup in ("paper", "improved")
    }
    labels = [f"{size_kb} KB" for size_kb in plan.sizes_kb]
    return _bars("Figure 4: writes without and with a proxy, 1 worker", labels, series, "objects/s", _per_s)


def _mixed_sizes(results: Results) -> Any:
    """Each proxy beside what its own run did without one."""
    labels = ["no proxy, ext3", "no proxy, ext4", "fixed threshold", "running mean"]
    series = {
        setup: [
            *(results.get((setup, "put", target, MIXED, FEW)) for target in (EXT3, EXT4, PROXY)),
            results.get((f"{setup}-mean", "put", PROXY, MIXED, FEW)),
        ]
        for setup in ("paper", "improved")
    }
    return _bars("Figure 5: sizes of 1 KB to 3 MB at random, 1 worker", labels, series, "MB/s", _mb_per_s)


def _overheads(results: Results) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415

    points = [("put", size_kb, FEW, "") for size_kb in (*LARGER_KB, 3000)]
    points += [("put", size_kb, MANY, "") for size_kb in LARGER_KB]
    points += [("get", size_kb, FEW, "") for size_kb in LARGER_KB]
    points += [("put", size_kb, SATURATING, "-saturated") for size_kb in LARGER_KB]
    made = go.Figure()
    for setup in ("paper", "improved"):
        costs = {
            f"{method.upper()} {size_kb:,} KB<br>× {workers}{', CPU full' if suffix else ''}": cost
            for method, size_kb, workers, suffix in points
            if (cost := overhead_percent(results, setup + suffix, method, size_kb, workers)) is not None
        }
        made.add_trace(
            go.Bar(x=list(costs), y=list(costs.values()), name=SETUPS[setup].words, marker={"color": _COLOURS[setup]})
        )
    made.add_hline(y=OVERHEAD_MAX_PERCENT, line={"dash": "dot", "color": "#444"}, annotation_text="5 %")
    made.update_yaxes(title_text="% less than without")
    return _with_layout(made, "What a proxy costs, from 100 KB on")


def _stages(writes: Sequence[Writes]) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415

    def label(each: Writes) -> str:
        what = SETUPS[each.setup].words if each.target == PROXY else f"no proxy ({each.setup}'s run)"
        return f"{each.size_kb:,} KB, {what}"

    ordered = sorted(
        writes, key=lambda each: (-each.size_kb, each.target == PROXY, each.setup != "paper"), reverse=False
    )
    made = go.Figure()
    for stage in STAGES:
        lengths = [each.mean_ms[stage] for each in ordered]
        colour = {"color": _STAGE_COLOURS[stage]}
        made.add_trace(
            go.Bar(y=[label(each) for each in ordered], x=lengths, name=stage, orientation="h", marker=colour)
        )
    made.update_layout(barmode="stack")
    made.update_xaxes(title_text="ms, mean of the writes in the trace")
    made = _with_layout(made, "Where a write's time goes, from its packets")
    return made.update_layout(margin={"l": 260, "r": 20, "t": 40, "b": 40})


def _bars(
    title: str,
    labels: Sequence[str],
    series: Mapping[str, Sequence[Measured | None]],
    unit: str,
    value: Callable[[Measured], float],
) -> Any:
    from plotly import graph_objects as go  # noqa: PLC0415

    names = {"none": "no proxy"} | {name: setup.words for name, setup in SETUPS.items()}
    made = go.Figure()
    for name, found in series.items():
        rates = [None if each is None else value(each) for each in found]
        made.add_trace(go.Bar(x=labels, y=rates, name=names.get(name, name), marker={"color": _COLOURS[name]}))
    made.update_yaxes(title_text=unit, rangemode="tozero")
    made.update_xaxes(type="category")
    return _with_layout(made, title)


def _with_layout(made: Any, title: str) -> Any:
    made.update_layout(
        title={"text": title, "font": {"size": 14}}, template="plotly_white", height=320,
        margin={"l": 50, "r": 20, "t": 40, "b": 40}, legend={"orientation": "h", "y": -0.25},
    )  # fmt: skip
    return made


def _per_s(found: Measured) -> float:
    return found.per_s


def _mb_per_s(found: Measured) -> float:
    return found.mb_per_s
