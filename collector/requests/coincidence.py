"""How likely it is that calls were made by requests, and did not fall into their time by chance.

A host's own calls, a daemon's, run whether or not it serves a request: they find one open as often as there is one.
Calls that requests make always do, but for those whose request was not captured. So the share of the time in which the
host served anything decides how much it means that calls found a request open.

Example: two calls of a kind, each while a request was open. On a host that serves for a tenth of the time that would be
chance in one of a hundred cases, so they are the requests' with probability 0.99. On one that nearly always has
something open it means nothing: 0.5.
"""

import math

import numpy as np

from collector.trace.time_columns import Int64Array

IDLE_NS = 1_000_000_000
"""A capture is longer than what happens in it: so long is added to its time, in which nothing is open."""
LEAST_SHARE = 1e-9
"""Instead of a share of 0, which would rule chance out."""
ALONE_SHARE = 0.05
"""Chosen: at most this share of the calls that requests make finds none open, since their request was not captured."""
MOST_LOG_ODDS = 700.0
"""Of float64's exponent, about the most."""


def open_share(opened_ns: Int64Array, closed_ns: Int64Array, first_ns: int, last_ns: int) -> float:
    """The share of the time from `first_ns` to `last_ns`, and of `IDLE_NS`, in which at least one interval was open.

    Arguments: begins and ends of intervals, of shape (n,), in ns of one timescale, in any order.
    """
    order = np.argsort(opened_ns, kind="stable")
    begin = np.clip(opened_ns[order], first_ns, last_ns)
    end = np.maximum.accumulate(np.clip(closed_ns[order], first_ns, last_ns))
    covered = np.maximum(end - np.maximum(begin, np.concatenate(([first_ns], end[:-1]))), 0)
    return float(covered.sum() / (last_ns - first_ns + IDLE_NS))


def made_by_requests(found_open: int, count: int, share: float) -> float:
    """The probability that calls of a kind are made by requests, before which nothing speaks for either.

    Arguments: how many of the calls began while a request was open; how many there are; and `open_share`.
    """
    share = min(max(share, LEAST_SHARE), 1.0 - ALONE_SHARE)
    for_chance = _log_likelihood(found_open, count, share)
    for_requests = _log_likelihood(found_open, count, 1.0 - ALONE_SHARE)
    return 1.0 / (1.0 + math.exp(min(for_chance - for_requests, MOST_LOG_ODDS)))


def _log_likelihood(found_open: int, count: int, probability: float) -> float:
    return found_open * math.log(probability) + (count - found_open) * math.log1p(-probability)
