"""Joins: a service waits for five calls of one request, and makes three calls when the last of them has come. No id
says which; nor does any call by itself. It may answer that last one at once, and work after that."""

import random

import polars as pl
import pytest

from collector.requests.spans import link
from testkit.services_sim import Service, Simulation, Step
from testkit.tables import table

US = 1_000
CALLED = ["x", "y", "z"]


def joining(work_us: int, answers_last: bool) -> dict[str, Service]:
    """Five branches, of which another is the last each time."""
    names = [f"b{number}" for number in range(1, 6)]
    branches = {
        name: Service((name.upper(),), (Step((300 + 100 * number) * US, ("join",)),), loop=False)
        for number, name in enumerate(names)
    }
    steps = (Step(work_us * US, tuple(CALLED)),)
    return {
        "front": Service(("F",), (Step(200 * US, tuple(names)), Step(100 * US)), loop=False),
        **branches,
        "join": Service(("J",), steps, loop=False, joins=5, answers_last=answers_last),
        **{name: Service((name.upper(),), (Step(300 * US),), loop=False) for name in CALLED},
    }


def calls_out(services: dict[str, Service], at_once: int) -> pl.DataFrame:
    """`given, right, confidence` of the calls that joined requests make."""
    exchanges, truth = Simulation(services, seed=3).run("front", at_once, 500)
    service = pl.DataFrame(exchanges)["service"].cast(pl.String)
    spans = pl.DataFrame(link(exchanges)).with_columns(
        service=service, truth=pl.col("span_id").replace_strict(truth, default=None, return_dtype=pl.Int64)
    )
    return spans.filter(pl.col("service").is_in(CALLED)).select(
        given=pl.col("parent_span_id").is_not_null(),
        right=(pl.col("parent_span_id") == pl.col("truth")).fill_null(value=False),
        confidence=pl.col("confidence").fill_null(0.0),
    )


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("work_us", [100, 2000])
def test_calls_are_of_the_one_that_completed_the_set(work_us: int, at_once: int) -> None:
    """0.2 to 0.6 of them had any parent when how long a request took said nothing of whether it made the call."""
    found = calls_out(joining(work_us, answers_last=True), at_once)
    assert found["right"].mean() >= 0.95
    assert abs(found["confidence"].mean() - found["right"].mean()) <= 0.05


@pytest.mark.parametrize(("at_once", "least"), [(1, 0.95), (2, 0.5)])
def test_calls_made_after_the_answer_are_of_a_request_that_was_answered(at_once: int, least: float) -> None:
    """None of them had a parent when a request could make calls only until it was answered. With 2 at once others come
    within the time that work takes; the confidence says so."""
    found = calls_out(joining(100, answers_last=False), at_once)
    assert found["given"].mean() >= 0.95
    assert found["right"].mean() >= least
    assert abs(found["confidence"].mean() - found["right"].mean()) <= 0.17


def test_calls_of_a_rhythm_of_its_own_are_nobodys() -> None:
    """A daemon on the host that joins, every 3 ms and a little, whoever asks."""
    exchanges, _ = Simulation(joining(100, answers_last=False), seed=3).run("front", 1, 500)
    rows = exchanges.to_pylist()
    begin, end = (choose(row["request_first_sent_trace_ns"] for row in rows) for choose in (min, max))
    draws, at, daemon = random.Random(5), begin, []
    like = next(row for row in rows if row["service"] == "x")
    times = [name for name in like if name.endswith("_trace_ns") and like[name] is not None]
    while at < end:
        moved = {name: like[name] - like["request_first_sent_trace_ns"] + at for name in times}
        number = 1_000_000 + len(daemon)
        daemon.append(like | moved | {"exchange_id": number, "connection_id": number, "service": "peer"})
        at += 3_000 * US + draws.randrange(100 * US)
    spans = pl.DataFrame(link(table("exchanges", rows + daemon)))
    assert len(daemon) > 100
    mine = spans.filter(pl.col("span_id") >= 1_000_000)
    assert mine["parent_span_id"].null_count() >= 0.95 * len(mine)
