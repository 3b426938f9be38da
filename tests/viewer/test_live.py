"""A trace that is replaced: each page is answered from the revision that it shows, and follows until it is touched."""

import errno
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from werkzeug.test import Client

from collector.queries import open_trace
from collector.trace.model import CounterInfo
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.viewer_page import FRAMES, Held, act_and_settle, leaving, open_page, view
from tests.helpers.viewer_server import serving
from viewer.access import Access
from viewer.app import make_viewer
from viewer.revisions import REVISIONS_KEPT, LiveState, Revisions

DROPPED = CounterInfo("proxy", "capture_dropped", "data_loss", 1_200, "capture with a larger ring")


def make(folder: Path, number: int) -> None:
    """The trace as the collector leaves it after its round `number`, with as many uploads: all of it at once."""
    write_synthetic_trace(folder, Recipe(uploads_count=number, argv=None, counters=(DROPPED,), created_ns=number))


@pytest.fixture
def live_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "session" / "live"
    folder.parent.mkdir()
    make(folder, 2)
    return folder


def requests_of(client: Client, made: str = "") -> tuple[int, int | None]:
    """Status, and the number of requests of the revision that answers."""
    answer = client.get("/api/meta", headers={"X-Twintap-Made": made} if made else {}, base_url="http://localhost")
    return answer.status_code, answer.json["roots"] if answer.status_code == 200 else None  # type: ignore[index]


def test_each_page_is_answered_from_its_own_revision(live_folder: Path) -> None:
    revisions, uploads = make_viewer(open_trace(str(live_folder)), Access())
    client = Client(revisions)
    for number in range(3, 3 + REVISIONS_KEPT):
        assert revisions.refresh().made == str(number - 1)
        make(live_folder, number)
    revisions.refresh()
    newest = 2 + REVISIONS_KEPT
    assert requests_of(client) == (200, newest)
    assert requests_of(client, str(newest - 1)) == (200, newest - 1)
    assert requests_of(client, "2") == (409, None)
    uploads.close()


def test_how_live_a_trace_is(live_folder: Path, tmp_path: Path) -> None:
    second = 1_000_000_000
    trace = open_trace(str(live_folder))
    newest_ns = max(host.last_host_ns or 0 for host in trace.info.hosts)
    revisions = Revisions(trace, lambda trace, revisions: None, clock=lambda: newest_ns + 2 * second)  # type: ignore[arg-type, return-value]
    assert revisions.refresh() == LiveState(True, "2", 2.0, 1_200, 0)
    write_synthetic_trace(tmp_path / "done", Recipe())
    done = Revisions(open_trace(str(tmp_path / "done")), lambda trace, revisions: None)  # type: ignore[arg-type, return-value]
    assert not done.refresh().live
    (live_folder.parent / ".live.error").write_text("the analysis of session s failed\n")
    assert revisions.refresh().trouble == "the analysis of session s failed"
    (live_folder / "trace.json").unlink()
    assert "no trace" in revisions.refresh().trouble


def test_without_free_descriptors_the_state_says_so(live_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    revisions = Revisions(open_trace(str(live_folder)), lambda trace, revisions: None)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr("viewer.revisions.live_error", refuse)
    assert "last round succeeded could not be read: Too many open files" in revisions.refresh().trouble
    monkeypatch.setattr("viewer.revisions.made_ns", refuse)
    state = revisions.refresh()
    assert state.trouble == "the trace could not be looked at again: Too many open files"
    assert state.made == "2"


@pytest.mark.browser
def test_the_page_follows_without_a_blink_and_stops_for_a_touch(page: Page, live_folder: Path) -> None:
    with serving(open_trace(str(live_folder))) as url, leaving(page):
        open_page(page, url)
        state = page.locator("#live-state")
        expect(state).to_have_text(page_text("live"))
        page.evaluate(
            """() => {
                window.blinks = 0;
                const look = () => {
                    const { data, picture } = window.twintap.state;
                    if (!data) window.blinks += 1;
                    requestAnimationFrame(look);
                };
                look();
            }"""
        )
        make(live_folder, 4)
        page.wait_for_function("() => window.twintap.meta.roots === 4")
        expect(page.locator("#requests li")).to_have_count(4)
        expect(page.locator("#facts")).to_contain_text("4 requests")
        assert page.evaluate("window.blinks") == 0
        act_and_settle(page, lambda: page.keyboard.press("w"))
        expect(state).to_have_text(page_text("paused"))
        before = view(page)
        make(live_folder, 6)
        page.locator("#requests button").first.click()  # of the revision that is shown, not of the newest
        expect(page.locator("#request-details h2")).to_be_visible()
        page.wait_for_function("async () => (await (await fetch('api/live')).json()).made === '6'")
        assert page.evaluate("window.twintap.meta.roots") == 4
        page.locator("#arrows").focus()  # on a button, Space presses it
        page.keyboard.press("Space")
        page.wait_for_function("() => window.twintap.meta.roots === 6")
        expect(page.locator("#request-details")).to_be_empty()
        assert view(page) != before


@pytest.mark.browser
def test_a_touch_while_the_newest_make_is_fetched_keeps_what_is_shown(page: Page, live_folder: Path) -> None:
    held = Held(page, "**/api/window*")
    with serving(open_trace(str(live_folder))) as url, leaving(page):
        open_page(page, url)
        held.hold()
        with page.expect_request("**/api/window*"):
            make(live_folder, 4)
        act_and_settle(page, lambda: page.keyboard.press("w"))
        zoomed = view(page)
        with page.expect_response("**/api/window*") as answer:
            held.release()
        answer.value.finished()
        page.evaluate("async () => (await fetch('api/overview')).arrayBuffer()")
        page.evaluate(FRAMES)
        assert view(page) == zoomed
        assert page.evaluate("window.twintap.meta.roots") == 2
        expect(page.locator("#live-state")).to_have_text(page_text("paused"))


def page_text(word: str) -> re.Pattern[str]:
    return re.compile(rf"^{word}, \d+ s behind, 1,200 dropped$")
