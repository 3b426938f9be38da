"""Findings about requests that got no answer, an incomplete one, or one that reports an error.

Silent servers are found in `collector.findings.silent_servers`. If a server answered other requests meanwhile, the
request is merely unanswered.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from msgspec.structs import replace

from collector.findings.finding import Finding, evidence, times, was_or_were
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.findings.silent_servers import AnswerThresholds, silent_servers
from collector.findings.symptoms import FAILED, Symptoms
from collector.findings.timeouts import fingerprint
from collector.requests.results import StatusClass, answer_text, has_class
from collector.services.ends import end_name, service_at
from collector.trace.durations import in_words

INSUFFICIENT_STORAGE = 507
"""RFC 4918 §11.5; Swift's servers answer it for a full or unmounted device."""

_OF_FAILURES = (
    *("exchange_id", "parent_span_id", "client_host", *FAILED, "device", "begin", "answered", "ended", "given_up"),
    *("own_ns", "pause_ns", "critical_ns"),
)
"""The columns needed of requests that failed."""
_FATES = {
    "unanswered": (
        "warning",
        "unanswered_request",
        "not answered by the end of the capture",
        "read the server's log at that time; check that the process still runs (a kernel accepts for a hung one)",
    ),
    "cut": (
        "info",
        "incomplete_exchange",
        "cut off by the beginning or end of the capture, or not captured completely",
        "start the capture earlier, or end it later",
    ),
}
"""What became of an exchange: severity, kind, text, remedy."""


def find(seen: Observations, limits: AnswerThresholds) -> list[Finding]:
    """All findings about answers."""
    symptoms, requests = seen.symptoms, seen.requests
    silent = list(silent_servers(requests, seen, limits))
    known = {(finding.host, finding.service) for finding in silent}
    of_turns = (replace(finding, span_id=None) for finding in silent_servers(seen.turns, seen, limits))
    return [
        *silent,
        *(finding for finding in of_turns if (finding.host, finding.service) not in known),
        *_cut_exchanges(symptoms, requests),
        *_server_errors(symptoms, requests, limits),
    ]


def _cut_exchanges(symptoms: Symptoms, requests: Requests) -> Iterable[Finding]:
    """Findings about requests without a complete answer."""
    for row in symptoms.cut.iter_rows(named=True):
        severity, kind, text, remedy = _FATES[row["fate"]]
        wait = f", the longest wait {in_words(row['worst_ns'])}" if row["worst_ns"] else ""
        until = row["to_trace_ns"] if severity == "warning" else row["from_trace_ns"]
        waited = [row["worst_ns"]] if row["fate"] == "unanswered" else []
        yield Finding(
            severity=severity,
            kind=kind,
            host=row["server_host"],
            service=row["service"],
            count=row["count"],
            text=f"{times(row['count'], 'request')} from {end_name(row['client_host'])} to "
            f"{service_at(row['service'], row['server_host'])} {was_or_were(row['count'])} {text}{wait}"
            + fingerprint("answer", waited, [row["service"]]),
            remedy=remedy,
            failed_count=row["count"] if waited and row["client_host"] not in requests.serving else 0,
            **evidence(row | {"to_trace_ns": until}),
        )


