"""Determines the addresses of each capture's host, and thereby the direction of each packet.

Some captures record it: pcapng direction flags, Linux cooked captures, an agent's name records. A plain Ethernet
capture does not. Its host's own addresses are those that every packet has at one end. If the peer is always the same,
both ends qualify; then the other captures decide, or finally the answers: the gap from a packet (a SYN, or bytes) to
the first packet that acknowledges it includes a round trip at the host that sent it, but only the receiver's own work
at the host that answered. If no other capture has the same answers, both ends of this capture are compared: the host's
own kernel answers within microseconds, without a network delay.

A host with several addresses may have a single peer (a load generator and its server): then only the peer's address is
in every packet, at both hosts. If two captures have such an address in common, the gaps decide as well.

Packets of a pair that were seen in one direction only may be others': a switch that does not know where an address is
sends a frame to all its ports. So they count only if nothing else decides, or if there are no others.

Limits: the capture of a router or switch has no own end. Its packets have no direction, and a counter reports it,
unless both its neighbours were captured, too (`collector.decode.forwarders`). A host with several addresses and a
single peer is taken for that peer where its capture is the only one and does not record directions.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from numpy.typing import NDArray

LOOPBACK_4, LOOPBACK_6 = "127.", "::1"
"""What the text of an IPv4 address of loopback begins with, and that of IPv6."""
Answer = tuple[int, int]
"""Acknowledgment and sequence number of a packet: the same at both ends, even if addresses are translated."""
OWN_ANSWER_NS, OWN_RATIO = 50_000, 2
"""At its own host a kernel's quickest answer takes less than this, and a network round trip at least twice as long."""
OWN_ANSWERS = 3
"""Fewest answers of each end that are compared, and of two captures where one common address is doubted."""
DOUBT = 0.1
"""Such an address is not the host's if so few answers say that it is."""
AddressPair = tuple[int, int]
"""Source and destination, as indices into one address table."""


class Traffic(Struct, frozen=True):
    """The evidence of a capture about its host's addresses.

    `pairs` counts packets by (source, destination). `known` are addresses that the capture itself records as its own,
    `passing` those whose packets both came in and went out: of containers behind it, or of hosts it forwards for.
    `gaps_ns` holds, for some answers, the addresses that asked and answered, and the time between.
    """

    pairs: Mapping[AddressPair, int]
    known: frozenset[int] = frozenset()
    passing: frozenset[int] = frozenset()
    gaps_ns: Mapping[Answer, tuple[int, int, int]] = field(default_factory=dict)


def own_addresses(captures: Sequence[Traffic], least_round_ns: int = 0) -> list[frozenset[int]]:
    """For each capture, the addresses of its host; empty if they cannot be determined.

    Arguments: `least_round_ns`, how much longer than another host's a gap is at least, where captures may be of one
    host and have an address in common.
    Source: the header of this module. Cost: linear in the distinct address pairs.
    """
    found: list[frozenset[int] | None] = [traffic.known or None for traffic in captures]
    rivals = _Rivals(captures, least_round_ns)
    while any(addresses is None for addresses in found):
        progress = False
        for index in range(len(captures)):
            if found[index] is None:
                taken = _all_of(found)
                candidates = rivals.ends(index) - taken
                if len(candidates) == 1:
                    found[index], progress = rivals.other_ends(index, taken) or frozenset(candidates), True
        if not progress:
            _decide_one(captures, found, rivals)
    settled = [addresses or frozenset() for addresses in found]
    return [own | _behind(traffic, own, settled) for traffic, own in zip(captures, settled, strict=True)]


def _behind(traffic: Traffic, own: frozenset[int], settled: Sequence[frozenset[int]]) -> frozenset[int]:
    """Addresses of containers: they pass through this host, no capture owns them, and another capture owns their
    peer."""
    owned = frozenset().union(*settled)
    return frozenset(
        end
        for end, peer in traffic.pairs
        if end in traffic.passing and end not in owned and peer in owned and peer not in own
    )


def common_ends(traffic: Traffic) -> set[int]:
    """Addresses that every packet of the capture has at one end; loopback pairs (an address to itself) do not count."""
    return _ends_of_all(traffic.pairs, lambda pair: pair[0] != pair[1])


def _ends_of_two_way_pairs(traffic: Traffic) -> set[int]:
    """As `common_ends`, but if packets of both directions were seen of some pairs, only these pairs count. If they have
    no address in common, neither have all."""
    pairs = traffic.pairs
    return _ends_of_all(pairs, lambda pair: pair[0] != pair[1] and pair[::-1] in pairs) or common_ends(traffic)


