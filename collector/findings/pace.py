"""Servers that take longer than their peers: a slow disk, a starved host, or a slow server.

Peers are the other hosts (and devices) of the same service, asked with the same method. Compared is a server's own
time, without what it waited for others. A request is late if it took a multiple of what nine of ten took at the peers.
Some are late everywhere; a server is slow if so many more of its requests are late that it is no chance (a binomial
test). So a server that is slow for a third of the trace only is found as well as one that always is, and a machine on
which everything is slow has no slow server.

What is slow tells why: one device of several, that disk; one service, that server; several services at once, the host.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import polars as pl

from collector.durations import in_words
from collector.findings.finding import Finding, listed, times, weight

LEAST, LEAST_OF_PEERS = 5, 8
"""Requests, of the one and of its peers, before they are compared."""
MOST_SHARE, LATE_RATIO = 0.9, 2.0
"""A request is late beyond this many times what this share of the peers' requests stays below."""
SHARE_RATIO, SHARE_MORE, CHANCE_Z = 3.0, 0.1, 4.0
"""Slow: the share of late requests is this many times the peers', by this much more, and by so many standard
deviations: by chance once in 30,000 comparisons."""
LATE_BY_NS = 1_000_000
"""Late by less than this is not worth a word."""
RARE_SHARE = 0.02
"""Of a few requests none may be late; this many are taken to be."""


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
    worst: dict[str, int]


def pace_findings(requests: pl.DataFrame) -> list[Finding]:
    """Hosts, disks and servers that are slow, each by its own."""
    timed = requests.filter(pl.col("own_ns").is_not_null() & pl.col("server_host").is_not_null() & pl.col("readable"))
    total_ns = int(requests["critical_ns"].sum() or 0)
    servers = _slow(timed, ["server_host"])
    devices = _slow(timed.filter(pl.col("device").is_not_null()), ["server_host", "device"])
    found: list[Finding] = []
    for host in sorted({slow.host for slow in (*servers, *devices)}):
        found += _of_host(host, timed, [s for s in servers if s.host == host], [d for d in devices if d.host == host])
    return [replace(finding, severity=weight(finding.cost_ns, total_ns)) for finding in found]


def _of_host(host: str, timed: pl.DataFrame, servers: list[_Slow], devices: list[_Slow]) -> Iterable[Finding]:
    services = sorted({slow.service for slow in servers})
    if len(services) > 1:
        yield _starved(host, services, servers)
        return
    disks = [slow for slow in devices if _others_are_quick(slow, timed, devices)]
    for slow in disks:
        yield _finding(
            "slow_disk",
            slow,
            f"{slow.service} on {host} is slow with what is on {slow.device}: {_late_words(slow)}; its other devices "
            "are as quick as elsewhere",
            f"look at that disk (iostat -x, smartctl -a, dmesg of {host})",
        )
    for slow in servers if not disks else []:
        yield _finding(
            "slow_replica",
            slow,
            f"{slow.service} on {host} is slow: {_late_words(slow)}",
            "look at that host's disks and load at that time (iostat -x, vmstat)",
        )


def _late_words(slow: _Slow) -> str:
    return (
        f"{slow.late_count:,} of {times(slow.count, 'request')} took {in_words(slow.took_ns)} in the median, where "
        f"nine of ten take less than {in_words(slow.usual_ns)} elsewhere (waits for other servers left out)"
    )


def _starved(host: str, services: list[str], slow: list[_Slow]) -> Finding:
    worst = max(slow, key=lambda each: each.cost_ns)
    return Finding(
        severity="warning",
        kind="host_starved",
        host=host,
        count=sum(each.late_count for each in slow),
        cost_ns=sum(each.cost_ns for each in slow),
        **worst.worst,  # type: ignore[arg-type]
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
        **slow.worst,  # type: ignore[arg-type]
    )


def _others_are_quick(slow: _Slow, timed: pl.DataFrame, devices: list[_Slow]) -> bool:
    """Whether the same server serves from another device, too, that is not slow."""
    mine = timed.filter((pl.col("server_host") == slow.host) & (pl.col("service") == slow.service))
    counts = mine.drop_nulls("device").group_by("device").len()
    names = set(counts.filter(pl.col("len") >= LEAST)["device"].to_list())
    return bool(names - {each.device for each in devices if each.service == slow.service})


def _slow(timed: pl.DataFrame, keys: list[str]) -> list[_Slow]:
    """Of all groups of `keys` in a service, those that are slow against the rest of it."""
    if timed.is_empty():
        return []
    bounds = _bounds(timed, keys)
    rows = timed.join(bounds, on=[*keys, "service", "method"], nulls_equal=True)
    rows = rows.with_columns(late=pl.col("own_ns") > pl.col("limit"))
    groups = rows.group_by([*keys, "service"]).agg(
        pl.len().alias("count"),
        pl.col("late").sum().alias("late_count"),
        expected=pl.col("late_share").sum(),
        spread=(pl.col("late_share") * (1 - pl.col("late_share"))).sum().sqrt(),
        took=pl.col("own_ns").filter("late").median(),
        usual=(pl.col("limit").filter("late") / LATE_RATIO).median(),
        cost=pl.min_horizontal(pl.col("own_ns") - pl.col("limit") / LATE_RATIO, pl.col("critical_ns").fill_null(0))
        .filter("late")
        .sum(),
        connection_id=pl.col("connection_id").sort_by("own_ns").last(),
        span_id=pl.col("exchange_id").sort_by("own_ns").last(),
        from_trace_ns=pl.col("asked").filter("late").min(),
        to_trace_ns=pl.col("answered").filter("late").max(),
    )
    more = pl.col("late_count") - pl.col("expected")
    slow = groups.filter(
        (pl.col("count") >= LEAST)
        & (pl.col("late_count") >= SHARE_RATIO * pl.col("expected"))
        & (more >= SHARE_MORE * pl.col("count"))
        & (more >= CHANCE_Z * pl.col("spread"))
        & (pl.col("took") - pl.col("usual") >= LATE_BY_NS)
    )
    return [_slow_row(row) for row in slow.sort("cost", descending=True).iter_rows(named=True)]


def _bounds(timed: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """For each group of `keys` and method, by what its peers take: `limit` (late beyond it), `late_share` (theirs)."""
    of_service = ["service", "method"]
    parts = []
    for (service, method), rows in timed.group_by(of_service):
        for group in rows.select(keys).unique().iter_rows(named=True):
            own = pl.all_horizontal(pl.col(key) == group[key] for key in keys)
            others = rows.filter(~own)["own_ns"]
            if len(others) >= LEAST_OF_PEERS:
                limit = LATE_RATIO * float(others.quantile(MOST_SHARE) or 0)
                share = max(RARE_SHARE, (others > limit).sum() / len(others))
                parts.append({**group, "service": service, "method": method, "limit": limit, "late_share": share})
    schema = timed.select(*keys, *of_service).schema | {"limit": pl.Float64(), "late_share": pl.Float64()}
    return pl.DataFrame(parts, schema=schema)


def _slow_row(row: dict[str, int]) -> _Slow:
    return _Slow(
        host=str(row["server_host"]),
        service=str(row["service"]),
        device=str(row["device"]) if "device" in row else None,
        count=row["count"],
        late_count=row["late_count"],
        took_ns=int(row["took"]),
        usual_ns=int(row["usual"]),
        cost_ns=int(row["cost"]),
        worst={name: row[name] for name in ("connection_id", "span_id", "from_trace_ns", "to_trace_ns")},
    )
