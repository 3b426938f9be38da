"""Detects captured hosts on the path: routers, NATs and layer-4 load balancers, which forward packets of other hosts.

The gap from a packet to the first packet that acknowledges it includes, by each host's own clock, the rest of the round
trip. So if several captures have the same answer (identified by acknowledgment and sequence number, which a NAT does
not change), the longest gap is at the host that asked and the shortest at the host that answered. A capture with a gap
strictly between belongs to a host that forwarded both packets. Its packets between these addresses stay in `events`,
but no later stage uses them, as if the host had not been captured.

Each pair of addresses is judged separately, since a router is also an end of connections to itself. A pair is forwarded
if nearly all of its answers that other captures have, too, are forwarded. If so, the pair that it is translated to is
forwarded as well, whichever addresses the answers have in other captures.

Limits: a host that forwards some connections of a pair of addresses and is an end of others (or of the translated pair)
counts as an end of all. So does a host with only one captured neighbour, since nothing beyond it was captured. A proxy
that terminates TCP has its own sequence numbers, and is always an end.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from collector.capture_files.records import Columns
from collector.decode.host_addresses import AddressPair, Answer, Traffic

LEAST_ANSWERS = 3
"""Fewest answers of a pair of addresses that counts as forwarded: a handshake and one exchange have as many."""
LEAST_SHARE = 0.9
"""Least share of forwarded answers, of those that other captures have. Offloads merge segments, so a few differ."""
SAMPLED_ANSWERS = 250
"""A capture with fewer answers has kept all; one with more may have omitted those with high hashes (`answers.rs`)."""
SPREAD = 0x9E3779B1
"""As in the core: an answer's hash is this number times its acknowledgment, modulo 2^32."""


def forwarded_pairs(captures: Sequence[Traffic]) -> list[frozenset[AddressPair]]:
    """For each capture, the pairs of addresses (in either order) between which its host only forwards packets.

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


def without_forwarded_traffic(traffic: Traffic, pairs: Collection[AddressPair], named: frozenset[int]) -> Traffic:
    """`traffic` without packets that the host forwards between `pairs`; `named` addresses are its own in any case."""
    if not pairs:
        return traffic
    left = {pair: count for pair, count in traffic.pairs.items() if pair not in pairs}
    gone = {end for pair in pairs for end in pair} - {end for pair in left for end in pair}
    gaps_ns = {key: gap for key, gap in traffic.gaps_ns.items() if gap[:2] not in pairs}
    known = (traffic.known - gone) | named
    return replace(traffic, pairs=left, known=known, passing=traffic.passing - gone, gaps_ns=gaps_ns)


def forwarded_rows(
    events: Columns, forwarded: Sequence[Collection[AddressPair]], numbers: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    """Whether each row was captured at a host that only forwards packets between its addresses; None if none was.

    Arguments: `forwarded`, from `forwarded_pairs`, by number of the host; `numbers` of the addresses in `events`.
    """
    if not any(forwarded):
        return None  # nearly always
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
    """For each answer in several captures: the captures, its addresses there (ascending), and its gaps."""
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
    """The pairs with a clear majority of votes, and those that they are translated to."""
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
