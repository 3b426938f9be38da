"""Headless Chromium for tests, measurements and pictures: which program, and how it is started.

Chromium's headless shell draws the same pages for half the processor time of the whole browser, which opens a window
with a page of its own for each context.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
MISSING = "no browser (apt install chromium-headless-shell)"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-default-apps", "--no-first-run"),
)


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """A headless Chromium with software rendering, while the context lasts. Raises: `SystemExit` if there is none."""
    if CHROMIUM is None:
        raise SystemExit(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
        yield browser
        browser.close()
