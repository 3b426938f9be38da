"""Periods: the sessions of a collector are analysed hour by hour as they come, each into a series of traces.

    DATA/series/<session>/    the series (`collector.series.series`)

1. A period is due once `MARGIN_NS` and `GRACE_NS` have passed after its end, by this clock, and no agent of the session
   has packets of that time that it has not delivered. An agent that is behind is waited for, but for `PATIENCE_NS` at
   most, and not if it has been silent for so long; then the trace is made of what is there, with a counter of whom it
   lacks (`PERIOD_LACKS`), and made anew, once, if that agent catches up within `LATE_NS`.
2. Periods of a session are made in the order of time, since what is known of connections goes from one to the next;
   after the collector was off it goes on with the oldest that it has not made. A period in which no packet was captured
   is passed over.
3. One trace is made at a time, on one core, so that segments are still received. A trace that cannot be made is tried
   again, `ATTEMPTS` times at growing intervals; then the series says why there is none, and the next ones go on. If it
   is the disk that refuses, it is tried until there is room.
4. Traces are removed by age and by size (`TraceLimits`), the oldest first; their summaries stay. Segments stay until
   the period that needs them was made, whatever their age.

Hosts' clocks, and this one's, may differ by less than `MARGIN_NS`. Windows (`collector.service.windows`) have no
series.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path

from msgspec import structs

from collector.analysis import AnalysisOptions
from collector.analysis.period import MARGIN_NS
from collector.capture_files.records import Severity
from collector.decode.host_capture import HostSource
from collector.decode.incarnations import host_sources, sequences, stored_incarnations
from collector.decode.time_range import first_stamp
from collector.execution import memory
from collector.series.making import PeriodMaker, period_after
from collector.series.series import Entry, Period, PeriodState, Series, is_series, period_at
from collector.service.agents import AgentStatus
from collector.service.background import Background
from collector.service.boundary import contain_failures, log_failure
from collector.service.ingest import WINDOW_FILE, session_folders
from collector.service.under_way import UnderWay
from collector.trace.data_directory import series_folder
from collector.trace.model import CounterInfo
from collector.trace.reading import Trace
from tracer.errors import InputError, ResourceError, TracerError

LOG = logging.getLogger("twintap.collector")
STEP_SECONDS = 5.0
GRACE_NS = 10 * 10**9
"""Segments of an agent that is not behind arrive within this time."""
PATIENCE_NS = 600 * 10**9
FIRST_RETRY_NS = 60 * 10**9
"""Until a trace that could not be made is tried again; doubled each time."""
ATTEMPTS = 4
LATE_NS = 3_600 * 10**9
"""For so long after a trace was made, what it lacks is waited for, and its segments are kept."""
SILENT_NS = 10 * 10**9
"""An agent reports every 2 s."""
PERIOD_LACKS = "period_lacks_packets"
"""The counter of a host whose packets were not there when the trace was made; its count is for how many seconds until
the period's end, or the minute after it."""
LACKS_REMEDY = "its agent was behind or silent; if it catches up within an hour, the trace is made anew"


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """Which traces of a session's periods are kept. None = no limit."""

    age_ns: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PeriodSettings:
    """How a collector makes periods; `length_ns` 0: it makes none."""

    length_ns: int = 0
    limits: TraceLimits = field(default_factory=TraceLimits)


NO_PERIODS = PeriodSettings()


class Attempt(StrEnum):
    """What came of making a trace."""

    DONE = "done"  # there is a trace, or the series says why there is none
    NOTHING = "nothing"  # no packet was captured then
    AGAIN = "again"  # it is to be tried again


@dataclass(frozen=True, slots=True)
class PeriodStatus:
    """One period of a session's series; times in ns."""

    name: str
    from_ns: int
    to_ns: int
    made_ns: int
    state: PeriodState
    problem: str


@dataclass(frozen=True, slots=True)
class SeriesStatus:
    """The series of a session, and how far it is."""

    series: str
    period_ns: int
    periods: tuple[PeriodStatus, ...]
    next_from_ns: int | None  # the period that comes next; None if nothing was received yet
    behind_seconds: float  # for so long the next one has been due
    waits_for: tuple[str, ...]  # hosts whose agents have not delivered what it needs
    problem: str  # why its trace could not be made so far


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """The series of a session in short."""

    session: str
    traces_count: int
    summaries_count: int  # of periods whose traces were removed
    failed_count: int
    newest_from_ns: int | None
    next_from_ns: int | None
    behind_seconds: float
    waits_for: tuple[str, ...]
    problem: str


