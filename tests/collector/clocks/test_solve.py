"""Clocks from simulated traffic: the guess is near the truth, the error bar holds it, nothing arrives too soon."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.clocks.alignment import align
from collector.clocks.bounds import Bounds, fits_line, lowest_points, possible_lines
from collector.clocks.evidence import Evidence, Way, ways_of
from collector.clocks.solve import _separating, own_clocks, solve
from collector.clocks.steps import find_steps, hops_near, refine_steps
from testkit.clock_traffic import DAY_NS, SECOND_NS, START_NS, SkewedClock, cut_to, simulate_hops

STAR = [("proxy", "client"), ("proxy", "storage1"), ("proxy", "storage2")]
CASES = [
    ("true clocks", {}, 1.0),
    ("a millisecond off", {"client": SkewedClock(1_000_000)}, 1.0),
    ("a day ahead, a day behind", {"client": SkewedClock(DAY_NS), "storage1": SkewedClock(-DAY_NS)}, 1.0),
    ("200 ppm", {"client": SkewedClock(5_000_000, 200_000), "storage2": SkewedClock(0, -200_000)}, 10.0),
    ("all of it, an hour", {"client": SkewedClock(DAY_NS, 80_000), "storage1": SkewedClock(-7, -150_000)}, 3600.0),
]


@pytest.mark.parametrize(("wrong", "span_s"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_offsets_on_symmetric_paths(wrong: dict[str, SkewedClock], span_s: float) -> None:
    clocks = {host: wrong.get(host, SkewedClock()) for host in ("proxy", "client", "storage1", "storage2")}
    given_ = simulate_hops(clocks, STAR, span_s=span_s, there_ns=20_000, back_ns=20_000)
    aligned = align(given_.hops, solve(ways_of(given_.hops), given_.windows))
    for end, true_ns in (("send", given_.sent_ns), ("receive", given_.received_ns)):
        error = np.abs(aligned[f"{end}_trace_ns"].to_numpy() - (true_ns + START_NS))
        assert error.max() <= 2_000, f"{error.max()} ns; 5 % of the least round trip is 2000 ns"
    assert min(aligned["one_way_delay_ns"].to_pylist()) >= 0


@settings(max_examples=25)
@given(
    there_ns=st.integers(1_000, 2_000_000),
    back_ns=st.integers(1_000, 2_000_000),
    offset_ns=st.integers(-DAY_NS, DAY_NS),
    skew_ppb=st.integers(-200_000, 200_000),
    step_ns=st.sampled_from([0, 50_000_000, -50_000_000, 3_000_000_000]),
    seed=st.integers(0, 1000),
)
def test_the_error_bar_holds_however_asymmetric_the_path(
    there_ns: int, back_ns: int, offset_ns: int, skew_ppb: int, step_ns: int, seed: int
) -> None:
    clocks = {"a": SkewedClock(), "b": SkewedClock(offset_ns, skew_ppb, (2_500_000_000, step_ns))}
    given_ = simulate_hops(clocks, [("a", "b")], span_s=5.0, there_ns=there_ns, back_ns=back_ns, seed=seed)
    aligned = align(given_.hops, solve(ways_of(given_.hops), given_.windows))
    delay, bound = aligned["one_way_delay_ns"].to_numpy(), aligned["uncertainty_ns"].to_numpy()
    error = np.abs(delay - (given_.received_ns - given_.sent_ns))
    assert (error <= bound + 5).all(), f"{(error - bound).max()} ns outside"
    assert (delay >= 0).all()


@pytest.mark.parametrize("seed", range(12))
def test_stamps_in_microseconds_are_within_the_error_bar_however_short_the_way(seed: int) -> None:
    """Captures of two hosts with delays of 0 us both ways were said to be certain to the nanosecond."""
    random = np.random.default_rng(seed)
    clocks = {"a": SkewedClock(), "b": SkewedClock(int(random.integers(0, 5_000)), int(random.integers(-50, 50)))}
    there, back = (int(random.integers(50, 2_000)) for _ in range(2))
    given_ = simulate_hops(clocks, [("a", "b")], span_s=1.0, there_ns=there, back_ns=back, seed=seed)
    hops = cut_to(given_.hops, 1_000)
    alignment = solve(ways_of(hops), given_.windows, {"a": 1_000, "b": 1_000})
    assert set(alignment.clocks["method"].to_pylist()) == {"hull"}
    aligned = align(hops, alignment)
    error = np.abs(aligned["one_way_delay_ns"].to_numpy() - (given_.received_ns - given_.sent_ns))
    bound = aligned["uncertainty_ns"].to_numpy()
    assert (error <= bound + 5).all(), f"{(error - bound).max()} ns outside"
    assert bound.min() >= 1_000
    finer = align(given_.hops, solve(ways_of(given_.hops), given_.windows))["uncertainty_ns"].to_numpy()
    assert bound.max() <= finer.max() + 3_000


def test_a_host_reached_only_through_others_is_aligned_through_them() -> None:
    clocks = {"client": SkewedClock(3_000_000), "proxy": SkewedClock(), "storage1": SkewedClock(-9_000_000)}
    given_ = simulate_hops(
        clocks, [("client", "proxy"), ("proxy", "storage1")], span_s=1.0, there_ns=9000, back_ns=9000
    )
    rows = {row["host"]: row for row in solve(ways_of(given_.hops), given_.windows).clocks.to_pylist()}
    assert rows["proxy"]["reference"]
    assert abs(rows["client"]["offset_ns"] - 3_000_000) < 1_000
    assert abs(rows["storage1"]["offset_ns"] + 9_000_000) < 1_000
    assert {row["method"] for row in rows.values()} == {"hull"}


def test_pairs_with_few_packets_do_not_outvote_one_with_many() -> None:
    """Storage servers that exchanged ten packets each made clocks that agree "not run evenly"."""
    at_ns = START_NS + np.arange(1, 101) * 10_000_000
    delays_ns = {("hub", "a"): 3_000, ("hub", "b"): 4_000, ("hub", "c"): 5_000}
    delays_ns |= {(there, here): delay for (here, there), delay in delays_ns.items()}
    few = {("a", "b"): 200_000, ("b", "a"): 20_000, ("a", "c"): 200_000, ("c", "a"): 20_000}
    ways = {
        pair: Way(sent, sent + delay, frames, frames)
        for pair, delay in (delays_ns | few).items()
        for sent in [at_ns[::50] if pair in few else at_ns]
        for frames in [np.arange(1, len(sent) + 1)]
    }
    windows = [(host, START_NS, START_NS + 2 * SECOND_NS) for host in ("hub", "a", "b", "c")]
    rows = solve(ways, windows).clocks.to_pylist()
    assert {row["method"] for row in rows} == {"hull"}
    assert max(abs(row["offset_ns"]) for row in rows) <= 5_000


def test_hosts_that_share_no_traffic_are_said_to_be_unaligned() -> None:
    clocks = {"a": SkewedClock(), "b": SkewedClock(), "c": SkewedClock(), "far": SkewedClock(5)}
    given_ = simulate_hops(clocks, [("a", "b"), ("a", "c")], span_s=1.0, there_ns=9000, back_ns=9000)
    far = next(row for row in solve(ways_of(given_.hops), given_.windows).clocks.to_pylist() if row["host"] == "far")
    assert (far["method"], far["offset_ns"], far["uncertainty_ns"]) == ("none", 0, None)


def test_correction_can_be_turned_off() -> None:
    clocks = {"a": SkewedClock(), "b": SkewedClock(1_000_000)}
    given_ = simulate_hops(clocks, [("a", "b")], span_s=1.0, there_ns=9000, back_ns=9000)
    delays = align(given_.hops, own_clocks(given_.windows))["one_way_delay_ns"].to_pylist()
    assert min(delays) < -900_000
    assert max(delays) > 1_000_000


STEPS = [
    ("forward", {"storage1": SkewedClock(0, 0, (4 * SECOND_NS, 50_000_000))}, {"storage1"}),
    ("backward, so that stamps repeat", {"storage1": SkewedClock(5, 0, (4 * SECOND_NS, -2 * SECOND_NS))}, {"storage1"}),
    ("of a drifting clock", {"client": SkewedClock(7_000, 90_000, (3 * SECOND_NS, 400_000))}, {"client"}),
    ("of the reference itself", {"proxy": SkewedClock(0, 0, (6 * SECOND_NS, 10_000_000))}, {"proxy"}),
    (
        "of two hosts",
        {
            "client": SkewedClock(0, 0, (2 * SECOND_NS, 9_000_000)),
            "storage2": SkewedClock(0, 0, (7 * SECOND_NS, -9_000_000)),
        },
        {"client", "storage2"},
    ),
]


@pytest.mark.parametrize(("wrong", "stepped"), [case[1:] for case in STEPS], ids=[case[0] for case in STEPS])
def test_a_step_begins_a_new_line_on_the_host_that_stepped(wrong: dict[str, SkewedClock], stepped: set[str]) -> None:
    clocks = {host: wrong.get(host, SkewedClock()) for host in ("proxy", "client", "storage1", "storage2")}
    given_ = simulate_hops(clocks, STAR, span_s=10.0, there_ns=20_000, back_ns=20_000)
    alignment = solve(ways_of(given_.hops), given_.windows)
    rows = alignment.clocks.to_pylist()
    assert {row["host"] for row in rows if row["from_frame"] > 1} == stepped
    assert len(rows) == len(clocks) + len(stepped)
    aligned = align(given_.hops, alignment)
    delay = aligned["one_way_delay_ns"].to_numpy()
    assert (delay >= 0).all()
    assert np.abs(delay - (given_.received_ns - given_.sent_ns)).max() <= 2_000
    error = np.abs(aligned["send_trace_ns"].to_numpy() - (given_.sent_ns + START_NS))
    assert error.max() <= 2_000 or "proxy" in stepped


@pytest.mark.parametrize(
    "steps",
    [
        {"a": (7 * SECOND_NS, -494_000_000), "d": (2 * SECOND_NS, 1_281_000_000)},
        {"a": (5 * SECOND_NS, -494_000_000), "b": (5 * SECOND_NS, 521_000_000)},
    ],
    ids=["another stepped before beside it", "its neighbour stepped with it"],
)
def test_in_a_ring_a_step_is_put_on_the_host_that_stepped(steps: dict[str, tuple[int, int]]) -> None:
    """As the fault run of 20 hosts had it: a pair shows its first step alone, or two as one."""
    clocks = {host: SkewedClock(0, 0, steps.get(host, (0, 0))) for host in "abcd"}
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    given_ = simulate_hops(clocks, ring, span_s=10.0, there_ns=20_000, back_ns=20_000)
    alignment = solve(ways_of(given_.hops), given_.windows)
    assert {row["host"] for row in alignment.clocks.to_pylist() if row["from_frame"] > 1} == set(steps)
    aligned = align(given_.hops, alignment)
    error = np.abs(aligned["one_way_delay_ns"].to_numpy() - (given_.received_ns - given_.sent_ns))
    assert (error <= aligned["uncertainty_ns"].to_numpy() + 5).all()


def test_a_step_that_thinned_evidence_shows_roughly_is_looked_at_again() -> None:
    at_ns = 4_321_004_000
    clocks = {"a": SkewedClock(), "b": SkewedClock(5_000, 20_000, (at_ns, 3_000_000)), "c": SkewedClock()}
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    given_ = simulate_hops(clocks, pairs, span_s=10.0, there_ns=20_000, back_ns=20_000, count=20_000, seed=4)
    quarters = [given_.hops.filter(np.arange(given_.hops.num_rows) % 4 == place) for place in range(4)]
    evidence = Evidence(dict.fromkeys(clocks, 4 * 20_000), most_hops=4_000)
    for quarter in quarters:
        evidence.add(ways_of(quarter))
    own = ("send", given_.sent_ns), ("receive", given_.received_ns)
    stamped = [(given_.hops[f"{end}_host"].to_numpy() == "b") & (times < at_ns) for end, times in own]
    true_cut = sum(int(each.sum()) for each in stamped) + 1
    rough = find_steps(evidence.ways()).cuts["b"]
    refined = refine_steps(evidence, lambda near: [hops_near(ways_of(quarter), near) for quarter in quarters])
    (cut,) = find_steps(refined).cuts["b"]
    assert cut == true_cut != rough[0]


def test_the_first_packet_after_a_step_is_on_the_new_line_though_few_show_where_that_is() -> None:
    """As captured: requests every 25 ms, nothing for 8 s, then a step, three requests, and another step."""
    true_us = np.array([*range(0, 5_000_000, 25_000), *range(13_000_000, 18_000_000, 25_000)])
    true_us[203:] += 700_000
    asked, after = 1000 * true_us, np.arange(len(true_us)) >= 200
    step = np.where(after, 1_111_680_000, 0) + np.where(np.arange(len(true_us)) >= 203, 1_596_210_000, 0)
    frames = np.arange(1, 2 * len(true_us) + 1)
    there = Way(asked, asked + 10_200 + step, frames[::2], frames[::2])
    back = Way(asked + 76_500 + step, asked + 76_500, frames[1::2], frames[1::2])
    assert find_steps({("a", "b"): there, ("b", "a"): back}).cuts == {"b": [401, 407]}


def test_no_step_is_seen_where_there_is_none() -> None:
    given_ = simulate_hops(
        dict.fromkeys(("proxy", "client"), SkewedClock(0, 150_000)), STAR[:1], span_s=60, there_ns=900, back_ns=90
    )
    assert len(solve(ways_of(given_.hops), given_.windows).clocks) == 2


@pytest.mark.parametrize(("stream_end", "shows"), [(1, True), (1000, False)], ids=["refusal", "late reset"])
def test_resets_of_what_has_begun_show_nothing_of_clocks(stream_end: int, shows: bool) -> None:
    given_ = simulate_hops(
        dict.fromkeys(("proxy", "client"), SkewedClock()), STAR[:1], span_s=1.0, there_ns=20_000, back_ns=20_000
    )
    columns = {name: given_.hops[name].to_pylist() for name in given_.hops.column_names}
    columns["kind"][7], columns["stream_end"][7] = "rst", stream_end
    columns["receive_host_ns"][7] -= 50_000_000  # paired with an earlier one
    hops = pa.table(columns).cast(given_.hops.schema)
    clocks = solve(ways_of(hops), given_.windows).clocks
    assert (len(clocks) > 2) == shows


def test_thinned_evidence_of_many_parts_shows_the_same() -> None:
    clocks = {
        "proxy": SkewedClock(),
        "client": SkewedClock(5_000_000, 70_000),
        "storage1": SkewedClock(-3),
        "storage2": SkewedClock(),
    }
    given_ = simulate_hops(clocks, STAR, span_s=20.0, there_ns=20_000, back_ns=20_000)
    frames = dict.fromkeys(clocks, 1800)
    halves = [given_.hops.filter(np.arange(given_.hops.num_rows) % 2 == half) for half in (0, 1)]
    evidence = Evidence(frames, most_hops=1500)
    for half in halves:
        evidence.add(ways_of(half))
    together = evidence.ways()
    assert sum(len(way.send_ns) for way in together.values()) < given_.hops.num_rows
    aligned = align(given_.hops, solve(together, given_.windows))
    assert (aligned["one_way_delay_ns"].to_numpy() >= 0).all()
    assert np.abs(aligned["send_trace_ns"].to_numpy() - (given_.sent_ns + START_NS)).max() <= 2_000


def test_lowest_points_are_below_all_points() -> None:
    random = np.random.default_rng(3)
    times, values = np.sort(random.random(400)) * 10, random.exponential(100, 400)
    hull = lowest_points(times, values)
    assert (np.interp(times, hull[:, 0], hull[:, 1]) <= values + 1e-9).all()


def test_no_line_fits_bounds_that_cross() -> None:
    crossing = Bounds(np.array([[0.0, 10.0], [1.0, 10.0]]), np.array([[0.0, 20.0], [1.0, 20.0]]))
    assert possible_lines(crossing).empty


YEAR_NS = 31_556_952 * SECOND_NS


def jumping(seed: int) -> tuple[dict[tuple[str, str], Way], list[tuple[str, int, int]]]:
    """Hops between two or three hosts, some of whose clocks jump by years at any packet."""
    random = np.random.default_rng(seed)
    count, hosts = int(random.choice([3, 6, 20, 300, 700])), "abc"[: int(random.integers(2, 4))]
    at_ns = 1_700_000_000 * SECOND_NS + np.arange(count) * 1_000_000
    places = np.arange(1, count + 1, dtype=np.int64) * 6
    jumps = {
        host: random.integers(0, int(random.choice([2, 5, 100])), count)
        * int(YEAR_NS * random.choice([0.001, 1, 30]))
        % (136 * YEAR_NS)
        * int(random.random() < 0.7)
        for host in hosts
    }
    ways: dict[tuple[str, str], Way] = {}
    for pair in ((a, b) for a in hosts for b in hosts if a != b):
        stamps = (at_ns + jumps[pair[0]], at_ns + 50_000 + jumps[pair[1]])
        ways[pair] = Way(*stamps, places + len(ways), places + len(ways))
    ends = [at_ns + jumps[host] for host in hosts]
    return ways, [(host, int(ns.min()), int(ns.max()) + 60_000) for host, ns in zip(hosts, ends, strict=True)]


@pytest.mark.parametrize("seed", [0, 7, 13, 26, 28, 45, 73, 82])
def test_clocks_that_jump_by_decades_all_the_time_are_inconsistent_and_no_more(seed: int) -> None:
    """The seeds are those at which the solver says infeasible, unbounded or in numerical trouble, or overflows."""
    ways, windows = jumping(seed)
    clocks = solve(ways, windows).clocks
    assert set(clocks["host"].to_pylist()) == {host for host, *_ in windows}
    assert set(clocks["method"].to_pylist()) <= {"hull", "inconsistent", "none"}
    assert solve(ways, windows[::-1]).clocks == clocks, "whatever the order of hosts"


def test_a_line_between_steps_without_a_packet_is_none() -> None:
    frames = np.array([10, 20, 30, 40], dtype=np.int64)
    way = Way(frames, frames, frames, frames)
    ways = {("a", "b"): way, ("b", "a"): way}
    for cuts, separating in (([15], [15]), ([15, 17], [17]), ([5], []), ([45], []), ([10, 20, 21, 41], [20, 21])):
        assert _separating(ways, {"a": cuts})["a"] == separating


@pytest.mark.parametrize(
    ("at_s", "apart_ns", "fits"),
    [
        (1.0, 0.0, True),
        (1.0, -400_000.0, True),
        (1.0, -1_000_002.0, False),
        (1.0, -1e18, False),
        (0.0, -0.5, True),  # rounding
        (0.0, -2.0, False),
    ],
)
def test_bounds_that_no_drift_brings_together_fit_no_line(at_s: float, apart_ns: float, fits: bool) -> None:
    upper, lower = np.array([[at_s, apart_ns]]), np.array([[0.0, 0.0]])
    assert fits_line(Bounds(upper, lower)) == fits
