"""The page in a real browser. The `page` fixture fails a test on any console error and any request to elsewhere."""

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from collector.queries import TraceView
from tests.helpers.viewer_page import (
    FRAMES,
    Held,
    act_and_settle,
    arrow_point,
    canvas_middle,
    count_pixels,
    ink,
    leaving,
    open_page,
    request_row,
    view,
)
from tests.helpers.viewer_server import serving
from viewer.wording import facts_line

pytestmark = pytest.mark.browser


def test_the_first_screen_shows_the_story_and_the_facts(page: Page, small_url: str, small_trace: TraceView) -> None:
    open_page(page, small_url)
    expect(page.locator("h1")).to_have_text(small_trace.story.sentence.replace("`", ""))
    for fact in facts_line(small_trace.summary, len(small_trace.lanes)):
        expect(page.locator("#facts")).to_contain_text(fact)
    expect(page.locator("#head .warning")).to_contain_text("12 capture dropped")
    expect(page.locator("#lanes .lane b")).to_have_text([lane.host for lane in small_trace.lanes])
    expect(page.locator("#badge")).to_have_text(re.compile(rf"^{small_trace.summary.hops_count} arrows in "))
    assert re.search(r">[\d.]+ ms<", page.evaluate("window.twintap.svgPicture()"))
    assert page.evaluate("typeof window.Plotly") == "undefined", "it is loaded with the first waterfall"


@pytest.mark.parametrize("cls", range(5))
def test_arrows_of_every_class_are_drawn_and_the_legend_hides_them(asked_page: Page, cls: int) -> None:
    assert ink(asked_page, cls) > 10
    legend = asked_page.locator(f'[data-class="{cls}"]')
    legend.click()
    expect(legend).to_have_attribute("aria-pressed", "false")
    assert ink(asked_page, cls) == 0
    legend.click()


