"""Writes the results of document 000's experiment as a page (HTML), pictures (PNG) and a text for the docs (Markdown).

report.html          all figures and the table, in one file that needs nothing from elsewhere
figure-NN.png        each figure
README.md            the table, the sweep in figures, the pictures; what `--publish` puts elsewhere
"""

import dataclasses
import html
import os
import platform
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper import arrows, charts, pictures
from storage_cluster.bench.paper.experiment_000 import Found, Series
from storage_cluster.bench.paper.points import Notify
from storage_cluster.bench.paper.statements_000 import MARKS, Statement
from storage_cluster.bench.paper.traces import Traced

_WIDE, _WITH_START = ("figure-15", "figure-16"), "figure-16"  # the paper's sentence is about the start, too
PAGE, TEXT = "report.html", "README.md"
_STYLE = """body{font:14px system-ui;max-width:1200px;margin:1rem auto;padding:0 1rem}.charts{display:grid;
grid-template-columns:repeat(auto-fill,minmax(380px,1fr))}.wide{grid-column:1/-1}td,th{text-align:left;
padding:.3rem .6rem;border-bottom:1px solid #ddd;vertical-align:top}pre{overflow-x:auto}"""
_ROWS = (
    ("objects/s", lambda found: f"{found.throughput_per_s:,.0f}"),
    ("objects in the time measured", lambda found: f"{found.objects_count:,}"),
    ("retries", lambda found: f"{found.retries_count:,}"),
    ("failures", lambda found: f"{found.failures_count:,}"),
    ("storage disk busy, %", lambda found: f"{found.io_percent['storage']:.0f}"),
    ("CPU client / proxy / storage, %", lambda found: " / ".join(f"{v:.0f}" for v in found.cpu_percent.values())),
    (
        "waiting for a processor, %",
        lambda found: " / ".join(f"{v:.0f}" for v in found.cpu_wait_percent.values()) or "-",
    ),
)


def figures(series: Series, traced: Sequence[Traced]) -> dict[str, Any]:
    """All figures by file name. Raises: MissingResourceError without plotly."""
    made = charts.figures(series)
    for each in traced:
        if each.is_picture and each.csv_path.is_dir():
            picture = arrows.read_picture(each.title, each.folder, each.csv_path)
            if each.folder.name != _WITH_START:
                picture = dataclasses.replace(picture, began_ns=0)
            made[each.folder.name] = arrows.figure(picture)
    return made


def write_html(
    made: Mapping[str, Any], found: Sequence[Statement], traced: Sequence[Traced], folder: Path, title: str
) -> Path:
    """The page; its file."""
    from plotly.io import to_html  # noqa: PLC0415  of another extra

    parts = [
        f"<div{' class=wide' if name in _WIDE else ''}>"
        f"{to_html(each, include_plotlyjs=number == 0, full_html=False)}</div>"
        for number, (name, each) in enumerate(made.items())
    ]
    page = (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><table><tr><th>The paper says<th>Found here<th></tr>"
        f"{''.join(map(_html_row, found))}</table>"
        f"<div class=charts>{''.join(parts)}</div>{''.join(map(_html_trace, traced))}"
    )
    (folder / PAGE).write_text(page, "utf-8")
    return folder / PAGE


def publish(
    made: Mapping[str, Any],
    series: Series,
    found: Sequence[Statement],
    traced: Sequence[Traced],
    folder: Path,
    command: Sequence[str],
    notify: Notify,
) -> Path:
    """Pictures and text into a folder, as docs have them; the text's file."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures.draw(made, folder, notify, wide=_WIDE)
    lines = [
        "# Document 000, done again",
        "",
        f"Written by `{shlex.join(command)}`, {time.strftime('%Y-%m-%d')}, on {os.cpu_count()} cores, "
        f"Linux {platform.release()}.",
        "",
        "| the paper says | found here | | why it differs |",
        "|---|---|---|---|",
        *(f"| {_cell(e.said)} | {_cell(e.found)} | {MARKS[e.agrees]} | {_cell(e.why)} |" for e in found),
    ]
    for (media, size), points in series.items():
        lines += ["", f"## {size} on {media.upper()}", "", *_table(points)]
    lines += ["", "## Figures", "", *(f"![{file.stem}]({file.name})" for file in drawn)]
    for each in traced:
        if each.findings:
            lines += ["", f"## {each.title}", "", *(f"- {text}" for text in each.findings)]
    (folder / TEXT).write_text("\n".join(lines) + "\n", "utf-8")
    return folder / TEXT


def _table(points: Sequence[Found]) -> list[str]:
    heads = " | ".join(f"{found.concurrency:,}" for found in points)
    lines = [f"| at once | {heads} |", "|---" * (len(points) + 1) + "|"]
    return lines + [f"| {name} | {' | '.join(map(value, points))} |" for name, value in _ROWS]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _html_row(each: Statement) -> str:
    why = f"<br><em>why: {html.escape(each.why)}</em>" if each.why else ""
    return f"<tr><td>{html.escape(each.said)}<td>{html.escape(each.found)}{why}<td>{MARKS[each.agrees]}</tr>"


def _html_trace(each: Traced) -> str:
    how = f"tracer view {each.folder}"
    return f"<h2>{html.escape(each.title)}</h2><p><code>{html.escape(how)}</code><pre>{html.escape(each.said)}</pre>"
