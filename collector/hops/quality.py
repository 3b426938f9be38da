"""How well packets were paired: counts for each connection and direction, to be summed by hosts or over all.

A trace without these counts asks to be believed. Every packet that was captured is in one of them. What each count is
and how far to trust it: docs/pairing.md.
"""

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from collector.hops.counts import HopCounts, hop_counts
from collector.trace.schema import HopState, conform

COUNTS = (
    *(f"{state}_count" for state in HopState),
    "split_count",
    "retransmitted_count",
    "early_count",
    "bytes",
    "matched_bytes",
)
"""Columns of `schema.QUALITY` that add up."""


_FAILED = ("capture_dropped_count", "ambiguous_count", "unmatched_count", "early_count")
"""What could have been paired and was not, or was paired wrongly."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over some rows of the table `quality`; `schema.QUALITY` says what each is."""

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
        """Hops that two captures saw or should have seen: all but those lost and those outside a capture."""
        return self.hops_count - self.lost_count - self.outside_window_count

    @property
    def failed_count(self) -> int:
        """Hops that should have been paired and were not, and pairs that cannot be right."""
        return self.pairable_count - self.matched_count + self.early_count

    @property
    def matched_share(self) -> str:
        """Of the hops that could be paired, how many are."""
        return percent(self.matched_count, self.pairable_count)

    @property
    def bytes_share(self) -> str:
        """Of the bytes that could be paired, how many are."""
        return percent(self.matched_bytes, self.bytes)


@dataclass(frozen=True, slots=True)
class HostPair:
    """All that one host sent to another; a host is null where it was not captured."""

    send_host: str | None
    receive_host: str | None
    connections_count: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class ConnectionQuality:
    """Both directions of one connection; a host is null where it was not captured."""

    connection_id: int
    client_host: str | None
    client_addr: str | None
    client_port: int | None
    server_host: str | None
    server_addr: str | None
    server_port: int | None
    counts: Counts


def quality_of(hops: pa.Table, counts: HopCounts | None = None) -> pa.Table:
    """The table `quality` of these hops (whole connections, in the order that matching gives them: a connection's
    direction is one run of rows).

    Arguments: `counts`, their `hop_counts`, if they are counted already.
    Source: `schema.QUALITY` says what each count is. Cost: one pass.
    """
    flows = (hop_counts(hops) if counts is None else counts).flows
    states = {f"{state}_count": flows[f"state_{code}"] for code, state in enumerate(HopState)}
    sums = {f"{name}_count": flows[name] for name in ("split", "retransmitted", "early")}
    ends = hops.select(["connection_id", "send_host", "receive_host"]).take(pa.array(flows["start"]))
    columns = states | sums | {name: flows[name] for name in ("bytes", "matched_bytes")}
    return conform("quality", pa.table({name: ends[name] for name in ends.column_names} | columns))


def total_of(quality: pa.Table) -> Counts:
    """The counts over all of the table `quality`."""
    return _counts(_frame(quality).select(*_sums()).row(0, named=True))


def by_host_pair(quality: pa.Table) -> tuple[HostPair, ...]:
    """The counts for each pair of hosts and direction, worst first: by what failed, then by what was lost, then by
    size."""
    rows = (
        _frame(quality)
        .group_by("send_host", "receive_host")
        .agg(*_sums(), connections_count=pl.col("connection_id").n_unique())
    )
    order = [True, True, True, False, False]
    rows = rows.sort(_failed(), "lost_count", "hops_count", "send_host", "receive_host", descending=order)
    return tuple(
        HostPair(row["send_host"], row["receive_host"], row["connections_count"], _counts(row))
        for row in rows.iter_rows(named=True)
    )


def worst_connections(quality: pa.Table, connections: pa.Table, most: int) -> tuple[ConnectionQuality, ...]:
    """The connections in which pairing failed or packets were lost, worst first, at most so many.

    A connection that was only partly captured is none of them: nothing could be done better.
    """
    rows = _imperfect(quality).group_by("connection_id").agg(pl.col("failed", "lost").sum())
    worst = rows.sort("failed", "lost", "connection_id", descending=[True, True, False]).head(most)["connection_id"]
    chosen = quality.filter(
        pl.DataFrame(quality.select(["connection_id"])).to_series().is_in(worst.implode()).to_arrow()
    )
    sums = _frame(chosen).group_by("connection_id").agg(*_sums())
    rows = pl.DataFrame({"connection_id": worst}).join(sums, on="connection_id", how="left", maintain_order="left")
    ends = [f"{side}_{what}" for side in ("client", "server") for what in ("host", "addr", "port")]
    names = _frame(connections.select(["connection_id", *ends]))
    rows = rows.join(names, on="connection_id", how="left", maintain_order="left")
    return tuple(
        ConnectionQuality(row["connection_id"], **{end: row[end] for end in ends}, counts=_counts(row))
        for row in rows.iter_rows(named=True)
    )


def imperfect_count(quality: pa.Table) -> int:
    """How many connections `worst_connections` would list without a limit."""
    return _imperfect(quality)["connection_id"].n_unique()


def percent(part: int, whole: int) -> str:
    """`99.98 %`, rounded down: `100 %` is all of it. `–` of nothing."""
    if not whole:
        return "–"
    hundredths = part * 10_000 // whole
    exact = part in (0, whole)
    return f"{hundredths // 100} %" if exact else f"{hundredths // 100}.{hundredths % 100:02} %"


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(table).with_columns(pl.col(pl.Categorical).cast(pl.String))


def _sums() -> list[pl.Expr]:
    hops = pl.sum_horizontal(pl.col(f"{state}_count").sum() for state in HopState)
    return [*(pl.col(name).sum() for name in COUNTS), hops.alias("hops_count")]


def _failed() -> pl.Expr:
    return pl.sum_horizontal(_FAILED)


def _imperfect(quality: pa.Table) -> pl.DataFrame:
    """The directions of connections in which something failed or was lost: `connection_id`, `failed`, `lost`."""
    rows = pl.DataFrame(quality.select(["connection_id", "lost_count", *_FAILED]))
    rows = rows.select("connection_id", failed=_failed(), lost="lost_count")
    return rows.filter((pl.col("failed") > 0) | (pl.col("lost") > 0))


def _counts(row: dict[str, int]) -> Counts:
    return Counts(row["hops_count"], **{name: row[name] for name in COUNTS})
