"""Which addresses a capture's host has, and so which way each packet went.

A capture that knows tells it: pcapng direction flags, Linux cooked captures, an agent's name records. A plain Ethernet
capture does not. There, a host's own addresses are those that every packet of its capture has at one end; where the
peer is always the same one both ends qualify, and the other captures decide, or at last the answers: the gap from a
packet (a SYN, or bytes) to the first that acknowledges it holds a round trip at the host that sent it, and only the
receiver's own work at the one that answered.

Limits: the capture of a router or a switch has no own end; its packets stay without direction, and a counter says so.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tracer.records import Columns, Direction, TcpFlag

Answer = tuple[int, int]
"""Acknowledgment and sequence number of a packet: the same at both ends, even where addresses are translated."""
ENOUGH_ANSWERS = 1000
MOST_ROWS = 4 * ENOUGH_ANSWERS
"""Packets of a batch that are looked at one by one."""
SPREAD = 0x9E3779B1
"""2^32 over the golden ratio: multiplying by it spreads numbers evenly (Knuth, TAOCP 3, §6.4)."""
LARGEST_HASH = 0xFFFFFFFF
MOST_ASKED = 1 << 16
"""Packets that wait for their answer: under a flood of SYNs most have none, and few of them tell enough."""
ENOUGH_PAIRS = 1 << 16
"""Pairs of addresses that tell a host's own well enough: bounds memory where sources are forged."""
MOST_COUNTERS = 1 << 20

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


