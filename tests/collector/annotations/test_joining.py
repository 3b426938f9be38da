"""Lines find their requests by id, by connection and by time, and none where more than one fits."""

import pytest

from collector.annotations.joining import id_keys, is_same_statement, join_records, parents_of
from collector.annotations.records import Address, Kind, Record
from testkit.tables import table

MS = 1_000_000
CLIENT, OTHER = Address("10.0.0.9", 5000), Address("10.0.0.9", 5001)
ROW = {"server_host": "web", "client_host": "pc", "is_stream": False, "method": "GET", "target": "/a", "status": 200}
CLOCK = {"from_host_ns": 0, "to_host_ns": 10**12, "from_frame": 1, "to_frame": 9, "skew_ppb": 0, "reference": False}


def request(number: int, begin_ms: int, end_ms: int, connection: int = 1, **more: object) -> dict[str, object]:
    times = {"request_first_received_trace_ns": begin_ms * MS, "response_last_sent_trace_ns": end_ms * MS}
    return ROW | {"exchange_id": number, "connection_id": connection} | times | more


def line(
    end_ms: float, *, took_ms: int = 0, error_ms: int = 1, client: Address | None = None, **more: object
) -> Record:
    common = {"kind": Kind.LOG, "format": "nginx", "source": "a.log", "name": "", "text": "", "host": "web"}
    found = common | {"method": "GET", "target": "/a", "status": 200, "is_request": True} | more
    begin = int(end_ms * MS) - took_ms * MS
    return Record(begin_host_ns=begin, duration_ns=took_ms * MS, uncertainty_ns=error_ms * MS, client=client, **found)


def joins_of(
    records: list[Record], requests: list[dict[str, object]], offset_ms: int = 0, **links: object
) -> list[str]:
    """What each record was joined to, and how."""
    ends = [CLIENT, OTHER]
    connections = [
        {"connection_id": n + 1, "client_addr": end.addr, "client_port": end.port} for n, end in enumerate(ends)
    ]
    clocks = [CLOCK | {"host": "web", "offset_ns": offset_ms * MS, "uncertainty_ns": 0}]
    parents = links.get("parents", {})
    found = join_records(
        records, table("clocks", clocks), [table("exchanges", requests)], [table("connections", connections)], parents
    )
    return [f"{found[at].exchange_id} {found[at].joined_by}" if at in found else "" for at in range(len(records))]


def test_by_id_whatever_the_time() -> None:
    requests = [request(7, 0, 5, transaction_id="TX1"), request(8, 0, 5, transaction_id="tx2")]
    assert joins_of([line(900, transaction_id="tx1")], requests) == ["7 id"]


def test_of_several_of_one_id_what_the_line_says_and_the_time_leave_one() -> None:
    requests = [
        request(n, n * 10, n * 10 + 5, transaction_id="t", target=target) for n, target in enumerate(["/a", "/b", "/a"])
    ]
    assert joins_of([line(5, transaction_id="t"), line(25, transaction_id="t")], requests) == ["0 id", "2 id"]
    assert joins_of([line(15, error_ms=500, transaction_id="t")], requests) == [""]


def test_by_the_trace_of_a_traceparent_and_the_answer_s_id() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    requests = [
        request(7, 0, 5, transaction_id=f"00-{trace}-b7ad6b7169203331-01"),
        request(8, 50, 55, response_transaction_id="r-8"),
    ]
    assert joins_of([line(3, trace_id=trace.upper()), line(51, transaction_id="r-8")], requests) == ["7 id", "8 id"]
    assert list(id_keys("a-b-c-d")) == ["a-b-c-d"]


def test_an_id_that_only_a_call_has_leads_to_the_request_it_was_made_for() -> None:
    call = request(9, 1, 3, transaction_id="own", server_host="app", client_host="web")
    requests = [request(7, 0, 5), call]
    assert joins_of([line(5, transaction_id="own")], requests, parents={9: 7}) == ["7 id"]
    of_another = line(5, transaction_id="own", client=OTHER)
    assert joins_of([of_another], requests, parents={9: 7}) == [""]
    spans = [
        {"span_id": 9, "parent_span_id": 7, "confidence": 0.999},
        {"span_id": 8, "parent_span_id": 7, "confidence": 0.6},
        {"span_id": 7, "parent_span_id": None, "confidence": None},
    ]
    assert parents_of([table("spans", spans)]) == {9: 7}


