"""What a connection's handshake is part of, and that the pause before the first byte is part of nothing."""

import numpy as np
import pyarrow as pa
import pytest

from collector.reporting.request_rows import join_spans
from collector.requests.openings import Bounds, bounds_of
from collector.requests.spans import link
from collector.trace.time_columns import UNSEEN
from testkit.tables import BASE_NS
from tests.helpers.exchange_lines import exchanges_of

# Of each span: handshake, pause, duration of the trace if it is a root's; µs.
CASES = {
    "a connection used at once": (
        "client > proxy 100 110 190 200 connect=0 connected=90",
        [(90, 10, 190)],
    ),
    "a connection used 4 s later": (
        "client > proxy 4000000 4000010 4000090 4000100 connect=0 connected=32",
        [(32, 3_999_968, 132)],
    ),
    "a SYN sent again belongs to the handshake": (
        "client > proxy 1001000 1001010 1001090 1001100 connect=0 connected=1000500",
        [(1_000_500, 500, 1_000_600)],
    ),
    "a server that speaks first: the client pauses only when it has the greeting": (
        "client > mysql 2000 2010 2090 2100 connect=0 connected=32 accepted=40 greeting=1890 greeted=1900",
        [(32, 100, 2_000)],
    ),
    "a connection greeted at once, used 4 s later": (
        "client > mysql 4000000 4000010 4000090 4000100 connect=0 connected=32 greeting=40 greeted=50",
        [(32, 3_999_950, 150)],
    ),
    "a greeting of a connection that was opened long before is no part": (
        """
        client > proxy       0  10 290 300 tx=a
        proxy > mysql   120 130 180 190 tx=a connect=-50 connected=-40 greeting=50 greeted=60
        """,
        [(0, 0, 300), (0, 0, None)],
    ),
    "a handshake of which the end was not seen is no part": (
        "client > proxy 4000 4010 4090 4100 connect=0 connected=-",
        [(0, 0, 100)],
    ),
    "data in the SYN": (
        "client > proxy 0 10 90 100 connect=0 connected=20",
        [(0, 0, 100)],
    ),
    "a server opens a connection for the request that it serves": (
        """
        client > proxy       0  10 290 300 tx=a
        proxy > storage1   120 130 180 190 tx=a connect=20 connected=50
        """,
        [(0, 0, 300), (30, 70, None)],
    ),
    "a server had opened it before that request came": (
        """
        client > proxy    1000 1010 1290 1300 tx=a
        proxy > storage1  1120 1130 1180 1190 tx=a connect=20 connected=50
        """,
        [(0, 0, 300), (0, 0, None)],
    ),
    "a browser opens two connections and uses one later": (
        """
        client > proxy      100    110    190    200 connect=0 connected=90
        client > proxy   200000 200010 200090 200100
        client > proxy   400000 400010 400090 400100 connect=0 connected=90
        """,
        [(90, 10, 190), (0, 0, 100), (0, 0, 100)],
    ),
    "two at once, each over its own connection": (
        """
        client > proxy    100 110 190 200 connect=0 connected=90
        client > proxy    150 160 190 200 connect=0 connected=90
        """,
        [(90, 10, 190), (90, 60, 140)],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_handshake_and_pause(text: str, expected: list[tuple[int, int, int | None]]) -> None:
    exchanges = exchanges_of(text)
    rows = join_spans(link(exchanges), exchanges).sort("exchange_id")
    found = rows.select("connect_ns", "pause_ns", "duration_ns").rows()
    assert [tuple(None if value is None else value // 1000 for value in row) for row in found] == expected
    for row in rows.filter(depth=0).iter_rows(named=True):
        assert row["duration_ns"] == row["end_trace_ns"] - row["start_trace_ns"] - row["pause_ns"]


def test_the_pause_is_what_neither_handshake_takes() -> None:
    """TCP's 0 … 10, TLS's 30 … 50, the first byte at 70."""
    times = (np.array([at], np.int64) for at in (0, 10, 30, 50, 70, 100))
    start, connected, tls_start, tls_end, sent, end = times
    unseen = np.array([UNSEEN], np.int64)
    assert Bounds(start, connected, unseen, tls_start, tls_end, sent, end).pause.tolist() == [40]
    assert Bounds(start, connected, unseen, unseen, unseen, sent, end).pause.tolist() == [60]
    assert Bounds(start, unseen, unseen, unseen, unseen, sent, end).pause.tolist() == [0]


@pytest.mark.parametrize(
    ("tls_us", "secured"), [((30, 50), True), ((-30, 50), False), ((30, 20), False), ((30, 90), False)]
)
def test_a_handshake_of_tls_out_of_order_is_none(tls_us: tuple[int, int], secured: bool) -> None:
    exchanges = exchanges_of("client > proxy 70 80 90 100 connect=0 connected=10")
    for name, at in zip(("tls_start_trace_ns", "tls_end_trace_ns"), tls_us, strict=True):
        column = pa.array([BASE_NS + 1000 * at], pa.int64())
        exchanges = exchanges.set_column(exchanges.column_names.index(name), name, column)
    bounds = bounds_of(exchanges, np.array([True]))
    assert bool(bounds.tls_start[0] != UNSEEN) == secured
