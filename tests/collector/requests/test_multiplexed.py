"""Turns of connections that carry several requests at once are no requests: they have no parent, and are nobody's."""

import random

import polars as pl
import pyarrow as pa
import pytest

from collector.requests.multiplexed import LEAST_TURNS, multiplexed_turns
from collector.requests.spans import link
from testkit.services_sim import Service, Simulation, Step
from testkit.tables import BASE_NS, table

US = 1_000
TURNS = 200
CHAIN = {
    "a": Service(("A",), (Step(400 * US, ("b",)), Step(300 * US)), loop=False),
    "b": Service(("B",), (Step(500 * US),), loop=False),
}


def turns(
    request_pauses: float, response_pauses: float, each: int = 50, count: int = TURNS, method: str | None = None
) -> list[dict[str, object]]:
    """Turns of connections from X to A, so many `each`, that go on after a silence so often; one each 2 ms."""
    draws = random.Random(7)

    def silence(share: float) -> int | None:
        return 300 * US if draws.random() < share else None

    def turn(number: int) -> dict[str, object]:
        at = BASE_NS + 2_000 * US * number + draws.randrange(500 * US)
        return {
            "exchange_id": 100_000 + number,
            "connection_id": 100_000 + number // each,
            "client_host": "X",
            "server_host": "A",
            "service": "grid",
            "method": method,
            "request_first_sent_trace_ns": at,
            "request_first_received_trace_ns": at + 50 * US,
            "response_first_sent_trace_ns": at + 900 * US,
            "response_last_sent_trace_ns": at + 950 * US,
            "response_first_received_trace_ns": at + 950 * US,
            "response_last_received_trace_ns": at + 1_000 * US,
            "request_bytes": draws.randrange(100, 300),
            "response_bytes": draws.randrange(50, 200),
            "request_silent_idle_ns": silence(request_pauses),
            "response_silent_idle_ns": silence(response_pauses),
        }

    return [turn(number) for number in range(count)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(turns(0.3, 0.3), TURNS, id="both sides go on after silences"),
        pytest.param(turns(0.5, 0.0), 0, id="slow uploads"),
        pytest.param(turns(0.0, 0.5), 0, id="answers that are made bit by bit"),
        pytest.param(turns(0.04, 0.04), 0, id="now and then"),
        pytest.param(turns(0.3, 0.3, each=2), 0, id="a connection for each request"),
        pytest.param(turns(0.3, 0.3, count=LEAST_TURNS - 1), 0, id="too few turns"),
        pytest.param(turns(0.3, 0.3, method="GET"), 0, id="heads that were read"),
    ],
)
def test_turns_are_no_requests_where_both_sides_go_on_unasked(rows: list[dict[str, object]], expected: int) -> None:
    assert multiplexed_turns(table("exchanges", rows)).sum() == expected


def test_turns_of_other_hosts_and_services_are_judged_by_themselves() -> None:
    plain = [row | {"client_host": "Y", "connection_id": 900_000} for row in turns(0.0, 0.0)]
    found = multiplexed_turns(table("exchanges", turns(0.3, 0.3) + plain))
    assert found.tolist() == [True] * TURNS + [False] * TURNS


def simulate() -> tuple[list[dict[str, object]], dict[int, int]]:
    exchanges, truth = Simulation(CHAIN, seed=4).run("a", 3, 400)
    return exchanges.to_pylist(), truth


def spans_of(rows: list[dict[str, object]]) -> pl.DataFrame:
    exchanges: pa.Table = table("exchanges", rows)
    return pl.DataFrame(link(exchanges))


def test_turns_take_no_calls_from_requests() -> None:
    """As many turns as requests are open at A, at any time: calls went to them, surely."""
    rows, truth = simulate()
    spans = spans_of(rows + turns(0.3, 0.3, count=600)).filter(pl.col("span_id") < 100_000)
    parents = dict(spans.select("span_id", "parent_span_id").iter_rows())
    alone = dict(spans_of(rows).select("span_id", "parent_span_id").iter_rows())
    assert parents == alone
    assert sum(parents[child] == parent for child, parent in truth.items()) >= 0.7 * len(truth)


def test_turns_have_no_parent() -> None:
    """While A serves a request, A begins a turn: by its time it is the request's, as it is without silences."""
    rows, _ = simulate()
    opened = [int(str(row["request_first_received_trace_ns"])) for row in rows if row["service"] == "a"]
    made = [at_time(row, at + 100 * US) for row, at in zip(turns(0.3, 0.3, count=len(opened)), opened, strict=True)]
    paused = spans_of(rows + made).filter(pl.col("span_id") >= 100_000)
    assert paused["parent_span_id"].null_count() == len(made)
    straight = spans_of(rows + [row | {"request_silent_idle_ns": None} for row in made])
    assert straight.filter(pl.col("span_id") >= 100_000)["parent_span_id"].null_count() < 0.1 * len(made)


def at_time(row: dict[str, object], at_ns: int) -> dict[str, object]:
    """The same turn, made by A at that time."""
    later = at_ns - int(str(row["request_first_sent_trace_ns"]))
    times = {name: int(str(value)) + later for name, value in row.items() if name.endswith("_trace_ns")}
    return row | times | {"client_host": "A", "server_host": "G"}
