"""How far the difference of two clocks is likely off: an error at 95 %, beside the bound that always holds.

The bound (`collector.clocks.bounds`) is the worst case: a path that costs all of the least round trip one way. Here the
same packets are read as a sample. A packet from A to B shows u = theta + d + q, one from B to A
v = -theta + e + p: theta is the clocks' difference, d and e are the least delays there and back, p and q are what a
packet waited beyond them. With F and B the least u and v seen, and E and G what even these had waited,

    theta = (F - B) / 2 - (E - G) / 2 - asymmetry * (F + B - E - G) / 2,    asymmetry = (d - e) / (d + e)

1. Of each direction keep the least of each of `BLOCKS` stretches in time: packets of one stretch share their queues.
2. The lower half of these have a density of waits like a power just above the least delay: the lowest, x_1 to x_r, have
   the likelihood c^r * product of (x_i - d)^(c - 1) / (x_r - d)^(c * r) for the shape c (`SHAPES`), scale left out.
   That is a distribution of E; it has no mean for few packets. One packet alone says nothing.
3. The rate of theta has the likelihood T_there^(1 - r) * T_back^(1 - r), T being the sum of waits beyond the lowest
   ("time on test"), and the prior of `TYPICAL_SKEW_PPB`.
4. The asymmetry is what the packets of two hosts cannot show: `ASYMMETRY` bounds that of 95 % of paths.
5. `SAMPLES` draws of all four give the distribution of the solution's error at each time; its quantile is the answer.

Invariant: 0 <= likely error <= bound. Limits: paths that take longer one way by more than `ASYMMETRY`, queues that
never emptied while captured, and clocks whose rate changes are within the bound only. Units as in
`collector.clocks.bounds`.

Source: the end of a distribution from its lowest values as in Robson and Whitlock (1964) and Hall (1982, with a shape);
time on test: Epstein and Sobel (1954). Calibration: `benchmarks/likely_error.py`, docs/pairing.md.
"""

from functools import cache
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector.clocks.bounds import Floats

CONFIDENCE = 0.95
BLOCKS = 64
"""Stretches of a direction, whose lowest packets are taken as independent."""
ASYMMETRY = 0.125
"""Of 85 pairs of hosts in 13 captures whose clocks were one (virtual links of one kernel, plain and shaped), 95 % had
least delays that differed by less than 0.10 of their sum, and all by less than 0.16; with a margin of a quarter."""
TYPICAL_SKEW_PPB = 20_000.0
"""Half of all pairs of clocks are taken to drift apart by less: quartz is specified to 20 to 100 ppm. The tails are
those of Cauchy's distribution, so that 500 ppm (RFC 5905's limit) are possible."""
SHAPES = np.array([1.0, 1.5, 2.0, 3.0, 4.0])
"""1: waits like those of a queue that is often empty; 4: the sum of four of them, seldom near nothing."""
WAITS = np.geomspace(1e-4, 1e3, 141)
"""Waits of the lowest packet that are tried, in shares of the range of those used."""
LEAST_SPREAD_NS = 1.0
SAMPLES = 512
LEAST_POSSIBLE = SAMPLES // 8
"""With fewer draws that leave a delay to the least packets, the model does not fit."""
RATES, RATE_ROUNDS, LARGEST_RATE_PPB = 65, 4, 1e6
"""Grids of rates: each covers those for which the one before found any weight; the last is finer than 0.1 ppb."""
LEAST_LOG_WEIGHT = -12.0
NORMAL_95 = 1.96
CUT_TWICE_95 = 1.0 - 0.05**0.5
"""95 % of differences of two evenly spread cuts, in ticks: their density is a triangle."""


class Side(Struct, frozen=True):
    """Packets of one direction: time (s, ascending), and what each says of the clocks' difference (ns); `sign` +1 if
    that bounds it from above, -1 if its negative does from below."""

    times_s: Floats
    values_ns: Floats
    sign: int

    @property
    def used_count(self) -> int:
        """How many of the lowest are used: further up, waits need not follow a power."""
        return len(self.times_s) // 2 + 1

    def levels(self, skews_ppb: Floats) -> Floats:
        """The values with each of these rates taken out, shape (skews, packets)."""
        return self.values_ns - self.sign * np.multiply.outer(skews_ppb, self.times_s)

    def lowest(self, skew_ppb: float) -> "Side":
        """The least of each of `BLOCKS` stretches, were the clocks to drift apart at this rate."""
        count = len(self.times_s)
        if count <= BLOCKS:
            return self
        starts = np.arange(BLOCKS) * count // BLOCKS
        stretch = np.searchsorted(starts, np.arange(count), side="right")
        kept = np.lexsort((self.levels(np.array([skew_ppb]))[0], stretch))[starts]
        return Side(self.times_s[kept], self.values_ns[kept], self.sign)

    def least(self, skews_ppb: Floats) -> Floats:
        """The least level at each rate."""
        return self.levels(skews_ppb).min(axis=1)

    def log_likelihood(self, skews_ppb: Floats) -> Floats:
        """Of each rate, but for a constant."""
        levels = self.levels(skews_ppb)
        levels.partition((0, self.used_count - 1), axis=1)
        waits = levels[:, : self.used_count] - levels[:, [0]]
        on_test = waits.sum(axis=1) + (len(self.times_s) - self.used_count) * waits.max(axis=1)
        return (1 - self.used_count) * np.log(np.maximum(on_test, 1.0))

    def waits(self, skew_ppb: float, uniform: Floats) -> Floats:
        """What the lowest packet waited, at these quantiles, were the clocks to drift apart at this rate."""
        lowest = np.sort(self.levels(np.array([skew_ppb]))[0])[: self.used_count]
        beyond = lowest - lowest[0]
        tried = max(float(beyond[-1]), LEAST_SPREAD_NS) * WAITS
        logs = np.log(beyond + tried[:, None])
        below_last = self.used_count * logs[:, -1] - logs.sum(axis=1)
        log_density = (self.used_count - 1) * np.log(SHAPES) - np.multiply.outer(below_last, SHAPES)
        log_density += (np.log(tried) - logs.sum(axis=1))[:, None]  # the grid is even in the logarithm
        mass = np.cumsum(np.exp(log_density - log_density.max()).sum(axis=1))
        return np.interp(uniform * mass[-1], mass, tried)


