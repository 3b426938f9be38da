"""A recording of several hosts: all of it at once on all hosts, one stage after the other.

1. Connect and ask (`preflight`). Hosts that are one and the same are recorded once.
2. Plan; problems are printed, each in a line. Where one stops a host, nothing is recorded, unless that is permitted.
3. Start everywhere; then the command runs, or nothing until Ctrl-C.
4. End everywhere: the hosts' inputs end, the streams run dry. A second Ctrl-C ends the connections at once.

A host that is lost meanwhile is reported when it happens; it loses its own packets from there on, and no other's. A
full disk here ends the whole recording, not the command; what was stored is kept.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from collector.remote import preflight, scripts
from collector.remote.preflight import Clock, HostFacts, Plan, Problem
from collector.remote.progress import HostFigures, lag, last_line
from collector.remote.session import Session
from collector.remote.starts import BEAT, BEAT_SECONDS, Endpoint, StartOptions, start
from collector.remote.streams import Receiver, receiver_of
from collector.remote.ways import CONNECT_SECONDS, Way
from tracer.errors import DiskFullError, ServiceError, TracerError

CLOCK_QUESTIONS = 3
"""The quickest answer of so many bounds the clock's distance best."""
END_SECONDS = 25.0
"""Longest time for the rest of a stream, after the request to end."""
UNSTOPPABLE_SECONDS = 2.0
"""The same where tcpdump cannot be asked to end."""
WATCH_SECONDS = 0.25

Say = Callable[[str], None]
Outcome = TypeVar("Outcome")


class RemoteOptions(Struct, frozen=True):
    """The operator's choices."""

    wanted: str = "auto"  # auto, agent or tcpdump
    payload: str = "heads"
    owners: str = "users"  # as --owners of `tracer capture`
    interfaces: dict[str, list[str]] = field(default_factory=dict)
    goes_on_without: bool = False  # hosts that cannot be recorded are left out


class RemoteHost(Struct):
    """A host while it is recorded."""

    way: Way
    session: Session
    facts: HostFacts = field(default_factory=HostFacts)
    clock: Clock | None = None
    plan: Plan | str = ""
    receiver: Receiver | None = None
    thread: threading.Thread | None = None
    failure: str = ""
    lag_ns: int | None = None
    most_lag_ns: int | None = None

    def figures(self, now_ns: int) -> HostFigures:
        """How far it is; notes the lag. Where nothing comes, tcpdump's is that of its last packet."""
        assert self.receiver is not None and self.thread is not None, "called while it is recorded"
        behind_ns = lag(now_ns, self.receiver.newest_host_ns(), self.clock)
        if behind_ns is not None:
            self.lag_ns, self.most_lag_ns = behind_ns, max(self.most_lag_ns or 0, behind_ns)
        return HostFigures(
            self.way.host,
            self.receiver.packets_count,
            self.receiver.dropped_count,
            self.lag_ns,
            has_ended=not self.thread.is_alive(),
        )


class Recording:
    """The hosts that are recorded into a folder, and the threads that read from them."""

    def __init__(self, hosts: Sequence[RemoteHost], folder: Path, say: Say) -> None:
        self.hosts = tuple(hosts)
        self.ended = threading.Event()
        """Set when there is nothing more to record: all hosts are lost, or the disk is full."""
        self._folder, self._say = folder, say
        self._is_ending = False
        self._figures_lock = threading.Lock()
        self._stop_watch = threading.Event()
        self._watch = threading.Thread(target=self._beat, daemon=True)

    def start(self, options: StartOptions) -> list[Problem]:
        """Start everywhere; problems of hosts that do not capture, of which none is left in `hosts`."""
        found = _on_all(self.hosts, lambda host: self._start_host(host, options))
        problems = [problem for problem in found if problem is not None]
        lost = {problem.host for problem in problems}
        self.hosts = tuple(host for host in self.hosts if host.way.host not in lost)
        for host in self.hosts:
            host.thread = threading.Thread(target=self._read, args=(host,), daemon=True)
            host.thread.start()
        self._watch.start()
        return problems

    def figures(self) -> list[HostFigures]:
        """How far each host is."""
        with self._figures_lock:
            now_ns = time.time_ns()
            return [host.figures(now_ns) for host in self.hosts]

    def end(self, hurry: threading.Event) -> None:
        """End everywhere; all that arrived is stored then. With `hurry` what is on its way is given up."""
        self._is_ending = True
        for host in self.hosts:
            host.session.close()
        began = time.monotonic()
        for host in self.hosts:
            assert host.thread is not None
            patience = UNSTOPPABLE_SECONDS if _is_unstoppable(host) else END_SECONDS
            while host.thread.is_alive() and not hurry.is_set() and time.monotonic() - began < patience:
                host.thread.join(WATCH_SECONDS)
            if host.thread.is_alive():
                if hurry.is_set():
                    host.failure = host.failure or "its end was not waited for"
                elif not _is_unstoppable(host):
                    host.failure = host.failure or f"its stream did not end within {patience:.0f} s"
                host.session.kill()
                host.thread.join()
        self._stop_watch.set()
        self._watch.join()

    def last_lines(self) -> list[str]:
        """A line for each host."""
        return [
            last_line(figures, host.most_lag_ns, host.failure)
            for host, figures in zip(self.hosts, self.figures(), strict=True)
        ]

    def _start_host(self, host: RemoteHost, options: StartOptions) -> Problem | None:
        assert isinstance(host.plan, Plan)
        host.receiver = receiver_of(host.way.host, host.facts, host.plan, options, self._folder / host.way.host)
        host.session.note_line = host.receiver.note_line  # type: ignore[method-assign]
        try:
            start(host.session, host.facts, host.plan, options)
        except ServiceError as error:
            host.receiver.finish()
            return Problem(host.way.host, error.what.removeprefix(f"{host.way.host} "), error.next_step, stops=True)
        return None

    def _read(self, host: RemoteHost) -> None:
        """Store the stream until its end; in a thread for each host."""
        assert host.receiver is not None
        try:
            for piece in host.session.stream():
                host.receiver.feed(piece)
        except DiskFullError as error:
            host.failure = str(error)
            self._say(f"{host.way.host}: {error}; the recording ends, what is stored is kept")
            self._end_all()
        except TracerError as error:
            host.failure = str(error)
            host.session.kill()
            self._say(f"{host.way.host}: {error}")
        if not self._is_ending and not host.failure:
            host.session.wait(2)
            host.failure = why_lost(host.session)
            self._say(f"{host.way.host} is lost after {host.receiver.packets_count:,} packets: {host.failure}")
        host.session.wait(2)
        try:
            host.receiver.finish()
        except TracerError as error:
            host.failure = host.failure or str(error)
        if not any(other.thread and other.thread.is_alive() for other in self.hosts if other is not host):
            self.ended.set()

    def _end_all(self) -> None:
        self._is_ending = True
        for host in self.hosts:
            host.session.close()
        self.ended.set()

    def _beat(self) -> None:
        """Let the hosts notice that we are there, and note lags."""
        next_beat = time.monotonic()
        while not self._stop_watch.wait(WATCH_SECONDS):
            self.figures()
            if time.monotonic() >= next_beat and not self._is_ending:
                next_beat = time.monotonic() + BEAT_SECONDS
                for host in self.hosts:
                    host.session.send(BEAT)


