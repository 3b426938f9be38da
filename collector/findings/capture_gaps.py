"""How many packets each host's capture missed: by its own count, by acknowledgements, by holes in streams.

Symptoms, the hosts' counters and their clocks → `Missed` for each host that missed any. A capture that counts its drops
itself also says when; then only those at the time of a finding put it in doubt.
"""

import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.findings.finding import Finding, SeverityThresholds, times
from collector.findings.symptoms import Symptoms
from collector.hops.capture_drops import CaptureDrops, capture_drops
from collector.trace.model import TraceInfo

DROPS = "capture_dropped"
"""The counter of packets that a capture reports as dropped (`tracer/core/wire/src/counters.rs`)."""


class Holes(Struct, frozen=True):
    """The connections of a host whose streams continue behind bytes that no capture has."""

    connections: int
    gaps: int
    bytes: int
    worst: int
    at_ns: int

    @property
    def words(self) -> str:
        """One clause: what these connections lack, and that nothing is inferred about them."""
        return (
            f"{times(self.connections, 'connection')} continued behind holes (at least {self.bytes:,} bytes in "
            f"{times(self.gaps, 'place')} are in no capture, though later bytes are), so no silence, loss or missing "
            "answer is inferred there"
        )


class Missed(Struct, frozen=True):
    """Packets that a host's capture missed: `count`, from its own statistics or from acknowledgements; at least one for
    each hole. `drops`: when it dropped them, if its own statistics account for all of them."""

    count: int
    captured_count: int
    holes: "Holes | None" = None
    drops: CaptureDrops | None = None

    @property
    def only_holes(self) -> bool:
        """Whether only the holes of its connections show that packets are missing."""
        return self.holes is not None and self.count <= self.holes.gaps

    @property
    def same_holes(self) -> "Holes | None":
        """A key: hosts with the same holes share a finding; None if more than holes is known."""
        return self.holes if self.only_holes else None

    def near(self, finding: Finding) -> int:
        """At most so many of the packets were missed at the time of a finding."""
        if self.drops is None:
            return self.count
        return self.drops.count_within(finding.from_trace_ns, finding.to_trace_ns)

    def misleads(self, severity: SeverityThresholds) -> bool:
        """Whether so many packets are missing that views of this host mislead."""
        return severity.is_much_lost(self.count, self.count + self.captured_count)


def missed_by_host(symptoms: Symptoms, info: TraceInfo, clocks: pa.Table) -> dict[str, Missed]:
    """The packets that each host's capture missed; hosts that missed none are omitted."""
    own_drops = {drops.host: drops for drops in capture_drops(info, clocks)}
    captured = {host.host: host.packets_count for host in info.hosts}
    dropped = {row["host"]: row["count"] for row in symptoms.missed.iter_rows(named=True)}
    for host in captured:
        own = sum(counter.count for counter in info.counters if (counter.host, counter.name) == (host, DROPS))
        dropped[host] = max(own, dropped.get(host, 0))
    holes = _holes(symptoms, list(captured))
    for host, hole in holes.items():
        dropped[host] = max(dropped.get(host, 0), hole.gaps)
    return {
        host: Missed(count, captured.get(host, 0), holes.get(host), _if_complete(own_drops.get(host), count))
        for host, count in dropped.items()
        if count
    }


def _if_complete(drops: CaptureDrops | None, count: int) -> CaptureDrops | None:
    """`drops`, if they account for all missed packets; otherwise None."""
    return drops if drops is not None and drops.count >= count else None


def _holes(symptoms: Symptoms, hosts: list[str]) -> dict[str, Holes]:
    """The holes of each host's connections. Arguments: all captured hosts; a single one has all holes without a
    host."""
    alone = pl.lit(hosts[0] if len(hosts) == 1 else None, pl.String)
    known = symptoms.unseen.filter(pl.col("gaps") > 0).with_columns(host=pl.coalesce("host", alone)).drop_nulls("host")
    ordered = known.sort("bytes", descending=True, maintain_order=True)
    each = ordered.group_by("host", maintain_order=True).agg(
        connections=pl.len(),
        gaps=pl.col("gaps").sum(),
        bytes=pl.col("bytes").sum(),
        worst=pl.col("connection_id").first(),
        at_ns=pl.col("at_ns").first(),
    )
    return {row.pop("host"): Holes(**row) for row in each.iter_rows(named=True)}
