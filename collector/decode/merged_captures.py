"""Whether one capture holds those of several hosts, as `mergecap` makes it, and which of its interfaces are apart.

Two interfaces are those of two hosts if they show the same packets, a round trip apart: of packets each way, the times
between the two sights differ by the way there and back, whatever the two clocks say. On one host (a bridge, a router,
containers) that takes microseconds, and where the capture tells directions, what one interface receives another sends,
while of two hosts the nearer one to the sender sends.

If it does not tell the interfaces apart, the same packets are in it twice: nothing shows which sight is whose.

Limits: a router that holds packets back, captured on both sides without directions, is taken for two hosts; hosts that
show none of each other's packets (all are translated between them) are not seen to be several.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise

from collector.decode.containers import Sight
from collector.trace.model import CounterInfo
from tracer.records import Direction, Severity

MERGED, SPLIT = "merged_captures", "interfaces_of_hosts"
Sighted = tuple[int, int, int, Sequence[Sight]]
"""Source, destination, payload (bytes), and where a packet was seen, by time."""
Ends = tuple[int, int]
Between = tuple[int, int, bool, int, int]
"""Of a packet at two interfaces: the stamp at the first, the time to that at the second (ns), whether the lesser
address sent it, and the direction's code at each."""

LEAST_ROUND_NS = 20_000
"""A way there and back between two hosts; a kernel forwards within less."""
LEAST_ROUNDS = 3
LEAST_TWICE, LEAST_TWICE_SHARE = 8, 0.25
"""Packets without payload that are there twice: segments with payload may be cut otherwise at the other host, and a
packet sent again has another number or stamp, but for few."""


def interfaces_are_hosts(seen: Sequence[Sighted]) -> bool:
    """Whether interfaces of the capture are of several hosts.

    Arguments: a sample of its packets. Cost: that of sorting them.
    """
    votes: Counter[bool] = Counter()
    for between in _by_interfaces(seen).values():
        votes.update(_votes(between))
    return votes[True] > votes[False]


def is_twice(seen: Sequence[Sighted]) -> bool:
    """Whether an interface shows its packets twice, though the capture tells no direction of them."""
    counts: Counter[bool] = Counter()
    for src, dst, payload_len, sights in seen:
        if src != dst and not payload_len and not any(direction for _, _, direction in sights):
            counts[max(Counter(interface for _, interface, _ in sights).values()) > 1] += 1
    return counts[True] >= max(LEAST_TWICE, LEAST_TWICE_SHARE * counts.total())


def merged(host: str, packets_count: int) -> CounterInfo:
    """A capture that holds its packets twice."""
    remedy = (
        "its packets are there twice, as where captures of several hosts or interfaces are merged, and nothing shows "
        "which is whose: give each host's capture by itself, or merge with `mergecap -I none`"
    )
    return CounterInfo(host, MERGED, Severity.DATA_LOSS, packets_count, remedy)


def split(name: str, hosts: Sequence[str]) -> CounterInfo:
    """A capture whose interfaces are those of several hosts."""
    remedy = f"one capture of several hosts, by its interfaces: taken as {', '.join(hosts)}"
    return CounterInfo(name, SPLIT, Severity.NOTICE, len(hosts), remedy)


def _by_interfaces(seen: Sequence[Sighted]) -> dict[tuple[Ends, Ends], list[Between]]:
    """What two interfaces saw of the packets between two addresses, by time."""
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
    """How many round trips say that the two interfaces are of two hosts (True), or of one."""
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
