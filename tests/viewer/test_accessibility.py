"""Pages held against axe-core, which knows what screen readers and keyboards need; contrast in `test_contrast.py`."""

import pytest
from playwright.sync_api import Page, expect

from tests.helpers.accessibility import violations
from tests.helpers.viewer_page import act_and_settle, open_page

pytestmark = pytest.mark.browser
PAGES = ("requests", "overlay", "services", "streams", "latency", "quality", "bench", "compare", "what-if", "query")


def test_the_timeline(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    assert violations(page) == {}
    page.keyboard.press("/")
    page.keyboard.type("#2")
    act_and_settle(page, lambda: page.keyboard.press("Enter"))
    expect(page.locator("#request-details h2")).to_have_text("Request #2")
    page.locator("#arrows").focus()
    page.keyboard.press("l")
    expect(page.locator("#packets-title")).to_contain_text("of request #2")
    assert violations(page) == {}
    page.keyboard.press("l")
    for key in ("e", "?", "p"):
        page.keyboard.press(key)
        assert violations(page) == {}, key
        page.keyboard.press("Escape")
    page.locator("#lanes-box summary").click()
    assert violations(page) == {}


@pytest.mark.parametrize("name", PAGES)
def test_each_other_page(page: Page, small_url: str, name: str) -> None:
    open_page_of(page, small_url, name)
    assert violations(page) == {}


def open_page_of(page: Page, url: str, name: str) -> None:
    page.goto(f"{url}pages/{name}")
    expect(page.locator("#content h1")).to_be_visible()
