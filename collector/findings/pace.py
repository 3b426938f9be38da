"""Servers that take longer than their peers: a slow disk, a starved host, or a slow server.

Compared is a server's own time, without what it waited for others (`lateness`). Some requests are late everywhere; a
server is slow if so many more of its are late that it is no chance (a binomial test). So a server that is slow for a
third of the trace only is found as well as one that always is, and a machine on which everything is slow has no slow
server.

A request that was given up took at least as long as its client waited.

What is slow tells why: one device of several, that disk; one service, that server; several services at once, the host.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from collector.findings.finding import Finding, listed, times, weight
from collector.findings.lateness import Timed, lateness
from collector.findings.requests import Requests
from collector.trace.durations import in_words
from collector.trace.time_columns import UNSEEN, Int64Array

LEAST = 5
"""Requests of a server, before it is judged."""
SHARE_RATIO, SHARE_MORE, CHANCE_Z = 3.0, 0.1, 4.0
"""Slow: the share of late requests is this many times the peers', by this much more, and by so many standard
deviations: by chance once in 30,000 comparisons."""
ALSO_RATIO, ALSO_Z = 2.0, 2.5
"""The rest of a host with a slow server is slow, too: this many times as many late requests as elsewhere, by so many
standard deviations. Less is asked of it than to be slow by itself: by chance once in 160."""
BESIDE = 0.1
"""What else is late on a host by less than this share of what one of its disks is late by is a symptom beside it: where
a host is short of a processor, all that it serves waits alike."""
MOMENTS = 5
"""In how many different moments late requests began: many at once are a hiccup, not a slow server. In a
shorter trace all of them."""
LATE_BY_NS = 1_000_000
"""Late by less than this is not worth a word."""


@dataclass(frozen=True, slots=True)
class _Slow:
    """A server, or a device of it, that is slow."""

    host: str
    service: str
    device: str | None
    count: int
    late_count: int
    took_ns: int  # median of the late ones
    usual_ns: int  # what nine of ten take elsewhere
    cost_ns: int
    worst: dict[str, Any]

    @property
    def late_by_ns(self) -> int:
        """Of the late ones, in the median."""
        return self.took_ns - self.usual_ns


def pace_findings(requests: Requests) -> list[Finding]:
    """Hosts, disks and servers that are slow, each by its own."""
    own_ns, answered = _until_given_up(requests)
    told = (own_ns != UNSEEN) & requests.readable & requests.where(pl.col("server_host").is_not_null())
    if not told.any():
        return []
    timed = Timed(requests, np.where(told, requests.group, np.int32(-1)), own_ns, answered)
    servers = lateness(timed, ["server_host"])
    devices = lateness(timed, ["server_host", "device"])
    slow = [*_slow(servers), *_slow(devices)]
    found: list[Finding] = []
    for host in sorted({each.host for each in slow}):
        here = pl.col("server_host") == host
        found += _of_host([each for each in slow if each.host == host], servers.filter(here), devices.filter(here))
    vain = _unanswered(requests)
    return [
        replace(
            finding,
            severity=weight(finding.cost_ns, requests.total_ns),
            unanswered=2 * vain.get((finding.host, finding.service), 0) >= max(1, finding.count),
        )
        for finding in found
    ]


def _unanswered(requests: Requests) -> dict[tuple[str | None, str | None], int]:
    """How many requests to each service of each host were given up without any answer."""
    rows, _ = requests.given_up()
    vain = requests.frame(rows[requests.answered[rows] == UNSEEN])
    counts = vain.group_by(pl.col("server_host", "service").cast(pl.String)).len()
    return {(host, service): count for host, service, count in counts.iter_rows()}


def _until_given_up(requests: Requests) -> tuple[Int64Array, Int64Array]:
    """What each server took itself, and when it answered; where it did not, until the request was given up."""
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
    """Arguments: what is slow on a host; all its servers and devices, as `lateness`."""
    disks = [each for each in slow if each.device and _others_are_quick(each, devices)]
    if disks:
        beside = BESIDE * max(each.late_by_ns for each in disks)
        slow = [each for each in slow if each.late_by_ns >= beside]
    host, services = slow[0].host, sorted({each.service for each in slow})
    rest = servers.filter(pl.col("service") != services[0])
    if len(services) > 1 or (not disks and _is_late(rest)):
        yield _starved(
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
    """Whether these together have more late requests than others do."""
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


def _starved(host: str, services: list[str], slow: list[_Slow]) -> Finding:
    worst = max(slow, key=lambda each: each.cost_ns)
    return Finding(
        severity="warning",
        kind="host_starved",
        host=host,
        count=sum(each.late_count for each in slow),
        cost_ns=sum(each.cost_ns for each in slow),
        **worst.worst,
        text=f"all of {host} is slow, whatever it serves ({listed(services)}), though its kernel answers as quickly as "
        f"others: of {worst.service}, {_late_words(worst)}",
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
    """Whether the same server serves from other devices, too, that are not late."""
    others = devices.filter((pl.col("service") == slow.service) & (pl.col("device") != slow.device))
    as_late = others.filter(pl.col("took") - pl.col("usual") >= BESIDE * slow.late_by_ns)
    return bool((others["count"] >= LEAST).any()) and not _is_late(as_late)


def _slow(groups: pl.DataFrame) -> list[_Slow]:
    """Of `lateness`, those that are slow."""
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
