"""Windows: the packets of a time of a session from all its hosts, kept as a session of their own with a trace.

1. A window is opened by a request (`POST /api/sessions/SESSION/windows`) or by a trigger.
2. A flight recorder finds it in the answer to its next report, and sends its segments to the window's session.
   Of a host that sends all, segments that arrived in that time are linked there.
3. A window that ends later than it was opened gets a first trace of what was there until then, as soon as every host
   has sent that, or after `FIRST_NS`: whoever was alarmed looks at it while the window goes on.
4. When every host has given its part, or cannot, the trace is made. What came too late is analysed again.

    DATA/sessions/<window>/window.json    what was asked for, and what became of it: it pins the session
    DATA/traces/<window>/                 its trace

Times are by the collector's clock; an agent converts them (`tracer.recorder`). Segments are taken whole, so a window
reaches up to 1.5 s further. Retention never deletes a window; `DELETE /api/sessions/WINDOW` does.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ValidationError

from collector.capture_files.records import Severity
from collector.service.agents import Agents, AgentStatus, WindowAnswer
from collector.service.background import Background
from collector.service.boundary import contain_failures, log_failure
from collector.service.ingest import (
    WINDOW_FILE,
    Closing,
    close_incarnation,
    incarnation_status,
    session_folders,
)
from collector.service.joining import copy_packets, copy_segments
from collector.service.shared_data import SharedData, Version, file_version
from collector.trace.data_directory import (
    host_folder,
    host_folders,
    incarnation_folder,
    incarnation_folders,
    session_folder,
)
from collector.trace.model import CounterInfo
from tracer.connection_choice import parse_choice
from tracer.errors import InputError, TracerError
from tracer.plain_text import plain
from tracer.private_files import write_durably

LOG = logging.getLogger("twintap.collector")
STEP_SECONDS = 0.25
OTHERS_SECONDS = 1.0
"""Between two looks at the windows that other collectors have opened."""
SILENT_NS = 10_000_000_000
"""A recorder reports every 2 s; one that did not for so long is waited for no more."""
ARRIVAL_NS = 3_000_000_000
"""Packets of a host that sends all have arrived after so long, unless it lags (`agents.LAG_NS`)."""
LATE_NS = 3_600 * 1_000_000_000
"""A part that was missing is asked for again for so long after a window was opened."""
LONGEST_NS = 24 * 3_600 * 1_000_000_000
SLACK_NS = 1_000_000_000
"""A part that begins no later than so long after the window's beginning is whole."""
FIRST_NS = 5_000_000_000
"""After so long the first trace is made of what is there: a recorder learns of a window within 2 s, and says 2 s later
what it sent."""
NAME_LEN = 40
PART_MISSING = "window_part_missing"
"""The counter of a host that did not give all of its part; its count is the missing time in s, rounded up."""
ONLY = "window_of_connections"
"""The counter of a window that holds the packets of some connections only."""
NOT_OVER = "window_not_over"
"""The counter of a first trace; its count is the time that is to come, in s, rounded up."""
RAISE_KEEP = "raise --keep there"
WAIT = "earlier packets were not recorded there: ask for a later time"
LOOK_AT_AGENT = "see whether its agent runs, and reaches the collector"
START_AGENT = "start it again"


class PartState(StrEnum):
    """What became of a host's part of a window."""

    WAITING = "waiting"
    HERE = "here"
    PARTIAL = "partial"  # the recorder's history does not reach back that far
    MISSING = "missing"


class WindowState(StrEnum):
    """What became of a window."""

    GATHERING = "gathering"
    ANALYSING = "analysing"
    READY = "ready"  # there is a trace
    FAILED = "failed"


class Part(BaseModel):
    """Of one host."""

    is_recorder: bool
    state: PartState = PartState.WAITING
    detail: str = ""
    next_step: str = ""  # what the operator can do about what is missing
    missing_ns: int = 0  # of the window's time


