"""How slow and how many a host's requests were, held against a loop over all bins of all requests."""

from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.queries.lane_bands import PER_OCTAVE, Served
from collector.queries.slowness import FEWEST

HOSTS = ("client", "one", "two")
SERVED = st.tuples(
    st.integers(0, 990), st.integers(1, 300), st.sampled_from(HOSTS[1:]), st.sampled_from("ab"), st.booleans()
)
Request = tuple[int, int, str, str, bool]


def served_of(requests: list[Request]) -> Served:
    rows: dict[str, list[Any]] = {
        "server_host": [host for *_, host, _, _ in requests],
        "end": [begin + took for begin, took, *_ in requests],
        "duration_ns": [took for _, took, *_ in requests],
        "outcome": ["abandoned" if left else "ok" for *_, left in requests],
        "service": [name for *_, name, _ in requests],
    }
    texts = dict.fromkeys(("target", "method", "operation", "protocol", "request_content_type"), "")
    sizes = dict.fromkeys(("request_bytes", "response_bytes", "result_code"), 1)
    schema = {"server_host": pl.String, "end": pl.Int64, "duration_ns": pl.Int64, "outcome": pl.String}
    frame = pl.DataFrame(rows, schema=schema | {"service": pl.String})
    literals = [pl.lit(value).alias(name) for name, value in (texts | sizes).items()]
    return Served(frame.with_columns(literals), HOSTS)


@settings(max_examples=30, deadline=None)
@given(st.lists(SERVED, min_size=1, max_size=40), st.integers(0, 900), st.integers(1, 700), st.booleans())
def test_each_bin_shows_the_requests_under_way(requests: list[Request], from_ns: int, width: int, merged: bool) -> None:
    rows = [[0, 1, 2]] if merged else [[0], [1], [2]]
    found = served_of(requests).bands(rows, from_ns, from_ns + width, 12)
    for row, lanes in enumerate(rows):
        mine = [each for each in requests if HOSTS.index(each[2]) in lanes]
        assert found.served[row] == bool(mine)
        for at in range(found.requests.shape[1]):
            begin = found.from_ns + at * found.bin_ns
            inside = [each for each in mine if each[0] < begin + found.bin_ns and each[0] + each[1] > begin]
            assert found.requests[row, at] == len(inside)
            assert found.at_once[row, at] == _most_at_once(inside, begin)
            expected = _high_ratio(inside, requests)
            assert (found.ratio[row, at] > 0) == (expected > 0)
            if expected:
                octaves = np.log2(found.ratio[row, at]) - np.clip(np.log2(expected), -4, 15)
                assert abs(octaves) <= 0.5 / PER_OCTAVE + 1e-9


def _most_at_once(inside: list[Request], at: int) -> int:
    moments = [max(at, begin) for begin, *_ in inside]
    return max((sum(begin <= now < begin + took for begin, took, *_ in inside) for now in moments), default=0)


def _high_ratio(inside: list[Request], every: list[Request]) -> float:
    ratios = [took / usual for _, took, _, name, left in inside if not left and (usual := _usual(every, name))]
    return sorted(ratios)[int(np.ceil(0.99 * len(ratios))) - 1] if ratios else 0


def _usual(every: list[Request], name: str) -> float:
    alike = [took for _, took, _, of, left in every if of == name and not left]
    return float(np.median(alike)) if len(alike) >= FEWEST else 0


def test_the_figures_at_the_pointer_are_exact() -> None:
    requests = [(10 * n, 5, "one", "a", False) for n in range(10)] + [
        (20, 61, "one", "a", False),
        (20, 7, "two", "a", True),
    ]
    served = served_of(requests)
    one, both, none = (served.within(lanes, 20, 60) for lanes in ([1], [1, 2], [0]))
    assert (one.requests, one.at_once, one.p50_ns, one.p99_ns, one.ratio) == (5, 2, 5, 61, 61 / 5)
    assert (both.requests, both.at_once) == (6, 3)
    assert (none.requests, none.at_once, none.p99_ns, none.ratio) == (0, 0, None, None)
    assert (served.served_lanes, served.most_at_once) == ({1, 2}, 2)
