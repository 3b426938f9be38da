"""Every request of a trace opens, those that daemons asked by themselves as well as the clients'.

Requests are numbered over all roots of a trace, so a guard that compares a number with how many clients asked refuses
the last ones.
"""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Page, expect

from collector.queries import TraceView
from tests.helpers.binary_messages import decode
from tests.helpers.viewer_page import act_and_settle, colour_ink, open_page, view
from viewer.app import create_app


@pytest.fixture(scope="module")
def client(background_trace: TraceView) -> FlaskClient:
    return create_app(background_trace).server.test_client()


def numbers(trace: TraceView) -> range:
    assert trace.summary.requests_count == 6
    assert trace.summary.roots_count == 9
    return range(trace.summary.roots_count)


def test_every_root_is_served(client: FlaskClient, background_trace: TraceView) -> None:
    for number in numbers(background_trace):
        arrows = decode(client.get(f"/api/requests/{number}/arrows", base_url="http://localhost").data)
        assert set(arrows.columns["request"].tolist()) == {number}
        details = client.get(f"/api/requests/{number}/details", base_url="http://localhost")
        assert f"Request #{number + 1}" in details.text
        packets = decode(client.get(f"/api/requests/{number}/packets", base_url="http://localhost").data)
        assert set(packets.columns["request"].tolist()) == {number}
        with client.get(f"/save/csv?request={number + 1}", base_url="http://localhost") as saved:
            assert saved.text.count("\n") == 1 + background_trace.request(number).hops_count
        found = client.get(f"/api/search?q=%23{number + 1}", base_url="http://localhost").json
        assert found is not None
        assert found["hit"]["request"] == number


def test_every_root_is_found_by_its_transaction_id(client: FlaskClient, background_trace: TraceView) -> None:
    exchanges = pq.read_table(f"{background_trace.url}/exchanges.parquet", columns=["transaction_id"])
    texts = list(dict.fromkeys(exchanges["transaction_id"].to_pylist()))
    found = [client.get(f"/transaction/{text}", base_url="http://localhost") for text in texts]
    assert [each.headers["Location"] for each in found] == [
        f"/#request={number + 1}" for number in numbers(background_trace)
    ]


def test_no_request_is_served_that_is_not_there(client: FlaskClient, background_trace: TraceView) -> None:
    beyond = background_trace.summary.roots_count
    for path in (
        f"/api/requests/{beyond}/arrows",
        f"/api/requests/{beyond}/details",
        f"/save/csv?request={beyond + 1}",
    ):
        assert client.get(path, base_url="http://localhost").status_code == 404
    assert client.get("/save/csv?request=0", base_url="http://localhost").status_code == 404


@pytest.mark.browser
@pytest.mark.parametrize("number", [0, 6, 8])
def test_a_link_selects_its_request_and_zooms_to_it(
    page: Page, background_url: str, background_trace: TraceView, number: int
) -> None:
    open_page(page, background_url, f"transaction/tx{number:012x}")
    shows(page, background_trace, number)


@pytest.mark.browser
def test_a_changed_address_zooms_to_its_request(page: Page, background_url: str, background_trace: TraceView) -> None:
    open_page(page, background_url)
    page.evaluate("location.hash = '#request=7'")
    shows(page, background_trace, 6)


@pytest.mark.browser
def test_a_row_of_the_list_opens_its_request(page: Page, background_url: str, background_trace: TraceView) -> None:
    for number in (0, 6, 7):
        page.goto(f"{background_url}pages/requests?order=first")
        page.locator("#request-table a", has_text=re.compile(rf"^#{number + 1} ")).click()
        shows(page, background_trace, number)


@pytest.mark.browser
def test_search_opens_and_saving_gives_the_request_of_a_daemon(
    page: Page, background_url: str, background_trace: TraceView, tmp_path: Path
) -> None:
    open_page(page, background_url)
    page.keyboard.press("/")
    page.keyboard.type("#7")
    act_and_settle(page, lambda: page.keyboard.press("Enter"))
    shows(page, background_trace, 6)
    page.keyboard.press("Escape")
    page.keyboard.press("e")
    with page.expect_download() as download:
        page.locator('#save [data-save="parquet"]').click()
    download.value.save_as(tmp_path / "saved")
    assert pq.read_table(tmp_path / "saved").num_rows == background_trace.request(6).hops_count


def shows(page: Page, trace: TraceView, number: int) -> None:
    """The panel has the request, its waterfall and its arrows, and the view is as wide as it."""
    expect(page.locator("#request-details h2")).to_have_text(f"Request #{number + 1}")
    expect(page.locator("#waterfall .barlayer .trace").first).to_be_attached()
    request = trace.request(number)
    page.wait_for_function(
        "width => window.twintap.state.to - window.twintap.state.from < width", arg=1.3 * request.duration_ns
    )
    from_ns, to_ns = view(page)
    assert from_ns < request.start_ns < request.end_ns < to_ns
    page.wait_for_function("() => window.twintap.state.selected !== null")
    assert page.evaluate("window.twintap.state.selected.number.length") == request.hops_count


@pytest.mark.browser
def test_packets_of_background_work_have_a_colour_of_their_own(
    page: Page, background_url: str, background_trace: TraceView
) -> None:
    assert background_trace.load.origins.tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 0]
    open_page(page, background_url)
    assert colour_ink(page, "background") == 0
    page.keyboard.press("g")
    page.wait_for_function("() => window.twintap.state.origins")
    assert colour_ink(page, "background") > 20
    assert "colour=origin" in page.url
    page.keyboard.press("g")
    assert colour_ink(page, "background") == 0
