"""Resource usage of the hosts, for strips under the timeline: for each time bin the busiest host, its usage, and the
mean.

Times are aligned host by host, so that a burst of CPU usage is drawn at the time of its packets.
"""

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.clocks.alignment import to_trace_ns
from collector.queries.trace_view import TraceView
from collector.trace.time_columns import Int64Array

STRIPS = {
    "CPU": ("cpu_percent",),
    "disk": ("read_bytes_per_s", "written_bytes_per_s"),
    "network": ("received_bytes_per_s", "sent_bytes_per_s"),
}
"""The metrics that each strip sums up, over all devices and interfaces of a host."""
UNITS = {"CPU": "%", "disk": "B/s", "network": "B/s"}


class Strip(Struct, frozen=True):
    """One kind of usage, in bins of equal width; NaN where nothing was measured."""

    name: str
    unit: str
    highest: float  # of the whole trace
    peak: NDArray[np.float64]  # of the busiest host
    busiest: NDArray[np.int32]  # its lane, -1 where nothing was measured
    mean: NDArray[np.float64]  # over the hosts that were measured


class _Series(Struct, frozen=True):
    until_ns: Int64Array
    lane: NDArray[np.int32]
    value: NDArray[np.float64]


class Usage:
    """The usage of a trace's hosts, read once."""

    def __init__(self, trace: TraceView) -> None:
        lanes = {lane.host: number for number, lane in enumerate(trace.lanes)}
        samples = trace.stored.read("samples")
        frame = _with_times(samples, trace.stored.read("clocks"), trace.start_ns)
        frame = frame.with_columns(lane=pl.col("host").replace_strict(lanes, default=None, return_dtype=pl.Int32))
        self._strips = {name: _series(frame.drop_nulls("lane"), metrics) for name, metrics in STRIPS.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The strips with any data."""
        return tuple(name for name, series in self._strips.items() if len(series.until_ns))

    def strips(self, from_ns: int, to_ns: int, bins: int) -> tuple[Strip, ...]:
        """All strips in [from_ns, to_ns), in `bins` bins. Cost: a search, and a pass over the samples in between."""
        return tuple(self._strip(name, from_ns, to_ns, bins) for name in self.names)

    def _strip(self, name: str, from_ns: int, to_ns: int, bins: int) -> Strip:
        series = self._strips[name]
        low, high = np.searchsorted(series.until_ns, np.array((from_ns, to_ns), np.int64))
        place = (series.until_ns[low:high] - from_ns) * bins // (to_ns - from_ns)
        lane, value = series.lane[low:high], series.value[low:high]
        order = np.lexsort((value, place))  # the busiest comes last in its bin
        place, lane, value = place[order], lane[order], value[order]
        last = np.flatnonzero(np.diff(place, append=bins))
        peak, busiest = np.full(bins, np.nan), np.full(bins, -1, np.int32)
        peak[place[last]], busiest[place[last]] = value[last], lane[last]
        counts, sums = (np.bincount(place, weights, minlength=bins)[:bins] for weights in (None, value))
        mean = np.divide(sums, counts, out=np.full(bins, np.nan), where=counts > 0)
        return Strip(name, UNITS[name], float(series.value.max()), peak, busiest, mean)


def _with_times(samples: pa.Table, clocks: pa.Table, start_ns: int) -> pl.DataFrame:
    """The samples with `until_ns`, when each interval ended, relative to the trace's start."""
    hosts, stamps = samples["host"].cast(pa.string()).combine_chunks(), samples["host_ns"].combine_chunks()
    times = to_trace_ns(hosts, stamps, clocks)
    frame = pl.DataFrame(samples).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return frame.with_columns(until_ns=pl.Series(times, dtype=pl.Int64) - start_ns)


def _series(frame: pl.DataFrame, metrics: tuple[str, ...]) -> _Series:
    """The sums of some metrics, whatever follows a dot in their names, by time."""
    kind = pl.col("metric").str.split(".").list.first()
    mine = frame.filter(kind.is_in(metrics)).group_by("until_ns", "lane").agg(pl.sum("value")).sort("until_ns", "lane")
    return _Series(*(mine[name].to_numpy() for name in ("until_ns", "lane", "value")))
