"""Findings about servers that take longer than their peers: a slow disk, a starved host, or a slow server.

The comparison uses a server's own time, without its waits for others (`lateness`). Everywhere some requests are late; a
server is slow if more of its requests are late than chance explains (a binomial test). This also finds a server that is
slow for only a third of the trace; on a machine on which everything is slow, no single server is named.

A request that was given up took at least as long as its client waited.

The extent of the slowness shows its cause: one device of several, that disk; one service, that server; several services
of a host, the host.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from collector.findings.finding import Finding, listing, times, weight
from collector.findings.lateness import Timed, lateness
from collector.findings.requests import Requests
from collector.trace.durations import in_words
from collector.trace.time_columns import UNSEEN, Int64Array

LEAST = 5
"""Fewest requests of a server that is judged."""
SHARE_RATIO, SHARE_MORE, CHANCE_Z = 3.0, 0.1, 4.0
"""A server is slow if its share of late requests is this many times the peers', exceeds it by this much, and by so many
standard deviations: by chance once in 30,000 comparisons."""
ALSO_RATIO, ALSO_Z = 2.0, 2.5
"""If one server of a host is slow, the rest of the host is slow, too, with this many times as many late requests as
elsewhere, by so many standard deviations: by chance once in 160. That is less than a server by itself needs."""
BESIDE = 0.1
"""If one disk of a host is late, what else is late there by less than this share of the disk's delay is a symptom of
it: if the host lacked processor time, all its services would be late alike."""
MOMENTS = 5
"""Fewest different moments at which late requests began: many at one moment are a hiccup, not a slow server. In a
shorter trace, all moments."""
LATE_BY_NS = 1_000_000
"""Smaller delays are ignored."""


@dataclass(frozen=True, slots=True)
class _Slow:
    """A server, or a device of it, that is slow."""

    host: str
    service: str
    device: str | None
    count: int
    late_count: int
    took_ns: int  # median of the late ones
    usual_ns: int  # nine of ten elsewhere take less
    cost_ns: int
    worst: dict[str, Any]

    @property
    def late_by_ns(self) -> int:
        """How much later than usual the median late request was."""
        return self.took_ns - self.usual_ns


def pace_findings(requests: Requests) -> list[Finding]:
    """Findings about slow hosts, disks and servers."""
    own_ns, answered = _until_given_up(requests)
    judged = (own_ns != UNSEEN) & requests.readable & requests.where(pl.col("server_host").is_not_null())
    if not judged.any():
        return []
    timed = Timed(requests, np.where(judged, requests.group, np.int32(-1)), own_ns, answered)
    servers = lateness(timed, ["server_host"])
    devices = lateness(timed, ["server_host", "device"])
    slow = [*_slow(servers), *_slow(devices)]
    found: list[Finding] = []
    for host in sorted({each.host for each in slow}):
        here = pl.col("server_host") == host
        found += _of_host([each for each in slow if each.host == host], servers.filter(here), devices.filter(here))
    vain = _unanswered_counts(requests)
    return [
        replace(
            finding,
            severity=weight(finding.cost_ns, requests.total_ns),
            unanswered=2 * vain.get((finding.host, finding.service), 0) >= max(1, finding.count),
        )
        for finding in found
    ]


def _unanswered_counts(requests: Requests) -> dict[tuple[str | None, str | None], int]:
    """By host and service: how many requests were given up without any answer."""
    rows, _ = requests.given_up()
    vain = requests.frame(rows[requests.answered[rows] == UNSEEN])
    counts = vain.group_by(pl.col("server_host", "service").cast(pl.String)).len()
    return {(host, service): count for host, service, count in counts.iter_rows()}


def _until_given_up(requests: Requests) -> tuple[Int64Array, Int64Array]:
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


def _of_host(slow: list[_Slow], servers: pl.DataFrame, devices: pl.DataFrame) -> Iterable[Finding]:
    """Arguments: the slow servers and devices of a host; all its servers and devices, from `lateness`."""
    disks = [each for each in slow if each.device and _others_are_quick(each, devices)]
    if disks:
        beside = BESIDE * max(each.late_by_ns for each in disks)
        slow = [each for each in slow if each.late_by_ns >= beside]
    host, services = slow[0].host, sorted({each.service for each in slow})
    rest = servers.filter(pl.col("service") != services[0])
    if len(services) > 1 or (not disks and _is_late(rest)):
        yield _starved_finding(
            host, servers["service"].sort().to_list(), [each for each in slow if each.device is None] or slow
        )
        return
    for each in disks:
        yield _finding(
            "slow_disk",
            each,
            f"{each.service} on {host} is slow with what is on {each.device}, and on its other devices is not: "
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


def _is_late(groups: pl.DataFrame) -> bool:
    """Whether these groups together have more late requests than their peers."""
    late, expected, spread = (
        groups.select(pl.col("late_count").sum(), pl.col("expected").sum(), (pl.col("spread") ** 2).sum().sqrt()).row(0)
        if len(groups)
        else (0, 0.0, 0.0)
    )
    return late >= LEAST and late >= ALSO_RATIO * expected and late - expected >= ALSO_Z * spread


def _late_words(slow: _Slow) -> str:
    return (
        f"{slow.late_count:,} of {times(slow.count, 'request')} took {in_words(slow.took_ns)} in the median, where "
        f"nine of ten take less than {in_words(slow.usual_ns)} elsewhere"
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
        text=f"all of {host} is slow, whatever it serves ({listing(services)}), though its kernel answers as quickly "
        f"as others: of {worst.service}, {_late_words(worst)}",
        remedy="its processors or memory are short: see what else runs there, and quotas (vmstat, top, cpu.stat, PSI)",
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


def _others_are_quick(slow: _Slow, devices: pl.DataFrame) -> bool:
    """Whether the same server also uses other devices, and these are not late."""
    others = devices.filter((pl.col("service") == slow.service) & (pl.col("device") != slow.device))
    as_late = others.filter(pl.col("took") - pl.col("usual") >= BESIDE * slow.late_by_ns)
    return bool((others["count"] >= LEAST).any()) and not _is_late(as_late)


def _slow(groups: pl.DataFrame) -> list[_Slow]:
    """The slow ones among the rows of `lateness`."""
    more = pl.col("late_count") - pl.col("expected")
    slow = groups.filter(
        (pl.col("count") >= LEAST)
        & (pl.col("late_count") >= SHARE_RATIO * pl.col("expected"))
        & (more >= SHARE_MORE * pl.col("count"))
        & (more >= CHANCE_Z * pl.col("spread"))
        & (pl.col("late_moments") >= pl.min_horizontal(pl.lit(MOMENTS), "moments"))
        & (pl.col("took") - pl.col("usual") >= LATE_BY_NS)
    )
    return [_slow_row(row) for row in slow.sort("cost_ns", descending=True).iter_rows(named=True)]


def _slow_row(row: dict[str, Any]) -> _Slow:
    times_of = {name: row[name] for name in ("connection_id", "from_trace_ns", "to_trace_ns")}
    return _Slow(
        host=row["server_host"],
        service=row["service"],
        device=row.get("device"),
        count=row["count"],
        late_count=row["late_count"],
        took_ns=int(row["took"]),
        usual_ns=int(row["usual"]),
        cost_ns=row["cost_ns"] or 0,
        worst=times_of | {"span_id": row["exchange_id"]},
    )
