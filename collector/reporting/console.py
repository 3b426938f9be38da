"""What the reports in a terminal are made of: titles, paragraphs, tables without rules; plain in a pipe."""

import re
import textwrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 100
"""The width if the output is no terminal."""
COLOURS = {"error": "bold red", "warning": "yellow", "notice": "cyan", "info": "dim", "data_loss": "bold red"}
_UNITS = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s)\b|%)|(?<=±) | (?=±)")
"""Spaces at which a line must not break."""


def new_console(**options: Any) -> Console:
    """A console that prints texts as they are: of names and paths of others nothing is markup (`[fd00::1]`, `[/b]`).

    Arguments: `options`, others of rich's `Console`.
    """
    return Console(highlight=False, markup=False, emoji=False, **options)


def show_paragraph(console: Console, words: str, style: str = "", indent: int = 0) -> None:
    """Print `words`, wrapped; a number stays with its unit."""
    for line in textwrap.wrap(_UNITS.sub("\u00a0", words), console.width - indent):
        console.print(Text(" " * indent + line.replace("\u00a0", " "), style), overflow="ellipsis", no_wrap=True)


def show_heading(console: Console, words: str, rest: str = "") -> None:
    """Print the title of a section after an empty line, in bold, and `rest` beside it."""
    console.print()
    console.print(Text.assemble((words, "bold"), f"  {rest}" if rest else ""))


def show_remaining(console: Console, count: int, shown: int, what: str = "") -> None:
    """Say how many of `count` entries, all of a kind `what`, are not among those shown."""
    if count > shown:
        console.print(Text(f"  … and {count - shown:,} more{what}", "dim"))


def new_grid(*columns: str) -> Table:
    """A table without rules; a column named with `>` is right-aligned."""
    grid = Table.grid(padding=(0, 2))
    for column in columns:
        grid.add_column(justify="right" if column == ">" else "left", overflow="ellipsis", no_wrap=True)
    return grid


def show_grid(console: Console, grid: Table, names: int | None = None) -> None:
    """Print `grid`, indented. Column `names` gets the width that the others leave: names are cut, figures are not."""
    if names is not None:
        others = [column for place, column in enumerate(grid.columns) if place != names]
        taken = sum(2 + max(cell_len(str(cell)) for cell in column.cells) for column in others)
        grid.columns[names].max_width = max(1, console.width - 2 - taken)
    console.print(Padding(grid, (0, 0, 0, 2), expand=False))
