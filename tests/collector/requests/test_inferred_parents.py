"""Links without ids on simulated systems of several shapes: how many must be right, so that a change for one is not
paid for by another. What the share was when it was written is in docs/linking.md."""

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from collector.requests.spans import link
from testkit.services_sim import Service, Simulation, Step
from testkit.tables import table

US = 1_000
LEAF = Step(300 * US)
PARALLEL = Service(("A",), (Step(200 * US, ("x", "y", "z"), quorum=2), Step(100 * US)))
CHAIN = {
    "a": Service(("A",), (Step(200 * US, ("b",)), Step(100 * US))),
    "b": Service(("B",), (Step(200 * US, ("c",)), Step(100 * US))),
    "c": Service(("C",), (Step(200 * US),)),
}
FAN_OUT = {"a": PARALLEL} | {name: Service((name.upper(),), (LEAF,), loop=False) for name in "xyz"}
REPLICAS = {
    "a": Service(("A",), (Step(200 * US, ("x", "x", "x"), quorum=2), Step(100 * US))),
    "x": Service(("X1", "X2", "X3", "X4", "X5"), (LEAF,), loop=False),
}

IN_STEPS = {
    "a": Service(
        ("A",), (Step(300 * US, ("b",)), Step(200 * US, ("c",)), Step(100 * US, ("b",)), Step(100 * US)), loop=False
    ),
    "b": Service(("B",), (Step(400 * US),), loop=False),
    "c": Service(("C",), (LEAF,), loop=False),
}
SIBLINGS = {
    "a": Service(("A",), (Step(300 * US, ("b", "c")), Step(300 * US, ("b",), share=0.3))),
    "b": Service(("B",), (Step(500 * US),), loop=False),
    "c": Service(("C",), (Step(700 * US),), loop=False),
}


def right_share(services: dict[str, Service], at_once: int, body_bytes: tuple[int, int] = (1000, 1000)) -> float:
    """Share of the children that have their true parent; roots have none."""
    exchanges, truth = Simulation(services, seed=at_once, body_bytes=body_bytes).run("a", at_once, 600)
    spans = pl.DataFrame(link(exchanges))
    found = dict(spans.select("span_id", "parent_span_id").iter_rows())
    assert all(found[root] is None for root in found.keys() - truth.keys())
    return sum(found[child] == parent for child, parent in truth.items()) / len(truth)


@pytest.mark.parametrize(
    ("services", "at_once", "least"),
    [
        pytest.param(CHAIN, 1, 1.0, id="a chain, one request at a time"),
        pytest.param(CHAIN, 8, 0.99, id="a chain of loops, 8 at once"),
        pytest.param(FAN_OUT, 8, 0.99, id="three at once, 8 requests at once"),
        pytest.param(FAN_OUT, 32, 0.95, id="three at once, 32 requests at once"),
        pytest.param(REPLICAS, 8, 0.97, id="three of five replicas, 8 at once"),
        pytest.param(IN_STEPS, 4, 0.84, id="one call after another in threads, 4 at once"),
        pytest.param(SIBLINGS, 8, 0.95, id="two at once and sometimes one again, in a loop, 8 at once"),
    ],
)
def test_so_many_links_are_right(services: dict[str, Service], at_once: int, least: float) -> None:
    assert right_share(services, at_once) >= least


def test_bytes_that_pass_through_identify_where_order_shows_nothing() -> None:
    threads = {
        "a": Service(("A",), (Step(200 * US, ("b",)), Step(100 * US)), loop=False, passes_body=True),
        "b": Service(("B",), (LEAF,), loop=False),
    }
    alike, different = right_share(threads, 8), right_share(threads, 8, body_bytes=(1, 100_000))
    assert different > alike


def with_ids(exchanges: pa.Table, truth: dict[int, int], silent: set[str]) -> pa.Table:
    """The same with heads, each request showing an id of its own in all its exchanges, but those of `silent` services
    without."""

    def root_of(number: int) -> int:
        return root_of(truth[number]) if number in truth else number

    def head(row: dict[str, Any]) -> dict[str, str | None]:
        shows = row["service"] not in silent
        return {
            "method": "GET" if shows else None,
            "transaction_id": f"tx-{root_of(row['exchange_id'])}" if shows else None,
        }

    return table("exchanges", [row | head(row) for row in exchanges.to_pylist()])


def test_a_cache_that_receives_no_ids_is_called_for_requests_that_show_theirs() -> None:
    exchanges, truth = Simulation(CHAIN, seed=8).run("a", 8, 600)
    spans = pl.DataFrame(link(with_ids(exchanges, truth, silent={"c"})))
    spans = spans.with_columns(service=pl.DataFrame(exchanges)["service"].cast(pl.String))
    right = pl.col("span_id").replace_strict(truth, default=None) == pl.col("parent_span_id")
    asked = spans.filter(pl.col("service") == "c")
    assert asked.select(right.mean()).item() >= 0.99
    assert asked["confidence"].mean() >= 0.95
    rest = spans.filter(pl.col("service") == "b")
    assert rest.select(right.all()).item()
    assert rest["confidence"].to_list() == [1.0] * len(rest)


def test_heads_that_were_not_seen_are_not_requests_without_an_id() -> None:
    """Of every third exchange the head was lost: then its parent may well be a request that shows its id."""
    exchanges, truth = Simulation(CHAIN, seed=8).run("a", 8, 600)
    shown = with_ids(exchanges, truth, silent=set()).to_pylist()
    lost = [row | {"method": None, "transaction_id": None} if row["exchange_id"] % 3 == 0 else row for row in shown]
    found = dict(pl.DataFrame(link(table("exchanges", lost))).select("span_id", "parent_span_id").iter_rows())
    right = [found[child] == parent for child, parent in truth.items() if child % 3 == 0]
    assert sum(right) >= 0.95 * len(right)


