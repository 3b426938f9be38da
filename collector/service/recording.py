"""Captures on all hosts of the running cluster while a command runs on its client host: `perf record` for a cluster.

The cluster is described only by the output of `tracer cluster status --json`, so any set of hosts with the same output
can be recorded. An agent is `tracer capture` on its host. Beside the agents runs the cluster's own sampler, if it names
one, which records every host's usage. Each of them ends on request, or when this process has ended (its standard input
is closed), so that none is left behind.

The command's times are read from this machine's clock just before and after its process. Hosts of a cluster on one
machine have the same clock, or one with a known error; then the times are corrected to the client's clock. They include
entering the host (`nsenter`, about a millisecond).
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from collector.decode.sources import SAMPLES_FILE
from collector.trace.model import CommandInfo
from tracer.agent import SkewedClock
from tracer.errors import InputError, ServiceError
from tracer.interrupts import defer_interrupts
from tracer.plain_text import plain
from tracer.private_files import operators_umask
from tracer.secret_rules import argv_without_secrets, options_in_force

TRACER = (sys.executable, "-P", "-m", "tracer")
"""Runs a `tracer` command of this installation."""

START_SECONDS = 30
"""Longest time for an agent to start; it takes about a fifth of a second, more on a busy machine."""

SAMPLE_SECONDS = 0.5
"""Interval of usage samples; a sample takes a few milliseconds of CPU time."""

STOP_SECONDS = 30
"""Longest time for an agent to write its remaining packets; it takes about a fifth of a second."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

READY = ("tracer: capturing on ", "tracer: sampling into ")
"""Beginnings of the lines by which an agent reports that it captures, and the sampler that it has started."""


@dataclass(frozen=True, slots=True)
class ClusterHost:
    """One host: how to run a command there, and what to capture."""

    host: str
    interfaces: tuple[str, ...]
    enter: tuple[str, ...]
    clock_error: SkewedClock = field(default_factory=SkewedClock)  # that the cluster pretends its clock to have


@dataclass(frozen=True, slots=True)
class Cluster:
    """The running cluster. `environment` is for commands on the client host; `sampler` notes what the hosts use."""

    client_host: str
    environment: dict[str, str]
    hosts: tuple[ClusterHost, ...]
    sampler: tuple[str, ...] = ()

    def host(self, name: str) -> ClusterHost:
        """Return one host. Raises: InputError that lists the hosts if there is none of that name."""
        for host in self.hosts:
            if host.host == name:
                return host
        raise InputError(f"no host {name} in the cluster", f"there are: {', '.join(h.host for h in self.hosts)}")


@dataclass(slots=True)
class Agent:
    """A running `tracer capture`, or the sampler, and the lines it has printed."""

    host: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    spoke: threading.Event = field(default_factory=threading.Event)  # it captures, or it has ended
    stop_requested: bool = False

    def read(self) -> None:
        """Collect its lines until it ends; run in a thread of its own."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if line.startswith(READY):
                self.spoke.set()
        self.spoke.set()

    def captures(self) -> bool:
        """Whether it said that it captures."""
        return any(line.startswith(READY) for line in self.lines)

    def stop(self) -> None:
        """Ask it to write what it has and end. Asked once only: a second SIGTERM would cut its end short."""
        if not self.stop_requested:
            self.stop_requested = True
            self.process.send_signal(signal.SIGTERM)

    def notices(self) -> list[str]:
        """What it said between its first line and its last."""
        return [line.removeprefix("tracer: ") for line in self.lines[:-1] if not line.startswith(READY)]

    def last_line(self) -> str:
        """What it said last, without our own name before it."""
        return self.lines[-1].removeprefix("tracer: ") if self.lines else "it printed nothing"


def find_cluster() -> Cluster:
    """Return the running cluster. Raises: ServiceError if there is none."""
    done = subprocess.run([*TRACER, "cluster", "status", "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = done.stderr.strip().removeprefix("tracer: ") or "no cluster is running"
        raise ServiceError(message.splitlines()[-1], "" if ";" in message else "run: tracer cluster up")
    found = json.loads(done.stdout)
    hosts = (
        ClusterHost(
            host["host"], tuple(host["interfaces"]), tuple(host["enter"]), SkewedClock(**(host.get("clock") or {}))
        )
        for host in found["hosts"]
    )
    return Cluster(found["client_host"], found["environment"], tuple(hosts), tuple(found.get("sampler", ())))


def find_program(argv: Sequence[str]) -> dict[str, str]:
    """Return the environment in which the command is found: ours, and the programs installed beside this interpreter.

    Raises: InputError if there is no such command.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    if shutil.which(argv[0], path=path) is None:
        raise InputError(f"command not found: {argv[0]}", "check its name, or give its path")
    return os.environ | {"PATH": path}


@dataclass(frozen=True, slots=True)
class Recording:
    """What ran, and what the agents said: `summaries` at their end, `notices` on the way, `failures` of those that
    ended by themselves. Each line begins with the host, a notice with all that give it."""

    command: CommandInfo
    summaries: tuple[str, ...]
    notices: tuple[str, ...]
    failures: tuple[str, ...]


