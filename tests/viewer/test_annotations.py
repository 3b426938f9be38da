"""Lines of logs on the timeline: drawn below their host's line, pointed at, selected, stepped through, hidden."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from collector.queries import Annotations, TraceView, open_trace
from testkit.synthetic_trace import EPOCH_NS, Recipe, write_synthetic_trace
from tests.collector.queries.test_annotations import MS, write_annotations
from tests.helpers.accessibility import violations
from tests.helpers.viewer_page import leaving, open_page
from tests.helpers.viewer_server import serving
from viewer.annotations import EACH, annotation_details, annotations_switch, said_parts

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror='window.hacked=1'>"
LONG = HOSTILE + 600 * "x"
SHOWN = "() => window.twintap.state.annotations && window.twintap.state.annotations.each"
PLACE = """([time, row, line]) => {
    const view = window.twintap.currentView(), box = document.getElementById("arrows").getBoundingClientRect();
    return [box.left + view.x(time), box.top + view.y(row) + 7 + 6 * line];
}"""


@pytest.fixture(scope="module")
def annotated_trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """Three uploads and three lines of the proxy, the first two at one time."""
    folder = tmp_path_factory.mktemp("annotated_trace") / "trace"
    write_synthetic_trace(folder, Recipe())
    exchange = open_trace(str(folder)).requests_of_exchanges()["exchange_id"][0]
    first = {"start_trace_ns": EPOCH_NS + 20 * MS, "duration_ns": 9 * MS, "text": LONG, "name": HOSTILE}
    rows = [
        first | {"exchange_id": exchange, "joined_by": "connection", "phases": "upstream:4000000"},
        {"start_trace_ns": EPOCH_NS + 21 * MS, "duration_ns": 9 * MS, "severity": "error", "name": "failed"},
        {"start_trace_ns": EPOCH_NS + 45 * MS, "kind": "span", "format": "otlp", "name": "work"},
    ]
    write_annotations(folder, rows)
    return open_trace(str(folder))


@pytest.fixture
def annotated_page(page: Page, annotated_trace: TraceView) -> Iterator[Page]:
    with serving(annotated_trace) as url, leaving(page):
        open_page(page, url)
        page.wait_for_function(SHOWN)
        yield page


def place(page: Page, trace: TraceView, at_ns: int, line: int = 0) -> tuple[float, float]:
    row = [lane.host for lane in trace.lanes].index("proxy")
    x, y = page.evaluate(PLACE, [at_ns - trace.start_ns, row, line])
    return x, y


def test_overlapping_lines_stand_below_one_another(annotated_page: Page) -> None:
    assert [each["line"] for each in annotated_page.evaluate(SHOWN)] == [0, 1, 0]


def test_pointing_at_one_shows_it_and_a_click_selects_it_and_its_request(
    annotated_page: Page, annotated_trace: TraceView
) -> None:
    x, y = place(annotated_page, annotated_trace, EPOCH_NS + 24 * MS)
    annotated_page.mouse.move(x, y)
    expect(annotated_page.locator("#tip")).to_contain_text("joined by connection")
    annotated_page.mouse.click(x, y)
    expect(annotated_page.locator("#packet-details")).to_contain_text("by its connection")
    expect(annotated_page.locator("#packet-details pre")).to_have_text(LONG)
    width = annotated_page.evaluate("document.getElementById('packet-details').scrollWidth")
    assert width < 600, "a long line wraps"
    expect(annotated_page.locator("#request-details")).to_contain_text("As its logs say")
    assert annotated_page.evaluate("window.twintap.state.selection.request") is not None
    assert annotated_page.evaluate("window.hacked") is None
    assert violations(annotated_page) == {}
    x, y = place(annotated_page, annotated_trace, EPOCH_NS + 24 * MS, 1)
    annotated_page.mouse.click(x, y)
    expect(annotated_page.locator("#packet-details")).to_contain_text("of no request that is known")


def test_keys_step_through_them_and_hide_them(annotated_page: Page) -> None:
    for key, number in (("]", 2), ("[", 1), ("[", 0), ("]", 1)):
        annotated_page.keyboard.press(key)
        annotated_page.wait_for_function(f"() => window.twintap.state.annotation === {number}")
    expect(annotated_page.locator("#packet-details")).to_contain_text("failed")
    button = annotated_page.locator("#annotations")
    expect(button).to_have_attribute("aria-pressed", "true")
    annotated_page.keyboard.press("j")
    expect(button).to_have_attribute("aria-pressed", "false")
    assert "logs=off" in annotated_page.url


def test_hidden_ones_are_not_drawn(annotated_page: Page, annotated_trace: TraceView) -> None:
    x, y = place(annotated_page, annotated_trace, EPOCH_NS + 24 * MS)
    box = {"x": x - 20, "y": y - 2, "width": 40, "height": 4}
    shown = annotated_page.screenshot(clip=box)
    annotated_page.keyboard.press("j")
    expect(annotated_page.locator("#annotations")).to_have_attribute("aria-pressed", "false")
    annotated_page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert annotated_page.screenshot(clip=box) != shown


def test_without_annotations_there_is_no_switch(small_trace: TraceView) -> None:
    assert annotations_switch(Annotations(small_trace)) == []
    assert said_parts(()) == []


def test_what_the_page_is_given_has_the_columns_that_it_takes(annotated_trace: TraceView) -> None:
    found = Annotations(annotated_trace).between(0, annotated_trace.duration_ns)
    assert found.select(EACH).row(0)[:3] == (0, "log", [lane.host for lane in annotated_trace.lanes].index("proxy"))


def test_one_in_the_panel_says_how_it_compares(annotated_trace: TraceView) -> None:
    one = Annotations(annotated_trace).one(0)
    assert one is not None
    texts = str(annotation_details(one))
    assert "upstream" in texts
    assert "4.00 ms" in texts


def test_the_legend_and_the_panel_say_whether_it_is_a_line_or_a_span(annotated_trace: TraceView) -> None:
    annotations = Annotations(annotated_trace)
    (switch,) = annotations_switch(annotations)
    assert switch.children[1] == "logs and spans"
    found = [annotations.one(number) for number in (0, 2)]
    assert [annotation_details(each)[0].children[0] for each in found if each] == ["Log ", "Span "]


@pytest.mark.parametrize("path", ["annotations?from=x&to=1", "annotations/99", "annotations/beside?number=0&at=z"])
def test_questions_that_make_no_sense(page: Page, annotated_trace: TraceView, path: str) -> None:
    with serving(annotated_trace) as url:
        assert page.request.get(f"{url}/api/{path}").status in (400, 404)
