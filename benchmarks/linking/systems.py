"""Simulated systems for which links are judged: one for each rule of link inference, small enough to link all of them
in a few seconds of CPU time. Their true parents are known; none of their exchanges shows an id.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from testkit.services_sim import Service, Simulation, Step
from testkit.tables import table

US = 1_000
BLOCK_BYTES = 16_384
LEAF = Service(("C",), (Step(300 * US),), loop=False)
CHAIN = {
    "a": Service(("A",), (Step(200 * US, ("b",)), Step(100 * US))),
    "b": Service(("B",), (Step(200 * US, ("c",)), Step(100 * US))),
    "c": Service(("C",), (Step(200 * US),)),
}
FAN_OUT = {
    "a": Service(("A",), (Step(200 * US, ("x", "y", "z"), quorum=2), Step(100 * US))),
    **{name: Service((name.upper(),), (Step(300 * US),), loop=False) for name in "xyz"},
}
REPLICAS = {
    "a": Service(("A",), (Step(200 * US, ("x", "x", "x"), quorum=2), Step(100 * US))),
    "x": Service(("X1", "X2", "X3", "X4", "X5"), (Step(300 * US),), loop=False),
}
STEPS = (Step(300 * US, ("b",)), Step(200 * US, ("c",)), Step(100 * US, ("b",)), Step(100 * US))
TWICE = {"a": Service(("A",), STEPS), "b": Service(("B",), (Step(400 * US),), loop=False), "c": LEAF}
IN_STEPS = TWICE | {"a": Service(("A",), STEPS, loop=False)}
SIBLINGS = {
    "a": Service(("A",), (Step(300 * US, ("b", "c")), Step(300 * US, ("b",), share=0.3))),
    "b": Service(("B",), (Step(500 * US),), loop=False),
    "c": Service(("C",), (Step(700 * US),), loop=False),
}
RETRIES = {
    "a": Service(("A",), (Step(300 * US, ("b",), again_share=0.1), Step(200 * US)), loop=False),
    "b": Service(("B",), (Step(400 * US),), loop=False),
}
SELDOM = {
    "a": Service(("A",), (Step(800 * US, ("b",), share=0.15), Step(20 * US)), loop=False),
    "b": LEAF,
}
_PROCESS = Service(("A",), (Step(300 * US, ("cache",)), Step(400 * US, ("disk",), share=0.4), Step(100 * US)))
PROCESSES = {
    "front": Service(("F",), (Step(50 * US, ("one",), share=0.5), Step(50 * US, ("two",), share=0.5)), loop=False),
    "one": _PROCESS,
    "two": _PROCESS,
    "cache": Service(("B",), (Step(100 * US),), loop=False),
    "disk": LEAF,
}
NODES = {
    "node": Service(
        tuple(f"N{number}" for number in range(1, 7)), (Step(400 * US, ("disk",)), Step(300 * US)), loop=False
    ),
    "disk": Service(("D",), (Step(500 * US),), loop=False),
}
TWO_CALLS = {
    "a": Service(("A",), (Step(400 * US, ("x", "y")), Step(300 * US)), loop=False),
    "x": Service(("X",), (Step(500 * US),), loop=False),
    "y": Service(("Y",), (Step(500 * US),), loop=False),
}
PASSES_BODY = {
    "a": Service(("A",), (Step(2_000 * US, ("b",)), Step(2_000 * US)), loop=False, passes_body=True),
    "b": LEAF,
}
THREADS = {
    "a": Service(("A",), (Step(400 * US, ("x", "y")), Step(300 * US)), loop=False),
    "x": Service(("X",), (Step(300 * US, ("z",), share=0.5), Step(200 * US)), loop=False),
    "y": Service(("Y",), (Step(500 * US),), loop=False),
    "z": Service(("Z",), (Step(300 * US),), loop=False),
}
"""They keep no order, so that times say little."""


def shop(loop: bool = True, at_random: bool = False) -> dict[str, Service]:
    """A shop's front, which asks for stock and prices at once and then, of some orders, for the stock again."""
    kind: dict[str, Any] = {"loop": loop, "at_random": at_random}
    return {
        "front": Service(("A",), (Step(400 * US, ("logic",)), Step(200 * US)), **kind),
        "logic": Service(("B",), (Step(300 * US, ("stock", "price")), Step(300 * US, ("stock",), share=0.3)), **kind),
        "stock": Service(("C",), (Step(500 * US),), loop=False),
        "price": Service(("D",), (Step(700 * US),), loop=False),
    }


def stalling() -> dict[str, Service]:
    """Asynchronous services that sleep, on hosts that seldom let them run: all that was due then continues at once."""
    kind: dict[str, Any] = {"loop": False, "stalls": (1_000 * US, 40_000 * US)}
    sleep, again = Step(2_000 * US), Step(200 * US, ("stock",), share=0.33)
    return {
        "front": Service(("A",), (Step(2_000 * US, ("logic",)), sleep), **kind),
        "logic": Service(("B",), (Step(2_000 * US, ("stock", "price")), sleep, again), **kind),
        "stock": Service(("C",), (sleep,), **kind),
        "price": Service(("D",), (sleep,), **kind),
    }