def record(cluster: Cluster, host_names: Sequence[str], argv: Sequence[str], folder: Path) -> Recording:
    """Run a command on the client host while the named hosts (all, if none is named) are captured into `folder`.

    Raises: InputError for an unknown host or command; ServiceError if an agent does not start.
    """
    environment = find_program(argv) | cluster.environment
    client = cluster.host(cluster.client_host)
    hosts = [cluster.host(name) for name in dict.fromkeys(host_names)] or list(cluster.hosts)
    with capture_hosts(hosts, folder) as agents, _sample_usage(cluster.sampler, folder / SAMPLES_FILE) as not_sampled:
        command = run_command(client, argv, environment)
    last = [(agent.process.returncode, f"{agent.host}: {agent.last_line()}") for agent in agents]
    return Recording(
        command,
        summaries=tuple(line for status, line in last if status == 0),
        notices=(*not_sampled, *_by_text({agent.host: agent.notices() for agent in agents})),
        failures=tuple(line for status, line in last if status != 0),
    )


def _by_text(notices: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Each notice once, behind the names of the hosts that give it."""
    hosts: dict[str, list[str]] = {}
    for host, lines in notices.items():
        for line in dict.fromkeys(lines):
            hosts.setdefault(line, []).append(host)
    return (f"{', '.join(those)}: {line}" for line, those in hosts.items())


@contextmanager
def capture_hosts(hosts: Sequence[ClusterHost], folder: Path) -> Iterator[list[Agent]]:
    """Within it every host is captured into `folder`; at its end all segments are written."""
    with ExitStack() as stack:
        agents = [stack.enter_context(_agent(host, folder)) for host in hosts]
        for agent in agents:
            _wait_until_capturing(agent)
        yield agents
        for agent in agents:
            agent.stop()


def run_command(client: ClusterHost, argv: Sequence[str], environment: dict[str, str]) -> CommandInfo:
    """Run a command on the client host with our standard streams; Ctrl-C and SIGTERM are the command's to answer."""
    with _signals_for_command() as pass_to:
        started_ns = client.clock_error.stamp(time.time_ns())
        process = subprocess.Popen(
            [*client.enter, *argv],
            env=environment,
            umask=operators_umask(),
            preexec_fn=_end_with_parent,  # noqa: PLW1509  the threads here hold no lock that it takes
        )
        pass_to(process)
        status = process.wait()
        ended_ns = client.clock_error.stamp(time.time_ns())
    return CommandInfo(
        argv_without_secrets(tuple(map(plain, argv))),
        client.host,
        started_ns,
        ended_ns,
        status if status >= 0 else 128 - status,
    )


def _end_with_parent() -> None:
    """In a child: it is asked to end when this process is gone, however it went. Source: prctl(2), PR_SET_PDEATHSIG."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


@contextmanager
def _agent(host: ClusterHost, folder: Path) -> Iterator[Agent]:
    interfaces = [argument for name in host.interfaces for argument in ("-i", name)]
    options = ["--host", host.host, "--write", str(folder), "--until-eof", *options_in_force()]
    if host.clock_error != SkewedClock():
        parts = asdict(host.clock_error).items()
        options += ["--clock-error", ",".join(f"{name}={value}" for name, value in parts)]
    with _run_program(host.host, [*host.enter, *TRACER, "capture", *interfaces, *options]) as agent:
        yield agent


@contextmanager
def _sample_usage(sampler: Sequence[str], file: Path) -> Iterator[list[str]]:
    """Within it what the hosts use is noted in `file`. Yields why not, which is known at the end."""
    trouble: list[str] = []
    if not sampler:
        yield trouble
        return
    with _run_program(
        "sampler", [*sampler, "-o", str(file), "--interval", str(SAMPLE_SECONDS), "--until-eof"]
    ) as running:
        running.spoke.wait(START_SECONDS)
        yield trouble
    if running.process.returncode != 0 or not running.captures():
        trouble.append(f"what the hosts used is not known: {running.last_line()}")


@contextmanager
def _run_program(name: str, argv: Sequence[str]) -> Iterator[Agent]:
    """A context in which the program runs; at its end the program is stopped."""
    with ExitStack() as stack:
        with defer_interrupts():  # else a program that was just started would not be known, and go on
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C at the terminal is for the command; the agents still see it end
            )
            agent = Agent(name, process)
            reader = threading.Thread(target=agent.read, daemon=True)
            reader.start()
            stack.callback(_end, agent, reader)
        yield agent


def _end(agent: Agent, reader: threading.Thread) -> None:
    """Have it write what it has, and end."""
    agent.stop()
    try:
        agent.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        agent.process.kill()
        agent.process.wait()
    reader.join()
    for stream in (agent.process.stdin, agent.process.stderr):
        if stream is not None:
            stream.close()


def _wait_until_capturing(agent: Agent) -> None:
    if not agent.spoke.wait(START_SECONDS):
        raise ServiceError(f"the agent on {agent.host} does not start", f"it said: {agent.last_line()}")
    if not agent.captures():
        raise ServiceError(f"the agent on {agent.host} did not start: {agent.last_line()}")


@contextmanager
def _signals_for_command() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Within it SIGINT is left to the command, which the terminal sends it too, and SIGTERM is passed on to it.

    Yields a function to name the command's process. Signals are caught from before it starts, so none is missed.
    """
    processes: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if not processes:
            early.append(number)
        for process in processes:
            process.send_signal(number)

    def pass_to(process: subprocess.Popen[bytes]) -> None:
        processes.append(process)
        for number in early:
            process.send_signal(number)

    earlier = signal.signal(signal.SIGINT, lambda *_: None), signal.signal(signal.SIGTERM, pass_on)
    try:
        yield pass_to
    finally:
        signal.signal(signal.SIGINT, earlier[0])
        signal.signal(signal.SIGTERM, earlier[1])
