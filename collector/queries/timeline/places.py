"""Positions of ids in a list of them, looked up many at a time."""

import numpy as np
from numpy.typing import NDArray

from collector.trace.time_columns import Int64Array

SPARE_IDS = 1 << 20
"""A table of all ids has at most so many places more than eight for each id."""


class Places:
    """Positions of ids in a list of them, looked up many at a time. Ids count up from a few far-apart numbers."""

    def __init__(self, ids: Int64Array) -> None:
        """Arguments: `ids`, each ≥ 0 and there once."""
        high, low = ids >> 32, ids & 0xFFFF_FFFF
        self._high, place = np.unique(high, return_inverse=True)
        sizes = np.zeros(len(self._high), np.int64)
        np.maximum.at(sizes, place, low + 1)
        self._end = np.cumsum(sizes)
        self._first = self._end - sizes
        self._dense = int(sizes.sum()) <= 8 * len(ids) + SPARE_IDS
        if self._dense:
            self._lookup = np.full(int(sizes.sum()), -1, np.int32)
            self._lookup[self._first[place] + low] = np.arange(len(ids), dtype=np.int32)
        else:
            self._order = np.argsort(ids)
            self._sorted = ids[self._order]

    def of(self, ids: Int64Array) -> NDArray[np.int32]:
        """The position of each, -1 where it is not in the list."""
        if not len(self._high):
            return np.full(len(ids), -1, np.int32)
        if not self._dense:
            at = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
            return np.where(self._sorted[at] == ids, self._order[at], -1).astype(np.int32)
        high = np.minimum(np.searchsorted(self._high, ids >> 32), len(self._high) - 1)
        place = self._first[high] + (ids & 0xFFFF_FFFF)
        known = (self._high[high] == ids >> 32) & (place < self._end[high])
        return np.where(known, self._lookup[np.where(known, place, 0)], -1).astype(np.int32)
