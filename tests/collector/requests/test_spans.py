"""Exchanges in, a forest with its ledger out."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.requests.parents import last_at_least
from collector.requests.spans import LEDGER_COLUMNS, link, places
from collector.trace.schema import ID_STRIDE, SPANS
from tests.helpers.exchange_lines import exchanges_of

MAIN = ("connect_ns", "request_network_ns", "work_ns", "response_network_ns")


def span_lines(text: str) -> list[str]:
    """Each span as: id < parent, reason and confidence, ledger in µs (connect, request, work, response; the
    others by name where there is any)."""
    table = link(exchanges_of(text))
    assert table.schema.equals(SPANS)
    return [line(row) for row in table.to_pylist()]


def line(row: dict) -> str:
    ledger = " ".join(f"{row[column] / 1000:g}" for column in MAIN)
    others = [column for column in LEDGER_COLUMNS if column not in MAIN]
    ledger += "".join(f" {name.removesuffix('_ns')}={row[name] / 1000:g}" for name in others if row[name])
    assert row["critical_ns"] == sum(row[column] for column in LEDGER_COLUMNS)
    if row["parent_span_id"] is None:
        assert (row["link_reason"], row["confidence"], row["depth"]) == (None, None, 0)
        return f"{row['span_id']} | {ledger}"
    return f"{row['span_id']} < {row['parent_span_id']} {row['link_reason']} {row['confidence']:.2f} | {ledger}"


CASES = {
    "one request": (
        "client > proxy 0 10 90 100 connect=-5",
        ["1 | 5 10 80 10"],
    ),
    "a child by transaction id takes its time out of its parent's work": (
        """
        client > proxy    0 10 90 100 tx=a
        proxy > storage1 20 22 60  62 tx=a connect=15
        """,
        ["1 | 0 10 33 10", "2 < 1 transaction_id 1.00 | 5 2 38 2"],
    ),
    "an id of Ceph's own leads to no other protocol, and one whose operation was not seen nowhere": (
        """
        client > gateway 0 10 90 100 tx=a
        gateway > osd1/osd 20 22 60 62 tx=0:7 protocol=ceph
        osd1 > osd2/osd 30 32 50 52 tx=0:7 protocol=ceph
        osd1 > osd2/osd 33 35 50 52 tx=0:8 protocol=ceph
        """,
        [
            "1 | 0 10 38 10",
            "2 < 1 timing 1.00 | 0 2 16 2",
            "3 < 2 transaction_id 1.00 | 0 2 18 2",
            "4 | 0 2 15 2",
        ],
    ),
    "between connected and asking, the time is the asker's, and a root's is not in its duration": (
        """
        client > proxy    0 10 90 100 tx=a connect=-20 connected=-15
        proxy > storage1 30 32 60  62 tx=a connect=15 connected=18
        """,
        ["1 | 5 10 45 10", "2 < 1 transaction_id 1.00 | 3 2 28 2"],
    ),
    "the wait for the greeting of a server that speaks first is its work": (
        """
        client > proxy   0 10 990 1000 tx=a
        proxy > mysql  930 932 960 962 tx=a connect=15 connected=18 accepted=20 greeting=918 greeted=920
        """,
        ["1 | 0 10 43 10", "2 < 1 transaction_id 1.00 | 3 4 926 4"],
    ),
    "a hedged call: the first was left when the second had answered, and waited for until that began": (
        """
        client > proxy    0 10 990 1000 tx=a
        proxy > storage1 20 22 - - tx=a target=/x left=905
        proxy > storage2 320 322 900 902 tx=a target=/x
        """,
        ["1 | 0 10 98 10", "2 < 1 transaction_id 1.00 | 0 2 298 0", "3 < 1 transaction_id 1.00 | 0 2 578 2"],
    ),
    "likewise, left in the middle of its answer": (
        """
        client > proxy    0 10 990 1000 tx=a
        proxy > storage1 20 22 800 904 first=802 tx=a target=/x left=905
        proxy > storage2 320 322 700 702 tx=a target=/x
        """,
        ["1 | 0 10 298 10", "2 < 1 transaction_id 1.00 | 0 2 298 0", "3 < 1 transaction_id 1.00 | 0 2 378 2"],
    ),
    "two different calls, of which one is slow and given up": (
        """
        client > proxy    0 10 990 1000 tx=a
        proxy > storage1 20 22 - - tx=a target=/x left=905
        proxy > storage2 320 322 900 902 tx=a target=/y
        """,
        ["1 | 0 10 95 10", "2 < 1 transaction_id 1.00 | 0 2 883 0", "3 < 1 transaction_id 1.00 | 0 0 0 0"],
    ),
    "a second try after a timeout: the first was waited for until it was left": (
        """
        client > proxy    0 10 990 1000 tx=a
        proxy > storage1 20 22 - - tx=a target=/x left=320
        proxy > storage2 325 327 900 902 tx=a target=/x
        """,
        ["1 | 0 10 103 10", "2 < 1 transaction_id 1.00 | 0 2 298 0", "3 < 1 transaction_id 1.00 | 0 2 573 2"],
    ),
    "the same asked twice, and waited for long after the other had answered": (
        """
        client > proxy    0 10 990 1000 tx=a
        proxy > storage1 20 22 - - tx=a target=/x left=905
        proxy > storage2 30 32 60 62 tx=a target=/x
        """,
        ["1 | 0 10 95 10", "2 < 1 transaction_id 1.00 | 0 2 883 0", "3 < 1 transaction_id 1.00 | 0 0 0 0"],
    ),
    "the same asked of another, who failed": (
        """
        client > proxy    0 10 990 1000 tx=a
        proxy > storage1 20 22 - - tx=a target=/x left=905
        proxy > storage2 320 322 900 902 tx=a target=/x status=503
        """,
        ["1 | 0 10 95 10", "2 < 1 transaction_id 1.00 | 0 2 883 0", "3 < 1 transaction_id 1.00 | 0 0 0 0"],
    ),
    "a quorum: the third answer came after the proxy had answered, and did not matter": (
        """
        client > proxy    0 10 50  60 tx=a
        proxy > storage1 20 22 38  40 tx=a
        proxy > storage2 20 22 43  45 tx=a
        proxy > storage3 20 22 80  86 tx=a
        """,
        [
            "1 | 0 10 15 10",
            "2 < 1 transaction_id 1.00 | 0 0 0 0",
            "3 < 1 transaction_id 1.00 | 0 2 21 2",
            "4 < 1 transaction_id 1.00 | 0 0 0 0",
        ],
    ),
    "one after the other": (
        """
        client > proxy     0 10 90 100 tx=a
        proxy > storage1  20 22 28  30 tx=a
        proxy > storage2  40 42 58  60 tx=a
        """,
        ["1 | 0 10 50 10", "2 < 1 transaction_id 1.00 | 0 2 6 2", "3 < 1 transaction_id 1.00 | 0 2 16 2"],
    ),
    "two that overlap: the later end counts whole, the other up to its start": (
        """
        client > proxy     0 10 90 100 tx=a
        proxy > storage1  20 22 48  50 tx=a first=35
        proxy > storage2  40 42 58  60 tx=a
        """,
        ["1 | 0 10 40 10", "2 < 1 transaction_id 1.00 | 0 2 18 0", "3 < 1 transaction_id 1.00 | 0 2 16 2"],
    ),
    "grandchildren, the innermost by nesting": (
        """
        client > proxy      0 10 90 100 tx=a
        proxy > storage1   20 22 78  80 tx=a
        storage1 > storage2 30 32 48 50 tx=a
        """,
        ["1 | 0 10 20 10", "2 < 1 transaction_id 1.00 | 0 2 36 2", "3 < 2 transaction_id 1.00 | 0 2 16 2"],
    ),
    "work put off until after the answer stays in the trace and costs nothing": (
        """
        client > proxy      0 10 60  70 tx=a
        proxy > storage1   20 22 48  50 tx=a
        storage1 > storage2 55 57 90 92 tx=a
        """,
        ["1 | 0 10 20 10", "2 < 1 transaction_id 1.00 | 0 2 26 2", "3 < 2 transaction_id 1.00 | 0 0 0 0"],
    ),
    "servers that call each other: who calls whom without doubt elsewhere decides": (
        """
        proxy > s1/object    0  2 90  92 tx=a
        proxy > s2/object    1  3 90  92 tx=a
        s1 > s2/container    5  7 40  42 tx=a
        s2 > s1/container   10 12 40  42 tx=a
        proxy > s3/object  200 202 290 292 tx=b
        s3 > s1/container  205 207 240 242 tx=b
        """,
        [
            "1 | 0 2 51 2",
            "2 | 0 2 55 2",
            "3 < 1 transaction_id 1.00 | 0 2 33 2",
            "4 < 2 transaction_id 1.00 | 0 2 28 2",
            "5 | 0 2 51 2",
            "6 < 5 transaction_id 1.00 | 0 2 33 2",
        ],
    ),
    "a daemon's requests one after the other, the first to its own host, are no parent and child": (
        """
        s2 > s2/account  0  0 10 10 tx=a
        s2 > s3/account 20 22 30 32 tx=a
        """,
        ["1 | 0 0 10 0", "2 | 0 2 8 2"],
    ),
    "the same id, and two parents equally possible: half sure": (
        """
        client > proxy    0 10 90 100 tx=a
        client > proxy    1 11 90 100 tx=a
        proxy > storage1 20 22 60  62 tx=a
        """,
        ["1 | 0 10 80 10", "2 | 0 10 37 10", "3 < 2 transaction_id 0.50 | 0 2 38 2"],
    ),
    "no id: by timing, one possible parent": (
        """
        client > proxy    0 10 90 100
        proxy > storage1 20 22 60  62
        """,
        ["1 | 0 10 38 10", "2 < 1 timing 1.00 | 0 2 38 2"],
    ),
    "no id: by timing, three possible parents": (
        """
        client > proxy    0 10 90 100
        client > proxy    1 11 90 100
        client > proxy    2 12 90 100
        client > proxy    3 13 15  20
        proxy > storage1 20 22 60  62
        """,
        ["1 | 0 10 80 10", "2 | 0 10 79 10", "3 | 0 10 36 10", "4 | 0 10 2 5", "5 < 3 timing 0.33 | 0 2 38 2"],
    ),
    "no id: like requests that run with no parent open take from the confidence": (
        """
        client > proxy     0  10  90 100
        proxy > storage1  20  22  60  62
        proxy > storage1 200 202 204 206
        """,
        ["1 | 0 10 38 10", "2 < 1 timing 0.50 | 0 2 38 2", "3 | 0 2 2 2"],
    ),
    "no id: what is far likelier to have no parent has none": (
        """
        client > proxy      0  10 900 910
        client > proxy      1  11 900 911
        client > proxy      2  12 900 912
        proxy > storage1  200 202 204 206
        proxy > storage1 1200 1202 1204 1206
        """,
        ["1 | 0 10 890 10", "2 | 0 10 889 11", "3 | 0 10 888 12", "4 | 0 2 2 2", "5 | 0 2 2 2"],
    ),
    "an id that leads elsewhere is no candidate": (
        """
        client > proxy    0 10 90 100 tx=a
        proxy > storage1 20 22 60  62 tx=b
        """,
        ["1 | 0 10 80 10", "2 | 0 2 38 2"],
    ),
    "a child within one host, seen once on its loopback": (
        """
        client > proxy    0 10 90 100
        proxy > proxy/cache 20 20 30 30
        """,
        ["1 | 0 10 70 10", "2 < 1 timing 1.00 | 0 0 10 0"],
    ),
    "a child that sticks out of its parent by a clock's error is clipped": (
        """
        client > proxy    0 10 60  61 tx=a
        proxy > storage1 10  9 62  60 tx=a
        """,
        ["1 | 0 10 0 1", "2 < 1 transaction_id 1.00 | 0 0 50 0"],
    ),
    "a body still arriving while the child runs counts as the parent's network": (
        """
        client > proxy    0 10 90 100 tx=a whole=40
        proxy > storage1 20 50 60  62 tx=a
        """,
        ["1 | 0 40 28 10", "2 < 1 transaction_id 1.00 | 0 10 10 2"],
    ),
    "asked first: the server works until its 100, then the body travels": (
        "client > proxy 0 10 90 100 whole=60 continue=40",
        ["1 | 0 30 60 10"],
    ),
    "between the 100 and the body, the time is the asker's": (
        """
        client > proxy    0 10 90 100 tx=a
        proxy > storage1 20 22 80  82 tx=a continue=30 continued=33 body=50 whole=54
        """,
        ["1 | 0 10 35 10", "2 < 1 transaction_id 1.00 | 0 9 34 2"],
    ),
    "a client that asks first: what the proxy's children did before its 100 is theirs": (
        """
        client > proxy    0 10 190 200 tx=a continue=60 continued=70 body=75 whole=90
        proxy > storage1 20 22 170 172 tx=a continue=50 continued=52 body=95 whole=100
        """,
        ["1 | 0 35 41 10 client=5", "2 < 1 transaction_id 1.00 | 0 9 98 2"],
    ),
    "while one child waits to go on, another is what is waited for": (
        """
        client > proxy    0 10 190 200 tx=a
        proxy > storage1 20 22 170 172 tx=a continue=30 continued=32 body=120 whole=130
        proxy > storage3 20 22  -   -  tx=a up=110 cut
        """,
        ["1 | 0 10 38 10", "2 < 1 transaction_id 1.00 | 0 10 40 2", "3 < 1 transaction_id 1.00 | 0 2 88 0"],
    ),
    "an answer streamed through: the child counts until the parent's first byte": (
        """
        client > proxy    0 10 50 300 tx=a
        proxy > storage1 20 22 40 280 tx=a first=42
        """,
        ["1 | 0 10 10 250", "2 < 1 transaction_id 1.00 | 0 2 18 10"],
    ),
    "no answer: no duration, and children keep their place": (
        """
        client > proxy    0 10 -   -  tx=a cut
        proxy > storage1 20 22 60  62 tx=a
        """,
        ["1 | 0 0 0 0", "2 < 1 transaction_id 1.00 | 0 0 0 0"],
    ),
    "given up unanswered: the wait is the silent server's": (
        """
        client > proxy    0 10 90 100 tx=a
        proxy > storage1 20 22  -  -  tx=a up=60 cut
        proxy > storage2 20 22 28 30  tx=a
        proxy > storage3 62 64 70 72  tx=a
        """,
        [
            "1 | 0 10 30 10",
            "2 < 1 transaction_id 1.00 | 0 2 38 0",
            "3 < 1 transaction_id 1.00 | 0 0 0 0",
            "4 < 1 transaction_id 1.00 | 0 2 6 2",
        ],
    ),
    "the client was not captured: from arrival to answer": (
        """
        - > proxy         - 10 90  -  tx=a
        proxy > storage1 20 22 60  62 tx=a
        """,
        ["1 | 0 0 38 0", "2 < 1 transaction_id 1.00 | 0 2 38 2"],
    ),
    "what a daemon asks has no parent, what is asked for it has": (
        """
        client > proxy       0 10 190 200
        proxy > storage1    50 52  60  62 daemon tx=d
        storage1 > storage2 53 54  56  58 tx=d
        """,
        ["1 | 0 10 180 10", "2 | 0 2 3 2", "3 < 2 transaction_id 1.00 | 0 1 2 2"],
    ),
    "an id that the server names in its answer and in its calls": (
        """
        client > proxy    0 10 90 100 tx=mine answer_tx=theirs
        client > proxy    1 11 91 101 tx=other answer_tx=nobody
        proxy > storage1 20 22 60  62 tx=theirs
        """,
        ["1 | 0 10 38 10", "2 | 0 10 80 10", "3 < 1 transaction_id 1.00 | 0 2 38 2"],
    ),
    "a server that was not captured: the time between is its work or the network": (
        """
        client > -/web    0  - -  100 first=80
        """,
        ["1 | 0 0 0 20 server_or_network=80"],
    ),
    "an answer of which the server's stamps were not captured": (
        """
        client > web    0  10 -  100 first=80
        """,
        ["1 | 0 10 0 20 server_or_network=70"],
    ),
    "a request that its server never answered was not in the network": (
        """
        client > web    0  10 -  - up=100
        """,
        ["1 | 0 10 90 0"],
    ),
    "what was done for a request to a server that was not captured is not the server's or the network's": (
        """
        client > -/lb        0  -  -  100 tx=a
        - > storage1         -  20 60  -  tx=a
        """,
        ["1 | 0 0 0 0 server_or_network=100", "2 | 0 0 40 0"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_link(text: str, expected: list[str]) -> None:
    assert span_lines(text) == expected


def test_no_exchanges_make_no_spans() -> None:
    assert link(exchanges_of("")).num_rows == 0


@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=20),
)
def test_last_at_least_is_a_plain_search(values: list[int], queries: list[tuple[int, int]]) -> None:
    before = np.array([min(place, len(values)) for place, _ in queries], dtype=np.int64)
    least = np.array([value for _, value in queries], dtype=np.int64)
    plain = [
        max((place for place in range(stop) if values[place] >= value), default=-1)
        for stop, value in zip(before, least, strict=True)
    ]
    assert last_at_least(np.array(values, dtype=np.int64), before, least).tolist() == plain


@st.composite
def forests(draw: st.DrawFn) -> str:
    """Lines of exchanges at random times among few hosts, with ids, gaps and clocks that disagree."""
    hosts, time = st.sampled_from(["a", "b", "c", "-"]), st.integers(-20, 60)
    lines = []
    for _ in range(draw(st.integers(1, 14))):
        sent = draw(st.integers(0, 200))
        times = [sent]
        for _ in range(3):
            times.append(times[-1] + draw(time))
        shown = [draw(st.sampled_from(["{}", "{}", "{}", "{}", "-"])).format(at) for at in times]
        options = draw(
            st.sampled_from(
                [
                    "",
                    "tx=a",
                    "tx=b",
                    "connect=-3",
                    "connect=-3 connected=5",
                    f"first={times[2]}",
                    f"whole={times[2]} continue={times[1]}",
                    f"continue={sent} continued={times[1]} body={times[2]}",
                ]
            )
        )
        lines.append(f"{draw(hosts)} > {draw(hosts)} {' '.join(shown)} {options}")
    return "\n".join(lines)


@settings(max_examples=150)
@given(forests())
def test_the_ledger_adds_up_exactly_whatever_the_times(text: str) -> None:
    table = exchanges_of(text)
    exchanges = {row["exchange_id"]: row for row in table.to_pylist()}
    spans = link(table).to_pylist()
    for root in (span for span in spans if span["parent_span_id"] is None):
        mine = [span for span in spans if span["trace_id"] == root["span_id"]]
        whole = duration(exchanges[root["span_id"]])
        assert sum(span["critical_ns"] for span in mine) == whole
        bounds = (root["start_trace_ns"], root["end_trace_ns"])
        assert whole == (0 if None in bounds else max(bounds[1] - bounds[0] - root["pause_ns"], 0))
    for span in spans:
        assert all(span[column] >= 0 for column in LEDGER_COLUMNS)
        if span["parent_span_id"] is not None:
            assert exchanges[span["span_id"]]["client_host"] == exchanges[span["parent_span_id"]]["server_host"]


def duration(row: dict) -> int:
    """A root's, from its own stamps: its handshake, and from its first byte to its last."""
    end = first(row, "response_last_received", "response_last_sent", "given_up")
    sent = first(row, "request_first_sent", "request_first_received")
    shake = [row["connect_start_trace_ns"], row["connected_trace_ns"], row["request_first_sent_trace_ns"]]
    if end is None or sent is None:
        return 0
    if None in shake or shake != sorted(shake):
        return max(end - sent, 0)
    return max(min(shake[1], end) - shake[0], 0) + max(end - sent, 0)


