"""Traces and pages for the viewer's tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect

from collector.queries import TraceView, open_trace
from collector.trace.model import CounterInfo
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.viewer_page import open_page
from tests.helpers.viewer_server import serving

expect.set_options(timeout=60_000)  # the machine may be busy; what is there is found at once all the same
HOSTILE = '<img src=x onerror="window.hacked=1">'
SMALL = Recipe(lost_share=0.05, lone_share=0.01)
COUNTER = CounterInfo("proxy", "capture_dropped", "data_loss", 12, "capture with a larger ring")


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """Three uploads on five hosts, some packets lost or seen at one end only, one counter of lost data."""
    return _synthetic(tmp_path_factory, "small", Recipe(lost_share=0.05, lone_share=0.01, counters=(COUNTER,)))


@pytest.fixture(scope="session")
def background_trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """Nine uploads, of which a daemon asked every third: the first, the fourth and the seventh."""
    return _synthetic(tmp_path_factory, "background", Recipe(uploads_count=9, daemons_every=3))


@pytest.fixture(scope="session")
def large_trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """So many hops that they are counted, not drawn: over the limit of the prefix table."""
    return _synthetic(tmp_path_factory, "large", Recipe(2_000, 6, 4_000_000_000, lost_share=0.002, argv=None))


@pytest.fixture(scope="session")
def empty_trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """Five hosts that sent nothing."""
    return _synthetic(tmp_path_factory, "empty", Recipe(uploads_count=0, argv=None))


@pytest.fixture(scope="session")
def hostile_trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """Every text that a capture can hold is an attempt to run a script."""
    hosts = [HOSTILE, "<b>proxy</b>", *(f"{HOSTILE}{n}" for n in range(3))]
    recipe = Recipe(hosts=hosts, target=f"/v1/{HOSTILE}</script><script>window.hacked=1</script>", argv=(HOSTILE,))
    return _synthetic(tmp_path_factory, "hostile", recipe)


@pytest.fixture(scope="session")
def window(chromium: Browser) -> Iterator[BrowserContext]:
    """What all pages are opened in: scripts that one has loaded are kept for the next ones, in one process."""
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
    context.set_default_timeout(120_000)
    yield context
    context.close()


@pytest.fixture
def page(window: BrowserContext) -> Iterator[Page]:
    """A page that fails the test on any error in its console and on any request that leaves the machine."""
    with _page_without_faults(window) as page:
        yield page


@pytest.fixture(scope="module")
def asked_page(window: BrowserContext, small_url: str) -> Iterator[Page]:
    """As `page`, with the small trace, for all tests of a module that leave nothing changed: loading takes a second."""
    with _page_without_faults(window) as page:
        open_page(page, small_url)
        yield page


@pytest.fixture(scope="session")
def small_url(small_trace: TraceView) -> Iterator[str]:
    """Where the small trace is served."""
    with serving(small_trace) as url:
        yield url


@pytest.fixture(scope="session")
def background_url(background_trace: TraceView) -> Iterator[str]:
    """Where that trace is served."""
    with serving(background_trace) as url:
        yield url


@contextmanager
def _page_without_faults(window: BrowserContext) -> Iterator[Page]:
    """A page; nothing that it stored or was permitted stays, and no page that was opened after it."""
    before, page, faults, origins = set(window.pages), window.new_page(), list[str](), set[str]()
    page.on("console", lambda message: message.type in ("error", "warning") and faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(_text(error)))
    page.on("request", lambda request: _local(request.url) or faults.append(f"left the machine: {request.url}"))
    page.on("framenavigated", lambda frame: origins.add("{0.scheme}://{0.netloc}".format(urlsplit(frame.url))))
    yield page
    browser = window.new_cdp_session(page)
    for origin in origins:
        browser.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    window.clear_permissions()
    for each in set(window.pages) - before:
        each.close()
    assert faults == []


def _synthetic(factory: pytest.TempPathFactory, name: str, recipe: Recipe) -> TraceView:
    folder: Path = factory.mktemp("traces") / name
    write_synthetic_trace(folder, recipe)
    return open_trace(str(folder))


def _local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))


def _text(error: Error) -> str:
    return f"{error.message}\n{error.stack}"
