"""Whether two groups differ: Mann and Whitney's test, Welch's interval, p-values of many tests.

SciPy has them too, and takes 0.6 s of CPU time to import: as much as the analysis of a million packets may. Theory:
ranks of all values decide whether one group's tend to be greater, whatever their distribution; the interval takes means
as normal, with variances that differ.

Source: Mann and Whitney (1947), with the correction for ties; Welch (1947); Benjamini and Yekutieli (2001).
"""

from functools import cache
from math import erfc, lgamma, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

MOST_EXACT = 8
"""Values of the smaller group up to which the test is exact, as in SciPy; with more, U is close to normal."""
NODES_COUNT = 64
"""Of the quadrature."""
NORMAL_95 = 1.959964
NEWTON_STEPS = 30


def rank_test(first: Doubles, second: Doubles) -> Doubles:
    """Two-sided p-values of Mann and Whitney's test, one for each column; shapes (n, columns) and (m, columns)."""
    n, m = len(first), len(second)
    at_least = first[:, None] >= second[None]
    above = first[:, None] > second[None]
    wins = (at_least.sum(axis=(0, 1)) + above.sum(axis=(0, 1))) / 2
    u = np.maximum(wins, n * m - wins)
    ties = _ties(np.concatenate([first, second]))
    if min(n, m) <= MOST_EXACT and not ties.any():
        tail = _tails(n, m)[u.astype(np.int64)]
    else:
        deviation = np.sqrt(n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1))))
        with np.errstate(divide="ignore"):  # of equal values all p-values are 1
            z = (u - n * m / 2 - 0.5) / deviation
        tail = np.array([erfc(each / sqrt(2)) / 2 for each in z.tolist()])
    return np.minimum(2 * tail, 1.0)


def half_width_95(first: Doubles, second: Doubles) -> Doubles:
    """Half of Welch's 95 % interval of the difference of means, for each column; 0 if neither group varies."""
    parts = [group.var(axis=0, ddof=1) / len(group) for group in (first, second)]
    variance = parts[0] + parts[1]
    varies = variance > 0
    widths = np.zeros_like(variance)
    squares = parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1)
    freedom = variance[varies] ** 2 / squares[varies]
    widths[varies] = np.sqrt(variance[varies]) * [_t_quantile_95(each) for each in freedom.tolist()]
    return widths


def p_values_of_many(p_values: Doubles) -> Doubles:
    """The p-values of tests that may depend on each other, such that a share of at most p is false."""
    count = len(p_values)
    ranks = np.arange(1, count + 1)
    order = np.argsort(p_values)
    scaled = p_values[order] * count / ranks * (1 / ranks).sum()
    corrected = np.empty(count)
    corrected[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return corrected


def _ties(values: Doubles) -> Doubles:
    """The sum of t³ - t over all t equal values, for each column."""
    counts = (np.unique(column, return_counts=True)[1] for column in values.T)
    return np.array([(count**3 - count).sum() for count in counts], dtype=np.float64)


@cache
def _tails(n: int, m: int) -> Doubles:
    """The probability that U is at least 0, 1, … n·m, if no values are equal."""
    ways = np.zeros(n * m + 1)  # the product of (1 - x^(m + i)) / (1 - x^i) for i = 1 … n: Gauss's binomial
    ways[0] = 1.0
    for i in range(1, n + 1):
        ways[m + i :] -= ways[: -m - i].copy()
        for begin in range(i):
            ways[begin::i] = ways[begin::i].cumsum()
    return ways[::-1].cumsum()[::-1] / ways.sum()


def _t_quantile_95(freedom: float) -> float:
    """What Student's t exceeds in neither direction with 95 %.

    With t = √f · tan a, P(|t| < T) is the integral of 2c · cosᶠ⁻¹ a; Newton's method from the normal quantile, which is
    less, nears the quantile from below, since the integral is concave.
    """
    scale = 2 * np.exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi)
    angle = float(np.arctan(NORMAL_95 / sqrt(freedom)))
    nodes, weights = _quadrature()
    for _ in range(NEWTON_STEPS):
        inside = scale * angle / 2 * (weights * np.cos(angle * (nodes + 1) / 2) ** (freedom - 1)).sum()
        angle += (0.95 - inside) / (scale * np.cos(angle) ** (freedom - 1))
    return float(sqrt(freedom) * np.tan(angle))


@cache
def _quadrature() -> tuple[Doubles, Doubles]:
    """Gauss's nodes between -1 and 1, and their weights. Not made at import: it takes 6 ms, which few reports need."""
    return np.polynomial.legendre.leggauss(NODES_COUNT)
