"""What stands on the time axis beside the packets: use of hosts, findings, faults, load, clocks, early receives."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from collector.queries import TraceView, open_trace
from testkit.synthetic_trace import EPOCH_NS, Recipe, write_synthetic_trace
from tests.helpers.bench_folders import STARTED_NS, write_run
from tests.helpers.stored_tables import write_table
from tests.helpers.viewer_page import act_and_settle, ink, open_page, view
from tests.helpers.viewer_server import serving
from viewer.pages.context import Companions

pytestmark = pytest.mark.browser
MS = 1_000_000
PROXY_AHEAD_NS = 2 * MS
PLACE = """([time, row]) => {
    const view = window.twintap.currentView(), box = document.getElementById("arrows").getBoundingClientRect();
    return [box.left + view.x(time), box.top + view.y(row), view.gap, box.bottom - window.twintap.stripsRoom()];
}"""


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """Three uploads; samples of two hosts, a finding, a fault, and a proxy whose clock is 2 ms ahead."""
    folder = tmp_path_factory.mktemp("marked") / "trace"
    write_synthetic_trace(folder, Recipe(offsets_ns=(0, PROXY_AHEAD_NS)))
    _write_samples(folder)
    _write_finding(folder)
    fault = {"kind": "slow-disk", "target": "storage1/sda"}
    events = [("planned", 0), ("started", 45), ("ended", 60)]
    lines = [{"id": 1, "event": event, "wall_ns": EPOCH_NS + at * MS, "fault": fault} for event, at in events]
    (folder / "faults.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return open_trace(str(folder))


def _write_samples(folder: Path) -> None:
    rows = [
        (host, EPOCH_NS + at * 5 * MS, "cpu_percent", value)
        for at in range(1, 16)
        for host, value in (("client", 12.0), ("storage2", 80.0))
    ]
    names = ("host", "host_ns", "metric", "value")
    columns = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    write_table(str(folder), "samples", pa.table(columns))


def _write_finding(folder: Path) -> None:
    columns = {
        "kind": ["slow_disk"],
        "severity": ["warning"],
        "host": ["storage3"],
        "from_trace_ns": [EPOCH_NS + 50 * MS],
        "to_trace_ns": [EPOCH_NS + 58 * MS],
        "text": ["storage3 did not answer for 8 ms"],
    }
    write_table(str(folder), "findings", pa.table(columns))


@pytest.fixture(scope="module")
def url(marked: TraceView, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it is served, with a run of the load generator beside it."""
    run = tmp_path_factory.mktemp("runs") / "run"
    assert STARTED_NS == EPOCH_NS
    write_run(run, 512, ["tx1"])
    with serving(marked, companions=Companions((run,))) as served:
        yield served


def place(page: Page, time_ns: int, row: int = 0) -> tuple[float, float, float, float]:
    """Of a time and a row on the screen: x, y; how far rows are apart; where what is under them begins."""
    x, y, gap, below = page.evaluate(PLACE, [time_ns, row])
    return x, y, gap, below


def drawn_texts(page: Page) -> str:
    return str(page.evaluate("window.twintap.svgPicture().match(/>[^<]+<.text>/g).join(' ')"))


def test_a_strip_shows_the_busiest_host_and_the_mean(page: Page, url: str) -> None:
    open_page(page, url)
    page.wait_for_function("() => window.twintap.svgPicture().includes('CPU up to 80 %')")
    x, _, _, below = place(page, 52 * MS)
    page.mouse.move(x, below + 40)
    expect(page.locator("#tip")).to_contain_text("CPU: storage2 80 %")
    expect(page.locator("#tip")).to_contain_text("mean of the hosts 46 %")