class Line(Struct, frozen=True):
    """The solution for a pair: offset (ns) at time 0 and skew (ppb)."""

    offset_ns: float
    skew_ppb: float


class PacketsBetween(Struct, frozen=True):
    """The packets of two hosts, in both directions; `tick_ns`, how coarse their stamps are."""

    there: Side
    back: Side
    tick_ns: int


def side_of(times_s: Floats, values_ns: NDArray[np.int64], sign: int) -> Side:
    """Packets of one direction, in any order."""
    order = np.argsort(times_s, kind="stable")
    return Side(times_s[order], values_ns[order].astype(np.float64), sign)


def likely_errors(packets: PacketsBetween, line: Line, knots_s: Floats, bound_ns: Floats) -> Floats:
    """The error that 95 % of solutions stay below, at each knot, in ns; shape as `knots_s`.

    Arguments: `bound_ns`, the bound at each knot, which stands where there is too little evidence. Cost: ~3 ms.
    """
    there, back = (side.lowest(line.skew_ppb) for side in (packets.there, packets.back))
    if min(there.used_count, back.used_count) < 2:
        return bound_ns
    by_skew, by_there, by_back, path_normal, cut_there, cut_back = draws()
    skews = _skews(there, back, line.skew_ppb, by_skew)
    middle = float(np.median(skews))
    wait_there = there.waits(middle, by_there) + packets.tick_ns * cut_there
    wait_back = back.waits(middle, by_back) + packets.tick_ns * cut_back
    upper, lower = there.least(skews), back.least(skews)
    least = upper + lower - wait_there - wait_back
    possible = least >= 0
    if possible.sum() < LEAST_POSSIBLE:
        return bound_ns
    asymmetry = ASYMMETRY / NORMAL_95 * path_normal
    offset = (upper - lower - wait_there + wait_back - asymmetry * least) / 2
    theta = (offset[:, None] + np.multiply.outer(skews, knots_s))[possible]
    error = np.abs(theta - (line.offset_ns + line.skew_ppb * knots_s))
    return np.minimum(np.quantile(error, CONFIDENCE, axis=0), bound_ns)


def likely_with_ticks(likely_ns: Floats, tick_ns: int) -> Floats:
    """The likely error of a delay from that of the clocks: its two stamps are cut to a tick, too."""
    return np.hypot(likely_ns, CUT_TWICE_95 * tick_ns)


@cache
def draws() -> Floats:
    """Points that fill a cube evenly, shape (6, samples); of the fourth coordinate, the normal quantiles."""
    points = np.array([_van_der_corput(base) for base in (2, 3, 5, 7, 11, 13)])
    points[3] = [NormalDist().inv_cdf(share) for share in points[3].tolist()]
    return points


def _van_der_corput(base: int) -> Floats:
    """The first `SAMPLES` numbers, their digits in this base reversed behind the point: several primes fill a cube.

    Source: Halton, "On the efficiency of certain quasi-random sequences of points" (1960).
    """
    rest, places, share = np.arange(1, SAMPLES + 1), np.zeros(SAMPLES), 1.0 / base
    while rest.any():
        rest, digit = np.divmod(rest, base)
        places += digit * share
        share /= base
    return places


def _skews(there: Side, back: Side, near_ppb: float, uniform: Floats) -> Floats:
    """Rates of the clocks' difference at these quantiles of their distribution."""
    low, high = -LARGEST_RATE_PPB, LARGEST_RATE_PPB
    for _ in range(RATE_ROUNDS):
        rates = np.union1d(np.linspace(low, high, RATES), np.clip([near_ppb, 0.0], low, high))
        weights = _log_weights(there, back, rates)
        kept = np.flatnonzero(weights > weights.max() + LEAST_LOG_WEIGHT)
        low, high = rates[max(kept[0] - 1, 0)], rates[min(kept[-1] + 1, len(rates) - 1)]
    density = np.exp(weights - weights.max())
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(rates))])
    return np.interp(uniform * mass[-1], mass, rates)


def _log_weights(there: Side, back: Side, rates: Floats) -> Floats:
    """Of each rate; -infinity where packets would arrive before they were sent."""
    weights = there.log_likelihood(rates) + back.log_likelihood(rates) - np.log1p((rates / TYPICAL_SKEW_PPB) ** 2)
    room = there.least(rates) + back.least(rates)
    fits = room >= min(-1.0, room.max())  # of a grid too coarse for the few rates that fit, the nearest
    return np.where(fits, weights, -np.inf)
