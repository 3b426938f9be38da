"""What it means that calls found a request open."""

import numpy as np
import pytest

from collector.requests.coincidence import IDLE_NS, made_by_requests, open_share
from collector.requests.spans import link
from tests.helpers.exchange_lines import exchanges_of

SECOND_US = 1_000_000


@pytest.mark.parametrize(
    ("found_open", "count", "share", "least", "most"),
    [
        (1, 1, 0.001, 0.99, 1.0),
        (2, 2, 0.98, 0.4, 0.6),
        (17, 19, 0.9, 0.0, 0.5),
        (19, 20, 0.1, 0.99, 1.0),
        (2, 20, 0.1, 0.0, 0.01),
    ],
    ids=[
        "one call, on a host that hardly ever serves",
        "two calls, on a host that always has something open",
        "many calls that find a request as often as there is one",
        "all but one of many",
        "hardly any of many",
    ],
)
def test_calls_are_requests_if_chance_would_not_find_one_open_as_often(
    found_open: int, count: int, share: float, least: float, most: float
) -> None:
    assert least <= made_by_requests(found_open, count, share) <= most


def test_the_time_in_which_something_is_open_is_counted_once() -> None:
    opened, closed = np.array([0, IDLE_NS // 2, 3 * IDLE_NS]), np.array([IDLE_NS, 2 * IDLE_NS, 1 << 62])
    assert open_share(opened, closed, 0, 4 * IDLE_NS) == 3 / 5
    assert open_share(opened[:0], closed[:0], 0, 4 * IDLE_NS) == 0.0


@pytest.mark.parametrize(("ends_us", "is_sure"), [(15 * SECOND_US, False), (2_000, True)], ids=["always", "briefly"])
def test_a_call_while_a_long_turn_is_open_is_in_doubt(ends_us: int, is_sure: bool) -> None:
    """Calls of a daemon were children, at 100 %, of a stream's turn that happened to be open."""
    lines = f"""
        peer > db 0 10 {ends_us - 20} {ends_us}
        db > peer/manage 1000 1010 1100 1110
        other > peer {15 * SECOND_US} {15 * SECOND_US + 10} {15 * SECOND_US + 20} {15 * SECOND_US + 30}
    """
    (call,) = [row for row in link(exchanges_of(lines)).to_pylist() if row["span_id"] == 2]
    assert call["parent_span_id"] == 1
    assert (call["confidence"] > 0.99) is is_sure
    assert is_sure or call["confidence"] < 0.6
