"""What the captures themselves missed, and which findings it puts in doubt.

Silence is only proof where somebody listened. A packet that a capture dropped looks like one that was lost, an answer
that it dropped like none, a gap in it like a sender that stood still. So what is told by packets that were not seen is
no more than a notice if the captures there missed as many packets as it counts cases: of those that a capture counted
itself, only those of that time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa

from collector.decode.absurd_stamps import STAMPS_ABSURD
from collector.decode.merged_captures import MERGED
from collector.findings.finding import DOUBTS, LOSS_LEAST, LOSS_SHARE, Finding, listed, times
from collector.findings.symptoms import Symptoms
from collector.hops.capture_drops import CaptureDrops, capture_drops
from collector.trace.model import TraceInfo

DROPS = "capture_dropped"
"""The counter of what a capture says that it dropped (`tracer/core/wire/src/counters.rs`)."""
TOLD_BY_ABSENCE = frozenset(
    {
        *(
            "link_down",
            "packet_loss",
            "dropped_in_host",
            "reordering",
            "retransmission_timeout",
            "tail_loss",
            "fast_retransmission",
        ),
        *("connection_unanswered", "listen_queue_full", "syn_retry", "port_reuse"),
        *("server_silent", "unanswered_request", "connection_reset", "head_of_line"),
        *("zero_window", "small_window", "delayed_ack", "slow_start_after_idle"),
    }
)
"""Kinds that are told by what was not seen, or by how long nothing was."""


@dataclass(frozen=True, slots=True)
class Holes:
    """Of a host's connections those whose streams go on behind bytes that no capture has."""

    connections: int
    gaps: int
    bytes: int
    worst: int
    at_ns: int

    @property
    def words(self) -> str:
        """What is not judged for them."""
        return (
            f"{times(self.connections, 'connection')} went on behind holes (at least {self.bytes:,} bytes in "
            f"{times(self.gaps, 'place')} are in no capture, though what follows them came), and no silence, loss or "
            "missing answer is inferred there"
        )


@dataclass(frozen=True, slots=True)
class Missed:
    """Packets that a host's capture missed: `count` by its own word, or by the acknowledgements of others; a packet at
    least for each hole. `told`: when, if its own word says so of all of them."""

    count: int
    captured_count: int
    holes: "Holes | None" = None
    told: CaptureDrops | None = None

    @property
    def only_holes(self) -> bool:
        """Whether nothing but its connections' holes shows that packets are missing."""
        return self.holes is not None and self.count <= self.holes.gaps

    @property
    def same_holes(self) -> "Holes | None":
        """By what it is said together with other hosts'."""
        return self.holes if self.only_holes else None

    def near(self, finding: Finding) -> int:
        """How many may be of the time of a finding."""
        if self.told is None:
            return self.count
        return self.told.within(finding.from_trace_ns, finding.to_trace_ns)

    @property
    def much(self) -> bool:
        """More than a view of this host bears."""
        return self.count >= LOSS_LEAST and self.count >= LOSS_SHARE * (self.count + self.captured_count)


def missed_by_host(troubles: Symptoms, info: TraceInfo, clocks: pa.Table) -> dict[str, Missed]:
    """What each host's capture missed; hosts that missed nothing are left out."""
    told = {drops.host: drops for drops in capture_drops(info, clocks)}
    captured = {host.host: host.packets_count for host in info.hosts}
    dropped = {row["host"]: row["count"] for row in troubles.missed.iter_rows(named=True)}
    for host in captured:
        own = sum(counter.count for counter in info.counters if (counter.host, counter.name) == (host, DROPS))
        dropped[host] = max(own, dropped.get(host, 0))
    holes = _holes(troubles, list(captured))
    for host, hole in holes.items():
        dropped[host] = max(dropped.get(host, 0), hole.gaps)
    return {
        host: Missed(count, captured.get(host, 0), holes.get(host), _told(told.get(host), count))
        for host, count in dropped.items()
        if count
    }


def _told(drops: CaptureDrops | None, count: int) -> CaptureDrops | None:
    return drops if drops is not None and drops.count >= count else None


def _holes(troubles: Symptoms, hosts: list[str]) -> dict[str, Holes]:
    """The holes of each host's connections. Arguments: all captured hosts: the only one has what no end's shows."""
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
    """Packets that went by and are not in a host's capture. Arguments: `missed` as `missed_by_host`."""
    seen = {row["host"]: row for row in troubles.missed.iter_rows(named=True)}
    same: dict[Holes | str, list[str]] = {}
    for host, gap in sorted(missed.items(), key=lambda each: (-each[1].count, each[0])):
        same.setdefault(gap.same_holes or host, []).append(host)
    for hosts in same.values():
        yield _capture_finding(hosts, missed[hosts[0]], seen.get(hosts[0], {}))


def _capture_finding(hosts: list[str], gap: Missed, row: Mapping[str, Any]) -> Finding:
    """Of hosts that missed the same."""
    where = f"the capture on {hosts[0]}" if len(hosts) == 1 else f"the captures on {listed(hosts)}"
    if gap.holes is not None and gap.only_holes:
        text = f"{where} missed packets: {gap.holes.words}"
        at_ns = gap.holes.at_ns
        row = row or {"connection_id": gap.holes.worst, "from_trace_ns": at_ns, "to_trace_ns": at_ns}
    elif gap.count > row.get("count", 0):
        when = "" if gap.told is None else f", {gap.told.when}"
        text = (
            f"{where} dropped {gap.count:,} of {times(gap.count + gap.captured_count, 'packet')}{when}: "
            "what was lost on the way or left unanswered there cannot be told from what it missed"
        )
        if gap.told is not None:
            stretches = gap.told.stretches
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
    """Packets whose stamps are years from all others of their host (`collector.decode.absurd_stamps`)."""
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
    """The findings; those that the captures' own gaps may explain as notices that say so.

    What a capture shows that holds its packets twice is none: a second sight looks like a packet sent again.
    Arguments: `missed` as `missed_by_host`.
    """
    twice = {counter.host for counter in info.counters if counter.name == MERGED}
    if twice:
        known = {host.host for host in info.hosts} - twice
        found = [each for each in found if each.kind not in TOLD_BY_ABSENCE or known.intersection(each.hosts)]
    return [_doubted(finding, missed) if finding.kind in TOLD_BY_ABSENCE else finding for finding in found]


def _doubted(finding: Finding, missed: Mapping[str, Missed]) -> Finding:
    near = {host: missed[host].near(finding) for host in finding.hosts if host in missed}
    hosts = sorted((host for host in near if near[host]), key=lambda host: (-near[host], host))
    dropped = sum(near[host] for host in hosts)
    if not hosts or finding.count > dropped:
        return finding
    return replace(
        finding,
        severity="notice" if finding.urgent else finding.severity,
        cause=f"{DOUBTS} on {hosts[0]}",
        text=f"{finding.text}; no proof, since the captures there ({listed(hosts)}) missed {times(dropped, 'packet')}",
    )
