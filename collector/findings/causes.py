"""Determines which finding is the cause of which: one trouble has many symptoms, and only the cause needs action.

A stopped server also causes unanswered requests, resets, writes to other hosts, and a slow proxy. So kinds are ordered
from root causes to symptoms, and each kind lists the kinds that it can cause (`collector.findings.kinds`). A finding
causes another one if their times overlap and the other one is of the same host (or network path), or of a host that
calls this one, directly or through others. A finding with a cause is kept as a notice that names the cause.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from collector.findings.finding import LOSS_LEAST, Finding
from collector.findings.kinds import FAILED, OF_NAME, ORDER, UNANSWERED, UNCONNECTED

SLACK_NS = 1_000_000_000
"""Consequences of a trouble may appear so long after its end: retries and timeouts."""
NOBODY: Mapping[tuple[str | None, str | None], frozenset[tuple[str | None, str | None]]] = MappingProxyType({})
RIVALS = ("narrow_link", "slow_link", "reordering")
"""Kinds of delay on a network path: the one that costs most is the cause, the others are its symptoms."""

Askers = Mapping[str, frozenset[str]]
"""For each host, all hosts that call it, directly or through others."""
Place = tuple[str | None, str | None]
"""A service: its host, its name."""


def with_causes(
    found: Iterable[Finding], askers: Askers, asked_by: Mapping[Place, frozenset[Place]] = NOBODY
) -> list[Finding]:
    """The findings; each that follows from another becomes a notice that names its cause.

    Arguments: `asked_by`, for each service the services that call it, directly or through others.
    """
    every = [_as_notice(one) if OF_NAME[one.kind].always_notice else one for one in found]
    causes = sorted(
        (one for one in every if OF_NAME[one.kind].brings and one.urgent), key=lambda one: _depth(one, askers)
    )
    named: list[Finding] = []
    for cause in causes:
        if not any(_brings(deeper, cause, askers, asked_by) for deeper in named):
            named.append(cause)
    return [_demote_consequence(finding, named, askers, asked_by) for finding in every]


def _as_notice(finding: Finding) -> Finding:
    return replace(finding, severity="notice") if finding.urgent else finding


def _demote_consequence(
    finding: Finding, causes: Sequence[Finding], askers: Askers, asked_by: Mapping[Place, frozenset[Place]]
) -> Finding:
    """A notice that names its cause, if one of `causes` explains the finding; otherwise the finding itself."""
    if finding.cause is not None or any(finding is cause for cause in causes):
        return finding
    of = next((cause for cause in causes if _brings(cause, finding, askers, asked_by)), None)
    if of is None:
        return finding
    return replace(_as_notice(finding), cause=of.name)


def _depth(finding: Finding, askers: Askers) -> tuple[int, bool, int, int]:
    """Sort key: root causes first; within one kind, hosts that more hosts call, directly or through others."""
    kind = RIVALS[0] if finding.kind in RIVALS else "slow_disk" if _is_broken_device(finding) else finding.kind
    asked_by = 0 if kind in RIVALS else len(askers.get(finding.host or "", ()))
    return ORDER[kind], not _is_broken_device(finding), -asked_by, -finding.cost_ns


def _is_broken_device(finding: Finding) -> bool:
    """Whether a device fails immediately. Slowness does not explain that; it is rather another symptom."""
    return finding.kind in FAILED and finding.quick and bool(finding.devices)


def _brings(cause: Finding, finding: Finding, askers: Askers, asked_by: Mapping[Place, frozenset[Place]]) -> bool:
    if finding.kind not in OF_NAME[cause.kind].brings or not _at_once(cause, finding):
        return False
    if finding.kind == cause.kind and finding.host == cause.host:
        return False
    if not _may_explain(cause, finding):
        return False
    if finding.host == cause.host and not _concerns(cause, finding, asked_by):
        return False
    at = frozenset(host for host in (cause.host, cause.peer_host) if host is not None)
    if OF_NAME[finding.kind].explained_there_only:
        return bool(finding.hosts & at)
    near = at | frozenset().union(*(askers.get(host, frozenset()) for host in at))
    return finding.host in near


def _may_explain(cause: Finding, finding: Finding) -> bool:
    """Whether `cause` can, by what is known of both, explain that `finding` is slow or fails."""
    if finding.kind == "slow_disk" and cause.kind in FAILED:
        return _is_broken_device(cause) and cause.host == finding.host and bool(cause.devices & finding.devices)
    if cause.kind == "slow_disk" and _is_broken_device(finding):
        return cause.host != finding.host
    if cause.kind == "client_gave_up" and finding.kind in UNANSWERED:
        return finding.unanswered and (finding.host, finding.service) == (cause.host, cause.service)
    if cause.kind == "listen_drops":
        least = (finding.count + 1) // 2 if finding.kind in UNCONNECTED else LOSS_LEAST
        return cause.count >= least
    return True


def _concerns(cause: Finding, finding: Finding, asked_by: Mapping[Place, frozenset[Place]]) -> bool:
    """Whether a finding of the same host may concern the cause's service, or a service that calls it."""
    services = cause.services or frozenset(name for name in (cause.service,) if name is not None)
    mine = finding.services or frozenset(name for name in (finding.service,) if name is not None)
    if not OF_NAME[cause.kind].of_service or not services or not mine or services & mine:
        return True
    asking = frozenset[Place]().union(*(asked_by.get((cause.host, name), frozenset()) for name in services))
    return any((finding.host, name) in asking for name in mine)


def _at_once(cause: Finding, finding: Finding) -> bool:
    """Whether the two overlap in time; a finding without a time overlaps with all."""
    bounds = (cause.from_trace_ns, cause.to_trace_ns, finding.from_trace_ns, finding.to_trace_ns)
    if any(bound is None for bound in bounds):
        return True
    begin, end, first, last = (int(bound) for bound in bounds if bound is not None)
    return first <= end + SLACK_NS and last >= begin - SLACK_NS
