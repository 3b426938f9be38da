"""Writes the results of document 001's experiment: tables and pictures, as a page and as text for the docs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper import page, pictures
from storage_cluster.bench.paper.experiment_001 import HOSTS, MIXED, PROXY, SETUPS, Measured, PointKey, Results
from storage_cluster.bench.paper.points import Notify
from storage_cluster.bench.paper.statements import Statement
from storage_cluster.bench.paper.traces import Traced
from storage_cluster.bench.paper.traces_001 import STAGES, Writes

ANSWER = "answer.md"
WIDE = ("overhead", "stages", "packets-paper", "packets-improved")
_COLUMNS: tuple[tuple[str, Callable[[Measured], str]], ...] = (
    ("objects/s", lambda each: f"{each.per_s:,.1f}"),
    ("MB/s", lambda each: f"{each.mb_per_s:,.2f}"),
    ("mean, ms", lambda each: f"{each.mean_ms:,.1f}"),
    ("median, ms", lambda each: f"{each.median_ms:,.1f}"),
    ("turns apart", lambda each: f"{each.spread_percent:.0f} %"),
    ("CPU a request, ms: client / proxy / ext3 / ext4", lambda each: _cpu(each)),  # noqa: PLW0108  defined below
    ("failed", lambda each: f"{each.failures_count:,}"),
)


def publish(
    made: Mapping[str, Any],
    results: Results,
    found: Sequence[Statement],
    writes: Sequence[Writes],
    traced: Sequence[Traced],
    folder: Path,
    command: Sequence[str],
    notify: Notify,
) -> Path:
    """Pictures and text into a folder, as docs have them; the text's file. An answer beside it is linked."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures.draw(made, folder, notify, wide=WIDE)
    lines = [*page.head_lines("001", command)]
    lines += ["How it was set up is in `storage_cluster/bench/paper/experiment_001.py`."]
    if (folder / ANSWER).exists():
        lines += ["", f"Where the document's proxy loses its time, which it does not say: [{ANSWER}]({ANSWER})."]
    lines += ["", *page.statement_lines(found)]
    lines += ["", "## Figures", "", *(f"![{file.stem}]({file.name})" for file in drawn)]
    if writes:
        lines += ["", "## Where a write's time goes", "", *_stage_table(writes)]
    for setup in dict.fromkeys(key[0] for key in results):
        chosen = {key: each for key, each in results.items() if key[0] == setup}
        lines += ["", f"## {SETUPS[setup].name}: {SETUPS[setup].words}", "", *_table(chosen)]
    for each in traced:
        lines += ["", f"## Trace: {each.title}", "", *_parts(each), *(f"- {text}" for text in each.findings)]
    return page.write_text(lines, folder)


def _table(chosen: Mapping[PointKey, Measured]) -> Iterator[str]:
    yield f"| what | {' | '.join(name for name, _ in _COLUMNS)} |"
    yield "|---" + "|--:" * len(_COLUMNS) + "|"
    for (_, method, target, size_kb, workers), each in chosen.items():
        size = "sizes at random" if size_kb == MIXED else f"{size_kb:,} KB"
        where = "through the proxy" if target == PROXY else f"{target}, no proxy"
        cells = " | ".join(value(each) for _, value in _COLUMNS)
        yield f"| {method.upper()} of {size} × {workers}, {where} | {cells} |"


def _stage_table(writes: Sequence[Writes]) -> Iterator[str]:
    heads = [f"{each.size_kb:,} KB, {_where(each)}" for each in writes]
    yield f"| ms, mean of {writes[0].count} | {' | '.join(heads)} |"
    yield "|---" + "|--:" * len(writes) + "|"
    for stage in STAGES:
        yield f"| {stage} | {' | '.join(f'{each.mean_ms[stage]:.2f}' for each in writes)} |"
    yield f"| together | {' | '.join(f'{sum(each.mean_ms.values()):.2f}' for each in writes)} |"


def _where(each: Writes) -> str:
    return SETUPS[each.setup].words if each.target == PROXY else f"no proxy ({each.setup}'s run)"


def _parts(traced: Traced) -> Iterator[str]:
    """Where the command's time went, as `tracer report` says it."""
    if traced.parts_ns:
        yield "| part of the command's time (`tracer report`) | ms |"
        yield "|---|--:|"
        for label, spent_ns in sorted(traced.parts_ns.items(), key=lambda part: -part[1]):
            yield f"| {page.cell(label)} | {spent_ns / 1e6:,.1f} |"
        yield ""


def _cpu(each: Measured) -> str:
    return " / ".join(f"{each.cpu_ms[host]:.1f}" if host in each.cpu_ms else "-" for host in HOSTS)
