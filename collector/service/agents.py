"""The agents that report to a collector: how each of them is, and what is wrong with it.

An agent reports every few seconds (`tracer.reports`), whether or not its segments are taken. The last report of each is
kept beside its segments, so that a collector that was restarted still knows which agents it should hear from, and
others that share the data directory know it, too.

The answer to a report says when it was received. The next one says by how much the agent's clock is ahead of the
collector's, at least and at most: it was sent before that time and answered after it.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from collector.capture_files.records import Severity
from collector.findings.captures import AGENT_SILENT
from collector.service.ingest import (
    CHOSEN_FILE,
    incarnation_status,
    session_folders,
)
from collector.service.shared_data import Version, file_version
from collector.trace.data_directory import host_folders, incarnation_folder, incarnation_folders
from collector.trace.durations import in_words
from collector.trace.model import CounterInfo
from tracer.private_files import write_durably
from tracer.segments import INCARNATION_PATTERN

LOG = logging.getLogger("twintap.collector")
REPORT_FILE = "report.json"
SILENT_NS = 30_000_000_000
"""Without a report for so long, an agent is silent: it reports every 5 s."""
LAG_NS = 5_000_000_000
"""Age of a segment that waits, from which an agent lags: each is sent half a second after its first packet."""
SPOOL_SHARE = 0.5
"""Share of its limit from which a spool is reported."""
CLOCK_NS = 1_000_000_000
"""Difference of clocks from which it is reported; traces align clocks whatever they are."""
TLS_FAILED_NS = 600_000_000_000
"""For so long after the last one, an agent's attempts that TLS ended are a problem: it may be back only for now."""
OTHERS_NS = 2_000_000_000
"""Between two looks at what other collectors have received."""
FORGOTTEN_NS = 24 * 3_600 * 1_000_000_000
"""After so long, an agent that has ended is not listed."""
_TEXT = Field(max_length=4096)
_TEXT_OR_NOTHING = Field(default="", max_length=4096)
Incarnation = Annotated[str, Field(pattern=f"^{INCARNATION_PATTERN.pattern}$")]


class HistorySpan(BaseModel, frozen=True):
    """As `tracer.history.HistorySpan`, by the agent's clock."""

    from_ns: int
    to_ns: int
    segments_count: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    limit_bytes: int = Field(ge=0)


class WindowAnswer(BaseModel, frozen=True):
    """As `tracer.recorder.WindowAnswer`, by the collector's clock."""

    window: str = _TEXT
    complete: bool
    has_from_ns: int
    segments_count: int = Field(ge=0)
    bytes_count: int = Field(ge=0)
    incarnations: tuple[Incarnation, ...] = Field(max_length=1000)


class Report(BaseModel, frozen=True):
    """As `tracer.reports.Report`, as received."""

    version: str = _TEXT
    interfaces: tuple[str, ...] = Field(max_length=1000)
    payload: str = _TEXT
    expression: str = _TEXT
    started_ns: int = Field(ge=0)
    sent_ns: int = Field(ge=0)
    clock_ahead_ns: tuple[int, int] | None = None
    packets_count: int = Field(ge=0)
    dropped_count: int = Field(ge=0)
    sent_count: int = Field(ge=0)
    lost_count: int = Field(ge=0)
    waiting_count: int = Field(ge=0)
    waiting_bytes: int = Field(ge=0)
    waiting_ns: int
    spool_limit_bytes: int = Field(ge=0)
    cpu_ns: int = Field(ge=0)
    memory_bytes: int = Field(ge=0)
    problem: str = _TEXT
    tls_failures_count: int = Field(default=0, ge=0)
    tls_failed_ns: int = Field(default=0, ge=0)
    tls_failure: str = _TEXT_OR_NOTHING
    recording: bool = True
    refused: str = _TEXT_OR_NOTHING
    history: HistorySpan | None = None
    windows: tuple[WindowAnswer, ...] = Field(default=(), max_length=100)
    cpu_percent: float = Field(default=0, ge=0, le=1e6)
    one_in: int = Field(default=1, ge=1, le=1 << 20)
    head_bytes: int | None = Field(default=None, ge=0)
    left_out_count: int = Field(default=0, ge=0)
    away: str = _TEXT_OR_NOTHING
    switches_count: int = Field(default=0, ge=0)
    ended: bool = False


