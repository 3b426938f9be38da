"""Resource usage of hosts (`samples`): adds it to the findings about these hosts, and reports exhausted resources.

A finding about a slow host gets a clause with the host's figures and those of the other hosts at that time; the reader
judges whether they explain it. A host that lacked processor time, or a disk that was busy, while others were not, is a
finding of its own, but only a notice: samples show that a process had to wait, not that a request did.

A sample is the mean of the interval that ends at its timestamp.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from msgspec.structs import replace

from collector.clocks.alignment import to_trace_ns
from collector.findings.finding import MOST_LINES, Finding, frame, times
from collector.findings.kinds import KINDS
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.trace.threshold import threshold

SHOWN_WITH_USAGE = frozenset(kind.name for kind in KINDS if kind.shows_usage)
WAIT, CPU, DISK = "cpu_wait_percent", "cpu_percent", "disk_busy_percent"
WORDS = {
    WAIT: (
        "its processes waited for a processor {own:.0f} % of the time",
        " (other hosts {others:.0f} %)",
    ),
    CPU: ("its processes used {own:.0f} % of a core", " (other hosts {others:.0f} %)"),
    DISK: ("its disk {device} was busy {own:.0f} % of the time", " (other disks {others:.0f} %)"),
}
"""Wording of each metric, and of its values at other hosts."""
SATURATED = {
    WAIT: (
        "host_saturated",
        "find what runs there, and check its quotas (top, cpu.stat, PSI); move load away, or give it more processors",
    ),
    DISK: ("disk_saturated", "find what reads and writes there (iostat -x, iotop); spread it over more disks"),
}
"""Kind and remedy."""
NS_PER_S = 1_000_000_000
_KEY = ["metric", "host", "device"]


@dataclass(frozen=True, slots=True)
class UsageThresholds:
    """By which a resource counts as exhausted."""

    full_percent: float = threshold(
        80.0, "at this usage requests wait four times as long as they are served (M/M/1 queue)"
    )
    full_least_samples_count: int = threshold(3, "chosen: consecutive samples, one a second; less is a burst")
    others_share: float = threshold(
        0.5,
        "chosen: if the other hosts use more than this share of it, the host is not unusual; the same share is the "
        "least difference that a finding about a slow host shows",
    )


def find(seen: Observations, limits: UsageThresholds) -> Iterator[Finding]:
    """All findings about exhausted resources."""
    return Usage(seen.samples, seen.clocks, limits).findings(seen.requests)


class Usage:
    """The samples of a trace on its timescale: `host, device, metric, value, at`, and its second, `slot`."""

    def __init__(self, samples: pa.Table | None, clocks: pa.Table, limits: UsageThresholds) -> None:
        self.limits = limits
        columns = {"host": pl.String, "metric": pl.String, "value": pl.Float64}
        rows, at = pl.DataFrame(schema=columns), pl.Series("at", [], pl.Int64)
        if samples is not None and samples.num_rows:
            whole = samples.combine_chunks()
            at = pl.Series(to_trace_ns(whole["host"].chunk(0), whole["host_ns"].chunk(0), clocks))
            rows = frame(whole).select(*columns)
        named = pl.col("metric").str.splitn(".", 2).struct
        rows = rows.with_columns(at=at, metric=named.field("field_0"), device=named.field("field_1"))
        self.rows = rows.filter(pl.col("metric").is_in(list(WORDS))).with_columns(
            slot=(pl.col("at") / NS_PER_S).round().cast(pl.Int64)
        )

    def with_usage(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """The findings; those about a slow host show its usage at that time.

        As many clauses are added as fit in `MOST_LINES`; the table `samples` has all of them.
        """
        for finding in found:
            clauses = self._clauses(finding) if finding.kind in SHOWN_WITH_USAGE else []
            for clause in clauses:
                longer = replace(finding, text=f"{finding.text}; {clause}")
                if longer.lines_count <= MOST_LINES:
                    finding = longer  # noqa: PLW2901
            yield finding

    def findings(self, requests: Requests) -> Iterator[Finding]:
        """Findings about hosts and disks that were exhausted while others were not; the cost is that of requests
        there."""
        together = ["metric", "slot"]
        mean = (pl.col("value").sum() - pl.col("value")) / (pl.len() - 1)
        rows = self.rows.sort(*_KEY, "at").with_columns(others=mean.over(together))
        limits = self.limits
        unusual = pl.col("others") <= limits.others_share * pl.col("value")
        full = (pl.col("value") >= limits.full_percent) & unusual
        rows = rows.with_columns(full=full.fill_null(value=False)).with_columns(run=pl.col("full").rle_id().over(_KEY))
        runs = rows.filter("full").group_by(*_KEY, "run", maintain_order=True).agg(
            samples=pl.len(), begin=pl.col("at").min() - NS_PER_S, end=pl.col("at").max(), own=pl.col("value").mean(),
            others=pl.col("others").mean(),
        )  # fmt: skip
        long = runs.filter(
            (pl.col("samples") >= limits.full_least_samples_count) & pl.col("metric").is_in(list(SATURATED))
        )
        for row in long.sort("samples", descending=True).unique(_KEY, keep="first", maintain_order=True).rows(
            named=True
        ):  # fmt: skip
            yield _saturated_finding(row, requests)

    def _clauses(self, finding: Finding) -> list[str]:
        """Usage of the finding's host at its time: a clause for each metric that differs from the other hosts; disks
        only if busy at all. The most significant metric comes first."""
        begin, end = finding.from_trace_ns, finding.to_trace_ns
        if finding.host is None or begin is None or end is None:
            return []
        meanwhile = self.rows.filter(pl.col("at").is_between(begin, end + NS_PER_S))
        means = meanwhile.group_by(_KEY).agg(value=pl.col("value").mean()).sort(_KEY)
        clauses = []
        own_means = means.filter(pl.col("host") == finding.host)
        for row in sorted(own_means.iter_rows(named=True), key=lambda row: list(WORDS).index(row["metric"])):
            same = (pl.col("metric") == row["metric"]) & (pl.col("host") != finding.host)
            if row["metric"] != DISK or round(row["value"]):
                others = means.filter(same)["value"].mean()
                if not isinstance(others, float) or _differ(row["value"], others, self.limits.others_share):
                    clauses.append(_describe_usage(row | {"own": row["value"], "others": others}))
        return clauses


def _differ(own: float, others: float, share: float) -> bool:
    """Whether one value is at most this share of the other: similar values explain nothing."""
    return min(own, others) <= share * max(own, others)


def _describe_usage(row: dict[str, Any]) -> str:
    own, beside = WORDS[row["metric"]]
    return (own if row["others"] is None else own + beside).format(**row)


def _saturated_finding(row: dict[str, Any], requests: Requests) -> Finding:
    kind, remedy = SATURATED[row["metric"]]
    there = pl.col("server_host") == row["host"]
    if row["device"] is not None:
        there &= pl.col("device") == row["device"]
    meanwhile = (requests.asked >= row["begin"]) & (requests.asked <= row["end"])
    spent = requests.frame(
        requests.where(there) & meanwhile, "connection_id", "exchange_id", "own_ns", "critical_ns"
    ).with_columns(spent=pl.min_horizontal("own_ns", "critical_ns"))
    worst = spent.sort("own_ns", nulls_last=False).tail(1).to_dicts() or [{}]
    seconds = (row["end"] - row["begin"]) / NS_PER_S
    served = f"; it received {times(len(spent), 'request')} in that time" if len(spent) else ""
    return Finding(
        severity="notice",
        kind=kind,
        host=row["host"],
        connection_id=worst[0].get("connection_id"),
        span_id=worst[0].get("exchange_id"),
        from_trace_ns=row["begin"],
        to_trace_ns=row["end"],
        count=row["samples"],
        cost_ns=int(spent["spent"].sum() or 0),
        text=f"{row['host']} was saturated for {seconds:.0f} s: {_describe_usage(row)}{served}",
        remedy=remedy,
    )
