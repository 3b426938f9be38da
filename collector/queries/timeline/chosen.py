"""Windows over some of a trace's hops: as if there were no others."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collector.queries.timeline.windows import HopIndex, bins_of, neighbours_in, step_for
from collector.trace.time_columns import Int64Array


class ChosenHops(HopIndex):
    """Answers windows of some rows of an index; its other attributes are those of the whole.

    Memory: 32 bytes for each row, once windows are asked for. Cost of a window: a pass over the rows.
    """

    def __init__(self, whole: HopIndex, rows: NDArray[np.intp]) -> None:
        """Arguments: `rows`, ascending."""
        self.__dict__.update(whole.__dict__)
        self._rows = rows

    @cached_property
    def _anchor_ns(self) -> Int64Array:
        return np.asarray(self.columns.anchor_ns[self._rows])

    @cached_property
    def _drawn(self) -> tuple[Int64Array, Int64Array]:
        return self.extents(self._rows)

    @cached_property
    def _drawn_raw(self) -> tuple[Int64Array, Int64Array]:
        return self.raw_extents(self._rows)

    def overlapping(self, from_ns: int, to_ns: int, limit: int) -> NDArray[np.intp] | None:
        """As of the whole."""
        return self._within(self._drawn, from_ns, to_ns, limit)

    def overlapping_raw(self, from_ns: int, to_ns: int, apart_ns: int, limit: int) -> NDArray[np.intp] | None:
        """As of the whole."""
        return self._within(self._drawn_raw, from_ns, to_ns, limit)

    def _within(
        self, drawn: tuple[Int64Array, Int64Array], from_ns: int, to_ns: int, limit: int
    ) -> NDArray[np.intp] | None:
        begin, end = drawn
        rows = self._rows[(begin <= to_ns) & (end >= from_ns)]
        return None if len(rows) > limit else rows

    def sample(self, from_ns: int, to_ns: int, most: int) -> tuple[NDArray[np.intp], int]:
        """As of the whole; trouble is not preferred."""
        begin, end = self._drawn
        places = np.flatnonzero((begin <= to_ns) & (end >= from_ns))
        step = step_for(len(places), most)
        return self._rows[places[places % step == 0]], step

    def count(self, from_ns: int, to_ns: int) -> int:
        """As of the whole."""
        first, last = self._places(from_ns, to_ns)
        return last - first

    def neighbours(self, from_ns: int, to_ns: int) -> tuple[int | None, int | None]:
        """As of the whole."""
        return neighbours_in(self._anchor_ns, from_ns, to_ns)

    def rows_between(self, from_ns: int, to_ns: int, first: int, count: int) -> NDArray[np.intp]:
        """As of the whole."""
        low, high = self._places(from_ns, to_ns)
        return self._rows[low:high][first : first + count]

    def _places(self, from_ns: int, to_ns: int) -> tuple[int, int]:
        low, high = np.searchsorted(self._anchor_ns, (from_ns, to_ns), side="left")
        return int(low), int(high)

    def _bins(self, from_ns: int, to_ns: int, most_bins: int) -> tuple[int, int, int]:
        return bins_of(from_ns, to_ns, most_bins)

    def _counts(
        self,
        first: int,
        last: int,
        shift: int,
        to_column: Callable[[Int64Array], Int64Array],
        width: int,
        of_level: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> NDArray[Any]:
        del of_level  # nothing is counted ahead
        low, high = self._places(first << shift, last << shift)
        return self._counts_of(self._rows[low:high], first, last, shift, to_column, width)