class Window(BaseModel):
    """A window. Times in ns by the collector's clock."""

    window: str  # also the name of its session and of its trace
    session: str  # of which it is
    reason: str
    only: str = ""  # of which connections (`tracer.connection_choice`); empty = all packets
    trigger: str = ""  # that opened it; empty = somebody asked
    from_ns: int
    to_ns: int
    opened_ns: int
    first_ns: int = 0  # when a trace of what was before it was opened was made
    ready_ns: int = 0  # when the trace was made
    state: WindowState = WindowState.GATHERING
    problem: str = ""  # why there is no trace
    parts: dict[str, Part] = {}  # by host


class WindowRequest(BaseModel, frozen=True):
    """What a recorder is asked for: `tracer.recorder.WindowRequest`."""

    window: str
    from_ns: int
    to_ns: int
    only: str = ""


MakeTrace = Callable[[str, tuple[CounterInfo, ...]], bool]
"""Makes the trace of a session with counters; False if that cannot begin now. Raises: TracerError."""


class Windows:
    """All windows of a collector; safe to call from several threads."""

    def __init__(
        self,
        data: Path,
        agents: Agents,
        make_trace: MakeTrace,
        clock: Callable[[], int] = time.time_ns,
        shared: SharedData | None = None,
    ) -> None:
        """`shared`: other collectors open windows, too, and one of them works on all."""
        self._data, self._agents, self._make_trace, self._clock = data, agents, make_trace, clock
        self._shared, self._next_look = shared, 0.0
        self._lock = threading.RLock()
        self._windows: dict[str, Window] = {}
        self._versions: dict[str, Version] = {}  # of the files that were read
        self._read_stored(keep_known=False)
        self._first_tried = set[str]()
        self._background = Background("windows", STEP_SECONDS, self.step)

    def start(self) -> None:
        """Begin to work."""
        self._background.start()

    def stop(self) -> None:
        """End after the trace that is being made."""
        self._background.stop()

    def open(self, session: str, from_ns: int, to_ns: int, reason: str, trigger: str = "", only: str = "") -> Window:
        """Open a window over all hosts of a session. Raises: InputError, ResourceError."""
        if only:
            parse_choice(only)
        if not 0 < to_ns - from_ns <= LONGEST_NS:
            raise InputError("a window must end after its beginning, and be a day at most", "give other times")
        agents = {each.host: each for each in self._agents.status() if each.session == session}
        if not agents and not session_folder(self._data, session).is_dir():
            raise InputError(f"no agent reports for session {session}", "GET /api/agents lists them")
        parts = {host: Part(is_recorder=agent.history is not None) for host, agent in agents.items()}
        for folder in host_folders(session_folder(self._data, session)):
            parts.setdefault(folder.name, Part(is_recorder=False))
        with self._lock:
            opened_ns = self._clock()
            window = Window(
                window=self._new_name(session, to_ns),
                session=session,
                reason=reason,
                only=only,
                trigger=trigger,
                from_ns=from_ns,
                to_ns=to_ns,
                opened_ns=opened_ns,
                parts=parts,
            )
            self._store(window)
            self._windows[window.window] = window
        return window

    def all(self, session: str | None = None) -> list[Window]:
        """The windows of a session, or all; the newest first."""
        self._look_at_others()
        with self._lock:
            found = [each.model_copy(deep=True) for each in self._windows.values()]
        return sorted(
            (each for each in found if session in (None, each.session)), key=lambda each: each.opened_ns, reverse=True
        )

    def get(self, name: str) -> Window | None:
        """A window; None if there is none of that name."""
        self._look_at_others()
        with self._lock:
            found = self._windows.get(name)
            return found.model_copy(deep=True) if found else None

    def forget(self, name: str) -> None:
        """Its session was deleted."""
        with self._lock:
            self._windows.pop(name, None)
            self._first_tried.discard(name)

    def requests_for(self, session: str, host: str) -> list[WindowRequest]:
        """What a recorder is to be asked for now."""
        self._look_at_others()
        now_ns = self._clock()
        with self._lock:
            return [
                WindowRequest(window=each.window, from_ns=each.from_ns, to_ns=each.to_ns, only=each.only)
                for each in self._windows.values()
                if each.session == session
                and (part := each.parts.get(host)) is not None
                and part.is_recorder
                and part.state in (PartState.WAITING, PartState.MISSING)
                and now_ns - max(each.opened_ns, each.to_ns) < LATE_NS
            ]

    def step(self) -> None:
        """Look at every window that is not done."""
        if self._shared is not None and not self._shared.does_chores:
            return
        self._look_at_others()
        with self._lock:
            windows = list(self._windows.values())
        agents = {(each.session, each.host): each for each in self._agents.status()}
        for window in windows:
            try:
                contain_failures(window.session, partial(self._look, window, agents))
            except TracerError as error:  # a full disk, for example; tried again at the next look
                if window.problem != str(error):
                    log_failure(error, window.session)
                window.problem = str(error)

    def _look(self, window: Window, agents: dict[tuple[str, str], AgentStatus]) -> None:
        """Judge the parts of a window, and make its trace if all are settled."""
        now_ns = self._clock()
        changed = window.state is WindowState.GATHERING
        for host, part in window.parts.items():
            is_late = part.state is PartState.MISSING and now_ns - max(window.opened_ns, window.to_ns) < LATE_NS
            if part.state is not PartState.WAITING and not (is_late and part.is_recorder):
                continue
            agent = agents.get((window.session, host))
            judged = self._recorders_part(window, host, agent) if part.is_recorder else self._copy(window, host, agent)
            if judged.state is not part.state and judged.state is not PartState.WAITING:
                window.parts[host] = judged
                changed = True
        if changed and all(part.state is not PartState.WAITING for part in window.parts.values()):
            self._finish(window)
        elif window.window not in self._first_tried and self._is_first_here(window):
            self._make_first(window)

    def _is_first_here(self, window: Window) -> bool:
        """Whether it is time for the first trace of a window."""
        now_ns = self._clock()
        if window.first_ns or not window.opened_ns < now_ns < window.to_ns:
            return False
        if now_ns - window.opened_ns >= FIRST_NS:
            return True
        if not all(part.is_recorder for part in window.parts.values()):
            return False  # what the others send is on its way so long
        return all(self._has_sent(window, host) for host in window.parts)

    def _has_sent(self, window: Window, host: str) -> bool:
        """Whether the segments of a window of which a recorder has reported have arrived, and there are some."""
        answer = self._agents.window_answer(window.session, host, window.window)
        if answer is None or not answer.segments_count:
            return False
        folders = [incarnation_folder(self._data, window.window, host, each) for each in answer.incarnations]
        return sum(incarnation_status(folder).segments_count for folder in folders if folder.is_dir()) >= (
            answer.segments_count
        )

    def _make_first(self, window: Window) -> None:
        """Make a trace of what is there, unless nothing is; the window goes on. Raises: TracerError."""
        self._first_tried.add(window.window)
        for host, part in window.parts.items():
            if not part.is_recorder:
                self._copy_arrived(window, host)
        rest_s = -(-(window.to_ns - self._clock()) // 10**9)
        text = "the window goes on: the rest is added when it has arrived"
        counters = (CounterInfo(None, NOT_OVER, Severity.NOTICE, rest_s, text), *_only_counters(window))
        if not host_folders(session_folder(self._data, window.window)):
            return
        if self._make_trace(window.window, counters):
            window.first_ns = self._clock()
            self._store(window)
        else:
            self._first_tried.discard(window.window)

    def _recorders_part(self, window: Window, host: str, agent: AgentStatus | None) -> Part:
        """What became of a recorder's part."""
        now_ns = self._clock()
        answer = self._agents.window_answer(window.session, host, window.window)
        if answer is not None and answer.complete and self._is_here(window, host, answer):
            return _part_of(answer, window, agent)
        silent_ns = agent.last_seen_ns if agent is not None else now_ns - window.opened_ns
        if answer is None and agent is not None and agent.state == "ended":
            return _missing_part(window, "its agent has ended; the next one on that host sends it", START_AGENT)
        if silent_ns > SILENT_NS and now_ns > window.to_ns:
            return _missing_part(window, f"silent for {silent_ns // 10**9:,} s", LOOK_AT_AGENT)
        return Part(is_recorder=True)

    def _is_here(self, window: Window, host: str, answer: WindowAnswer) -> bool:
        """Whether all that a recorder announced has arrived."""
        folders = [incarnation_folder(self._data, window.window, host, each) for each in answer.incarnations]
        return all(folder.is_dir() and incarnation_status(folder).closed for folder in folders)

    def _copy(self, window: Window, host: str, agent: AgentStatus | None) -> Part:
        """Link what arrived of a host that sends all."""
        now_ns = self._clock()
        is_behind = agent is not None and agent.state == "capturing" and agent.lag_ns > ARRIVAL_NS
        if now_ns < window.to_ns + ARRIVAL_NS or (is_behind and now_ns < window.to_ns + 10 * ARRIVAL_NS):
            return Part(is_recorder=False)
        try:
            last_numbers = self._copy_arrived(window, host)
        except FileNotFoundError:  # it was joined or has expired meanwhile: the next look finds what is there
            return Part(is_recorder=False)
        for place, (last, _) in last_numbers.items():
            close_incarnation(place, Closing(last))
        if not last_numbers:
            return Part(is_recorder=False, state=PartState.HERE, detail="no segment of that time is at the collector")
        count = sum(count for _, count in last_numbers.values())
        return Part(is_recorder=False, state=PartState.HERE, detail=f"{count:,} segments")

    def _copy_arrived(self, window: Window, host: str) -> dict[Path, tuple[int, int]]:
        """Have what arrived of a host in the window; by folder, its last number and how many. Raises: OSError."""
        source = host_folder(self._data, window.session, host)
        found = {}
        for folder in incarnation_folders(source) if source.is_dir() else ():
            place = incarnation_folder(self._data, window.window, host, folder.name)
            times = window.from_ns, window.to_ns + ARRIVAL_NS
            if window.only:
                copied = copy_packets(folder, place, *times, parse_choice(window.only))
            else:
                copied = copy_segments(folder, place, *times)
            if copied[1]:
                found[place] = copied
        return found

    def _finish(self, window: Window) -> None:
        """Make the trace."""
        with self._lock:
            if self._windows.get(window.window) is not window:
                return
            window.state = WindowState.ANALYSING
        try:
            began = self._make_trace(window.window, tuple(_counters(window)))
            if not began:
                window.state = WindowState.GATHERING
                return
            window.state, window.problem, window.ready_ns = WindowState.READY, "", self._clock()
            LOG.info("window %s is ready", window.window, extra=_fields(window))
        except TracerError as error:
            window.state, window.problem = WindowState.FAILED, str(error)
            LOG.error("window %s has no trace: %s", window.window, error, extra=_fields(window))
        with self._lock:
            if self._windows.get(window.window) is window:
                self._store(window)

    def _new_name(self, session: str, to_ns: int) -> str:
        at = time.strftime("%Y%m%dT%H%M%S", time.gmtime(to_ns // 10**9))
        name = f"{session[:NAME_LEN]}-{at}"
        count = 1
        while name in self._windows or not self._is_new(session_folder(self._data, name)):
            count += 1
            name = f"{session[:NAME_LEN]}-{at}-{count}"
        return name

    def _is_new(self, folder: Path) -> bool:
        """Whether a session's folder was not there; it is made, so that another collector finds it."""
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            return False
        except OSError:  # a full disk is said where segments are refused
            return not folder.exists()
        return True

    def _look_at_others(self) -> None:
        """Read the windows of other collectors, if some time has passed since the last look. The one that works on
        them knows more than is stored."""
        if self._shared is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + OTHERS_SECONDS
        self._read_stored(keep_known=self._shared.does_chores)

    def _read_stored(self, *, keep_known: bool) -> None:
        """Read the windows that are stored; forget those that are stored no more."""
        with self._lock:
            there = set[str]()
            for folder in session_folders(self._data / "sessions"):
                version = file_version(folder / WINDOW_FILE)
                if version is None:
                    continue
                there.add(folder.name)
                if self._versions.get(folder.name) == version:
                    continue
                self._versions[folder.name] = version
                if (window := _stored_window(folder)) and not (keep_known and window.window in self._windows):
                    self._windows[window.window] = window
            for gone in self._versions.keys() - there:
                del self._versions[gone]
                self._windows.pop(gone, None)

    def _store(self, window: Window) -> None:
        with contextlib.suppress(OSError):  # a full disk is said where segments are refused
            folder = session_folder(self._data, window.window)
            folder.mkdir(parents=True, exist_ok=True)
            write_durably(folder / WINDOW_FILE, window.model_dump_json())


def _fields(window: Window) -> dict[str, str]:
    """What an event of the log that is about a window says of it."""
    return {"session": window.session, "window": window.window}


def _part_of(answer: WindowAnswer, window: Window, agent: AgentStatus | None) -> Part:
    """The part of a recorder that has sent all it has."""
    missing_ns = min(answer.has_from_ns, window.to_ns) - window.from_ns
    if answer.has_from_ns and missing_ns > SLACK_NS:
        state = PartState.PARTIAL if answer.segments_count else PartState.MISSING
        begins = f"has packets from {clock_text(answer.has_from_ns)}"
        history = agent.history if agent else None
        if history is not None and history.size_bytes < history.limit_bytes / 2:  # nothing of it was deleted
            detail, next_step = f"its history {begins.replace('has packets', 'begins with packets')}", WAIT
        else:
            detail, next_step = f"its history is too short: it {begins}", RAISE_KEEP
        return Part(is_recorder=True, state=state, detail=detail, next_step=next_step, missing_ns=missing_ns)
    detail = f"{answer.segments_count:,} segments" if answer.segments_count else "no packets in that time"
    return Part(is_recorder=True, state=PartState.HERE, detail=detail)


def _missing_part(window: Window, detail: str, next_step: str) -> Part:
    missing_ns = window.to_ns - window.from_ns
    return Part(is_recorder=True, state=PartState.MISSING, detail=detail, next_step=next_step, missing_ns=missing_ns)


def _counters(window: Window) -> Iterator[CounterInfo]:
    """A counter for each host that did not give all of its part."""
    for host, part in window.parts.items():
        if part.missing_ns:
            seconds = -(-part.missing_ns // 10**9)
            yield CounterInfo(host, PART_MISSING, Severity.DATA_LOSS, seconds, f"{part.detail}; {part.next_step}")
    yield from _only_counters(window)


def _only_counters(window: Window) -> Iterator[CounterInfo]:
    """The counter of a window that is not of all packets."""
    if window.only:
        text = f"here are only connections of {plain(window.only)}: ask for the time without it for the others"
        yield CounterInfo(None, ONLY, Severity.NOTICE, 1, text)


def clock_text(at_ns: int) -> str:
    """A time of the collector's clock in words, UTC."""
    return time.strftime("%H:%M:%S UTC", time.gmtime(at_ns // 10**9))


def _stored_window(folder: Path) -> Window | None:
    """The window that an earlier collector opened, or another one. If its trace was being made, that is done again."""
    with contextlib.suppress(OSError, ValidationError):
        window = Window.model_validate_json((folder / WINDOW_FILE).read_bytes())
        if window.state is WindowState.ANALYSING:
            window.state = WindowState.GATHERING
        return window
    return None
