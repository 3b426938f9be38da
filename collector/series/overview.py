"""What a series says in all: when it was slow, and where; from summaries alone, so also of traces that were removed."""

from collections.abc import Sequence

import polars as pl
from msgspec import Struct

from collector.findings.finding import SEVERITIES
from collector.series.series import Entry, Series
from collector.series.summaries import merge_requests, percentiles, read_summary

FEWEST_IN_A_MINUTE = 20
"""A minute with fewer requests of a class is not called slow: its p99 is one request."""
SLOW_RATIO = 2.0
"""A minute is slow from so many times the usual p99 on, which is the median of the minutes' p99."""
MOST_SLOW = 5
CLIENT_CLASS = ("server_host", "service", "protocol", "method", "operation")


class ClassLine(Struct, frozen=True):
    """Clients' requests of one class; times in ns, None without any that ended."""

    server_host: str
    service: str
    protocol: str
    method: str
    operation: str
    requests_count: int
    failed_count: int
    abandoned_count: int
    p50_ns: int | None
    p99_ns: int | None

    @property
    def words(self) -> str:
        """`PUT at swift-proxy on proxy1`."""
        return class_words(self.server_host, self.service, self.method, self.operation)


class SlowMinute(Struct, frozen=True):
    """A minute in which a class of clients' requests was slow."""

    minute_ns: int  # its beginning, trace time
    words: str  # of the class
    requests_count: int
    p99_ns: int
    usual_p99_ns: int


class TimeLine(Struct, frozen=True):
    """Some successive periods; requests are clients' own."""

    from_ns: int
    to_ns: int
    requests_count: int
    failed_count: int
    p50_ns: int | None
    p99_ns: int | None
    hops_count: int
    lost_count: int
    findings_count: int  # of severity error or warning
    summarised_count: int  # periods with a summary
    traces_count: int  # of which the trace is there
    problems: tuple[str, ...]  # why others have none


class FindingLine(Struct, frozen=True):
    """Findings of one kind at one host, in all periods."""

    severity: str  # the most severe
    kind: str
    host: str | None
    periods_count: int
    cost_ns: int
    failed_count: int
    text: str  # of the one that cost most
    at_ns: int | None  # when that began


class Overview(Struct, frozen=True):
    """All facts that are said of a series."""

    place: str
    period_ns: int
    entries: tuple[Entry, ...]
    requests_count: int
    failed_count: int
    abandoned_count: int
    classes: tuple[ClassLine, ...]  # most requests first
    lines: tuple[TimeLine, ...]  # by time
    slow_minutes: tuple[SlowMinute, ...]  # the worst first
    findings: tuple[FindingLine, ...]  # the most severe first


def class_words(server_host: str, service: str, method: str, operation: str) -> str:
    """A class of requests in words."""
    what = operation or method or "requests"
    return f"{what} at {service or 'an unknown service'}" + (f" on {server_host}" if server_host else "")


def build_overview(series: Series, most_lines: int = 48) -> Overview:
    """The overview of a series, with at most so many lines of successive periods. Raises: InputError."""
    length_ns, entries = series.length_ns, series.entries()
    there = [entry for entry in entries if not entry.problem]
    requests = _tables(series, there, "requests")
    clients = requests.filter("is_client") if len(requests) else requests
    packets, findings = _tables(series, there, "packets"), _tables(series, there, "findings")
    return Overview(
        place=str(series.place),
        period_ns=length_ns,
        entries=entries,
        requests_count=_total(clients, "requests_count"),
        failed_count=_total(clients, "failed_count"),
        abandoned_count=_total(clients, "abandoned_count"),
        classes=tuple(_classes(clients)),
        lines=tuple(_lines(entries, length_ns, clients, packets, findings, most_lines)),
        slow_minutes=tuple(slow_minutes(clients)[:MOST_SLOW]),
        findings=tuple(_findings(findings)),
    )


def _total(rows: pl.DataFrame, column: str) -> int:
    return int(rows[column].sum()) if len(rows) else 0


def slow_minutes(clients: pl.DataFrame) -> list[SlowMinute]:
    """The minutes that are slow for their class, the worst ratio first. Arguments: rows of `requests` of clients."""
    if not len(clients):
        return []
    merged = merge_requests(clients, ["minute_trace_ns", *CLIENT_CLASS])
    timed = merged.with_columns(p99=pl.Series(percentiles(merged, 0.99), dtype=pl.Float64)).drop_nulls("p99")
    enough = timed.filter(pl.col("requests_count") >= FEWEST_IN_A_MINUTE)
    usual = enough.with_columns(usual=pl.col("p99").median().over(CLIENT_CLASS))
    slow = usual.filter(pl.col("p99") >= SLOW_RATIO * pl.col("usual"))
    ordered = slow.sort(pl.col("p99") / pl.col("usual"), "minute_trace_ns", descending=[True, False])
    return [
        SlowMinute(
            row["minute_trace_ns"],
            class_words(row["server_host"], row["service"], row["method"], row["operation"]),
            row["requests_count"],
            round(row["p99"]),
            round(row["usual"]),
        )
        for row in ordered.iter_rows(named=True)
    ]


