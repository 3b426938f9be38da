"""Makes the traces of a series from captures, period by period; what is known of connections goes from one to the next.

A series can be made again with more captures, or go on: periods that are noted are not made anew.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collector.analysis import AnalysisOptions, analyse
from collector.analysis.period import ConnectionsCarried
from collector.analysis.places import Places
from collector.capture_files.readers import open_capture
from collector.decode.captures import NoPacketsError
from collector.decode.host_capture import HostSource
from collector.decode.time_range import TimeRange, files_at_edges
from collector.execution.progress import SILENT, Progress
from collector.series.series import Entry, Period, Series, period_at
from collector.trace.model import HostInfo
from collector.trace.reading import Trace
from tracer.errors import InputError

BATCH_PACKETS = 131_072


@dataclass(slots=True)
class PeriodMaker:
    """Makes the traces of a series' periods, in the order of time. Use one for all periods of the same captures."""

    series: Series
    options: AnalysisOptions
    _carried: ConnectionsCarried = field(init=False)

    def __post_init__(self) -> None:
        self._carried = ConnectionsCarried(dict.fromkeys(self.series.servers()))

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
        self._carried.note(Trace(place))
        if not any(_captured_in(period, host) for host in info.hosts):
            shutil.rmtree(place)
            return None
        self.series.keep_servers(self._carried.servers)
        return self.series.add(period)


def _captured_in(period: Period, host: HostInfo) -> bool:
    """Whether a host's packets begin before the end of a period, and end in it or after."""
    return (
        host.first_host_ns is not None
        and host.last_host_ns is not None
        and host.first_host_ns < period.to_ns
        and period.from_ns <= host.last_host_ns
    )


def captured_span(sources: Sequence[HostSource]) -> TimeRange:
    """The first and the last stamp in the captures (ns). Of an agent's segments only some are read, of other files all.

    Raises: InputError for what is no capture, and for captures without a packet.
    """
    stamps = [stamp for source in sources for file in files_at_edges(source.files) for stamp in _stamps(file)]
    if not stamps:
        raise InputError("no TCP packet in the given captures", "capture with a filter that includes tcp")
    return min(stamps), max(stamps)


def periods_of(span: TimeRange, length_ns: int) -> Iterator[Period]:
    """The periods of this length that hold a part of `span`, by time."""
    period = period_at(span[0], length_ns)
    while period.from_ns <= span[1]:
        yield period
        period = period_at(period.to_ns, length_ns)


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
    known = {entry.period for entry in series.entries() if not entry.problem}
    for period in periods_of(captured_span(sources), series.length_ns):
        if period in known:
            continue
        with places(series.trace_place(period)) as where:
            done(period, maker.make(period, sources, where, progress))


def _stamps(file: Path) -> Iterator[int]:
    """The smallest and the largest stamp of each batch of a capture."""
    with open_capture(file) as reader:
        for batch in reader.batches(BATCH_PACKETS):
            if len(at := batch.events["host_ns"]):
                yield from (int(at.min()), int(at.max()))
