"""Which addresses are a host's own, from what captures show."""

import numpy as np
import pytest

from collector.hosts import AnswerGaps, Traffic, directions, own_addresses
from tracer.records import Columns, Direction, TcpFlag

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


def test_directions_are_inferred_only_where_the_capture_does_not_tell() -> None:
    events = {
        "direction": np.array([0, 0, 0, Direction.SEND, 0], dtype=np.uint8),
        "src_addr": np.array([1, 2, 1, 7, 8], dtype=np.uint32),
        "dst_addr": np.array([2, 1, 1, 8, 9], dtype=np.uint32),
    }
    direction, inside = directions(events, frozenset({1}))
    unknown = Direction.UNKNOWN
    assert direction.tolist() == [Direction.SEND, Direction.RECEIVE, Direction.RECEIVE, Direction.SEND, unknown]
    assert inside.tolist() == [False, False, True, False, False]


def transfers(count: int, gap_ns: int) -> Columns:
    """`count` packets of 100 bytes from address 1 to 2, each acknowledged after a time."""
    sent = np.arange(count, dtype=np.uint32) * 100
    rows = np.tile([0, 1], count)
    return {
        "direction": np.zeros(2 * count, dtype=np.uint8),
        "src_addr": np.where(rows == 0, 1, 2).astype(np.uint32),
        "dst_addr": np.where(rows == 0, 2, 1).astype(np.uint32),
        "src_port": np.where(rows == 0, 50, 80).astype(np.uint16),
        "dst_port": np.where(rows == 0, 80, 50).astype(np.uint16),
        "seq": np.where(rows == 0, np.repeat(sent, 2), 7).astype(np.uint32),
        "ack": np.where(rows == 0, 7, np.repeat(sent + 100, 2)).astype(np.uint32),
        "payload_len": np.where(rows == 0, 100, 0).astype(np.uint32),
        "flags": np.full(2 * count, TcpFlag.ACK, dtype=np.uint16),
        "host_ns": np.repeat(np.arange(count, dtype=np.int64) * 1_000, 2) + rows * gap_ns,
    }


def test_captures_that_began_apart_keep_the_same_answers() -> None:
    early, late = AnswerGaps(), AnswerGaps()
    for first in range(0, 400_000, 40_000):
        batch = transfers(400_000, 10)
        part = {name: values[2 * first : 2 * (first + 40_000)] for name, values in batch.items()}
        early.add(part)
        if first >= 320_000:
            late.add(part)
    shared = early.by_answer.keys() & late.by_answer.keys()
    assert len(early.by_answer) <= 2 * 1000
    assert len(shared) >= 50
    assert all(early.by_answer[key] == (1, 2, 10) for key in shared)


def test_a_flood_of_syns_does_not_end_the_search() -> None:
    flood = transfers(50_000, 10)
    flood["flags"][:] = TcpFlag.SYN
    flood["ack"][:] = 0
    gaps = AnswerGaps()
    gaps.add(flood)
    gaps.add(transfers(5_000, 10))
    assert len(gaps.by_answer) > 100
