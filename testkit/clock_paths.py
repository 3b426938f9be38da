"""Scenarios for the likely error of clocks: paths and clocks drawn at random, whose truth is known.

Each draw of a scenario is one capture. Paths are asymmetric as `collector.clocks.likely` assumes (95 % of them by less
than a tenth), but for the scenarios that say otherwise.
"""

from dataclasses import dataclass, replace

import numpy as np

from testkit.clock_traffic import DAY_NS, SECOND_NS, OneWay, SkewedClock, Traffic, Waits, cut_to, simulate_ways

SEEN_ASYMMETRY = 0.1
"""Of 85 pairs of hosts in 13 captures whose clocks were one, 95 % had least delays that differed by less than so much
of their sum."""
NORMAL_95 = 1.96
Range = tuple[float, float]
PAIR = (("a", "b"),)


def short_queues(random: np.random.Generator, at: np.ndarray) -> np.ndarray:
    """Waits of a tenth of the least delay on average, often almost none."""
    return random.exponential(0.1, len(at))


def heavy_tails(random: np.random.Generator, at: np.ndarray) -> np.ndarray:
    """Half of the waits above a fifth of the least delay, one in twenty above eight times that."""
    return random.lognormal(np.log(0.2), 2.2, len(at))


def never_empty(random: np.random.Generator, at: np.ndarray) -> np.ndarray:
    """Waits that are hardly ever near none: the sum of three."""
    return random.gamma(3.0, 0.2, len(at))


def seldom_empty(random: np.random.Generator, at: np.ndarray) -> np.ndarray:
    """A path so busy that one packet in fifty finds it empty; the others wait three times the least delay."""
    return np.where(random.random(len(at)) < 0.02, random.exponential(0.05, len(at)), random.gamma(3.0, 1.0, len(at)))


def one_queue(random: np.random.Generator, at: np.ndarray) -> np.ndarray:
    """One queue at 80 % load that all packets share (Lindley's equation), so that neighbours wait alike."""
    left = random.exponential(0.1, len(at)) - random.exponential(0.125, len(at))
    walk = np.cumsum(left)
    return walk - np.minimum.accumulate(np.minimum(walk, 0.0)) + random.exponential(0.02, len(at))


@dataclass(frozen=True)
class Scenario:
    """Ranges that a capture is drawn from: packets each way, the span, the least delays, the clocks' rates.

    `waits`: the queues there and back. `fewer_back`: packets back for each one there. `step_ns`: each clock is set
    once by so much. `stretch`: how much longer than the other one way may be, beside the asymmetry that is assumed;
    then not all is as `assumed`. `pairs`: who sends to whom.
    """

    name: str
    counts: Range = (50, 1000)
    span_s: Range = (1.0, 60.0)
    least_ns: Range = (2e3, 2e5)
    skew_ppb: float = 50_000.0
    waits: tuple[Waits, Waits] = (short_queues, short_queues)
    stretch: float = 1.0
    fewer_back: float = 1.0
    step_ns: int = 0
    pairs: tuple[tuple[str, str], ...] = PAIR
    tick_ns: int = 0
    assumed: bool = True

    def draw(self, seed: int) -> Traffic:
        """One capture."""
        random = np.random.default_rng(seed)
        span_s = _log_uniform(random, self.span_s)
        clocks = {host: self._clock(random, span_s) for host in sorted({host for pair in self.pairs for host in pair})}
        ways = [way for pair in self.pairs for way in self._ways(random, pair)]
        drawn = simulate_ways(clocks, ways, span_s, seed)
        return replace(drawn, hops=cut_to(drawn.hops, self.tick_ns)) if self.tick_ns else drawn

    def _clock(self, random: np.random.Generator, span_s: float) -> SkewedClock:
        step = (int(random.uniform(0.2, 0.8) * span_s * SECOND_NS), int(random.choice([-1, 1])) * self.step_ns)
        skew = int(random.uniform(-self.skew_ppb, self.skew_ppb))
        return SkewedClock(int(random.integers(-DAY_NS, DAY_NS)), skew, step)

    def _ways(self, random: np.random.Generator, pair: tuple[str, str]) -> list[OneWay]:
        sum_ns = 2 * _log_uniform(random, self.least_ns)
        asymmetry = np.clip(random.normal(0.0, SEEN_ASYMMETRY / NORMAL_95), -0.9, 0.9)
        stretch = self.stretch ** random.uniform(-1, 1)
        there = sum_ns * (1 + asymmetry) / 2
        back = (sum_ns - there) * stretch
        count = int(_log_uniform(random, self.counts))
        fewer = max(int(count * self.fewer_back), 1)
        return [
            OneWay(*pair, count, int(there), self.waits[0]),
            OneWay(*pair[::-1], fewer, int(back), self.waits[1]),
        ]


def _log_uniform(random: np.random.Generator, among: Range) -> float:
    return float(np.exp(random.uniform(*np.log(among))))


SCENARIOS = [
    Scenario("short queues"),
    Scenario("heavy tails", waits=(heavy_tails, heavy_tails)),
    Scenario("queues never empty", waits=(never_empty, never_empty)),
    Scenario("one queue that all packets share, at 80 % load", waits=(one_queue, one_queue)),
    Scenario("one way busy: one packet in 50 finds it empty", (200, 2000), waits=(seldom_empty, short_queues)),
    Scenario("one way never empty, the other short", waits=(never_empty, short_queues)),
    Scenario("2 to 10 packets each way", (2, 11), (0.01, 1.0)),
    Scenario("2 to 10 packets each way, heavy tails", (2, 11), (0.01, 1.0), waits=(heavy_tails, heavy_tails)),
    Scenario("100 packets there, 5 back", (100, 101), fewer_back=0.05),
    Scenario("100 packets there, 1 back", (100, 101), fewer_back=0.01),
    Scenario("an hour, 200 ppm", (200, 2000), (3600, 3601), skew_ppb=200_000),
    Scenario("steps of 50 ms", (200, 1000), step_ns=50_000_000),
    Scenario("20 ms away, jitter", (50, 1000), least_ns=(1e7, 3e7), waits=(never_empty, heavy_tails)),
    Scenario("stamps in whole microseconds", tick_ns=1_000),
    Scenario("star of four hosts", pairs=(("a", "b"), ("a", "c"), ("a", "d"))),
    Scenario("ring of four hosts", pairs=(("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))),
    Scenario("chain of five, ends by third hosts", pairs=(("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"))),
    Scenario("one way up to 1.5 times as long", stretch=1.5, assumed=False),
    Scenario("one way up to 10 times as long", stretch=10.0, assumed=False),
]
