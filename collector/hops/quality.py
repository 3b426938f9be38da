"""Matching quality: counts for each connection and direction, which can be summed by hosts or over the trace.

Every captured packet is in one of these counts, so a reader can check how complete a trace is. docs/pairing.md explains
each count and how far to trust it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from collector.hops.counts import HopCounts, hop_counts
from collector.trace.schema import TABLES, HopState, conform

COUNTS = (
    *(f"{state}_count" for state in HopState),
    "split_count",
    "retransmitted_count",
    "early_count",
    "bytes",
    "matched_bytes",
)
"""Columns of `schema.QUALITY` that can be summed."""


_FAILED = ("capture_dropped_count", "ambiguous_count", "unmatched_count", "early_count")
"""Hops that should have been matched and were not, or were matched wrongly."""
_PAIR = ("send_host", "receive_host")
_ENDS = tuple(f"{side}_{what}" for side in ("client", "server") for what in ("host", "addr", "port"))
CONNECTION_COLUMNS = ("connection_id", *_ENDS)
"""Columns of the table `connections` that `connections_of` needs."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over rows of the table `quality`; `schema.QUALITY` explains each count."""

    hops_count: int  # of all states
    matched_count: int
    lost_count: int
    capture_dropped_count: int
    outside_window_count: int
    ambiguous_count: int
    unmatched_count: int
    split_count: int
    retransmitted_count: int
    early_count: int
    bytes: int
    matched_bytes: int

    @property
    def pairable_count(self) -> int:
        """Hops that two captures saw or should have seen: all except those lost and those outside a capture."""
        return self.hops_count - self.lost_count - self.outside_window_count

    @property
    def failed_count(self) -> int:
        """Hops that should have been matched and were not, and matches that cannot be right."""
        return self.pairable_count - self.matched_count + self.early_count

    @property
    def matched_share(self) -> str:
        """The share of the pairable hops that are matched, as text."""
        return percent(self.matched_count, self.pairable_count)

    @property
    def bytes_share(self) -> str:
        """The share of the bytes that are matched, as text."""
        return percent(self.matched_bytes, self.bytes)


@dataclass(frozen=True, slots=True)
class HostPair:
    """The hops from one host to another; a host that was not captured is null."""

    send_host: str | None
    receive_host: str | None
    connections_count: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class ConnectionQuality:
    """Both directions of one connection; a host that was not captured is null."""

    connection_id: int
    client_host: str | None
    client_addr: str | None
    client_port: int | None
    server_host: str | None
    server_addr: str | None
    server_port: int | None
    counts: Counts
    client_peer: str | None = None  # what the address of an end without a capture is called
    server_peer: str | None = None


