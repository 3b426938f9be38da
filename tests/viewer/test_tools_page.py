"""Search, the list of packets and saving, in a real browser; mostly by keyboard alone."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from collector.queries import TraceView
from tests.helpers.viewer_page import Held, act_and_settle, open_page, view

pytestmark = pytest.mark.browser
ASSETS = Path(__file__).parents[2] / "viewer" / "assets"


def search_for(page: Page, text: str) -> None:
    """By keyboard: to the box, over what stands there, and to the first hit."""
    page.keyboard.press("/")
    page.keyboard.type(text)
    act_and_settle(page, lambda: page.keyboard.press("Enter"))


def save(page: Page, selector: str, place: Path) -> Path:
    """Open the menu by its key and take one of what it offers."""
    page.keyboard.press("e")
    with page.expect_download() as download:
        page.locator(f"#save {selector}").click()
    download.value.save_as(place)
    return place


def test_search_steps_through_its_hits_and_the_address_keeps_it(
    page: Page, small_url: str, small_trace: TraceView
) -> None:
    open_page(page, small_url)
    search_for(page, "cat.jpg")
    result = page.locator("#search-result")
    expect(result).to_have_text(f"1 of 3: {small_trace.request(0).title}")
    expect(page.locator("#request-details h2")).to_have_text("Request #1")
    assert view(page)[0] < small_trace.request(0).start_ns < small_trace.request(0).end_ns < view(page)[1]
    for key, number in (("Enter", 2), ("Enter", 3), ("Enter", 1), ("Shift+Enter", 3)):
        act_and_settle(page, lambda key=key: page.keyboard.press(key))  # type: ignore[misc]
        expect(result).to_have_text(re.compile(rf"^{number} of 3"))
    page.keyboard.press("Escape")
    expect(page.locator("#arrows")).to_be_focused()
    page.reload()
    expect(page.locator("#search-text")).to_have_value("cat.jpg")


def test_a_search_completes_its_last_word(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    page.keyboard.press("/")
    page.keyboard.type("put and host:stor")
    first = page.locator("#search-words option").first
    expect(first).to_have_attribute("value", re.compile(r"^put and host:storage\d$"))
    page.keyboard.type("age2) or outc")
    expect(first).to_have_attribute("value", "put and host:storage2) or outcome:")
    expect(first).to_have_attribute("label", re.compile("how it ended"))


def test_search_says_what_it_cannot_find_or_understand(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    page.keyboard.press("/")
    page.keyboard.type("nowhere")
    page.keyboard.press("Enter")
    expect(page.locator("#search-result")).to_have_text("nothing found")
    page.keyboard.press("Control+a")
    page.keyboard.type(">soon")
    page.keyboard.press("Enter")
    expect(page.locator("#search-result")).to_contain_text("character 1: '>soon' is no duration; write >50ms")


def test_only_the_packets_of_requests_that_are_found_are_shown(
    page: Page, small_url: str, small_trace: TraceView
) -> None:
    open_page(page, small_url)
    whole = page.locator("#badge").inner_text()
    two = sum(small_trace.request(number).hops_count for number in (0, 2))
    page.keyboard.press("/")
    page.keyboard.type("not #2")
    act_and_settle(page, lambda: page.locator("#search-only").click())
    expect(page.locator("#search-result")).to_have_text("only the packets of its 2 requests")
    expect(page.locator("#search-only")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#badge")).to_have_text(
        re.compile(f"^(density of )?{two} .*, only of requests that not #2 finds")
    )
    page.reload()
    expect(page.locator("#badge")).to_contain_text(f"{two} ")
    expect(page.locator("#search-result")).to_have_text("only the packets of its 2 requests")
    page.locator("#arrows").focus()
    page.keyboard.press("l")
    expect(page.locator("#packets-title")).to_have_text(f"{two} packets in view of requests that not #2 finds")
    page.keyboard.press("u")
    expect(page.locator("#badge")).to_have_text(whole)
    page.keyboard.press("/")
    page.keyboard.type("nowhere")
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(page.locator("#search-result")).to_have_text("no request is found")
    expect(page.locator("#search-only")).to_have_attribute("aria-pressed", "false")


def test_every_packet_of_a_request_is_listed_and_chosen_by_keyboard(
    page: Page, small_url: str, small_trace: TraceView
) -> None:
    open_page(page, small_url)
    search_for(page, "#2")
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    request = small_trace.request(1)
    expect(page.locator("#packets-title")).to_have_text(f"{request.hops_count} packets of request #2")
    expect(page.locator("#packet-scroll")).to_be_focused()
    page.keyboard.press("End")
    last = page.locator(".packet-row.active")
    expect(last).to_have_attribute("aria-rowindex", str(request.hops_count))
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    second = small_trace.request_packets(1, 1, 1).number[0]
    expect(page.locator('.packet-row[aria-selected="true"] span').first).to_have_text(str(second))
    expect(page.locator("#packet-details")).to_contain_text("Packet")
    assert f"hop={second}" in page.url
    assert "list=1" in page.url
    page.keyboard.press("Escape")
    expect(page.locator("#packets")).to_be_hidden()


def test_keys_that_are_faster_than_the_rows_wait_for_them(page: Page, small_url: str, small_trace: TraceView) -> None:
    held = Held(page, "**/api/requests/1/packets?**")
    held.hold()
    open_page(page, small_url)
    search_for(page, "#2")
    page.keyboard.press("Escape")
    with page.expect_request("**/api/requests/1/packets?**"):
        page.keyboard.press("l")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#packet-details")).to_be_empty()
    held.release()
    second = small_trace.request_packets(1, 1, 1).number[0]
    expect(page.locator('.packet-row[aria-selected="true"] span').first).to_have_text(str(second))
    expect(page.locator("#packet-details")).to_contain_text("Packet")


def test_the_list_follows_the_view_while_no_request_is_selected(
    page: Page, small_url: str, small_trace: TraceView
) -> None:
    open_page(page, small_url, "#list=1")
    title = page.locator("#packets-title")
    expect(title).to_have_text(f"{small_trace.summary.hops_count} packets in view")
    page.locator("#arrows").focus()
    act_and_settle(page, lambda: page.keyboard.press("w"))
    from_ns, to_ns = (round(time) for time in view(page))
    expect(title).to_have_text(re.compile(rf"^{small_trace.count(from_ns, to_ns)} packets? in view$"))


def test_the_view_is_saved_as_png_svg_and_a_page_that_needs_nothing_else(
    page: Page, small_url: str, tmp_path: Path
) -> None:
    open_page(page, small_url)
    search_for(page, "#1")
    page.keyboard.press("Escape")
    png = save(page, '[data-action="picture-png"]', tmp_path / "view.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    svg = ElementTree.parse(save(page, '[data-action="picture-svg"]', tmp_path / "view.svg")).getroot()
    texts = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"client", "proxy", "storage1", "SYN"} <= texts
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}path"))) > 20
    saved = save(page, '[data-action="picture-html"]', tmp_path / "view.html")
    assert "<script" not in saved.read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#|")""", saved.read_text())
    page = page.context.new_page()
    page.set_content(saved.read_text())
    expect(page.locator("h1")).to_contain_text("took")
    expect(page.locator(".ledger").first).to_contain_text("100 %")
    assert page.locator(".packets tbody tr").count() > 10
    assert page.locator("button, script").count() == 0