def _ends_of_all(pairs: Collection[AddressPair], counts: Callable[[AddressPair], bool]) -> set[int]:
    """Addresses that all pairs have for which `counts` is true.

    It is called only for pairs that lack a candidate: nearly all pairs of a flood have its target.
    """
    first = next(filter(counts, pairs), ())
    return {end for end in first if not any(end not in pair and counts(pair) for pair in pairs)}


def is_loopback(address: str) -> bool:
    """Whether the address (text) is a loopback address (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3)."""
    return address.startswith(LOOPBACK_4) or address == LOOPBACK_6


def are_loopback(addresses: pa.StringArray) -> NDArray[np.bool_]:
    """As `is_loopback`, of each of n addresses: shape (n,)."""
    found = pc.or_(pc.starts_with(addresses, LOOPBACK_4), pc.equal(addresses, LOOPBACK_6))
    return found.to_numpy(zero_copy_only=False)


def _all_of(found: Sequence[frozenset[int] | None]) -> frozenset[int]:
    return frozenset().union(*(addresses for addresses in found if addresses))


def _decide_one(captures: Sequence[Traffic], found: list[frozenset[int] | None], rivals: "_Rivals") -> None:
    """Decide one undecided capture by the gaps of its answers; if none can be decided, give one up."""
    undecided = [index for index, addresses in enumerate(found) if addresses is None]
    for index in undecided:
        others = (_side_of(captures[index], other) for place, other in enumerate(captures) if place != index)
        side = rivals.other_ends(index, _all_of(found)) or next(filter(None, others), frozenset())
        if side:
            found[index] = side
            return
    first = captures[undecided[0]]
    found[undecided[0]] = _quick_end(first) or _covering(first)


class _Rivals:
    """Captures that may have one address in common with each other; as the arguments of `own_addresses`."""

    def __init__(self, captures: Sequence[Traffic], least_round_ns: int) -> None:
        self._captures, self._least_round_ns = captures, least_round_ns
        self.ends = cache(lambda index: _ends_of_two_way_pairs(captures[index]))

    def other_ends(self, index: int, taken: frozenset[int]) -> frozenset[int]:
        """The ends of a capture's packets beside the only one that all have, if others that have it as well show that
        those are its host's; none if they do not, or if one of them is `taken` by another host."""
        if len(self._captures) == 1 or len(self.ends(index)) != 1:
            return frozenset()
        (common,), one = self.ends(index), self._captures[index]
        alike = (other for place, other in enumerate(self._captures) if place != index and common in self.ends(place))
        votes = sum((_votes(one, other, self._least_round_ns) for other in alike), Counter[int]())
        if votes.total() < OWN_ANSWERS or votes[common] >= DOUBT * votes.total():
            return frozenset()
        others = frozenset(end for end, peer in one.pairs if peer == common != end and (peer, end) in one.pairs)
        return frozenset() if others & taken else others


def _side_of(one: Traffic, other: Traffic) -> frozenset[int]:
    """The address of the first capture's host: that of the asking end if its gaps are longer, else of the answering
    end; none if that is in doubt."""
    votes = _votes(one, other)
    address, count = next(iter(votes.most_common(1)), (0, 0))
    return frozenset({address}) if 2 * count > votes.total() else frozenset()


def _votes(one: Traffic, other: Traffic, least_ns: int = 0) -> Counter[int]:
    """For how many of the answers that both captures have which address is the first one's host's.

    Arguments: `least_ns`, how much longer one gap is than the other at least.
    """
    both = ((one.gaps_ns[key], other.gaps_ns[key][2]) for key in one.gaps_ns.keys() & other.gaps_ns.keys())
    return Counter(
        asker if own_ns > other_ns else answerer
        for (asker, answerer, own_ns), other_ns in both
        if own_ns != other_ns and abs(own_ns - other_ns) >= least_ns
    )


def _quick_end(traffic: Traffic) -> frozenset[int]:
    """Of the only two addresses, the one whose answers have no network delay; none if neither or both have none."""
    ends = _ends_of_two_way_pairs(traffic)
    gaps = {end: [gap for _, answerer, gap in traffic.gaps_ns.values() if answerer == end] for end in ends}
    if len(ends) != 2 or any(len(of_end) < OWN_ANSWERS for of_end in gaps.values()):
        return frozenset()
    quick, other = sorted(ends, key=lambda end: min(gaps[end]))
    own_ns, way_ns = min(gaps[quick]), min(gaps[other])
    return frozenset({quick}) if own_ns < OWN_ANSWER_NS and way_ns >= OWN_RATIO * own_ns else frozenset()


def _covering(traffic: Traffic) -> frozenset[int]:
    """A smallest set of addresses (greedy) such that every packet has one; empty if it has half of all addresses."""
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
