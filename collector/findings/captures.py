"""Findings about packets that the captures themselves missed; and which other findings they put in doubt.

A missing packet proves something only if the capture was complete. A packet that a capture dropped looks like a lost
one, a dropped answer looks like none, and a gap in the capture looks like a sender that paused. So a finding inferred
from the absence of packets becomes a notice if the captures there missed at least as many packets as it has cases. If a
capture counted its drops itself, only those at the time of the finding matter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa

from collector.decode.absurd_stamps import STAMPS_ABSURD
from collector.decode.merged_captures import MERGED
from collector.findings.finding import DOUBTS, LOSS_LEAST, LOSS_SHARE, Finding, listing, times
from collector.findings.kinds import KINDS, Evidence
from collector.findings.symptoms import Symptoms
from collector.hops.capture_drops import CaptureDrops, capture_drops
from collector.trace.model import TraceInfo

DROPS = "capture_dropped"
"""The counter of packets that a capture reports as dropped (`tracer/core/wire/src/counters.rs`)."""
INFERRED_FROM_ABSENCE = frozenset(kind.name for kind in KINDS if kind.evidence is Evidence.ABSENCE)


@dataclass(frozen=True, slots=True)
class Holes:
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
            f"{times(self.connections, 'connection')} went on behind holes (at least {self.bytes:,} bytes in "
            f"{times(self.gaps, 'place')} are in no capture, though what follows them came), and no silence, loss or "
            "missing answer is inferred there"
        )


@dataclass(frozen=True, slots=True)
class Missed:
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
        return self.drops.within(finding.from_trace_ns, finding.to_trace_ns)

    @property
    def much(self) -> bool:
        """Whether so many packets are missing that views of this host mislead."""
        return self.count >= LOSS_LEAST and self.count >= LOSS_SHARE * (self.count + self.captured_count)


def missed_by_host(troubles: Symptoms, info: TraceInfo, clocks: pa.Table) -> dict[str, Missed]:
    """The packets that each host's capture missed; hosts that missed none are omitted."""
    own_drops = {drops.host: drops for drops in capture_drops(info, clocks)}
    captured = {host.host: host.packets_count for host in info.hosts}
    dropped = {row["host"]: row["count"] for row in troubles.missed.iter_rows(named=True)}
    for host in captured:
        own = sum(counter.count for counter in info.counters if (counter.host, counter.name) == (host, DROPS))
        dropped[host] = max(own, dropped.get(host, 0))
    holes = _holes(troubles, list(captured))
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


def _holes(troubles: Symptoms, hosts: list[str]) -> dict[str, Holes]:
    """The holes of each host's connections. Arguments: all captured hosts; a single one has all holes without a
    host."""
    alone = pl.lit(hosts[0] if len(hosts) == 1 else None, pl.String)
    known = troubles.unseen.with_columns(host=pl.coalesce("host", alone)).drop_nulls("host")
    ordered = known.sort("bytes", descending=True, maintain_order=True)
    each = ordered.group_by("host", maintain_order=True).agg(
        connections=pl.len(),
        gaps=pl.col("gaps").sum(),
        bytes=pl.col("bytes").sum(),
        worst=pl.col("connection_id").first(),
        at_ns=pl.col("at_ns").first(),
    )
    return {row.pop("host"): Holes(**row) for row in each.iter_rows(named=True)}


def capture_findings(troubles: Symptoms, missed: Mapping[str, Missed]) -> Iterable[Finding]:
    """Findings about packets that a host's capture missed. Arguments: `missed`, from `missed_by_host`."""
    seen = {row["host"]: row for row in troubles.missed.iter_rows(named=True)}
    same: dict[Holes | str, list[str]] = {}
    for host, gap in sorted(missed.items(), key=lambda each: (-each[1].count, each[0])):
        same.setdefault(gap.same_holes or host, []).append(host)
    for hosts in same.values():
        yield _capture_finding(hosts, missed[hosts[0]], seen.get(hosts[0], {}))


