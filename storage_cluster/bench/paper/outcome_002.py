"""Writes the results of document 002's experiment: a page (HTML), pictures (PNG) and a text for the docs (Markdown)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster import topology
from storage_cluster.bench.paper import charts_002, page, pictures, turns_002
from storage_cluster.bench.paper.client_002 import READ, WRITE
from storage_cluster.bench.paper.experiment_002 import SCALE, STREAMS, Done
from storage_cluster.bench.paper.points import Notify
from storage_cluster.bench.paper.statements import Statement
from storage_cluster.bench.paper.statements_002 import levels, window_rows
from storage_cluster.bench.paper.turns_002 import Turns

_TURNS = "whose-turn"


def figures(done: Mapping[str, Done], size_bytes: int, turns: Turns | None) -> dict[str, Any]:
    """All figures by file name. Raises: MissingResourceError without plotly."""
    made = charts_002.figures(done, size_bytes)
    if turns is not None and turns.stalls:
        made[_TURNS] = turns_002.figure(turns)
    return made


def publish(
    made: Mapping[str, Any],
    done: Mapping[str, Done],
    size_bytes: int,
    found: Sequence[Statement],
    turns: Turns | None,
    folder: Path,
    command: Sequence[str],
    notify: Notify,
) -> Path:
    """Pictures, the page and the text into a folder; the text's file."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures.draw(made, folder, notify, wide=(_TURNS,))
    lines = page.head_lines("002", command)
    reservable = topology.load(topology.find("papio")).reservations.reservable
    lines += [
        "",
        f"All rates are the document's over {SCALE}: a device reads 20 MB/s and writes 10, of which "
        f"{100 * reservable:.0f} % can be reserved. Objects have {size_bytes / 1e6:.0f} MB, "
        "parts 5 MiB; each part is verified by its MD5. Windows of downloads count what reached the client, those of "
        "uploads what the storage server's medium was given for it. "
        f"{len(done)} points are done.",
        "",
        *page.statement_lines(found),
    ]
    for direction, figure in ((READ, 4), (WRITE, 5)):
        by_level = levels(done, direction, size_bytes)
        if by_level:
            heads = ["one request", *(str(streams) for streams in STREAMS if streams)]
            lines += ["", f"## Figure {figure}: MB/s by streams", "", f"| reserved | {' | '.join(heads)} |"]
            lines.append("|--:" * (len(heads) + 1) + "|")
            for rate, means in by_level.items():
                cells = [f"{means[streams]:.1f}" if streams in means else "" for streams in STREAMS]
                lines.append(f"| {rate / SCALE:g} | {' | '.join(cells)} |")
    rows = window_rows(done)
    if len(rows) > 2:
        lines += ["", "## Figures 6 and 7: five clients, in windows of one second", "", *rows]
    if turns is not None and turns.stalls:
        lines += ["", "## Whose turn it was", "", *turns_002.text_lines(turns), "", f"![{_TURNS}]({_TURNS}.png)"]
    lines += ["", "## Figures", "", *(f"![{file.stem}]({file.name})" for file in drawn if file.stem != _TURNS)]
    return page.write_text(lines, folder)
