"""Which request a span is about."""

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa
import pytest
from msgspec.structs import replace

from collector.annotations.records import Kind, Record
from collector.annotations.spans.joining import COLUMNS, join_inner_spans, join_sided_spans
from collector.annotations.table import Join
from testkit.tables import table

TRACE, OTHER = "a" * 32, "b" * 32
MS = 1_000_000
CLOCK = {"from_host_ns": 0, "to_host_ns": 10**12, "from_frame": 1, "to_frame": 9, "skew_ppb": 0, "reference": True}
CLOCKS = table("clocks", [CLOCK | {"host": host, "offset_ns": 0, "uncertainty_ns": 0} for host in ("web", "db")])


def span(side: str, begin_ms: int, took_ms: int, **more: object) -> Record:
    given = {
        "kind": Kind.SPAN,
        "format": "otlp",
        "source": "f",
        "name": "n",
        "text": "",
        "host": "web",
        "trace_id": TRACE,
    }
    times = {"begin_host_ns": begin_ms * MS, "duration_ns": took_ms * MS}
    return Record(**{**given, **times, "side": side, **more})  # type: ignore[arg-type]


def requests(*rows: tuple[int, str, int, int], callers: Mapping[int, str] | None = None) -> list[pa.Table]:
    """Requests from `web` to `db`: number, id, begin and end in ms; their path is their number; by number, the spans
    that their heads name."""
    made = [
        {
            **{"exchange_id": number, "client_host": "web", "server_host": "db", "transaction_id": transaction},
            **{"method": "GET", "target": f"/{number}?q", "status": 200, "client_span_id": (callers or {}).get(number)},
            **{"request_first_sent_trace_ns": begin * MS, "response_last_received_trace_ns": end * MS},
        }
        for number, transaction, begin, end in rows
    ]
    return [pl.DataFrame(made, schema_overrides={"client_span_id": pl.String}).select(COLUMNS).to_arrow()]


def requests_of(records: Sequence[Record], exchanges: list[pa.Table]) -> Mapping[int, int]:
    return {place: join.exchange_id for place, join in join_sided_spans(records, CLOCKS, exchanges).items()}


ONE_AFTER_THE_OTHER = requests((1, TRACE, 10, 20), (2, TRACE, 30, 40), (3, OTHER, 10, 20))
BOTH_AT_ONCE = requests((1, TRACE, 10, 20), (2, TRACE, 12, 18))


def test_a_client_s_span_is_about_the_request_within_its_time() -> None:
    records = [span("client", 9, 12), span("client", 29, 12), span("client", 9, 5), span("client", 50, 9)]
    assert requests_of(records, ONE_AFTER_THE_OTHER) == {0: 1, 1: 2}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, {}),
        ({"target": "/2"}, {0: 2}),
        ({"target": "/1?other"}, {0: 1}),
        ({"target": "/2", "method": "PUT"}, {}),
        ({"target": "/2", "status": 500}, {}),
    ],
)
def test_of_several_at_once_what_it_says_decides(said: dict[str, object], expected: dict[int, int]) -> None:
    assert requests_of([span("client", 9, 12, **said)], BOTH_AT_ONCE) == expected


def test_another_host_s_request_is_not_its_own() -> None:
    assert requests_of([span("client", 9, 12, host="db")], ONE_AFTER_THE_OTHER) == {}


def test_a_whole_traceparent_has_the_id_of_its_trace() -> None:
    assert requests_of([span("client", 9, 12)], requests((1, f"00-{TRACE}-{'c' * 16}-01", 10, 20))) == {0: 1}


@pytest.mark.parametrize("more", [{"side": "server", "host": "db"}, {"side": "client", "host": None}])
def test_a_span_of_a_server_or_of_no_captured_host_is_not_joined_here(more: dict[str, object]) -> None:
    record = replace(span("client", 9, 12), **more)  # type: ignore[arg-type]
    assert requests_of([record], requests((1, TRACE, 10, 20))) == {}


NAMED = {1: "c" * 16, 2: "d" * 16}


@pytest.mark.parametrize("number", [1, 2])
def test_the_span_that_a_request_names_decides_between_those_at_once(number: int) -> None:
    exchanges = requests((1, TRACE, 10, 20), (2, TRACE, 10, 20), callers=NAMED)
    client = span("client", 9, 12, span_id=NAMED[number])
    server = span("server", 12, 2, host="db", span_id="s", parent_span_id=NAMED[number])
    elsewhere = replace(server, host="web")
    assert requests_of([client, server, elsewhere], exchanges) == {0: number, 1: number}


def test_a_request_that_is_tried_again_is_that_of_the_span_s_time() -> None:
    exchanges = requests((1, TRACE, 10, 20), (2, TRACE, 30, 40), callers={1: "c" * 16, 2: "c" * 16})
    client, server = (
        span("client", 29, 12, span_id="c" * 16),
        span("server", 29, 12, host="db", parent_span_id="c" * 16),
    )
    assert requests_of([client, server], exchanges) == {0: 2}, "a server's is found as lines of logs are"


def test_a_request_that_names_another_span_is_only_of_those_above_that() -> None:
    outer = span("client", 9, 12, span_id="o")
    inner, other = (span("client", 9, 12, span_id="c" * 16, parent_span_id=parent) for parent in ("o", ""))
    exchanges = requests((1, TRACE, 10, 20), callers=NAMED)
    assert requests_of([outer, inner], exchanges) == {0: 1, 1: 1}
    assert requests_of([outer, other], exchanges) == {1: 1}
    assert requests_of([outer], exchanges) == {0: 1}, "the span that it names was not recorded"


def test_an_inner_span_is_about_the_request_of_the_server_s_span_above_it() -> None:
    records = [
        span("server", 10, 9, span_id="s"),
        span("", 11, 1, span_id="i", parent_span_id="s"),
        span("", 11, 1, span_id="j", parent_span_id="i"),
        span("client", 12, 1, span_id="c", parent_span_id="j"),
        span("", 12, 1, span_id="k", parent_span_id="c"),
        span("", 12, 1, span_id="l", parent_span_id="l"),
        span("", 12, 1, span_id="m", parent_span_id="s", trace_id=OTHER),
    ]
    assert {place: join.exchange_id for place, join in join_inner_spans(records, {0: Join(7, "id")}).items()} == {
        1: 7,
        2: 7,
    }
