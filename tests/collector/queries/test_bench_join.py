"""Operations of a load generator that records no ids find their requests, and none is joined by a guess.

`o` makes an operation and `r` a request: object or target, begin and end in ms on the trace's timescale.
"""

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from msgspec.structs import replace

from collector.queries.bench_join import (
    CONNECTION_COLUMNS,
    OPERATION_COLUMNS,
    REQUEST_COLUMNS,
    RunJoin,
    TraceRequests,
    join_operations,
)
from collector.queries.bench_words import join_words
from collector.trace.schema import CLOCKS

MS = 1_000_000
START_NS = 1_795_860_000_000_000_000
AHEAD_NS = 37_000 * MS
"""The client's clock is so far ahead of the trace's."""
ENDPOINT = "http://10.0.0.41:9000"


def o(file: str, begin: float, end: float, op: str = "GET", *, good: bool = True, endpoint: str = ENDPOINT) -> Any:
    stamp = START_NS + AHEAD_NS
    return op, endpoint, file, good, stamp + round(begin * MS), stamp + round(end * MS)


def r(
    target: str,
    begin: float,
    end: float | None,
    method: str = "GET",
    *,
    status: int | None = 200,
    depth: int = 0,
    connection: int = 1,
    host: str | None = "client",
) -> Any:
    ends = None if end is None else round(end * MS)
    return depth, connection, host, method, target, status, round(begin * MS), ends


def join_of(operations: list[Any], requests: list[Any]) -> RunJoin:
    rows = [(number, *row) for number, row in enumerate(requests)]
    connections = pl.DataFrame(
        [(1, "10.0.0.41", 9000), (2, "10.0.0.42", 9000)], schema=list(CONNECTION_COLUMNS), orient="row"
    )
    types = dict.fromkeys(REQUEST_COLUMNS, pl.Int64) | {
        "client_host": pl.String, "method": pl.String, "target": pl.String,
    }  # fmt: skip
    trace = TraceRequests(
        pl.DataFrame(rows, schema={name: types[name] for name in REQUEST_COLUMNS}, orient="row"),
        connections,
        _clocks(),
        START_NS,
        10_000 * MS,
    )
    columns = dict(
        zip(("op", "endpoint", "file", "is_good", "start_ns", "end_ns"), zip(*operations, strict=True), strict=True)
    )
    frame = pl.DataFrame(columns | {"number": range(len(operations))}).select(OPERATION_COLUMNS)
    return join_operations([frame[:1], frame[1:]], trace)


def _clocks() -> pa.Table:
    def row(host: str, offset_ns: int) -> dict[str, Any]:
        known = dict.fromkeys(CLOCKS.names) | {"host": host, "offset_ns": offset_ns, "skew_ppb": 0}
        return known | {"from_host_ns": START_NS + offset_ns, "to_host_ns": START_NS + offset_ns + 10**10}

    rows = [row("client", AHEAD_NS), row("other", 0)]
    return pa.Table.from_pylist([{**each, "from_frame": 1, "to_frame": 9} for each in rows], schema=CLOCKS)


@pytest.mark.parametrize(
    ("op", "file", "method", "target"),
    [
        ("GET", "p/a.rnd", "GET", "/bucket/p/a.rnd"),
        ("GET", "p/(a).rnd", "GET", "/bucket/p/%28a%29.rnd?versionId=3"),
        ("GET", "p/a.rnd", "GET", "/p/a.rnd"),
        ("GET", "a", "GET", "/a"),
        ("GET", "/bucket/p/a.rnd", "GET", "/bucket/p/a.rnd"),
        ("PUT", "p/a.rnd", "PUT", "/bucket/p/a.rnd?partNumber=1&uploadId=x"),
        ("PUT", "p/a.rnd", "POST", "/bucket/p/a.rnd?uploads="),
        ("STAT", "p/a.rnd", "HEAD", "/bucket/p/a.rnd"),
        ("DELETE", "p/a.rnd", "DELETE", "/bucket/p/a.rnd"),
        ("DELETE", "", "POST", "/bucket/?delete="),
        ("LIST", "p", "GET", "/bucket/?list-type=2&prefix=p&delimiter="),
        ("LIST", "", "GET", "/bucket?list-type=2"),
    ],
)
def test_an_operation_is_joined_by_its_kind_and_object(op: str, file: str, method: str, target: str) -> None:
    found = join_of([o(file, 10, 20, op)], [r(target, 11, 19, method)])
    assert (found.requests, found.hosts) == ({0: 0}, ("client",))
    assert found.longer_ns == (2 * MS, 2 * MS)


