"""Findings about servers that take longer than their peers: a slow disk, a starved host, or a slow server.

The comparison uses a server's own time, without its waits for others (`lateness`). Everywhere some requests are late; a
server is slow if more of its requests are late than chance explains (a binomial test). This also finds a server that is
slow for only a third of the trace; on a machine on which everything is slow, no single server is named.

A request that was given up took at least as long as its client waited.

The extent of the slowness shows its cause: one device of several, that disk; one service, that server; several services
of a host, the host.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from collector.findings.finding import Finding, listing, times
from collector.findings.lateness import LatenessThresholds, Timed, lateness
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.trace.durations import in_words
from collector.trace.threshold import threshold
from collector.trace.time_columns import UNSEEN, Int64Array


@dataclass(frozen=True, slots=True)
class PaceThresholds(LatenessThresholds):
    """By which a server, a device or a host counts as slow."""

    least_requests_count: int = threshold(5, "chosen: a server with fewer requests is not judged")
    slow_ratio: float = threshold(3.0, "chosen: a slow server's share of late requests is so many times its peers'")
    slow_least_share: float = threshold(0.1, "chosen: and exceeds it by this share of its requests")
    slow_least_sigmas: float = threshold(
        4.0, "and by so many standard deviations: by chance once in 30,000 comparisons (normal distribution)"
    )
    host_ratio: float = threshold(
        2.0,
        "chosen: if one server of a host is slow, the others are slow, too, with so many times the late requests "
        "expected; less than a server by itself needs",
    )
    host_least_sigmas: float = threshold(
        2.5, "and by so many standard deviations: by chance once in 160 comparisons (normal distribution)"
    )
    symptom_share: float = threshold(
        0.1,
        "chosen: if a disk is late, what else is late on its host by a smaller share of the disk's delay is a "
        "symptom of it; if the host lacked processor time, all its services would be late alike",
    )
    least_moments_count: int = threshold(
        5, "chosen: late requests of fewer moments are a hiccup, not a slow server; in a shorter trace, all moments"
    )
    late_least_ns: int = threshold(1_000_000, "chosen: smaller delays are ignored")


class _Slow(Struct, frozen=True):
    """A server, or a device of it, that is slow."""

    host: str
    service: str
    device: str | None
    count: int
    late_count: int
    took_ns: int  # median of the late ones
    usual_ns: int  # most elsewhere take less
    usual_quantile: float  # how many
    cost_ns: int
    worst: dict[str, Any]

    @property
    def late_by_ns(self) -> int:
        """How much later than usual the median late request was."""
        return self.took_ns - self.usual_ns


def find(seen: Observations, limits: PaceThresholds) -> list[Finding]:
    """Findings about slow hosts, disks and servers."""
    requests, severity = seen.requests, seen.severity
    own_ns, answered = _times_until_given_up(requests)
    judged = (own_ns != UNSEEN) & requests.readable & requests.where(pl.col("server_host").is_not_null())
    if not judged.any():
        return []
    timed = Timed(requests, np.where(judged, requests.group, np.int32(-1)), own_ns, answered)
    servers = lateness(timed, ["server_host"], limits)
    devices = lateness(timed, ["server_host", "device"], limits)
    slow = [*_slow_servers(servers, limits), *_slow_servers(devices, limits)]
    found: list[Finding] = []
    for host in sorted({each.host for each in slow}):
        here = pl.col("server_host") == host
        of_host = [each for each in slow if each.host == host]
        found += _of_host(of_host, servers.filter(here), devices.filter(here), limits)
    vain = _unanswered_counts(requests)
    return [
        replace(
            finding,
            severity=severity.by_cost(finding.cost_ns, requests.total_ns),
            unanswered=2 * vain.get((finding.host, finding.service), 0) >= max(1, finding.count),
        )
        for finding in found
    ]


def _unanswered_counts(requests: Requests) -> dict[tuple[str | None, str | None], int]:
    """By host and service: how many requests were given up without any answer."""
    rows, _ = requests.given_up()
    vain = requests.frame(rows[requests.answered[rows] == UNSEEN], "server_host", "service")
    counts = vain.group_by(pl.col("server_host", "service").cast(pl.String)).len()
    return {(host, service): count for host, service, count in counts.iter_rows()}


def _times_until_given_up(requests: Requests) -> tuple[Int64Array, Int64Array]:
    """Each server's own time (ns), and when it answered; without an answer, until the request was given up."""
    rows, given_up = requests.given_up()
    if not len(rows):
        return requests.own_ns, requests.answered
    own_ns, answered = requests.own_ns.copy(), requests.answered.copy()
    vain = answered[rows] == UNSEEN
    rows, given_up = rows[vain], given_up[vain]
    answered[rows] = given_up
    heard = np.maximum(requests.arrived[rows], requests.asked[rows])
    alone = (heard != UNSEEN) & (requests.asking_ns[rows] == UNSEEN)
    own_ns[rows[alone]] = np.maximum(given_up[alone] - heard[alone], 0)
    return own_ns, answered


