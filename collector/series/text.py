"""Prints the overview of a series as text."""

from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from collector.reporting.console import (
    COLOURS,
    WIDTH,
    new_console,
    new_grid,
    show_grid,
    show_heading,
    show_paragraph,
    show_remaining,
)
from collector.series.overview import FEWEST_IN_A_MINUTE, Overview, TimeLine
from collector.trace.durations import in_words

MOST_CLASSES, MOST_FINDINGS = 10, 6
REMOVED, PARTLY_REMOVED = "summary only", "some summaries only"


def show_overview(overview: Overview, console: Console | None = None) -> None:
    """Print an overview, by default to standard output."""
    console = console or new_console()
    console.width = console.width if console.is_terminal else WIDTH
    console.print(Text(_sentence(overview), "bold"))
    for words in _notes(overview):
        show_paragraph(console, words, "yellow")
    _show_classes(console, overview)
    _show_slow_minutes(console, overview)
    _show_times(console, overview)
    _show_findings(console, overview)


def moment(at_ns: int) -> str:
    """`2026-11-27 14:03`, UTC."""
    return f"{datetime.fromtimestamp(at_ns // 10**9, UTC):%Y-%m-%d %H:%M}"


def length_words(length_ns: int) -> str:
    """`1 h`, `10 min`."""
    minutes = length_ns // (60 * 10**9)
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"


def _sentence(overview: Overview) -> str:
    if not overview.entries:
        return "no period yet"
    span = f"{moment(overview.entries[0].from_ns)} to {moment(overview.entries[-1].to_ns)} UTC"
    count = len(overview.entries)
    periods = f"{count:,} period{'s' * (count != 1)} of {length_words(overview.period_ns)}"
    failed = f", {overview.failed_count:,} failed" if overview.failed_count else ""
    left = f", {overview.abandoned_count:,} abandoned" if overview.abandoned_count else ""
    return f"{span}, {periods}: {overview.requests_count:,} clients' requests{failed}{left}"


def _notes(overview: Overview) -> list[str]:
    """What is not there of the stretch of time."""
    entries, found = overview.entries, []
    if not entries:
        return []
    removed = sum(entry.removed_ns is not None for entry in entries)
    if removed:
        found.append(f"{removed:,} of these have their summaries only: their traces were removed")
    for problem in dict.fromkeys(entry.problem for entry in entries if entry.problem):
        times = [moment(entry.from_ns) for entry in entries if entry.problem == problem]
        more = f" and {len(times) - 1:,} more" if len(times) > 1 else ""
        found.append(f"no trace of {times[0]}{more}: {problem}")
    missing = (entries[-1].to_ns - entries[0].from_ns) // overview.period_ns - len(entries)
    if missing:
        found.append(f"of {missing:,} periods between there are no packets")
    return found


def _show_classes(console: Console, overview: Overview) -> None:
    if not overview.classes:
        return
    show_heading(console, "Clients' requests by class")
    grid = new_grid("<", ">", ">", ">", ">")
    grid.add_row(*(Text(word, "dim") for word in ("", "requests", "failed", "p50", "p99")))
    for line in overview.classes[:MOST_CLASSES]:
        failed = f"{line.failed_count:,}" if line.failed_count else ""
        grid.add_row(line.words, f"{line.requests_count:,}", failed, _time(line.p50_ns), _time(line.p99_ns))
    show_grid(console, grid)
    show_remaining(console, len(overview.classes), MOST_CLASSES)


def _show_slow_minutes(console: Console, overview: Overview) -> None:
    show_heading(console, "Slowest minutes", "" if overview.slow_minutes else _no_slow_minutes(overview))
    for each in overview.slow_minutes:
        words = (
            f"{moment(each.minute_ns)} UTC: p99 of {each.words} {in_words(each.p99_ns)}, usually "
            f"{in_words(each.usual_p99_ns)} ({each.requests_count:,} requests)"
        )
        show_paragraph(console, words, "", 2)


def _no_slow_minutes(overview: Overview) -> str:
    if not overview.classes:
        return "none: there are no requests"
    return f"none: no class with at least {FEWEST_IN_A_MINUTE} requests in a minute was twice as slow as usual"


def _show_times(console: Console, overview: Overview) -> None:
    if not overview.lines:
        return
    show_heading(console, "By time (UTC)")
    grid = new_grid("<", ">", ">", ">", ">", ">", ">", ">", "<")
    words = ("", "requests", "failed", "p50", "p99", "hops", "lost", "findings", "")
    grid.add_row(*(Text(word, "dim") for word in words))
    for line in overview.lines:
        counts = [f"{count:,}" if count else "" for count in (line.lost_count, line.findings_count)]
        failed = f"{line.failed_count:,}" if line.failed_count else ""
        figures = (f"{line.requests_count:,}", failed, _time(line.p50_ns), _time(line.p99_ns), f"{line.hops_count:,}")
        known = figures if line.summarised_count else ("",) * len(figures)
        grid.add_row(moment(line.from_ns), *known, *counts, Text(_state(line), "dim"))
    show_grid(console, grid)


def _state(line: TimeLine) -> str:
    """What is there of these periods, where it is not all."""
    if line.problems:
        return "no trace"
    if line.traces_count == line.summarised_count:
        return ""
    return PARTLY_REMOVED if line.traces_count else REMOVED


def _show_findings(console: Console, overview: Overview) -> None:
    show_heading(console, "Findings", "" if overview.findings else "none")
    count = sum(not entry.problem for entry in overview.entries)
    for line in overview.findings[:MOST_FINDINGS]:
        at = "" if line.at_ns is None else f", at worst at {moment(line.at_ns)} UTC"
        periods = f"in {line.periods_count:,} of {count:,} periods{at}"
        show_paragraph(console, f"{line.severity} {line.kind}, {periods}: {line.text}", COLOURS[line.severity], 2)
    show_remaining(console, len(overview.findings), MOST_FINDINGS)


def _time(value_ns: int | None) -> str:
    return "" if value_ns is None else in_words(value_ns)
