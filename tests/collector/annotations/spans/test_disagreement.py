"""Differences between spans and packets: which are said, and that rounding is none."""

import pyarrow as pa
import pytest

from collector.annotations.spans.disagreement import EXCHANGE_COLUMNS, SPAN_COLUMNS, disagreements
from testkit.tables import table

US = 1_000
EXCHANGE = {
    "exchange_id": 7,
    "client_host": "pc",
    "server_host": "web",
    "request_first_sent_trace_ns": 100 * US,
    "request_first_received_trace_ns": 110 * US,
    "request_head_received_trace_ns": 112 * US,
    "response_first_sent_trace_ns": 180 * US,
    "response_last_sent_trace_ns": 190 * US,
    "response_first_received_trace_ns": 185 * US,
    "response_last_received_trace_ns": 200 * US,
}


def rows_of(
    role: str, begin_us: float, end_us: float, exchange: dict[str, object] | None = None, **more: object
) -> list[str]:
    host = {"client": "pc", "server": "web"}.get(role)
    times = {"start_trace_ns": int(begin_us * US), "duration_ns": int((end_us - begin_us) * US)}
    row = {
        "annotation_id": 0,
        "kind": "span",
        "exchange_id": 7,
        "host": host,
        "name": "GET",
        "duration_uncertainty_ns": 0,
    }
    row |= times | {"side": role, "text": "a: 1"} | more
    spans = table("annotations", [row]).select(list(SPAN_COLUMNS))
    found = disagreements(spans, table("exchanges", [EXCHANGE | (exchange or {})]).select(list(EXCHANGE_COLUMNS)))
    return [f"{each.kind} {each.duration_ns} {each.uncertainty_ns}" for each in found]


def test_a_client_s_span_that_is_longer_than_its_request() -> None:
    assert rows_of("client", 100, 200) == []
    assert rows_of("client", 60, 230) == ["client_after 30000 0", "client_before 40000 0"]
    assert rows_of("client", 100, 190) == []


def test_opening_a_connection_is_on_the_wire_if_it_was_opened_within_the_span() -> None:
    assert rows_of("client", 60, 200, {"connect_start_trace_ns": 70 * US}) == ["client_before 10000 0"]
    assert rows_of("client", 60, 200, {"connect_start_trace_ns": 50 * US}) == ["client_before 40000 0"]


def test_a_server_s_span_that_is_shorter_than_its_request_there() -> None:
    assert rows_of("server", 112, 190) == []
    assert rows_of("server", 150, 185) == ["server_after 5000 0", "server_before 38000 0"]
    assert rows_of("server", 112, 195) == []


@pytest.mark.parametrize(
    ("role", "begin", "end", "by"),
    [("client", 105, 300, 5), ("client", 60, 180, 5), ("server", 90, 150, 20), ("server", 185, 190, 5)],
)
def test_a_span_outside_of_its_request_and_nothing_else(role: str, begin: int, end: int, by: int) -> None:
    assert rows_of(role, begin, end) == [f"outside {by * US} 0"]


def test_only_beyond_what_the_format_rounds() -> None:
    assert rows_of("client", 99.2, 200.9, duration_uncertainty_ns=1_000) == []
    assert rows_of("client", 98.9, 200.9, duration_uncertainty_ns=1_000) == ["client_before 1100 1000"]


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "log"},
        {"exchange_id": None},
        {"side": None},
        {"text": "a: 1 twintap.exchange_id: 7"},
        {"host": "web"},
        {"exchange_id": 8},
    ],
)
def test_what_is_not_compared(more: dict[str, object]) -> None:
    assert rows_of("client", 60, 230, **more) == []


def test_moments_that_were_not_seen_are_not_compared() -> None:
    unseen = {name: None for name in EXCHANGE if name.endswith("_trace_ns")}
    assert rows_of("client", 60, 230, unseen) == rows_of("server", 60, 230, unseen) == []


def test_the_largest_of_a_kind_is_first() -> None:
    common = {
        "kind": "span",
        "exchange_id": 7,
        "host": "web",
        "side": "server",
        "text": "",
        "duration_uncertainty_ns": 0,
    }
    rows = [
        common | {"annotation_id": n, "start_trace_ns": at * US, "duration_ns": (190 - at) * US}
        for n, at in enumerate((115, 150))
    ]
    spans: pa.Table = table("annotations", rows).select(list(SPAN_COLUMNS))
    found = disagreements(spans, table("exchanges", [EXCHANGE]).select(list(EXCHANGE_COLUMNS)))
    assert [each.annotation_id for each in found] == [1, 0]
    assert found[0].words == "38.0 µs in the server before its span began"
