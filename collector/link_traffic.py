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

from collector.columns import codes, indices, numbers
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
MATCHED, LOST, DATA = STATES.index(HopState.MATCHED), STATES.index(HopState.LOST), KINDS.index(HopKind.DATA)
TOLD = [MATCHED, LOST]
BINS = 256
"""Room for all bins of a delay below 2^63 ns, and `NO_DELAY`."""


def link_traffic(hops: pa.Table) -> pl.DataFrame:
    """Transfers between different hosts, one row for each of `KEYS`: `COUNTS` (hops, their bytes, those lost, those
    overtaken, those of data), all int64.

    Arguments: columns of `collector.schema.HOPS`; a connection's are one run of rows. Cost: ~100 ns a hop.
    """
    state, kind = codes(hops["state"], STATES), codes(hops["kind"], KINDS)
    (sender, senders), (receiver, receivers) = (indices(hops[f"{end}_host"]) for end in ("send", "receive"))
    data = kind == DATA
    told = np.flatnonzero(np.isin(state, TOLD) & (sender >= 0) & (receiver >= 0))
    rows = told[_apart(senders, receivers)[sender[told], receiver[told]]]
    at_ns = np.maximum(numbers(hops["send_trace_ns"])[rows], numbers(hops["receive_trace_ns"])[rows])
    delay_ns = numbers(hops["one_way_delay_ns"], NO_DELAY)[rows]
    bins = np.where(state[rows] == MATCHED, _bins(delay_ns), NO_DELAY)
    first = int(at_ns.min()) // SLICE_NS if len(rows) else 0
    pair = sender[rows].astype(np.int64) * len(receivers) + receiver[rows]
    key = ((at_ns // SLICE_NS - first) * (len(senders) * len(receivers)) + pair) * BINS + bins - NO_DELAY
    columns = {
        "bytes": numbers(hops["stream_end"])[rows] - numbers(hops["stream_start"])[rows],
        "lost": (state[rows] == LOST).astype(np.int64),
        "overtaken": _overtaken(hops, (state == MATCHED) & data)[rows].astype(np.int64),
        "data": data[rows].astype(np.int64),
    }
    sums = (
        pl.DataFrame({"key": key} | columns).group_by("key").agg(pl.len().cast(pl.Int64).alias("hops"), pl.all().sum())
    )
    return _named(sums, first, senders, receivers)


def _apart(senders: list[str], receivers: list[str]) -> NDArray[np.bool_]:
    """Which senders and receivers are different hosts."""
    return np.array([[one != other for other in receivers] for one in senders], dtype=np.bool_).reshape(
        len(senders), len(receivers)
    )


def _named(sums: pl.DataFrame, first: int, senders: list[str], receivers: list[str]) -> pl.DataFrame:
    """Sums with their keys taken apart."""
    place, pairs = pl.col("key") // BINS, max(1, len(senders) * len(receivers))
    pair = place % pairs
    width = max(1, len(receivers))
    apart = sums.with_columns(
        bin=pl.col("key") % BINS + NO_DELAY, slice=place // pairs + first, of=pair // width, to=pair % width
    )
    names = [pl.Series(texts, dtype=pl.String) for texts in (senders, receivers)]
    return apart.select(
        send_host=names[0].gather(apart["of"]), receive_host=names[1].gather(apart["to"]), slice="slice", bin="bin",
        **{name: pl.col(name) for name in COUNTS},
    )  # fmt: skip


def delay_of_bin(number: pl.Expr) -> pl.Expr:
    """The delay, in ns, in the middle of a bin."""
    return (2.0 ** ((number + 0.5) / BINS_PER_OCTAVE)).cast(pl.Int64)


def _bins(delay_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    return (BINS_PER_OCTAVE * np.log2(np.maximum(delay_ns, 1))).astype(np.int64)


def _overtaken(hops: pa.Table, usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of data hops seen at both ends, those that arrived after one that was sent later on the same flow.

    A flow's hops are in the order of the stream, and so are first transmissions sent.
    """
    result = np.zeros(hops.num_rows, dtype=np.bool_)
    rows = np.flatnonzero(usable & (numbers(hops["attempt"]) == 1))
    if not len(rows):
        return result
    flow = 2 * numbers(hops["connection_id"])[rows] + numbers(hops["from_client"])[rows]
    received = numbers(hops["receive_frame"])[rows].astype(np.int64)
    run = np.cumsum(np.diff(flow, prepend=flow[0]) != 0)
    result[rows] = received > _running_least(received, run)
    return result


def _running_least(values: NDArray[np.int64], run: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each place, the least value at or after it in its run (`run` counts up)."""
    span = int(values.max()) + 1
    return np.minimum.accumulate((values + run * span)[::-1])[::-1] - run * span
