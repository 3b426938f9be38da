"""Windows over the packets of some requests, held against those of the whole trace."""

import numpy as np
import pytest

from collector.queries import TraceView, open_trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace

SOME = np.array([1, 3, 4])
MANY = 1_000_000


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    folder = tmp_path_factory.mktemp("traces") / "chosen"
    write_synthetic_trace(folder, Recipe(uploads_count=6))
    return open_trace(str(folder))


@pytest.fixture(scope="module")
def windows(trace: TraceView) -> list[tuple[int, int]]:
    rng = np.random.default_rng(1)
    edges = np.sort(rng.integers(0, trace.duration_ns, (50, 2)), axis=1).tolist()
    return [(0, trace.duration_ns + 1), *((low, high + 1) for low, high in edges)]


def test_arrows_are_those_of_the_whole_that_belong_to_the_requests(
    trace: TraceView, windows: list[tuple[int, int]]
) -> None:
    only = trace.only(SOME)
    for window in windows:
        every, some = trace.arrows(*window, MANY), only.arrows(*window, MANY)
        assert every is not None
        assert some is not None
        assert some.number.tolist() == every.number[np.isin(every.request, SOME)].tolist()
        assert some.sent_ns.tolist() == every.sent_ns[np.isin(every.request, SOME)].tolist()
    assert only.arrows(*windows[0], 3) is None


def test_counts_lists_and_densities_agree(trace: TraceView, windows: list[tuple[int, int]]) -> None:
    only = trace.only(SOME)
    for window in windows:
        counted = np.isin(trace.packets_between(*window, 0, MANY).request, SOME)
        numbers = trace.packets_between(*window, 0, MANY).number[counted].tolist()
        assert only.count(*window) == len(numbers)
        assert only.packets_between(*window, 0, MANY).number.tolist() == numbers
        assert only.packets_between(*window, 2, 3).number.tolist() == numbers[2:5]
        assert len(only.rows_between(*window)) == len(numbers)
        for bins in (16, 64):
            density, of_all = only.density(*window, bins), only.totals(*window, bins)
            begins = density.from_ns <= window[0] < density.from_ns + density.bin_ns
            assert begins
            assert density.counts.sum() == of_all.counts.sum() >= len(numbers)
    whole = only.density(*windows[0], 64)
    assert whole.counts.sum() == sum(trace.request(number).hops_count for number in SOME.tolist())


def test_a_sample_is_of_them(trace: TraceView, windows: list[tuple[int, int]]) -> None:
    only = trace.only(SOME)
    every = only.arrows(*windows[0], MANY)
    assert every is not None
    arrows, step = only.sample(*windows[0], 20)
    assert step > 1
    assert set(arrows.number.tolist()) <= set(every.number.tolist())
    assert 0 < len(arrows.number) <= 20


def test_none_and_all(trace: TraceView, windows: list[tuple[int, int]]) -> None:
    assert trace.only(np.zeros(0, np.int64)).count(*windows[0]) == 0
    assert trace.only(np.arange(6)).count(*windows[0]) == trace.count(*windows[0])
    assert trace.count(*windows[0]) == trace.summary.hops_count


def test_the_packets_around_a_window(trace: TraceView) -> None:
    for view in (trace, trace.only(SOME)):
        arrows = view.packets_between(0, trace.duration_ns + 1, 0, MANY)
        times = np.where(arrows.sent_ns < 0, arrows.received_ns, arrows.sent_ns).tolist()
        assert times == sorted(times)
        first, last = times[0], times[-1]
        assert view.packets_around(first, last + 1) == (None, None)
        assert view.packets_around(first + 1, last) == (first, last)
        gap = max(range(1, len(times)), key=lambda at: times[at] - times[at - 1])
        assert view.packets_around(times[gap - 1] + 1, times[gap]) == (times[gap - 1], times[gap])
