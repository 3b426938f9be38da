"""Live analysis: while segments of a session arrive, a trace of its newest seconds is rebuilt about once a second.

A round takes the segments in the window, runs all stages over them, and replaces the previous trace. Segments that
arrive during a round wait for the next one, which takes all of them. So work never accumulates; rounds only become less
frequent, and the status reports how far they are behind.

Two threads run rounds, each for one session; the one due for the longest time comes first. One thread skips sessions
whose last round was slow (longer than `GOAL_NS`). So a slow session delays other slow ones, and a quick one by at most
the round in which it became slow.

The window ends with the newest segment that arrived and is measured by arrival, on the collector's own clock, so that
hosts' clocks may differ by any time. For each host it has one unbroken run of segments: after a missing number it
starts again, since a hole would look like loss. A restarted agent continues the run of the one before, if its own is
there from the first segment on. The window is shortened if it would hold more bytes than allowed, or if
a round takes longer than `GOAL_NS`: a late trace is worse than a short one. The status and the trace's counter
`live_window_cut` report it.

Limits of the window: a connection that began before it has no handshake in it, and a retransmission whose first attempt
lies before it counts as a first attempt. Segments of two hosts never end at the same packet; an unmatched packet within
`EDGE_NS` of an edge of the other host's window is `outside_window`, and a real loss is reported only once it is that
old. That holds while delays are within `EDGE_NS` of their median.

Any exception in a round is that session's error (`collector.service.boundary`): it is shown in the status and on the
viewer's page, the previous trace stays, and the next round and all other sessions continue. A failed round is retried
at growing intervals even if nothing arrives, so that the error disappears with its cause (a full disk). The log has a
line for a session's first failed round, its tenth, its hundredth and so on; the status counts them.
"""

import contextlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
from msgspec import structs

from collector.analysis import AnalysisOptions, analyse
from collector.capture_files.records import Severity
from collector.decode.host_capture import HostSource
from collector.decode.incarnations import Incarnation, host_sources, sequences
from collector.execution import memory
from collector.findings.capture_gaps import DROPS
from collector.service.boundary import contain_failures, log_failure
from collector.trace.data_directory import live_error_file, live_folder, live_status_file
from collector.trace.model import CounterInfo, TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import HopState
from tracer.errors import TracerError
from tracer.private_files import write_whole
from tracer.scratch import remove_leftovers

INTERVAL_NS = 500_000_000
"""Time from the start of a session's round to the start of its next one."""
EDGE_NS = 200_000_000
MOST_SESSIONS = 100
"""At most so many sessions are kept; beyond, those without traffic for the longest time are forgotten."""
GOAL_NS = 600_000_000
"""Longest desired duration of a round. A packet waits for the end of its segment (half a second), for the current round
and for its own: so it is shown within two seconds."""
LEAST_NS = 2_000_000_000
"""A round always takes the segments of this time, however slow it is."""
FIRST_RETRY_NS = 1_000_000_000
LONGEST_RETRY_NS = 60_000_000_000
"""Time from a failed round to its retry, if nothing arrives: doubled each time, between these bounds."""
THREADS_COUNT = 2
"""Threads that run rounds; the last one runs only those of quick sessions."""
MOST_GROWTH_RATIO = 1.25
"""Most growth of a window from one round to the next, after it was cut."""

