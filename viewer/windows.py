"""What a window of the timeline is answered with: arrows if they are few enough to send and draw, otherwise counts.

The answer covers more than the view, half of it on either side, so that a pan finds its neighbours already there.
"""

from collector.queries import ArrowClass, TraceView
from viewer.binary import encode_arrows, encode_density

MOST_ARROWS = 12_000
"""Sent at once: 36 bytes each."""
MOST_CELLS = 120_000
"""Counts sent at once: 4 bytes each."""
MOST_BINS = 2_048


def window_message(trace: TraceView, from_ns: int, to_ns: int) -> bytes:
    """The view [from_ns, to_ns] with its surroundings, as arrows or as counts."""
    margin = (to_ns - from_ns) // 2
    count = trace.count(from_ns, to_ns)
    for extra in (margin, 0):
        arrows = trace.arrows(from_ns - extra, to_ns + extra, MOST_ARROWS)
        if arrows is not None:
            return encode_arrows(arrows, from_ns - extra, to_ns + extra, count)
    return encode_density(trace.density(from_ns - margin, to_ns + margin, most_bins(trace)), count)


def overview_message(trace: TraceView) -> bytes:
    """The whole trace as counts."""
    density = trace.density(0, trace.duration_ns + 1, most_bins(trace))
    return encode_density(density, trace.summary.hops_count)


def request_message(trace: TraceView, number: int) -> bytes:
    """The arrows of one request, or their counts if they are too many."""
    request = trace.request(number)
    arrows = trace.request_arrows(number, MOST_ARROWS)
    if arrows is not None:
        return encode_arrows(arrows, request.start_ns, request.end_ns, request.hops_count)
    return encode_density(trace.request_density(number, most_bins(trace)), request.hops_count)


def most_bins(trace: TraceView) -> int:
    """So many that a message stays below 0.5 MB."""
    return max(16, min(MOST_BINS, MOST_CELLS // max(1, len(trace.pairs) * len(ArrowClass))))