def quality_of(hops: pa.Table, counts: HopCounts | None = None) -> pa.Table:
    """The table `quality` of `hops` (whole connections, in the order of matching: the rows of one direction of a
    connection are consecutive).

    Arguments: `counts`, their `hop_counts`, if already computed.
    Source: `schema.QUALITY` explains each count. Cost: one pass.
    """
    flows = (hop_counts(hops) if counts is None else counts).flows
    states = {f"{state}_count": flows[f"state_{code}"] for code, state in enumerate(HopState)}
    sums = {f"{name}_count": flows[name] for name in ("split", "retransmitted", "early")}
    ends = hops.select(["connection_id", "send_host", "receive_host"]).take(pa.array(flows["start"]))
    columns = states | sums | {name: flows[name] for name in ("bytes", "matched_bytes")}
    return conform("quality", pa.table({name: ends[name] for name in ends.column_names} | columns))


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums over the table `quality`.

    `worst`: `connection_id` and the counts of connections in which matching failed or packets were lost, worst first.
    A connection that was only partly captured is not among them: its packets could not be matched better.
    """

    total: Counts
    host_pairs: tuple[HostPair, ...]  # worst first: by what failed, then by what was lost, then by size
    imperfect_count: int  # connections in which something failed or was lost
    worst: pl.DataFrame


def summary_of(slabs: Iterable[pa.Table], most: int) -> Summary:
    """The sums over the table `quality`, with at most `most` of the worst connections.

    Arguments: `slabs`, its rows in order; those of one connection are adjacent. Cost: one pass. Memory: a slab.
    """
    parts = [_summary_of_slab(slab, most) for slab in _whole_connections(slabs)]
    pairs = _sums(pl.concat([each.pairs for each in parts]), *_PAIR)
    order = [True, True, True, False, False]
    pairs = pairs.sort(_failed_count(), "lost_count", "hops_count", *_PAIR, descending=order)
    return Summary(
        total=_counts(_sums(pairs).row(0, named=True)),
        host_pairs=tuple(
            HostPair(row["send_host"], row["receive_host"], row["connections_count"], _counts(row))
            for row in pairs.iter_rows(named=True)
        ),
        imperfect_count=sum(each.imperfect_count for each in parts),
        worst=_worst(pl.concat([each.worst for each in parts]), most),
    )


def connections_of(worst: pl.DataFrame, slabs: Iterable[pa.Table]) -> tuple[ConnectionQuality, ...]:
    """The connections of `Summary.worst`, with their hosts and addresses.

    Arguments: `slabs` of the table `connections`, with `CONNECTION_COLUMNS`.
    """
    chosen = worst["connection_id"]
    named = [_frame(slab).filter(pl.col("connection_id").is_in(chosen.implode())) for slab in slabs]
    nothing = _frame(TABLES["connections"].empty_table().select(CONNECTION_COLUMNS))
    rows = worst.join(pl.concat([nothing, *named]), on="connection_id", how="left", maintain_order="left")
    return tuple(
        ConnectionQuality(row["connection_id"], **{end: row[end] for end in _ENDS}, counts=_counts(row))
        for row in rows.iter_rows(named=True)
    )


@dataclass(frozen=True, slots=True)
class _Slab:
    """Sums over some rows of `quality`: by pairs of hosts, and as `Summary.imperfect_count` and `.worst`."""

    pairs: pl.DataFrame
    imperfect_count: int
    worst: pl.DataFrame


def _whole_connections(slabs: Iterable[pa.Table]) -> Iterator[pl.DataFrame]:
    """The rows of `slabs`, cut so that each connection is whole; at least one slab."""
    left = _counts_of_connections(TABLES["quality"].empty_table())
    for slab in slabs:
        rows = pl.concat([left, _counts_of_connections(slab)])
        begins = np.flatnonzero(np.diff(rows["connection_id"].to_numpy(), prepend=-1))
        whole_count = int(begins[-1]) if len(begins) else 0
        yield rows.head(whole_count)
        left = rows.tail(len(rows) - whole_count)
    yield left


def _counts_of_connections(slab: pa.Table) -> pl.DataFrame:
    """Rows of `quality`, each with its `hops_count`."""
    hops = pl.sum_horizontal(f"{state}_count" for state in HopState)
    return _frame(slab).select("connection_id", *_PAIR, pl.col(*COUNTS).cast(pl.Int64), hops_count=hops.cast(pl.Int64))


def _summary_of_slab(rows: pl.DataFrame, most: int) -> _Slab:
    pairs = rows.group_by(*_PAIR).agg(
        pl.col(*COUNTS, "hops_count").sum(), connections_count=pl.col("connection_id").n_unique().cast(pl.Int64)
    )
    imperfect_ids = rows.filter((_failed_count() > 0) | (pl.col("lost_count") > 0))["connection_id"].unique()
    imperfect = _sums(rows.filter(pl.col("connection_id").is_in(imperfect_ids.implode())), "connection_id")
    return _Slab(pairs, len(imperfect_ids), _worst(imperfect, most))


def _sums(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    """The sums of all counts, over all rows or grouped by the columns `by`."""
    counts = pl.col(*COUNTS, "hops_count", "^connections_count$").sum()
    return rows.group_by(*by).agg(counts) if by else rows.select(counts)


def _worst(connections: pl.DataFrame, most: int) -> pl.DataFrame:
    """The worst connections with their counts, at most `most`."""
    ordered = connections.sort(_failed_count(), "lost_count", "connection_id", descending=[True, True, False])
    return ordered.select("connection_id", *COUNTS, "hops_count").head(most)


def percent(part: int, whole: int) -> str:
    """`99.98 %`, rounded down, so that `100 %` means all; `–` if `whole` is 0."""
    if not whole:
        return "–"
    hundredths = part * 10_000 // whole
    exact = part in (0, whole)
    return f"{hundredths // 100} %" if exact else f"{hundredths // 100}.{hundredths % 100:02} %"


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(table).with_columns(pl.col(pl.Categorical).cast(pl.String))


def _failed_count() -> pl.Expr:
    return pl.sum_horizontal(_FAILED)


def _counts(row: dict[str, int]) -> Counts:
    return Counts(row["hops_count"], **{name: row[name] for name in COUNTS})