def test_a_finding_is_a_mark_on_its_host_and_a_step_leads_to_it(page: Page, url: str, marked: TraceView) -> None:
    open_page(page, url)
    row = [lane.host for lane in marked.lanes].index("storage3")
    x, y, gap, _ = place(page, 50 * MS, row)
    page.mouse.move(x, y - min(16, 0.3 * gap))
    expect(page.locator("#tip")).to_contain_text("warning: storage3 did not answer for 8 ms")
    expect(page.locator("#tip")).to_contain_text("for 8 ms")
    assert ink(page, 4) > 10  # a full diamond, in the colour of lost packets: there are none here
    act_and_settle(page, lambda: page.keyboard.press("n"))
    expect(page.locator("#badge")).to_contain_text("storage3 did not answer for 8 ms")
    assert view(page)[0] < 50 * MS < 58 * MS < view(page)[1]


def test_faults_and_steps_of_the_load_are_named_bands(page: Page, url: str, marked: TraceView) -> None:
    open_page(page, url, f"#from={44 * MS}&to={61 * MS}&hide=0,1,2")
    texts = drawn_texts(page)
    assert "fault: slow-disk on storage1/sda" in texts
    assert "load: put, 512 at once" in texts
    row = [lane.host for lane in marked.lanes].index("storage1")
    x, y, gap, below = place(page, 59 * MS, row)
    page.mouse.move(x, y + 0.46 * gap - 8)
    expect(page.locator("#tip")).to_contain_text("fault: slow-disk on storage1/sda")
    page.mouse.move(x, below + 8)
    expect(page.locator("#tip")).to_contain_text("load: put, 512 at once")
    page.locator("#lanes .lane").nth(row).focus()
    page.keyboard.press("Delete")
    assert "fault:" not in drawn_texts(page)  # its host is hidden


def test_raw_clocks_move_packets_and_show_received_before_sent_in_red(page: Page, url: str, marked: TraceView) -> None:
    open_page(page, url)
    hop = _first_between(marked, "proxy", "storage1")
    aligned, red = _times(page, hop), ink(page, 6)
    act_and_settle(page, lambda: page.keyboard.press("c"))
    expect(page.locator('[data-action="clocks"]')).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#badge")).to_contain_text("by raw clocks")
    assert "clocks=raw" in page.url
    assert _times(page, hop) == [aligned[0] + PROXY_AHEAD_NS, aligned[1]]  # received, it seems, 2 ms too early
    assert (
        page.evaluate("number => window.twintap.state.data.cls[window.twintap.state.data.number.indexOf(number)]", hop)
        == 6
    )
    assert ink(page, 6) > red + 100
    page.reload()
    expect(page.locator("#badge")).to_contain_text("by raw clocks")
    act_and_settle(page, lambda: page.keyboard.press("c"))
    assert _times(page, hop) == aligned
    assert ink(page, 6) == red


def _first_between(trace: TraceView, source: str, target: str) -> int:
    for number in range(trace.summary.hops_count):
        hop = trace.hop(number)
        if hop is not None and (hop.source_host, hop.target_host) == (source, target):
            return number
    raise AssertionError


def _times(page: Page, number: int) -> list[float]:
    return list(
        page.evaluate(
            """number => {
                const { data } = window.twintap.state, at = data.number.indexOf(number);
                return [data.sent[at], data.received[at]];
            }""",
            number,
        )
    )


def test_a_whisker_shows_how_far_a_receive_may_be_off(page: Page, url: str, marked: TraceView) -> None:
    hop = marked.hop(3)
    assert hop is not None
    assert hop.received_ns is not None
    assert hop.uncertainty_ns == 3_000
    open_page(page, url, f"#from={hop.received_ns - 30_000}&to={hop.received_ns + 10_000}")
    left, right, width = page.evaluate(
        """time => {
            const view = window.twintap.currentView();
            return [view.x(time - 3000), view.x(time + 3000), view.width];
        }""",
        hop.received_ns,
    )
    assert right - left == pytest.approx(width * 6_000 / 40_000)
    path = re.compile(rf"M{_number(left)} [\d.]+L{_number(right)} ")
    assert path.search(page.evaluate("window.twintap.svgPicture()"))


def _number(value: float) -> str:
    """As SVG pictures write it, whichever way the half of a hundredth went."""
    return "(?:" + "|".join(re.escape(f"{round(value * 100 + off) / 100:g}") for off in (-0.5, 0, 0.5)) + ")"
