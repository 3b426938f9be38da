"""Rows of the timeline: hosts are moved, hidden, grouped, split and scrolled, and the address says how."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from collector.queries import TraceView, open_trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.binary_messages import decode
from tests.helpers.viewer_page import act_and_settle, ink, leaving, open_page
from tests.helpers.viewer_server import serving
from tests.viewer.test_routes import client_of

ROWS = "() => window.twintap.rows.map((row) => window.twintap.rowName(row))"


@pytest.fixture(scope="module")
def wide_trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """200 hosts, so many that hops are counted by end."""
    folder = tmp_path_factory.mktemp("wide") / "trace"
    write_synthetic_trace(folder, Recipe(400, 198, 2_000_000_000, lost_share=0.01, argv=None))
    return open_trace(str(folder))


@pytest.fixture(scope="module")
def wide_url(wide_trace: TraceView) -> Iterator[str]:
    """Where it is served."""
    with serving(wide_trace) as url:
        yield url


def rows_shown(page: Page) -> list[str]:
    return list(page.evaluate(ROWS))


@pytest.mark.browser
def test_a_host_is_moved_by_keys_and_hidden_and_the_address_brings_it_back(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    hosts = rows_shown(page)
    page.locator("#lanes .lane").nth(2).focus()
    page.keyboard.press("Alt+ArrowUp")
    assert rows_shown(page) == [hosts[0], hosts[2], hosts[1], *hosts[3:]]
    page.locator("#lanes .lane").nth(3).focus()
    page.keyboard.press("Delete")
    arranged = rows_shown(page)
    assert arranged == [hosts[0], hosts[2], hosts[1], *hosts[4:]]
    page.wait_for_function("() => location.hash.includes('off=3') && location.hash.includes('lanes=0')")
    page.reload()
    page.wait_for_function("() => window.twintap.settledCount > 0")
    assert rows_shown(page) == arranged


@pytest.mark.browser
def test_long_names_keep_their_ends_and_not_the_domain_that_all_have(page: Page, tmp_path: Path) -> None:
    hosts = [f"{name}.eu-central-1.example" for name in ("client", "proxy")]
    hosts += [f"storage-of-photographs-{number}.eu-central-1.example" for number in (1, 2, 3)]
    write_synthetic_trace(tmp_path / "trace", Recipe(hosts=hosts))
    with serving(open_trace(str(tmp_path / "trace"))) as url, leaving(page):
        open_page(page, url)
        names = page.locator("#lanes .lane b")
        assert names.all_text_contents() == [host.split(".")[0] for host in hosts]
        ends = page.locator("#lanes .lane b.long bdi:last-child")
        box = page.locator("#lanes").bounding_box()
        assert box is not None
        for number, end in enumerate(ends.all(), 1):
            place = end.bounding_box()
            assert (end.text_content() or "").endswith(f"-{number}")
            assert place is not None
            assert box["x"] <= place["x"] < place["x"] + place["width"] <= box["x"] + box["width"]
        assert ends.count() == 3
        assert hosts[2] in (page.locator("#lanes .lane").nth(2).get_attribute("title") or "")
        page.set_viewport_size({"width": 700, "height": 500})
        assert names.all_text_contents()[2] == "storage-of-photographs-1"


@pytest.mark.browser
def test_hosts_are_renamed_and_merged_by_hand_and_the_address_brings_it_back(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    page.locator("#lanes .lane").nth(1).dblclick()
    page.keyboard.type('<b onclick="x">edge</b>')
    page.keyboard.press("Enter")
    for at in (2, 3):
        page.locator("#lanes .lane").nth(at).click(modifiers=["Control"])
    page.locator("#merge-chosen").click()
    named = ["client", '<b onclick="x">edge</b>', "storage1 + storage2", "storage3"]
    assert rows_shown(page) == named
    expect(page.locator("#requests")).to_contain_text('client → <b onclick="x">edge</b>')
    assert page.locator("#lanes b b, #requests b b").count() == 0
    page.wait_for_function("() => location.hash.includes('merge=2.3')")
    page.reload()
    page.wait_for_function("() => window.twintap.settledCount > 0")
    assert rows_shown(page) == named
    expect(page.locator("#requests")).to_contain_text('client → <b onclick="x">edge</b>')
    page.locator("#lanes .merged").focus()
    page.keyboard.press("m")
    page.locator("#lanes .lane").nth(1).focus()
    page.keyboard.press("F2")
    page.keyboard.press("Delete")
    page.keyboard.press("Enter")
    assert rows_shown(page) == ["client", "proxy", "storage1", "storage2", "storage3"]
    page.keyboard.press("Control+z")
    assert rows_shown(page)[1] == '<b onclick="x">edge</b>'


@pytest.mark.browser
def test_a_host_is_dragged_to_another_place(page: Page, small_url: str) -> None:
    open_page(page, small_url)
    hosts = rows_shown(page)
    first, last = (page.locator("#lanes .lane").nth(at).bounding_box() for at in (0, 2))
    assert first is not None
    assert last is not None
    page.mouse.move(first["x"] + 40, first["y"] + 6)
    page.mouse.down()
    page.mouse.move(first["x"] + 40, last["y"] + 6, steps=5)
    page.mouse.up()
    assert rows_shown(page) == [hosts[1], hosts[2], hosts[0], *hosts[3:]]


@pytest.mark.browser
def test_groups_fold_hosts_and_a_split_unfolds_services(page: Page, small_url: str, small_trace: TraceView) -> None:
    open_page(page, small_url, "#group=prefix&split=1")
    assert rows_shown(page) == ["client", "proxy", "swift-proxy", "storage"]
    page.locator("#lanes .group").click()
    assert rows_shown(page)[3:] == ["storage", "storage1", "storage2", "storage3"]
    rows = page.evaluate("() => window.twintap.meta.pairs.map((_, pair) => window.twintap.rowsOfPair(pair))")
    assert rows == [
        [
            2 if (lane, service) == (1, small_trace.services.index("swift-proxy")) else [0, 1, 4, 5, 6][lane]
            for lane, service in ends
        ]
        for ends in zip(
            zip(small_trace.pairs.source.tolist(), small_trace.pairs.source_service.tolist(), strict=True),
            zip(small_trace.pairs.target.tolist(), small_trace.pairs.target_service.tolist(), strict=True),
            strict=True,
        )
    ]


@pytest.mark.browser
def test_two_hundred_hosts_are_grouped_at_first_and_scroll(page: Page, wide_url: str) -> None:
    open_page(page, wide_url)
    assert rows_shown(page) == ["client", "proxy", "storage"]
    page.evaluate("() => window.twintap.groupLanes('none')")
    assert len(rows_shown(page)) == 200
    assert page.locator("#lanes .lane:visible").count() < 60
    page.evaluate("() => { document.getElementById('lane-scroll').scrollTop = 3000; }")
    page.wait_for_function("() => window.twintap.currentView().scroll > 2900")
    page.wait_for_function("() => window.twintap.rowsCovered(window.twintap.state.data, window.twintap.currentView())")
    first = page.evaluate("() => window.twintap.rowsInSight(window.twintap.currentView())[0]")
    assert first > 90
    assert page.locator("#lanes .lane:visible").first.bounding_box() is not None


def test_packets_within_a_lone_host_run_between_its_services(page: Page, tmp_path: Path) -> None:
    write_synthetic_trace(tmp_path / "solo", Recipe(hosts=["solo"] * 5, argv=None))
    with serving(open_trace(str(tmp_path / "solo"))) as url, leaving(page):
        open_page(page, url)
        assert rows_shown(page) == ["solo", "swift-object", "swift-proxy"]
        assert page.evaluate("() => new Set(window.twintap.state.data.fromRow).size") == 3
        act_and_settle(page, lambda: page.evaluate("location.hash = '#split=none'"))
        assert rows_shown(page) == ["solo"]
        assert ink(page, 0) + ink(page, 1) + ink(page, 2) > 10  # arches


def test_counts_by_row_are_those_of_the_tables(wide_trace: TraceView) -> None:
    assert wide_trace.counted_by_end
    client, until = client_of(wide_trace), wide_trace.duration_ns
    ends = wide_trace.ends
    rows = [[at for at, (lane, *_) in enumerate(ends) if lane == each] for each in (0, 1, 57)]
    spec = ",".join(".".join(map(str, row)) for row in rows)
    message = decode(client.get(f"/api/window?from=0&to={until}&rows={spec}", base_url="http://localhost").data)
    assert message.mode == "ends"
    counts = message.columns["counts"].reshape(message.shape).sum(axis=(1, 2)).reshape(3, 2)
    table = pq.read_table(f"{wide_trace.url}/hops.parquet", columns=["send_host", "receive_host"])
    hosts = [wide_trace.lanes[each].host for each in (0, 1, 57)]
    for direction, name in enumerate(("send_host", "receive_host")):
        known = np.array(table[name].to_pylist())
        assert counts[:, direction].tolist() == [int((known == host).sum()) for host in hosts]


@pytest.mark.parametrize("rows", ["0,0", "1-3.2", "x", "1..2", "-1", "1,", "9" * 7])
def test_rows_that_make_no_sense_are_refused(wide_trace: TraceView, rows: str) -> None:
    answer = client_of(wide_trace).get(f"/api/window?from=0&to=9000000000&rows={rows}", base_url="http://localhost")
    assert answer.status_code == 400
