"""Measures of requests that words choose, for triggers and for assertions."""

import math

import numpy as np
from numpy.typing import NDArray

AGGREGATE = r"p\d{1,2}(?:\.\d{1,3})?|mean|max"


def aggregate_ns(name: str, ascending_ns: NDArray[np.int64]) -> int:
    """A percentile (`p99`, by nearest rank), the mean or the maximum of durations."""
    if name == "mean":
        return round(float(ascending_ns.mean()))
    if name == "max":
        return int(ascending_ns[-1])
    rank = math.ceil(float(name[1:]) / 100 * len(ascending_ns))
    return int(ascending_ns[max(1, rank) - 1])