def _capture_finding(hosts: list[str], gap: Missed, row: Mapping[str, Any]) -> Finding:
    """One finding for `hosts`, which missed the same packets."""
    where = f"the capture on {hosts[0]}" if len(hosts) == 1 else f"the captures on {listing(hosts)}"
    if gap.holes is not None and gap.only_holes:
        text = f"{where} missed packets: {gap.holes.words}"
        at_ns = gap.holes.at_ns
        row = row or {"connection_id": gap.holes.worst, "from_trace_ns": at_ns, "to_trace_ns": at_ns}
    elif gap.count > row.get("count", 0):
        when = "" if gap.drops is None else f", {gap.drops.when}"
        text = (
            f"{where} dropped {gap.count:,} of {times(gap.count + gap.captured_count, 'packet')}{when}: "
            "what was lost on the way or left unanswered there cannot be distinguished from what it missed"
        )
        if gap.drops is not None:
            stretches = gap.drops.stretches
            row = {
                "connection_id": row.get("connection_id"),
                "from_trace_ns": stretches[0].from_ns,
                "to_trace_ns": max(each.to_ns for each in stretches),
            }
    else:
        text = (
            f"{where} missed {times(gap.count, 'packet')} that did go by (they were acknowledged); "
            "their times there are unknown"
        )
    if gap.holes is not None and not gap.only_holes:
        text += f"; {gap.holes.words}"
    return Finding(
        severity="warning" if gap.much else "notice",
        kind=DOUBTS,
        host=hosts[0],
        touches=frozenset(hosts[1:]),
        connection_id=row.get("connection_id"),
        from_trace_ns=row.get("from_trace_ns"),
        to_trace_ns=row.get("to_trace_ns"),
        count=gap.count,
        text=text,
        remedy="capture with a larger buffer or a narrower filter on that host",
    )


def stamp_findings(info: TraceInfo) -> Iterable[Finding]:
    """Findings about packets stamped years away from all others of their host (`collector.decode.absurd_stamps`)."""
    for counter in info.counters:
        if counter.name == STAMPS_ABSURD:
            yield Finding(
                severity="warning",
                kind="absurd_stamps",
                host=counter.host,
                count=counter.count,
                text=f"{times(counter.count, 'packet')} in the capture on {counter.host} cannot be of the time that it "
                f"says: {counter.remedy}",
                remedy="see what wrote the file, and capture again; a damaged disk or memory does this, too",
            )


def with_doubts(found: Iterable[Finding], missed: Mapping[str, Missed], info: TraceInfo) -> list[Finding]:
    """`found`, with each finding that gaps of the captures may explain turned into a notice that says so.

    If a capture holds its packets twice, its retransmissions are no findings: the second sight of a packet looks like
    one.
    Arguments: `missed`, from `missed_by_host`.
    """
    twice = {counter.host for counter in info.counters if counter.name == MERGED}
    if twice:
        known = {host.host for host in info.hosts} - twice
        found = [each for each in found if each.kind not in INFERRED_FROM_ABSENCE or known.intersection(each.hosts)]
    return [_with_doubt(finding, missed) if finding.kind in INFERRED_FROM_ABSENCE else finding for finding in found]


def _with_doubt(finding: Finding, missed: Mapping[str, Missed]) -> Finding:
    near = {host: missed[host].near(finding) for host in finding.hosts if host in missed}
    hosts = sorted((host for host in near if near[host]), key=lambda host: (-near[host], host))
    dropped = sum(near[host] for host in hosts)
    if not hosts or finding.count > dropped:
        return finding
    return replace(
        finding,
        severity="notice" if finding.urgent else finding.severity,
        cause=f"{DOUBTS} on {hosts[0]}",
        text=f"{finding.text}; no proof, since the captures there ({listing(hosts)}) missed {times(dropped, 'packet')}",
    )
