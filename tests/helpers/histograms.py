"""Percentiles of histograms of durations, one at a time: what the quick way is held against."""

from collections.abc import Sequence

import numpy as np

from collector.series.summaries import BUCKETS_PER_OCTAVE


def percentile_ns(buckets: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """The duration that `share` (0 to 1) of those in a histogram do not exceed, by nearest rank; None without any."""
    durations = np.sort(np.repeat(buckets, counts))
    if not len(durations):
        return None
    return float(2 ** ((durations[max(1, int(np.ceil(share * len(durations)))) - 1] + 0.5) / BUCKETS_PER_OCTAVE))
