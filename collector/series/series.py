"""A series: the traces of successive periods of one length, in a folder, each with a summary that outlives it.

    SERIES/series.json                    the length, and of each period what became of it
    SERIES/20261127T190000Z/              the trace of a period, by its beginning (UTC)
    SERIES/summaries/20261127T190000Z/    its summary (`collector.series.summaries`)
    SERIES/servers.json                   servers that answered a handshake so far, for the periods to come

One process writes a series; any number may read it meanwhile. What is written appears when it is whole: first the
trace, then its summary, then its entry in `series.json`. A writer that was killed leaves at most a trace or a summary
without an entry, which are made anew. A trace is removed in the other order.
"""

import errno
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from collector.series.summaries import write_summary
from collector.trace.reading import Trace
from tracer.errors import DiskFullError, InputError, ResourceError
from tracer.private_files import sync_folder, write_durably
from tracer.scratch import remove_leftovers

SERIES_FILE = "series.json"
SERVERS_FILE = "servers.json"
SUMMARIES = "summaries"
FORMAT_VERSION = 1
DAY_NS = 86_400 * 10**9
LEAST_NS = 60 * 10**9
"""A period has a minute at least: summaries are by the minute."""
MAKE_AGAIN = "give another folder, or remove this one: what it holds cannot be read"


class Period(Struct, frozen=True):
    """A stretch of time [from, to), ns since the epoch, by the clock of each host."""

    from_ns: int
    to_ns: int

    @property
    def name(self) -> str:
        """Its beginning, as the name of a folder."""
        return f"{datetime.fromtimestamp(self.from_ns // 10**9, UTC):%Y%m%dT%H%M%SZ}"


def period_at(at_ns: int, length_ns: int) -> Period:
    """The period of this length that holds a time; periods begin at multiples of it since the epoch."""
    from_ns = at_ns // length_ns * length_ns
    return Period(from_ns, from_ns + length_ns)


def check_length(length_ns: int) -> int:
    """`length_ns`. Raises: InputError unless it is whole minutes, and a day is a multiple of it."""
    if length_ns < LEAST_NS or length_ns % LEAST_NS or DAY_NS % length_ns:
        raise InputError(
            f"a period of {length_ns / 1e9:g} s does not divide a day into whole minutes", "give 10m, 1h or 1d"
        )
    return length_ns


class PeriodState(StrEnum):
    """What there is of a period."""

    TRACE = "trace"
    SUMMARY = "summary"  # its trace was removed
    FAILED = "failed"
    NOTHING = "nothing"  # no packets


class Entry(Struct, frozen=True):
    """What became of a period."""

    from_ns: int
    to_ns: int
    made_ns: int  # when its trace was made, by the clock of whoever made it
    removed_ns: int | None = None  # when its trace was removed; its summary is there
    problem: str = ""  # why it has no trace

    @property
    def period(self) -> Period:
        """The period."""
        return Period(self.from_ns, self.to_ns)

    @property
    def state(self) -> PeriodState:
        """What there is of it."""
        if self.problem:
            return PeriodState.FAILED
        return PeriodState.TRACE if self.removed_ns is None else PeriodState.SUMMARY

    @property
    def has_trace(self) -> bool:
        """Whether its trace is there."""
        return self.state is PeriodState.TRACE


