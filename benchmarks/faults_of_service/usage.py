"""What the parts cost during the run: memory and CPU time of each, looked at every few seconds."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.agent_cpu import cpu_ns
from benchmarks.faults_of_service.parts import Part
from benchmarks.faults_of_service.service import Service

PAUSE_S = 5.0
YOUNG_S = 20.0
"""A part that was started less long ago is left out: what a start costs is no trend."""
QUARTERS = 4
TICK_S = 0.02
STANDSTILL_S = 0.25
"""A thread that sleeps for a tick and wakes so much later could not run, as no packet could be received."""


@dataclass(frozen=True)
class Look:
    """At one process: when (s since the run began), its memory, and its share of a processor since the look before."""

    at_s: float
    memory_mib: float
    cpu_share: float


@dataclass
class Usage:
    """Looks at all parts until `end`."""

    service: Service
    looks: dict[str, list[Look]] = field(default_factory=dict)
    standstills: list[str] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `end`."""
        begin, before = time.time(), dict[str, tuple[int, float, int]]()
        while not self._ending.wait(PAUSE_S):
            for name, part in self.service.parts.items():
                with contextlib.suppress(OSError, IndexError, ValueError):  # it ended just now
                    self._look(name, part, begin, before)

    def watch_for_standstills(self) -> None:
        """Until `end`: note when this thread, which only sleeps, did not run."""
        begin_s, before_s = time.time(), time.monotonic()
        while not self._ending.wait(TICK_S):
            now_s = time.monotonic()
            if now_s - before_s - TICK_S > STANDSTILL_S:
                self.standstills.append(
                    f"{now_s - before_s:.2f} s, until {time.time() - begin_s:.1f} s ({time.time():.3f})"
                )
            before_s = now_s

    def end(self) -> None:
        """Stop looking."""
        self._ending.set()

    def rows(self) -> Iterator[str]:
        """A row for each kind of part: the medians of each quarter of the run."""
        for kind in ("collector", "viewer", "agent"):
            looks = [look for name, those in self.looks.items() if name.startswith(kind) for look in those]
            if looks:
                quarters = [_quarter(looks, number) for number in range(QUARTERS)]
                yield f"| {kind} | {' | '.join(quarters)} |"

    def _look(self, name: str, part: Part, begin: float, before: dict[str, tuple[int, float, int]]) -> None:
        if not part.is_up or part.process is None or not part.lives:
            return
        pid, now = part.process.pid, time.time()
        spent_ns = cpu_ns(pid)
        earlier = before.get(name)
        before[name] = (pid, now, spent_ns)
        if earlier is None or earlier[0] != pid or now - part.lives[-1].ready < YOUNG_S:
            return
        share = (spent_ns - earlier[2]) / 1e9 / (now - earlier[1])
        self.looks.setdefault(name, []).append(Look(now - begin, _memory_mib(pid), share))


def _quarter(looks: list[Look], number: int) -> str:
    longest = max(look.at_s for look in looks)
    inside = [look for look in looks if number <= look.at_s / longest * QUARTERS < number + 1]
    if not inside:
        return "none"
    memory, share = median(look.memory_mib for look in inside), median(look.cpu_share for look in inside)
    return f"{memory:,.0f} MiB, {share:.1%}"


def _memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)
