"""Addresses behind interfaces of a captured host, each of which is a lane of its own: the containers of a node.

On the host's side of a bridge a packet between two containers is seen twice: first where its sender's interface leads
(veth), and then where its receiver's does; on the bridge itself once more, before or after that, and with `-i any` on
all of these. So the sight at the sender's interface is its sending, and that at the receiver's its receiving, by one
clock. An address is behind an interface if its packets are all first seen there, those to it are seen there after the
first sight, and nearly nothing else passes there.

Not so for the host itself and for what it routes: of packets that a bridge gets from its own host the first sight is
one that the host sends, where the capture tells directions, and packets of others pass the bridge as well. Addresses
become lanes only where at least two that talk with each other do; otherwise all is the host's own
(`collector.decode.host_addresses`).

Limits: interfaces that a capture does not tell apart (`mergecap` without `-I none`, where files describe theirs alike);
stamps of equal time, as captures of microseconds have, tell no order, and other packets must; an uplink with a single
peer whose address it does not translate is taken for that peer's interface; several addresses of one family behind one
interface may be a network, and make no lane.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tracer.records import Direction

Sight = tuple[int, int, int]
"""Stamp (ns), interface, and the direction's code, of a packet at an interface of a host."""
Passage = tuple[int, int, Sequence[Sight]]
"""Source, destination, and where a packet between them was seen, by time."""
Passed = tuple[int, int, int, int]
"""Source, destination, interface, and how many packets."""

LEAST_SHARE, LEAST_PASSAGES = 0.9, 3
"""Of an address's packets that must be seen at its interface first (later, of those to it), and how many each way."""
LEAST_OWN_SHARE = 0.98
"""Of an interface's packets that must be its address's: a bridge floods a few before it knows the ports."""


@dataclass(frozen=True, slots=True)
class Container:
    """A lane: its addresses, the first of which names it, and the interface that leads there; by number."""

    addresses: tuple[int, ...]
    interface: int


def containers(
    passages: Sequence[Passage], passed: Iterable[Passed], texts: Sequence[str], owned: Collection[int]
) -> list[Container]:
    """The lanes of a captured host, by interface; none where no two of them talk with each other.

    Arguments: `passages` of a sample of its packets; `passed`, what its interfaces saw; `texts`, of each address;
    `owned` by other captures' hosts. Cost: linear in the passages, of which there are a few thousand.
    """
    if not passages:
        return []
    alone = _alone(passed, texts)
    by_interface: dict[int, list[int]] = {}
    for address, interface in sorted(_homes(passages, owned).items(), key=lambda home: texts[home[0]]):
        if (address, interface) in alone:
            by_interface.setdefault(interface, []).append(address)
    lanes = [
        Container(tuple(addresses), interface)
        for interface, addresses in sorted(by_interface.items())
        if len({":" in texts[address] for address in addresses}) == len(addresses)
    ]
    lane_of = {address: lane.interface for lane in lanes for address in lane.addresses}
    talk = any(
        lane_of.get(src, -1) != lane_of.get(dst, -1) and {src, dst} <= lane_of.keys() for src, dst, _ in passages
    )
    return lanes if talk else []


def _homes(passages: Iterable[Passage], owned: Collection[int]) -> dict[int, int]:
    """Of each address the interface where its packets are first seen and those to it later."""
    firsts: dict[int, Counter[int | None]] = {}
    laters: dict[int, Counter[int]] = {}
    received: Counter[int] = Counter()
    for src, dst, sights in passages:
        if src == dst or sights[0][0] == sights[1][0]:
            continue
        _, first, direction = sights[0]
        firsts.setdefault(src, Counter())[None if direction == Direction.SEND else first] += 1
        received[dst] += 1
        laters.setdefault(dst, Counter()).update({interface for _, interface, _ in sights[1:]} - {first})
    found = {}
    for address in (firsts.keys() & laters.keys()) - set(owned):
        ((home, count),) = firsts[address].most_common(1)
        sent, later = firsts[address].total(), 0 if home is None else laters[address][home]
        enough = min(count, later) >= LEAST_PASSAGES
        if home is not None and enough and count >= LEAST_SHARE * sent and later >= LEAST_SHARE * received[address]:
            found[address] = home
    return found


def _alone(passed: Iterable[Passed], texts: Sequence[str]) -> set[tuple[int, int]]:
    """(address, interface) where nearly all packets of the address's family are from or to it."""
    of_address: Counter[tuple[int, int]] = Counter()
    of_interface: Counter[tuple[bool, int]] = Counter()
    for src, dst, interface, count in passed:
        of_interface[":" in texts[src], interface] += count
        for address in {src, dst}:
            of_address[address, interface] += count
    return {
        (address, interface)
        for (address, interface), count in of_address.items()
        if count >= LEAST_OWN_SHARE * of_interface[":" in texts[address], interface]
    }
