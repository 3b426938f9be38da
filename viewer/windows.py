"""Builds the message for a window of the timeline: arrows if there are few enough to send and draw, otherwise counts.

The message covers more than the view, half of it on either side, so that a pan finds its data already there. Counts
come with a sample of the arrows if these are long enough to be visible, and always with raw clocks, which have no
counts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collector.queries import ArrowClass, Served, TraceView, Usage
from viewer.binary import Sample, encode_arrows, encode_bands, encode_counts, encode_strips

MOST_ARROWS = 10_000
"""Sent at once: 37 bytes each."""
MOST_IN_VIEW = 5_000
"""At most so many arrows in the view itself: more are several for each column of pixels, slow to draw and less clear
than counts."""
MOST_BYTES = 380_000
"""Of counts sent at once."""
SURE_EXCESS_RATIO = 1.5
"""An estimate that exceeds the limit by this ratio shows too many bytes, wherever the bins begin."""
SAMPLE_ARROWS = 2_000
MOST_BINS, LEAST_BINS = 2_048, 16
MOST_BAND_BINS, MOST_BAND_CELLS = 600, 24_000
USAGE_BINS, LEAST_USAGE_NS = 1_200, 2_000_000_000
SEEN_SHARE = 1 / 700
"""Of the view: an arrow this long is more than a stroke."""
Rows = Sequence[Sequence[int]]
"""Places in `TraceView.ends`, row by row."""
Counted = tuple[int, int, NDArray[np.uint32]]
"""Where the first bin begins, the width of a bin, counts by [what, class, bin]."""


def window_message(trace: TraceView, from_ns: int, to_ns: int, rows: Rows = (), raw: bool = False) -> bytes:
    """The view [from_ns, to_ns] with its surroundings, as arrows or as counts.

    Arguments: `rows`, for which ends to count, in a trace that is `counted_by_end`; `raw`, by the hosts' own clocks.
    """
    margin = (to_ns - from_ns) // 2
    count = trace.count(from_ns, to_ns)
    find = trace.raw_arrows if raw else trace.arrows
    for extra in (margin, 0) if count <= MOST_IN_VIEW else ():
        arrows = find(from_ns - extra, to_ns + extra, MOST_ARROWS)
        if arrows is not None:
            return encode_arrows(arrows, from_ns - extra, to_ns + extra, count)
    return _counts_message(trace, from_ns - margin, to_ns + margin, count, rows, _sample(trace, from_ns, to_ns, raw))


def usage_message(usage: Usage, from_ns: int, to_ns: int) -> bytes:
    """What the hosts used in the view with its surroundings; at least some seconds, as they are looked at so rarely."""
    margin = max((to_ns - from_ns) // 2, LEAST_USAGE_NS)
    begin, end = from_ns - margin, to_ns + margin
    return encode_strips(usage.strips(begin, end, USAGE_BINS), begin, end)


def bands_message(served: Served, rows: Rows, from_ns: int, to_ns: int) -> bytes:
    """How slow the requests were that each row's hosts served, and how many at once, in the view with its surroundings.

    Arguments: `rows`, lanes row by row.
    """
    margin = (to_ns - from_ns) // 2
    bins = min(2 * MOST_BAND_BINS, max(LEAST_BINS, MOST_BAND_CELLS // len(rows)))
    return encode_bands(served.bands(rows, from_ns - margin, to_ns + margin, bins), served.most_at_once)


def overview_message(trace: TraceView) -> bytes:
    """The whole trace as counts."""
    until_ns, count = trace.duration_ns + 1, trace.summary.hops_count
    if not trace.counted_by_end:
        return _counts_message(trace, 0, until_ns, count, (), None)
    totals = trace.totals(0, until_ns, MOST_BINS)
    return encode_counts("totals", totals.from_ns, totals.bin_ns, totals.counts, count)


def request_message(trace: TraceView, number: int, raw: bool = False) -> bytes:
    """The arrows of one request, or their counts if they are too many."""
    request = trace.request(number)
    arrows = trace.request_arrows(number, MOST_ARROWS, raw)
    if arrows is not None:
        return encode_arrows(arrows, request.start_ns, request.end_ns, request.hops_count)
    cells = len(trace.pairs) * len(ArrowClass)
    density = trace.request_density(number, max(LEAST_BINS, min(MOST_BINS, MOST_BYTES // (4 * cells))))
    return encode_counts("density", density.from_ns, density.bin_ns, density.counts, request.hops_count)


def _counts_message(trace: TraceView, from_ns: int, to_ns: int, count: int, rows: Rows, sample: Sample | None) -> bytes:
    """Counts in as many bins as fit in a message; the number of cells with hops is determined first, since fine counts
    are expensive."""
    mode, ask = ("ends", _by_row) if trace.counted_by_end else ("density", _by_pair)
    least_bytes, bins = _size(ask(trace, from_ns, to_ns, LEAST_BINS, rows)[2] > 0), MOST_BINS
    while bins > LEAST_BINS and least_bytes * (bins // LEAST_BINS) > SURE_EXCESS_RATIO * MOST_BYTES:
        bins //= 2
    while True:
        start_ns, bin_ns, counts = ask(trace, from_ns, to_ns, bins, rows)
        if bins <= LEAST_BINS or _size(counts) <= MOST_BYTES:
            return encode_counts(mode, start_ns, bin_ns, counts, count, sample)
        bins //= 2


def _by_pair(trace: TraceView, from_ns: int, to_ns: int, bins: int, rows: Rows) -> Counted:
    found = trace.density(from_ns, to_ns, bins)
    return found.from_ns, found.bin_ns, found.counts


def _by_row(trace: TraceView, from_ns: int, to_ns: int, bins: int, rows: Rows) -> Counted:
    found = trace.end_density(rows, from_ns, to_ns, bins)
    return found.from_ns, found.bin_ns, found.counts.reshape(-1, *found.counts.shape[2:])


def _size(counts: NDArray[Any]) -> int:
    """Bytes of a message of these."""
    return int(counts.any(axis=2).sum()) * counts.shape[2] * np.min_scalar_type(int(counts.max(initial=0))).itemsize


def _sample(trace: TraceView, from_ns: int, to_ns: int, raw: bool) -> Sample | None:
    find: Callable[[int, int, int], Sample] = trace.raw_sample if raw else trace.sample
    seen = (trace.summary.delay_p50_ns or 0) > SEEN_SHARE * (to_ns - from_ns)
    return find(from_ns, to_ns, SAMPLE_ARROWS) if raw or seen else None
