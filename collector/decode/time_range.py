"""A time of captures: which of their files and packets are read. Times are by each host's own clock, in ns.

Packets outside are counted (`outside_time`) and not decoded. Of a series of an agent's segments, those that lie outside
are not opened: which, is found from the first stamps of some of them.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from collector.capture_files.readers import open_capture
from collector.decode.host_capture import HostSource
from tracer.errors import InputError

EDGE_NS = 200_000_000
"""An unmatched packet so close to an edge of the time is `outside_window`: its other end may lie outside."""
SLACK_NS = 2_000_000_000
"""Longest time by which packets of a segment may be older than the first one of the next."""
LAST_NS = (1 << 62) - 1


_SEGMENT = re.compile(r"(.+)-\d{6,10}(?:\.pcapng|-\d{6,10}\.pcapng\.zst(?:#.*)?)")

TimeRange = tuple[int, int]
"""The first and the last time, both within."""


def parse_range(from_text: str | None, to_text: str | None) -> TimeRange | None:
    """The range of two times as of ISO 8601, in UTC unless they say otherwise; None without any.

    Raises: InputError.
    """
    if from_text is None and to_text is None:
        return None
    found = (0 if from_text is None else _time_ns(from_text), LAST_NS if to_text is None else _time_ns(to_text))
    if found[0] > found[1]:
        raise InputError(f"--from {from_text} is after --to {to_text}", "give other times")
    return found


def _time_ns(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r} is no time", "give one such as 2026-11-26T14:05:30 (UTC), or …+01:00") from None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000


def narrow_sources(sources: Sequence[HostSource], wanted: TimeRange) -> list[HostSource]:
    """The sources without the segments that lie outside of a time. Raises: InputError for what is no capture."""
    return [replace(source, files=tuple(_files_in(source.files, wanted))) for source in sources]


def first_stamp(files: Sequence[Path]) -> int | None:
    """The first stamp (ns) of the first of these files that has a packet; None if none has."""
    return next((at for at in map(_begin_ns, files) if at is not None), None)


def begin_after(files: Sequence[Path], at_ns: int) -> int | None:
    """The first stamp of the first file that begins after a time; None if none does. Files are in the order of time."""
    place = _first_after(files, at_ns)
    return first_stamp(files[place:])


def split_segments(files: Sequence[Path]) -> tuple[list[list[Path]], list[Path]]:
    """The series of an agent's segments among files, and the others."""
    runs = [(stem, list(run)) for stem, run in groupby(files, _stem)]
    return [run for stem, run in runs if stem], [file for stem, run in runs if not stem for file in run]


def _files_in(files: Sequence[Path], wanted: TimeRange) -> list[Path]:
    found: list[Path] = []
    for stem, run in groupby(files, _stem):
        series = list(run)
        if not stem:
            found += series
            continue
        first, last = (_first_after(series, at_ns) for at_ns in (wanted[0] - SLACK_NS, wanted[1] + SLACK_NS))
        found += series[max(0, first - 1) : max(1, last)]
    return found


def _stem(file: Path) -> str:
    """What an agent's segments, one after the other, have in common; empty for other files."""
    found = _SEGMENT.fullmatch(file.name)
    return found[1] if found else ""


def _begin_ns(file: Path) -> int | None:
    """The first stamp of a capture; None without a packet."""
    with open_capture(file) as reader:
        for batch in reader.batches(1):
            if len(batch.events["host_ns"]):
                return int(batch.events["host_ns"][0])
    return None


def _first_after(series: Sequence[Path], at_ns: int) -> int:
    """The place of the first file that begins after a time; their number if none does."""
    low, high = 0, len(series)
    while low < high:
        middle = (low + high) // 2
        place, begin_ns = middle, None
        while place < high and (begin_ns := _begin_ns(series[place])) is None:
            place += 1
        if begin_ns is None or begin_ns > at_ns:
            high = middle
        else:
            low = place + 1
    return low
