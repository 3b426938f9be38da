"""What an agent may cost its host in CPU time, and what it keeps so that it costs no more.

The agent measures what its process uses, in user space and system calls, all threads together: capturing, packing,
sending. While that is above the budget it goes down a ladder, and slowly up again when there is room:

    heads whole · 1,024 bytes · 256 bytes · none · then one connection in 2, 4, 8, 16, 32, 64

Which connections are kept is decided by a hash of their ends, the same on every host, and each change is stated in the
capture (`tracer/core/capture/src/sampling.rs`), so a collector takes nothing for lost that was left out.

1. `FALL_NS` above the budget: down by one rung, or by as many as halvings are missing.
2. For `SETTLE_NS` after a change nothing is judged: what came before it is still being written and sent.
3. Below `ROOM` of the budget for as long as patience lasts: up by one rung. A rung costs at most about twice the one
   below it.
4. Patience is `PATIENCE_NS`. If it was too much to go up, it is twice as long the next time, up to `MOST_PATIENCE_NS`.

Limits: the kernel's work for the capture (copying packets into the ring) is not the process's, and not counted; with
shorter heads the kernel copies less. An agent that costs more than its budget on the last rung stays there.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tracer import _capture

SECOND_NS = 1_000_000_000
SAMPLE_NS = SECOND_NS // 2
FALL_NS = 2 * SECOND_NS
SETTLE_NS = SECOND_NS
ROOM = 0.4
PATIENCE_NS = 30 * SECOND_NS
MOST_PATIENCE_NS = 960 * SECOND_NS
HEAD_STEPS = (1024, 256, 0)
"""Bytes of a payload; whole heads are at most 4,096."""
MOST_DEPTH = 6
"""One connection in 64."""

LEAST_CPU_PERCENT, MOST_CPU_PERCENT = 0.5, 6400
"""Of one core; less is what an agent takes that captures nothing."""
OWNERS_SHARE = 0.2
"""Of the budget, to look for who owns connections."""


@dataclass(frozen=True, slots=True)
class Rung:
    """What is kept: one connection in 2^`depth`, and of heads at most `head_bytes` (None: whole)."""

    depth: int = 0
    head_bytes: int | None = None

    @property
    def one_in(self) -> int:
        """One of so many connections is kept."""
        return 1 << self.depth

    @property
    def words(self) -> str:
        """As in `1/4 of connections, no heads`."""
        share = f"1/{self.one_in} of connections" if self.depth else "all connections"
        heads = "whole heads" if self.head_bytes is None else f"{self.head_bytes:,} bytes of heads"
        return f"{share}, {heads if self.head_bytes != 0 else 'no heads'}"


def ladder(payload: str) -> tuple[Rung, ...]:
    """The rungs of a payload policy, the first of which keeps all that it allows."""
    most = _capture.payload_snaplen(payload) - _capture.payload_snaplen("none")
    heads = [None, *(step for step in HEAD_STEPS if step < most)]
    return (*(Rung(0, step) for step in heads), *(Rung(depth, heads[-1]) for depth in range(1, MOST_DEPTH + 1)))


def owners_parts(percent: float) -> int:
    """To look for owners, one part of a core in so many may be used under a budget; 0 without one."""
    return round(100 / (percent * OWNERS_SHARE)) if percent else 0


class Governor:
    """Chooses a rung from what was used; knows no clock and no process.

    Arguments: `budget`, of one core; `rungs_count` of the ladder.
    """

    def __init__(self, budget: float, rungs_count: int) -> None:
        self.budget, self._last = budget, rungs_count - 1
        self.rung = 0
        self.used: float | None = None
        """Of one core, in the last `FALL_NS`."""
        self._samples: deque[tuple[int, int]] = deque()
        self._judged_from_ns = 0
        self._patience_ns = PATIENCE_NS
        self._climbed_ns: int | None = None
        self._roomy_from_ns: int | None = None
        """Since then there was room."""

    def note(self, at_ns: int, cpu_ns: int) -> int:
        """The rung after a sample: the process had used `cpu_ns` at `at_ns`, both since any fixed time."""
        if at_ns >= self._judged_from_ns:
            self._samples.append((at_ns, cpu_ns))
            while len(self._samples) > 1 and self._samples[1][0] <= at_ns - FALL_NS:
                self._samples.popleft()
            self._judge(at_ns)
        return self.rung

    def _judge(self, at_ns: int) -> None:
        then, now = self._samples[0], self._samples[-1]
        if then[0] > at_ns - FALL_NS:
            return
        used = self.used = (now[1] - then[1]) / (now[0] - then[0])
        if used >= ROOM * self.budget:
            self._roomy_from_ns = None
        elif self._roomy_from_ns is None:
            self._roomy_from_ns = then[0]
        if used > self.budget and self.rung < self._last:
            self._fall(at_ns, used)
        elif self.rung and self._roomy_from_ns is not None and at_ns - self._roomy_from_ns >= self._patience_ns:
            self._climb(at_ns)

    def _fall(self, at_ns: int, used: float) -> None:
        too_soon = self._climbed_ns is not None and at_ns - self._climbed_ns <= self._patience_ns
        self._patience_ns = min(2 * self._patience_ns, MOST_PATIENCE_NS) if too_soon else PATIENCE_NS
        self._climbed_ns = None
        self._move(at_ns, max(1, int(math.log2(used / self.budget))))

    def _climb(self, at_ns: int) -> None:
        self._climbed_ns = at_ns
        self._move(at_ns, -1)

    def _move(self, at_ns: int, steps: int) -> None:
        self.rung = min(self.rung + steps, self._last)
        self._samples.clear()
        self._roomy_from_ns = None
        self._judged_from_ns = at_ns + SETTLE_NS


class Keeper(Protocol):
    """A running capture."""

    def keep(self, depth: int, head_bytes: int | None) -> None:
        """Keep so much of the packets that come from now on."""
        ...


class CpuBudget:
    """The budget of this process. `step` is called by the thread that captures, the rest by any.

    Arguments: `percent` of one core, 0 for no budget; `payload` policy of the capture.
    """

    def __init__(
        self,
        percent: float,
        payload: str,
        clock: Callable[[], int] = time.monotonic_ns,
        used: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self._clock, self._used = clock, used
        self._next_ns = 0
        self._settings = (percent, payload)
        self._begin()

    def follow(self, percent: float, payload: str) -> None:
        """Begin with these settings, on the first rung; nothing changes if they are the same."""
        if self._settings != (percent, payload):
            self._settings = (percent, payload)
            self._begin()

    def _begin(self) -> None:
        self.percent, payload = self._settings
        self._rungs = ladder(payload)
        self._governor = Governor(self.percent / 100, len(self._rungs))

    @property
    def rung(self) -> Rung:
        """What is kept now."""
        return self._rungs[self._governor.rung]

    @property
    def initial_share(self) -> tuple[int, int | None] | None:
        """What a capture keeps that begins now; None without a budget."""
        return (self.rung.depth, self.rung.head_bytes) if self.percent else None

    def step(self, capture: Keeper) -> list[str]:
        """Have a capture keep what the budget allows; a line for the operator on a change. To be called often."""
        now_ns = self._clock()
        if not self.percent or now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + SAMPLE_NS
        before = self.rung
        self._governor.note(now_ns, self._used())
        if self.rung == before:
            return []
        capture.keep(self.rung.depth, self.rung.head_bytes)
        used = f"{100 * (self._governor.used or 0):.1f} % of a core, the CPU budget is {self.percent:g} %"
        return [f"it uses {used}: it keeps {self.rung.words} from now on"]
