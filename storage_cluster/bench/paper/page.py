"""Parts of what an experiment publishes: its page (HTML) and its text for the docs (Markdown)."""

import html
import os
import platform
import shlex
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper.statements import MARKS, Statement
from storage_cluster.bench.paper.traces import Traced

PAGE, TEXT = "report.html", "README.md"
_STYLE = """body{font:14px system-ui;max-width:1200px;margin:1rem auto;padding:0 1rem}.charts{display:grid;
grid-template-columns:repeat(auto-fill,minmax(380px,1fr))}.wide{grid-column:1/-1}td,th{text-align:left;
padding:.3rem .6rem;border-bottom:1px solid #ddd;vertical-align:top}pre{overflow-x:auto}.beside{grid-column:1/-1;
display:grid;grid-template-columns:minmax(200px,1fr) 960px;align-items:center;font-size:1.2rem}"""


def write_html(
    made: Mapping[str, Any],
    found: Sequence[Statement],
    traced: Sequence[Traced],
    folder: Path,
    title: str,
    wide: Collection[str] = (),
    beside: Mapping[str, str] | None = None,
) -> Path:
    """The page, which needs nothing from elsewhere; its file. `beside`: figure to the paper's words for it."""
    from plotly.io import to_html  # noqa: PLC0415  of another extra

    parts = [
        f"{_html_before(name, wide, beside or {})}{to_html(each, include_plotlyjs=number == 0, full_html=False)}</div>"
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


def head_lines(number: str, command: Sequence[str]) -> list[str]:
    """The first lines of the text: which document, and what wrote this where."""
    return [
        f"# Document {number}, done again",
        "",
        f"Written by `{shlex.join(command)}`, {time.strftime('%Y-%m-%d')}, on {os.cpu_count()} cores, "
        f"Linux {platform.release()}.",
    ]


def statement_lines(found: Iterable[Statement]) -> list[str]:
    """The table of statements, in Markdown."""
    return [
        "| the paper says | found here | | why it differs |",
        "|---|---|---|---|",
        *(f"| {cell(e.said)} | {cell(e.found)} | {MARKS[e.agrees]} | {cell(e.why)} |" for e in found),
    ]


def write_text(lines: Sequence[str], folder: Path) -> Path:
    """The text; its file."""
    (folder / TEXT).write_text("\n".join(lines) + "\n", "utf-8")
    return folder / TEXT


def cell(text: str) -> str:
    """A text as a cell of a table in Markdown."""
    return text.replace("|", "\\|")


def _html_before(name: str, wide: Collection[str], beside: Mapping[str, str]) -> str:
    if said := beside.get(name):
        return f"<div class=beside><p><b>The paper:</b> {html.escape(said)}</p>"
    return f"<div{' class=wide' if name in wide else ''}>"


def _html_row(each: Statement) -> str:
    why = f"<br><em>why: {html.escape(each.why)}</em>" if each.why else ""
    return f"<tr><td>{html.escape(each.said)}<td>{html.escape(each.found)}{why}<td>{MARKS[each.agrees]}</tr>"


def _html_trace(each: Traced) -> str:
    how = f"tracer view {each.folder}"
    return f"<h2>{html.escape(each.title)}</h2><p><code>{html.escape(how)}</code><pre>{html.escape(each.said)}</pre>"