def why_lost(session: Session) -> str:
    """Why a stream ended that nobody ended."""
    said = session.last_words()
    if said.startswith("error "):
        return said.removeprefix("error ")
    status = session.process.poll()
    if session.way.kind == "ssh" and status == 255:
        return f"the connection broke ({said})" if said and not said.startswith("status ") else "the connection broke"
    return f"what captured there was ended (status {status})"


@contextmanager
def open_hosts(ways: Sequence[Way]) -> Iterator[list[RemoteHost]]:
    """Connect to all; at the end all connections are gone, and with them what runs there."""
    with ExitStack() as stack:
        hosts = []
        for way in ways:
            host = RemoteHost(way, Session(way))
            stack.callback(_put_away, host)
            hosts.append(host)
        yield hosts


def look_at(hosts: Sequence[RemoteHost], options: RemoteOptions) -> list[Problem]:
    """Ask every host and plan its capture. Problems are in the order of hosts; a host out of reach has one."""
    problems = _on_all(hosts, lambda host: _look_at_host(host, options))
    return [problem for found in problems for problem in found]


def one_of_each(hosts: Sequence[RemoteHost]) -> tuple[list[RemoteHost], list[Problem]]:
    """The hosts but those that are another by a second name; a problem for each of these."""
    first: dict[str, RemoteHost] = {}
    kept, problems = [], []
    for host in hosts:
        other = first.setdefault(host.facts.identity, host) if host.facts.identity else host
        if other is host:
            kept.append(host)
        else:
            what = f"it is the same host as {other.way.host}, and recorded as that"
            problems.append(Problem(host.way.host, what, "name it once"))
    return kept, problems


def own_connections(hosts: Sequence[RemoteHost]) -> tuple[Endpoint, ...]:
    """Our ends of all connections, as the hosts see them: none records any of them, also where one leads to another."""
    return tuple(dict.fromkeys(host.facts.client for host in hosts if host.facts.client is not None))


def _look_at_host(host: RemoteHost, options: RemoteOptions) -> list[Problem]:
    name = host.way.host
    try:
        host.facts = preflight.read_facts(host.session.ask(scripts.PROBE))
        host.clock = preflight.clock_from(_clock_answers(host.session))
    except ServiceError as error:
        host.plan = error.what
        return [Problem(name, error.what.removeprefix(f"{name} "), error.next_step, stops=True)]
    host.plan = preflight.make_plan(host.facts, options.wanted, options.interfaces.get(name, ()))
    return preflight.problems_of(name, host.facts, host.plan, host.clock)


def _clock_answers(session: Session) -> Iterator[tuple[int, int, str]]:
    for _ in range(CLOCK_QUESTIONS):
        before_ns = time.time_ns()
        lines = session.ask(scripts.CLOCK)
        yield before_ns, time.time_ns(), lines[0] if lines else ""


def _on_all(hosts: Sequence[RemoteHost], act: Callable[[RemoteHost], Outcome]) -> list[Outcome]:
    """Act on all hosts at once. An interrupt ends the connections, so that no thread is waited for."""
    with ThreadPoolExecutor(max(1, len(hosts))) as pool:
        try:
            futures = [pool.submit(act, host) for host in hosts]
            return [future.result() for future in futures]
        except BaseException:
            for host in hosts:
                host.session.kill()
            raise


def _is_unstoppable(host: RemoteHost) -> bool:
    return isinstance(host.plan, Plan) and host.plan.by_sudo and host.facts.sudo == "tcpdump"


def _put_away(host: RemoteHost) -> None:
    """End the connection. tcpdump that cannot be asked to end has lost its reader, which its next packet shows it: one
    of another connection."""
    _end_session(host.session)
    if _is_unstoppable(host) and host.receiver is not None:
        last = Session(host.way)
        last.close()
        last.wait(CONNECT_SECONDS)
        _end_session(last)


def _end_session(session: Session) -> None:
    session.close()
    if not session.wait(1):
        session.kill()
    session.release()
