"""What reports print of names and paths that others chose."""

import io

import pytest

from collector.reporting.console import new_console, new_grid, show_grid, show_heading, show_paragraph


@pytest.mark.parametrize("name", ["GET /a[/b]", "[red]b", "[fd00::1]:8080", ":warning:", "\\[x]", "é[b"])
def test_nothing_of_a_name_is_markup(name: str) -> None:
    console = new_console(file=io.StringIO(), width=60)
    grid = new_grid("<", ">")
    grid.add_row(name, "1")
    show_grid(console, grid)
    show_heading(console, name, name)
    show_paragraph(console, name)
    console.print(name)
    printed = [line.strip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert printed == [f"{name}  1", "", f"{name}  {name}", name, name]
