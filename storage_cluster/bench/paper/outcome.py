"""Writes the results of document 000's experiment as a page (HTML), pictures (PNG) and a text for the docs (Markdown).

report.html          all figures and the table, in one file that needs nothing from elsewhere
figure-NN.png        each figure
README.md            the table, the sweep in figures, the pictures; what `--publish` puts elsewhere
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper import arrows, charts, page, pictures, words_000
from storage_cluster.bench.paper.experiment_000 import HOSTS, Found, Series
from storage_cluster.bench.paper.points import Notify
from storage_cluster.bench.paper.statements import Statement
from storage_cluster.bench.paper.statements_000 import FIGURES_15
from storage_cluster.bench.paper.traces import Traced

_WIDE, _WITH_START = (*FIGURES_15, "figure-16"), "figure-16"  # the paper's sentence is about the start, too
_BESIDE = {f"figure-{number:02}": said for number, said in words_000.SAID.items()}
_ROWS = (
    ("objects/s", lambda found: f"{found.throughput_per_s:,.0f}"),
    ("objects in the time measured", lambda found: f"{found.objects_count:,}"),
    ("retries", lambda found: f"{found.retries_count:,}"),
    ("failures", lambda found: f"{found.failures_count:,}"),
    ("unfinished when the time was over", lambda found: f"{found.unfinished_count:,}"),
    ("all rounds, objects/s", lambda found: " / ".join(f"{rate:,.0f}" for rate in found.rounds_per_s) or "-"),
    (
        "I/O client / proxy / storage, %",
        lambda found: " / ".join(f"{found.io_percent.get(host, 0):.0f}" for host in HOSTS),
    ),
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
    return page.write_html(made, found, traced, folder, title, wide=_WIDE, beside=_BESIDE)


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
    lines = [*page.head_lines("000", command), "", *page.statement_lines(found)]
    for (media, size), points in series.items():
        lines += ["", f"## {size} on {media.upper()}", "", *_table(points)]
    lines += ["", "## Figures, beside what the paper says of its own", ""]
    lines += [
        "Its curves are printed without numbers, so its words stand here.",
        "",
        "| the paper | here |",
        "|---|---|",
    ]
    with_words = [file for file in drawn if file.stem in _BESIDE]
    lines += [f"| {page.cell(_BESIDE[file.stem])} | ![{file.stem}]({file.name}) |" for file in with_words]
    lines += ["", *(f"![{file.stem}]({file.name})" for file in drawn if file not in with_words)]
    for each in traced:
        if each.findings:
            lines += ["", f"## {each.title}", "", *(f"- {text}" for text in each.findings)]
    return page.write_text(lines, folder)


def _table(points: Sequence[Found]) -> list[str]:
    heads = " | ".join(f"{found.concurrency:,}" for found in points)
    lines = [f"| at once | {heads} |", "|---" * (len(points) + 1) + "|"]
    return lines + [f"| {name} | {' | '.join(map(value, points))} |" for name, value in _ROWS]
