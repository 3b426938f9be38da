"""The likely error of clocks: it holds for 95 % of captures, says less than the bound where it can, and never more."""

import numpy as np
import pytest
import scipy

from benchmarks.likely_error import errors_of
from collector.clocks.alignment import Alignment, align, share_clocks
from collector.clocks.evidence import ways_of
from collector.clocks.likely import SAMPLES, Line, PacketsBetween, draws, likely_errors, likely_with_ticks, side_of
from collector.clocks.solve import solve
from testkit.clock_paths import SCENARIOS, Scenario, short_queues
from testkit.clock_traffic import OneWay, SkewedClock, simulate_hops, simulate_ways

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
DRAWN = (
    *("short queues", "queues never empty", "one way never empty, the other short", "steps of 50 ms"),
    *("one queue that all packets share, at 80 % load", "stamps in whole microseconds", "ring of four hosts"),
)
DRAWS = 20
KNOTS_S = np.linspace(0.0, 1.0, 5)
BOUND_NS = np.full(5, 20_000.0)
LEVEL = Line(0.0, 0.0)


def test_the_likely_error_holds_for_95_percent_of_captures_and_half_of_it_would_not() -> None:
    drawn = [(BY_NAME[name], 100 * place + draw) for place, name in enumerate(DRAWN) for draw in range(DRAWS)]
    errors = [errors_of(scenario.draw(seed), scenario.tick_ns) for scenario, seed in drawn]
    assert np.mean([each.covered_share() for each in errors]) >= 0.95
    assert np.mean([each.covered_share(0.5) for each in errors]) < 0.9, "not so wide that it says nothing"
    assert all(each.bounded_share() == 1.0 for each in errors)
    assert all((each.likely_ns <= each.bound_ns).all() for each in errors)


def test_it_says_much_less_than_the_bound_where_packets_show_more() -> None:
    errors = [errors_of(BY_NAME["short queues"].draw(seed)) for seed in range(8)]
    assert np.median([np.median(each.likely_ns / each.bound_ns) for each in errors]) < 0.2


@pytest.mark.parametrize("name", ["2 to 10 packets each way, heavy tails", "100 packets there, 1 back"])
def test_it_nears_the_bound_where_there_is_little_evidence(name: str) -> None:
    errors = [errors_of(BY_NAME[name].draw(seed)) for seed in range(8)]
    assert np.median([np.median(each.likely_ns / each.bound_ns) for each in errors]) > 0.4


def packets(count: int, waits_ns: float, seed: int = 3) -> PacketsBetween:
    """Packets with a least delay of 10 µs both ways, between clocks that agree."""
    random = np.random.default_rng(seed)
    sides = []
    for sign in (1, -1):
        values = (10_000 + random.exponential(waits_ns, count)).astype(np.int64)
        sides.append(side_of(random.uniform(0.0, 1.0, count), values, sign))
    return PacketsBetween(*sides, tick_ns=0)


def likely(of: PacketsBetween, line: Line) -> float:
    return float(likely_errors(of, line, KNOTS_S, BOUND_NS).max())


CASES = [
    ("one packet each way says nothing", packets(1, 10.0), LEVEL, 20_000, 20_000),
    ("many with short queues: an eighth of the least delay", packets(500, 100.0), LEVEL, 1_200, 1_300),
    ("with long queues also what they all waited", packets(40, 50_000.0), LEVEL, 1_500, 15_000),
    ("few: the lowest may all have waited", packets(4, 2_000.0), LEVEL, 2_000, 20_000),
    ("a solution away from the middle", packets(500, 100.0), Line(5_000.0, 0.0), 5_500, 6_500),
    ("a solution that drifts away", packets(500, 100.0), Line(0.0, 5_000.0), 5_500, 6_500),
    ("no more than the bound", packets(500, 100.0), Line(90_000.0, 0.0), 20_000, 20_000),
]


@pytest.mark.parametrize(("of", "line", "least_ns", "most_ns"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_errors_by_evidence(of: PacketsBetween, line: Line, least_ns: int, most_ns: int) -> None:
    assert least_ns <= likely(of, line) <= most_ns


def test_a_stretch_has_one_lowest_packet() -> None:
    side = side_of(np.arange(6400.0)[::-1] / 6400, np.arange(6400), -1)
    kept = side.lowest(0.0)
    assert len(kept.times_s) == 64
    assert kept.values_ns.tolist() == [6399.0 - 100 * stretch - 99 for stretch in range(64)]


def test_coarse_stamps_widen_a_delay_by_their_own_cut() -> None:
    assert likely_with_ticks(np.array([300.0]), 1000) == pytest.approx(np.hypot(300, 776.4), abs=0.1)


def test_clocks_and_hops_carry_it() -> None:
    clocks = {"a": SkewedClock(), "b": SkewedClock(70_000), "far": SkewedClock(5)}
    ways = [OneWay(*ends, 200, 20_000, short_queues) for ends in (("a", "b"), ("b", "a"))]
    given = simulate_ways(clocks, [*ways, OneWay("a", "far", 3, 20_000, short_queues)], 1.0, seed=1)
    alignment = solve(ways_of(given.hops), given.windows)
    of = {row["host"]: row["likely_error_ns"] for row in alignment.clocks.to_pylist()}
    assert (of["a"], of["far"]) == (0, None), "the reference is certain; of what nothing came back, nothing is known"
    assert 2_400 <= of["b"] <= 2_700, "an eighth of 20 µs"
    hops = align(given.hops, alignment)
    far = np.array(hops["receive_host"].to_pylist()) == "far"
    assert set(hops.filter(far)["likely_error_ns"].to_pylist()) == {None}
    assert max(hops.filter(~far)["likely_error_ns"].to_pylist()) <= of["b"]


def test_a_host_behind_another_has_both_errors_as_squares() -> None:
    clocks = {host: SkewedClock() for host in "abc"}
    given = simulate_hops(clocks, [("a", "b"), ("b", "c")], span_s=1.0, there_ns=20_000, back_ns=20_000)
    rows = {row["host"]: row for row in solve(ways_of(given.hops), given.windows).clocks.to_pylist()}
    both = [row["likely_error_ns"] for row in rows.values() if not row["reference"]]
    assert rows["b"]["reference"]
    assert all(2_400 <= each <= 2_700 for each in both)


def test_between_hosts_of_one_clock_there_is_none() -> None:
    clocks = {"a": SkewedClock(), "b": SkewedClock(70_000)}
    given = simulate_hops(clocks, [("a", "b")], span_s=1.0, there_ns=20_000, back_ns=20_000)
    alignment: Alignment = share_clocks(solve(ways_of(given.hops), given.windows), {"c": "b"}, ["a", "b", "c"])
    own = [row for row in alignment.pairs.to_pylist() if {row["send_host"], row["receive_host"]} == {"b", "c"}]
    assert {row["likely_error_ns"] for row in own} == {0.0}


def test_what_is_outside_the_assumption_is_within_the_bound_only() -> None:
    scenario: Scenario = BY_NAME["one way up to 10 times as long"]
    errors = [errors_of(scenario.draw(seed)) for seed in range(12)]
    assert np.mean([each.covered_share() for each in errors]) < 0.5, "docs/pairing.md says so"
    assert all(each.bounded_share() == 1.0 for each in errors)


def test_the_points_of_the_samples_are_those_of_scipy() -> None:
    expected = scipy.stats.qmc.Halton(6, scramble=False).random(SAMPLES + 1)[1:].T
    expected[3] = scipy.special.ndtri(expected[3])
    assert draws() == pytest.approx(expected)