def joining(work_us: int, answers_last: bool) -> dict[str, Service]:
    """Five branches, of which another is the last each time; the service that joins them calls three others then."""
    names, called = [f"b{number}" for number in range(1, 6)], ("x", "y", "z")
    branches = {
        name: Service((name.upper(),), (Step((300 + 100 * number) * US, ("join",)),), loop=False)
        for number, name in enumerate(names)
    }
    join = Service(("J",), (Step(work_us * US, called),), loop=False, joins=5, answers_last=answers_last)
    return {
        "front": Service(("F",), (Step(200 * US, tuple(names)), Step(100 * US)), loop=False),
        **branches,
        "join": join,
        **{name: Service((name.upper(),), (Step(300 * US),), loop=False) for name in called},
    }


Heads = Callable[[str, int, random.Random], dict[str, object]]
"""What the head of an exchange shows, by its service and the number of its root request."""


def store_heads(service: str, root: int, draws: random.Random) -> dict[str, object]:
    """An object's name, which stands elsewhere in each service's targets."""
    name = f"photo%20{root}" if service == "a" else f"photo+{root}"
    before = "/v1" if service == "a" else f"/sd{draws.randrange(9)}/{draws.randrange(1000)}"
    return {"method": "GET", "target": f"{before}/AUTH_test/box{root % 4}/{name}"}


def shop_heads(service: str, root: int, draws: random.Random) -> dict[str, object]:
    """One of 300 products in a path, asked about in a query; `y` is asked nothing of it."""
    product = 1_000 + root * 7 % 300
    target = {
        "a": f"/product/{product}",
        "x": f"/reviews?lang=en&product_id={product}",
        "y": f"/rates?from=USD&to={draws.choice(['EUR', 'JPY', 'CHF'])}",
        "z": f"/texts/{product}/en",
    }[service]
    return {"method": "GET", "target": target}


def range_heads(_service: str, root: int, _draws: random.Random) -> dict[str, object]:
    """One of 30 blocks of one of 10 objects."""
    return {"method": "GET", "target": f"/o{root * 7 % 10}", "range_first": root // 3 % 30 * BLOCK_BYTES}


@dataclass(frozen=True, slots=True)
class System:
    """A system and its load: `count` requests to its first service, `at_once` at a time."""

    services: Mapping[str, Service]
    at_once: int
    count: int
    seed: int = 1
    kept: bool = False
    body_bytes: tuple[int, int] = (1000, 1000)
    heads: Heads | None = None

    def run(self) -> tuple[pa.Table, dict[int, int]]:
        """The table `exchanges`, and the true parent of each that has one."""
        simulation = Simulation(dict(self.services), seed=self.seed, body_bytes=self.body_bytes, kept=self.kept)
        exchanges, truth = simulation.run(next(iter(self.services)), self.at_once, self.count)
        return (exchanges, truth) if self.heads is None else (_with_heads(exchanges, truth, self.heads), truth)


def _with_heads(exchanges: pa.Table, truth: dict[int, int], heads: Heads) -> pa.Table:
    draws = random.Random(4)

    def root_of(number: int) -> int:
        return root_of(truth[number]) if number in truth else number

    rows = exchanges.to_pylist()
    return table("exchanges", [row | heads(row["service"], root_of(row["exchange_id"]), draws) for row in rows])


SYSTEMS = {
    "loops, 8 at once": System(CHAIN, 8, 400),
    "loops, long": System(CHAIN, 8, 2_200),
    "loops, 64 at once": System(CHAIN, 64, 300),
    "three calls at once, two answers count": System(FAN_OUT, 32, 300),
    "three of five replicas": System(REPLICAS, 8, 300),
    "three of five replicas, 64 at once": System(REPLICAS, 64, 200),
    "threads, calls in steps": System(IN_STEPS, 4, 180),
    "loops, like calls in steps": System(TWICE, 16, 200),
    "loops, a second call of some": System(SIBLINGS, 8, 300),
    "threads, retries": System(RETRIES, 8, 400),
    "threads, seldom a call": System(SELDOM, 8, 900, seed=2),
    "threads that sleep": System(shop(loop=False), 4, 250),
    "threads that share a processor": System(shop(at_random=True), 16, 160),
    "stalls": System(stalling(), 8, 180, kept=True),
    "joins, answered last": System(joining(100, answers_last=True), 1, 120, seed=3),
    "joins, work after the answer": System(joining(100, answers_last=False), 2, 150, seed=3),
    "two processes of a host": System(PROCESSES, 12, 300, seed=3, kept=True),
    "nodes with few calls": System(NODES, 12, 100),
    "few requests": System(TWO_CALLS, 3, 40),
    "bodies passed on": System(PASSES_BODY, 24, 400, body_bytes=(1, 100_000)),
    "names in targets": System(THREADS, 32, 160, seed=6, heads=store_heads),
    "names in targets, few requests": System(THREADS, 6, 18, seed=6, heads=store_heads),
    "products in targets": System(THREADS, 32, 160, seed=6, heads=shop_heads),
    "byte ranges": System(THREADS, 32, 160, seed=6, heads=range_heads),
}
