"""Which addresses are a host's own, from what captures show."""

import pyarrow as pa
import pytest
from msgspec.structs import replace

from collector.decode.host_addresses import Traffic, are_loopback, is_loopback, own_addresses

CLIENT, PROXY, STORE_A, STORE_B, SECOND = 1, 2, 3, 4, 5


def pairs(*ends: tuple[int, int]) -> dict[tuple[int, int], int]:
    return {pair: 10 for one in ends for pair in (one, one[::-1])}


def answer(gap_ns: int) -> dict[tuple[int, int], tuple[int, int, int]]:
    return {(7, 9): (CLIENT, PROXY, gap_ns)}


def of_one_server(*answers: tuple[int, int, int, int]) -> list[Traffic]:
    """Captures of a host with two addresses and of the only server that it asks. Arguments: who asks and who answers,
    and how long that takes at either host."""
    both = pairs((CLIENT, PROXY), (SECOND, PROXY))
    rows = list(enumerate(answers))
    return [
        Traffic(both, gaps_ns={(place, 0): (asker, answerer, gaps[side]) for place, (asker, answerer, *gaps) in rows})
        for side in (0, 1)
    ]


ASKED_FROM_TWO = of_one_server((CLIENT, PROXY, 900, 20), (SECOND, PROXY, 900, 20), (PROXY, SECOND, 30, 800))