DEFAULT_OPTIONS = AnalysisOptions()
Counters = tuple[CounterInfo, ...]
Analyse = Callable[[Sequence[HostSource], str, Counters], TraceInfo]
"""Takes sources, where the trace goes, and counters of what happened before."""
Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """Of one session's live trace; times in ns, counts of hops and connections are those in the window."""

    session: str
    trace: str
    window_seconds: float  # as it was asked for; 0 = live analysis is off
    running: bool  # its threads are there
    made_ns: int = 0  # `created_ns` of the trace that the counts below are of: a newer one is there a moment earlier
    rounds_count: int = 0
    failed_rounds_count: int = 0  # rounds that made no trace
    slow_rounds_count: int = 0  # rounds that took longer than their interval
    last_round_ns: int = 0  # how long it took
    lag_ns: int | None = None  # newest packet's stamp to the round's end: as right as that host's clock
    arrival_lag_ns: int = 0  # first segment that the round was for, from its arrival to the round's end
    behind_seconds: float = 0.0  # since the arrival of the oldest segment that no round has taken; 0 = none waits
    waiting_count: int = 0  # segments that no round has taken
    segments_count: int = 0  # in the window
    bytes_count: int = 0
    room_bytes: int = 0  # what the next round may read, so that it is neither too large nor too slow
    cut_count: int = 0  # segments younger than the window that it had no room for, or that lie before a missing one
    covered_ns: int = 0  # from the first to the last packet of the window, of the host that has most
    packets_count: int = 0
    connections_count: int = 0
    begun_before_count: int = 0  # connections without a handshake in the window
    hop_counts: dict[str, int] = field(default_factory=dict)  # by state
    dropped_count: int = 0  # packets that the captures lost, in the window
    error: str = ""  # why the last round made no trace


@dataclass(frozen=True, slots=True)
class _Segment:
    host: str
    incarnation: str
    number: int
    path: Path
    size_bytes: int
    arrived_ns: int


@dataclass(frozen=True, slots=True)
class _Failure:
    """The last round, which made no trace: arrival of the first segment that it was for, and when it is run again."""

    first_ns: int
    pause_ns: int
    retry_ns: int


@dataclass(slots=True)
class _Session:
    status: LiveStatus
    segments: list[_Segment] = field(default_factory=list)
    waiting_count: int = 0
    waiting_since_ns: int = 0  # arrival of the first of them
    next_round_ns: int = 0
    in_round: bool = False
    failed: _Failure | None = None

    @property
    def is_quick(self) -> bool:
        """Whether its last round was no longer than it should be."""
        return self.status.last_round_ns <= GOAL_NS

    @property
    def due_ns(self) -> int | None:
        """When its next round is due; None if it needs none."""
        if self.in_round:
            return None
        if self.waiting_count:
            return self.next_round_ns
        return None if self.failed is None else self.failed.retry_ns

    @property
    def since_ns(self) -> int:
        """Arrival of the first segment that a round now is for."""
        waiting = [self.waiting_since_ns] if self.waiting_count else []
        return min([*waiting, *([] if self.failed is None else [self.failed.first_ns])])


@dataclass(frozen=True, slots=True)
class _Round:
    """What a round that begins was given."""

    session: _Session
    segments: Sequence[_Segment]
    started_ns: int
    first_ns: int  # arrival of the first segment that it is for


