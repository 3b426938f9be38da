"""What an agent reports of itself to its collector, every few seconds, whether or not its segments are taken.

Only what the agent knows of itself is in a report; the collector judges it, and knows how long ago it came.
"""

import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tracer import _capture
from tracer.agent import CaptureCounts, CaptureOptions, add_counts
from tracer.cpu_budget import CpuBudget
from tracer.history import HistorySpan
from tracer.recorder import Recorder, WindowAnswer
from tracer.segments import segment_time_ns
from tracer.spool import Spool
from tracer.tls_failures import NO_FAILURES, TlsFailures

REPORT_SECONDS = 5.0
"""Between two reports."""
_PAGES = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Report:
    """Of one agent, since it was started. Times in ns of the host's clock."""

    version: str
    interfaces: tuple[str, ...]
    payload: str
    expression: str  # of the capture filter; empty = all TCP
    started_ns: int
    sent_ns: int
    clock_ahead_ns: tuple[int, int] | None  # of the collector's clock, at least and at most; None = not known yet
    packets_count: int
    dropped_count: int  # the ring was full
    sent_count: int  # segments that the collector acknowledged
    lost_count: int  # segments that the spool had no room for, or the collector refused
    waiting_count: int  # segments in the spool
    waiting_bytes: int
    waiting_ns: int  # age of the oldest of them; 0 = none waits
    spool_limit_bytes: int
    cpu_ns: int  # of the process, in user space and system calls
    memory_bytes: int  # resident
    problem: str  # why segments are not delivered; empty = they are
    tls_failures_count: int = 0  # attempts to reach the collector that TLS ended
    tls_failed_ns: int = 0  # when the last one was
    tls_failure: str = ""  # why, and what to do
    history: HistorySpan | None = None  # what a flight recorder keeps; None = it sends all
    recording: bool = True  # False: the collector's orders are not to capture
    refused: str = ""  # why the collector's orders are not followed
    windows: tuple[WindowAnswer, ...] = ()  # what a flight recorder has of those that it was asked for
    cpu_percent: float = 0  # of one core, that it may use; 0 = no limit
    one_in: int = 1  # one of so many connections is kept now
    head_bytes: int | None = None  # of a payload that are kept now; None = what `payload` says
    left_out_count: int = 0  # packets of connections that were not kept
    away: str = ""  # which of several collectors should take this host's segments, and why it does not
    switches_count: int = 0  # how often segments went on to another collector
    ended: bool = False  # this is the last report


class Reporting:
    """Makes the reports of one agent."""

    def __init__(
        self,
        options: CaptureOptions,
        spools: list[Spool],
        limit_bytes: int,
        clock: Callable[[], int] = time.time_ns,
        budget: CpuBudget | None = None,
    ) -> None:
        self._options, self._spools, self._limit_bytes, self._clock = options, spools, limit_bytes, clock
        self._started_ns = clock()
        self._version = version("twintap")
        self._budget = budget or CpuBudget(options.cpu_percent, options.payload)
        self._before = CaptureCounts()
        self._capture: _capture.Capture | None = None
        self._clock_ahead_ns: tuple[int, int] | None = None
        self._recorder: Recorder | None = None
        self._recording, self._refused = True, ""

    def note_capture(self, capture: _capture.Capture) -> None:
        """Note the running capture; that before it has ended."""
        self._before, self._capture = self.counts(), capture

    def counts(self) -> CaptureCounts:
        """What was captured until now."""
        return add_counts(self._before, CaptureCounts(*self._capture.counts()) if self._capture else CaptureCounts())

    def send(
        self, send: Callable[[dict[str, object]], Mapping[str, Any]], delivery: "Delivery", *, ended: bool = False
    ) -> Mapping[str, Any]:
        """Make a report, and send it; the answer.

        Arguments: `send` returns the answer, of which `received_ns` is when the collector received it, by its clock:
            that was after this host's clock showed `sent_ns`, and before it shows the time of the answer, which bounds
            the difference of the two clocks.
        Raises: as `send`.
        """
        report = self.report(delivery, ended=ended)
        answer = send(asdict(report))
        received_ns = int(answer["received_ns"])
        self._clock_ahead_ns = (report.sent_ns - received_ns, self._clock() - received_ns)
        return answer

    def clock_ahead_ns(self) -> tuple[int, int] | None:
        """By how much this host's clock is ahead of the collector's, at least and at most; None = not known yet."""
        return self._clock_ahead_ns

    def note_orders(self, options: CaptureOptions, recording: bool, refused: str) -> None:
        """Note with which options this agent captures now, and why it does not follow the collector's orders."""
        self._options, self._recording, self._refused = options, recording, refused

    def attach(self, recorder: Recorder) -> None:
        """Report of a flight recorder, too."""
        self._recorder = recorder

    def report(self, delivery: "Delivery", *, ended: bool = False) -> Report:
        """The report of now."""
        counts, now_ns = self.counts(), self._clock()
        waiting = [path for spool in self._spools if spool.folder.is_dir() for _, path in spool.waiting()]
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Report(
            version=self._version,
            interfaces=self._options.interfaces,
            payload=self._options.payload,
            expression=self._options.expression,
            started_ns=self._started_ns,
            sent_ns=now_ns,
            clock_ahead_ns=self._clock_ahead_ns,
            packets_count=counts.packets_count,
            dropped_count=counts.dropped_count,
            sent_count=delivery.sent_count,
            lost_count=delivery.lost_count,
            waiting_count=len(waiting),
            waiting_bytes=sum(_size(path) for path in waiting),
            waiting_ns=max((now_ns - segment_time_ns(path, now_ns) for path in waiting[:1]), default=0),
            spool_limit_bytes=self._limit_bytes,
            cpu_ns=round((used.ru_utime + used.ru_stime) * 1e9),
            memory_bytes=_resident_bytes(),
            problem=delivery.problem,
            tls_failures_count=delivery.tls_failures.count,
            tls_failed_ns=delivery.tls_failures.last_ns,
            tls_failure=delivery.tls_failures.last,
            recording=self._recording,
            refused=self._refused,
            history=self._recorder.history.span() if self._recorder else None,
            windows=self._recorder.answers() if self._recorder else (),
            cpu_percent=self._budget.percent,
            one_in=self._budget.rung.one_in,
            head_bytes=self._budget.rung.head_bytes,
            left_out_count=counts.left_out_count,
            away=delivery.away,
            switches_count=delivery.switches_count,
            ended=ended,
        )


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the delivery of segments stands."""

    sent_count: int
    lost_count: int
    problem: str
    tls_failures: TlsFailures = NO_FAILURES
    away: str = ""
    switches_count: int = 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # it was just sent
        return 0


def _resident_bytes() -> int:
    try:
        return int(_PAGES.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
