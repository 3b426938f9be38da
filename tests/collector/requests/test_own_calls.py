"""Calls that a host makes by itself, in a loop or at a beat, have no parent, however many requests are open."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from collector.requests.own_calls import LEAST_CALLS, own_calls
from collector.requests.spans import link
from testkit.tables import BASE_NS, table

MS = 1_000_000
Interval = tuple[int, int]
"""When a call or request began and ended, in ms."""


def requests(every_ms: int, lasting_ms: tuple[int, int], until_ms: int = 40_000) -> list[Interval]:
    draws = random.Random(3)
    begins = [at + draws.randrange(every_ms) for at in range(0, until_ms, every_ms)]
    return [(at, at + draws.randrange(*lasting_ms)) for at in begins]


def loop(lasting_ms: tuple[int, int], pause_ms: int, count: int = 300) -> list[Interval]:
    """Calls one after the other, each as long as there is nothing new."""
    draws, at, calls = random.Random(5), 0, []
    for _ in range(count):
        end = at + draws.randrange(*lasting_ms)
        calls.append((at, end))
        at = end + draws.randrange(1, 1 + pause_ms)
    return calls


def within(served: Sequence[Interval], at: float = 0.2, until: float = 0.9) -> list[Interval]:
    """A call of each request."""
    return [(a + round(at * (b - a)), a + round(until * (b - a))) for a, b in served]


def one_after_another(count: int = 300) -> list[Interval]:
    """Requests of four clients that wait for the only connection of a pool, which is always busy: 10 ms for each."""
    return [(max(0, 10 * number - 35), 10 * number + 10) for number in range(count)]


OPEN = requests(20, (30, 120))
CHECKS = [(at, at + 5) for at in range(3, 40_000, 1000)]


@pytest.mark.parametrize(
    ("calls", "served", "expected"),
    [
        pytest.param(loop((5, 100), 6), OPEN, True, id="a loop that polls"),
        pytest.param(loop((5, 100), 6, LEAST_CALLS - 1), OPEN, False, id="too few calls"),
        pytest.param(loop((5, 100), 200), OPEN, False, id="calls with pauses between them"),
        pytest.param(within(requests(120, (90, 110))), requests(120, (90, 110)), False, id="calls of requests"),
        pytest.param(
            [(10 * n, 10 * n + 10) for n in range(300)], one_after_another(), False, id="a pool's only connection"
        ),
        pytest.param([(at, at + 4) for at in range(0, 40_000, 1000)], OPEN, True, id="a timer"),
        pytest.param(
            [(at + 1, at + 4) for at, _ in CHECKS], [*OPEN, *CHECKS], False, id="calls of a balancer's checks"
        ),
        pytest.param([(at, at + 4) for at in range(0, 4_000, 100)], OPEN, False, id="a quick beat"),
    ],
)
def test_calls_that_pay_no_heed_to_requests_are_the_hosts_own(
    calls: list[Interval], served: list[Interval], expected: bool
) -> None:
    assert judge(calls, served) == (expected, expected)


def test_calls_of_an_overloaded_pool_are_no_loop() -> None:
    """Clients wait 60 ms at most for its only connection, and leave, also while their calls are under way."""
    draws, free, calls, served, left = random.Random(1), 0, [], [], []
    ready = [draws.randrange(20) for _ in range(8)]
    for _ in range(600):
        client = ready.index(min(ready))
        arrived, begun = ready[client], max(ready[client] + 1, free)
        if begun < arrived + 60:
            free = begun + 1 + round(draws.expovariate(1 / 10))
            calls.append((begun, free))
        left.append(free + 1 > arrived + 60)
        ready[client] = min(free + 1, arrived + 60)
        served.append((arrived, ready[client]))
        ready[client] += draws.randrange(10)
    assert sum(left) / len(left) >= 0.2
    assert judge(calls, served) == (False, False)


def judge(calls: Sequence[Interval], served: Sequence[Interval]) -> tuple[bool, bool]:
    """Whether all of these calls over one connection are held to be the host's own, and whether anything is."""
    every = np.array([*calls, *served], np.int64) * MS + BASE_NS
    of_host = np.arange(len(every)) < len(calls)
    found = own_calls(
        connection=np.where(of_host, 1, 2),
        client=np.where(of_host, 0, 1).astype(np.int32),
        server=np.where(of_host, 2, 0).astype(np.int32),
        sent=every[:, 0],
        arrived=every[:, 0],
        answered=every[:, 1],
        closed=every[:, 1],
    )
    return bool(found[of_host].all()), bool(found.any())


@pytest.mark.parametrize("shows_ids", [False, True])
def test_a_loops_calls_have_no_parent_but_by_an_id(shows_ids: bool) -> None:
    def exchange(number: int, times: Interval, ends: tuple[str, str], connection: int, of: int) -> dict[str, object]:
        begin, end = (BASE_NS + at * MS for at in times)
        stamps = {"request_first": begin, "request_last": begin, "response_first": end, "response_last": end}
        return {
            "exchange_id": number,
            "connection_id": connection,
            "client_host": ends[0],
            "server_host": ends[1],
            "service": f"{ends[1]}:9092",
            "request_bytes": 100,
            "response_bytes": 80,
            "transaction_id": f"r{of}" if shows_ids else None,
            **{f"{what}_{how}_trace_ns": at for what, at in stamps.items() for how in ("sent", "received")},
        }

    calls = [(times, request_at(times[0])) for times in loop((5, 100), 6)]
    rows = [exchange(n, times, ("client", "a"), 1 + n % 7, n) for n, times in enumerate(OPEN)]
    rows += [exchange(len(OPEN) + n, times, ("a", "b"), 9, of) for n, (times, of) in enumerate(calls)]
    spans = link(table("exchanges", rows)).to_pylist()
    parents = {span["span_id"]: span["parent_span_id"] for span in spans if span["parent_span_id"] is not None}
    assert parents == ({len(OPEN) + n: of for n, (_, of) in enumerate(calls) if of >= 0} if shows_ids else {})


def request_at(at: int) -> int:
    """The number of the request that arrived last before a time, and was open then; -1 if none was."""
    return max((n for n, (begin, end) in enumerate(OPEN) if begin < at < end), default=-1)