def test_the_nth_line_of_a_connection_is_its_nth_request() -> None:
    requests = [request(n, n, n + 1) for n in range(5)]
    assert joins_of([line(3, error_ms=500, client=CLIENT) for _ in range(5)], requests) == [
        f"{n} connection" for n in range(5)
    ]
    assert joins_of([line(3, error_ms=500, client=OTHER) for _ in range(5)], requests) == [""] * 5


def test_where_a_line_is_missing_only_what_is_sure_is_joined() -> None:
    requests = [request(n, n * 10, n * 10 + 9) for n in range(4)]
    lines = [line(5, client=CLIENT), line(15, client=CLIENT), line(35, client=CLIENT)]
    assert joins_of(lines, requests) == ["0 connection", "1 connection", "3 connection"]
    vague = [line(5, client=CLIENT), line(20, error_ms=9, client=CLIENT), line(35, client=CLIENT)]
    assert joins_of(vague, requests) == ["0 connection", "", "3 connection"]


def test_by_time_only_when_one_request_fits_what_the_line_says() -> None:
    requests = [request(1, 0, 5), request(2, 2, 9, connection=2, target="/b"), request(3, 3, 8, status=404)]
    assert joins_of([line(5)], requests) == ["1 time"]
    assert joins_of([line(5, target="/b")], requests) == ["2 time"]
    assert joins_of([line(5, target="/c")], requests) == [""]
    assert joins_of([line(5, status=0, target="")], requests) == [""]
    assert joins_of([line(5, method="PUT")], requests) == [""]
    assert joins_of([line(5, host="elsewhere")], requests) == [""]


def test_two_lines_that_fit_one_request_have_none() -> None:
    assert joins_of([line(4), line(5)], [request(1, 0, 5)]) == ["", ""]
    assert joins_of([line(4), line(5, source="b.log")], [request(1, 0, 5)]) == ["1 time", "1 time"]


@pytest.mark.parametrize(("end_ms", "found"), [(9.5, "1 time"), (12.9, "1 time"), (13.1, ""), (-1.5, "")])
def test_a_line_ends_within_its_request_or_a_little_later(end_ms: float, found: str) -> None:
    assert joins_of([line(end_ms)], [request(1, 0, 10)]) == [found]


def test_a_line_that_began_before_its_request_came_is_of_another() -> None:
    assert joins_of([line(8, took_ms=20)], [request(1, 0, 10)]) == [""]
    assert joins_of([line(8, took_ms=8)], [request(1, 0, 10)]) == ["1 time"]


def test_the_host_s_clock_is_taken_into_account() -> None:
    assert joins_of([line(505)], [request(1, 0, 10)]) == [""]
    assert joins_of([line(505)], [request(1, 0, 10)], offset_ms=500) == ["1 time"]


def test_a_line_that_says_nothing_of_a_request_needs_an_exact_stamp() -> None:
    bare = {"method": "", "target": "", "status": 0, "is_request": False}
    assert joins_of([line(5, **bare)], [request(1, 0, 10)]) == ["1 time"]
    assert joins_of([line(5, error_ms=500, **bare)], [request(1, 0, 10)]) == [""]
    assert joins_of([line(5, **bare)], [request(1, 0, 10), request(2, 0, 10)]) == [""]


def test_what_the_capture_does_not_show_is_no_contradiction() -> None:
    assert joins_of([line(5)], [request(1, 0, 10, method=None, target=None, status=None)]) == ["1 time"]


def test_a_target_is_compared_without_escapes_and_without_the_query_if_the_line_has_none() -> None:
    requests = [request(1, 0, 10, target="/a b?x=1"), request(2, 0, 10, target="/a%20b?x=2")]
    assert joins_of([line(5, target="/a%20b?x=2")], requests) == ["2 time"]
    assert joins_of([line(5, target="/a%20b")], requests) == [""]
    assert joins_of([line(5, target="/a%20b")], requests[:1]) == ["1 time"]


def test_streams_are_no_requests() -> None:
    assert joins_of([line(5)], [request(1, 0, 10, is_stream=True)]) == [""]


@pytest.mark.parametrize(
    ("logged", "seen", "same"),
    [
        ("SELECT count(*) FROM t WHERE a = 'it''s' AND b = 12", "SELECT count(*) FROM t WHERE a = ? AND b = ?", True),
        ("SELECT a FROM t /* for x */", "SELECT a FROM t", True),
        ("SELECT a FROM t", "SELECT b FROM t", False),
        ("SELECT a FROM t", "STARTUP ", False),
        ("SELECT a FROM t", "", True),
    ],
)
def test_statements_are_the_same_but_for_their_values(logged: str, seen: str, same: bool) -> None:
    assert is_same_statement(logged, seen) == same
