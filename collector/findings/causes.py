"""Determines which finding is the cause of which: one trouble has many symptoms, and only the cause needs action.

A stopped server also causes unanswered requests, resets, writes to other hosts, and a slow proxy. So kinds are ordered
from root causes to symptoms, and each kind lists the kinds that it can cause (`collector.findings.kinds`).

1. Findings of kinds that are always notices become notices.
2. Urgent findings that can cause others are ordered from root causes to symptoms.
3. Those that no earlier one explains are the causes.
4. Each other finding that a cause explains becomes a notice that names this cause.

A finding explains another one if its kind can cause the other's, their times overlap, and the other one is of the same
host (or network path), or of a host that calls this one, directly or through others. A host that holds a stream to
another one (a follower to its leader) calls it, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from collector.findings.finding import Finding
from collector.findings.kinds import FAILED, OF_NAME, ORDER, UNANSWERED, UNCONNECTED
from collector.trace.threshold import threshold

RIVALS = ("narrow_link", "slow_link", "reordering")
"""Kinds of delay on a network path: the one that costs most is the cause, the others are its symptoms."""

Callers = Mapping[str, frozenset[str]]
"""For each host, all hosts that call it, directly or through others."""
Place = tuple[str | None, str | None]
"""A service: its host, its name."""


@dataclass(frozen=True, slots=True)
class CauseThresholds:
    """By which one finding can be the cause of another."""

    consequence_within_ns: int = threshold(
        1_000_000_000, "consequences of a trouble may appear so long after its end: TCP's first timeout (RFC 6298 §2)"
    )
    listen_drops_least_count: int = threshold(
        10, "chosen: fewer connections that a kernel turned away explain only connections that were never answered"
    )


NO_CALLERS: Mapping[Place, frozenset[Place]] = MappingProxyType({})
DEFAULT_LIMITS = CauseThresholds()


def with_causes(
    found: Iterable[Finding],
    callers: Callers,
    service_callers: Mapping[Place, frozenset[Place]] = NO_CALLERS,
    limits: CauseThresholds = DEFAULT_LIMITS,
) -> list[Finding]:
    """The findings; each that follows from another becomes a notice that names its cause.

    Arguments: `callers` of hosts; `service_callers`, for each service the services that call it, directly or through
    others; thresholds.
    """
    every = [_as_notice(one) if OF_NAME[one.kind].always_notice else one for one in found]
    rules = _Rules(callers, service_callers, limits)
    ordered = sorted((one for one in every if OF_NAME[one.kind].can_cause and one.urgent), key=rules.depth)
    causes: list[Finding] = []
    for one in ordered:
        if not any(rules.explains(deeper, one) for deeper in causes):
            causes.append(one)
    return [_demote_consequence(finding, causes, rules) for finding in every]


def _as_notice(finding: Finding) -> Finding:
    return replace(finding, severity="notice") if finding.urgent else finding


def _demote_consequence(finding: Finding, causes: Sequence[Finding], rules: "_Rules") -> Finding:
    """A notice that names its cause, if one of `causes` explains the finding; otherwise the finding itself."""
    if finding.cause is not None or any(finding is cause for cause in causes):
        return finding
    cause = next((cause for cause in causes if rules.explains(cause, finding)), None)
    return finding if cause is None else replace(_as_notice(finding), cause=cause.name)


class _Rules(Struct, frozen=True):
    """Which finding of a trace can explain which."""

    callers: Callers
    service_callers: Mapping[Place, frozenset[Place]]
    limits: CauseThresholds

    def depth(self, finding: Finding) -> tuple[int, bool, int, int]:
        """Sort key: root causes first; within one kind, hosts that more hosts call, directly or through others."""
        kind = RIVALS[0] if finding.kind in RIVALS else "slow_disk" if _is_broken_device(finding) else finding.kind
        callers = 0 if kind in RIVALS else len(self.callers.get(finding.host or "", ()))
        return ORDER[kind], not _is_broken_device(finding), -callers, -finding.cost_ns

    def explains(self, cause: Finding, finding: Finding) -> bool:
        """Whether `finding` follows from `cause`."""
        if finding.kind not in OF_NAME[cause.kind].can_cause or not self._overlap(cause, finding):
            return False
        is_same_place = finding.host == cause.host
        if is_same_place and (finding.kind == cause.kind or not self._concern_one_service(cause, finding)):
            return False
        return self._is_plausible(cause, finding) and self._reaches(cause, finding)

    def _reaches(self, cause: Finding, finding: Finding) -> bool:
        """Whether the finding is of the cause's host or path, or of a host that calls it."""
        at = frozenset(host for host in (cause.host, cause.peer_host) if host is not None)
        if OF_NAME[finding.kind].explained_there_only:
            return bool(finding.hosts & at)
        return finding.host in at.union(*(self.callers.get(host, frozenset()) for host in at))

    def _is_plausible(self, cause: Finding, finding: Finding) -> bool:
        """Whether `cause` can, by what is known of both, explain that `finding` is slow or fails."""
        if finding.kind == "slow_disk" and cause.kind in FAILED:
            return _is_broken_device(cause) and cause.host == finding.host and bool(cause.devices & finding.devices)
        if cause.kind == "slow_disk" and _is_broken_device(finding):
            return cause.host != finding.host
        if cause.kind == "client_gave_up" and finding.kind in UNANSWERED:
            return finding.unanswered and (finding.host, finding.service) == (cause.host, cause.service)
        if cause.kind == "listen_drops":
            is_connection = finding.kind in UNCONNECTED
            return cause.count >= ((finding.count + 1) // 2 if is_connection else self.limits.listen_drops_least_count)
        return True

    def _concern_one_service(self, cause: Finding, finding: Finding) -> bool:
        """Whether a finding of the same host may concern the cause's service, or a service that calls it."""
        services, mine = _services(cause), _services(finding)
        if not OF_NAME[cause.kind].of_service or not services or not mine or services & mine:
            return True
        places = ((cause.host, name) for name in services)
        calling = frozenset[Place]().union(*(self.service_callers.get(place, frozenset()) for place in places))
        return any((finding.host, name) in calling for name in mine)

    def _overlap(self, cause: Finding, finding: Finding) -> bool:
        """Whether the two overlap in time; a finding without a time overlaps with all."""
        bounds = (cause.from_trace_ns, cause.to_trace_ns, finding.from_trace_ns, finding.to_trace_ns)
        if any(bound is None for bound in bounds):
            return True
        begin, end, first, last = (int(bound) for bound in bounds if bound is not None)
        slack_ns = self.limits.consequence_within_ns
        return first <= end + slack_ns and last >= begin - slack_ns


def _services(finding: Finding) -> frozenset[str]:
    return finding.services or frozenset(name for name in (finding.service,) if name is not None)


def _is_broken_device(finding: Finding) -> bool:
    """Whether a device fails immediately. Slowness does not explain that; it is rather another symptom."""
    return finding.kind in FAILED and finding.quick and bool(finding.devices)
