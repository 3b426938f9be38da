"""Clocks from simulated traffic: the guess is near the truth, the error bar holds it, nothing arrives too soon."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.clock_bounds import Bounds, lowest_points, possible_lines
from collector.clocks import solve, unaligned
from collector.timescale import align, to_trace_ns

START_NS = 1_800_000_000_000_000_000
DAY_NS = 86_400_000_000_000


@dataclass(frozen=True)
class Wrong:
    """A host's clock: its offset at the start (ns) and its skew (ppb)."""

    offset_ns: int = 0
    skew_ppb: int = 0

    def read(self, at_ns: np.ndarray) -> np.ndarray:
        return START_NS + at_ns + self.offset_ns + np.rint(at_ns * (self.skew_ppb / 1e9)).astype(np.int64)


def traffic(
    clocks: dict[str, Wrong], pairs: list[tuple[str, str]], *, span_s: float, there_ns: int, back_ns: int, seed: int = 1
) -> tuple[pa.Table, list[tuple[str, int, int]]]:
    """300 hops each way of each pair; delays are the path's least, and an exponential tail of a tenth of that."""
    random = np.random.default_rng(seed)
    parts = []
    for a, b in pairs:
        for send, receive, least in ((a, b, there_ns), (b, a, back_ns)):
            at = np.sort(random.integers(0, int(span_s * 1e9), 300))
            delay = least + random.exponential(least / 10, 300).astype(np.int64)
            delay[::50] = least
            parts.append((send, receive, clocks[send].read(at), clocks[receive].read(at + delay)))
    columns = {
        "send_host": np.concatenate([[send] * 300 for send, _, _, _ in parts]),
        "receive_host": np.concatenate([[receive] * 300 for _, receive, _, _ in parts]),
        "send_host_ns": np.concatenate([sent for _, _, sent, _ in parts]),
        "receive_host_ns": np.concatenate([received for _, _, _, received in parts]),
    }
    hops = pa.table(columns | {"state": ["matched"] * len(columns["send_host"])})
    ends = np.array([0, int(span_s * 1e9)])
    return hops, [(host, *clock.read(ends).tolist()) for host, clock in clocks.items()]


STAR = [("proxy", "client"), ("proxy", "storage1"), ("proxy", "storage2")]
CASES = [
    ("true clocks", {}, 1.0),
    ("a millisecond off", {"client": Wrong(1_000_000)}, 1.0),
    ("a day ahead, a day behind", {"client": Wrong(DAY_NS), "storage1": Wrong(-DAY_NS)}, 1.0),
    ("200 ppm", {"client": Wrong(5_000_000, 200_000), "storage2": Wrong(0, -200_000)}, 10.0),
    ("all of it, an hour", {"client": Wrong(DAY_NS, 80_000), "storage1": Wrong(-7, -150_000)}, 3600.0),
]