def test_the_wheel_zooms_at_the_cursor_and_a_drag_pans(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    before = view(page)
    x, y = canvas_middle(page)
    page.mouse.move(x, y)
    act_and_settle(page, lambda: page.mouse.wheel(0, -400))
    zoomed = view(page)
    assert zoomed[1] - zoomed[0] == pytest.approx((before[1] - before[0]) * 2.71828 ** (-400 * 0.0022), rel=1e-3)
    assert sum(zoomed) / 2 == pytest.approx(sum(before) / 2, rel=1e-3)  # what is under the cursor stays there

    def drag() -> None:
        page.mouse.down()
        page.mouse.move(x - 100, y, steps=5)
        page.mouse.up()

    act_and_settle(page, drag)
    width = page.locator("#arrows").bounding_box()["width"]  # type: ignore[index]
    moved = view(page)
    assert moved[0] - zoomed[0] == pytest.approx((zoomed[1] - zoomed[0]) * 100 / width, rel=1e-2)


def test_zoom_reaches_nanoseconds_and_the_ruler_says_so(page: Page, small_url: str) -> None:
    open_page(page, small_url, "#from=40000000&to=40000040")
    assert view(page) == (40_000_000, 40_000_040)
    expect(page.locator("#base")).to_have_text("0.040 s")
    assert re.search(r">\+\d+ ns<", page.evaluate("window.twintap.svgPicture()"))


def test_hovering_shows_the_packets_fields_and_the_delay_with_its_uncertainty(page: Page, small_url: str) -> None:
    open_page(page, small_url, "#from=40000000&to=40400000")
    page.mouse.move(*arrow_point(page, 3))
    tip = page.locator("#tip")
    expect(tip).to_contain_text("client/eth0 → ")
    expect(tip).to_contain_text("±")
    expect(tip).to_contain_text("10.77.0.11 port 8080")
    expect(tip).to_contain_text("0.040 187 406 s")


def test_clicking_an_arrow_lights_up_its_request(page: Page, small_url: str, small_trace: TraceView) -> None:
    open_page(page, small_url, "#from=40000000&to=40400000")
    page.mouse.click(*arrow_point(page, 3))
    panel = page.locator("#request-details")
    expect(panel.locator("h2")).to_have_text("Request #1")
    expect(panel.locator(".ledger tfoot")).to_contain_text("100 %")
    expect(page.locator("#waterfall .barlayer .trace")).to_have_count(4)  # no client pauses
    page.wait_for_function("() => window.twintap.state.selected !== null")
    assert page.evaluate("window.twintap.state.selected.number.length") == small_trace.request(0).hops_count
    expect(page.locator("#packet-details")).to_contain_text("Packet")
    expect(request_row(page, 0)).to_have_attribute("aria-current", "true")
    page.keyboard.press("Escape")
    expect(panel).to_be_empty()
    expect(page.locator("#request-waterfall")).to_be_empty()
    expect(request_row(page, 0)).to_have_attribute("aria-current", "false")


def test_a_packet_that_is_answered_late_is_not_shown(page: Page, small_url: str) -> None:
    held = Held(page, "**/api/hops/3")
    held.hold()
    open_page(page, small_url, "#from=40000000&to=40400000")
    with page.expect_request("**/api/hops/3"):
        page.mouse.click(*arrow_point(page, 3))
    page.keyboard.press("Escape")
    held.release()
    page.wait_for_function("async () => (await window.twintap.fetchHop(3)) !== null")
    page.evaluate(FRAMES)
    assert page.locator("#packet-details").inner_text() == ""


def test_the_rest_dims_while_a_request_is_selected_and_f_fits_it(
    page: Page, small_url: str, small_trace: TraceView
) -> None:
    def faint() -> int:
        return int(page.evaluate("""window.twintap.svgPicture().split('opacity="0.13"').length - 1"""))

    open_page(page, small_url)
    assert faint() == 0
    act_and_settle(page, lambda: request_row(page, 1).click())
    page.wait_for_function("() => window.twintap.state.selected !== null")
    act_and_settle(page, lambda: page.keyboard.press("0"))
    assert faint() > 0
    act_and_settle(page, lambda: page.keyboard.press("f"))
    request, (from_ns, to_ns) = small_trace.request(1), view(page)
    assert from_ns < request.start_ns < request.end_ns < to_ns < from_ns + 1.3 * request.duration_ns
    page.keyboard.press("Escape")
    assert faint() == 0


def test_few_packets_are_a_labelled_ladder(page: Page, small_url: str) -> None:
    open_page(page, small_url, "#from=40000000&to=40400000")
    texts = page.evaluate("window.twintap.svgPicture().match(/>[^<]+<.text>/g).map(each => each.slice(1, -7))")
    assert {"SYN", "ACK"} <= set(texts)
    assert any(re.match(r"^data seq \d+ len 310$", each) for each in texts)


def test_a_row_of_the_list_zooms_to_its_request(page: Page, small_url: str, small_trace: TraceView) -> None:
    open_page(page, small_url)
    act_and_settle(page, lambda: request_row(page, 2).click())
    request, (from_ns, to_ns) = small_trace.request(2), view(page)
    assert from_ns < request.start_ns < request.end_ns < to_ns
    assert to_ns - from_ns < 1.3 * request.duration_ns


def test_a_bar_of_the_waterfall_zooms_to_its_exchange(page: Page, small_url: str, small_trace: TraceView) -> None:
    open_page(page, small_url)
    act_and_settle(page, lambda: request_row(page, 0).click())
    bars = page.locator("#waterfall .barlayer .trace").nth(3).locator(".point")
    expect(bars).to_have_count(4)
    bars.nth(1).scroll_into_view_if_needed()
    box = bars.nth(1).bounding_box()
    assert box is not None
    act_and_settle(page, lambda: page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
    span, (from_ns, to_ns) = small_trace.spans(0)[1], view(page)
    assert from_ns < span.start_ns < span.end_ns < to_ns < span.end_ns + span.duration_ns


def test_the_address_holds_the_view_and_the_selection(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    act_and_settle(page, lambda: request_row(page, 1).click())
    page.locator('[data-class="2"]').click()
    before, address = view(page), page.url
    assert "request=2" in address
    assert "hide=2" in address
    other = page.context.new_page()
    open_page(other, address)
    assert view(other) == pytest.approx(before, abs=1)
    expect(other.locator("#request-details h2")).to_have_text("Request #2")
    expect(other.locator('[data-class="2"]')).to_have_attribute("aria-pressed", "false")


def test_keys_move_zoom_fit_and_step_through_problems(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    whole = view(page)
    for key, smaller in (
        ("w", True),
        ("d", False),
        ("a", False),
        ("s", False),
        ("ArrowUp", True),
        ("ArrowDown", False),
    ):
        before = view(page)
        act_and_settle(page, lambda key=key: page.keyboard.press(key))  # type: ignore[misc]
        assert view(page) != before
        assert (view(page)[1] - view(page)[0] < before[1] - before[0]) == smaller
    act_and_settle(page, lambda: page.keyboard.press("0"))
    assert view(page) == pytest.approx(whole)
    act_and_settle(page, lambda: page.keyboard.press("n"))
    expect(page.locator("#packet-details")).to_contain_text("lost on the way")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).not_to_be_visible()


def test_the_minimap_moves_the_window(page: Page, small_url: str) -> None:
    open_page(page, small_url, "#from=40000000&to=45000000")
    box = page.locator("#minimap").bounding_box()
    assert box is not None
    act_and_settle(page, lambda: page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
    from_ns, to_ns = view(page)
    assert to_ns - from_ns == pytest.approx(5_000_000)
    assert (from_ns + to_ns) / 2 == pytest.approx(page.evaluate("window.twintap.meta.duration") / 2, rel=0.01)


def test_the_tip_goes_when_the_view_moves(page: Page, small_url: str) -> None:
    open_page(page, small_url, "#from=40000000&to=40400000")
    page.mouse.move(*arrow_point(page, 3))
    expect(page.locator("#tip")).to_be_visible()
    act_and_settle(page, lambda: page.keyboard.press("d"))
    expect(page.locator("#tip")).not_to_be_visible()


def test_requests_are_reached_and_chosen_by_keyboard(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    request_row(page, 0).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#request-details h2")).to_have_text("Request #2")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_toggle(chromium: Browser, small_url: str, theme: str) -> None:
    context = chromium.new_context(color_scheme="dark" if theme == "dark" else "light")
    page = context.new_page()
    open_page(page, small_url)
    root, other = page.locator("html"), {"light": "dark", "dark": "light"}[theme]
    expect(root).to_have_attribute("data-theme", theme)
    page.keyboard.press("t")
    expect(root).to_have_attribute("data-theme", other)
    assert ink(page, 0) > 10
    page.reload()
    expect(root).to_have_attribute("data-theme", other)
    context.close()


def test_many_packets_are_counted_and_zooming_in_shows_each(page: Page, large_trace: TraceView) -> None:
    with serving(large_trace) as url, leaving(page):
        open_page(page, url)
        expect(page.locator("#badge")).to_contain_text(f"density of {large_trace.summary.hops_count:,} packets")
        page.mouse.move(*canvas_middle(page))
        expect(page.locator("#tip")).to_contain_text("packets in")
        _check_bands(page)
        middle = large_trace.duration_ns // 2
        act_and_settle(page, lambda: page.evaluate(f"location.hash = '#from={middle}&to={middle + 5_000_000}'"))
        page.wait_for_function("() => window.twintap.state.data.mode === 'arrows'")
        expect(page.locator("#badge")).to_have_text(re.compile(r"^\d+ arrows in 5"))


def test_bands_are_asked_for_one_view_at_a_time_and_for_the_last_one(page: Page, large_trace: TraceView) -> None:
    """Of a large trace the first answer takes seconds, in which a server must not be kept from other answers."""
    asked: list[Route] = []

    def hold_first(route: Route) -> None:
        asked.append(route)
        if len(asked) > 1:
            route.continue_()

    page.route("**/api/bands?*", hold_first)
    duration = large_trace.duration_ns
    with serving(large_trace) as url, leaving(page):
        open_page(page, url)
        for share in (2, 3, 4):
            act_and_settle(page, lambda end=duration // share: page.evaluate(f"location.hash = '#from=0&to={end}'"))
        assert len(asked) == 1
        asked[0].continue_()
        page.wait_for_function(f"() => window.twintap.state.bands?.requestedWidth === {duration // 4}")
        assert len(asked) == 2
        page.unroute("**/api/bands?*")


def _check_bands(page: Page) -> None:
    """Each host that serves has a band, and the tip says exactly what it stands for; `b` takes it away."""
    page.wait_for_function("() => window.twintap.state.bands")
    assert page.evaluate("[...window.twintap.state.bands.served]") == [0, *[1] * 7]  # all but the client
    assert band_ink(page) > 1_000
    left, top, row = page.evaluate(
        """() => {
            const { left, top, width } = document.getElementById("arrows").getBoundingClientRect();
            return [left + width / 2, top, window.twintap.currentView().y(1)];
        }"""
    )
    page.mouse.move(left, top + row + 3)
    expect(page.locator("#tip b").first).to_have_text(
        re.compile(r"^proxy: \d+ requests?, (p99 )?\d.* ms \(1\.0 × usual\), at most \d at once$")
    )
    expect(page.locator("#tip")).to_contain_text("packets in")
    page.mouse.move(left, top + page.evaluate("window.twintap.currentView().y(0)") + 3)
    expect(page.locator("#tip b").first).to_contain_text("packets in")
    page.keyboard.press("b")
    assert band_ink(page) < 200
    assert "bands=off" in page.url
    page.keyboard.press("b")


def band_ink(page: Page) -> int:
    """Pixels that are more of the colour of requests at once than of any other that the picture has."""
    return count_pixels(page, "r < 100 && g > b + 8")


def test_problems_are_seen_at_every_zoom(page: Page, large_trace: TraceView) -> None:
    problem = large_trace.next_problem(large_trace.duration_ns // 2)
    assert problem is not None
    with serving(large_trace) as url, leaving(page):
        open_page(page, url)
        for width in (2_000_000_000, 100_000_000, 1_000_000):
            assert ink(page, 3) + ink(page, 4) > 0
            bounds = f"#from={problem.from_ns - width // 2}&to={problem.from_ns + width // 2}"
            act_and_settle(page, lambda bounds=bounds: page.evaluate(f"location.hash = '{bounds}'"))  # type: ignore[misc]
        page.wait_for_function("() => window.twintap.state.data.mode === 'arrows'")
        assert ink(page, 3) + ink(page, 4) > 0


def test_until_packets_have_come_the_page_says_that_it_waits(page: Page, small_url: str) -> None:
    held = Held(page, "**/api/window*")
    held.hold()
    with page.expect_request("**/api/window*"):
        page.goto(small_url)
    page.wait_for_function("() => window.twintap.meta")
    expect(page.locator("#badge")).to_have_text("loading…")
    held.release()
    expect(page.locator("#badge")).to_contain_text("arrows in")


def test_texts_of_a_capture_run_no_script(page: Page, hostile_trace: TraceView) -> None:
    with serving(hostile_trace) as url, leaving(page):
        open_page(page, url)
        act_and_settle(page, lambda: request_row(page, 0).click())
        expect(page.locator("#waterfall .annotation-text").first).to_be_visible()
        act_and_settle(page, lambda: page.keyboard.press("w"))
        middle = (view(page)[0] + view(page)[1]) / 2
        number = page.evaluate("t => window.twintap.state.data.sent.findIndex(each => each > t)", middle)
        page.mouse.click(*arrow_point(page, number))
        expect(page.locator("#packet-details")).to_contain_text("onerror")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img, main script").count() == 0


def test_an_empty_trace_says_what_to_do(page: Page, empty_trace: TraceView) -> None:
    with serving(empty_trace) as url, leaving(page):
        open_page(page, url)
        expect(page.locator(".empty")).to_contain_text("tracer record")
        expect(page.locator("#requests")).to_contain_text("there are no requests")


def test_when_the_server_is_gone_the_page_says_so_and_keeps_its_picture(
    chromium: Browser, large_trace: TraceView
) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
    page = context.new_page()
    with serving(large_trace) as url:
        open_page(page, url, "#bands=off")
    page.keyboard.press("w")
    expect(page.locator("#banner")).to_contain_text("tracer view")
    assert ink(page, 2) > 10
    context.close()


def test_the_line_on_pairing_opens_its_tables(page: Page, small_url: str, small_trace: TraceView) -> None:
    open_page(page, small_url)
    line, dialog = page.locator("#facts").get_by_role("button"), page.locator("#pairing")
    expect(line).to_have_text(small_trace.pairing.words)
    line.focus()
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    expect(dialog.locator(".figures tbody tr")).to_have_count(len(small_trace.pairing.host_pairs))
    expect(dialog.locator("thead th")).to_have_text(
        ["hops", "matched", "sent again", "lost", "dropped", "outside", "ambiguous"]
    )
    expect(dialog.locator(".warning")).to_contain_text("12 capture dropped")
    box = dialog.bounding_box()
    assert box is not None
    assert 0 <= box["y"] < box["y"] + box["height"] <= 720
    assert 0 <= box["x"] < box["x"] + box["width"] <= 1280
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    expect(line).to_be_focused()
    page.keyboard.press("p")
    expect(dialog).to_be_visible()


def test_a_connection_of_the_pairing_shows_its_first_trouble(
    page: Page, small_url: str, small_trace: TraceView
) -> None:
    open_page(page, small_url)
    page.keyboard.press("p")
    worst = small_trace.pairing.worst_connections[0]
    trouble = small_trace.first_trouble(worst.connection_id)
    assert trouble is not None
    assert trouble.hop is not None
    act_and_settle(page, lambda: page.locator(f'[data-connection="{worst.connection_id}"]').click())
    expect(page.locator("#pairing")).not_to_be_visible()
    assert view(page)[0] < trouble.from_ns < view(page)[1]
    page.wait_for_function("number => window.twintap.state.selection.hop === number", arg=trouble.hop)


def test_a_connection_is_gone_to_though_the_dialog_was_closed_before_the_answer(
    page: Page, small_url: str, small_trace: TraceView
) -> None:
    held = Held(page, "**/api/connections/*/trouble")
    held.hold()
    open_page(page, small_url)
    page.keyboard.press("p")
    worst = small_trace.pairing.worst_connections[0]
    trouble = small_trace.first_trouble(worst.connection_id)
    assert trouble is not None
    with page.expect_request("**/api/connections/*/trouble"):
        page.locator(f'[data-connection="{worst.connection_id}"]').click()
    page.keyboard.press("Escape")
    expect(page.locator("#pairing")).not_to_be_visible()
    held.release()
    page.wait_for_function("number => window.twintap.state.selection.hop === number", arg=trouble.hop)


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (3840, 2160)])
def test_it_fits_the_screen(page: Page, small_url: str, width: int, height: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    open_page(page, small_url)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    last = page.locator("#lanes .lane").last.bounding_box()
    assert last is not None
    assert last["y"] + last["height"] <= height
    bar = page.locator("#actions").bounding_box()
    assert bar is not None
    assert bar["x"] + bar["width"] <= width


def test_the_packets_of_a_connection_one_after_the_other(page: Page, small_url: str, small_trace: TraceView) -> None:
    arrows = small_trace.request_packets(0, 0, 1_000)
    of = {int(number): small_trace.hop(int(number)) for number in arrows.number}
    first = of[int(arrows.number[0])]
    assert first is not None
    mine = [number for number, hop in of.items() if hop is not None and hop.connection_id == first.connection_id]
    half = 2_000
    at_ns = first.sent_ns or 0
    open_page(page, f"{small_url}#from={at_ns - half}&to={at_ns + half}&hop={first.number}")
    details = page.locator("#packet-details h3")
    expect(details).to_contain_text("Packet")
    for number in mine[1:3]:
        page.keyboard.press(".")
        page.wait_for_function(f"() => location.hash.includes('hop={number}')")
    page.locator("[data-action=previous-packet]").click()
    page.wait_for_function(f"() => location.hash.includes('hop={mine[1]}')")
    page.keyboard.press(",")
    page.wait_for_function(f"() => location.hash.includes('hop={mine[0]}')")
    page.keyboard.press(",")
    expect(page.locator("#badge")).to_have_text("The connection's first packet")


def test_an_empty_view_leads_to_the_packets_around_it(page: Page, small_url: str, small_trace: TraceView) -> None:
    arrows = small_trace.packets_between(0, small_trace.duration_ns + 1, 0, 100_000)
    ends = sorted(zip(arrows.sent_ns.tolist(), arrows.received_ns.tolist(), strict=True))
    gap = max(range(1, len(ends)), key=lambda at: ends[at][0] - max(end for _, end in ends[:at]))
    begin, end = max(end for _, end in ends[:gap]), ends[gap][0]
    third = (end - begin) // 3
    open_page(page, f"{small_url}#from={begin + third}&to={end - third}")
    box = page.locator("#nowhere")
    expect(box).to_be_visible()
    expect(box).to_contain_text("No packet here.")
    act_and_settle(page, lambda: box.locator("button", has_text="the next").click())
    expect(box).to_be_hidden()
    assert view(page)[0] < end < view(page)[1]
    act_and_settle(page, lambda: page.keyboard.press("0"))
    expect(box).to_be_hidden()
