"""Real captures with hostile texts: nothing of them runs, and nothing leaves its place, wherever it is shown."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from collector.analysis import analyse
from collector.queries import TraceSearch, TraceView, open_trace
from testkit.hostile_captures import HOSTS, SCRIPT, TARGETS, write_hostile_captures
from tests.helpers.viewer_page import act_and_settle, leaving, open_page, request_row
from tests.helpers.viewer_server import serving

pytestmark = pytest.mark.browser
INJECTED = "img, svg[onload], [onerror], main script, #page script, body > script[src^='javascript']"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    folder = tmp_path_factory.mktemp("hostile")
    analyse(write_hostile_captures(folder), str(folder / "trace"))
    return open_trace(str(folder / "trace"))


def test_the_captures_hold_what_they_should(trace: TraceView) -> None:
    assert {lane.host for lane in trace.lanes} == set(HOSTS)
    titles = {request.title for request in trace.requests(100)}
    assert trace.summary.requests_count == len(TARGETS)
    assert any(SCRIPT in title for title in titles)
    assert any(r"\xe2\x80\xae" in title for title in titles)  # a direction mark, as an escape (trace.wire_text)
    assert max(len(title) for title in titles) > 1_000
    assert TraceSearch(trace).hits("<script>").count == len(TARGETS)  # in their transaction ids


def test_nothing_of_a_capture_runs_wherever_it_is_shown(page: Page, trace: TraceView, tmp_path: Path) -> None:
    with serving(trace) as url, leaving(page):
        open_page(page, url)
        for number in range(len(TARGETS)):
            act_and_settle(page, lambda number=number: request_row(page, number).click())  # type: ignore[misc]
            expect(page.locator("#request-details h2")).to_have_text(f"Request #{number + 1}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), TARGETS[number][:40]
        page.keyboard.press("l")
        page.locator("#packet-scroll").wait_for()
        for _ in range(4):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator("#packet-details")).to_contain_text("Packet")
        page.keyboard.press("x")
        expect(page.locator("#packet-fields summary").first).to_be_visible(timeout=20_000)
        page.keyboard.press("p")
        expect(page.locator("#pairing")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("<script>window.hacked=1</script>")
        act_and_settle(page, lambda: page.keyboard.press("Enter"))
        expect(page.locator("#search-result")).to_contain_text("<script>")
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        page.locator('[data-action="save"], #save summary').first.click()
        with page.expect_download() as download:
            page.locator('[data-action="picture-html"]').click()
        download.value.save_as(tmp_path / "view.html")
        assert page.evaluate("window.hacked") is None
        assert page.locator(INJECTED).count() == 0
    saved = (tmp_path / "view.html").read_text()
    assert "<script" not in saved
    assert "<img" not in saved
    assert "\u202e" not in saved.split("<svg", 1)[1].split("</svg>", 1)[0]
    page.set_content(saved)
    assert page.evaluate("window.hacked") is None


def test_hostile_hosts_come_in_by_the_page_as_well(page: Page, tmp_path: Path) -> None:
    write_hostile_captures(tmp_path)
    with serving(None) as url, leaving(page):
        page.goto(url)
        expect(page.locator("#upload-choose")).to_be_enabled()
        hostile = f"{SCRIPT}.pcap"
        page.evaluate(
            """([name, bytes]) => {
                const data = new DataTransfer();
                data.items.add(new File([new Uint8Array(bytes)], name));
                data.items.add(new File([new Uint8Array([60, 115, 62])], name));
                document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
            }""",
            [hostile, list((tmp_path / "one.pcap").read_bytes())],
        )
        expect(page.locator(".upload-file")).to_have_count(2)
        expect(page.locator(".upload-file .warning")).to_be_visible()
        page.locator(".upload-file input").wait_for()
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
