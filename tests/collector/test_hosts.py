"""Which addresses are a host's own, from what captures show."""

import pytest

from collector.hosts import Traffic, own_addresses

CLIENT, PROXY, STORE_A, STORE_B, SECOND = 1, 2, 3, 4, 5


def pairs(*ends: tuple[int, int]) -> dict[tuple[int, int], int]:
    return {pair: 10 for one in ends for pair in (one, one[::-1])}


def answer(gap_ns: int) -> dict[tuple[int, int], tuple[int, int, int]]:
    return {(7, 9): (CLIENT, PROXY, gap_ns)}


CASES = [
    ("several peers", [Traffic(pairs((PROXY, CLIENT), (PROXY, STORE_A)))], [{PROXY}]),
    (
        "one peer: the other capture decides",
        [Traffic(pairs((CLIENT, PROXY))), Traffic(pairs((PROXY, CLIENT), (PROXY, STORE_A)))],
        [{CLIENT}, {PROXY}],
    ),
    (
        "two hosts alone: the gap of an answer decides",
        [
            Traffic(pairs((CLIENT, PROXY)), gaps_ns=answer(900)),
            Traffic(pairs((CLIENT, PROXY)), gaps_ns=answer(20)),
        ],
        [{CLIENT}, {PROXY}],
    ),
    ("the capture tells", [Traffic(pairs((CLIENT, PROXY)), frozenset({PROXY}))], [{PROXY}]),
    ("loopback beside it", [Traffic({**pairs((PROXY, CLIENT), (PROXY, STORE_A)), (99, 99): 4})], [{PROXY}]),
    (
        "a host with two addresses",
        [Traffic(pairs((PROXY, CLIENT), (SECOND, STORE_A), (SECOND, STORE_B), (PROXY, 8), (PROXY, 9)))],
        [{PROXY, SECOND}],
    ),
    ("a switch between two pairs has no own end", [Traffic(pairs((CLIENT, PROXY), (STORE_A, STORE_B)))], [set()]),
    (
        "a container behind a host",
        [
            Traffic(pairs((SECOND, STORE_A)), passing=frozenset({SECOND, STORE_A}), told=frozenset({PROXY})),
            Traffic(pairs((SECOND, STORE_A)), told=frozenset({STORE_A})),
        ],
        [{PROXY, SECOND}, {STORE_A}],
    ),
    (
        "a router between two hosts",
        [
            Traffic(pairs((CLIENT, STORE_A)), passing=frozenset({CLIENT, STORE_A}), told=frozenset({PROXY})),
            Traffic(pairs((CLIENT, STORE_A)), told=frozenset({STORE_A})),
            Traffic(pairs((CLIENT, STORE_A)), told=frozenset({CLIENT})),
        ],
        [{PROXY}, {STORE_A}, {CLIENT}],
    ),
    ("no packet", [Traffic({})], [set()]),
]


@pytest.mark.parametrize(("captures", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_own_addresses(captures: list[Traffic], expected: list[set[int]]) -> None:
    assert own_addresses(captures) == expected
