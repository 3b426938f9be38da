"""What pages say where a stranger reads them: no word of the program's insides, and no emptiness without a reason."""

from types import SimpleNamespace
from typing import Any

import pytest

from collector.queries.lanes import CLOCK_WORDS, lanes_of
from collector.trace.model import HostInfo, TraceInfo
from testkit.tables import table
from viewer.pages.compare import _comparison_cards, _summary
from viewer.pages.parts import no_requests

HOST = HostInfo("a", (), (), (), 1, 1, 0, 1)
INFO = TraceInfo(created_ns=0, tool_version="", hosts=(HOST,))


@pytest.mark.parametrize("method", ["hull", "inconsistent", "raw", "none"])
def test_how_a_clock_was_aligned_is_said_in_words(method: str) -> None:
    """The Quality page showed the name of the method."""
    line = {"from_host_ns": 0, "to_host_ns": 9, "offset_ns": 5, "uncertainty_ns": 1, "skew_ppb": 0, "reference": False}
    (lane,) = lanes_of(["a"], INFO, table("clocks", [{**line, "host": "a", "method": method}]), [()])
    assert lane.clock == CLOCK_WORDS[method]
    assert method not in lane.clock.split()


def without_requests(streams_count: int) -> Any:
    return SimpleNamespace(streams=SimpleNamespace(count=streams_count))


@pytest.mark.parametrize(("count", "said"), [(0, None), (1, "1 stream,"), (2, "2 streams,")])
def test_a_page_about_requests_leads_to_the_streams_of_a_trace_without_any(count: int, said: str | None) -> None:
    page = str(no_requests(without_requests(count), "Packets are below."))
    assert "`" not in page
    assert ("/pages/streams" in page) == (said is not None)
    assert said is None or f"This trace has {said}" in page


def test_slow_requests_are_compared_with_typical_ones_in_a_whole_sentence() -> None:
    differs: Any = SimpleNamespace(kind="GET at web", stage="queue of web", difference_ns=73_000_000)
    words = str(_summary([differs], "typical", "slow"))
    assert "GET at web: queue of web takes 73.0 ms longer in slow ones than in typical requests." in words
    assert "longer in run-2 than in run-1." in str(_summary([differs], "run-1", "run-2"))


def test_how_many_it_takes_to_compare_is_said_with_what_is_too_few() -> None:
    few: Any = SimpleNamespace(kinds=(), left_out=("PUT at rgw:7480",))
    words = str(_comparison_cards(few, "typical", "slow"))
    assert "There are too few of: PUT at rgw:7480. It takes five on both sides." in words