class Received(BaseModel, frozen=True):
    """A report, and when it came by the collector's clock. `before`: the last one but one."""

    report: Report
    received_ns: int
    before: Report | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an agent, and what to do."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent, as the collector sees it now. Rates are of the time between its last two reports."""

    session: str
    host: str
    incarnation: str
    state: str  # capturing, stopped (by orders), silent, ended
    last_seen_ns: int  # how long ago its last report came
    version: str
    interfaces: tuple[str, ...]
    payload: str
    expression: str
    started_ns: int  # by its own clock
    packets_count: int
    packets_per_s: float | None  # None: one report only
    dropped_count: int
    sent_count: int
    lost_count: int
    lag_ns: int  # age of the oldest segment that it has not delivered
    spool_bytes: int
    spool_limit_bytes: int
    cpu_share: float | None  # of one core
    memory_bytes: int
    clock_ahead_ns: tuple[int, int] | None  # of the collector's, at least and at most; None: not known yet
    problems: tuple[Problem, ...]
    tls_failures_count: int = 0  # its attempts to reach this collector that TLS ended
    history: HistorySpan | None = None  # of a flight recorder, by its own clock
    cpu_budget_share: float | None = None  # of one core, that it may use; None: no limit
    one_in: int = 1  # one of so many connections is kept now
    head_bytes: int | None = None  # of a payload that are kept now; None: what `payload` says
    left_out_count: int = 0  # packets of connections that it did not keep
    away: bool = False  # another collector should take its segments, and does not
    switches_count: int = 0  # how often its segments went on to another collector


Key = tuple[str, str, str]
"""Session, host, incarnation."""