@pytest.mark.parametrize(("wrong", "span_s"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_offsets_on_symmetric_paths(wrong: dict[str, Wrong], span_s: float) -> None:
    clocks = {host: wrong.get(host, Wrong()) for host in ("proxy", "client", "storage1", "storage2")}
    hops, windows = traffic(clocks, STAR, span_s=span_s, there_ns=20_000, back_ns=20_000)
    alignment = solve(hops, windows)
    for host, clock in clocks.items():
        at = np.linspace(0, span_s * 1e9, 11).astype(np.int64)
        stamps = clock.read(at)
        trace = to_trace_ns(pa.array([host] * len(at)), pa.array(stamps), alignment.clocks)
        error = np.abs(trace - (at + START_NS))
        assert error.max() <= 2_000, f"{host}: {error.max()} ns; 5 % of the least round trip is 2000 ns"
    aligned = align(hops, alignment)
    assert min(aligned["one_way_delay_ns"].to_pylist()) >= 0


@settings(max_examples=25, deadline=None)
@given(
    there_ns=st.integers(1_000, 2_000_000),
    back_ns=st.integers(1_000, 2_000_000),
    offset_ns=st.integers(-DAY_NS, DAY_NS),
    skew_ppb=st.integers(-200_000, 200_000),
    seed=st.integers(0, 1000),
)
def test_the_error_bar_holds_however_asymmetric_the_path(
    there_ns: int, back_ns: int, offset_ns: int, skew_ppb: int, seed: int
) -> None:
    clocks = {"a": Wrong(), "b": Wrong(offset_ns, skew_ppb)}
    paths = {"there_ns": there_ns, "back_ns": back_ns}
    hops, windows = traffic(clocks, [("a", "b")], span_s=5.0, seed=seed, **paths)
    aligned = align(hops, solve(hops, windows))
    true_start = np.array([(START_NS if h == "a" else START_NS + offset_ns) for h in hops["send_host"].to_pylist()])
    true_delay = _true_delays(hops, clocks)
    assert len(true_start) == len(true_delay)
    error = np.abs(aligned["one_way_delay_ns"].to_numpy() - true_delay)
    bound = aligned["uncertainty_ns"].to_numpy()
    assert (error <= bound + 5).all(), f"{(error - bound).max()} ns outside"
    assert (aligned["one_way_delay_ns"].to_numpy() >= 0).all()


def _true_delays(hops: pa.Table, clocks: dict[str, Wrong]) -> np.ndarray:
    def true(host: str, stamp: int) -> int:
        clock = clocks[host]
        elapsed = stamp - START_NS - clock.offset_ns
        return round(elapsed / (1 + clock.skew_ppb / 1e9))

    rows = hops.select(["send_host", "receive_host", "send_host_ns", "receive_host_ns"]).to_pylist()
    return np.array(
        [true(r["receive_host"], r["receive_host_ns"]) - true(r["send_host"], r["send_host_ns"]) for r in rows]
    )


def test_a_host_reached_only_through_others_is_aligned_through_them() -> None:
    clocks = {"client": Wrong(3_000_000), "proxy": Wrong(), "storage1": Wrong(-9_000_000)}
    hops, windows = traffic(
        clocks, [("client", "proxy"), ("proxy", "storage1")], span_s=1.0, there_ns=9000, back_ns=9000
    )
    rows = {row["host"]: row for row in solve(hops, windows).clocks.to_pylist()}
    assert rows["proxy"]["reference"]
    assert abs(rows["client"]["offset_ns"] - 3_000_000) < 1_000
    assert abs(rows["storage1"]["offset_ns"] + 9_000_000) < 1_000
    assert {row["method"] for row in rows.values()} == {"hull"}


def test_hosts_that_share_no_traffic_are_said_to_be_unaligned() -> None:
    clocks = {"a": Wrong(), "b": Wrong(), "c": Wrong(), "far": Wrong(5)}
    hops, windows = traffic(clocks, [("a", "b"), ("a", "c")], span_s=1.0, there_ns=9000, back_ns=9000)
    far = next(row for row in solve(hops, windows).clocks.to_pylist() if row["host"] == "far")
    assert (far["method"], far["offset_ns"], far["uncertainty_ns"]) == ("none", 0, None)


def test_correction_can_be_turned_off() -> None:
    clocks = {"a": Wrong(), "b": Wrong(1_000_000)}
    hops, windows = traffic(clocks, [("a", "b")], span_s=1.0, there_ns=9000, back_ns=9000)
    delays = align(hops, unaligned(windows))["one_way_delay_ns"].to_pylist()
    assert min(delays) < -900_000
    assert max(delays) > 1_000_000


def test_a_step_is_seen_as_such() -> None:
    hops, windows = traffic({"a": Wrong(), "b": Wrong()}, [("a", "b")], span_s=10.0, there_ns=9000, back_ns=9000)
    stamps = hops["receive_host_ns"].to_numpy().copy()
    to_b = np.array(hops["receive_host"].to_pylist()) == "b"
    stamps[to_b & (stamps > START_NS + 5 * 10**9)] += 50_000_000
    sends = hops["send_host_ns"].to_numpy().copy()
    sends[~to_b & (sends > START_NS + 5 * 10**9)] += 50_000_000
    stepped = hops.set_column(2, "send_host_ns", pa.array(sends)).set_column(3, "receive_host_ns", pa.array(stamps))
    rows = solve(stepped, windows).clocks.to_pylist()
    assert {row["method"] for row in rows} == {"inconsistent"}


def test_lowest_points_are_below_all_points() -> None:
    random = np.random.default_rng(3)
    times, values = np.sort(random.random(400)) * 10, random.exponential(100, 400)
    hull = lowest_points(times, values)
    assert (np.interp(times, hull[:, 0], hull[:, 1]) <= values + 1e-9).all()


def test_no_line_fits_bounds_that_cross() -> None:
    crossing = Bounds(np.array([[0.0, 10.0], [1.0, 10.0]]), np.array([[0.0, 20.0], [1.0, 20.0]]))
    assert possible_lines(crossing).empty