class Series:
    """The series in a folder. Its methods raise: InputError for what is none, ResourceError if it cannot be written."""

    def __init__(self, place: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self.place, self._clock = place, clock

    @classmethod
    def make(cls, place: Path, length_ns: int, clock: Callable[[], int] = time.time_ns) -> "Series":
        """The series in this folder, which is made if it is not there.

        Raises: InputError if its periods have another length, or the folder holds something else.
        """
        found = cls(place, clock)
        if is_series(place):
            known_ns = found.length_ns
            if known_ns != length_ns:
                raise InputError(
                    f"{place}: its periods have {known_ns // 10**9:,} s, not {length_ns // 10**9:,}",
                    "give another folder",
                )
            return found
        check_length(length_ns)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise InputError(f"{place} is there, and no series", "give a folder that is not there")
        with _write_errors(place):
            place.mkdir(parents=True, exist_ok=True)
            (place / SUMMARIES).mkdir(exist_ok=True)
        found._store(length_ns, ())
        return found

    @property
    def length_ns(self) -> int:
        """The length of its periods."""
        return self._read()[0]

    def entries(self) -> tuple[Entry, ...]:
        """Its periods, by time. A trace that somebody removed counts as removed when it was made."""
        return tuple(
            replace(entry, removed_ns=entry.made_ns)
            if entry.has_trace and not (self.place / entry.period.name).is_dir()
            else entry
            for entry in self._read()[1]
        )

    def trace_place(self, period: Period) -> str:
        """Where the trace of a period is, or goes."""
        return str(self.place / period.name)

    def summary_place(self, period: Period) -> Path:
        """Where the summary of a period is."""
        return self.place / SUMMARIES / period.name

    def add(self, period: Period, problem: str = "") -> Entry:
        """Summarise the trace of a period, which is there, and note it; or note why there is none. Again is allowed."""
        if not problem:
            with _write_errors(self.place):
                write_summary(Trace(self.trace_place(period)), period.from_ns, period.to_ns, self.summary_place(period))
        entry = Entry(period.from_ns, period.to_ns, self._clock(), problem=problem)
        self._put(entry)
        return entry

    def remove_trace(self, period: Period) -> None:
        """Remove the trace of a period; its summary stays."""
        of_period = next((each for each in self.entries() if each.period == period), None)
        if of_period is None or not of_period.has_trace:
            return
        self._put(Entry(period.from_ns, period.to_ns, of_period.made_ns, removed_ns=self._clock()))
        shutil.rmtree(self.trace_place(period), ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Remove what a writer that was killed left: traces that were to be removed, or were not complete."""
        remove_leftovers(self.place, self.place / SUMMARIES)
        for entry in self.entries():
            if entry.removed_ns is not None:
                shutil.rmtree(self.trace_place(entry.period), ignore_errors=True)

    def servers(self) -> list[tuple[str, int]]:
        """Addresses and ports that answered a handshake in the periods so far; none if that cannot be read."""
        try:
            return [(str(address), int(port)) for address, port in json.loads((self.place / SERVERS_FILE).read_bytes())]
        except (OSError, ValueError, TypeError):
            return []

    def keep_servers(self, servers: Iterable[tuple[str, int]]) -> None:
        """Note these addresses and ports for the periods to come, in place of those before."""
        with _write_errors(self.place):
            write_durably(self.place / SERVERS_FILE, json.dumps(list(servers)))

    def _put(self, entry: Entry) -> None:
        length_ns, entries = self._read()
        others = [each for each in entries if each.from_ns != entry.from_ns]
        self._store(length_ns, sorted((*others, entry), key=lambda each: each.from_ns))

    def _read(self) -> tuple[int, tuple[Entry, ...]]:
        file = self.place / SERIES_FILE
        try:
            document: dict[str, Any] = json.loads(file.read_bytes())
            if document["format_version"] != FORMAT_VERSION:
                raise InputError(f"{file} was written by another version", "read it with that version")
            return check_length(int(document["period_ns"])), tuple(Entry(**each) for each in document["periods"])
        except FileNotFoundError:
            raise InputError(f"{self.place} is no series", "give the folder that --every or --period made") from None
        except OSError as error:
            raise InputError(
                f"{file} cannot be read ({error.strerror})", "give a series that this user may read"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{file} is damaged", MAKE_AGAIN) from None

    def _store(self, length_ns: int, entries: Iterable[Entry]) -> None:
        document = {
            "format_version": FORMAT_VERSION,
            "period_ns": length_ns,
            "periods": list(map(to_builtins, entries)),
        }
        with _write_errors(self.place):
            write_durably(self.place / SERIES_FILE, json.dumps(document))
            sync_folder(self.place)


def is_series(place: Path) -> bool:
    """Whether a folder holds a series."""
    return (place / SERIES_FILE).is_file()


@contextmanager
def _write_errors(place: Path) -> Iterator[None]:
    """Within it, a disk that refuses is a ResourceError, in one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"no room for the series at {place}", "free some space there") from None
        raise ResourceError(f"{place} cannot be written ({error.strerror})", "give another folder") from None
