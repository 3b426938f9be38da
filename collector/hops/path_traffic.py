"""Delay, loss, reordering and load on the path between each two hosts over time, to detect slow or lossy paths.

For each pair of hosts and direction, each slice of time and each range of delays (`bin`), transfers and their bytes are
counted in each partition, then summed. The histogram is needed because a path's own delay shows in the low quantiles
(higher ones include what hosts and queues add); the bytes show its load.

For transfers between different hosts there is

- one row of `traffic` for each of `KEYS`, with `COUNTS`: hops, their bytes, hops lost, hops overtaken, hops with data;
- one row of `rates` for each of `RATE_KEYS`, with `hops`: late data packets that arrived spread out in time;
  `rate_of_bin` is their rate (`collector/core/hops/src/rates.rs`).

Reordering: a data packet is counted as overtaken if one that the same connection sent later, for the first time,
arrived before it (RFC 4737 §3.4 calls the packet sent earlier "reordered").
"""

import math

import polars as pl

from collector import _core

SLICE_NS = 250_000_000
"""Long enough to hold some packets of a loaded path, short enough to show when a trouble began and ended."""
BINS_PER_OCTAVE = 4
"""As in the core: edges are 19 % apart, finer than the accuracy of aligned clocks on short paths. Packets that never
arrived are in bin -1."""
LATE_NS = 300_000
"""A shorter transfer is no sign of trouble on any path: busy hosts alone add as much."""
KEYS = ("send_host", "receive_host", "slice", "bin")
RATE_KEYS = ("send_host", "receive_host", "bin")
COUNTS = ("hops", "bytes", "lost", "overtaken", "data")


def merge_traffic(parts: pl.DataFrame) -> pl.DataFrame:
    """Rows of `traffic` of several partitions, merged to one for each of `KEYS`."""
    ends = pl.col(KEYS[:2])
    hosts = pl.Enum(pl.concat([parts[end].unique() for end in KEYS[:2]]).unique())
    codes = parts.select(ends.cast(hosts).to_physical().cast(pl.Int64))
    pair = codes["send_host"] * len(hosts.categories) + codes["receive_host"]
    keys = [column.to_numpy() for column in (pair, parts["slice"], parts["bin"])]
    first, sums = _core.sum_groups(keys, [parts[name].to_numpy() for name in COUNTS])
    return parts.select(KEYS)[first].with_columns(**dict(zip(COUNTS, map(pl.Series, sums), strict=True)))


def delay_of_bin(number: pl.Expr) -> pl.Expr:
    """The delay (ns) in the middle of a bin."""
    return (2.0 ** ((number + 0.5) / BINS_PER_OCTAVE)).cast(pl.Int64)


def bin_of_delay(delay_ns: int) -> int:
    """The first bin whose delays are at least `delay_ns`."""
    return math.ceil(math.log2(delay_ns) * BINS_PER_OCTAVE - 0.5)


def rate_of_bin(number: int) -> float:
    """The rate (bits per second) in the middle of a bin."""
    return float(2.0 ** ((number + 0.5) / BINS_PER_OCTAVE))
