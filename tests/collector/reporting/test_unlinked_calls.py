"""A request's time in a service may hold waits for calls that were linked to no request; the story says so."""

import polars as pl
import pytest

from collector.reporting.unlinked_calls import CALL_COLUMNS, unlinked_words

MINE = pl.DataFrame(
    {
        "depth": [0, 1],
        "server_host": ["web", "app"],
        "service": ["caddy", "app:3000"],
        "queue_ns": [None, 800],
        "work_ns": [5, 100],
        "start_trace_ns": [1_000, 1_010],
        "end_trace_ns": [2_000, 1_950],
    }
)
Call = tuple[int, str | None, str, bool, int]
"""Depth, host, service, whether a daemon made it, and when it began."""


def calls(*rows: Call) -> pl.DataFrame:
    """Each takes 20 ns."""
    times = dict.fromkeys(name for name in CALL_COLUMNS if name.endswith("_ns"))
    of = [
        dict(zip(CALL_COLUMNS[:4], row[:4], strict=True))
        | times
        | {"request_first_sent_trace_ns": row[4], "response_last_received_trace_ns": row[4] + 20}
        for row in rows
    ]
    return pl.DataFrame(of, schema_overrides=dict.fromkeys(times, pl.Int64), infer_schema_length=None)


def page(count: int, depth: int, at: int = 1_500) -> list[Call]:
    return [(depth, "app", "pool:6432", False, at)] * count


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (page(20, 2), ""),
        (page(30, 2) + page(3, 0), ""),
        (page(20, 2) + page(10, 0, at=5_000), ""),
        ([(0, "app", "pool:6432", True, 1_500)] * 10, ""),
        ([(0, "web", "auth:80", False, 1_500)] * 10, ""),
        ([(0, None, "caddy", False, 1_500)] * 10, ""),
        (page(20, 2) + page(10, 0), "10 of 30 to pool:6432"),
        (page(20, 2) + page(10, 0) + [(0, "app", "redis", False, 1_500)] * 5, "10 of 30 to pool:6432, 5 of 5 to redis"),
    ],
    ids=[
        "all are linked", "few are not", "at another time", "a daemon's", "of a host without its time",
        "of a client that was not captured", "a third", "of two services",
    ],
)  # fmt: skip
def test_where_waits_for_calls_without_a_request_may_be(rows: list[Call], expected: str) -> None:
    words = f" The time of app:3000 may hold waits for calls whose request is not known: {expected}."
    expected = words if expected else ""
    assert unlinked_words([calls(*rows)], MINE) == expected
    assert unlinked_words([calls(*rows[:7]), calls(*rows[7:])], MINE) == expected, "as in one part"
