"""Reports a run on one screen: operations and their rates, errors, the slowest requests and how to inspect them."""

from collections.abc import Iterable, Iterator

from storage_cluster.bench.results.figures import PERCENTILES, SLOWEST_COUNT, Figures, Key, Slow, text_ms
from storage_cluster.bench.results.folder import Run, RunInfo
from storage_cluster.bench.run.schedule import Lateness, lateness_ns

SLOWEST_SHOWN = 5
STATUS = "status"
"""The kind of error of an attempt that got an unexpected answer; its status says more."""
VIEW_HINT = "tracer view TRACE, then http://127.0.0.1:8765/transaction/ID"
BENCH_HINT = "tracer view TRACE --bench RUN, then the page Bench"


def as_text(run: Run) -> str:
    """The report."""
    lines = list(_heading(run))
    done = run.tally.stages()
    for stage in run.info.stages:
        name, keys, works = stage.name, done.get(stage.name, []), {work.name: work for work in stage.works}
        if not keys:
            continue
        workers = sum(works[work].workers for work in {key.work for key in keys})
        lines.append(f"\n{name} ({workers:,} {'worker' if workers == 1 else 'workers'})")
        lines += _table(run, keys)
        lines += _lateness(run, [work.name for work in stage.works if work.is_schedule])
    lines += _slowest((slow for figures in run.tally.figures.values() for slow in figures.slowest), run.info)
    return "\n".join(lines)


def _heading(run: Run) -> Iterator[str]:
    info, total = run.info, run.tally.total()
    ended_ns = info.ended_ns or total.last_end_ns or info.started_ns
    yield f"{info.name}: {info.state}" + (f" ({info.note})" if info.note else "")
    if info.parameters:
        yield "with " + ", ".join(f"{name}={value}" for name, value in info.parameters.items())
    retries = f"{total.retries_count:,} retries" if info.records_attempts else "retries not recorded"
    failed = f"{total.failures_count:,} failed, {retries}"
    yield f"{total.operations_count:,} operations in {(ended_ns - info.started_ns) / 1e9:.1f} s, {failed}"
    if total.outside_count:
        yield f"{total.outside_count:,} more began before or ended after the time measured"
    if total.errors:
        yield "attempts that failed: " + ", ".join(f"{kind} {count:,}" for kind, count in total.errors.items())
    if info.lost_drivers:
        yield f"LOST: {', '.join(info.lost_drivers)}; what they had done by then is in"
    yield from info.notes


def _table(run: Run, keys: list[Key]) -> Iterator[str]:
    percentiles = "".join(f"{percent:>8g} %" for percent in PERCENTILES)
    yield (
        f"  {'':<14}{'ok':>9}{'failed':>7}{'retries':>8}{'op/s':>10}{'MB/s':>9}{'mean ms':>10}{'first':>9}"
        + percentiles
    )
    for key in keys:
        figures = run.tally.figures[key]
        title = key.operation if key.operation == key.work or len(keys) == 1 else f"{key.work}/{key.operation}"
        yield f"  {title:<14}" + _figures(figures, run.info.elapsed_s(key, figures), run.info.records_attempts)


def _lateness(run: Run, works: list[str]) -> Iterator[str]:
    """How late the requests of a schedule began."""
    late = Lateness.of_times(lateness_ns(run.rows(), works)) if works else None
    if late is not None:
        shown = zip(("median", "99 %", "most"), late.percentiles_ns, strict=True)
        times = ", ".join(f"{name} {text_ms(value)} ms" for name, value in shown)
        yield f"  began later than planned: {times} ({late.count:,} requests)"


def _figures(figures: Figures, elapsed_s: float, records_attempts: bool) -> str:
    response, processing = figures.response, figures.processing
    percentiles = "".join(f"{text_ms(response.percentile_ns(percent), '.2f'):>10}" for percent in PERCENTILES)
    retries = f"{figures.retries_count:,}" if records_attempts else "–"
    return (
        f"{figures.successes_count:>9,}{figures.failures_count:>7,}{retries:>8}"
        f"{figures.successes_count / elapsed_s:>10,.1f}{figures.bytes / elapsed_s / 1e6:>9,.2f}"
        f"{text_ms(response.mean_ns, '.2f'):>10}{text_ms(processing.mean_ns, '.2f'):>9}{percentiles}"
    )


def _slowest(slow: Iterable[Slow], info: RunInfo) -> Iterator[str]:
    found = sorted(slow, reverse=True)[: min(SLOWEST_SHOWN, SLOWEST_COUNT)]
    if found:
        yield f"\nslowest (in a trace of this run: {VIEW_HINT if info.records_attempts else BENCH_HINT})"
    for response_ns, row in found:
        if not info.records_attempts:
            failed = f"  failed: {row.error}" if row.error else ""
            yield f"  {response_ns / 1e6:>10.2f} ms  {row.op} {row.file}  {row.endpoint}, thread {row.thread}{failed}"
            continue
        what = row.error if row.error and row.error != STATUS else str(row.status)
        what = f"failed: {what}" if row.error else what
        yield (
            f"  {response_ns / 1e6:>10.2f} ms  {row.op} {row.file}  {what}, attempt {row.attempt},"
            f" port {row.local_port}, {row.transaction_id or 'no transaction id'}"
        )
