"""Hosts on the path: routers, NATs and layer-4 balancers that were captured too, and whose packets are other hosts'.

The gap from a packet to the first that acknowledges it holds, by each host's own clock, the rest of the round trip. So
of several captures that have the same answer (its acknowledgment and sequence number, which a NAT leaves alone) the
longest gap is that of the host that asked, the shortest that of the host that answered, and a capture strictly between
is of a host that passed both on. What it saw of them is no packet's sending or receiving: its packets between these
addresses stay in `events` and take no further part, so all goes on as if the host had not been captured.

Judged by pair of addresses: a router is an end too of what is sent to itself. A pair is forwarded if nearly all answers
that another capture has as well are forwarded; its translation is, under whatever pair of addresses the other captures
have the same answers.

Limits: a host that forwards some connections of a pair of addresses and is an end of others of the pair, or of what it
translates the pair to, is left as it is, an end of all; so is one of which only one neighbour was captured, for nothing
lies beyond it. A proxy that ends TCP has sequence numbers of its own, and is always an end.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from collector.decode.host_addresses import AddressPair, Answer, Traffic
from tracer.records import Columns

LEAST_ANSWERS = 3
"""Of a pair of addresses, before its packets count as forwarded ones: a handshake and one exchange have as many."""
LEAST_SHARE = 0.9
"""Of the answers that other captures have too. Offloads merge segments, so a few are other packets elsewhere."""
SAMPLED_ANSWERS = 250
"""Who keeps fewer answers has kept them all; who has more may have left out those of great hash (`answers.rs`)."""
SPREAD = 0x9E3779B1
"""As in the core: of an answer that number times its acknowledgment, modulo 2^32, is the hash."""


def forwarded_pairs(captures: Sequence[Traffic]) -> list[frozenset[AddressPair]]:
    """For each capture the pairs of addresses (either order) between which its host only passes packets on.

    Source: the header of this module. Cost: linear in the answers, of which a capture keeps about a thousand.
    """
    if len(captures) < 3:
        return [frozenset() for _ in captures]
    passed: list[Counter[AddressPair]] = [Counter() for _ in captures]
    ended: list[Counter[AddressPair]] = [Counter() for _ in captures]
    alike: list[dict[AddressPair, set[AddressPair]]] = [{} for _ in captures]
    for sights in _sights(captures):
        gaps = [gap for _, _, gap in sights]
        for place, pair, gap in sights:
            if min(gaps) < gap < max(gaps):
                passed[place][pair] += 1
                alike[place].setdefault(pair, set()).update(other for _, other, _ in sights)
            elif len(sights) == 2 or gaps.count(gap) == 1:
                ended[place][pair] += 1
    return [
        frozenset(_both_ways(_sure(capture, *votes)))
        for capture, votes in zip(captures, zip(passed, ended, alike, strict=True), strict=True)
    ]


def without_forwarded(traffic: Traffic, pairs: Collection[AddressPair], named: frozenset[int]) -> Traffic:
    """What a capture shows of its host besides what the host forwards; `named` addresses are its own in any case."""
    if not pairs:
        return traffic
    left = {pair: count for pair, count in traffic.pairs.items() if pair not in pairs}
    gone = {end for pair in pairs for end in pair} - {end for pair in left for end in pair}
    gaps_ns = {key: gap for key, gap in traffic.gaps_ns.items() if gap[:2] not in pairs}
    told = (traffic.told - gone) | named
    return replace(traffic, pairs=left, told=told, passing=traffic.passing - gone, gaps_ns=gaps_ns)


def forwarded_rows(
    events: Columns, forwarded: Sequence[Collection[AddressPair]], numbers: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    """Which rows are of a host that only passes packets between these addresses; None if there are none.

    Arguments: `forwarded` of each host by number, as `forwarded_pairs`; `numbers` of the addresses in `events`.
    """
    place_of = {number: place for place, number in enumerate(numbers.tolist())}
    found: NDArray[np.bool_] | None = None
    for host, pairs in enumerate(forwarded):
        ways = [
            place_of[src] << 32 | place_of[dst] for src, dst in sorted(pairs) if src in place_of and dst in place_of
        ]
        if ways:
            of_rows = events["src_addr"].astype(np.int64) << 32 | events["dst_addr"].astype(np.int64)
            rows = (events["host_place"] == host) & np.isin(of_rows, ways)
            found = rows if found is None else found | rows
    return found


def _sights(captures: Sequence[Traffic]) -> Iterable[list[tuple[int, AddressPair, int]]]:
    """Of each answer that several captures have: the captures, its addresses there (ascending), and the gaps."""
    sampled = [capture.gaps_ns for capture in captures if len(capture.gaps_ns) >= SAMPLED_ANSWERS]
    limit = min((max(map(_hash, gaps_ns)) for gaps_ns in sampled), default=1 << 32)
    found: dict[Answer, list[tuple[int, AddressPair, int]]] = {}
    for place, capture in enumerate(captures):
        for key, (asker, answerer, gap) in capture.gaps_ns.items():
            if _hash(key) <= limit:
                found.setdefault(key, []).append((place, _pair(asker, answerer), gap))
    return (sights for sights in found.values() if len(sights) > 1)


def _sure(
    capture: Traffic,
    passed: Counter[AddressPair],
    ended: Counter[AddressPair],
    alike: dict[AddressPair, set[AddressPair]],
) -> set[AddressPair]:
    """The pairs of which the votes leave no doubt, and those that they are translated to."""
    doubted = {pair for pair, count in ended.items() if passed[pair] < LEAST_SHARE * (passed[pair] + count)}
    known = {_pair(*pair) for pair in capture.pairs}
    found: set[AddressPair] = set()
    for pair, count in passed.items():
        group = (alike[pair] & known) | {pair}
        if count >= LEAST_ANSWERS and not group & doubted:
            found |= group
    return found


def _both_ways(pairs: Iterable[AddressPair]) -> Iterable[AddressPair]:
    return (way for one, other in pairs for way in ((one, other), (other, one)))


def _pair(one: int, other: int) -> AddressPair:
    return (min(one, other), max(one, other))


def _hash(answer: Answer) -> int:
    return answer[0] * SPREAD & 0xFFFFFFFF