def _tables(series: Series, entries: Sequence[Entry], table: str) -> pl.DataFrame:
    """A table of all summaries, with the beginning of the period of each row."""
    parts = [
        read_summary(series.summary_place(entry.period), table).with_columns(period_ns=pl.lit(entry.from_ns, pl.Int64))
        for entry in entries
    ]
    return pl.concat(parts) if parts else pl.DataFrame()


def _classes(clients: pl.DataFrame) -> list[ClassLine]:
    if not len(clients):
        return []
    merged = merge_requests(clients, CLIENT_CLASS)
    figures = zip(percentiles(merged, 0.5), percentiles(merged, 0.99), strict=True)
    named = merged.select(*CLIENT_CLASS, "requests_count", "failed_count", "abandoned_count").iter_rows()
    lines = [ClassLine(*row, *map(_whole, figure)) for row, figure in zip(named, figures, strict=True)]
    return sorted(lines, key=lambda line: (-line.requests_count, line.words))


def _lines(
    entries: Sequence[Entry],
    length_ns: int,
    clients: pl.DataFrame,
    packets: pl.DataFrame,
    findings: pl.DataFrame,
    most: int,
) -> list[TimeLine]:
    if not entries:
        return []
    first, last = entries[0].from_ns, entries[-1].to_ns
    step_ns = max(1, -(-(last - first) // (length_ns * most))) * length_ns
    begins = sorted({first + (entry.from_ns - first) // step_ns * step_ns for entry in entries})
    step = (pl.col("period_ns") - first) // step_ns * step_ns + first
    requests: dict[int, tuple[int, int, int | None, int | None]] = {}
    if len(clients):
        merged = merge_requests(clients.with_columns(step=step), ["step"])
        figures = zip(percentiles(merged, 0.5), percentiles(merged, 0.99), strict=True)
        rows = merged.select("step", "requests_count", "failed_count").iter_rows()
        for (at, count, failed), (p50, p99) in zip(rows, figures, strict=True):
            requests[at] = (count, failed, _whole(p50), _whole(p99))
    hops = _sums(packets, step, pl.col("hops_count").sum(), pl.col("lost_count").sum())
    urgent = _sums(findings, step, pl.col("severity").is_in(SEVERITIES[:2]).sum())
    lines = []
    for begin in begins:
        mine = [entry for entry in entries if begin <= entry.from_ns < begin + step_ns]
        count, failed, p50_ns, p99_ns = requests.get(begin, (0, 0, None, None))
        hops_count, lost_count = hops.get(begin, (0, 0))
        lines.append(
            TimeLine(
                from_ns=mine[0].from_ns,
                to_ns=mine[-1].to_ns,
                requests_count=count,
                failed_count=failed,
                p50_ns=p50_ns,
                p99_ns=p99_ns,
                hops_count=hops_count,
                lost_count=lost_count,
                findings_count=urgent.get(begin, (0,))[0],
                summarised_count=sum(not entry.problem for entry in mine),
                traces_count=sum(entry.has_trace for entry in mine),
                problems=tuple(dict.fromkeys(entry.problem for entry in mine if entry.problem)),
            )
        )
    return lines


def _sums(rows: pl.DataFrame, step: pl.Expr, *sums: pl.Expr) -> dict[int, tuple[int, ...]]:
    """By step, some sums over rows."""
    if not len(rows):
        return {}
    return {begin: tuple(map(int, found)) for begin, *found in rows.group_by(step.alias("step")).agg(*sums).iter_rows()}


def _findings(findings: pl.DataFrame) -> list[FindingLine]:
    if not len(findings):
        return []
    found = []
    for (kind, host), rows in findings.group_by("kind", "host", maintain_order=True):
        severity = min(rows["severity"].unique().to_list(), key=SEVERITIES.index)
        worst = rows.sort("cost_ns", descending=True, nulls_last=True).row(0, named=True)
        found.append(
            FindingLine(
                severity,
                str(kind),
                None if host is None else str(host),
                rows["period_ns"].n_unique(),
                int(rows["cost_ns"].sum()),
                int(rows["failed_count"].sum()),
                worst["text"],
                worst["from_trace_ns"],
            )
        )
    return sorted(
        found, key=lambda line: (SEVERITIES.index(line.severity), -line.cost_ns, -line.periods_count, line.kind)
    )


def _whole(value_ns: float | None) -> int | None:
    return None if value_ns is None else round(value_ns)
