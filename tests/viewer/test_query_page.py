"""The page that asks in SQL, in a real browser; and what it is answered."""

import threading
from collections.abc import Iterator

import polars as pl
import pytest
from playwright.sync_api import Page, expect

from collector.queries import asking, open_trace
from collector.queries.asking import ask, named_queries
from collector.sql.database import QueryLimits
from tests.helpers.script_traces import write_script_trace
from tests.helpers.viewer_server import serving
from tracer.errors import InputError, ResourceError

SCRIPT = """
    client:40000 > proxy:8080
          0 > syn
         50 < syn_ack
        100 > 0:100 GET /a<b>
        300 < 0:50 200
       1000 > 100:200 PUT /b
       5000 < 50:100 500
    proxy:50000 > storage1:6200
       1500 > 0:100 PUT /d/1/b
       3000 < 0:50 201
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("query") / "trace")
    write_script_trace(place, SCRIPT)
    return open_trace(place)


@pytest.fixture(scope="module")
def url(trace) -> Iterator[str]:
    with serving(trace) as served:
        yield served


def test_rows_with_what_they_lead_to(trace) -> None:
    answer = ask(trace, "SELECT id, root_id, connection_id, begin, duration_ms, method FROM requests ORDER BY id")
    leads = {column.name: (column.leads_to, column.is_number, column.is_time) for column in answer.columns}
    assert leads == {
        "id": ("request", True, False),
        "root_id": ("request", True, False),
        "connection_id": ("connection", True, False),
        "begin": ("", False, True),
        "duration_ms": ("", True, False),
        "method": ("", False, False),
    }
    exchanges = pl.DataFrame(trace.stored.read("exchanges")).sort("exchange_id")
    assert [row[0] for row in answer.values] == exchanges["exchange_id"].to_list()
    assert [row[3] for row in answer.values] == [
        at - trace.start_ns for at in pl.DataFrame(trace.stored.read("spans")).sort("span_id")["start_trace_ns"]
    ]
    for (exchange, *_), root in zip(
        answer.values, pl.DataFrame(trace.stored.read("spans")).sort("span_id")["trace_id"], strict=True
    ):
        assert answer.requests[exchange] == answer.requests[root]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM requests", "request"),
        ("SELECT id FROM connections", "connection"),
        ("SELECT r.id FROM requests r JOIN connections c ON c.id = r.connection_id", ""),
        ("SELECT 'x' AS id FROM requests", ""),
        ("SELECT request_id AS n FROM packets", ""),
    ],
)
def test_an_id_leads_only_where_it_is_clear_of_what(query: str, expected: str, trace) -> None:
    assert ask(trace, query).columns[0].leads_to == expected


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("TIMESTAMP '9999-01-01'", "9999-01-01 00:00:00.000000", None),
        ("[make_timestamp_ns(1800000000000000001)]", '["2027-01-15 08:00:00.000000001"]', None),
        ("1.50::DECIMAL(9, 2)", "1.500", 1.5),
        ("NULL::DECIMAL(9, 2)", "", None),
        ("INTERVAL '2 seconds'", "00:00:02.000000000", None),
    ],
)
def test_values_of_any_type_are_shown(column: str, text: str, value: float | None, trace) -> None:
    answer = ask(trace, f"SELECT {column} AS x")
    assert answer.texts == ((text,),)
    assert answer.values[0][0] in (value, text)


def test_rows_beyond_the_limit_are_cut(trace) -> None:
    answer = ask(trace, "SELECT range AS n FROM range(1_000_000)")
    assert (len(answer.texts), answer.is_cut) == (asking.MOST_ROWS, True)
    assert not ask(trace, f"SELECT range AS n FROM range({asking.MOST_ROWS})").is_cut


def test_a_query_is_limited(trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LIMITS", QueryLimits(memory_mib=80, seconds=0.2))
    with pytest.raises(InputError, match="longer than"):
        ask(trace, "SELECT a.range FROM range(1000000000000) a WHERE hash(a.range) = 3")
    monkeypatch.setattr(asking, "LIMITS", QueryLimits(memory_mib=80, seconds=20))
    with pytest.raises(ResourceError, match="more than 80 MiB"):
        ask(trace, "SELECT range, hash(range) AS h FROM range(100000000) ORDER BY h")


def test_only_some_queries_run_at_a_time(trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_ROOM", threading.BoundedSemaphore(1))
    monkeypatch.setattr(asking, "WAIT_SECONDS", 0.01)
    with asking._ROOM, pytest.raises(InputError, match="other queries are running"):
        ask(trace, "SELECT 1")
    assert ask(trace, "SELECT 1 AS n").texts == (("1",),)


@pytest.mark.parametrize("name", named_queries())
def test_each_saved_query_is_answered(name: str, trace) -> None:
    assert ask(trace, named_queries()[name][1]).columns


@pytest.mark.browser
def test_a_query_is_typed_and_its_rows_lead_into_the_timeline(page: Page, url: str, trace) -> None:
    page.goto(f"{url}pages/query")
    expect(page.locator("#content .choice.here").first).to_have_text("classes")
    page.locator("#sql").fill("SELECT id, method, target, duration_ms, connection_id FROM requests ORDER BY id")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#rows h2")).to_have_text("3 rows")
    expect(page.locator("#rows tbody tr").first).to_contain_text("/a<b>")
    assert page.locator("#rows b").count() == 0
    page.get_by_role("link", name="duration_ms", exact=True).click()
    expect(page.locator("#card-query h2")).to_contain_text("duration_ms over id")
    expect(page.locator("#card-query .main-svg").first).to_be_visible()
    page.locator("#rows tbody tr").nth(1).locator("th a").click()
    page.wait_for_selector("#request-details h2")
    expect(page.locator("#request-details h2")).to_have_text("Request #2")


@pytest.mark.browser
def test_a_wrong_query_says_what_is_wrong(page: Page, url: str) -> None:
    page.goto(f"{url}pages/query?sql=SELECT+nope+FROM+requests")
    expect(page.locator("#content .nothing")).to_contain_text('Referenced column "nope" not found')
    expect(page.locator("#tables")).to_contain_text("each row is a TCP connection")
    expect(page.locator("#sql")).to_have_value("SELECT nope FROM requests")
