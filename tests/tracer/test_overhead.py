"""What capturing costs: runs in turns, medians of pairs with honest intervals."""

import random
import sys
from collections.abc import Iterator

import pytest

from tracer.commands.overhead import difference_line
from tracer.errors import InputError
from tracer.overhead import Costs, Difference, compare, interval_place, measure, run_command


@pytest.mark.parametrize(
    ("count", "place"), [(1, 0), (2, 0), (5, 0), (6, 0), (8, 0), (9, 1), (10, 1), (12, 2), (20, 5)]
)
def test_intervals_of_medians_are_those_of_the_tables(count: int, place: int) -> None:
    assert interval_place(count) == place


def test_an_interval_holds_the_true_median_19_times_of_20() -> None:
    chance, held = random.Random(7), 0
    for _ in range(2_000):
        pairs = [(1.0, 1.0 + chance.gauss(0.5, 0.2)) for _ in range(11)]
        found = compare(pairs)
        held += found.low <= 0.5 <= found.high
    assert 0.95 <= held / 2_000 < 0.995


def test_pairs_are_compared_and_not_the_medians_of_each_side() -> None:
    found = compare([(1.0, 1.1), (5.0, 5.1), (9.0, 9.1)])
    assert (found.without, found.with_agent) == (5.0, 5.1)
    assert found.median == pytest.approx(0.1)
    assert found.is_visible
    assert not compare([(1.0, 1.1), (1.0, 0.9)]).is_visible


def test_runs_are_in_turns_in_changing_order_after_one_that_does_not_count() -> None:
    said: list[str] = []
    order: list[str] = []
    seconds: Iterator[int] = iter(range(100))

    def run(kind: str) -> Costs:
        order.append(kind)
        return Costs(float(next(seconds)), 0.0, 0.0)

    found = measure(3, lambda: run("-"), lambda: run("agent"), said.append)
    assert order == ["-", "-", "agent", "agent", "-", "-", "agent"]
    assert [(without.elapsed_s, agent.elapsed_s) for without, agent in found] == [(1, 2), (4, 3), (5, 6)]
    assert len(said) == 4


def test_a_command_is_measured_with_its_children_and_must_succeed() -> None:
    burn = "sum(n * n for n in range(300_000))"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    costs = run_command([sys.executable, "-c", child])
    assert costs.cpu_s > 0
    assert costs.elapsed_s > 0
    with pytest.raises(InputError, match="ended with status 3"):
        run_command([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(InputError, match="cannot be run: No such file"):
        run_command(["no-such-command"])


def test_words() -> None:
    seen = difference_line("time", Difference(2.0, 2.1, 0.1, 0.05, 0.2))
    assert seen == "time: 2.000 s without, 2.100 s with an agent: +5.0 % (+2.5 to +10.0 %, 95 %)"
    assert difference_line("time", Difference(2.0, 2.0, 0.0, -0.1, 0.1)).endswith("so no difference can be seen")
