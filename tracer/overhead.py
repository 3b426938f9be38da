"""What capturing costs a command: it is run in turns with and without an agent on this host, and compared pair by pair.

1. The command runs once, not counted: what it warms up (caches, connections) is warm for all.
2. Then in pairs, one run with an agent and one without, in changing order, so that what drifts meanwhile (a cache that
   fills, a clock speed) does not count for one side.
3. Of each pair the difference is taken; the answer is their median, with an interval of 95 % from the order of the
   differences alone: nothing is assumed of how they are distributed.

Measured are the command's time, its own CPU time with its children's, and how busy the machine was meanwhile: what the
kernel spends on copying packets to the agent is in none of both processes. Of the agent: its CPU time while the command
runs, packets and drops.
Limits: the agent writes to a temporary folder instead of sending. Where other work runs on the machine, the interval
shows it. Of fewer than six pairs the interval would be one of less than 95 %.
Source: the interval of a median from order statistics; H. A. David, H. N. Nagaraja: Order Statistics, 7.1.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median

from tracer.errors import InputError, ServiceError
from tracer.private_files import operators_umask

TRACER = (sys.executable, "-P", "-m", "tracer")
START_SECONDS = 30
READY = ": capturing on "
CONFIDENCE = 0.95
_PACKETS = re.compile(r"([\d,]+) packets")
_DROPPED = re.compile(r"([\d,]+) dropped")


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one run of the command, in s. `busy_s`, CPU time of the whole machine."""

    elapsed_s: float
    cpu_s: float
    busy_s: float


@dataclass(frozen=True, slots=True)
class AgentCosts:
    """Of the agents of all runs."""

    cpu_s: float = 0.0
    packets_count: int = 0
    dropped_count: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """Medians of a quantity without and with an agent, and the median difference of the pairs with its interval."""

    without: float
    with_agent: float
    median: float
    low: float
    high: float

    @property
    def is_visible(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def compare(pairs: Sequence[tuple[float, float]]) -> Difference:
    """The difference that pairs (without, with) show."""
    differences = sorted(with_agent - without for without, with_agent in pairs)
    place = interval_place(len(differences))
    return Difference(
        median(without for without, _ in pairs),
        median(with_agent for _, with_agent in pairs),
        median(differences),
        differences[place],
        differences[-1 - place],
    )


def interval_place(count: int) -> int:
    """How many of the smallest, and of the largest, of so many values lie outside an interval of the median."""
    place, outside = 0, 0.0
    while place < count // 2:
        outside += 2 * comb(count, place) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        place += 1
    return max(0, place - 1)


def measure(
    times: int, run: Callable[[], Costs], run_with_agent: Callable[[], Costs], say: Callable[[str], None]
) -> list[tuple[Costs, Costs]]:
    """Run in turns; the pairs (without, with)."""
    say("warming up: one run that does not count")
    run()
    found = []
    for number in range(times):
        if number % 2:
            with_agent, without = run_with_agent(), run()
        else:
            without, with_agent = run(), run_with_agent()
        found.append((without, with_agent))
        say(f"{number + 1} of {times}: {without.elapsed_s:.3f} s without, {with_agent.elapsed_s:.3f} s with an agent")
    return found


def run_command(argv: Sequence[str]) -> Costs:
    """Run the command once. Raises: InputError if there is none, or if it fails."""
    busy_s, begun = _busy_s(), time.perf_counter()
    try:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, umask=operators_umask())
    except OSError as error:
        raise InputError(f"{argv[0]} cannot be run: {error.strerror}", "check its name, or give its path") from None
    _, status, usage = os.wait4(process.pid, 0)
    elapsed_s = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        what = f"{argv[0]} ended with status {process.returncode}"
        raise InputError(what, "give a command that succeeds each time, and whose runs are alike")
    return Costs(elapsed_s, usage.ru_utime + usage.ru_stime, _busy_s() - busy_s)


class AgentRuns:
    """Runs the command beside an agent, and sums up what the agents cost. Arguments: options of `tracer capture`."""

    def __init__(self, argv: Sequence[str], options: Sequence[str]) -> None:
        self._argv, self._options = argv, options
        self.costs = AgentCosts()

    def run(self) -> Costs:
        """Run the command once. Raises: InputError; ServiceError if the agent does not start."""
        with tempfile.TemporaryDirectory(prefix="twintap-overhead-") as folder, self._agent(Path(folder)):
            return run_command(self._argv)

    @contextmanager
    def _agent(self, folder: Path) -> Iterator[None]:
        """Within it an agent captures."""
        argv = [*TRACER, "capture", *self._options, "--host", "overhead", "--write", str(folder)]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            said = ""
            for line in process.stderr:
                said = line
                if READY in line:
                    break
            else:
                process.wait()
                raise ServiceError(f"the agent did not start: {said.removeprefix('tracer: ').strip()}")
            begun_s = _cpu_s(process.pid)
            yield
            cpu_s = _cpu_s(process.pid) - begun_s
            process.send_signal(signal.SIGTERM)
            self._add(cpu_s, process.stderr.read())
        finally:
            process.terminate()
            process.stderr.close()
            process.wait()

    def _add(self, cpu_s: float, said: str) -> None:
        packets, dropped = _PACKETS.search(said), _DROPPED.search(said)
        self.costs = AgentCosts(
            self.costs.cpu_s + cpu_s,
            self.costs.packets_count + _count(packets),
            self.costs.dropped_count + _count(dropped),
        )


def _count(found: re.Match[str] | None) -> int:
    return int(found[1].replace(",", "")) if found else 0


def _cpu_s(pid: int) -> float:
    """CPU time of all threads of a process so far. Source: Documentation/scheduler/sched-stats.rst."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _busy_s() -> float:
    """CPU time of the machine that was not idle. Source: proc_stat(5)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return float(sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
