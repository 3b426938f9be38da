"""Clocks of many hosts that step, as in a fault run: are delays within their error bars?

    python -m benchmarks.clock_steps [--hosts 20] [--seconds 400] [--seeds 3]

Simulated: a ring of hosts, each of which asks the next one 50 times a second. Some packets wait long. Each host is
restarted up to twice: for one to two seconds it captures nothing, its clock is right again after that, and some seconds
later it steps by up to 2 s. The true delay of each packet is known.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.clocks.alignment import align
from collector.clocks.evidence import Evidence, ways_of
from collector.clocks.solve import solve
from collector.clocks.steps import hops_near, refine_steps
from testkit.clock_traffic import SECOND_NS, START_NS

Floats, Ints = NDArray[np.float64], NDArray[np.int64]
RATE = 50
MOST_STEP_S = 2.0
SLACK_NS = 5
"""Of rounding."""


@dataclass
class Clock:
    """Of a host: its skew, its offsets, each from a time on (ns), and when nothing was captured."""

    skew_ppb: int
    offsets: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def read(self, at_ns: Ints) -> Ints:
        """Its readings at these times."""
        begins, values = (np.array(each) for each in zip(*self.offsets, strict=True))
        offset = values[np.searchsorted(begins, at_ns, side="right") - 1]
        return START_NS + at_ns + offset + np.rint(at_ns * (self.skew_ppb / 1e9)).astype(np.int64)

    def misses(self, at_ns: Ints) -> NDArray[np.bool_]:
        """Whether a packet at these times was not captured."""
        missed = np.zeros(len(at_ns), dtype=np.bool_)
        for begin, end in self.gaps:
            missed |= (at_ns >= begin) & (at_ns < end)
        return missed


def make_clock(random: np.random.Generator, span_s: float) -> Clock:
    """A clock that steps up to twice."""
    clock, at_s = Clock(int(random.normal(0, 5_000))), random.uniform(5, span_s - 30)
    for _ in range(int(random.integers(0, 3))):
        if at_s > span_s - 25:
            break
        right, step = at_s + 0.5, at_s + random.uniform(4, 13)
        clock.gaps.append((_ns(at_s), _ns(at_s + random.uniform(1, 2))))
        clock.offsets += [(_ns(right), 0), (_ns(step), _ns(random.uniform(-MOST_STEP_S, MOST_STEP_S)))]
        at_s += random.uniform(20, 100)
    return clock


@dataclass
class Sent:
    """Packets: from whom, to whom (places of hosts), and when (ns)."""

    sender: Ints
    receiver: Ints
    sent_ns: Ints
    received_ns: Ints

    def of(self, chosen: NDArray[np.bool_]) -> "Sent":
        """Some of them."""
        return Sent(*(each[chosen] for each in (self.sender, self.receiver, self.sent_ns, self.received_ns)))


def make_packets(random: np.random.Generator, hosts_count: int, span_s: float) -> Sent:
    """Requests of each host to the next one, and their answers."""
    parts = []
    for host in range(hosts_count):
        asked = np.cumsum(random.exponential(1 / RATE, int(span_s * RATE * 1.2)))
        asked = asked[asked < span_s - 1]
        other = (host + 1) % hosts_count
        arrived = asked + _delays_s(random, len(asked))
        answered = arrived + 0.0002 + random.exponential(0.002, len(asked))
        back = answered + _delays_s(random, len(asked))
        for ends, times in (((host, other), (asked, arrived)), ((other, host), (answered, back))):
            parts.append(
                [*(np.full(len(asked), end) for end in ends), *((each * 1e9).astype(np.int64) for each in times)]
            )
    return Sent(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _delays_s(random: np.random.Generator, count: int) -> Floats:
    usual = 30e-6 + random.exponential(20e-6, count)
    late = (random.random(count) < 0.02) * random.exponential(0.02, count)
    return usual + late + (random.random(count) < 0.001) * random.exponential(0.1, count)


def as_hops(packets: Sent, clocks: Sequence[Clock]) -> tuple[pa.Table, dict[str, int]]:
    """The hops as matching makes them, and how many packets each host captured."""
    ends = {"send": (packets.sender, packets.sent_ns), "receive": (packets.receiver, packets.received_ns)}
    count = len(packets.sender)
    kinds = {"host_ns": np.int64, "frame": np.uint32}
    columns = {f"{end}_{name}": np.zeros(count, kind) for end in ends for name, kind in kinds.items()}
    counts = {}
    for place, clock in enumerate(clocks):
        captured = np.sort(np.concatenate([at_ns[hosts == place] for hosts, at_ns in ends.values()]))
        counts[f"h{place + 1}"] = len(captured)
        for end, (hosts, at_ns) in ends.items():
            own = hosts == place
            columns[f"{end}_host_ns"][own] = clock.read(at_ns[own])
            columns[f"{end}_frame"][own] = np.searchsorted(captured, at_ns[own]) + 1
    names = np.array(list(counts))
    hosts_of = {f"{end}_host": names[hosts] for end, (hosts, _) in ends.items()}
    rest = {"kind": ["data"] * count, "state": ["matched"] * count, "stream_end": np.full(count, 100)}
    return pa.table(hosts_of | columns | rest), counts


def run(seed: int, hosts_count: int, span_s: float) -> str:
    """A row of the table."""
    random = np.random.default_rng(seed)
    clocks = [make_clock(random, span_s) for _ in range(hosts_count)]
    packets = make_packets(random, hosts_count, span_s)
    for place, clock in enumerate(clocks):
        lost = (packets.sender == place) & clock.misses(packets.sent_ns)
        packets = packets.of(~(lost | ((packets.receiver == place) & clock.misses(packets.received_ns))))
    hops, counts = as_hops(packets, clocks)
    windows = [
        (name, *clock.read(np.array([0, _ns(span_s)])).tolist()) for name, clock in zip(counts, clocks, strict=True)
    ]
    begin_s = time.process_time()
    evidence = Evidence(counts)
    evidence.add(ways_of(hops))
    aligned = align(hops, solve(refine_steps(evidence, lambda near: [hops_near(ways_of(hops), near)]), windows))
    spent_s = time.process_time() - begin_s
    error = np.abs(aligned["one_way_delay_ns"].to_numpy() - (packets.received_ns - packets.sent_ns))
    wrong = error > aligned["uncertainty_ns"].to_numpy() + SLACK_NS
    steps_count = sum(len(clock.offsets) - 1 for clock in clocks)
    most_ms = error[wrong].max() / 1e6 if wrong.any() else 0.0
    return f"| {seed} | {len(hops):,} | {steps_count} | {wrong.sum():,} | {most_ms:,.3f} | {spent_s:.1f} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.clock_steps", description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    print("| seed | hops | steps | off by more than the error bar | by up to, ms | CPU s |\n|---|--:|--:|--:|--:|--:|")
    for seed in range(options.seeds):
        print(run(seed, options.hosts, options.seconds), flush=True)
    return 0


def _ns(seconds: float) -> int:
    return round(seconds * SECOND_NS)


if __name__ == "__main__":
    sys.exit(main())
