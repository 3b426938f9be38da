"""Triggers: conditions over the live traces of all sessions, and calls from outside, each of which opens a window.

1. After each live round of a session, every condition is evaluated on its trace, in a thread of its own.
2. One that is met opens a window from `before_ns` before to `after_ns` after the moment (`collector.service.windows`).
3. Then the trigger holds off, for that session: it neither fires again, nor later for what ended meanwhile.

Of a flight recorder, a live trace is a sample. A trigger has at most `most_windows` windows, so that it cannot fill the
disk; `DELETE /api/sessions/WINDOW` makes room.
Limit: what ended before the collector was started fires nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from collector.queries.trace_view import TraceView, open_trace
from collector.service.agents import Agents, AgentStatus
from collector.service.background import Background
from collector.service.boundary import contain_failures
from collector.service.live import LiveAnalysis
from collector.service.request_search import collector_ns
from collector.service.trigger_rules import Condition, evaluate
from collector.service.trigger_settings import TriggerSettings
from collector.service.windows import Window, Windows
from tracer.errors import InputError, TracerError
from tracer.segments import check_name

STEP_SECONDS = 1.0
"""Between two looks at what is new; one takes about 0.1 s of CPU time for each session with a new live trace."""
log = logging.getLogger("twintap.collector")


@dataclass(frozen=True, slots=True)
class TriggerStatus:
    """How a trigger stands. Times in ns by the collector's clock; 0 = never."""

    trigger: str  # its condition, or the name by which it was called from outside
    from_outside: bool
    evaluated_ns: int
    fired_ns: int
    windows_count: int
    problem: str  # why it is not evaluated, or does not fire


@dataclass(slots=True)
class _Trigger:
    name: str
    condition: Condition | None = None  # None: it is called from outside
    evaluated_ns: int = 0
    fired_ns: dict[str, int] = field(default_factory=dict)  # by session
    problem: str = ""


class Triggers:
    """All triggers of a collector; safe to call from several threads."""

    def __init__(
        self,
        settings: TriggerSettings,
        agents: Agents,
        windows: Windows,
        live: LiveAnalysis,
        *,
        open_view: Callable[[str], TraceView] = open_trace,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._settings, self._agents, self._windows, self._live = settings, agents, windows, live
        self._open_view, self._clock = open_view, clock
        self._lock = threading.Lock()
        self._triggers = {each.text: _Trigger(each.text, each) for each in settings.conditions}
        self._made_ns: dict[str, int] = {}
        self._started_ns = clock()
        self._background = Background("triggers", STEP_SECONDS, self.step)

    def start(self) -> None:
        """Begin to work, if there is a condition."""
        if self._settings.conditions:
            self._background.start()

    def stop(self) -> None:
        """End after the trace that is being looked at."""
        self._background.stop()

    def status(self) -> list[TriggerStatus]:
        """How each trigger stands."""
        with self._lock:
            triggers = list(self._triggers.values())
        return [self._status_of(each) for each in triggers]

    def call(self, name: str, session: str | None, reason: str) -> list[Window]:
        """Fire a trigger from outside, for a session, or all of which an agent captures; the windows it opened.

        Raises: InputError for what is no name, or if there is no such session.
        """
        check_name("trigger", name)
        capturing = {each.session for each in self._agents.status() if each.state == "capturing"}
        if session is not None and session not in capturing:
            raise InputError(f"no agent captures for session {session}", "GET /api/agents lists them")
        with self._lock:
            trigger = self._triggers.setdefault(name, _Trigger(name))
        if trigger.condition is not None:
            raise InputError(f"{name} is a condition of --trigger", "give another name")
        sessions = sorted(capturing) if session is None else [session]
        fired = (self._fire(trigger, each, self._clock(), reason or f"called as {name}") for each in sessions)
        return [window for window in fired if window is not None]

    def step(self) -> None:
        """Evaluate all conditions on the live traces that are new."""
        agents = self._agents.status()
        for session in sorted({each.session for each in agents}):
            status = self._live.status(session)
            if not status.made_ns or self._made_ns.get(session) == status.made_ns:
                continue
            self._made_ns[session] = status.made_ns
            of_session = [each for each in agents if each.session == session]
            try:
                contain_failures(session, lambda: self._evaluate(session, status.trace, of_session))  # noqa: B023
            except TracerError as error:
                self._note_problem(str(error))

    def _status_of(self, trigger: _Trigger) -> TriggerStatus:
        count, problem = len(self._windows_of(trigger)), trigger.problem
        if count >= self._settings.most_windows:
            problem = f"{count:,} of its windows are kept, so it does not fire: delete some, or raise --trigger-most"
        fired_ns = max(trigger.fired_ns.values(), default=0)
        return TriggerStatus(trigger.name, trigger.condition is None, trigger.evaluated_ns, fired_ns, count, problem)

    def _evaluate(self, session: str, url: str, agents: list[AgentStatus]) -> None:
        """Evaluate all conditions on the live trace of a session."""
        try:
            trace = self._open_view(url)
        except InputError:  # it was replaced just now; the next one is looked at
            return
        zero_ns = collector_ns(trace, 0, agents)
        for trigger in self._of_conditions():
            quiet_until_ns = self._quiet_until_ns(trigger, session)
            try:
                met = evaluate(trigger.condition, trace, quiet_until_ns - zero_ns) if trigger.condition else None
            except InputError:
                return
            trigger.evaluated_ns, trigger.problem = self._clock(), ""
            if met is not None and self._clock() >= quiet_until_ns:
                at_ns = self._clock() if met.at_ns is None else zero_ns + met.at_ns
                self._fire(trigger, session, at_ns, met.reason)

    def _fire(self, trigger: _Trigger, session: str, at_ns: int, reason: str) -> Window | None:
        """Open a window; None while the trigger holds off, or has too many windows."""
        now_ns = self._clock()
        with self._lock:
            if now_ns < self._quiet_until_ns(trigger, session):
                return None
            if len(self._windows_of(trigger)) >= self._settings.most_windows:
                return None
            trigger.fired_ns[session] = now_ns
        from_ns, to_ns = at_ns - self._settings.before_ns, max(at_ns, now_ns) + self._settings.after_ns
        try:
            window = self._windows.open(session, from_ns, to_ns, reason, trigger.name)
        except TracerError as error:
            trigger.problem = str(error)
            return None
        fields = {"session": session, "window": window.window, "trigger": trigger.name}
        log.warning("trigger fired for session %s: %s; window %s", session, reason, window.window, extra=fields)
        return window

    def _quiet_until_ns(self, trigger: _Trigger, session: str) -> int:
        opened = [each.opened_ns for each in self._windows_of(trigger) if each.session == session]  # also by others
        fired_ns = max([*opened, *filter(None, [trigger.fired_ns.get(session)])], default=None)
        return self._started_ns if fired_ns is None else fired_ns + self._settings.hold_off_ns

    def _windows_of(self, trigger: _Trigger) -> list[Window]:
        return [each for each in self._windows.all() if each.trigger == trigger.name]

    def _of_conditions(self) -> Iterator[_Trigger]:
        return (each for each in list(self._triggers.values()) if each.condition is not None)

    def _note_problem(self, problem: str) -> None:
        for trigger in self._of_conditions():
            trigger.problem = problem
