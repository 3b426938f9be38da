"""Detects captures that hold packets more than once: from a mirror port that copies packets where they enter and leave
the switch, from two ports of a bridge in one file, or from a network card and its bridge captured as one interface.

A copy has the same header as its packet, including IP ID and timestamps, at the same interface, microseconds later. A
single such packet proves nothing (a system whose IP ID is 0 may send the same header again). But such a capture copies
nearly all packets between two addresses, with or without payload, whereas only few packets are retransmitted, and those
a round trip later. So pairs of addresses are judged by a sample of their packets
(`collector/core/partitions/src/sights.rs`); if the sample has too few, by all packets of the interface. The core omits
copies when a partition is taken (`collector/core/partitions/src/copies.rs`), before any other stage.

Captures of several hosts merged into one interface look similar, but there the delays of copies in both directions sum
up to a whole round trip (`collector.decode.merged_captures`).

Limits: a segment that a bridge splits or merges between its ports has another header, so it is no copy. The first sight
in the file is kept; the other one's timestamp is slightly later.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from collector.capture_files.records import Severity
from collector.decode.containers import Passed
from collector.decode.merged_captures import Sighted
from collector.trace.durations import in_words
from collector.trace.model import CounterInfo

COPIES = "copied_packets"
Way = tuple[int, int, int]
"""Source, destination, interface."""
Copying = tuple[int, int, int, int, int]
"""Source, destination, interface, how often it shows each packet, and the longest time between two sights of it
(ns)."""

NEAR_NS = 5_000_000
"""A switch copies a packet to its mirror port within this time, however busy the port is."""
LEAST_NEAR_NS, NEAR_RATIO = 100_000, 8
"""Copies are searched within this time after their packet, or within so many times the delay of nine of ten copies."""
LEAST_SHARE, LEAST_PACKETS = 0.5, 8
"""Least share of copied packets between two addresses, and fewest packets of theirs in the sample that are judged
alone. A busy mirror port drops some copies."""
MOST_ROUND_NS = 50_000
"""Delay of a switch or bridge, both directions together; captures of two hosts are further apart."""


class _Sample(Struct):
    """Counts over packets of a sample: all, copied ones, and their copies' delays."""

    packets: int = 0
    copied: int = 0
    with_payload: int = 0
    copied_with_payload: int = 0
    gaps_ns: list[int] = field(default_factory=list)
    times: Counter[int] = field(default_factory=Counter)

    def add(self, stamps: Sequence[int], payload_len: int) -> None:
        """Add one packet, by its sights in order of time."""
        near = [at for at in stamps if at - stamps[0] <= NEAR_NS]
        self.packets += 1
        self.with_payload += payload_len > 0
        if len(near) > 1:
            self.copied += 1
            self.copied_with_payload += payload_len > 0
            self.gaps_ns.append(near[1] - near[0])
            self.times[len(near)] += 1

    def is_copied(self) -> bool:
        """Whether most packets are copied, also those with payload: a receiver repeats ACKs, but not payload."""
        most = self.copied > LEAST_SHARE * self.packets
        return most and (not self.with_payload or self.copied_with_payload > LEAST_SHARE * self.with_payload)

    def gap_ns(self, tenths: int) -> int:
        """The delay (ns) below which so many tenths of the copies are."""
        return sorted(self.gaps_ns)[len(self.gaps_ns) * tenths // 10]


class Copied(Struct, frozen=True):
    """The copies in a capture: between which addresses, how often it shows a packet, and the usual time between
    sights."""

    ways: tuple[Copying, ...]
    times: int
    usual_ns: int


def copied_packets(seen: Sequence[Sighted], passed: Iterable[Passed]) -> Copied | None:
    """The copies in a capture; None without any.

    Arguments: `seen`, a sample of its packets; `passed`, packet counts by interface. Cost: sorting the sample.
    """
    samples = _samples(seen)
    ways: list[Copying] = []
    kept = _Sample()
    for interface in sorted({interface for _, _, interface in samples}):
        of_interface = {way: sample for way, sample in samples.items() if way[2] == interface}
        if not _is_near(of_interface):
            continue
        whole = _merge_samples(of_interface.values())
        for src, dst, at, _ in passed:
            sample = of_interface.get((src, dst, at))
            if at != interface or src == dst:
                continue
            judged = sample if sample is not None and sample.packets >= LEAST_PACKETS else whole
            if judged.is_copied():
                times = judged.times.most_common(1)[0][0]
                longest_ns = min(NEAR_NS, max(LEAST_NEAR_NS, NEAR_RATIO * judged.gap_ns(9)))
                ways.append((src, dst, at, times, longest_ns))
                kept = _merge_samples((kept, judged))
    return Copied(tuple(ways), kept.times.most_common(1)[0][0], kept.gap_ns(5)) if ways else None


def copies_counter(host: str, files: Sequence[str], copied: Copied, count: int) -> CounterInfo:
    """The counter of packets omitted as copies."""
    often = "twice" if copied.times == 2 else f"{copied.times} times"
    remedy = (
        f"{', '.join(files[:2])}{' …' if len(files) > 2 else ''} holds nearly every packet {often}, "
        f"{in_words(copied.usual_ns)} apart, as a mirror port of both ways or two ports of a bridge make it; each was "
        "taken once"
    )
    return CounterInfo(host, COPIES, Severity.NOTICE, count, remedy)


def _samples(seen: Sequence[Sighted]) -> Mapping[Way, _Sample]:
    """The packets of each pair of addresses, separated by the direction that the capture records."""
    samples: dict[Way, _Sample] = {}
    for src, dst, payload_len, sights in seen:
        stamps: dict[tuple[int, int], list[int]] = {}
        for at, interface, direction in sights:
            stamps.setdefault((interface, direction), []).append(at)
        for (interface, _), of_packet in stamps.items():
            if src != dst:
                samples.setdefault((src, dst, interface), _Sample()).add(of_packet, payload_len)
    return samples


def _merge_samples(samples: Iterable[_Sample]) -> _Sample:
    whole = _Sample()
    for sample in samples:
        whole.packets += sample.packets
        whole.copied += sample.copied
        whole.with_payload += sample.with_payload
        whole.copied_with_payload += sample.copied_with_payload
        whole.gaps_ns += sample.gaps_ns
        whole.times += sample.times
    return whole


def _is_near(samples: Mapping[Way, _Sample]) -> bool:
    """Whether the copies' delays, both directions together, are within those of one device."""
    copied = {way: sample.gap_ns(1) for way, sample in samples.items() if sample.copied}
    rounds = sorted(gap + copied.get((dst, src, at), 0) for (src, dst, at), gap in copied.items())
    return bool(rounds) and rounds[len(rounds) // 2] < MOST_ROUND_NS