def directions(events: Columns, own: frozenset[int]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Direction of each event (`Direction`) and whether it stayed inside the host; shapes (n,).

    Arguments: `events` with `direction`, `src_addr`, `dst_addr`; `own` the host's addresses, loopback ones too.
    """
    told = events["direction"].astype(np.uint8)
    size = 1 + max(int(events["src_addr"].max(initial=0)), int(events["dst_addr"].max(initial=0)), *own)
    is_own = np.zeros(size, dtype=bool)
    is_own[list(own)] = True
    from_own, to_own = is_own[events["src_addr"]], is_own[events["dst_addr"]]
    inside = from_own & to_own
    inferred = np.where(from_own, Direction.SEND, np.where(to_own, Direction.RECEIVE, Direction.UNKNOWN))
    known = np.where(told == Direction.UNKNOWN, inferred, told).astype(np.uint8)
    known[inside] = Direction.RECEIVE
    return known, inside


def address_pairs(events: Columns) -> dict[AddressPair, int]:
    """Packets of each (source, destination). Cost: linear where there are few addresses."""
    src, dst = events["src_addr"].astype(np.int64), events["dst_addr"].astype(np.int64)
    size = int(max(src.max(initial=0), dst.max(initial=0))) + 1
    if size * size <= MOST_COUNTERS:
        counts = np.bincount(src * size + dst, minlength=1)
        keys = np.flatnonzero(counts)
        return {(int(key) // size, int(key) % size): int(counts[key]) for key in keys}
    keys, numbers = np.unique(src * size + dst, return_counts=True)
    return {divmod(int(key), size): int(number) for key, number in zip(keys, numbers, strict=True)}


def told_by_direction(events: Columns) -> tuple[frozenset[int], frozenset[int]]:
    """Addresses that the host sent from or received at, and those that it received from or sent to.

    One that is in both belongs to packets that only passed through.
    """
    sent, received = (events["direction"] == way for way in (Direction.SEND, Direction.RECEIVE))
    if not sent.any() and not received.any():
        return frozenset(), frozenset()
    own = np.union1d(events["src_addr"][sent], events["dst_addr"][received])
    others = np.union1d(events["src_addr"][received], events["dst_addr"][sent])
    return frozenset(own.tolist()), frozenset(others.tolist())


@dataclass(slots=True)
class AnswerGaps:
    """Of some packets of a capture: who sent it, who acknowledged its end first, and the time between.

    Those are kept whose sequence number has a small hash, the smaller the more there are: so the captures of two hosts
    keep the same ones, however much earlier one of them began.
    """

    by_answer: dict[Answer, tuple[int, int, int]] = field(default_factory=dict)
    _asked: dict[tuple[int, int, int, int, int], int] = field(default_factory=dict)
    _below: int = LARGEST_HASH

    def add(self, events: Columns) -> None:
        """Note the answers of a batch. Cost: linear, and a step in Python for up to `MOST_ROWS` packets."""
        end = _sequence_end(events)
        asked = _hashed(end, end != events["seq"])
        answered = _hashed(events["ack"], events["flags"] & np.uint16(TcpFlag.ACK) != 0)
        self._keep_few(asked, answered)
        asking, answering = asked < self._below, answered < self._below
        rows = np.flatnonzero(asking | answering)
        names = ("src_addr", "src_port", "dst_addr", "dst_port", "host_ns", "seq")
        columns = [*(events[name][rows].astype(np.int64).tolist() for name in names)]
        marks = (array[rows].tolist() for array in (end, events["ack"], asking, answering))
        for sa, sp, da, dp, ns, seq, last, ack, is_asking, is_answering in zip(*columns, *marks, strict=True):
            asked_ns = self._asked.pop((da, dp, sa, sp, ack), None) if is_answering else None
            if asked_ns is not None:
                self.by_answer.setdefault((ack, seq), (da, sa, ns - asked_ns))
            if is_asking:
                self._asked.setdefault((sa, sp, da, dp, last), ns)
        if len(self.by_answer) > ENOUGH_ANSWERS or len(self._asked) > MOST_ASKED:
            self._keep_below(self._below // 2)

    def _keep_few(self, asked: NDArray[np.uint32], answered: NDArray[np.uint32]) -> None:
        """Lower the limit so that no batch holds more than about `MOST_ROWS` packets below it."""
        for hashed in (asked, answered):
            if np.count_nonzero(hashed < self._below) > MOST_ROWS:
                self._keep_below(int(np.partition(hashed, MOST_ROWS)[MOST_ROWS]))

    def _keep_below(self, below: int) -> None:
        self._below = below
        self.by_answer = {key: gap for key, gap in self.by_answer.items() if _hash(key[0]) < below}
        self._asked = {key: ns for key, ns in self._asked.items() if _hash(key[4]) < below}


def _sequence_end(events: Columns) -> NDArray[np.uint32]:
    """Sequence number after the last byte; SYN and FIN count as one each (RFC 9293 §3.4)."""
    flags = events["flags"]
    syn, fin = flags & np.uint16(TcpFlag.SYN) != 0, flags & np.uint16(TcpFlag.FIN) != 0
    end: NDArray[np.uint32] = events["seq"] + events["payload_len"] + syn + fin
    return end


def _hash(number: int) -> int:
    return number * SPREAD & LARGEST_HASH


def _hashed(numbers: NDArray[np.uint32], counts: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Hashes of numbers; the largest of all where a number does not count."""
    return np.where(counts, numbers * np.uint32(SPREAD), np.uint32(LARGEST_HASH))


def _decide_one(captures: Sequence[Traffic], found: list[frozenset[int] | None], undecided: Sequence[int]) -> None:
    """Settle one capture that the pairs leave open, by its answers' gaps; give up on one if none can be settled."""
    for index in undecided:
        for other in range(len(captures)):
            side = _side_of(captures[index], captures[other]) if other != index else None
            if side is not None:
                found[index] = side
                return
    found[undecided[0]] = _covering(captures[undecided[0]])


def _side_of(one: Traffic, other: Traffic) -> frozenset[int] | None:
    """Address of the first capture's host: of who asked where its gaps are the longer ones, else of who answered."""
    votes = Counter(
        one.gaps_ns[key][0 if one.gaps_ns[key][2] > other.gaps_ns[key][2] else 1]
        for key in one.gaps_ns.keys() & other.gaps_ns.keys()
        if one.gaps_ns[key][2] != other.gaps_ns[key][2]
    )
    address, count = next(iter(votes.most_common(1)), (0, 0))
    return frozenset({address}) if 2 * count > votes.total() else None


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
