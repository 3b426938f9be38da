"""Links of exchanges whose ids are hidden but whose targets are visible: what calls share with requests is evidence,
learned from the trace, and nothing where nothing is shared."""

import random
from collections.abc import Callable

import polars as pl
import pyarrow as pa
import pytest

from collector.requests.spans import link
from testkit.services_sim import Service, Simulation, Step
from testkit.tables import table

US = 1_000
FAN_OUT = {
    "a": Service(("A",), (Step(400 * US, ("x", "y")), Step(300 * US)), loop=False),
    "x": Service(("X",), (Step(300 * US, ("z",), share=0.5), Step(200 * US)), loop=False),
    "y": Service(("Y",), (Step(500 * US),), loop=False),
    "z": Service(("Z",), (Step(300 * US),), loop=False),
}
"""Threads that keep no order, so that times say little."""
Target = Callable[[str, int, random.Random], str]
"""The target of a request to a service, made for the root request of that number."""


def with_heads(exchanges: pa.Table, truth: dict[int, int], target: Target) -> pa.Table:
    """The same with heads."""
    draws = random.Random(4)

    def root_of(number: int) -> int:
        return root_of(truth[number]) if number in truth else number

    def head(row: dict[str, object]) -> dict[str, object]:
        named = target(str(row["service"]), root_of(int(str(row["exchange_id"]))), draws)
        return row | {"method": "GET", "target": named}

    return table("exchanges", [head(row) for row in exchanges.to_pylist()])


BLOCK = 16_384
Range = tuple[int, int]


def right_by_ranges(of_root: Callable[[int], Range], of_call: Callable[[int], Range | None]) -> float:
    """Share of the calls that have their true parent where targets are all alike, by what requests and calls ask for of
    them; of a call, given the number of its root request."""
    exchanges, truth = Simulation(FAN_OUT, seed=6).run("a", 32, 600)

    def ask(row: dict[str, object]) -> dict[str, object]:
        number = int(str(row["exchange_id"]))
        asked = of_call(truth[number]) if truth.get(number) else of_root(number)
        return row | dict(zip(("range_first", "range_last"), asked or (None, None), strict=True))

    rows = [row for row in with_heads(exchanges, truth, lambda *_: "/file").to_pylist() if row["service"] in "ax"]
    spans = pl.DataFrame(link(table("exchanges", [ask(row) for row in rows])))
    found = dict(spans.select("span_id", "parent_span_id").iter_rows())
    asked = {row["exchange_id"] for row in rows if row["service"] == "x"}
    return sum(found[child] == truth[child] for child in asked) / len(asked)


def block(number: int) -> Range:
    """One of 400 blocks, by chance."""
    at = random.Random(number).randrange(400) * BLOCK
    return (at, at + BLOCK - 1)


def test_ranges_that_are_handed_on_identify() -> None:
    assert right_by_ranges(block, block) >= 0.97 > right_by_ranges(block, lambda _: None) + 0.2


@pytest.mark.parametrize("end", [0, 1])
def test_the_first_or_the_last_block_of_a_range_is_known_by_one_end(end: int) -> None:
    def long(number: int) -> Range:
        return (number * 1_000, number * 1_000 + 500_000 + number)

    def part(number: int) -> Range:
        first, last = long(number)
        return (last - BLOCK, last) if end else (first, first + BLOCK)

    assert right_by_ranges(long, part) >= 0.97


def test_ranges_that_are_not_handed_on_say_nothing() -> None:
    without = right_by_ranges(block, lambda _: None)
    assert abs(right_by_ranges(block, lambda number: block(number + 10_000)) - without) <= 0.02


def test_the_same_bytes_of_two_objects_are_distinguished() -> None:
    """Of 10 objects one of 30 blocks each is asked for: neither says enough alone."""
    exchanges, truth = Simulation(FAN_OUT, seed=6).run("a", 32, 600)
    rows = with_heads(exchanges, truth, lambda _service, root, _draws: f"/o{root * 7 % 10}").to_pylist()

    def root_of(number: int) -> int:
        return root_of(truth[number]) if number in truth else number

    for row in rows:
        row["range_first"] = root_of(row["exchange_id"]) // 3 % 30 * BLOCK
    spans = pl.DataFrame(link(table("exchanges", rows)))
    found = dict(spans.select("span_id", "parent_span_id").iter_rows())
    right = sum(found[child] == parent for child, parent in truth.items()) / len(truth)
    by_object, _ = share_and_confidence(lambda _service, root, _draws: f"/o{root * 7 % 10}")
    assert right >= 0.97 > by_object + 0.02


