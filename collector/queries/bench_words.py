"""Says what a run of a load generator was, and how many of its operations are in a trace."""

from pathlib import Path

from collector.queries.bench_join import RunJoin
from collector.queries.bench_runs import PERCENTILES, BenchRun, read_run, transaction_ids_of
from collector.queries.trace_view import TraceView
from collector.reporting.report import LoadLine
from collector.trace.durations import in_words
from tracer.errors import InputError


def load_line(trace: TraceView, folder: Path) -> LoadLine:
    """What a report says of a run.

    Raises: `InputError` if there is none in the folder, or it has not ended.
    """
    run = read_run(folder)
    if run is None:
        raise InputError(
            f"{folder} is no run that has ended",
            "give a folder of `tracer bench run`, or make one of warp's file by `tracer bench import`",
        )
    found = _ids_words(trace, folder) if run.records_attempts else join_words(trace.join_run(folder))
    return LoadLine(run.name, (_figures(run), *found))


def _figures(run: BenchRun) -> str:
    took = ", ".join(f"p{share:g} {in_words(ns)}" for share, ns in zip(PERCENTILES, run.percentiles_ns, strict=False))
    retries = "retries not recorded" if run.retries_count is None else f"{run.retries_count:,} retries"
    return (
        f"{run.stage}: {run.operations_count:,} operations, {run.concurrency:,} at once, {run.throughput_per_s:,.1f}/s;"
        f" {run.failures_count:,} failed, {retries}; {took or 'none went well'}"
    )


def _ids_words(trace: TraceView, folder: Path) -> tuple[str, ...]:
    """How many attempts have their request in the trace, by the transaction id that both have."""
    ids = [each for part in transaction_ids_of(folder) for each in part]
    found = sum(number is not None for number in trace.load.numbers_of(ids))
    return (f"{found:,} of {len(ids):,} attempts have their request in the trace, by its transaction id.",)


def join_words(join: RunJoin) -> tuple[str, ...]:
    """How many operations of a run were joined with their request, and why others were not; a sentence each."""
    hosts = f" (host {', '.join(join.hosts)})" if join.hosts else ""
    words = [
        f"{len(join.requests):,} of {join.operations_count:,} operations are joined with their request, by kind, object"
        f", endpoint and time at the client{hosts}."
    ]
    if not join.requests and not join.ambiguous:
        words.append(
            "No request of theirs was seen at a captured client: the host that ran the load was not captured, the times"
            " are not of these captures, or requests show no path (TLS, cut packets)."
        )
    reasons = (
        (len(join.ambiguous), "Of one object at one time, so that which request is whose cannot be known from here"),
        (join.unmatched_count, "Without a request in the trace"),
        (join.outside_count, "Before or after the trace"),
        (join.other_kinds_count, "Of a kind whose requests are not known"),
        (join.several_count, "With several requests (parts, pages, retries), of which the longest is meant"),
    )
    words += [f"{why}: {count:,}." for count, why in reasons if count]
    if join.longer_ns is not None:
        middle, most = map(in_words, join.longer_ns)
        words.append(
            f"Operations last longer than their packets, from the first byte sent to the last received: by {middle}"
            f" (median), {most} at most. That is the client's own time, and opening connections."
        )
    return tuple(words)