def alone(client_gaps_ns: tuple[int, ...], proxy_gaps_ns: tuple[int, ...]) -> list[Traffic]:
    """One capture of two hosts, with how long the client's and the proxy's answers took there."""
    answers = [(PROXY, CLIENT, gap) for gap in client_gaps_ns] + [(CLIENT, PROXY, gap) for gap in proxy_gaps_ns]
    return [Traffic(pairs((CLIENT, PROXY)), gaps_ns={(place, 0): each for place, each in enumerate(answers)})]


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
    ("one capture alone: its own kernel answers at once", alone((40_000_000, 4000, 9000), (90_000,) * 3), [{CLIENT}]),
    ("or the other one's does", alone((80_000, 95_000, 99_000), (12_000,) * 3), [{PROXY}]),
    ("too few answers", alone((4000, 4000, 9000), (90_000,) * 2), [set()]),
    ("no end much quicker", alone((8000,) * 3, (15_000,) * 3), [set()]),
    ("no end at hand", alone((70_000,) * 3, (900_000,) * 3), [set()]),
    ("the capture says", [Traffic(pairs((CLIENT, PROXY)), frozenset({PROXY}))], [{PROXY}]),
    ("loopback beside it", [Traffic({**pairs((PROXY, CLIENT), (PROXY, STORE_A)), (99, 99): 4})], [{PROXY}]),
    (
        "a host with two addresses",
        [Traffic(pairs((PROXY, CLIENT), (SECOND, STORE_A), (SECOND, STORE_B), (PROXY, 8), (PROXY, 9)))],
        [{PROXY, SECOND}],
    ),
    ("several addresses, one server: answers decide", ASKED_FROM_TWO, [{CLIENT, SECOND}, {PROXY}]),
    ("in any order of captures", ASKED_FROM_TWO[::-1], [{PROXY}, {CLIENT, SECOND}]),
    (
        "or one of both knows",
        [ASKED_FROM_TWO[0], replace(ASKED_FROM_TWO[1], known=frozenset({PROXY}))],
        [{CLIENT, SECOND}, {PROXY}],
    ),
    (
        "not if another host has one of them",
        [*ASKED_FROM_TWO, Traffic(pairs((CLIENT, STORE_A)), known=frozenset({CLIENT}))],
        [{PROXY}, {PROXY}, {CLIENT}],
    ),
    (
        "a server captured outside and inside, and one of its clients",
        [
            of_one_server((CLIENT, PROXY, 12, 0), (CLIENT, PROXY, 12, 0), (PROXY, CLIENT, 508, 0))[0],
            of_one_server((CLIENT, PROXY, 10, 0), (CLIENT, PROXY, 10, 0), (PROXY, CLIENT, 510, 0))[0],
            replace(
                of_one_server((CLIENT, PROXY, 500, 0), (CLIENT, PROXY, 500, 0), (PROXY, CLIENT, 8, 0))[0],
                pairs=pairs((CLIENT, PROXY)),
            ),
        ],
        [{PROXY}, {PROXY}, {CLIENT}],
    ),
    (
        "two captures of one server, at about the same place",
        of_one_server((CLIENT, PROXY, 9, 8), (SECOND, PROXY, 7, 8), (PROXY, CLIENT, 9, 8), (PROXY, SECOND, 7, 8)),
        [{PROXY}, {PROXY}],
    ),
    ("a switch between two pairs has no own end", [Traffic(pairs((CLIENT, PROXY), (STORE_A, STORE_B)))], [set()]),
    (
        "a container behind a host",
        [
            Traffic(pairs((SECOND, STORE_A)), passing=frozenset({SECOND, STORE_A}), known=frozenset({PROXY})),
            Traffic(pairs((SECOND, STORE_A)), known=frozenset({STORE_A})),
        ],
        [{PROXY, SECOND}, {STORE_A}],
    ),
    (
        "a router between two hosts",
        [
            Traffic(pairs((CLIENT, STORE_A)), passing=frozenset({CLIENT, STORE_A}), known=frozenset({PROXY})),
            Traffic(pairs((CLIENT, STORE_A)), known=frozenset({STORE_A})),
            Traffic(pairs((CLIENT, STORE_A)), known=frozenset({CLIENT})),
        ],
        [{PROXY}, {STORE_A}, {CLIENT}],
    ),
    (
        "a switch flooded a packet of its peer to another: the other captures decide",
        [
            Traffic({**pairs((CLIENT, STORE_A)), (STORE_A, PROXY): 1}),
            Traffic(pairs((STORE_A, CLIENT), (STORE_A, PROXY))),
        ],
        [{CLIENT}, {STORE_A}],
    ),
    (
        "or, of one capture alone, whose kernel answers at once",
        [replace(alone((4000,) * 3, (90_000,) * 3)[0], pairs={**pairs((CLIENT, PROXY)), (PROXY, STORE_A): 1})],
        [{CLIENT}],
    ),
    (
        "a peer that never answers decides if nothing else does",
        [Traffic({**pairs((CLIENT, PROXY)), (CLIENT, STORE_A): 3})],
        [{CLIENT}],
    ),
    ("one direction alone", [Traffic({(CLIENT, PROXY): 3, (CLIENT, STORE_A): 3})], [{CLIENT}]),
    (
        "one direction alone, to a host of another capture",
        [Traffic({(CLIENT, PROXY): 3}), Traffic(pairs((PROXY, CLIENT), (PROXY, STORE_A)))],
        [{CLIENT}, {PROXY}],
    ),
    ("no packet", [Traffic({})], [set()]),
]


@pytest.mark.parametrize(("captures", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_own_addresses(captures: list[Traffic], expected: list[set[int]]) -> None:
    assert own_addresses(captures) == expected


def test_interfaces_a_moment_apart_are_no_two_hosts() -> None:
    assert own_addresses(ASKED_FROM_TWO, 770) == [{CLIENT, SECOND}, {PROXY}]
    assert own_addresses(ASKED_FROM_TWO, 1_000) == [{PROXY}, {PROXY}]


def test_loopback_is_the_same_for_one_address_and_for_many() -> None:
    texts = ["127.0.0.1", "127.255.0.9", "::1", "10.127.0.1", "12.7.0.1", "::12", "fe80::1"]
    assert are_loopback(pa.array(texts)).tolist() == list(map(is_loopback, texts)) == [True] * 3 + [False] * 4
    assert are_loopback(pa.array([], pa.string())).tolist() == []