class Agents:
    """The last report of every agent; safe to call from several threads."""

    def __init__(self, data: Path, version: str, clock: Callable[[], int], *, is_shared: bool = False) -> None:
        """`is_shared`: other collectors keep reports there, too."""
        self._data, self._version, self._clock, self._is_shared = data, version, clock, is_shared
        self._lock = threading.Lock()
        self._received: dict[Key, Received] = {}
        self._versions: dict[Key, Version] = {}  # of the reports that were read or written
        self._looked_ns = 0
        self._read_stored()

    def note(self, session: str, host: str, incarnation: str, report: Report) -> int:
        """Note a report that comes now; returns the time. Raises: InputError for what is no name."""
        now_ns = self._clock()
        folder = incarnation_folder(self._data, session, host, incarnation)
        self._look_at_others()
        with self._lock:
            known = self._received.get((session, host, incarnation))
            received = Received(report=report, received_ns=now_ns, before=known.report if known else None)
            self._received[session, host, incarnation] = received
        if known is None or (report.ended and not known.report.ended):
            fields = {"session": session, "host": host, "incarnation": incarnation}
            event = "has ended in" if report.ended else "reports to"
            LOG.info("the agent of host %s %s session %s", host, event, session, extra=fields)
        with contextlib.suppress(OSError):  # a disk that is full is the segments' trouble, and is said there
            folder.mkdir(parents=True, exist_ok=True)
            if report.history is not None:
                (folder / CHOSEN_FILE).touch()
            write_durably(folder / REPORT_FILE, received.model_dump_json())
            if self._is_shared and (version := file_version(folder / REPORT_FILE)):
                with self._lock:
                    self._versions[session, host, incarnation] = version
        return now_ns

    def status(self) -> list[AgentStatus]:
        """Every agent by session and host; of each host the newest incarnation, and others that have not ended."""
        self._look_at_others()
        now_ns = self._clock()
        with self._lock:
            received = sorted(self._received.items())
        newest = {(session, host): incarnation for (session, host, incarnation), _ in received}
        found = []
        for key, each in received:
            is_newest = newest[key[:2]] == key[2]
            is_done = each.report.ended or (not is_newest and self._is_closed(key))
            if is_done and (not is_newest or now_ns - each.received_ns >= FORGOTTEN_NS):
                self._forget(key)
            else:
                found.append(agent_status(key, each, now_ns, self._version))
        return found

    def window_answer(self, session: str, host: str, window: str) -> WindowAnswer | None:
        """What the newest agent of a host that knows of a window has of it."""
        self._look_at_others()
        with self._lock:
            received = [each.report for key, each in sorted(self._received.items()) if key[:2] == (session, host)]
        found = [answer for report in received for answer in report.windows if answer.window == window]
        return found[-1] if found else None

    def _look_at_others(self) -> None:
        """Read what other collectors have received, if some time has passed since the last look."""
        if not self._is_shared:
            return
        with self._lock:
            now_ns = self._clock()
            if abs(now_ns - self._looked_ns) < OTHERS_NS:
                return
            self._looked_ns = now_ns
        self._read_stored()

    def _read_stored(self) -> None:
        """Read the reports that are newer in the data directory than here."""
        for key, file in _report_files(self._data):
            version = file_version(file)
            if version is None or self._versions.get(key) == version:
                continue
            with contextlib.suppress(OSError, ValidationError):
                received = Received.model_validate_json(file.read_bytes())
                with self._lock:
                    self._received[key], self._versions[key] = received, version

    def _forget(self, key: Key) -> None:
        """Keep no report of an agent of which no more is expected."""
        with self._lock:
            self._received.pop(key, None)

    def silent_counters(self, session: str) -> tuple[CounterInfo, ...]:
        """A counter for each host of a session whose agent is silent, with the seconds since it was last heard of."""
        remedy = (
            "it did not end, and its packets since then are missing here: look whether tracer capture runs there and "
            "reaches the collector; it sends what it has kept"
        )
        return tuple(
            CounterInfo(each.host, AGENT_SILENT, Severity.DATA_LOSS, each.last_seen_ns // 10**9, remedy)
            for each in self.status()
            if each.session == session and each.state == "silent"
        )

    def _is_closed(self, key: Key) -> bool:
        """Whether all that an agent sent is here, since a later agent of its host delivered the rest."""
        folder = incarnation_folder(self._data, *key)
        return folder.is_dir() and incarnation_status(folder).closed


def agent_status(key: Key, received: Received, now_ns: int, version: str) -> AgentStatus:
    """How an agent is. Arguments: `version`, the collector's own."""
    report, before = received.report, received.before
    last_seen_ns = max(0, now_ns - received.received_ns)
    status = AgentStatus(
        session=key[0],
        host=key[1],
        incarnation=key[2],
        state=_state(report, last_seen_ns),
        last_seen_ns=last_seen_ns,
        version=report.version,
        interfaces=report.interfaces,
        payload=report.payload,
        expression=report.expression,
        started_ns=report.started_ns,
        packets_count=report.packets_count,
        packets_per_s=_rate(before, report, lambda each: each.packets_count * 1e9),
        dropped_count=report.dropped_count,
        sent_count=report.sent_count,
        lost_count=report.lost_count,
        lag_ns=max(0, report.waiting_ns),
        spool_bytes=report.waiting_bytes,
        spool_limit_bytes=report.spool_limit_bytes,
        cpu_share=_rate(before, report, lambda each: each.cpu_ns),
        memory_bytes=report.memory_bytes,
        clock_ahead_ns=report.clock_ahead_ns,
        problems=(),
        tls_failures_count=report.tls_failures_count,
        history=report.history,
        cpu_budget_share=report.cpu_percent / 100 or None,
        one_in=report.one_in,
        head_bytes=report.head_bytes,
        left_out_count=report.left_out_count,
        away=bool(report.away),
        switches_count=report.switches_count,
    )
    return replace(status, problems=tuple(_problems(status, received, version)))


def _state(report: Report, last_seen_ns: int) -> str:
    if report.ended:
        return "ended"
    if last_seen_ns > SILENT_NS:
        return "silent"
    return "capturing" if report.recording else "stopped"


def _rate(before: Report | None, report: Report, count: Callable[[Report], float]) -> float | None:
    """By how much a count grew in each ns between two reports; None with one, or where the clock was set back."""
    between_ns = report.sent_ns - before.sent_ns if before else 0
    return (count(report) - count(before)) / between_ns if before and between_ns > 0 else None


def _problems(status: AgentStatus, received: Received, version: str) -> Iterator[Problem]:
    report = received.report
    if status.state == "silent":
        yield Problem(
            f"silent for {_seconds(status.last_seen_ns)}",
            f"look on {status.host}: does tracer capture run there, does the network reach this collector",
        )
    elif report.problem:
        yield Problem("segments are not delivered", report.problem)
    elif status.lag_ns > LAG_NS:
        yield Problem(
            f"{_seconds(status.lag_ns)} behind",
            f"{report.waiting_count:,} segments wait: the network or the disk of this collector is slower than the "
            "traffic; capture less (a FILTER, --payload none)",
        )
    tls_failed_ns = report.sent_ns - report.tls_failed_ns
    if report.tls_failures_count and tls_failed_ns < TLS_FAILED_NS:
        yield Problem(
            f"TLS ended {report.tls_failures_count:,} of its attempts to reach this collector, "
            f"the last {_seconds(max(0, tls_failed_ns))} before its last report",
            report.tls_failure,
        )
    if report.away and not report.ended:
        remedy = f"{report.away}; when it does, they go there again"
        yield Problem("delivers here, since the collector of its choice takes nothing", remedy)
    if report.refused:
        yield Problem("the orders of this page are not followed", report.refused)
    if report.dropped_count > (received.before.dropped_count if received.before else 0):
        yield Problem(f"{report.dropped_count:,} packets dropped, some just now", "raise --ring-mib, or capture less")
    yield from _budget_problems(report)
    if report.waiting_bytes > SPOOL_SHARE * report.spool_limit_bytes:
        share = report.waiting_bytes / max(1, report.spool_limit_bytes)
        yield Problem(f"its spool is {share:.0%} full", "beyond, the oldest segments are lost; raise --spool-mib")
    if report.lost_count:
        yield Problem(f"{report.lost_count:,} segments lost", "their packets are missing from the trace")
    least_ns, most_ns = status.clock_ahead_ns or (0, 0)
    if least_ns > CLOCK_NS or most_ns < -CLOCK_NS:
        direction = "ahead of" if least_ns > 0 else "behind"
        distance = in_words(min(abs(least_ns), abs(most_ns)))
        yield Problem(f"its clock is {distance} {direction} this collector's", "traces correct it; NTP would, too")
    if report.version != version:
        yield Problem(f"version {report.version}, this collector has {version}", "install the same on both")


def _budget_problems(report: Report) -> Iterator[Problem]:
    """What its CPU budget makes an agent leave out now."""
    remedy = f"its CPU budget is {report.cpu_percent:g} % of a core: raise --cpu-budget, or capture less (a FILTER)"
    if report.one_in > 1:
        yield Problem(f"keeps 1/{report.one_in} of connections", remedy)
    elif report.head_bytes is not None:
        what = f"{report.head_bytes:,} bytes of heads" if report.head_bytes else "no heads"
        yield Problem(f"keeps {what}", remedy)


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.0f} s"


def _report_files(data: Path) -> Iterator[tuple[Key, Path]]:
    """Where the reports of all agents are that an earlier collector kept, or another one."""
    with contextlib.suppress(FileNotFoundError):  # a session was deleted just now
        for session in session_folders(data / "sessions"):
            for folder in (folder for host in host_folders(session) for folder in incarnation_folders(host)):
                yield (session.name, folder.parent.name, folder.name), folder / REPORT_FILE
