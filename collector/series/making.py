"""Makes the traces of a series from captures, period by period; what is known of connections goes from one to the next.

A series can be made again with more captures, or go on: periods that are noted are not made anew, but for the last
ones, whose captures may have ended in their midst.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from collector.analysis import AnalysisOptions, analyse
from collector.analysis.period import ConnectionsCarried
from collector.analysis.places import Places
from collector.capture_files.readers import open_capture
from collector.decode.captures import NoPacketsError
from collector.decode.host_capture import HostSource
from collector.decode.time_range import begin_after, first_stamp, split_segments
from collector.execution.progress import SILENT, Progress
from collector.series.series import DAY_NS, Entry, Period, Series, period_at
from collector.trace.model import HostInfo
from collector.trace.reading import Trace
from tracer.errors import InputError

BATCH_PACKETS = 131_072
LAST_SEGMENTS = 3
"""The very last segments of an agent may have no packet."""
MADE_ANEW = 2
"""So many of the last periods: captures that end in the minute after a period end in the next one, too."""


@dataclass(slots=True)
class PeriodMaker:
    """Makes the traces of a series' periods, in the order of time. Use one for all periods of the same captures; the
    first one's sources should have all that was captured before, too."""

    series: Series
    options: AnalysisOptions
    _carried: ConnectionsCarried = field(init=False)

    def __post_init__(self) -> None:
        self._carried = ConnectionsCarried(dict.fromkeys(self.series.servers()))

    @property
    def is_new(self) -> bool:
        """Whether it knows nothing yet of connections."""
        return self._carried.is_new

    def make(
        self,
        period: Period,
        sources: Sequence[HostSource],
        places: Places | None = None,
        progress: Progress = SILENT,
        options: AnalysisOptions | None = None,
    ) -> Entry | None:
        """Make the trace of a period and note it; None if no packet was captured then, or only in the margins.

        Arguments: `options` for this period, if not those of all. Raises: as `analyse`.
        """
        place = self.series.trace_place(period)
        chosen = self._carried.options(options or self.options, (period.from_ns, period.to_ns))
        try:
            info = analyse(sources, place, options=chosen, places=places, progress=progress)
        except NoPacketsError:
            return None
        if not any(_captured_in(period, host) for host in info.hosts):
            shutil.rmtree(place)
            self._carried.go_on()
            return None
        self._carried.note_servers(Trace(place))
        self.series.keep_servers(self._carried.servers)
        entry = self.series.add(period)
        self._carried.go_on()
        return entry


def _captured_in(period: Period, host: HostInfo) -> bool:
    """Whether a host's packets begin before the end of a period, and end in it or after."""
    return (
        host.first_host_ns is not None
        and host.last_host_ns is not None
        and host.first_host_ns < period.to_ns
        and period.from_ns <= host.last_host_ns
    )


def captured_periods(sources: Sequence[HostSource], length_ns: int) -> list[Period]:
    """The periods that may hold packets of the captures, by time. Of an agent's segments only some are opened to find
    them, all other files are read.

    Raises: InputError for what is no capture, and for captures without a packet.
    """
    begins: set[int] = set()
    for source in sources:
        segments, others = split_segments(source.files)
        for series in segments:
            begins.update(each.from_ns for each in _periods_of_segments(series, length_ns))
        for file in others:
            begins.update(_begins_in(file, length_ns))
    if not begins:
        raise InputError("no TCP packet in the given captures", "capture with a filter that includes tcp")
    return [Period(begin, begin + length_ns) for begin in sorted(begins)]


def period_after(period: Period, files: Iterable[Sequence[Path]], length_ns: int) -> Period:
    """The next period that may hold packets: days without a packet are passed over, since a host's clock may have been
    decades behind.

    Arguments: `files` of each host, in the order of time, each of less than a day.
    """
    following = period_at(period.to_ns, length_ns)
    begins = [at for at in (begin_after(each, following.from_ns) for each in files) if at is not None]
    return period_at(max(following.from_ns, min(begins, default=0) - DAY_NS), length_ns)


def _periods_of_segments(files: Sequence[Path], length_ns: int) -> Iterator[Period]:
    first = first_stamp(files)
    last = max((at for file in files[-LAST_SEGMENTS:] for at in _begins_in(file, length_ns)), default=first)
    if first is None or last is None:
        return
    period = period_at(first, length_ns)
    while period.from_ns <= last:
        yield period
        period = period_after(period, [files], length_ns)


def _begins_in(file: Path, length_ns: int) -> Iterator[int]:
    """The beginnings of the periods that hold packets of a file."""
    with open_capture(file) as reader:
        for batch in reader.batches(BATCH_PACKETS):
            yield from (np.unique(batch.events["host_ns"] // length_ns) * length_ns).tolist()


def make_series(
    series: Series,
    sources: Sequence[HostSource],
    options: AnalysisOptions,
    places: Callable[[str], Places],
    done: Callable[[Period, Entry | None], None],
    progress: Progress = SILENT,
) -> None:
    """Make the traces of all periods of the captures that a series does not have.

    Arguments: `places`, where a trace is made, by where it goes; `done`, called after each period that was looked at.
    Raises: as `analyse`.
    """
    series.remove_leftovers()
    maker = PeriodMaker(series, options)
    entries = [entry for entry in series.entries() if not entry.problem]
    known = {entry.period for entry in entries if not (entry.has_trace and entry in entries[-MADE_ANEW:])}
    for period in captured_periods(sources, series.length_ns):
        if period in known:
            continue
        with places(series.trace_place(period)) as where:
            done(period, maker.make(period, sources, where, progress))
