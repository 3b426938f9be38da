"""What an agent keeps under a CPU budget, from what it used; and that hosts agree on connections."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tracer import _capture
from tracer.cpu_budget import (
    FALL_NS,
    MOST_DEPTH,
    PATIENCE_NS,
    SAMPLE_NS,
    SECOND_NS,
    SETTLE_NS,
    CpuBudget,
    Governor,
    Rung,
    ladder,
    owners_parts,
)

BUDGET = 0.05
LADDER = ladder("heads")
HEADS_STEPS_COUNT = 3


@dataclass
class Machine:
    """A process whose use depends on its rung. `changes`: (time, rung) of each."""

    governor: Governor
    used: Callable[[int], float]
    at_ns: int = 0
    cpu_ns: float = 0
    changes: list[tuple[int, int]] = field(default_factory=list)

    def run(self, seconds: float) -> int:
        """The rung afterwards."""
        for _ in range(round(seconds * SECOND_NS / SAMPLE_NS)):
            before = self.governor.rung
            self.at_ns += SAMPLE_NS
            self.cpu_ns += self.used(before) * SAMPLE_NS
            if self.governor.note(self.at_ns, round(self.cpu_ns)) != before:
                self.changes.append((self.at_ns, self.governor.rung))
        return self.governor.rung


def machine(used: Callable[[int], float]) -> Machine:
    return Machine(Governor(BUDGET, len(LADDER)), used)


def halving(full: float, base: float = 0.002) -> Callable[[int], float]:
    """Each rung costs half of the one before."""
    return lambda rung: base + full / 2**rung


def test_the_ladder_shortens_heads_and_then_samples() -> None:
    assert [(rung.one_in, rung.head_bytes) for rung in LADDER] == [
        (1, None), (1, 1024), (1, 256), (1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (32, 0), (64, 0),
    ]  # fmt: skip
    assert [rung.head_bytes for rung in ladder("none")] == [None] * (MOST_DEPTH + 1)
    assert [rung.head_bytes for rung in ladder("300")][:3] == [None, 256, 0]
    assert Rung(2, 0).words == "1/4 of connections, no heads"
    assert Rung().words == "all connections, whole heads"


def test_below_the_budget_nothing_changes() -> None:
    assert machine(lambda _: 0.049).run(3600) == 0


def test_a_peak_that_does_not_last_changes_nothing() -> None:
    busy = machine(lambda _: 0.0)
    busy.used = lambda _: 0.09 if busy.at_ns % (10 * SECOND_NS) < SECOND_NS else 0.001
    assert busy.run(600) == 0


def test_it_goes_down_until_it_fits_and_says_when() -> None:
    busy = machine(halving(0.09))
    assert busy.run(60) == 1
    assert busy.changes == [(FALL_NS + SAMPLE_NS, 1)]
    assert busy.governor.used is not None
    assert busy.governor.used < BUDGET


def test_far_above_the_budget_it_takes_several_rungs_at_once() -> None:
    busy = machine(halving(1.0))
    busy.run(FALL_NS / SECOND_NS + 0.5)
    assert busy.governor.rung == 4
    assert busy.run(10) == 5


def test_between_two_changes_it_waits_for_the_first_to_show() -> None:
    busy = machine(lambda _: 0.06)
    busy.run(60)
    times = [at for at, _ in busy.changes]
    assert all(later - at >= SETTLE_NS + FALL_NS for at, later in pairwise(times))
    assert busy.governor.rung == len(LADDER) - 1, "the last rung, though it does not help"


def test_it_goes_up_slowly_when_there_is_room() -> None:
    busy = machine(halving(2.0))
    low = busy.run(30)
    busy.used = lambda _: 0.001
    busy.run(PATIENCE_NS / SECOND_NS - 5)
    assert busy.governor.rung == low
    busy.run(PATIENCE_NS / SECOND_NS * 2)
    assert busy.governor.rung == low - 2
    assert busy.run(1000) == 0


def test_it_does_not_go_up_and_down_all_the_time() -> None:
    """On the lower of two rungs there seems to be room, on the upper there is none."""
    busy = machine(lambda rung: 0.08 if rung < 4 else 0.01)
    busy.run(3600)
    ups = [at for (at, rung), (_, before) in zip(busy.changes[1:], busy.changes, strict=False) if rung < before]
    waits = [later - at for at, later in pairwise(ups)]
    assert 3 <= len(ups) <= 8
    assert waits == sorted(waits)


@dataclass
class Keeper:
    kept: list[tuple[int, int | None]] = field(default_factory=list)

    def keep(self, depth: int, head_bytes: int | None) -> None:
        self.kept.append((depth, head_bytes))


def test_a_capture_keeps_less_with_a_line_for_the_operator_and_new_settings_begin_anew() -> None:
    now = [0]
    keeper, budget = Keeper(), CpuBudget(5, "heads", clock=lambda: now[0], used=lambda: now[0] // 5)
    lines = []
    for now[0] in range(0, 4 * SECOND_NS, SAMPLE_NS // 10):
        lines += budget.step(keeper)
    assert keeper.kept == [(0, 256)]
    assert lines == [
        "it uses 20.0 % of a core, the CPU budget is 5 %: it keeps all connections, 256 bytes of heads from now on"
    ]
    assert budget.initial_share == (0, 256)
    budget.follow(5, "heads")
    assert budget.initial_share == (0, 256)
    budget.follow(5, "none")
    assert budget.initial_share == (0, None)
    unbounded = CpuBudget(0, "heads", clock=lambda: now[0], used=lambda: now[0])
    assert (unbounded.initial_share, unbounded.step(keeper), len(keeper.kept)) == (None, [], 1)


@pytest.mark.parametrize(("percent", "parts"), [(0, 0), (5, 100), (50, 10)])
def test_looking_for_owners_takes_a_fifth_of_the_budget(percent: float, parts: int) -> None:
    assert owners_parts(percent) == parts


def test_both_ends_and_all_forms_of_an_address_have_one_depth() -> None:
    ends = [("10.0.0.1", 40_000 + port, "192.168.7.9", 443) for port in range(1_000)]
    there = _capture.sampling_depths(ends)
    back = _capture.sampling_depths([(server, its_port, client, port) for client, port, server, its_port in ends])
    mapped = _capture.sampling_depths(
        [(f"::ffff:{client}", port, f"::ffff:{server}", its_port) for client, port, server, its_port in ends]
    )
    assert there == back == mapped
    for depth in range(1, 4):
        assert abs(sum(each >= depth for each in there) - 1_000 / 2**depth) < 60
