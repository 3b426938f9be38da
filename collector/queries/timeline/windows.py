"""Answers queries about windows of time: the arrows in a window, their density, a sample if they are too many."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector.queries.timeline.build import chunks
from collector.queries.timeline.columns import (
    MISSING_NS,
    ArrowClass,
    HopColumns,
    Pairs,
    Rows,
    Seen,
)
from collector.queries.timeline.levels import Cells, Counts, Levels, build_levels, levels_count
from collector.queries.timeline.shelf import Shelf
from collector.trace.time_columns import Int64Array

BLOCK_ROWS = 64
"""The latest end is stored for each block of so many rows."""
LONG_NS = 50_000_000
"""Arrows longer than this are stored separately, if they are few."""
MOST_COUNTED, ENOUGH_BINS = 1 << 18, 128
"""More hops than this are not counted for a view that has so many bins counted ahead."""
LONG_SHARE = 0.001
"""At most this share of the arrows is stored separately."""
ASIDE = ("row", "begin", "end")
READ_FACTOR = 8
"""So many rows are read for each row of the sample."""
OVERALL_DELAY_NS = 50_000
"""The typical delay where none is known."""


class DensityCounts(Struct, frozen=True):
    """Hops counted by their anchors."""

    from_ns: int  # where the first bin begins
    bin_ns: int  # width of a bin, a power of two
    counts: Counts  # [pair, ArrowClass, bin]


class EndCounts(Struct, frozen=True):
    """Hops counted by their anchors, at each of some rows of ends: a hop is counted where it was sent and where it was
    received, if these are among them."""

    from_ns: int
    bin_ns: int
    counts: Counts  # [row, sent or received, ArrowClass, bin]


class _Facts(Struct, frozen=True):
    shift: int
    bins: int  # of the finest level
    lead_ns: int  # so long at most an arrow begins before its anchor, if it is not aside


class HopIndex:
    """Answers windows of `HopColumns`."""

    def __init__(self, shelf: Shelf) -> None:
        self.columns = HopColumns.of_shelf(shelf)
        self.pairs = Pairs.of_shelf(shelf)
        self.typical_delay_ns: Int64Array = shelf.array("typical-delay-ns")
        self.problem_rows: NDArray[np.uint32] = shelf.array("problem-rows")
        self.problem_times_ns: Int64Array = shelf.array("problem-times-ns")
        self.cells = Cells(self.pairs)
        self._latest = shelf.array("latest-ns")
        self._aside = {name: shelf.array(f"aside-{name}") for name in ASIDE}
        self._facts = shelf.document("windows", _Facts)
        self._levels = Levels(shelf, self._facts.shift, levels_count(self._facts.bins))

    def overlapping(self, from_ns: int, to_ns: int, limit: int) -> NDArray[np.intp] | None:
        """Rows of the arrows that overlap [from_ns, to_ns], in order; None if more than `limit`."""
        low, high = self._slice(from_ns, to_ns)
        if high - low > READ_FACTOR * limit:
            return None
        self.columns.prefetch(low, high)
        rows = self._with_long_arrows(low, high, from_ns, to_ns)
        begin, end = self.extents(rows)
        rows = rows[(begin <= to_ns) & (end >= from_ns)]
        return None if len(rows) > limit else rows

    def overlapping_raw(self, from_ns: int, to_ns: int, apart_ns: int, limit: int) -> NDArray[np.intp] | None:
        """As `overlapping`, by the hosts' own stamps, which are at most `apart_ns` from trace time."""
        low, high = self._slice(from_ns - apart_ns, to_ns + apart_ns)
        if high - low > READ_FACTOR * limit:
            return None
        self.columns.prefetch(low, high)
        rows = self._with_long_arrows(low, high, from_ns - apart_ns, to_ns + apart_ns)
        begin, end = self.raw_extents(rows)
        rows = rows[(begin <= to_ns) & (end >= from_ns)]
        return None if len(rows) > limit else rows

    def sample(self, from_ns: int, to_ns: int, most: int) -> tuple[NDArray[np.intp], int]:
        """At most about `most` rows that may overlap [from_ns, to_ns], and how many of all stand for each: 2^k.

        They are the rows whose number is a multiple of 2^k, so those of a view are among those of a closer one; half of
        `most` is for rows in trouble.
        """
        low, high = self._slice(from_ns, to_ns)
        step = step_for(high - low, most // 2)
        plain = np.arange(-(-low // step) * step, high, step)
        trouble = self._step_over_problems(low, high, most // 2)
        long = self._long_arrows_in(from_ns, to_ns)[: most // 8]
        return np.unique(np.concatenate((plain, trouble, long))), step

    def count(self, from_ns: int, to_ns: int) -> int:
        """Hops whose anchor is in [from_ns, to_ns)."""
        return int(np.diff(np.searchsorted(self.columns.anchor_ns, (from_ns, to_ns), side="left"))[0])

    def neighbours(self, from_ns: int, to_ns: int) -> tuple[int | None, int | None]:
        """The anchors of the last hop before from_ns and of the first one from to_ns on; None where there is none."""
        return neighbours_in(self.columns.anchor_ns, from_ns, to_ns)

    def rows_between(self, from_ns: int, to_ns: int, first: int, count: int) -> NDArray[np.intp]:
        """Up to `count` of the rows that `count` counts, from their `first` on."""
        low, high = np.searchsorted(self.columns.anchor_ns, (from_ns, to_ns), side="left")
        return np.arange(min(low + first, high), min(low + first + count, high), dtype=np.intp)

    def density_of(self, rows: NDArray[np.intp], most_bins: int) -> DensityCounts:
        """Counts by pair of some rows (≥ 1, in order) in at most `most_bins` (≥ 2) bins."""
        anchor = self.columns.anchor_ns[rows]
        shift, first, last = bins_of(int(anchor[0]), int(anchor[-1]) + 1, most_bins)
        cells = self.columns.pair[rows].astype(np.int64) * len(ArrowClass) + self.columns.arrow_class[rows]
        counts = bincount_cells((anchor >> shift) - first, [cells], last - first, len(self.pairs) * len(ArrowClass))
        return DensityCounts(first << shift, 1 << shift, self._by_pair(counts))

    def density(self, from_ns: int, to_ns: int, most_bins: int) -> DensityCounts:
        """Counts by pair in at most `most_bins` (≥ 2) bins that cover [from_ns, to_ns). Not for `cells.by_end`."""
        assert not self.cells.by_end, "too many pairs: ask for ends"
        shift, first, last = self._bins(from_ns, to_ns, most_bins)
        counts = self._counts(first, last, shift, lambda cells: cells, self.cells.count, lambda level: level)
        return DensityCounts(first << shift, 1 << shift, self._by_pair(counts))

    def end_density(self, rows_of_ends: Sequence[Sequence[int]], from_ns: int, to_ns: int, most_bins: int) -> EndCounts:
        """Counts in at most `most_bins` bins that cover [from_ns, to_ns), for rows that each sum some ends.

        Arguments: `rows_of_ends`, places in `cells.end_lane`, each in one row at most. Only for `cells.by_end`.
        """
        assert self.cells.by_end, "few pairs: ask for them"
        shift, first, last = self._bins(from_ns, to_ns, most_bins)
        row_of_end = np.full(len(self.cells.end_lane), len(rows_of_ends), np.int64)
        for row, ends in enumerate(rows_of_ends):
            row_of_end[list(ends)] = row
        each = 2 * len(ArrowClass)
        row_of_cell = (row_of_end[:, None] * each + np.arange(each)).reshape(-1)
        width = (len(rows_of_ends) + 1) * each

        def of_level(level: NDArray[Any]) -> NDArray[Any]:
            by_end = level.reshape(len(level), -1, each)
            sums = [by_end[:, list(ends)].sum(axis=1, dtype=np.uint32) for ends in rows_of_ends]
            return np.concatenate([*sums, np.zeros((len(level), each), np.uint32)], axis=1)

        counts = self._counts(first, last, shift, lambda cells: row_of_cell[cells], width, of_level)
        shape = (len(rows_of_ends) + 1, 2, len(ArrowClass), last - first)
        return EndCounts(first << shift, 1 << shift, np.ascontiguousarray(counts.T).reshape(shape)[:-1])

    def totals(self, from_ns: int, to_ns: int, most_bins: int) -> DensityCounts:
        """Counts by class only: as if there were one pair."""
        shift, first, last = self._bins(from_ns, to_ns, most_bins)
        classes = len(ArrowClass)
        of_cell = np.arange(self.cells.count) % classes
        if self.cells.by_end:  # what was received was sent as well
            of_cell = np.where(np.arange(self.cells.count) // classes % 2, classes, of_cell)
        each = classes * (2 if self.cells.by_end else 1)

        def of_level(level: NDArray[Any]) -> NDArray[Any]:
            return level.reshape(len(level), -1, each)[..., :classes].sum(axis=1, dtype=np.uint32)

        counts = self._counts(first, last, shift, lambda cells: of_cell[cells], classes + 1, of_level)
        by_class = np.ascontiguousarray(counts[:, :classes].T)
        return DensityCounts(first << shift, 1 << shift, by_class[None])

    def extents(self, rows: Rows) -> tuple[Int64Array, Int64Array]:
        """Where arrows begin and end as drawn: one that misses an end is drawn as long as is typical for its pair."""
        columns = self.columns
        return _extents(columns.sent_ns(rows), columns.received_ns[rows], self.typical_delay_ns[columns.pair[rows]])

    def raw_extents(self, rows: Rows) -> tuple[Int64Array, Int64Array]:
        """As `extents`, by the hosts' own stamps."""
        sent, received = self.columns.sent_raw_ns, self.columns.received_raw_ns
        if sent is None or received is None:
            return self.extents(rows)
        return _extents(sent[rows], received[rows], self.typical_delay_ns[self.columns.pair[rows]])

    def _step_over_problems(self, low: int, high: int, most: int) -> NDArray[np.intp]:
        bounds = np.array((low, high), self.problem_rows.dtype)  # of another type, all of the array would be converted
        first, last = (int(place) for place in np.searchsorted(self.problem_rows, bounds))
        step = step_for(last - first, most)
        return self.problem_rows[-(-first // step) * step : last : step].astype(np.intp)

    def _long_arrows_in(self, from_ns: int, to_ns: int) -> NDArray[np.intp]:
        row, begin, end = (np.asarray(self._aside[name]) for name in ASIDE)
        return np.asarray(row[(begin <= to_ns) & (end >= from_ns)])

    def _with_long_arrows(self, low: int, high: int, from_ns: int, to_ns: int) -> NDArray[np.intp]:
        rows, aside = np.arange(low, high), self._long_arrows_in(from_ns, to_ns)
        aside = aside[(aside < low) | (aside >= high)]
        return np.sort(np.concatenate((rows, aside))) if len(aside) else rows

    def _slice(self, from_ns: int, to_ns: int) -> tuple[int, int]:
        """Between which rows all that overlap [from_ns, to_ns] lie, but for those aside."""
        low = int(np.searchsorted(self._latest, from_ns, side="left")) * BLOCK_ROWS
        high = int(np.searchsorted(self.columns.anchor_ns, to_ns + self._facts.lead_ns, side="right"))
        return min(low, high), high

    def _bins(self, from_ns: int, to_ns: int, most_bins: int) -> tuple[int, int, int]:
        """As `bins_of`; but the finest that are counted ahead, where finer ones take long to count."""
        shift, first, last = bins_of(from_ns, to_ns, most_bins)
        finest = self._facts.shift
        ahead = (-(-to_ns >> finest)) - (from_ns >> finest)
        if shift >= finest or ahead < ENOUGH_BINS or self.count(from_ns, to_ns) <= MOST_COUNTED:
            return shift, first, last
        return finest, from_ns >> finest, -(-to_ns >> finest)

    def _counts(
        self,
        first: int,
        last: int,
        shift: int,
        to_column: Callable[[Int64Array], Int64Array],
        width: int,
        of_level: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> NDArray[Any]:
        """[bin, column]: from the level that suits, its cells summed by `of_level`; below the finest from the rows."""
        if shift < self._facts.shift:
            low, high = np.searchsorted(self.columns.anchor_ns, (first << shift, last << shift), side="left")
            return self._counts_of(slice(int(low), int(high)), first, last, shift, to_column, width)
        return of_level(self._levels.slice(first, last, shift))

    def _counts_of(
        self, rows: Rows, first: int, last: int, shift: int, to_column: Callable[[Int64Array], Int64Array], width: int
    ) -> NDArray[Any]:
        """[bin, column] of some rows, all of which are in bins from `first` on and before `last`."""
        cells = self.cells.of(self.columns.pair[rows], self.columns.arrow_class[rows])
        bins = (self.columns.anchor_ns[rows] >> shift) - first
        return bincount_cells(bins, [to_column(each) for each in cells], last - first, width)

    def _by_pair(self, counts: NDArray[Any]) -> Counts:
        shape = (len(self.pairs), len(ArrowClass), len(counts))
        return np.ascontiguousarray(counts.T).astype(np.uint32).reshape(shape)


def neighbours_in(anchor_ns: Int64Array, from_ns: int, to_ns: int) -> tuple[int | None, int | None]:
    """The last of some anchors before from_ns, and the first from to_ns on."""
    low, high = np.searchsorted(anchor_ns, (from_ns, to_ns), side="left")
    before = int(anchor_ns[low - 1]) if low else None
    return before, int(anchor_ns[high]) if high < len(anchor_ns) else None


def build_windows(shelf: Shelf, pairs: Pairs) -> None:
    """Store what `HopIndex` needs in addition to the columns."""
    columns = HopColumns.of_shelf(shelf)
    typical = _typical_delays(columns, len(pairs))
    shelf.put("typical-delay-ns", typical)
    latest, aside, lead_ns = _latest(columns, typical)
    shelf.put("latest-ns", latest)
    for name, values in zip(ASIDE, aside.T, strict=True):
        shelf.put(f"aside-{name}", values)
    cells = Cells(pairs)
    shift = build_levels(
        shelf, columns.anchor_ns, cells, lambda rows: cells.of(columns.pair[rows], columns.arrow_class[rows])
    )
    span_ns = int(columns.anchor_ns[-1]) + 1 if len(columns) else 1
    shelf.put_document("windows", _Facts(shift, ((span_ns - 1) >> shift) + 1, lead_ns))


def _latest(columns: HopColumns, typical: Int64Array) -> tuple[Int64Array, Int64Array, int]:
    """The latest end until the end of each block; what is kept aside, as rows of `ASIDE`; and how far an arrow begins
    before its anchor."""
    long_ns = _long(columns, typical)
    latest, aside, lead_ns = [np.zeros(0, np.int64)], [np.zeros((0, len(ASIDE)), np.int64)], 0
    for part in chunks(len(columns)):
        anchor = columns.anchor_ns[part]
        begin, end = _extents(columns.sent_ns(part), columns.received_ns[part], typical[columns.pair[part]])
        long = (end - begin) > long_ns
        aside.append(np.stack((np.flatnonzero(long) + part.start, begin[long], end[long]), axis=1))
        lead_ns = max(lead_ns, int((anchor - begin)[~long].max(initial=0)))
        ends = np.where(long, anchor, end)
        latest.append(np.maximum.reduceat(ends, np.arange(0, len(ends), BLOCK_ROWS)))
    return np.maximum.accumulate(np.concatenate(latest)), np.concatenate(aside), lead_ns


def _long(columns: HopColumns, typical: Int64Array) -> int:
    """The length above which an arrow is kept aside."""
    sample = slice(None, None, max(1, len(columns) // 200_000))
    if not len(columns):
        return LONG_NS
    begin, end = _extents(columns.sent_ns(sample), columns.received_ns[sample], typical[columns.pair[sample]])
    return max(LONG_NS, int(np.quantile(end - begin, 1 - LONG_SHARE)))


def _extents(sent: Int64Array, received: Int64Array, typical: Int64Array) -> tuple[Int64Array, Int64Array]:
    sent_or = np.where(sent == MISSING_NS, received - typical, sent)
    received_or = np.where(received == MISSING_NS, sent + typical, received)
    return np.minimum(sent_or, received_or), np.maximum(sent_or, received_or)


def step_for(count: int, most: int) -> int:
    """The power of two by which to step over so many, to take no more than `most`."""
    return 1 << max(0, -(-count // max(1, most)) - 1).bit_length()


def bins_of(from_ns: int, to_ns: int, most_bins: int) -> tuple[int, int, int]:
    """Width (as a shift), first and past-the-last of the bins that cover [from_ns, to_ns)."""
    assert most_bins >= 2 and to_ns > from_ns
    shift = max(0, ((to_ns - from_ns - 1) // (most_bins - 1)).bit_length())
    return shift, from_ns >> shift, -(-to_ns >> shift)


def bincount_cells(bins: Int64Array, columns: Sequence[Int64Array], bins_count: int, width: int) -> NDArray[Any]:
    """Counts by bin and column, [bin, column]; each hop is counted in each of `columns`."""
    counts = sum(np.bincount(bins * width + each, minlength=bins_count * width) for each in columns)
    return np.asarray(counts).reshape(bins_count, width)


def _typical_delays(columns: HopColumns, pairs_count: int) -> Int64Array:
    """Median delay of each pair, from up to 100,000 hops of the trace; that of all pairs where a pair has none."""
    sample = slice(None, None, max(1, len(columns) // 100_000))
    delay = columns.received_ns[sample] - columns.anchor_ns[sample]
    seen = columns.seen[sample] == Seen.BOTH
    delay, of_pair = delay[seen], columns.pair[sample][seen]
    overall = int(np.median(delay)) if len(delay) else OVERALL_DELAY_NS
    typical = np.full(pairs_count, overall, dtype=np.int64)
    for index in np.unique(of_pair):
        typical[index] = np.median(delay[of_pair == index])
    return np.maximum(typical, 1)