def test_a_call_without_an_id_to_a_service_that_receives_ids_is_its_caller_s_own() -> None:
    """Each `b` is asked with an id; its host's daemon asks another `b` without, whatever runs meanwhile."""
    exchanges, truth = Simulation(CHAIN, seed=8).run("a", 8, 600)
    shown = with_ids(exchanges, truth, silent={"c"}).to_pylist()
    daemon = [
        row
        | {
            "exchange_id": 10_000 + number,
            "connection_id": 9_000_000 + number,
            "transaction_id": None,
            "client_host": "B",
            "server_host": "C",
        }
        for number, row in enumerate([row for row in shown if row["service"] == "b"][::2])
    ]
    spans = pl.DataFrame(link(table("exchanges", shown + daemon)))
    assert spans.filter(pl.col("span_id") >= 10_000)["parent_span_id"].null_count() == len(daemon)


def test_processes_of_one_host_are_distinguished_by_the_connections_that_they_keep() -> None:
    process = Service(("A",), (Step(300 * US, ("cache",)), Step(400 * US, ("disk",), share=0.4), Step(100 * US)))
    services = {
        "front": Service(("F",), (Step(50 * US, ("one",), share=0.5), Step(50 * US, ("two",), share=0.5)), loop=False),
        "one": process,
        "two": process,
        "cache": Service(("B",), (Step(100 * US),), loop=False),
        "disk": Service(("C",), (LEAF,), loop=False),
    }

    def of_right_process(kept: bool) -> float:
        """Share of the calls that are given to a request of the process that made them."""
        exchanges, truth = Simulation(services, seed=3, kept=kept).run("front", 12, 800)
        service = dict(pl.DataFrame(exchanges).select("exchange_id", pl.col("service").cast(pl.String)).iter_rows())
        found = pl.DataFrame(link(exchanges)).select("span_id", "parent_span_id").iter_rows()
        right = [
            service.get(parent) == service[truth[child]] for child, parent in found if service[child] in "cache disk"
        ]
        return sum(right) / len(right)

    assert of_right_process(kept=True) >= 0.99
    assert of_right_process(kept=False) < 0.9


def test_calls_that_few_requests_make_in_no_order_are_not_left_without_parent() -> None:
    """One request in seven makes the call, and is answered as soon as that was."""
    threads = {
        "a": Service(("A",), (Step(800 * US, ("b",), share=0.15), Step(20 * US)), loop=False),
        "b": Service(("B",), (LEAF,), loop=False),
    }
    exchanges, truth = Simulation(threads, seed=2).run("a", 8, 1500)
    found = dict(pl.DataFrame(link(exchanges)).select("span_id", "parent_span_id").iter_rows())
    given = [found[child] for child in truth]
    assert given.count(None) <= 0.1 * len(given)


@pytest.mark.parametrize(
    ("services", "at_once"),
    [
        pytest.param(IN_STEPS, 4, id="settled by histories"),
        pytest.param(SIBLINGS, 16, id="a loop"),
        pytest.param(IN_STEPS, 48, id="shared among many"),
    ],
)
def test_the_alternative_is_the_next_likeliest_and_as_likely_as_it_says(
    services: dict[str, Service], at_once: int
) -> None:
    exchanges, truth = Simulation(services, seed=5).run("a", at_once, 600)
    spans = pl.DataFrame(link(exchanges)).with_columns(
        truth=pl.col("span_id").replace_strict(truth, default=None, return_dtype=pl.Int64)
    )
    named = spans.filter(pl.col("alternative_parent_span_id").is_not_null())
    assert len(named) > 50
    other, sure = pl.col("alternative_parent_span_id"), pl.col("alternative_confidence")
    assert named.select((other != pl.col("parent_span_id")).all()).item()
    assert named.select((sure <= pl.col("confidence") + 1e-9).all()).item()
    assert named.select((sure + pl.col("confidence") <= 1 + 1e-9).all()).item()
    assert named.select(((other == pl.col("truth")).fill_null(value=False).mean() - sure.mean()).abs()).item() < 0.1
    assert spans.select((other.is_null() == sure.is_null()).all()).item()
    assert spans.filter(pl.col("parent_span_id").is_null()).select(other.is_null().all()).item()


def test_where_nothing_is_learned_the_alternative_is_the_request_outside_the_innermost() -> None:
    outer = {"client_host": "X", "server_host": "A", "service": "a", "connection_id": 1, "exchange_id": 1}
    rows = [
        outer | {"request_first_received_trace_ns": 0, "response_last_sent_trace_ns": 900},
        outer
        | {"exchange_id": 2, "connection_id": 2}
        | {"request_first_received_trace_ns": 10, "response_last_sent_trace_ns": 800},
        {"client_host": "A", "server_host": "B", "service": "b", "connection_id": 3, "exchange_id": 3}
        | {"request_first_sent_trace_ns": 100, "response_last_received_trace_ns": 200},
    ]
    (found,) = [row for row in link(table("exchanges", rows)).to_pylist() if row["span_id"] == 3]
    assert (found["parent_span_id"], found["confidence"]) == (2, pytest.approx(0.5, abs=1e-6))
    assert (found["alternative_parent_span_id"], found["alternative_confidence"]) == (1, found["confidence"])
