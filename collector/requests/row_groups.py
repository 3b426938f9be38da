"""Divides rows by the values that they have."""

import numpy as np
from numpy.typing import NDArray

from collector.trace.time_columns import Int64Array


def rows_alike(*keys: NDArray[np.generic]) -> list[Int64Array]:
    """For each key that occurs, the places where it does."""
    order = np.lexsort(keys)
    new = np.zeros(len(order), dtype=np.bool_)
    for key in keys:
        new |= np.diff(key[order].astype(np.int64), prepend=-2) != 0
    return np.split(order, np.flatnonzero(new)[1:]) if len(order) else []
