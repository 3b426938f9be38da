"""Beside the timeline: why the selected request took longer than others of its class."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from collector.queries.trace_view import open_trace
from collector.queries.why import explain, find_request
from tests.helpers.script_traces import write_script_trace
from tests.helpers.viewer_page import act_and_settle, open_page, view
from tests.helpers.viewer_server import serving

pytestmark = pytest.mark.browser

OPENED = "client:{port} > proxy:8080\n0 > syn\n50 < syn_ack\n"
USUAL = "{at} > {sent}:{sent_end} GET /a\n{answered} < {got}:{got_end} 200\n"
LOST = "20000 > 0:100 GET /a\n20250 < 0:50 200 lost\n60250 < 0:50 200 #2\n"


@pytest.fixture(scope="module")
def lossy_trace(tmp_path_factory):
    """Twelve requests alike, and one whose answer was lost and sent again after 40 ms."""
    place = tmp_path_factory.mktemp("why") / "trace"
    usual = (
        USUAL.format(
            at=1_000 * (each + 1),
            answered=1_000 * (each + 1) + 250,
            sent=100 * each,
            sent_end=100 * each + 100,
            got=50 * each,
            got_end=50 * each + 50,
        )
        for each in range(12)
    )
    write_script_trace(str(place), OPENED.format(port=40_000) + "".join(usual) + OPENED.format(port=40_001) + LOST)
    return open_trace(str(place))


def test_a_key_compares_the_selected_request_and_a_cause_leads_to_its_packet(page: Page, lossy_trace) -> None:
    number = find_request(lossy_trace, "slowest")
    stage, *_ = explain(lossy_trace, number).stages
    (cause,) = stage.causes
    with serving(lossy_trace) as url:
        open_page(page, url, f"#request={number + 1}")
        expect(page.locator("#request-details h2")).to_be_visible()
        page.locator("#arrows").focus()
        page.keyboard.press("y")
        first = page.locator("#request-why li").first
        expect(first).to_contain_text("+40.0 ms retransmission to and from swift-proxy")
        expect(first).to_contain_text("40.0 ms on proxy: GET /a")
        expect(page.locator("#request-why p").first).to_contain_text("12 others of its class")
        act_and_settle(page, first.get_by_role("button", name="was lost, and sent again after 40.0 ms").click)
        from_ns, to_ns = view(page)
        assert from_ns < cause.from_ns < cause.to_ns < to_ns
        assert page.evaluate("window.twintap.state.selection") == {"request": number, "hop": cause.hop}
        expect(page.locator("#packet-details")).to_contain_text("lost")
        expect(first).to_be_visible()  # it stays while its packets are looked at


def test_a_usual_request_is_aligned_with_it_and_shown_on_the_same_scale(page: Page, lossy_trace) -> None:
    number = find_request(lossy_trace, "slowest")
    typical = explain(lossy_trace, number).typical
    assert typical is not None
    with serving(lossy_trace) as url:
        open_page(page, url, f"#request={number + 1}")
        expect(page.locator("#waterfall")).to_be_visible()
        page.locator("#arrows").focus()
        page.keyboard.press("y")
        expect(page.locator("#request-waterfall")).to_contain_text(f"the same exchanges of #{typical}")
        act_and_settle(page, lambda: page.keyboard.press("f"))
        act_and_settle(page, lambda: page.keyboard.press("w"))
        before = view(page)
        begins = lossy_trace.spans(number)[0].start_ns
        act_and_settle(page, page.locator("#request-why").get_by_role("button", name=f"#{typical}").click)
        assert page.evaluate("window.twintap.state.selection.request") == typical - 1
        from_ns, to_ns = view(page)
        assert to_ns - from_ns == pytest.approx(before[1] - before[0], rel=1e-6)
        expected = lossy_trace.spans(typical - 1)[0].start_ns - begins
        assert from_ns - before[0] == pytest.approx(expected, abs=2)
        expect(page.locator("#request-waterfall")).not_to_contain_text("the same exchanges")
        with page.expect_response(lambda answer: "request-waterfall" in (answer.request.post_data or "")):  # the last
            act_and_settle(page, page.go_back)
        assert page.evaluate("window.twintap.state.selection.request") == number
        assert view(page) == pytest.approx(before, abs=2)
        expect(page.locator("#request-details h2")).to_have_text(f"Request #{number + 1}")


def test_the_page_what_if_plays_requests_again(page: Page, lossy_trace) -> None:
    with serving(lossy_trace) as url:
        page.goto(f"{url.rstrip('/')}/pages/what-if")
        expect(page.locator("#content")).to_contain_text("Nothing is changed yet")
        page.locator("#what-if select[name=loss]").select_option("yes")
        page.locator("#what-if button").click()
        expect(page.locator("#changes")).to_have_text("With no loss")
        expect(page.locator("#content table").first).to_contain_text("13")
        expect(page.locator("#card-forecast-0 .scatterlayer .trace")).to_have_count(2)
        page.locator("#what-if select[name=slow]").select_option("proxy")
        page.locator("#what-if button").click()
        expect(page.locator("#content")).to_contain_text("one half of a change is missing")
        page.goto(f"{url.rstrip('/')}/pages/what-if?quorum=1e999")
        expect(page.locator("#content")).to_contain_text("'1e999' is no number")


def test_a_request_without_others_like_it_says_so(page: Page, tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), OPENED.format(port=40_000) + LOST)
    with serving(open_trace(str(tmp_path / "trace"))) as url:
        open_page(page, url, "#request=1")
        page.get_by_role("button", name="Why so long?").click()
        expect(page.locator("#request-why")).to_contain_text("there are none of others of its class, GET")
        page.keyboard.press("Escape")
        expect(page.locator("#request-why")).to_have_count(0)
        page.keyboard.press("y")  # nothing is selected, so nothing is asked
