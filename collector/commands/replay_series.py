"""`tracer replay --every`: a series of traces, one for each period."""

import re
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
from collector.series.series import Entry, Period, Series, check_length
from collector.series.text import moment, show_overview
from tracer.errors import InputError
from tracer.secret_rules import without_secrets

_LENGTH = re.compile(r"(\d{1,4}) ?(m|min|h|d)")
_UNITS_NS = {"m": 60 * 10**9, "min": 60 * 10**9, "h": 3_600 * 10**9, "d": 86_400 * 10**9}


def parse_length(text: str) -> int:
    """The length of a period from `10m`, `1h`, `1d`, in ns. Raises: InputError."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text!r} is no length of a period", "give one such as 10m, 1h or 1d")
    return check_length(int(found[1]) * _UNITS_NS[found[2]])


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