@dataclass(slots=True)
class _Lacking:
    """What is known of a trace that lacks packets of hosts."""

    hosts: frozenset[str]
    until_ns: int  # then nobody waits for them any more
    retry_ns: int = 0  # it cannot be made anew before


@dataclass(slots=True)
class _Session:
    """What is known of a session between two steps."""

    maker: PeriodMaker
    next: Period | None = None
    is_idle: bool = False  # nothing came since the last period
    attempts: int = 0
    retry_ns: int = 0
    problem: str = ""
    waits_for: tuple[str, ...] = ()
    lacking: dict[Period, _Lacking] = field(default_factory=dict)

    def behind_seconds(self, now_ns: int) -> float:
        """For how long its next period has been due; 0 while nothing comes."""
        return 0.0 if self.next is None or self.is_idle else max(0, now_ns - _due_ns(self.next)) / 1e9


class Periods:
    """The series of a collector's sessions; safe to call from several threads.

    Arguments: `under_way`, of sessions that are being analysed; `may_work`, whether this collector is to do it.
    """

    def __init__(
        self,
        data: Path,
        settings: PeriodSettings,
        options: AnalysisOptions,
        agents: Callable[[], Sequence[AgentStatus]],
        under_way: UnderWay,
        clock: Callable[[], int] = time.time_ns,
        may_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._data, self._settings, self._agents, self._clock = data, settings, agents, clock
        self._options = structs.replace(options, workers=1)
        self._under_way, self._may_work = under_way, may_work
        self._lock = threading.RLock()
        self._sessions: dict[str, _Session] = {}
        self._background = Background("periods", STEP_SECONDS, self.step)

    def start(self) -> None:
        """Begin to work, if there is a length."""
        if self._settings.length_ns:
            self._background.start()

    def stop(self) -> None:
        """End after the trace that is being made."""
        self._background.stop()

    def step(self) -> None:
        """Make at most one trace of each session, and remove those that are too old or too many."""
        if not self._settings.length_ns or not self._may_work():
            with self._lock:
                self._sessions.clear()  # another collector goes on, from what the series says
            return
        for folder in session_folders(self._data / "sessions"):
            if self._background.is_stopped:
                return
            if not (folder / WINDOW_FILE).exists():
                self._step_of(folder.name)

    def status(self, session: str) -> SeriesStatus:
        """The series of a session. Raises: InputError for what is no name, or a series that cannot be read."""
        place = series_folder(self._data, session)
        entries = Series(place).entries() if is_series(place) else ()
        with self._lock:
            known = self._sessions.get(session)
            coming = known.next if known else None
            return SeriesStatus(
                series=str(place),
                period_ns=self._settings.length_ns,
                periods=tuple(map(_status_of, entries)),
                next_from_ns=coming.from_ns if coming else None,
                behind_seconds=known.behind_seconds(self._clock()) if known else 0.0,
                waits_for=known.waits_for if known else (),
                problem=known.problem if known else "",
            )

    def summaries(self) -> list[SeriesSummary]:
        """The series of all sessions in short; of one that cannot be read why."""
        return [self._summary(folder.name) for folder in session_folders(self._data / "series")]

    def _summary(self, session: str) -> SeriesSummary:
        try:
            return _summary_of(session, self.status(session))
        except InputError as error:
            return SeriesSummary(session, 0, 0, 0, None, None, 0.0, (), str(error))

    def forget(self, session: str) -> None:
        """A session was deleted."""
        with self._lock:
            self._sessions.pop(session, None)

    def needed_from_ns(self, session: str) -> int | None:
        """Segments of a session that arrived from then on are needed for a trace that was not made; None if it is not
        known which."""
        if not self._settings.length_ns:
            return None
        with self._lock:
            known = self._sessions.get(session)
        if known is None or known.next is None:
            return 0
        return min(period.from_ns for period in (known.next, *tuple(known.lacking))) - 2 * MARGIN_NS

    def _step_of(self, name: str) -> None:
        try:
            session = self._session_of(name)
            if session is None:
                return
            self._make_next(name, session)
            self._make_lacking(name, session)
            self._remove_traces(session.maker.series)
        except TracerError as error:  # a full disk, for example
            self._note_problem(name, error)

    def _session_of(self, name: str) -> _Session | None:
        """What is known of a session, with its next period; None if nothing was received of it."""
        with self._lock:
            known = self._sessions.get(name)
        if known is None:
            series = Series.make(series_folder(self._data, name), self._settings.length_ns, self._clock)
            series.remove_leftovers()
            known = _Session(PeriodMaker(series, self._options), lacking=self._lacking_of(series))
            with self._lock:
                self._sessions[name] = known
        if known.next is None:
            entries = known.maker.series.entries()
            if entries:
                known.next = period_at(entries[-1].to_ns, self._settings.length_ns)
            else:
                known.next = self._first_period(name)
        return known if known.next is not None else None

    def _lacking_of(self, series: Series) -> dict[Period, _Lacking]:
        """The traces of a series that lack packets, as they say, and may still be made anew."""
        found = {}
        for entry in series.entries():
            if entry.has_trace and entry.made_ns + LATE_NS > self._clock():
                try:
                    counters = Trace(series.trace_place(entry.period)).info().counters
                except InputError:  # it is damaged: others are made nevertheless
                    continue
                hosts = frozenset(each.host for each in counters if each.name == PERIOD_LACKS and each.host)
                if hosts:
                    found[entry.period] = _Lacking(hosts, entry.made_ns + LATE_NS)
        return found

    def _first_period(self, name: str) -> Period | None:
        """The period of the first packet that was received of a session."""
        stamps = [
            stamp
            for source in _sources_from(self._data / "sessions" / name, 0)
            for stamp in [first_stamp(source.files)]
            if stamp is not None
        ]
        return period_at(min(stamps), self._settings.length_ns) if stamps else None

    def _make_next(self, name: str, session: _Session) -> None:
        """Make the trace of the next period, if it is due; those without a packet are passed over."""
        while session.next is not None and not self._background.is_stopped:
            period, now_ns = session.next, self._clock()
            if now_ns < _due_ns(period) or now_ns < session.retry_ns:
                return
            sources = self._sources(name, period, session.maker)
            session.is_idle = not sources
            if session.is_idle:
                return
            behind = self._behind(name, period)
            session.waits_for = tuple(sorted(host for host, each in behind.items() if each.last_seen_ns < PATIENCE_NS))
            if session.waits_for and now_ns < _due_ns(period) + PATIENCE_NS:
                return
            lacks = {host: _lacks_seconds(each, now_ns, period) for host, each in behind.items()}
            made = self._make(name, session, period, sources, lacks)
            if made is Attempt.AGAIN:
                return
            if lacks:
                session.lacking[period] = _Lacking(frozenset(lacks), now_ns + LATE_NS)
            if made is Attempt.DONE:
                session.next = period_at(period.to_ns, self._settings.length_ns)
                return
            session.next = period_after(period, (each.files for each in sources), self._settings.length_ns)

    def _make_lacking(self, name: str, session: _Session) -> None:
        """Make a trace anew whose hosts have delivered meanwhile what it lacked; forget those that are too old."""
        now_ns, series = self._clock(), session.maker.series
        removed = {entry.period for entry in series.entries() if not entry.has_trace}
        for period, lacking in list(session.lacking.items()):
            if now_ns >= lacking.until_ns or period in removed:
                del session.lacking[period]
            elif now_ns >= lacking.retry_ns and not lacking.hosts & self._behind(name, period).keys():
                again = _Session(PeriodMaker(series, self._options))
                if self._make(name, again, period, self._sources(name, period, again.maker), {}) is Attempt.AGAIN:
                    lacking.retry_ns = now_ns + FIRST_RETRY_NS
                    continue
                del session.lacking[period]
                LOG.info("period %s was made anew", period.name, extra={"session": name})
                return

    def _sources(self, name: str, period: Period, maker: PeriodMaker) -> list[HostSource]:
        """What may have packets of a period or a later one; for a new maker, with all that these hosts sent before."""
        folder = self._data / "sessions" / name
        found = _sources_from(folder, max(0, period.from_ns - 2 * MARGIN_NS))
        if not maker.is_new:
            return found
        files = {file for source in found for file in source.files}
        return [source for source in _sources_from(folder, 0) if not files.isdisjoint(source.files)]

    def _behind(self, name: str, period: Period) -> dict[str, AgentStatus]:
        """By host, agents that may have packets of a period that they have not delivered."""
        now_ns, needed_ns = self._clock(), period.to_ns + MARGIN_NS
        return {
            agent.host: agent
            for agent in self._agents()
            if agent.session == name and agent.history is None and _may_owe(agent, now_ns, needed_ns)
        }

    def _make(
        self, name: str, session: _Session, period: Period, sources: Sequence[HostSource], lacks: Mapping[str, int]
    ) -> Attempt:
        """Make the trace of a period. Arguments: `lacks`, by host for how many seconds its packets are not there."""
        if not self._under_way.begin(name):
            return Attempt.AGAIN
        counters = tuple(
            CounterInfo(host, PERIOD_LACKS, Severity.DATA_LOSS, seconds, LACKS_REMEDY)
            for host, seconds in sorted(lacks.items())
        )
        options = structs.replace(self._options, counters=counters)
        started, found = time.monotonic(), Attempt.DONE
        try:
            made = contain_failures(name, partial(session.maker.make, period, sources, options=options))
        except TracerError as error:
            session.attempts += 1
            if session.attempts < ATTEMPTS or isinstance(error, ResourceError):
                session.retry_ns = self._clock() + (FIRST_RETRY_NS << min(session.attempts, ATTEMPTS) - 1)
                self._note_problem(name, error)
                return Attempt.AGAIN
            session.maker.series.add(period, problem=str(error))
            log_failure(error, name, session.attempts)
        else:
            found = Attempt.NOTHING if made is None else Attempt.DONE
            if made is not None:
                seconds = time.monotonic() - started
                LOG.info("period %s is ready (%.1f s)", period.name, seconds, extra={"session": name})
        finally:
            self._under_way.end(name)
            memory.give_back()
        session.attempts, session.retry_ns, session.problem = 0, 0, ""
        return found

    def _remove_traces(self, series: Series) -> None:
        limits = self._settings.limits
        if limits == TraceLimits():
            return
        there = [entry for entry in series.entries() if entry.has_trace]
        sizes = [_folder_bytes(Path(series.trace_place(entry.period))) for entry in there]
        for entry in beyond_limits(there, sizes, limits, self._clock()):
            series.remove_trace(entry.period)
            LOG.info("the trace of period %s was removed, its summary stays", entry.period.name)

    def _note_problem(self, name: str, error: TracerError) -> None:
        with self._lock:
            known = self._sessions.get(name)
        if known is None or known.problem != str(error):
            log_failure(error, name)
        if known is not None:
            known.problem = str(error)


def _sources_from(folder: Path, from_ns: int) -> list[HostSource]:
    """What was received of a session from a time on."""
    return host_sources(sequences(stored_incarnations(folder, from_ns=from_ns)))


def beyond_limits(entries: Sequence[Entry], sizes: Sequence[int], limits: TraceLimits, now_ns: int) -> list[Entry]:
    """Those of periods (by time) whose traces are too old, or too much; the newest one never is.

    Arguments: `sizes` of their traces in bytes.
    """
    found: list[Entry] = []
    total = 0
    for number, (entry, size) in enumerate(zip(reversed(entries), reversed(sizes), strict=True)):
        total += size
        too_old = limits.age_ns is not None and now_ns - entry.to_ns > limits.age_ns
        too_much = limits.size_bytes is not None and total > limits.size_bytes
        if number and (too_old or too_much):
            found.append(entry)
    return found[::-1]


def _due_ns(period: Period) -> int:
    return period.to_ns + MARGIN_NS + GRACE_NS


def _may_owe(agent: AgentStatus, now_ns: int, needed_ns: int) -> bool:
    """Whether an agent may have segments that it has not delivered, with packets from before a time."""
    if agent.state == "ended":
        return False
    return agent.last_seen_ns > SILENT_NS or now_ns - agent.lag_ns < needed_ns


def _lacks_seconds(agent: AgentStatus, now_ns: int, period: Period) -> int:
    """For how many seconds until the end of a period, and the minute after it, an agent's packets are not there."""
    since_ns = max(period.from_ns - MARGIN_NS, now_ns - max(agent.lag_ns, agent.last_seen_ns))
    return max(1, -(-(period.to_ns + MARGIN_NS - since_ns) // 10**9))


def _status_of(entry: Entry) -> PeriodStatus:
    return PeriodStatus(entry.period.name, entry.from_ns, entry.to_ns, entry.made_ns, entry.state, entry.problem)


def _summary_of(session: str, status: SeriesStatus) -> SeriesSummary:
    count = Counter(period.state for period in status.periods)
    return SeriesSummary(
        session=session,
        traces_count=count[PeriodState.TRACE],
        summaries_count=count[PeriodState.SUMMARY],
        failed_count=count[PeriodState.FAILED],
        newest_from_ns=status.periods[-1].from_ns if status.periods else None,
        next_from_ns=status.next_from_ns,
        behind_seconds=status.behind_seconds,
        waits_for=status.waits_for,
        problem=status.problem,
    )


def _folder_bytes(folder: Path) -> int:
    return sum(_file_bytes(each) for each in folder.iterdir()) if folder.is_dir() else 0


def _file_bytes(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.stat().st_size
    return 0


def limits_of_traces(keep_hours: float | None, keep_gib: float | None) -> TraceLimits:
    """The limits that the options of `tracer collect` give."""
    return TraceLimits(
        None if keep_hours is None else round(keep_hours * 3_600 * 10**9),
        None if keep_gib is None else round(keep_gib * (1 << 30)),
    )
