"""The hops of a trace as sorted columns, so that any window of time is answered in milliseconds.

An arrow is a hop as the viewer draws it: from its send to its receive. Its `anchor` is the send, or the receive where
the send was not seen; every hop has one, so that counting by anchor counts every hop once, at every zoom.

- Arrows in a window: rows are sorted by anchor, and `latest` holds the running maximum of where arrows end. Those that
  overlap [a, b] then lie in one slice, found by two binary searches: latest[i] >= a and anchor[i] <= b + lead. A few
  very long arrows would spoil the running maximum, so they are kept aside and tested one by one.
- Density: with more arrows than pixels, lines hide what they should show, so they are counted: for each directed pair
  of lanes, class and time bin. Bins are powers of two wide and begin at multiples of their width; hence coarse bins are
  sums of fine ones, neighbouring zooms agree, and a prefix sum over the finest ones answers any zoom at once. Below
  their width the rows themselves are counted.

Times are int64 ns relative to the trace's start, exact as a float64 while the trace is shorter than 104 days.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.schema import HopKind, HopState

MISSING_NS = np.iinfo(np.int64).min
"""Instead of a time that was not seen."""
NO_LANE = 0xFFFF
"""Instead of a lane that is not known: the other end was not captured."""
KINDS = tuple(HopKind)
STATES = tuple(HopState)

TABLE_CELLS = 16 << 20
"""Most cells of the prefix table: 64 MiB."""
TABLE_MIN_ROWS = 50_000
"""Fewer rows than this are counted as quickly as looked up."""
LONG_NS = 50_000_000
"""Arrows longer than this are kept aside."""


class ArrowClass(IntEnum):
    """What an arrow is first of all, by what a reader looks for: trouble before kind."""

    DATA = 0
    HANDSHAKE = 1  # SYN, SYN-ACK, FIN
    ACK = 2  # also keepalives and window probes
    RETRANSMISSION = 3
    LOST = 4  # lost on the network, or a reset
    ONE_SIDED = 5  # no partner: dropped by the capture, outside its window, ambiguous or unmatched


@dataclass(frozen=True, slots=True)
class HopColumns:
    """The hops of a trace, one element for each, sorted by anchor."""

    anchor_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]  # MISSING_NS if not seen
    received_ns: NDArray[np.int64]  # MISSING_NS if not seen
    source: NDArray[np.uint16]  # lane, or NO_LANE
    target: NDArray[np.uint16]
    kind: NDArray[np.uint8]  # index in KINDS
    state: NDArray[np.uint8]  # index in STATES
    attempt: NDArray[np.uint8]
    arrow_class: NDArray[np.uint8]  # ArrowClass
    size_bytes: NDArray[np.uint32]
    stream_start: NDArray[np.int64]
    span: NDArray[np.int32]  # position in `span_ids`, or -1
    row: NDArray[np.uint32]  # in the table `hops`

    @classmethod
    def from_table(
        cls, hops: pa.Table, hosts: Sequence[str], start_ns: int, span_ids: NDArray[np.int64]
    ) -> "HopColumns":
        """Columns of the table `hops`; `hosts` are the lanes in order, `start_ns` the trace time that becomes 0."""
        sent = _times(hops["send_trace_ns"], start_ns)
        received = _times(hops["receive_trace_ns"], start_ns)
        anchor = np.where(sent == MISSING_NS, received, sent)
        assert not (anchor == MISSING_NS).any(), "a hop was seen at one end at least"
        order = _sorted_order(anchor)
        kind, state = (
            _codes(hops[name], names, 0).astype(np.uint8) for name, names in (("kind", KINDS), ("state", STATES))
        )
        attempt = np.minimum(_numbers(hops["attempt"], 1), 255).astype(np.uint8)
        stream_start = _numbers(hops["stream_start"], 0)
        size = np.maximum(_numbers(hops["stream_end"], 0) - stream_start, 0).astype(np.uint32)
        return cls(
            anchor_ns=anchor[order],
            sent_ns=sent[order],
            received_ns=received[order],
            source=_codes(hops["send_host"], hosts, NO_LANE)[order],
            target=_codes(hops["receive_host"], hosts, NO_LANE)[order],
            kind=kind[order],
            state=state[order],
            attempt=attempt[order],
            arrow_class=_classes(kind, state, attempt)[order],
            size_bytes=size[order],
            stream_start=stream_start[order],
            span=_positions(_numbers(hops["exchange_id"], -1), span_ids)[order],
            row=np.arange(len(anchor), dtype=np.uint32)[order],
        )

    def __len__(self) -> int:
        return len(self.anchor_ns)


@dataclass(frozen=True, slots=True)
class DensityCounts:
    """Hops counted by their anchors."""

    from_ns: int  # where the first bin begins
    bin_ns: int  # width of a bin, a power of two
    counts: NDArray[np.uint32]  # [pair, ArrowClass, bin]


class HopIndex:
    """Answers windows of `HopColumns`."""

    def __init__(self, columns: HopColumns, lanes_count: int) -> None:
        self.columns = columns
        self.pairs, self._pair = _pairs(columns, lanes_count)
        self.typical_delay_ns = _typical_delays(columns, self._pair, len(self.pairs))
        begin, end = self._extents(slice(None))
        long = (end - begin) > LONG_NS
        self._aside = np.flatnonzero(long)
        self._lead_ns = int((columns.anchor_ns - begin)[~long].max(initial=0))
        self._latest = np.maximum.accumulate(np.where(long, columns.anchor_ns, end))
        self._shift, self._table = self._prefix_table()

    def overlapping(self, from_ns: int, to_ns: int, limit: int) -> NDArray[np.intp] | None:
        """Rows of the arrows that overlap [from_ns, to_ns], in order; None if more than `limit`."""
        low = int(np.searchsorted(self._latest, from_ns, side="left"))
        high = int(np.searchsorted(self.columns.anchor_ns, to_ns + self._lead_ns, side="right"))
        if high - low > 8 * limit:
            return None
        rows = np.union1d(np.arange(low, high), self._aside) if len(self._aside) else np.arange(low, high)
        begin, end = self._extents(rows)
        rows = rows[(begin <= to_ns) & (end >= from_ns)]
        return None if len(rows) > limit else rows

    def count(self, from_ns: int, to_ns: int) -> int:
        """Hops whose anchor is in [from_ns, to_ns)."""
        return int(np.diff(np.searchsorted(self.columns.anchor_ns, (from_ns, to_ns), side="left"))[0])

    def density_of(self, rows: NDArray[np.intp], most_bins: int) -> DensityCounts:
        """Counts of some rows (≥ 1, in order) in at most `most_bins` (≥ 2) bins."""
        anchor = self.columns.anchor_ns[rows]
        shift, first, last = _bins(int(anchor[0]), int(anchor[-1]) + 1, most_bins)
        counts = self._bincount(self._cells(rows), (anchor >> shift) - first, last - first)
        return DensityCounts(first << shift, 1 << shift, counts.astype(np.uint32))

    def density(self, from_ns: int, to_ns: int, most_bins: int) -> DensityCounts:
        """Counts in at most `most_bins` (≥ 2) bins that cover [from_ns, to_ns)."""
        shift, first, last = _bins(from_ns, to_ns, most_bins)
        if self._table is not None and shift >= self._shift:
            edges = np.clip(np.arange(first, last + 1) << (shift - self._shift), 0, self._table.shape[2] - 1)
            counts = np.diff(self._table[:, :, edges], axis=2)
        else:
            counts = self._count_rows(first, last, shift)
        return DensityCounts(first << shift, 1 << shift, counts.astype(np.uint32))

    def _extents(self, rows: NDArray[np.intp] | slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where arrows begin and end as drawn: one that misses an end is drawn as long as is typical for its pair."""
        sent, received = self.columns.sent_ns[rows], self.columns.received_ns[rows]
        typical = self.typical_delay_ns[self._pair[rows]]
        sent_or = np.where(sent == MISSING_NS, received - typical, sent)
        received_or = np.where(received == MISSING_NS, sent + typical, received)
        return np.minimum(sent_or, received_or), np.maximum(sent_or, received_or)

    def _cells(self, rows: NDArray[np.intp] | slice) -> NDArray[np.int64]:
        return self._pair[rows].astype(np.int64) * len(ArrowClass) + self.columns.arrow_class[rows]

    def _count_rows(self, first: int, last: int, shift: int) -> NDArray[np.int64]:
        low, high = np.searchsorted(self.columns.anchor_ns, (first << shift, last << shift), side="left")
        rows = slice(int(low), int(high))
        return self._bincount(self._cells(rows), (self.columns.anchor_ns[rows] >> shift) - first, last - first)

    def _bincount(self, cells: NDArray[np.int64], bins: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        shape = (len(self.pairs), len(ArrowClass), count)
        return np.bincount(cells * count + bins, minlength=int(np.prod(shape))).reshape(shape)

    def _prefix_table(self) -> tuple[int, NDArray[np.uint32] | None]:
        if len(self.columns) < TABLE_MIN_ROWS:
            return 0, None
        span_ns = int(self.columns.anchor_ns[-1]) + 1
        most_bins = max(256, TABLE_CELLS // (len(self.pairs) * len(ArrowClass)))
        shift = max(0, ((span_ns - 1) // most_bins).bit_length())
        bins = (span_ns >> shift) + 1
        counts = self._count_rows(0, bins, shift)
        table = np.zeros((len(self.pairs), len(ArrowClass), bins + 1), dtype=np.uint32)
        np.cumsum(counts, axis=2, dtype=np.uint32, out=table[:, :, 1:])
        return shift, table


def _bins(from_ns: int, to_ns: int, most_bins: int) -> tuple[int, int, int]:
    """Width (as a shift), first and past-the-last of the bins that cover [from_ns, to_ns)."""
    assert most_bins >= 2 and to_ns > from_ns
    shift = max(0, ((to_ns - from_ns - 1) // (most_bins - 1)).bit_length())
    return shift, from_ns >> shift, -(-to_ns >> shift)


def _times(column: pa.ChunkedArray, start_ns: int) -> NDArray[np.int64]:
    times = np.asarray(_numbers(column, MISSING_NS) - np.int64(start_ns))
    if column.null_count:
        times[column.is_null().to_numpy()] = MISSING_NS
    return times


def _numbers(column: pa.ChunkedArray, missing: int) -> NDArray[np.int64]:
    filled = column.fill_null(missing) if column.null_count else column
    return np.asarray(filled.to_numpy())


def _codes(column: pa.ChunkedArray, names: Sequence[str], missing: int) -> NDArray[np.uint16]:
    """Position of each value of a dictionary column in `names`; `missing` for nulls and other values."""
    if len(column) == 0:
        return np.zeros(0, dtype=np.uint16)
    encoded = column.unify_dictionaries().combine_chunks()
    position = {name: index for index, name in enumerate(names)}
    lookup = np.array([position.get(value, missing) for value in encoded.dictionary.to_pylist()] + [missing], np.uint16)
    return np.asarray(lookup[encoded.indices.fill_null(len(lookup) - 1).to_numpy()])


def _positions(values: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int32]:
    """Position of each value in `ids`, -1 if it is not there; values are ≥ -1."""
    if len(ids) == 0:
        return np.full(len(values), -1, dtype=np.int32)
    if ids.min() >= 0 and max(ids.max(), values.max(initial=0)) < 8 * len(ids):  # dense: look them up
        lookup = np.full(int(max(ids.max(), values.max(initial=0))) + 2, -1, dtype=np.int32)  # the last is for -1
        lookup[ids] = np.arange(len(ids))
        return np.asarray(lookup[values])
    order = np.argsort(ids)
    found = np.minimum(np.searchsorted(ids[order], values), len(ids) - 1)
    return np.where(ids[order][found] == values, order[found], -1).astype(np.int32)


def _sorted_order(anchor: NDArray[np.int64]) -> NDArray[np.intp] | slice:
    """What to index rows with so that they are sorted: nothing is copied if they are already."""
    if bool((anchor[1:] >= anchor[:-1]).all()):
        return slice(None)
    return np.argsort(anchor, kind="stable")


def _classes(kind: NDArray[np.uint8], state: NDArray[np.uint8], attempt: NDArray[np.uint8]) -> NDArray[np.uint8]:
    by_kind = {HopKind.DATA: ArrowClass.DATA, HopKind.RST: ArrowClass.LOST}
    handshake = {HopKind.SYN, HopKind.SYN_ACK, HopKind.FIN}
    plain = [by_kind.get(each, ArrowClass.HANDSHAKE if each in handshake else ArrowClass.ACK) for each in KINDS]
    classes = np.array(plain, dtype=np.uint8)[kind]
    again = (attempt > 1) & (classes != ArrowClass.LOST) & (classes != ArrowClass.ACK)
    classes[again] = ArrowClass.RETRANSMISSION
    lost, matched = STATES.index(HopState.LOST), STATES.index(HopState.MATCHED)
    classes[(state != matched) & (state != lost)] = ArrowClass.ONE_SIDED
    classes[state == lost] = ArrowClass.LOST
    return classes


def _pairs(columns: HopColumns, lanes_count: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Directed lane pairs in use, shape (n, 2), and each row's pair; NO_LANE is a lane like any other here."""
    width = lanes_count + 1
    source, target = (np.minimum(lane, lanes_count).astype(np.uint32) for lane in (columns.source, columns.target))
    dense = source * np.uint32(width) + target
    used = np.flatnonzero(np.bincount(dense, minlength=width * width))
    compact = np.zeros(width * width, dtype=np.uint16)
    compact[used] = np.arange(len(used))
    pairs = np.stack((used // width, used % width), axis=1)
    pairs[pairs == lanes_count] = NO_LANE
    return pairs.astype(np.uint16), compact[dense]


def _typical_delays(columns: HopColumns, pair: NDArray[np.uint16], pairs_count: int) -> NDArray[np.int64]:
    """Median delay of each pair, from up to 100,000 hops of the trace; that of all pairs where a pair has none."""
    sample = slice(None, None, max(1, len(columns) // 100_000))
    sent, received, of_pair = columns.sent_ns[sample], columns.received_ns[sample], pair[sample]
    seen = (sent != MISSING_NS) & (received != MISSING_NS) & (columns.source[sample] != columns.target[sample])
    delay = (received - np.where(seen, sent, 0))[seen]
    of_pair = of_pair[seen]
    overall = int(np.median(delay)) if len(delay) else 50_000
    typical = np.full(pairs_count, overall, dtype=np.int64)
    for index in np.unique(of_pair):
        typical[index] = np.median(delay[of_pair == index])
    return np.maximum(typical, 1)
