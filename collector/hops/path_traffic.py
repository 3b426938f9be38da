"""How packets fared between each two hosts, over time: what tells a slow, narrow, lossy, cut or reordering link.

Counted a partition at a time, and added up: for each pair of hosts and direction, each slice of time, and each size of
delay (`bin`), how many transfers there were and of how many bytes. A histogram, since a link's delay is told by its low
quantiles (what the link does at its best, whatever hosts and queues add) and its load by the bytes.

Of transfers between different hosts there is

- one row of `traffic` for each of `KEYS`, with `COUNTS`: hops, their bytes, those lost, those overtaken, those of data;
- one row of `rates` for each of `RATE_KEYS`, with `hops`: late data that arrived spread out; `rate_of_bin` is at what
  rate (`tracer/core/hops/src/rates.rs`).

Reordered: a first transmission of data that arrived before one that the same connection had sent earlier (RFC 4737
§3.4: the later-sent one is in order, the earlier one is "reordered"; counted here is the one overtaken).
"""

import math

import polars as pl

from tracer import _core

SLICE_NS = 250_000_000
"""Long enough for some packets of a loaded link, short enough for when a trouble began and ended."""
BINS_PER_OCTAVE = 4
"""As the core has them: edges are 19 % apart, better than clocks of hosts are worth over short links. What never
arrived is in bin -1."""
LATE_NS = 300_000
"""A transfer that takes less tells of no trouble, whatever the link: hosts add as much when they are busy."""
KEYS = ("send_host", "receive_host", "slice", "bin")
RATE_KEYS = ("send_host", "receive_host", "bin")
COUNTS = ("hops", "bytes", "lost", "overtaken", "data")


def added_traffic(parts: pl.DataFrame) -> pl.DataFrame:
    """Rows of `traffic` of several parts as one for each of `KEYS`."""
    ends = pl.col(KEYS[:2])
    hosts = pl.Enum(pl.concat([parts[end].unique() for end in KEYS[:2]]).unique())
    codes = parts.select(ends.cast(hosts).to_physical().cast(pl.Int64))
    pair = codes["send_host"] * len(hosts.categories) + codes["receive_host"]
    keys = [column.to_numpy() for column in (pair, parts["slice"], parts["bin"])]
    first, sums = _core.sum_groups(keys, [parts[name].to_numpy() for name in COUNTS])
    return parts.select(KEYS)[first].with_columns(**dict(zip(COUNTS, map(pl.Series, sums), strict=True)))


def delay_of_bin(number: pl.Expr) -> pl.Expr:
    """The delay, in ns, in the middle of a bin."""
    return (2.0 ** ((number + 0.5) / BINS_PER_OCTAVE)).cast(pl.Int64)


def bin_of_delay(delay_ns: int) -> int:
    """The first bin that stands for at least so long a delay."""
    return math.ceil(math.log2(delay_ns) * BINS_PER_OCTAVE - 0.5)


def rate_of_bin(number: int) -> float:
    """The rate, in bits per second, in the middle of a bin."""
    return float(2.0 ** ((number + 0.5) / BINS_PER_OCTAVE))
