"""The arithmetic of the page's scripts, asked in the browser: times, ticks, places of arrows."""

import pytest
from playwright.sync_api import Page

from collector.queries import TraceView
from tests.helpers.viewer_page import act_and_settle
from viewer.wording import exact_time

pytestmark = pytest.mark.browser

HOUR_NS = 3_600_000_000_000
EXACT_TIME = "async time => (await import('/assets/data/time.js')).exactTime(time)"
TICKS = "async ([from, to]) => (await import('/assets/data/time.js')).ticks(from, to, 900)"


@pytest.mark.parametrize("time_ns", [0, 1, 999, 40_907_790, -1, 60 * 10**9, HOUR_NS + 7, 2**52 + 1])
def test_the_page_and_the_server_write_a_time_alike(asked_page: Page, time_ns: int) -> None:
    assert asked_page.evaluate(EXACT_TIME, time_ns) == exact_time(time_ns)


@pytest.mark.parametrize(
    ("from_ns", "to_ns", "base", "first"),
    [
        (0, 60 * 10**9, "", "0 s"),
        (0, 1_000_000, "", "0.0 ms"),
        (40_000_000, 45_000_000, "", "40 ms"),
        (40_000_000, 40_010_000, "", "40.000 ms"),
        (40_000_000, 40_000_040, "0.040 s", "+0 ns"),
        (HOUR_NS, HOUR_NS + 5_000, "3600.000 s", "+0 µs"),
        (HOUR_NS + 123, HOUR_NS + 163, "3600.000 s", "+125 ns"),
    ],
)
def test_ticks_are_round_and_say_where_they_are(
    asked_page: Page, from_ns: int, to_ns: int, base: str, first: str
) -> None:
    ticks = asked_page.evaluate(TICKS, [from_ns, to_ns])
    assert (ticks["base"], ticks["texts"][0]) == (base, first)
    assert 4 <= len(ticks["values"]) <= 10
    assert len(set(ticks["texts"])) == len(ticks["texts"])
    assert all(value % ticks["step"] == 0 and from_ns <= value <= to_ns for value in ticks["values"])


@pytest.mark.parametrize("width_ns", [40, 1_000, 1_000_000, 20_000_000])
def test_arrow_ends_are_exact_at_any_depth(asked_page: Page, small_trace: TraceView, width_ns: int) -> None:
    page = asked_page
    hop = small_trace.hop(60)
    assert hop is not None
    assert hop.sent_ns is not None
    assert hop.received_ns is not None
    from_ns = hop.sent_ns - width_ns // 4
    act_and_settle(page, lambda: page.evaluate(f"location.hash = '#from={from_ns}&to={from_ns + width_ns}'"))
    x1, y1, x2, y2, width = page.evaluate(
        """() => {
            const { state, makeView, arrowEnds, meta } = window.twintap, { width, height } = document
                .getElementById("arrows").getBoundingClientRect();
            const view = makeView(state.from, state.to, width, height, meta.rulerHeight, meta.lanes.length);
            return [...arrowEnds(view, state.data, state.data.number.indexOf(60)), width];
        }"""
    )
    assert x1 == pytest.approx(width / 4, abs=1e-6 * width)
    assert x2 - x1 == pytest.approx((hop.received_ns - hop.sent_ns) / width_ns * width, rel=1e-9)
    lanes = page.locator("#lanes .lane")
    plot = page.locator("#plot").bounding_box()
    assert plot is not None
    hosts = [lane.host for lane in small_trace.lanes]
    for host, y in ((hop.source_host, y1), (hop.target_host, y2)):
        assert host is not None
        box = lanes.nth(hosts.index(host)).bounding_box()
        assert box is not None
        assert box["y"] < plot["y"] + y < box["y"] + box["height"]
