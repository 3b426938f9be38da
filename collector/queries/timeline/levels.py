"""Counts hops in advance in bins of time: levels with bins of 2^k ns, each the sums of the level below.

A level is an array [bin, cell], so that a view is one slice of it. A cell is an ArrowClass of a pair of ends; or, where
there are too many pairs to send each, an ArrowClass of an end in one direction (`Cells`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collector.queries.timeline.columns import ArrowClass, Pairs
from collector.queries.timeline.shelf import Shelf
from collector.trace.time_columns import Int64Array

MOST_PAIRS = 192
"""With more pairs of ends, counts are kept by end."""
LEAST_CELLS = 1 << 16
"""Fewest cells of the finest level, even for few hops."""
CHUNK_ROWS = 1 << 20
Counts = NDArray[np.uint32]


class Cells:
    """The cells in which a hop is counted.

    By pair: in one, `pair * classes + class`. By end: in two, once where it was sent and once where it was received;
    `2 * end * classes + class` for what an end sent, the next `classes` cells for what it received.
    """

    def __init__(self, pairs: Pairs) -> None:
        self.by_end = len(pairs) > MOST_PAIRS
        source = (pairs.source.astype(np.int64) << 16) + (pairs.source_service.astype(np.int64) << 8)
        target = (pairs.target.astype(np.int64) << 16) + (pairs.target_service.astype(np.int64) << 8)
        source, target = source + pairs.source_process, target + pairs.target_process
        keys, places = np.unique(np.concatenate((source, target)), return_inverse=True)
        self.end_lane: NDArray[np.uint16] = (keys >> 16).astype(np.uint16)
        self.end_service: NDArray[np.uint8] = (keys >> 8 & 0xFF).astype(np.uint8)
        self.end_process: NDArray[np.uint8] = (keys & 0xFF).astype(np.uint8)
        self.source_end, self.target_end = places[: len(pairs)], places[len(pairs) :]
        self.count = len(ArrowClass) * (2 * len(keys) if self.by_end else len(pairs))

    def of(self, pair: NDArray[np.uint32], arrow_class: NDArray[np.uint8]) -> list[Int64Array]:
        """The cells of some hops, an array for each time that a hop is counted."""
        classes = len(ArrowClass)
        if not self.by_end:
            return [pair.astype(np.int64) * classes + arrow_class]
        sent, received = 2 * self.source_end[pair], 2 * self.target_end[pair] + 1
        return [end * classes + arrow_class for end in (sent, received)]


def build_levels(
    shelf: Shelf, anchor_ns: Int64Array, cells: Cells, cells_of: Callable[[slice], list[Int64Array]]
) -> int:
    """Count all hops, from the finest level to one of a single bin; returns log2 of the finest bins' width in ns.

    Arguments: `anchor_ns`, sorted and ≥ 0; `cells_of`, the cells of a slice of hops.
    """
    span_ns = int(anchor_ns[-1]) + 1 if len(anchor_ns) else 1
    most_bins = max(2, max(LEAST_CELLS, len(anchor_ns)) // max(1, cells.count))
    shift = max(0, ((span_ns - 1) // most_bins).bit_length())
    bins = ((span_ns - 1) >> shift) + 1
    level = _new_level(shelf, 0, anchor_ns, shift, bins, cells.count)
    for first, last, rows in _bin_runs(anchor_ns, shift, bins, cells.count):
        own = (anchor_ns[rows] >> shift) - first
        for cell in cells_of(rows):
            counts = np.bincount(own * cells.count + cell, minlength=(last - first) * cells.count)
            level[first:last] += counts.reshape(last - first, cells.count).astype(level.dtype)
    number = 0
    while bins > 1:
        number, bins = number + 1, (bins + 1) // 2
        above = _new_level(shelf, number, anchor_ns, shift + number, bins, cells.count)
        _halve(level, above)
        level = above
    return shift


class Levels:
    """The counts that `build_levels` made."""

    def __init__(self, shelf: Shelf, shift: int, count: int) -> None:
        self.shift = shift
        self._levels = [shelf.array(f"level-{number:02}") for number in range(count)]

    def slice(self, first: int, last: int, shift: int) -> NDArray[Any]:
        """Counts of the bins [first, last), each 2^shift ns (≥ the finest): [bin, cell]; no hops outside the trace."""
        number = min(shift - self.shift, len(self._levels) - 1)
        level, coarser = self._levels[number], shift - self.shift - number
        low, high = max(0, first << coarser), max(0, min(last << coarser, len(level)))
        found = level[low:high]
        out = np.zeros((last - first, level.shape[1]), level.dtype)
        if coarser:  # the coarsest level has one bin
            if len(found):
                out[0 - first] = found[0]
        else:
            out[low - first : low - first + len(found)] = found
        return out


def levels_count(bins: int) -> int:
    """How many levels there are above and with a finest one of so many bins."""
    return (bins - 1).bit_length() + 1


def _new_level(shelf: Shelf, number: int, anchor_ns: Int64Array, shift: int, bins: int, cells: int) -> NDArray[Any]:
    """A new level, of the narrowest type that can count the hops of its fullest bin."""
    edges = np.searchsorted(anchor_ns, np.arange(bins + 1, dtype=np.int64) << shift)
    fullest = int(np.diff(edges).max(initial=0))
    return shelf.make(f"level-{number:02}", np.min_scalar_type(fullest), bins, cells)


def _bin_runs(anchor_ns: Int64Array, shift: int, bins: int, cells: int) -> Iterator[tuple[int, int, slice]]:
    """Runs of bins with their rows, so few that counting them takes little memory."""
    step = max(1, (1 << 22) // max(1, cells))
    for first in range(0, bins, step):
        last = min(bins, first + step)
        low, high = np.searchsorted(anchor_ns, (first << shift, last << shift))
        if low < high:
            yield first, last, slice(int(low), int(high))


def _halve(fine: NDArray[Any], coarse: NDArray[Any]) -> None:
    """Sum pairs of neighbouring bins."""
    step = max(1, (1 << 22) // max(1, fine.shape[1]))
    for first in range(0, len(coarse), step):
        last = min(len(coarse), first + step)
        part = fine[2 * first : 2 * last]
        coarse[first:last] = part[::2]
        odd = part[1::2]
        coarse[first : first + len(odd)] += odd