def share_and_confidence(target: Target | None, at_once: int = 32, count: int = 600) -> tuple[float, float]:
    """Share of the children that have their true parent, and mean confidence of all links."""
    exchanges, truth = Simulation(FAN_OUT, seed=6).run("a", at_once, count)
    spans = pl.DataFrame(link(exchanges if target is None else with_heads(exchanges, truth, target)))
    found = dict(spans.select("span_id", "parent_span_id").iter_rows())
    return sum(found[child] == parent for child, parent in truth.items()) / len(truth), float(
        str(spans["confidence"].mean())
    )


def store_target(service: str, root: int, draws: random.Random) -> str:
    """Where the parts of a name stand differs from service to service; device and partition come before it."""
    name = f"photo%20{root}" if service == "a" else f"photo+{root}"
    before = "/v1" if service == "a" else f"/sd{draws.randrange(9)}/{draws.randrange(1000)}"
    return f"{before}/AUTH_test/box{root % 4}/{name}"


def shop_target(service: str, root: int, draws: random.Random) -> str:
    """A product in a path, asked about in a query; `y` is asked nothing of it."""
    product = 1_000 + root * 7 % 300
    return {
        "a": f"/product/{product}",
        "x": f"/reviews?lang=en&product_id={product}",
        "y": f"/rates?from=USD&to={draws.choice(['EUR', 'JPY', 'CHF'])}",
        "z": f"/texts/{product}/en",
    }[service]


@pytest.mark.parametrize("target", [store_target, shop_target])
def test_names_identify_where_times_do_not(target: Target) -> None:
    without, _ = share_and_confidence(None)
    right, confidence = share_and_confidence(target)
    least = 0.97 if target is store_target else without + 0.2
    assert right >= least
    assert abs(confidence - right) < 0.05


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(lambda service, _root, _draws: f"/v1/AUTH_test/{service}", id="all targets share"),
        pytest.param(lambda service, _root, draws: f"/{service}/{draws.randrange(50)}", id="numbers that mean nothing"),
        pytest.param(lambda service, _root, draws: f"/{service}/{draws.random()}", id="nothing is shared"),
    ],
)
def test_words_that_say_nothing_change_nothing(target: Target) -> None:
    assert share_and_confidence(target, at_once=8) == share_and_confidence(lambda *_: "/", at_once=8)


def test_few_calls_are_linked_by_the_names_that_they_share() -> None:
    """Of each kind there are too few to learn its delays from."""
    right, confidence = share_and_confidence(store_target, at_once=6, count=18)
    without, _ = share_and_confidence(None, at_once=6, count=18)
    assert right >= 0.95 > without
    assert confidence >= 0.8


def test_calls_that_few_requests_of_a_kind_make_are_linked_by_their_words() -> None:
    """A loop calls `x` for each GET, and for one DELETE in forty: too few for the best guess of who calls how often, by
    which each of these calls was nobody's."""
    loops = {name: Service(service.hosts, service.steps) for name, service in FAN_OUT.items()}
    exchanges, truth = Simulation(loops, seed=6).run("a", 32, 600)
    rows = [row for row in with_heads(exchanges, truth, store_target).to_pylist() if row["service"] in "ax"]
    deletes = [row["exchange_id"] for row in rows if row["service"] == "a"][::2]
    calling = deletes[::40]
    for row in rows:
        if row["exchange_id"] in deletes:
            row |= {"method": "DELETE", "request_bytes": 120, "response_bytes": 90}
    made = [row for row in rows if row["service"] == "a" or truth[row["exchange_id"]] not in {*deletes} - {*calling}]
    spans = pl.DataFrame(link(table("exchanges", made)))
    found = dict(spans.select("span_id", "parent_span_id").iter_rows())
    calls = [row["exchange_id"] for row in made if row["service"] == "x"]
    assert sum(truth[call] in calling for call in calls) == len(calling) == 8
    assert all(found[call] == truth[call] for call in calls)