class LiveAnalysis:
    """The live traces of a collector. `arrived` and `status` may be called from any thread and wait for no round."""

    def __init__(
        self,
        data: Path,
        window_seconds: float,
        most_bytes: int,
        *,
        options: AnalysisOptions = DEFAULT_OPTIONS,
        analysis: Analyse | None = None,
        counters_of: Callable[[str], Counters] = lambda _session: (),
        clock: Clock = time.monotonic_ns,
        wall_clock: Clock = time.time_ns,
        publish: bool = False,
    ) -> None:
        """`counters_of`: what else the trace of a session is to count; `publish`: leave the status of each session for
        other collectors that share the data directory."""
        self._publish = publish
        self._counters_of = counters_of
        self._data, self._window_seconds, self._most_bytes = data, window_seconds, most_bytes
        self._analysis, self._clock, self._wall_clock = analysis or partial(_analyse_window, options), clock, wall_clock
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._changed = threading.Condition()
        self._stopped = False
        self._threads: list[threading.Thread] = []

    @property
    def window_ns(self) -> int:
        """What is kept in a live trace, by arrival."""
        return int(self._window_seconds * 1e9)

    def start(self) -> None:
        """Begin to work, unless the window is 0."""
        for number in range(THREADS_COUNT if self._window_seconds else 0):
            only_quick = number == THREADS_COUNT - 1
            thread = threading.Thread(target=self._run, args=(only_quick,), name=f"live-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End after the rounds that run."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def note_segment(self, session: str, host: str, incarnation: str, number: int, path: Path) -> None:
        """Note a segment that is durable now."""
        if not self._window_seconds:
            return
        segment = _Segment(host, incarnation, number, path, path.stat().st_size, self._clock())
        with self._changed:
            known = self._sessions.setdefault(session, _Session(self._status_of_unknown(session)))
            self._sessions.move_to_end(session)
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
            oldest_ns = segment.arrived_ns - self.window_ns
            known.segments = [one for one in known.segments if one.arrived_ns >= oldest_ns]
            known.segments.append(segment)
            known.waiting_since_ns = known.waiting_since_ns if known.waiting_count else segment.arrived_ns
            known.waiting_count += 1
            self._changed.notify_all()

    def status(self, session: str) -> LiveStatus:
        """How live analysis of a session stands. Raises: InputError for what is no name."""
        with self._changed:
            known = self._sessions.get(session)
            if known is None:
                return self._status_of_unknown(session)
            behind_ns = self._clock() - known.waiting_since_ns if known.waiting_count else 0
            return replace(
                known.status,
                running=self._is_running(),
                waiting_count=known.waiting_count,
                behind_seconds=behind_ns / 1e9,
            )

    def published_status(self, session: str) -> LiveStatus:
        """How live analysis of a session stands at the collector that makes its trace, as of its last round.

        Raises: InputError for what is no name.
        """
        with contextlib.suppress(OSError, ValueError, TypeError):
            return LiveStatus(**json.loads(live_status_file(self._data, session).read_bytes()))
        with self._changed:
            return self._status_of_unknown(session)

    def step(self, *, only_quick: bool = False) -> int | None:
        """Run the round that is due, if one is; ns until the next may be due, None if nothing waits.

        Arguments: `only_quick`: of no session whose last round was slow.
        """
        with self._changed:
            due_in_ns = self._due_in_ns(only_quick)
            if due_in_ns is None or due_in_ns > 0:
                return due_in_ns
            begun = self._begin(only_quick)
        self._finish(begun)
        return 0

    def _run(self, only_quick: bool) -> None:
        while True:
            with self._changed:
                while not self._stopped and (due_in_ns := self._due_in_ns(only_quick)) != 0:
                    self._changed.wait(None if due_in_ns is None else due_in_ns / 1e9)
                if self._stopped:
                    return
                begun = self._begin(only_quick)
            self._finish(begun)

    def _next_due(self, only_quick: bool) -> tuple[int, _Session] | None:
        """The session that is due, or will be first, and when (ns)."""
        due = [
            (due_ns, session)
            for session in self._sessions.values()
            if (due_ns := session.due_ns) is not None and (session.is_quick or not only_quick)
        ]
        return min(due, key=lambda each: each[0], default=None)

    def _due_in_ns(self, only_quick: bool) -> int | None:
        """Until the next round may begin; None if nothing waits for one."""
        found = self._next_due(only_quick)
        return None if found is None else max(0, found[0] - self._clock())

    def _begin(self, only_quick: bool) -> _Round:
        """Take the session that is due for a round, and what waits for it."""
        found, now_ns = self._next_due(only_quick), self._clock()
        assert found is not None, "one is due"
        _, session = found
        begun = _Round(session, list(session.segments), now_ns, session.since_ns)
        session.waiting_count, session.in_round = 0, True
        session.next_round_ns = now_ns + INTERVAL_NS
        return begun

    def _finish(self, begun: _Round) -> None:
        """Run a round and note what it made."""
        session = begun.session
        status = self._round(session.status, begun.segments, begun.started_ns, begun.first_ns)
        if self._publish:
            _publish_status(self._data, replace(status, running=True))
        with self._changed:
            failed = _failure_after(session.failed, begun.first_ns, self._clock()) if status.error else None
            session.status, session.in_round, session.failed = status, False, failed
            self._changed.notify_all()

    def _is_running(self) -> bool:
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def _status_of_unknown(self, session: str) -> LiveStatus:
        trace = live_folder(self._data, session)
        return LiveStatus(session, str(trace), self._window_seconds, self._is_running(), room_bytes=self._most_bytes)

    def _round(self, before: LiveStatus, newest: Sequence[_Segment], started_ns: int, first_ns: int) -> LiveStatus:
        """One round, and what it says of itself."""
        room_bytes = min(self._most_bytes, max(before.room_bytes, _least_bytes(newest)))
        chosen = choose(newest, room_bytes)
        sources = host_sources(chosen)
        sizes = {one.path: one.size_bytes for one in newest}
        files = [file for source in sources for file in source.files]
        status = replace(
            before,
            rounds_count=before.rounds_count + 1,
            segments_count=len(files),
            bytes_count=sum(sizes[file] for file in files),
            cut_count=len(newest) - len(files),
            error="",
        )
        try:
            status = contain_failures(before.session, lambda: self._analyse_round(sources, status))
        except TracerError as error:
            failed_count = before.failed_rounds_count + 1
            status = replace(status, error=str(error), failed_rounds_count=failed_count)
            if is_power_of_ten(failed_count):
                log_failure(error, before.session, failed_count)
        _note_error(self._data, status)
        ended_ns = self._clock()
        took_ns = ended_ns - started_ns
        slow = took_ns > INTERVAL_NS
        return replace(
            status,
            last_round_ns=took_ns,
            slow_rounds_count=before.slow_rounds_count + slow,
            room_bytes=min(self._most_bytes, _next_room(room_bytes, status.bytes_count, took_ns)),
            arrival_lag_ns=ended_ns - first_ns,
        )

    def _analyse_round(self, sources: Sequence[HostSource], status: LiveStatus) -> LiveStatus:
        """Make the trace of a round; what it holds."""
        counters = (*_cut_counters(status.cut_count), *self._counters_of(status.session))
        return _status_of_trace(status, self._analysis(sources, status.trace, counters), self._wall_clock())


def _failure_after(before: _Failure | None, first_ns: int, now_ns: int) -> _Failure:
    """A round that made no trace, after one that did (None) or did not."""
    pause_ns = FIRST_RETRY_NS if before is None else min(2 * before.pause_ns, LONGEST_RETRY_NS)
    return _Failure(first_ns, pause_ns, now_ns + pause_ns)


def is_power_of_ten(count: int) -> bool:
    """Whether a count is 1, 10, 100 and so on."""
    return str(count).rstrip("0") == "1"


def _note_error(data: Path, status: LiveStatus) -> None:
    """Put why the last round made no trace where the viewer's page finds it; nothing is there after one that did.

    A disk that takes no more makes no difference to the round: the status and the log have the error as well.
    """
    note = live_error_file(data, status.session)
    with contextlib.suppress(OSError):
        if status.error:
            note.write_text(status.error + "\n")
        else:
            note.unlink(missing_ok=True)


def _publish_status(data: Path, status: LiveStatus) -> None:
    """Leave it for other collectors; one that cannot be written now is there after the next round."""
    with contextlib.suppress(OSError):
        write_whole(live_status_file(data, status.session), json.dumps(asdict(status)).encode())


def _least_bytes(segments: Sequence[_Segment]) -> int:
    """What a round takes however slow it is."""
    newest_ns = max(one.arrived_ns for one in segments)
    return sum(one.size_bytes for one in segments if one.arrived_ns > newest_ns - LEAST_NS)


def _next_room(room_bytes: int, taken_bytes: int, took_ns: int) -> int:
    """How much the next round may read, judged by this one: as much as takes `GOAL_NS`, and little more than this."""
    if took_ns > GOAL_NS:
        return taken_bytes * GOAL_NS // took_ns
    return int(room_bytes * min(MOST_GROWTH_RATIO, GOAL_NS / max(took_ns, 1)))


def choose(segments: Iterable[_Segment], most_bytes: int) -> list[list[Incarnation]]:
    """The segments of a round, as sequences of incarnations: the newest that have room, of each sequence one unbroken
    run.

    The newest one is always among them. All hosts go back to about the same time.
    """
    taken: list[_Segment] = []
    room = most_bytes
    for segment in sorted(segments, key=lambda one: one.arrived_ns, reverse=True):
        room -= segment.size_bytes
        if room < 0 and taken:
            break
        taken.append(segment)
    runs: dict[tuple[str, str], list[_Segment]] = {}
    for segment in sorted(taken, key=lambda one: (one.host, one.incarnation, -one.number)):
        run = runs.setdefault((segment.host, segment.incarnation), [])
        if not run or run[-1].number == segment.number + 1:
            run.append(segment)
    begun = {key for key, run in runs.items() if run[-1].number > 1}
    found = sequences(_incarnation(run[::-1]) for run in runs.values())
    return [_from_last_of(sequence, begun) for sequence in found]


def _incarnation(run: Sequence[_Segment]) -> Incarnation:
    """What is in the window of one start of an agent."""
    arrived_ns = [one.arrived_ns for one in run]
    files = tuple(one.path for one in run)
    return Incarnation(run[0].host, run[0].incarnation, files, min(arrived_ns), max(arrived_ns))


def _from_last_of(sequence: Sequence[Incarnation], begun: set[tuple[str, str]]) -> list[Incarnation]:
    """The sequence from the last incarnation on whose first segments are not there: before them is a hole."""
    first = max((place for place, each in enumerate(sequence) if (each.host, each.name) in begun), default=0)
    return list(sequence[first:])


def clean(data: Path) -> list[str]:
    """Remove what a killed collector left of rounds; a line for the operator on each."""
    return remove_leftovers(*(path for path in (data / "sessions").glob("*") if path.is_dir()))


def _cut_counters(cut_count: int) -> Counters:
    """The counter of the segments that a window had no room for, if there are any."""
    remedy = "older packets are in the session's own trace; for more of them here: --live-mib, or a faster machine"
    return (CounterInfo(None, "live_window_cut", Severity.DATA_LOSS, cut_count, remedy),) if cut_count else ()


def _analyse_window(
    options: AnalysisOptions, sources: Sequence[HostSource], trace: str, counters: Counters
) -> TraceInfo:
    """All stages on one core, so that the others are left to ingest."""
    options = structs.replace(options, workers=1, edge_ns=EDGE_NS, counters=counters)
    try:
        return analyse(sources, trace, options=options)
    finally:
        memory.give_back()  # rounds for hours would otherwise fragment it, glibc's heap most


def _status_of_trace(status: LiveStatus, info: TraceInfo, now_ns: int) -> LiveStatus:
    """What a round's trace holds. It is not replaced meanwhile: a session has one round at a time."""
    trace = Trace(status.trace)
    quality = trace.read("quality", [f"{state}_count" for state in HopState])
    connections = trace.read("connections", ["client_isn"])
    stamps = [
        (host.first_host_ns, host.last_host_ns)
        for host in info.hosts
        if host.first_host_ns is not None and host.last_host_ns is not None
    ]
    return replace(
        status,
        made_ns=info.created_ns,
        lag_ns=now_ns - max(last for _, last in stamps),
        covered_ns=max(last - first for first, last in stamps),
        packets_count=sum(host.packets_count for host in info.hosts),
        connections_count=connections.num_rows,
        begun_before_count=connections["client_isn"].null_count,
        hop_counts={str(state): pc.sum(quality[f"{state}_count"]).as_py() or 0 for state in HopState},
        dropped_count=sum(counter.count for counter in info.counters if counter.name == DROPS),
    )