def test_svg_knows_every_stroke_that_the_timeline_is_drawn_with() -> None:
    drawn = set()
    for name in ("draw/arrows", "draw/marks", "draw/scene", "draw/strips", "page/save"):
        drawn |= set(re.findall(r"\bcontext\.(\w+)\(", (ASSETS / f"{name}.js").read_text()))
    known = set(re.findall(r"^  (\w+)\(.*\{", (ASSETS / "draw" / "svg.js").read_text(), re.MULTILINE))
    assert {"moveTo", "fillText", "strokeRect"} <= drawn
    assert drawn <= known


def test_space_presses_a_button_and_nothing_else(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    button = page.locator('[data-action="packets"]').first
    button.focus()
    page.keyboard.press("Space")
    expect(page.locator("#packets")).to_be_visible()


def test_the_packets_of_the_selection_are_saved_as_tables(
    page: Page, small_url: str, small_trace: TraceView, tmp_path: Path
) -> None:
    open_page(page, small_url)
    whole = save(page, '[data-save="csv"]', tmp_path / "view.csv").read_text().splitlines()
    assert len(whole) == 1 + small_trace.summary.hops_count
    search_for(page, "#3")
    page.keyboard.press("Escape")
    table = pq.read_table(save(page, '[data-save="parquet"]', tmp_path / "request.parquet"))
    assert table.num_rows == small_trace.request(2).hops_count
    mine = {span.number for span in small_trace.spans(2)}
    assert len(set(table["exchange_id"].to_pylist()) - {None}) == len(mine)


def test_a_link_carries_the_view_a_note_and_the_traces_name(page: Page, small_url: str, small_trace: TraceView) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, small_url)
    search_for(page, "#2")
    page.keyboard.press("Escape")
    page.once("dialog", lambda dialog: dialog.accept("look <b>here</b> & there"))
    page.keyboard.press("k")
    expect(page.locator("#note")).to_contain_text("look <b>here</b> & there")
    expect(page.locator("#badge")).to_have_text("The link is copied")
    link = page.evaluate("navigator.clipboard.readText()")
    seen = view(page)
    other = page.context.new_page()
    open_page(other, link)
    expect(other.locator("#note span")).to_have_text("look <b>here</b> & there")
    expect(other.locator("#request-details h2")).to_have_text("Request #2")
    assert view(other) == pytest.approx(seen, abs=1)
    other.locator("#note button").click()
    expect(other.locator("#note")).to_be_hidden()
    assert "note=" not in other.url
    other.goto("about:blank")
    open_page(other, link.replace(f"trace={small_trace.summary.name}", "trace=another"))
    expect(other.locator("#note span").first).to_have_text(
        f"This link was made for the trace another; here is {small_trace.summary.name}."
    )
    other.close()
