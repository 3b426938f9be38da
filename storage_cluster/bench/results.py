"""What a run was and what came of it: a row for each request, and the summary drawn from the rows.

A request that is tried again has a row for each attempt; an operation is all attempts of one request, and its latency
runs from the first attempt's start to the last one's end. Times are this host's wall clock in ns, so that a row can be
laid beside a capture; durations come from the monotonic clock.

Percentiles are by nearest rank: the p-th is the smallest latency that at least p % of the operations do not exceed, so
each is a latency that occurred.
"""

import csv
import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import TextIO

PERCENTILES = (50.0, 60.0, 80.0, 90.0, 95.0, 99.0, 99.9, 100.0)
SLOWEST_COUNT = 5


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run does."""

    operation: str  # put, get
    count: int
    size_bytes: int
    concurrency: int
    container: str
    retries_max: int


@dataclasses.dataclass(frozen=True)
class RequestRow:
    """One attempt at one request."""

    operation: str
    index: int  # which of the run's operations
    attempt: int  # 1 = first
    name: str  # container/object
    start_ns: int
    end_ns: int
    status: int  # 0 if there was no answer
    error: (
        str  # "" if it went well; status, connect_refused, connect_timeout, reset, read_timeout, short_body, wrong_hash
    )
    bytes_sent: int
    bytes_received: int
    transaction_id: str
    local_port: int  # 0 if there was no connection

    @property
    def latency_ns(self) -> int:
        """How long the attempt took."""
        return self.end_ns - self.start_ns


@dataclasses.dataclass(frozen=True)
class Summary:
    """A run in figures."""

    plan: Plan
    elapsed_ns: int
    operations_count: int
    failures_count: int
    retries_count: int
    operations_per_s: float  # of those that went well
    bytes_per_s: float
    latency_ns: dict[str, int]  # percentile: latency of the operations that went well
    errors: dict[str, int]  # kind: attempts that ended so
    slowest: tuple[RequestRow, ...]  # operations, by their last attempt


def summarize(plan: Plan, rows: Sequence[RequestRow], elapsed_ns: int) -> Summary:
    """The figures of a run that took `elapsed_ns`."""
    first: dict[int, RequestRow] = {}
    last: dict[int, RequestRow] = {}
    for row in sorted(rows, key=lambda row: (row.index, row.attempt)):
        first.setdefault(row.index, row)
        last[row.index] = row
    latencies = {index: last[index].end_ns - first[index].start_ns for index in last if not last[index].error}
    moved = sum(last[index].bytes_sent + last[index].bytes_received for index in latencies)
    slowest = sorted(latencies, key=latencies.__getitem__, reverse=True)[:SLOWEST_COUNT]
    elapsed_s = max(elapsed_ns, 1) / 1e9
    return Summary(
        plan=plan,
        elapsed_ns=elapsed_ns,
        operations_count=len(last),
        failures_count=len(last) - len(latencies),
        retries_count=len(rows) - len(last),
        operations_per_s=len(latencies) / elapsed_s,
        bytes_per_s=moved / elapsed_s,
        latency_ns=percentiles(latencies.values()),
        errors=_counts(row.error for row in rows if row.error),
        slowest=tuple(dataclasses.replace(last[index], start_ns=first[index].start_ns) for index in slowest),
    )


def percentiles(values: Iterable[int]) -> dict[str, int]:
    """Nearest-rank percentiles by name ("50", "99.9"); empty if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    ranks = {p: max(1, math.ceil(p * len(ordered) / 100)) for p in PERCENTILES}
    return {f"{p:g}": ordered[rank - 1] for p, rank in ranks.items()}


def write_rows(rows: Iterable[RequestRow], stream: TextIO) -> None:
    """All rows as CSV, in order of their start."""
    writer = csv.writer(stream)
    writer.writerow([*(field.name for field in dataclasses.fields(RequestRow)), "latency_ns"])
    for row in sorted(rows, key=lambda row: row.start_ns):
        writer.writerow([*dataclasses.astuple(row), row.latency_ns])


def as_json(summary: Summary) -> str:
    """The summary for programs."""
    return json.dumps(dataclasses.asdict(summary), indent=1)


def as_text(summary: Summary) -> str:
    """The summary for people."""
    plan = summary.plan
    lines = [
        f"{plan.operation} {plan.count:,} objects of {plan.size_bytes:,} bytes, concurrency {plan.concurrency}",
        f"{summary.operations_per_s:,.1f}/s, {summary.bytes_per_s / 1e6:,.2f} MB/s, {summary.elapsed_ns / 1e9:.2f} s",
        f"failed {summary.failures_count}, retries {summary.retries_count}"
        + "".join(f", {kind} {count}" for kind, count in summary.errors.items()),
    ]
    if summary.latency_ns:
        lines.append("latency       " + " ".join(f"{name + ' %':>8}" for name in summary.latency_ns))
        lines.append("   (ms)       " + " ".join(f"{value / 1e6:8.2f}" for value in summary.latency_ns.values()))
        lines.append("slowest")
    for row in summary.slowest:
        lines.append(
            f"  {row.latency_ns / 1e6:8.2f} ms  {row.name}  status {row.status}, attempt {row.attempt},"
            f" port {row.local_port}, {row.transaction_id}"
        )
    return "\n".join(lines)


def _counts(kinds: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return counts
