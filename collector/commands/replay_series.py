"""`tracer replay --every`: a series of traces, one for each period."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from collector.analysis import AnalysisOptions
from collector.analysis.places import Places
from collector.commands.progress_text import progress_display
from collector.decode.far_captures import FarCaptures
from collector.decode.sources import host_sources
from collector.execution.engine import ThreadEngine
from collector.series.making import make_series
from collector.series.overview import build_overview
from collector.series.series import Entry, Period, Series
from collector.series.text import moment, show_overview
from tracer.errors import InputError
from tracer.secret_rules import without_secrets


def series_at(place: str, length_ns: int) -> Series:
    """The series in a folder, new or not. Raises: InputError for a URL, or as `Series.make`."""
    if "://" in place:
        raise InputError("a series lies in a folder of this machine", "give a folder with -o")
    return Series.make(Path(place), length_ns)


def replay_series(
    captures: Sequence[str],
    place: str,
    length_ns: int,
    options: AnalysisOptions,
    places: Callable[[str], Places],
    *,
    quiet: bool,
) -> None:
    """Make the traces of a series, and show what it says. Raises: InputError, ResourceError."""
    if options.wanted is not None:
        raise InputError("--every makes a trace of each period", "leave out --from and --to")
    with (
        progress_display(quiet=quiet) as progress,
        FarCaptures(captures, Path(tempfile.gettempdir()), ThreadEngine()) as near,
    ):
        sources = host_sources(near.arguments)
        series = series_at(place, length_ns)
        make_series(series, sources, options, places, lambda *done: None if quiet else _say(*done), progress)
    show_overview(build_overview(series))
    click.echo(without_secrets(f"series: {series.place}"))


def _say(period: Period, entry: Entry | None) -> None:
    """A line for a period that was looked at."""
    what = "no packet" if entry is None else "trace made"
    click.echo(f"tracer: {moment(period.from_ns)} UTC: {what}", err=True)
