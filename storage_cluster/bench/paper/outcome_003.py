"""Writes the results of document 003's experiment: tables and pictures, as a page and as text for the docs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper import page, pictures
from storage_cluster.bench.paper.experiment_003 import (
    BALANCED,
    GET_SIZES,
    GET_WORKERS,
    PUT_SIZES,
    PUT_WORKERS,
    SETUPS,
    Curve,
    Curves,
    Measured,
    missing_curves,
)
from storage_cluster.bench.paper.points import Notify
from storage_cluster.bench.paper.statements import Statement
from storage_cluster.bench.paper.traces import Traced

ANSWERS = "answers.md"
WIDE = ("balancer-packets",)
_TITLES = {
    GET_WORKERS: "GET of 1 MB, by workers (figure 4)",
    GET_SIZES: "GET by size (figures 5 and 6)",
    PUT_WORKERS: "PUT of 1 MB, by workers (figure 7)",
    PUT_SIZES: "PUT by size (figures 8 and 9)",
    f"{BALANCED}-get": "GET of 1 MB through gateways behind a balancer, hosts of equal processors",
    f"{BALANCED}-put": "PUT of 1 MB through gateways behind a balancer, hosts of equal processors",
}
_Row = tuple[str, Callable[[Measured], str]]
_ROWS: tuple[_Row, ...] = (
    ("MB/s", lambda each: _number(each.mb_per_s)),
    ("other pass", lambda each: f"-{each.spread_percent:.0f} %"),
    ("mean, ms", lambda each: _number(each.mean_ms)),
    ("objects", lambda each: f"{each.objects_count:,}"),
    ("busiest device, %", lambda each: f"{each.disk_busy_percent:.0f}"),
    ("CPU client / gateway / storage, %", lambda each: _cpu(each.cpu_percent)),
    ("waiting for a processor, %", lambda each: _cpu(each.cpu_wait_percent)),
)
_STAGES_COUNT = 8


def publish(
    made: Mapping[str, Any],
    curves: Curves,
    found: Sequence[Statement],
    traced: Sequence[Traced],
    folder: Path,
    command: Sequence[str],
    notify: Notify,
) -> Path:
    """Pictures and text into a folder, as docs have them; the text's file. A file of answers beside it is linked."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures.draw(made, folder, notify, wide=WIDE)
    failures = sum(each.failures_count for curve in curves.values() for each in curve)
    lines = [*page.head_lines("003", command), f"Requests that failed: {failures:,}.", ""]
    lines += ["How it was set up is in `storage_cluster/bench/paper/experiment_003.py`."]
    if missing := missing_curves(curves):
        lines += [
            "",
            f"Not measured in this run: {', '.join(f'{SETUPS[name].words} ({sweep})' for sweep, name in missing)}.",
        ]
    if (folder / ANSWERS).exists():
        lines += ["", f"The document's two questions and its proposal: [{ANSWERS}]({ANSWERS})."]
    lines += ["", *page.statement_lines(found)]
    for sweep, title in _TITLES.items():
        chosen = {(setup, workers): curve for (at, setup, workers), curve in curves.items() if at == sweep}
        for (setup, workers), curve in chosen.items():
            by = f", {workers} worker{'s' * (workers > 1)}" if workers else ""
            lines += ["", f"### {title}: {SETUPS[setup].words}{by}", "", *_table(curve, by_size=bool(workers))]
    lines += ["", "## Figures", "", *(f"![{file.stem}]({file.name})" for file in drawn)]
    for each in traced:
        lines += ["", f"## Trace: {each.title}", "", *_stages(each), *(f"- {text}" for text in each.findings)]
    return page.write_text(lines, folder)


def _table(curve: Curve, *, by_size: bool) -> list[str]:
    heads = " | ".join(each.size if by_size else f"{each.workers:,}" for each in curve)
    lines = [f"| {'size' if by_size else 'workers'} | {heads} |", "|---" + "|--:" * len(curve) + "|"]
    return lines + [f"| {name} | {' | '.join(map(value, curve))} |" for name, value in _ROWS]


def _stages(traced: Traced) -> list[str]:
    """Where the time of a mean request went, or that of the command where there are few requests: the longest parts."""
    of_what, parts_ns = ("a mean request", traced.stages_ns) if traced.stages_ns else ("the command", traced.parts_ns)
    whole = sum(parts_ns.values())
    if not whole:
        return []
    longest = sorted(parts_ns.items(), key=lambda part: -part[1])[:_STAGES_COUNT]
    rows = [f"| {page.cell(label)} | {ns / 1e6:,.1f} | {ns / whole:.0%} |" for label, ns in longest]
    return [f"| where the time of {of_what} went | ms | |", "|---|--:|--:|", *rows, ""]


def _cpu(values: Mapping[str, float]) -> str:
    """Of the client, of each gateway, and of the busiest storage host; of a balancer too, if there is one."""
    groups = ("client", "balancer", "gateway", "storage")
    shown = []
    for group in groups:
        of_group = [value for host, value in values.items() if host.startswith(group)]
        chosen = of_group if group == "gateway" else [max(of_group)] if of_group else []
        shown += [" + ".join(f"{value:.0f}" for value in chosen)] if chosen else []
    return " / ".join(shown) or "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
