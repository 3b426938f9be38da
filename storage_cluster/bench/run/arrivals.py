"""Computes when the requests of an open loop and the workers of a ramp are due. Pure functions of time, in seconds.

A ramp is a line of straight pieces: from what the work says, to `step.to` within `step.seconds`, and so on; then it
stays. For an open loop it is the rate: arrivals are where the integral of the rate passes the next whole number (even),
or the next sum of exponential waits (Poisson). For a closed loop it is the number of workers that work.
"""

import bisect
import itertools
import math
import random
from collections.abc import Iterator, Sequence

from storage_cluster.bench.model import Arrivals, OpenLoop, Step


class Ramp:
    """A quantity over time."""

    def __init__(self, start: float, steps: Sequence[Step]) -> None:
        self._times = [0.0, *itertools.accumulate(step.seconds for step in steps)]
        self._levels = [start, *(step.to for step in steps)]
        areas = (
            (a + b) / 2 * (to - since)
            for a, b, since, to in zip(self._levels, self._levels[1:], self._times, self._times[1:], strict=False)
        )
        self._sums = [0.0, *itertools.accumulate(areas)]

    @property
    def highest(self) -> float:
        """The maximum."""
        return max(self._levels)

    def level(self, time_s: float) -> float:
        """The value at that time."""
        if time_s >= self._times[-1]:
            return self._levels[-1]
        at = bisect.bisect_right(self._times, time_s) - 1
        span = self._times[at + 1] - self._times[at]
        return self._levels[at] + (self._levels[at + 1] - self._levels[at]) * (time_s - self._times[at]) / span

    def time_of(self, total: float) -> float:
        """When the integral reaches `total`; infinity if never."""
        at = bisect.bisect_right(self._sums, total) - 1
        since, level, missing = self._times[at], self._levels[at], total - self._sums[at]
        if at == len(self._times) - 1:
            return since + missing / level if level > 0 else (since if missing <= 0 else math.inf)
        span = self._times[at + 1] - since
        slope = (self._levels[at + 1] - level) / span if span else 0.0
        return since + _root(slope / 2, level, missing)

    def next_at_least(self, wanted: float, since_s: float) -> float:
        """The first time from `since_s` on at which it is `wanted` or more; infinity if never."""
        if self.level(since_s) >= wanted:
            return since_s
        for at in range(len(self._times) - 1):
            to, low, high = self._times[at + 1], self._levels[at], self._levels[at + 1]
            if to > since_s and high >= wanted:
                reached = self._times[at] + (to - self._times[at]) * max(wanted - low, 0.0) / (high - low or 1.0)
                return max(reached, since_s)
        return math.inf


def arrivals(load: OpenLoop, ramp: Sequence[Step], rng: random.Random, share: float = 1.0) -> Iterator[float]:
    """When each request is due, from the start of the work; `share` is this process's part of the rate."""
    rate = Ramp(load.rate_per_s * share, [Step(step.seconds, step.to * share) for step in ramp])
    total = 0.0
    while True:
        total += rng.expovariate(1.0) if load.arrivals is Arrivals.POISSON else 1.0
        due = rate.time_of(total)
        if due == math.inf:
            return
        yield due


def _root(a: float, b: float, c: float) -> float:
    """The smallest x ≥ 0 with a·x² + b·x = c."""
    if abs(a) < 1e-12:
        return c / b if b else 0.0
    return (-b + math.sqrt(max(b * b + 4 * a * c, 0.0))) / (2 * a)