def _of_host(
    slow: list[_Slow], servers: pl.DataFrame, devices: pl.DataFrame, limits: PaceThresholds
) -> Iterable[Finding]:
    """Arguments: the slow servers and devices of a host; all its servers and devices, from `lateness`; thresholds."""
    disks = [each for each in slow if each.device and _others_are_quick(each, devices, limits)]
    if disks:
        least_ns = limits.symptom_share * max(each.late_by_ns for each in disks)
        slow = [each for each in slow if each.late_by_ns >= least_ns]
    host, services = slow[0].host, sorted({each.service for each in slow})
    others = servers.filter(pl.col("service") != services[0])
    if len(services) > 1 or (not disks and _are_late(others, limits)):
        yield _starved_finding(
            host, servers["service"].sort().to_list(), [each for each in slow if each.device is None] or slow
        )
        return
    for each in disks:
        yield _finding(
            "slow_disk",
            each,
            f"{each.service} on {host} is slow with requests for {each.device}, but not with those for its other "
            f"devices: "
            f"{_late_words(each)}",
            f"look at that disk (iostat -x, smartctl -a, dmesg of {host})",
        )
    for each in slow:
        if not disks and each.device is None:
            yield _finding(
                "slow_replica",
                each,
                f"{each.service} on {host} is slow: {_late_words(each)}",
                "look at that host's disks and load at that time (iostat -x, vmstat)",
            )


def _are_late(groups: pl.DataFrame, limits: PaceThresholds) -> bool:
    """Whether these groups together have more late requests than their peers."""
    late, expected, spread = (
        groups.select(pl.col("late_count").sum(), pl.col("expected").sum(), (pl.col("spread") ** 2).sum().sqrt()).row(0)
        if len(groups)
        else (0, 0.0, 0.0)
    )
    return (
        late >= limits.least_requests_count
        and late >= limits.host_ratio * expected
        and late - expected >= limits.host_least_sigmas * spread
    )


def _late_words(slow: _Slow) -> str:
    return (
        f"{slow.late_count:,} of {times(slow.count, 'request')} took {in_words(slow.took_ns)} in the median, where "
        f"{100 * slow.usual_quantile:g} % take less than {in_words(slow.usual_ns)} on its peers"
    )


def _starved_finding(host: str, services: list[str], slow: list[_Slow]) -> Finding:
    worst = max(slow, key=lambda each: each.cost_ns)
    return Finding(
        severity="warning",
        kind="host_starved",
        host=host,
        count=sum(each.late_count for each in slow),
        cost_ns=sum(each.cost_ns for each in slow),
        **worst.worst,
        text=f"all services of {host} are slow ({listing(services)}), though its kernel answers as quickly as others: "
        f"of {worst.service}, {_late_words(worst)}",
        remedy="check its processors, memory and quotas, and what else runs there (vmstat, top, cpu.stat, PSI)",
    )


def _finding(kind: str, slow: _Slow, text: str, remedy: str) -> Finding:
    return Finding(
        severity="warning",
        kind=kind,
        host=slow.host,
        service=slow.service,
        count=slow.late_count,
        cost_ns=slow.cost_ns,
        text=text,
        remedy=remedy,
        devices=frozenset(name for name in (slow.device,) if name is not None),
        **slow.worst,
    )


def _others_are_quick(slow: _Slow, devices: pl.DataFrame, limits: PaceThresholds) -> bool:
    """Whether the same server also uses other devices, and these are not late."""
    others = devices.filter((pl.col("service") == slow.service) & (pl.col("device") != slow.device))
    as_late = others.filter(pl.col("took") - pl.col("usual") >= limits.symptom_share * slow.late_by_ns)
    return bool((others["count"] >= limits.least_requests_count).any()) and not _are_late(as_late, limits)


def _slow_servers(groups: pl.DataFrame, limits: PaceThresholds) -> list[_Slow]:
    """The slow ones among the rows of `lateness`."""
    more = pl.col("late_count") - pl.col("expected")
    slow = groups.filter(
        (pl.col("count") >= limits.least_requests_count)
        & (pl.col("late_count") >= limits.slow_ratio * pl.col("expected"))
        & (more >= limits.slow_least_share * pl.col("count"))
        & (more >= limits.slow_least_sigmas * pl.col("spread"))
        & (pl.col("late_moments") >= pl.min_horizontal(pl.lit(limits.least_moments_count), "moments"))
        & (pl.col("took") - pl.col("usual") >= limits.late_least_ns)
    )
    return [
        _slow_row(row, limits.usual_quantile) for row in slow.sort("cost_ns", descending=True).iter_rows(named=True)
    ]


def _slow_row(row: dict[str, Any], usual_quantile: float) -> _Slow:
    times_of = {name: row[name] for name in ("connection_id", "from_trace_ns", "to_trace_ns")}
    return _Slow(
        host=row["server_host"],
        service=row["service"],
        device=row.get("device"),
        count=row["count"],
        late_count=row["late_count"],
        took_ns=int(row["took"]),
        usual_ns=int(row["usual"]),
        usual_quantile=usual_quantile,
        cost_ns=row["cost_ns"] or 0,
        worst=times_of | {"span_id": row["exchange_id"]},
    )