def _server_errors(symptoms: Symptoms, requests: Requests, limits: AnswerThresholds) -> Iterable[Finding]:
    """Findings about answers that report an error of their server."""
    if symptoms.failed.is_empty():
        return
    failed = requests.frame(has_class(requests.exchanges, StatusClass.SERVER_ERROR), *_OF_FAILURES)
    devices = failed.group_by(FAILED).agg(
        pl.col("device").drop_nulls().unique().sort(), cost=pl.col("critical_ns").sum(), begin=pl.col("begin").min(),
        end=pl.col("ended").max(), clients=pl.col("client_host").cast(pl.String), took=pl.col("own_ns").median(),
    ).with_columns(pl.col("server_host", "service", "result").cast(pl.String))  # fmt: skip
    reasons, serving = _failed_call_words(requests, failed), requests.serving
    usual_ns = _usual_ns(requests, failed, limits)
    rows = symptoms.failed.join(devices, on=FAILED, how="left", nulls_equal=True)
    for row in rows.iter_rows(named=True):
        full, said = row["status"] == INSUFFICIENT_STORAGE, tuple(row[name] for name in FAILED)
        of = f" (device {', '.join(row['device'])})" if row["device"] and len(row["device"]) <= 2 else ""
        yield Finding(
            severity="warning",
            kind="disk_full" if full else "server_error",
            host=row["server_host"],
            service=row["service"],
            count=row["count"],
            failed_count=sum(client not in serving for client in row["clients"] or ()),
            text=f"{service_at(row['service'], row['server_host'])}{of} answered "
            f"{answer_text(row['status'], row['result'])} to "
            f"{times(row['count'], 'request')}"
            + (": its disk is full or not mounted" if full else reasons.get(said, "")),
            remedy="free space on that disk, or mount it (df, dmesg)"
            if full
            else "read that server's log at that time (errors, tracebacks), and dmesg of that host",
            devices=frozenset(row["device"] or ()),
            quick=row["took"] is not None and row["took"] <= usual_ns.get(row["service"], 0),
            **{**evidence(row), "cost_ns": row["cost"] or 0, "from_trace_ns": row["begin"] or row["from_trace_ns"],
               "to_trace_ns": row["end"] or row["to_trace_ns"]},
        )  # fmt: skip


def _usual_ns(requests: Requests, failed: pl.DataFrame, limits: AnswerThresholds) -> dict[str, float]:
    """By service: the duration below which most of its successful requests stay, for services with failures."""
    services = failed["service"].cast(pl.String).unique().implode()
    went_well = has_class(requests.exchanges, StatusClass.OK)
    well = requests.where(pl.col("service").cast(pl.String).is_in(services)) & went_well
    most = pl.col("own_ns").quantile(limits.quick_failure_quantile)
    took = requests.frame(well, "service", "own_ns").group_by(pl.col("service").cast(pl.String)).agg(most)
    return {service: most for service, most in took.iter_rows() if most is not None}


def _failed_call_words(requests: Requests, failed: pl.DataFrame) -> dict[tuple[object, ...], str]:
    """By server and status of `failed` requests: the calls to other servers that failed before most of them, as
    text."""
    given_up, _ = requests.given_up()
    vain = pl.concat([requests.frame(given_up, *_OF_FAILURES), failed]).unique("exchange_id", maintain_order=True)
    failed = failed.select("exchange_id", **{f"failed_{name}": name for name in FAILED})
    keys = [f"failed_{name}" for name in FAILED]
    groups = (
        vain.join(failed, left_on="parent_span_id", right_on="exchange_id")
        .with_columns(fate=fate_of_call(), waited=pl.col("given_up") - pl.col("begin") - pl.col("pause_ns"))
        .group_by(*keys, "service", "server_host", "fate")
        .agg(count=pl.col("parent_span_id").n_unique(), waited=pl.col("waited").max())
        .sort("count", "service", "server_host", "fate")
    )
    return {tuple(row[key] for key in keys): _call_words(row) for row in groups.iter_rows(named=True)}


def fate_of_call() -> pl.Expr:
    """What became of a call that failed, in words. The result of one that was given up may be its client's: gRPC's
    CANCEL."""
    said = pl.concat_str("status", "result", separator=" ", ignore_nulls=True)
    is_silent = pl.all_horizontal(pl.col("status", "result").is_null())
    was_left = pl.col("given_up").is_not_null()
    return (
        pl.when(was_left & pl.col("answered").is_not_null())
        .then(pl.lit("did not finish its answer"))
        .when(was_left | is_silent)
        .then(pl.lit("did not answer"))
        .otherwise(pl.format("answered {}", said))
    )


def _call_words(row: Mapping[str, Any]) -> str:
    """What happened to the calls of one group of `_failed_call_words`."""
    waited = f" for up to {in_words(row['waited'])}" if row["waited"] else ""
    server = service_at(row["service"], row["server_host"])
    return f"; {row['count']:,} of them after {server} {row['fate']}{waited}"
