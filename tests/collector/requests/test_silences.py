"""Silences as the ledger takes them: the long ones by row and time, and what is left of the sums as short ones."""

import pyarrow as pa

from collector.requests.silences import SUM_COLUMNS, silences_by_row
from collector.trace.schema import SILENCES


def exchanges(*sums: dict[str, int]) -> pa.Table:
    """Exchanges 5, 6, … with these sums of silences, ns."""
    columns = {name: pa.array([each.get(name) for each in sums], pa.int64()) for name in SUM_COLUMNS}
    return pa.table({"exchange_id": pa.array(range(5, 5 + len(sums)), pa.int64())} | columns)


def silences(*rows: tuple[int, bool, int, int, str]) -> pa.Table:
    """Exchange, whether in the response, from, to, cause."""
    names = ("exchange_id", "in_response", "from_trace_ns", "to_trace_ns", "cause")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]).cast(SILENCES)


def test_long_ones_are_in_the_order_of_rows_and_of_time_and_others_are_left_out() -> None:
    table = silences(
        (6, True, 30, 40, "idle"), (9, True, 1, 2, "idle"), (5, False, 20, 25, "unread"), (6, True, 10, 15, "held")
    )
    found = silences_by_row(table, exchanges({}, {}))
    long = zip(*(found[name].tolist() for name in ("row", "in_response", "cause", "from_ns", "to_ns")), strict=True)
    assert list(long) == [(0, False, 2, 20, 25), (1, True, 1, 10, 15), (1, True, 0, 30, 40)]


def test_short_ones_are_what_the_sums_have_beyond_the_long_ones_of_their_message_and_cause() -> None:
    sums = {"request_silent_idle_ns": 100, "response_silent_idle_ns": 70, "response_silent_unread_ns": 8}
    table = silences((5, False, 0, 90, "idle"), (5, True, 200, 270, "idle"))
    found = silences_by_row(table, exchanges(sums))
    names = ("short_row", "short_in_response", "short_cause", "short_ns")
    short = zip(*(found[name].tolist() for name in names), strict=True)
    assert sorted(short) == [(0, False, 0, 10), (0, True, 2, 8)]
