"""Servers that look alike from outside are learned from together where no head says what they do; their names stay."""

import polars as pl
import pytest

from collector.requests.like_servers import COLUMNS, like_servers, merge_like_servers
from collector.requests.spans import link
from testkit.services_sim import Service, Simulation, Step
from testkit.tables import table

US = 1_000


def twelve_exchanges(
    server: str, port: int, callers: str, sizes: tuple[int, ...], method: str | None = None
) -> pl.DataFrame:
    """Twelve exchanges with a server without a name, of these sizes by turns."""
    rows = [
        {
            "client_host": callers.split()[number % len(callers.split())],
            "server_host": server,
            "service": f"{server}:{port}",
            "method": method,
            "request_bytes": sizes[number % len(sizes)],
            "response_bytes": 300,
        }
        for number in range(12)
    ]
    return pl.DataFrame(rows, schema_overrides={"method": pl.String}).select(COLUMNS)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(
            twelve_exchanges("b", 80, "p q", (200, 220)), {"b:80": "a:80"}, id="port, callers and sizes of the first"
        ),
        pytest.param(
            twelve_exchanges("b", 80, "p a", (200, 220)), {"b:80": "a:80"}, id="replicas that also ask each other"
        ),
        pytest.param(twelve_exchanges("b", 81, "p q", (200, 220)), {}, id="another port"),
        pytest.param(twelve_exchanges("b", 80, "x y z", (200, 220)), {}, id="asked by others"),
        pytest.param(twelve_exchanges("b", 80, "p q", (9_000, 20_000)), {}, id="other sizes"),
        pytest.param(twelve_exchanges("b", 80, "p q", (200, 220), method="GET"), {}, id="heads that show what it does"),
        pytest.param(
            twelve_exchanges("b", 80, "p q", (200, 220)).with_columns(service=pl.lit("nginx b:80")),
            {},
            id="a server with a name",
        ),
    ],
)
def test_servers_are_alike_by_port_callers_and_sizes(other: pl.DataFrame, expected: dict[str, str]) -> None:
    first = twelve_exchanges("a", 80, "p q", (200, 220))
    assert like_servers(pl.concat([first, other])) == expected


REPLICAS = {
    "a": Service(("A",), (Step(200 * US, ("x", "x", "x"), quorum=2), Step(100 * US))),
    "x": Service(("X1", "X2", "X3", "X4", "X5"), (Step(300 * US),), loop=False),
}


def test_calls_to_three_of_five_servers_without_a_name_are_linked_as_to_one_service() -> None:
    """Each server gets three of five requests' calls; each by itself, 4 in 10 of its calls had the right parent."""
    exchanges, truth = Simulation(REPLICAS, seed=5).run("a", 8, 600)
    rows = [row | {"service": f"{row['server_host']}:80"} for row in exchanges.to_pylist()]
    spans = pl.DataFrame(link(table("exchanges", rows)))
    found = dict(spans.select("span_id", "parent_span_id").iter_rows())
    assert sum(found[child] == parent for child, parent in truth.items()) >= 0.97 * len(truth)


def test_what_is_learned_together_keeps_its_rows_and_types() -> None:
    exchanges, _ = Simulation(REPLICAS, seed=5).run("a", 2, 40)
    rows = [row | {"service": f"{row['server_host']}:80"} for row in exchanges.to_pylist()]
    before = table("exchanges", rows)
    after = merge_like_servers(before)
    assert after.schema == before.schema
    assert after.drop(["service"]).equals(before.drop(["service"]))
    assert set(after["service"].to_pylist()) == {"A:80", "X1:80"}
    assert merge_like_servers(exchanges) is exchanges
