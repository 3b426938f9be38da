"""Detects port scans: one host that tries many ports, each once or twice. A scan is one finding, not one for each port.

Ports that refused or did not answer are counted. Clients of a service that is down try one port, or a few, again and
again. A host that tries many ports, in the median at most twice each, is looking for open ones.

Limits: a scan of few ports is not detected; open ports that a scan finds count as ordinary connections.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from collector.findings.finding import Finding, evidence, listing, times
from collector.trace.durations import in_words
from collector.trace.threshold import threshold

IN_VAIN = ("refused", "unanswered")
MOST_NAMED = 3
"""At most so many servers are named."""


@dataclass(frozen=True, slots=True)
class ScanThresholds:
    """By which failed attempts count as a scan of ports."""

    least_ports_count: int = threshold(20, "chosen: more ports than a host's services use that may be down at one time")
    most_tries_count: int = threshold(
        2, "tries of a port, in the median: a scanner retries a port that does not answer once"
    )


def without_scans(rows: pl.DataFrame, limits: ScanThresholds) -> tuple[list[Finding], pl.DataFrame]:
    """Findings about scans, and the remaining rows.

    Arguments: `Symptoms.failed_handshakes`, possibly with more columns; thresholds.
    """
    tried = pl.coalesce("server_host", "server_addr")
    vain = rows.with_columns(tried=tried).filter(pl.col("fate").is_in(IN_VAIN))
    by_port = vain.group_by("client_host", "tried", "server_port").agg(pl.col("count").sum())
    by_client = by_port.group_by("client_host").agg(ports=pl.len(), tries=pl.col("count").median())
    few_tries = pl.col("tries") <= limits.most_tries_count
    scanning = by_client.filter((pl.col("ports") >= limits.least_ports_count) & few_tries)
    if scanning.is_empty():
        return [], rows
    of_scans = rows.join(scanning, on="client_host", how="semi", nulls_equal=True, maintain_order="left").filter(
        pl.col("fate").is_in(IN_VAIN)
    )
    often = of_scans.group_by("client_host", "server_addr", "server_port").agg(all=pl.col("count").sum())
    often = often.filter(pl.col("all") > limits.most_tries_count)  # a service that is really wanted
    keys = ["client_host", "server_addr", "server_port"]
    of_scans = of_scans.join(often, on=keys, how="anti", nulls_equal=True, maintain_order="left")
    of = [*keys, "fate", "why"]
    rest = rows.join(of_scans.select(of).unique(), on=of, how="anti", nulls_equal=True, maintain_order="left")
    return list(_scans(of_scans)), rest


def _scans(rows: pl.DataFrame) -> Iterator[Finding]:
    for (client,), mine in rows.group_by("client_host", maintain_order=True):
        yield _scan(client, mine.rows(named=True))


def _scan(client: object, rows: Sequence[Mapping[str, Any]]) -> Finding:
    """The finding about all failed attempts of one host."""
    servers = sorted({str(row["server_host"] or row["server_addr"]) for row in rows})
    ports = len({(row["server_addr"], row["server_port"]) for row in rows})
    begin, end = min(row["begin_ns"] for row in rows), max(row["end_ns"] for row in rows)
    fates = {fate: sum(row["count"] for row in rows if row["fate"] == fate) for fate in IN_VAIN}
    became = listing(f"{count:,} {what}" for what, count in fates.items() if count)
    named = listing(servers) if len(servers) <= MOST_NAMED else f"{len(servers):,} hosts"
    worst = max(rows, key=lambda row: row["worst_ns"])
    who = str(client) if client else "a host that was not captured"
    return Finding(
        severity="notice",
        kind="port_scan",
        host=None if client is None else str(client),
        touches=frozenset(servers),
        count=sum(fates.values()),
        text=f"{who} tried {times(ports, 'port')} of {named} within {in_words(end - begin)} ({became}): probably a "
        f"port scan",
        remedy=f"find what ran on {who} at that time; monitoring and security scanners do this on purpose",
        **{
            **evidence(worst),
            "from_trace_ns": begin,
            "to_trace_ns": end,
            "cost_ns": 0,
        },
    )
