"""Findings from the hosts' kernel counters (table `samples`): connections that a full listen queue turned away."""

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

from collector.clocks.alignment import to_trace_ns
from collector.findings.finding import Finding, frame, times
from collector.findings.observations import Observations

NS_PER_S = 1e9


def find(seen: Observations) -> Iterable[Finding]:
    """All findings from kernel counters; none without samples."""
    if seen.samples is not None:
        yield from _full_queues(frame(seen.samples), seen.clocks)


def _full_queues(samples: pl.DataFrame, clocks: pa.Table) -> Iterable[Finding]:
    every_ns = pl.col("host_ns").diff().over("host").backward_fill().over("host").fill_null(0)
    drops = samples.filter(pl.col("metric") == "listen_drops_per_s").sort("host", "host_ns")
    counted = drops.with_columns(count=pl.col("value") * every_ns / NS_PER_S).filter(pl.col("value") > 0)
    rows = counted.group_by("host", maintain_order=True).agg(
        pl.sum("count"), first=pl.first("host_ns"), last=pl.last("host_ns")
    )
    for row in rows.iter_rows(named=True):
        stamps = pa.array([row["first"], row["last"]])
        first_ns, last_ns = to_trace_ns(pa.array([row["host"]] * 2), stamps, clocks).tolist()
        yield Finding(
            severity="warning",
            kind="listen_drops",
            host=row["host"],
            from_trace_ns=first_ns,
            to_trace_ns=last_ns,
            count=round(row["count"]),
            text=f"the kernel of {row['host']} counted {times(round(row['count']), 'packet')} for new connections that "
            "it dropped because a listen queue was full (ListenDrops)",
            remedy="make the server accept connections sooner, or raise its backlog and net.core.somaxconn",
        )
