"""Findings about packets that the captures themselves missed; and which other findings they put in doubt.

A missing packet proves something only if the capture was complete. A packet that a capture dropped looks like a lost
one, a dropped answer looks like none, and a gap in the capture looks like a sender that paused. So a finding inferred
from the absence of packets becomes a notice if the captures there missed at least as many packets as it has cases. If a
capture counted its drops itself, only those at the time of the finding matter.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from collector.decode.absurd_stamps import STAMPS_ABSURD
from collector.decode.merged_captures import MERGED
from collector.findings.capture_gaps import Holes, Missed
from collector.findings.finding import DOUBTS, Finding, SeverityThresholds, listing, times
from collector.findings.kinds import KINDS, Evidence
from collector.findings.observations import Observations
from collector.findings.symptoms import Symptoms
from collector.trace.model import TraceInfo

AGENT_SILENT = "agent_silent"
"""The counter of a host whose agent a collector hears nothing of: the seconds since its last report."""
INFERRED_FROM_ABSENCE = frozenset(kind.name for kind in KINDS if kind.evidence is Evidence.ABSENCE)


def find(seen: Observations) -> Iterable[Finding]:
    """All findings about captures."""
    yield from capture_findings(seen.symptoms, seen.missed, seen.severity)
    yield from _stamp_findings(seen.info)
    yield from _silent_findings(seen.info)


def capture_findings(
    symptoms: Symptoms, missed: Mapping[str, Missed], severity: SeverityThresholds
) -> Iterable[Finding]:
    """Findings about packets that a host's capture missed. Arguments: `missed`, from `capture_gaps.missed_by_host`."""
    seen = {row["host"]: row for row in symptoms.missed.iter_rows(named=True)}
    same: dict[Holes | str, list[str]] = {}
    for host, gap in sorted(missed.items(), key=lambda each: (-each[1].count, each[0])):
        same.setdefault(gap.same_holes or host, []).append(host)
    for hosts in same.values():
        yield _capture_finding(hosts, missed[hosts[0]], seen.get(hosts[0], {}), severity)


def _capture_finding(hosts: list[str], gap: Missed, row: Mapping[str, Any], severity: SeverityThresholds) -> Finding:
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
            f"{where} missed {times(gap.count, 'packet')} that passed (they were acknowledged); their "
            "times there are unknown"
        )
    if gap.holes is not None and not gap.only_holes:
        text += f"; {gap.holes.words}"
    return Finding(
        severity="warning" if gap.misleads(severity) else "notice",
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


def _stamp_findings(info: TraceInfo) -> Iterable[Finding]:
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
                remedy="find what wrote the file, and capture again; a damaged disk or memory does this, too",
            )


def _silent_findings(info: TraceInfo) -> Iterable[Finding]:
    """Findings about agents that neither reported nor ended (`collector.service.agents`)."""
    for counter in info.counters:
        if counter.name == AGENT_SILENT:
            yield Finding(
                severity="warning",
                kind=AGENT_SILENT,
                host=counter.host,
                count=1,
                text=f"the agent on {counter.host} was silent for {counter.count:,} s when this trace was made: "
                f"{counter.remedy}",
                remedy=f"look on {counter.host}, then make the trace again",
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
        text=f"{finding.text}; this is not proven, since the captures there ({listing(hosts)}) missed "
        f"{times(dropped, 'packet')}",
    )
