"""Prints what would have been, class by class."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from collector.queries.what_if import ClassForecast, Forecast
from collector.reporting.console import WIDTH, show_paragraph
from collector.trace.durations import in_words
from tracer.plain_text import plain

ASSUMPTIONS = (
    "Each request is played again by itself: it waits for what it waited for, and the load, queues and everything else "
    "stay as they were."
)
MOST_CLASSES = 12


def show_forecast(found: Forecast, console: Console) -> None:
    """Print the percentiles of each class before and after, and what could not be said."""
    console.width = console.width if console.is_terminal else WIDTH
    show_paragraph(console, f"With {found.changes}", "bold")
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("", "requests", "changed", "p50", "would be", "p99", "would be"):
        table.add_column(name, justify="right" if name else "left", header_style="dim", no_wrap=bool(name))
    for each in found.classes[:MOST_CLASSES]:
        table.add_row(*_cells(each))
    console.print(table)
    if len(found.classes) > MOST_CLASSES:
        show_paragraph(console, f"… and {len(found.classes) - MOST_CLASSES} more classes (--json shows all)", "dim")
    console.print()
    limits = [*found.limits]
    if found.left_count:
        limits.append(f"{found.left_count:,} requests have no known end, or were given up: they are in no figure")
    for limit in limits:
        show_paragraph(console, f"! {plain(limit)}", "yellow")
    show_paragraph(console, ASSUMPTIONS, "dim")


def _cells(each: ClassForecast) -> tuple[str | Text, ...]:
    was = (each.p50_ns, each.p99_ns)
    now = [
        Text(in_words(value_now), "bold" if value_now != value else "")
        for value, value_now in zip(was, (each.p50_now_ns, each.p99_now_ns), strict=True)
    ]
    counts = (f"{each.count:,}", f"{each.changed_count:,}")
    return (plain(each.name), *counts, in_words(was[0]), now[0], in_words(was[1]), now[1])