def first(row: dict, *names: str) -> int | None:
    return next((row[f"{name}_trace_ns"] for name in names if row[f"{name}_trace_ns"] is not None), None)


def test_a_constant_in_place_of_an_id_links_by_time() -> None:
    """An id that hundreds of requests show identifies none of them, and each pair is not looked at."""
    requests = [
        f"{line} tx=constant"
        for at in range(0, 300_000, 1000)
        for line in (
            f"client > proxy/swift-proxy {at} {at + 10} {at + 90} {at + 100}",
            f"proxy > storage1/swift-object {at + 20} {at + 30} {at + 60} {at + 70}",
        )
    ]
    rows = link(exchanges_of("\n".join(requests))).to_pylist()
    children = [row for row in rows if row["parent_span_id"] is not None]
    assert [row["parent_span_id"] for row in children] == [row["span_id"] - 1 for row in children]
    assert {row["link_reason"] for row in children} == {"timing"}
    assert len(children) == 300


def test_a_null_id_is_none_whatever_bytes_lie_below_it() -> None:
    exchanges = exchanges_of("client > proxy 0 10 90 100 tx=a\nproxy > storage1 20 22 60 62 tx=a")
    hidden = pc.if_else(pa.array([False, True]), pa.scalar(None, pa.string()), exchanges["transaction_id"])
    place = exchanges.column_names.index("transaction_id")
    rows = link(exchanges.set_column(place, "transaction_id", hidden)).to_pylist()
    assert [row["link_reason"] for row in rows] == [None, "timing"]


some_ids = st.lists(st.builds(lambda part, number: part * ID_STRIDE + number, st.integers(0, 3), st.integers(0, 9)))


@given(some_ids.map(lambda ids: list(dict.fromkeys(ids))), st.data())
def test_places_are_those_of_a_plain_search(ids: list[int], data: st.DataObject) -> None:
    others = [10, -1, 2 * ID_STRIDE + 10, 9 * ID_STRIDE]
    wanted = data.draw(st.lists(st.none() | st.sampled_from([*ids, *others])))
    found = places(pl.Series(ids, dtype=pl.Int64), pl.Series(wanted, dtype=pl.Int64))
    assert found.tolist() == [ids.index(one) if one in ids else -1 for one in wanted]
