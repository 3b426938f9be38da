"""Shows the progress of an analysis: on a terminal one line that changes, elsewhere one line at the end of each stage.

It is written to standard error, so that a report in a pipe or a file is not affected. The time left is estimated from
the pace so far and the stages' usual shares (`collector.execution.progress.WEIGHTS`), not before the first second.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from collector.execution.progress import SILENT, WEIGHTS, Progress, Stage
from collector.trace.durations import in_words

FIRST_ESTIMATE_SECONDS = 1.0
REFRESHES_PER_S = 4
"""Refreshes of the terminal's line per second: little work, and visible progress."""


class Display(Protocol):
    """Where progress is shown."""

    def update(self, stage: Stage, packets: int, seconds: float, share: float, left_seconds: float | None) -> None:
        """Show the stage's packets and seconds so far, and the share completed and the time left of the whole."""

    def stage_ended(self, stage: Stage, packets: int, seconds: float) -> None:
        """Show the stage's packets and duration."""


class DisplayedProgress:
    """A `Progress` that sums up the reports and passes them to a display."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock, self._lock = display, clock, Lock()
        self._began = clock()
        self._stage: Stage | None = None
        self._stage_began, self._packets, self._share, self._before = 0.0, 0, 0.0, 0.0

    def begin(self, stage: Stage) -> None:
        """As `Progress.begin`."""
        with self._lock:
            self._close()
            self._stage, self._stage_began, self._packets, self._share = stage, self._clock(), 0, 0.0
            self._update()

    def advance(self, packets: int, share: float) -> None:
        """As `Progress.advance`."""
        with self._lock:
            self._packets += packets
            self._share = min(1.0, self._share + share)
            self._update()

    def end(self) -> None:
        """As `Progress.end`."""
        with self._lock:
            self._close()
            self._stage = None

    def _close(self) -> None:
        if self._stage is not None:
            self._display.stage_ended(self._stage, self._packets, self._clock() - self._stage_began)
            self._before += WEIGHTS[self._stage]

    def _update(self) -> None:
        assert self._stage is not None, "a stage has begun"
        now = self._clock()
        share = self._before + WEIGHTS[self._stage] * self._share
        took = now - self._began
        left = took * (1 - share) / share if share and took >= FIRST_ESTIMATE_SECONDS else None
        self._display.update(self._stage, self._packets, now - self._stage_began, share, left)


class Lines:
    """A line for each stage, when it has ended."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def update(self, stage: Stage, packets: int, seconds: float, share: float, left_seconds: float | None) -> None:
        """Nothing: only ends are worth a line."""

    def stage_ended(self, stage: Stage, packets: int, seconds: float) -> None:
        """As `Display.stage_ended`."""
        self._write(f"{stage}: {figures(packets, seconds)}")


class TerminalLine:
    """One line that changes in place."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=1.0, figures="", left="")

    def update(self, stage: Stage, packets: int, seconds: float, share: float, left_seconds: float | None) -> None:
        """As `Display.update`."""
        left = "" if left_seconds is None else time_left(left_seconds)
        words = figures(packets, seconds) if packets else ""
        self._bar.update(self._task, description=str(stage), completed=share, figures=words, left=left)

    def stage_ended(self, stage: Stage, packets: int, seconds: float) -> None:
        """Nothing: the line goes on with the next stage."""


def figures(packets: int, seconds: float) -> str:
    """`1,002,496 packets in 2.0 s, 501,248/s`; only the time for a stage that counts no packets."""
    took = in_words(round(seconds * 1e9))
    if not packets:
        return took
    rate = f", {round(packets / seconds):,}/s" if seconds > 0 else ""
    return f"{packets:,} packet{'s' * (packets != 1)} in {took}{rate}"


def time_left(seconds: float) -> str:
    """`about 7 s left`; "" for less than a second."""
    if seconds >= 2 * 60:
        return f"about {round(seconds / 60):,} min left"
    return f"about {round(seconds)} s left" if seconds >= 1 else ""


@contextmanager
def progress_display(*, quiet: bool, console: Console | None = None) -> Iterator[Progress]:
    """A progress for `collector.analysis.analyse`, shown on standard error within the context unless `quiet`."""
    console = console or Console(stderr=True, highlight=False)
    if quiet:
        yield SILENT
    elif not console.is_terminal:
        yield DisplayedProgress(Lines(lambda line: click.echo(f"tracer: {line}", err=True)))
    else:
        columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.percentage:3.0f} %"))
        with Bar(
            *columns,
            TextColumn("{task.fields[figures]}"),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            refresh_per_second=REFRESHES_PER_S,
        ) as bar:
            yield DisplayedProgress(TerminalLine(bar))
