"""The pages beside the timeline in a real browser. The `page` fixture fails on console errors and on requests to
elsewhere."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, TimeoutError, expect

from collector.queries import RequestSelection, TraceView, open_trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.bench_folders import write_run, write_warp_run
from tests.helpers.viewer_page import leaving
from tests.helpers.viewer_server import serving
from viewer.pages.context import Companions

pytestmark = pytest.mark.browser

CLASS = "PUT object 1-16 KiB at swift-proxy"
DRAWN = "() => [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('.main-svg'))"
FITS = "width => innerWidth === width && window.content.scrollWidth <= window.content.clientWidth"
WIDTHS = """() => {
    const room = content.clientWidth, beyond = [...content.querySelectorAll("*")].filter(
        (each) => each.getBoundingClientRect().right > content.getBoundingClientRect().left + room);
    const name = (each) => `${each.tagName.toLowerCase()}#${each.id}.${each.getAttribute("class")}`;
    return { window: innerWidth, room, content: content.scrollWidth, beyond: beyond.slice(0, 5).map(name) };
}"""
COUNTS_CHANGES = """
    let stores;
    window.changesCount = 0;
    Object.defineProperty(window, "dash_stores", { get: () => stores, set: (given) => {
        const push = given.push;
        given.push = function (store) {
            const length = push.call(this, store);
            store.subscribe(() => window.changesCount++);
            return length;
        };
        stores = given;
    } });
"""
"""A script that counts how often a page's components are notified that its store has changed."""
PAGES = ("requests", "overlay", "services", "streams", "latency", "quality", "bench", "compare", "what-if", "query")


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """A hundred and twenty uploads on five hosts, some packets lost."""
    folder = tmp_path_factory.mktemp("traces") / "crowd"
    write_synthetic_trace(
        folder, Recipe(120, 3, 400_000_000, lost_share=0.02, spread_ns=20_000_000, target="/v1/a/c/o")
    )
    return open_trace(str(folder))


