"""No page asks anybody but its own server, and no address leads to a file of the machine."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect
from werkzeug.test import Client

from collector.queries import TraceView
from tests.helpers.viewer_page import open_page
from tests.helpers.viewer_server import serving
from viewer.access import Access
from viewer.app import make_viewer
from viewer.navigation import PAGES, TIMELINE

FILES = ("etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "....//etc/passwd", "/etc/passwd", "%00")
ROUTES = (
    "",
    "assets/",
    "api/",
    "save/",
    "uploads/",
    "pages/",
    "assets/joined/0/",
    "pages/assets/",
    "transaction/",
    "_dash-component-suites/",
)


@pytest.mark.browser
def test_no_request_of_any_page_leaves_the_machine(chromium: Browser, small_trace: TraceView) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    with serving(small_trace) as url, serving(None) as start_url:
        page = context.new_page()
        open_page(page, url)
        for link in PAGES:
            if link is not TIMELINE:
                page.goto(url.rstrip("/") + link.path)
                expect(page.locator("#content")).not_to_contain_text("loading…")
                page.wait_for_load_state("networkidle")
        page.goto(start_url)
        expect(page.locator("#upload-choose")).to_be_enabled()
        own = {urlsplit(each).netloc for each in (url, start_url)}
    context.close()
    assert len(asked) > 20
    assert {urlsplit(each).netloc for each in asked if not each.startswith(("data:", "blob:"))} <= own


def test_no_address_leads_to_a_file(small_trace: TraceView) -> None:
    revisions, uploads = make_viewer(small_trace, Access())
    client = Client(revisions)
    for route in ROUTES:
        for file in FILES:
            answer = client.get(f"/{route}{file}", base_url="http://localhost")
            assert b"root:" not in answer.data
            assert answer.status_code in (200, 303, 308, 400, 403, 404), (route, file)
    uploads.close()