@pytest.mark.parametrize(
    ("operation", "request_row"),
    [
        (o("a", 10, 20), r("/b/a", 8, 19)),
        (o("a", 10, 20), r("/b/a", 11, 22)),
        (o("a", 10, 20), r("/b/a", 11, None)),
        (o("a", 10, 20), r("/b/other", 11, 19)),
        (o("a", 10, 20), r("/b/a", 11, 19, "HEAD")),
        (o("a", 10, 20), r("/b/a", 11, 19, status=404)),
        (o("a", 10, 20), r("/b/a", 11, 19, connection=2)),
        (o("a", 10, 20), r("/b/a", 11, 19, depth=1)),
        (o("a", 10, 20), r("/b/a", 11, 19, host=None)),
        (o("a", 10, 20), r("/b/a", 11, 19, host="other")),
        (o("x", 10, 20, "LIST"), r("/b?location=", 11, 19)),
        (o("a", 10, 20, "STAT"), r("/b/a", 11, 19, "POST")),
    ],
    ids=["before", "after", "unanswered", "object", "method", "missing", "endpoint", "child", "uncaptured", "clock",
         "location", "kind"],
)  # fmt: skip
def test_what_does_not_fit_is_not_joined(operation: Any, request_row: Any) -> None:
    found = join_of([operation], [request_row])
    assert (found.requests, found.ambiguous) == ({}, frozenset())
    assert found.unmatched_count + found.outside_count == 1


def test_an_endpoint_with_a_name_is_not_compared() -> None:
    assert join_of([o("a", 10, 20, endpoint="http://minio:9000")], [r("/b/a", 11, 19, connection=2)]).requests == {0: 0}


def test_two_at_once_on_one_object_are_joined_where_times_leave_no_choice() -> None:
    # The second request fits both, but the first operation has its own already.
    found = join_of([o("a", 10, 30), o("a", 12, 24)], [r("/b/a", 13, 29), r("/b/a", 14, 23)])
    assert found.requests == {0: 0, 1: 1}


def test_two_at_once_that_could_be_exchanged_are_joined_to_nothing() -> None:
    found = join_of([o("a", 10, 30), o("a", 11, 31)], [r("/b/a", 13, 29), r("/b/a", 14, 28)])
    assert (found.requests, found.ambiguous) == ({}, {0, 1})
    assert found.operations_count == 2
    assert any("cannot be known from here" in sentence for sentence in join_words(found))


def test_what_was_not_found_is_of_the_operation_that_failed() -> None:
    operations = [o("a", 10, 30), o("a", 11, 29, good=False)]
    found = join_of(operations, [r("/b/a", 13, 25), r("/b/a", 14, 24, status=404)])
    assert found.requests == {0: 0, 1: 1}


def test_two_good_answers_within_one_operation_are_not_both_its_own() -> None:
    found = join_of([o("a", 10, 40)], [r("/b/a", 11, 19), r("/b/a", 20, 30)])
    assert (found.requests, found.ambiguous) == ({}, {0})


def test_parts_of_an_upload_are_one_operation_joined_to_the_longest() -> None:
    target = "/b/a?partNumber={}&uploadId=u"
    requests = [
        r("/b/a?uploads=", 11, 12, "POST"),
        r(target.format(1), 13, 30, "PUT"),
        r(target.format(2), 13, 25, "PUT"),
        r("/b/a?uploadId=u", 31, 35, "POST"),
    ]
    found = join_of([o("a", 10, 36, "PUT")], requests)
    assert (found.requests, found.several_count, found.longer_ns) == ({0: 1}, 1, (2 * MS, 2 * MS))


def test_an_attempt_that_failed_does_not_stand_for_an_operation_that_went_well() -> None:
    first, second = r("/b/a", 11, 12, status=503), r("/b/a", 13, 19)
    assert join_of([o("a", 10, 20)], [first, second]).requests == {0: 1}
    found = join_of([o("a", 10, 20)], [first])
    assert (found.requests, found.ambiguous, found.unmatched_count) == ({}, frozenset(), 1)


def test_a_failed_operation_has_requests_that_were_never_wholly_answered() -> None:
    found = join_of([o("a", 10, 20, good=False)], [r("/b/a", 11, None, status=None)])
    assert (found.requests, found.longer_ns) == ({0: 0}, None)


def test_each_operation_is_in_one_count() -> None:
    operations = [
        o("a", 10, 20), o("gone", 10, 20), o("a", -50, -40), o("a", 20_000, 20_001), o("a", 10, 20, "SELECT"),
    ]  # fmt: skip
    found = join_of(operations, [r("/b/a", 11, 19)])
    assert (len(found.requests), found.unmatched_count, found.outside_count, found.other_kinds_count) == (1, 1, 2, 1)
    assert found.operations_count == 5
    words = " ".join(join_words(found))
    for text in ("1 of 5 operations", "Without a request in the trace: 1.", "after the trace: 2.", "not known: 1."):
        assert text in words


def test_a_trace_without_the_client_joins_nothing_and_says_why() -> None:
    found = join_of([o("a", 10, 20)], [r("/b/a", 11, 19, host=None)])
    assert (found.unmatched_count, found.hosts) == (1, ())
    assert any("was not captured" in sentence for sentence in join_words(found))
    assert "was not captured" not in " ".join(join_words(replace(found, requests={0: 0})))
