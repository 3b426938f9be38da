"""Detects captures that hold those of several hosts, as `mergecap` writes them, and separates their interfaces.

Two interfaces belong to two hosts if they show the same packets, a round trip apart: the times between the two sights
of packets in either direction differ by the round trip, whatever the two clocks show. On one host (a bridge, a router,
containers) the difference is microseconds. And if the capture records directions: on one host, one interface receives
what another sends; of two hosts, the one closer to the sender sends.

If the capture does not distinguish the interfaces, it holds the same packets twice: it is unknown which sight is whose.

Limits: a router that delays packets, captured on both sides without directions, is mistaken for two hosts; hosts that
share no packets (all are translated between them) are not recognised as several.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise

from collector.capture_files.records import Direction, Severity
from collector.decode.containers import Sight
from collector.trace.model import CounterInfo

MERGED, SPLIT = "merged_captures", "interfaces_of_hosts"
Sighted = tuple[int, int, int, Sequence[Sight]]
"""Source, destination, payload (bytes), and the sights of a packet, by time."""
Ends = tuple[int, int]
Between = tuple[int, int, bool, int, int]
"""A packet at two interfaces: its timestamp at the first, the time until it was at the second (ns), whether the lower
address sent it, and the direction's code at each."""

LEAST_ROUND_NS = 20_000
"""Shortest round trip between two hosts; a kernel forwards in less time."""
LEAST_ROUNDS = 3
LEAST_TWICE, LEAST_TWICE_SHARE = 8, 0.25
"""Fewest packets without payload, and least share of them, that are captured twice: segments with payload may be split
differently at the other host, and a retransmitted packet usually has another IP ID or timestamp."""


def interfaces_are_hosts(seen: Sequence[Sighted]) -> bool:
    """Whether interfaces of the capture belong to several hosts.

    Arguments: `seen`, a sample of its packets. Cost: sorting them.
    """
    votes: Counter[bool] = Counter()
    for between in _by_interfaces(seen).values():
        votes.update(_votes(between))
    return votes[True] > votes[False]


def is_twice(seen: Sequence[Sighted]) -> bool:
    """Whether an interface shows its packets twice, without recorded directions."""
    counts: Counter[bool] = Counter()
    for src, dst, payload_len, sights in seen:
        if src != dst and not payload_len and not any(direction for _, _, direction in sights):
            counts[len({interface for _, interface, _ in sights}) < len(sights)] += 1
    return counts[True] >= max(LEAST_TWICE, LEAST_TWICE_SHARE * counts.total())


def merged_counter(host: str, packets_count: int) -> CounterInfo:
    """The counter of a capture that holds its packets twice."""
    remedy = (
        "its packets are there twice, as where captures of several hosts or interfaces are merged, and nothing shows "
        "which is whose: give each host's capture by itself, or merge with `mergecap -I none`"
    )
    return CounterInfo(host, MERGED, Severity.DATA_LOSS, packets_count, remedy)


def split_counter(name: str, hosts: Sequence[str]) -> CounterInfo:
    """The counter of a capture whose interfaces belong to several hosts."""
    remedy = f"one capture of several hosts, by its interfaces: taken as {', '.join(hosts)}"
    return CounterInfo(name, SPLIT, Severity.NOTICE, len(hosts), remedy)


def _by_interfaces(seen: Sequence[Sighted]) -> dict[tuple[Ends, Ends], list[Between]]:
    """By addresses and interfaces: the packets between two addresses that two interfaces saw, by time."""
    found: dict[tuple[Ends, Ends], list[Between]] = {}
    for src, dst, _, sights in seen:
        if src == dst:
            continue
        first: dict[int, Sight] = {}
        for sight in sights:
            first.setdefault(sight[1], sight)
        for one, other in combinations(sorted(first), 2):
            (at, _, direction), (later, _, other_direction) = first[one], first[other]
            ends = (min(src, dst), max(src, dst))
            between = (at, later - at, src < dst, direction, other_direction)
            found.setdefault(((one, other), ends), []).append(between)
    return {key: sorted(between) for key, between in found.items()}


def _votes(between: Sequence[Between]) -> dict[bool, int]:
    """How many round trips indicate that the two interfaces belong to two hosts (True), or to one (False)."""
    rounds = sorted(
        (here[1] - there[1]) * (1 if here[2] else -1) for here, there in pairwise(between) if here[2] != there[2]
    )
    if len(rounds) < LEAST_ROUNDS:
        return {}
    lesser_is_at_first = rounds[len(rounds) // 2] > 0
    if not lesser_is_at_first:
        rounds = [-each for each in reversed(rounds)]
    codes = Counter(each[3 if each[2] == lesser_is_at_first else 4] for each in between)
    if codes[Direction.SEND] + codes[Direction.RECEIVE] > len(between) // 2:
        return {codes[Direction.SEND] > codes[Direction.RECEIVE]: len(rounds)}
    return {rounds[len(rounds) // 10] >= LEAST_ROUND_NS: len(rounds)}