@pytest.fixture(scope="module")
def url(crowd: TraceView, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The crowd, with two runs and a trace of its own kind beside it."""
    folder = tmp_path_factory.mktemp("beside")
    for concurrency in (8, 64):
        write_run(
            folder / f"ssd-1B-{concurrency:04d}",
            concurrency,
            [crowd.spans(number)[0].transaction_id for number in range(20)],
        )
    write_synthetic_trace(
        folder / "other", Recipe(120, 3, 400_000_000, spread_ns=60_000_000, target="/v1/a/c/o", seed=2)
    )
    companions = Companions((folder,), (str(folder / "other"),))
    with serving(crowd, companions=companions) as served:
        yield served


def open_page(page: Page, url: str, name: str) -> None:
    """Load it and wait for its charts."""
    page.goto(f"{url}pages/{name}")
    page.wait_for_selector("#content h1, #content h2")
    page.wait_for_function(DRAWN)


def turn_to(page: Page, name: str, query: str = "") -> None:
    """From one page to another as the browser's own buttons do: the address changes, and only the content is asked."""
    page.evaluate(
        "address => { history.pushState(null, '', address); dispatchEvent(new PopStateEvent('popstate')); }",
        f"/pages/{name}{query}",
    )
    expect(page.locator("#content h1")).to_have_text(heading(name))
    page.wait_for_function(DRAWN)


def heading(name: str) -> str:
    return name.replace("-", " ").capitalize()


def cell(page: Page, table: str, row: str, column: str) -> str:
    """The text of a cell of a table by the names of its row and column."""
    head = page.locator(f"{table} thead tr > *").all_text_contents()
    found = page.locator(f"{table} tbody tr").filter(has=page.locator("th", has_text=re.compile(f"^(✗ )?{row}$")))
    return found.locator("th, td").nth(head.index(column)).text_content() or ""


def test_the_row_of_pages_leads_to_each_of_them_and_each_fits_the_screen_in_width(page: Page, url: str) -> None:
    page.goto(url)
    for name in PAGES:
        page.set_viewport_size({"width": 3840, "height": 2160})
        page.locator("#pages-nav a", has_text=heading(name)).click()
        page.wait_for_url(f"**/pages/{name}")
        expect(page.locator("#pages-nav [aria-current], #pages-nav .here")).to_have_text(heading(name))
        expect(page.locator("#content h1")).to_have_text(heading(name))
        page.wait_for_function(DRAWN)
        for width, height in ((3840, 2160), (1280, 720)):
            page.set_viewport_size({"width": width, "height": height})
            with suppress(TimeoutError):  # charts follow the window when the browser gets to it
                page.wait_for_function(FITS, arg=width)
            found = page.evaluate(WIDTHS)
            assert found["window"] == width, name
            assert found["content"] <= found["room"], f"{name} at {width} px: {found}"
    page.locator("#pages-nav a", has_text="Timeline").click()
    expect(page.locator("#arrows")).to_be_visible()


def test_requests_are_listed_slowest_first_and_lead_to_the_timeline(page: Page, url: str, crowd: TraceView) -> None:
    open_page(page, url, "requests")
    slowest = crowd.requests(1)[0]
    rows = page.locator("#request-table tbody tr")
    expect(rows).to_have_count(100)
    expect(page.locator("#request-table")).to_contain_text("1 to 100 of 120 requests")
    expect(rows.first).to_contain_text(f"#{slowest.number + 1} PUT /v1/a/c/o")
    rows.first.locator("a").click()
    expect(page.locator("#request-details h2")).to_have_text(f"Request #{slowest.number + 1}")


def test_components_are_notified_of_few_changes_however_many_they_are(page: Page, url: str) -> None:
    """Each then asks the store whether it has changed itself; notified of each other, they ask a million times."""
    page.add_init_script(COUNTS_CHANGES)
    open_page(page, url, "requests")
    assert page.locator("#content *").count() > 1_000
    assert 0 < page.evaluate("window.changesCount") < 100


def test_requests_are_found_by_text_and_the_address_keeps_it(page: Page, url: str, crowd: TraceView) -> None:
    open_page(page, url, "requests")
    wanted = crowd.spans(7)[0].transaction_id
    page.locator("input[type=search]").fill(wanted)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**text={wanted}*")
    expect(page.locator("#request-table tbody tr")).to_have_count(1)
    expect(page.locator("#request-table")).to_contain_text(wanted)
    for words, shown in ((f"tx:{wanted} and not put", "No request is like this"), ("put (", "character 6")):
        page.locator("input[type=search]").fill(words)
        page.keyboard.press("Enter")
        expect(page.locator("#content")).to_contain_text(shown)
    page.locator("input[type=search]").fill("put not host:stor")
    expect(page.locator("#search-words option").first).to_have_attribute("value", re.compile("^put not host:storage"))


def test_an_overlay_counts_every_packet_of_its_class_and_draws_the_slowest_on_top(
    page: Page, url: str, crowd: TraceView
) -> None:
    open_page(page, url, "overlay?span=all")
    card = page.locator("#card-overlay")
    packets = sum(len(some.request) for some in crowd.whole_hops(np.arange(120)))
    expect(card.locator("h2")).to_contain_text("All 120 requests")
    expect(card.locator("h2")).to_contain_text(f"{packets:,} packets seen at both ends")
    expect(card.locator(".heatmaplayer image")).to_have_count(1)
    expect(card.locator(".legendtext")).to_have_count(4)
    expect(page.locator("#card-slow h2")).to_contain_text("the slowest 6 requests")
    expect(page.locator("#card-typical h2")).to_contain_text("the middle 60 requests")
    page.locator("#singles a").first.click()
    number = crowd.requests(1)[0].number + 1
    expect(page.locator("#request-details h2")).to_have_text(f"Request #{number}")


def test_an_overlay_of_services_has_one_lane_for_hosts_that_serve_the_same(page: Page, url: str) -> None:
    open_page(page, url, "overlay")
    expect(page.locator("#card-overlay .ytick")).to_have_count(5)
    page.locator(".choice", has_text="services").click()
    page.wait_for_url("**lanes=services*")
    expect(page.locator("#card-overlay .ytick")).to_have_text(["client", "swift-proxy", "swift-object"])


def test_the_service_graph_shows_calls_and_a_call_leads_to_its_requests(page: Page, url: str) -> None:
    open_page(page, url, "services?nodes=services")
    graph = page.locator("#card-services")
    expect(graph.locator(".textpoint text", has_text="swift-object")).to_have_count(1)
    expect(graph.locator(".textpoint text", has_text=re.compile(r"^360 · "))).to_have_count(1)
    assert cell(page, "#calls", "client → swift-proxy", "exchanges") == "120"
    assert cell(page, "#calls", "swift-proxy → swift-object", "exchanges") == "360"
    for column in ("lost", "sent again"):
        assert int(cell(page, "#calls", "swift-proxy → swift-object", column)) > 0
    page.locator("#calls a", has_text="swift-proxy → swift-object").click()
    expect(page.locator(".narrowed")).to_contain_text("a call from swift-proxy to swift-object")
    expect(page.locator("#request-table")).to_contain_text("of 120 requests")


def test_a_dot_of_the_latency_scatter_opens_its_request(page: Page, url: str, crowd: TraceView) -> None:
    open_page(page, url, "latency")
    dots = page.locator("#card-scatter .scatterlayer .point")
    expect(dots).to_have_count(120)
    box = dots.first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url("**/#*request=*")
    expect(page.locator("#request-details h2")).to_have_text(re.compile(r"^Request #\d+$"))


def test_latency_tables_hold_what_the_charts_show(page: Page, url: str, crowd: TraceView) -> None:
    open_page(page, url, "latency")
    assert cell(page, "#card-classes", CLASS, "measured") == "120"
    assert cell(page, "#card-services", "swift-object", "measured") == "360"
    assert int(cell(page, "#card-hops", "client → proxy", "measured").replace(",", "")) > 400
    in_flight = crowd.load.latencies(RequestSelection()).by_concurrency
    expect(page.locator("#card-concurrency tbody tr")).to_have_count(len(in_flight))


def test_quality_shows_pairs_connections_and_clocks(page: Page, url: str, crowd: TraceView) -> None:
    open_page(page, url, "quality")
    expect(page.locator("#content")).to_contain_text(crowd.pairing.words)
    assert cell(page, "#clocks", "client", "clock") == "reference clock"
    assert "±" in cell(page, "#clocks", "proxy", "offset from the reference")
    page.locator("#worst a").first.click()
    page.wait_for_url("**/#*hop=*")
    expect(page.locator("#packet-details")).to_contain_text("Packet")


def test_bench_shows_runs_over_concurrency_and_leads_to_requests_in_the_trace(page: Page, url: str) -> None:
    open_page(page, url, "bench")
    assert cell(page, "#card-throughput", "8 at once", "ssd-1B") == "20.0/s"
    assert cell(page, "#runs", "ssd-1B-0064", "retries") == "1"
    assert cell(page, "#card-use-ssd-1B", "64 at once, proxy", "CPU") == "50.0 %"
    page.locator("#runs a", has_text="ssd-1B-0064").click()
    run = page.locator("#run")
    expect(page.locator("#card-operations h2")).to_contain_text("21 of them lead to their request in the trace")
    expect(page.locator("#card-operations .scatterlayer .point")).to_have_count(21)
    expect(run.locator("tbody tr").first).to_contain_text("✗ status")
    run.locator("a").first.click()
    expect(page.locator("#request-details h2")).to_have_text(re.compile(r"^Request #\d+$"))


def test_compare_distinguishes_slow_from_typical_and_from_a_trace_given_at_start(page: Page, url: str) -> None:
    open_page(page, url, "compare")
    expect(page.locator("#card-kind-0 h2")).to_have_text("PUT at swift-proxy")
    expect(page.locator("#card-kind-0 .barlayer .trace")).to_have_count(2)
    page.locator(".choice", has_text="with other").click()
    page.wait_for_url("**with=other*")
    expect(page.locator("#differs")).to_contain_text("other")
    expect(page.locator("#card-kind-0 thead th").nth(2)).to_have_text("other")


def test_compare_takes_two_searches_and_two_hosts(page: Page, url: str) -> None:
    open_page(page, url, "compare")
    first, second = (page.locator(f"#compare-groups input[name={name}]") for name in ("requests", "others"))
    first.fill("req:1 or req:2 or req:3 or req:4 or req:5 or req:6")
    second.fill("not req:9")
    page.locator("#compare-groups button").click()
    page.wait_for_url("**requests=req*")
    expect(page.locator("#differs")).to_contain_text("(not req:9) and not (req:1 or")
    expect(page.locator("#card-kind-0 h2")).to_have_text("PUT at swift-proxy")
    first = page.locator("#compare-groups input[name=requests]")
    first.fill("put (")
    first.press("Enter")
    expect(page.locator("#content")).to_contain_text("character 6: a word is missing")
    page.locator("#compare-hosts select[name=host]").select_option("storage1")
    page.locator("#compare-hosts select[name=other_host]").select_option("storage2")
    page.locator("#compare-hosts button").click()
    page.wait_for_url("**host=storage1&other_host=storage2")
    expect(page.locator("#differs")).to_contain_text("storage")
    expect(page.locator("#card-kind-0 table")).to_contain_text("sending request and answer")
    page.locator(".choice", has_text="slow and typical").click()
    expect(page.locator("#card-kind-0 thead th").nth(2)).to_have_text("slow")


def test_no_text_of_a_capture_becomes_markup(page: Page, hostile_trace: TraceView) -> None:
    with serving(hostile_trace) as url, leaving(page):
        open_page(page, url, PAGES[-1])
        for name in PAGES:
            turn_to(page, name)
            assert page.evaluate("window.hacked") is None
            assert page.locator("#content img, #content script").count() == 0
        open_page(page, url, "services")
        expect(page.locator("#calls tbody th").first).to_contain_text("<img src=x onerror=")


def test_a_trace_without_packets_says_what_to_do_next(page: Page, empty_trace: TraceView) -> None:
    with serving(empty_trace) as url, leaving(page):
        for name in PAGES:
            open_page(page, url, name)
            expect(page.locator("#content .nothing").first).to_be_visible()


def test_an_address_that_makes_no_sense_is_no_error(page: Page, url: str) -> None:
    nonsense = "class=none&page=99999&from=x&to=1e9&least=-3&span=0&with=/etc/passwd&run=../..&caller=%00&order=;"
    open_page(page, url, f"{PAGES[-1]}?{nonsense}")
    for name in PAGES:
        turn_to(page, name, f"?{nonsense}")
    open_page(page, url, "nowhere")
    expect(page.locator("#content")).to_contain_text("There is no such page")


def test_the_theme_is_kept_over_pages(page: Page, url: str) -> None:
    open_page(page, url, "quality")
    before = page.locator("html").get_attribute("data-theme")
    page.keyboard.press("t")
    expect(page.locator("html")).not_to_have_attribute("data-theme", before or "")
    page.locator("#pages-nav a", has_text="Timeline").click()
    expect(page.locator("#arrows")).to_be_visible()
    expect(page.locator("html")).not_to_have_attribute("data-theme", before or "")


def test_bench_shows_a_run_of_warp_and_what_it_does_not_record(page: Page, crowd: TraceView, tmp_path: Path) -> None:
    folder = write_warp_run(tmp_path / "warp", crowd.start_ns, _apart(crowd)[:2])
    with serving(crowd, companions=Companions((folder,))) as url, leaving(page):
        open_page(page, url, "bench")
        assert cell(page, "#runs", "warp", "retries") == "not recorded"
        assert cell(page, "#runs", "warp", "recorded here") == "✓ yes"
        expect(page.locator("#joined")).to_contain_text("2 of 3 operations are joined with their request")
        expect(page.locator("#joined")).to_contain_text("Without a request in the trace: 1.")
        expect(page.locator("#joined")).to_contain_text("warp records no answers")
        listed = page.locator("#run tbody tr")
        expect(listed.first).to_contain_text("not in this trace")
        expect(listed.nth(1)).to_contain_text("201")
        listed.nth(1).locator("a").click()
        expect(page.locator("#request-details h2")).to_have_text(re.compile(r"^Request #\d+$"))


def _apart(trace: TraceView) -> list[tuple[int, int]]:
    """Begin and end (since the trace's) of requests that do not hold another one wholly."""
    rows = trace.load.table.select("start_ns", "end_ns").rows()
    return [
        (begin, end)
        for begin, end in rows
        if sum(begin - 60_000 <= other and ended <= end + 60_000 for other, ended in rows) == 1
    ]
