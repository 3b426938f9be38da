"""How packets fared between each two hosts, over time: what tells a slow, narrow, lossy, cut or reordering link.

Counted a partition at a time, and added up: for each pair of hosts and direction, each slice of time, and each size of
delay (`bin`), how many transfers there were and of how many bytes. A histogram, since a link's delay is told by its low
quantiles (what the link does at its best, whatever hosts and queues add) and its load by the bytes.

Reordered: a first transmission of data that arrived before one that the same connection had sent earlier (RFC 4737
§3.4: the later-sent one is in order, the earlier one is "reordered"; counted here is the one overtaken).
"""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.columns import codes, numbers
from collector.schema import HopKind, HopState

SLICE_NS = 250_000_000
"""Long enough for some packets of a loaded link, short enough for when a trouble began and ended."""
BINS_PER_OCTAVE = 4
"""So a bin's edges are 19 % apart: better than clocks of hosts are worth over short links."""
NO_DELAY = -1
"""The bin of what never arrived, or was not seen at both ends."""
KEYS = ("send_host", "receive_host", "slice", "bin")
COUNTS = ("hops", "bytes", "lost", "overtaken", "data")
KINDS, STATES = list(HopKind), list(HopState)
TOLD = [STATES.index(state) for state in (HopState.MATCHED, HopState.LOST)]


def link_traffic(hops: pa.Table) -> pl.DataFrame:
    """Transfers between different hosts, one row for each of `KEYS`: `COUNTS` (hops, their bytes, those lost, those
    overtaken, those of data), all int64.

    Arguments: columns of `collector.schema.HOPS`; a connection's are one run of rows. Cost: ~60 ns a hop.
    """
    state, kind = codes(hops["state"], STATES), codes(hops["kind"], KINDS)
    delay_ns = numbers(hops["one_way_delay_ns"], NO_DELAY)
    matched = state == STATES.index(HopState.MATCHED)
    at_ns = np.maximum(numbers(hops["send_trace_ns"], 0), numbers(hops["receive_trace_ns"], 0))
    data = kind == KINDS.index(HopKind.DATA)
    frame = pl.DataFrame(hops.select(["send_host", "receive_host"])).with_columns(
        slice=pl.Series(at_ns // SLICE_NS),
        bin=pl.Series(np.where(matched, _bins(delay_ns), NO_DELAY)),
        bytes=pl.Series(numbers(hops["stream_end"]) - numbers(hops["stream_start"])),
        lost=pl.Series(state == STATES.index(HopState.LOST)),
        overtaken=pl.Series(_overtaken(hops, matched & data)),
        data=pl.Series(data),
        told=pl.Series(np.isin(state, TOLD)),
    )
    apart = pl.col("send_host").cast(pl.String) != pl.col("receive_host").cast(pl.String)
    sums = pl.col("bytes", "lost", "overtaken", "data").cast(pl.Int64).sum()
    grouped = frame.filter(pl.col("told") & apart).group_by(KEYS).agg(pl.len().cast(pl.Int64).alias("hops"), sums)
    return grouped.select(pl.col("send_host", "receive_host").cast(pl.String), "slice", "bin", *COUNTS)


def delay_of_bin(number: pl.Expr) -> pl.Expr:
    """The delay, in ns, in the middle of a bin."""
    return (2.0 ** ((number + 0.5) / BINS_PER_OCTAVE)).cast(pl.Int64)


def _bins(delay_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    return (BINS_PER_OCTAVE * np.log2(np.maximum(delay_ns, 1))).astype(np.int64)


def _overtaken(hops: pa.Table, usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of data hops seen at both ends, those that arrived after one that was sent later on the same flow."""
    result = np.zeros(hops.num_rows, dtype=np.bool_)
    rows = np.flatnonzero(usable & (numbers(hops["attempt"]) == 1))
    if not len(rows):
        return result
    flow = 2 * numbers(hops["connection_id"])[rows] + numbers(hops["from_client"])[rows]
    sent, received = (numbers(hops[f"{end}_frame"])[rows].astype(np.int64) for end in ("send", "receive"))
    order = np.lexsort((numbers(hops["stream_start"])[rows], sent, flow))
    run = np.cumsum(np.diff(flow[order], prepend=flow[order][0]) != 0)
    later_first = _running_least(received[order], run)
    result[rows[order]] = received[order] > later_first
    return result


def _running_least(values: NDArray[np.int64], run: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each place, the least value at or after it in its run (`run` counts up)."""
    span = int(values.max()) + 1
    return np.minimum.accumulate((values + run * span)[::-1])[::-1] - run * span
