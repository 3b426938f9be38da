"""Detects the containers of a captured node: addresses behind its interfaces, each of which gets a lane of its own.

On the host's side of a bridge, a packet between two containers is seen twice: first at its sender's interface (veth),
then at its receiver's; once more on the bridge itself, before or after that; and with `-i any` at all of these. The
sight at the sender's interface counts as its sending, that at the receiver's as its receiving, both by one clock. An
address is behind an interface if all its packets are first seen there, packets to it are seen there after their first
sight, and hardly any other packets pass there.

The host itself and networks that it routes do not qualify: if the capture records directions, packets from the host are
first seen as sent, and packets of others pass the bridge as well. Addresses become lanes only if at least two of them
exchange packets; otherwise all belong to the host (`collector.decode.host_addresses`).

Limits: a capture may not distinguish its interfaces (`mergecap` without `-I none`, if files describe theirs alike).
Equal timestamps, as in captures with microseconds, show no order, so other packets must. An uplink with a single peer
whose address is not translated is mistaken for that peer's interface. Several addresses of one family behind one
interface may be a network, and get no lane.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from collector.capture_files.records import Direction

Sight = tuple[int, int, int]
"""A packet at an interface of a host: timestamp (ns), interface, and the direction's code."""
Passage = tuple[int, int, Sequence[Sight]]
"""Source, destination, and the sights of a packet between them, by time."""
Passed = tuple[int, int, int, int]
"""Source, destination, interface, and number of packets."""

LEAST_SHARE, LEAST_PASSAGES = 0.9, 3
"""Share of an address's packets that must be seen at its interface first (for packets to it: later), and fewest packets
in each direction."""
LEAST_OWN_SHARE = 0.98
"""Share of an interface's packets that must be its address's: a bridge floods a few before it has learned the ports."""


class Container(Struct, frozen=True):
    """A lane: its addresses, the first of which names it, and its interface; by number."""

    addresses: tuple[int, ...]
    interface: int


def containers(
    passages: Sequence[Passage], passed: Iterable[Passed], texts: Sequence[str], owned: Collection[int]
) -> list[Container]:
    """The lanes of a captured host, by interface; none unless two of them exchange packets.

    Arguments: `passages` of a sample of its packets; `passed`, packet counts by interface; `texts` of the addresses;
    `owned`, addresses of other captures' hosts. Cost: linear in the passages, of which there are a few thousand.
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
    """For each address, the interface at which its packets are first seen, and packets to it later."""
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
    """The (address, interface) for which nearly all packets of the address's family are from or to the address."""
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
