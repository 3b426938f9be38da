"""Which addresses a capture's host has, and so which way each packet went.

A capture that knows tells it: pcapng direction flags, Linux cooked captures, an agent's name records. A plain Ethernet
capture does not. There, a host's own addresses are those that every packet of its capture has at one end; where the
peer is always the same one both ends qualify, and the other captures decide, or at last the answers: the gap from a
packet (a SYN, or bytes) to the first that acknowledges it holds a round trip at the host that sent it, and only the
receiver's own work at the one that answered. Where no other capture has the same answers, both ends of this one are
compared: its own kernel answers within microseconds, and never waits for the way.

Limits: the capture of a router or a switch has no own end; its packets stay without direction, and a counter says so
unless both its neighbours were captured too (`collector.decode.forwarders`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

Answer = tuple[int, int]
"""Acknowledgment and sequence number of a packet: the same at both ends, even where addresses are translated."""
OWN_ANSWER_NS, OWN_RATIO = 50_000, 2
"""A kernel's quickest answer takes less than this at its own host, and a way and back at least twice as long as it."""
OWN_ANSWERS = 3
"""Answers of each end, before one is taken for the quick one."""
AddressPair = tuple[int, int]
"""Source and destination, as indices into one address table."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a capture shows of its host, condensed for the inference.

    `pairs` counts packets by (source, destination). `told` are addresses that the capture itself calls its own,
    `passing` those whose packets it saw both come in and go out: of containers behind it, or of hosts it forwards for.
    `gaps_ns` holds, for some answers, who had asked, who answered, and the time between.
    """

    pairs: Mapping[AddressPair, int]
    told: frozenset[int] = frozenset()
    passing: frozenset[int] = frozenset()
    gaps_ns: Mapping[Answer, tuple[int, int, int]] = field(default_factory=dict)


def own_addresses(captures: Sequence[Traffic]) -> list[frozenset[int]]:
    """For each capture the addresses of its host; empty where nothing tells.

    Source: the header of this module. Cost: linear in the distinct address pairs.
    """
    found: list[frozenset[int] | None] = [traffic.told or None for traffic in captures]
    while any(addresses is None for addresses in found):
        progress = False
        for index, traffic in enumerate(captures):
            if found[index] is None:
                taken = frozenset().union(*(other for other in found if other))
                candidates = common_ends(traffic) - taken
                if len(candidates) == 1:
                    found[index], progress = frozenset(candidates), True
        if not progress:
            undecided = [index for index, addresses in enumerate(found) if addresses is None]
            _decide_one(captures, found, undecided)
    settled = [addresses or frozenset() for addresses in found]
    return [own | _behind(traffic, own, settled) for traffic, own in zip(captures, settled, strict=True)]


def _behind(traffic: Traffic, own: frozenset[int], settled: Sequence[frozenset[int]]) -> frozenset[int]:
    """Addresses of containers: they pass through this host, no capture owns them, and another owns their peer."""
    owned = frozenset().union(*settled)
    return frozenset(
        end
        for end, peer in traffic.pairs
        if end in traffic.passing and end not in owned and peer in owned and peer not in own
    )


def common_ends(traffic: Traffic) -> set[int]:
    """Addresses that every packet of the capture has at one end; loopback pairs (an address to itself) do not count."""
    pairs = (pair for pair in traffic.pairs if pair[0] != pair[1])
    return reduce(lambda common, pair: common.intersection(pair), pairs, set(next(pairs, ())))


def is_loopback(address: str) -> bool:
    """Whether the textual address is every host's own (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3)."""
    return address.startswith("127.") or address == "::1"


def _decide_one(captures: Sequence[Traffic], found: list[frozenset[int] | None], undecided: Sequence[int]) -> None:
    """Settle one capture that the pairs leave open, by its answers' gaps; give up on one if none can be settled."""
    for index in undecided:
        for other in range(len(captures)):
            side = _side_of(captures[index], captures[other]) if other != index else None
            if side is not None:
                found[index] = side
                return
    first = captures[undecided[0]]
    found[undecided[0]] = _quick_end(first) or _covering(first)


def _side_of(one: Traffic, other: Traffic) -> frozenset[int] | None:
    """Address of the first capture's host: of who asked where its gaps are the longer ones, else of who answered."""
    votes = Counter(
        one.gaps_ns[key][0 if one.gaps_ns[key][2] > other.gaps_ns[key][2] else 1]
        for key in one.gaps_ns.keys() & other.gaps_ns.keys()
        if one.gaps_ns[key][2] != other.gaps_ns[key][2]
    )
    address, count = next(iter(votes.most_common(1)), (0, 0))
    return frozenset({address}) if 2 * count > votes.total() else None


def _quick_end(traffic: Traffic) -> frozenset[int]:
    """Of the only two addresses the one whose answers take no way; none if neither, or both, are that quick."""
    ends = common_ends(traffic)
    gaps = {end: [gap for _, answerer, gap in traffic.gaps_ns.values() if answerer == end] for end in ends}
    if len(ends) != 2 or any(len(of_end) < OWN_ANSWERS for of_end in gaps.values()):
        return frozenset()
    quick, other = sorted(ends, key=lambda end: min(gaps[end]))
    own_ns, way_ns = min(gaps[quick]), min(gaps[other])
    return frozenset({quick}) if own_ns < OWN_ANSWER_NS and way_ns >= OWN_RATIO * own_ns else frozenset()


def _covering(traffic: Traffic) -> frozenset[int]:
    """The fewest addresses (greedily) that every packet has one of; none if that is half of them all."""
    left = {pair: count for pair, count in traffic.pairs.items() if pair[0] != pair[1]}
    everyone = {end for pair in left for end in pair}
    chosen: set[int] = set()
    while left:
        weight: dict[int, int] = {}
        for pair, count in left.items():
            for end in pair:
                weight[end] = weight.get(end, 0) + count
        best = max(weight, key=lambda end: (weight[end], -end))
        chosen.add(best)
        left = {pair: count for pair, count in left.items() if best not in pair}
    return frozenset(chosen) if 2 * len(chosen) < len(everyone) else frozenset()
