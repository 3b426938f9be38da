"""Links without ids on simulated systems of several shapes: how many must be right, so that a change for one is not
paid for by another. What the share was when it was written is in docs/linking.md."""

import polars as pl
import pytest

from collector.spans import link
from tests.helpers.services_sim import Service, Simulation, Step

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


def test_bytes_that_pass_through_identify_where_order_tells_nothing() -> None:
    threads = {
        "a": Service(("A",), (Step(200 * US, ("b",)), Step(100 * US)), loop=False, passes_body=True),
        "b": Service(("B",), (LEAF,), loop=False),
    }
    alike, different = right_share(threads, 8), right_share(threads, 8, body_bytes=(1, 100_000))
    assert different > alike
