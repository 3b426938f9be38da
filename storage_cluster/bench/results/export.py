"""Exports a run in the formats of other tools: COSBench's CSV, ssbench's report, CSV, JSON."""

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import gmtime, strftime

from storage_cluster.bench.results.figures import PERCENTILES, Figures, Key, Slow, Times, text_ms
from storage_cluster.bench.results.folder import Run
from storage_cluster.bench.results.rows import STATUS_UNKNOWN, Row

COSBENCH_PERCENTILES = (60, 80, 90, 95, 99, 100)
_COSBENCH_HEADER = (
    "Stage", "Op-Name", "Op-Type", "Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime",
    *(f"{percent}%-ResTime" for percent in COSBENCH_PERCENTILES), "Throughput", "Bandwidth", "Succ-Ratio", "Status",
    "Detailed Status",
)  # fmt: skip
_SSBENCH_PERCENTILE = 95


def as_cosbench(run: Run) -> str:
    """The run as COSBench's CSV of a workload, in its units (ms, op/s, B/s), with N/A where nothing was measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COSBENCH_HEADER)
    for number, stage in enumerate(run.info.stages, 1):
        keys = [key for key in run.tally.figures if key.stage == stage.name]
        status = "completed" if stage.ended_ns else run.info.state
        for key in keys:
            writer.writerow((f"s{number}-{stage.name}", *_cosbench_cells(run, key), status, status))
        if not keys:
            writer.writerow((f"s{number}-{stage.name}", *["N/A"] * (len(_COSBENCH_HEADER) - 3), status, status))
    return text.getvalue().rstrip("\n")


def as_ssbench(run: Run) -> str:
    """The run as ssbench's text report, with its units and names."""
    keys = [key for key in run.tally.figures if key.stage == "run"] or _last_stage(run)
    started, ended = run.info.started_ns // 10**9, (run.info.ended_ns or run.info.started_ns) // 10**9
    workers = max((work.workers for stage in run.info.stages for work in stage.works), default=0)
    lines = [
        f"{run.info.name}  (generated with tracer bench)",
        f"Worker count: {max(len(run.info.drivers), 1):3}   Concurrency: {workers:3}  Ran"
        f" {strftime('%Y-%m-%d %H:%M:%S UTC', gmtime(started))} to"
        f" {strftime('%Y-%m-%d %H:%M:%S UTC', gmtime(ended))} ({ended - started}s)",
        "",
    ]
    lines += _ssbench_section(run, "TOTAL", keys)
    for name in dict.fromkeys(key.operation.split(" ")[0] for key in keys):
        lines += _ssbench_section(run, name.upper(), [key for key in keys if key.operation.split(" ")[0] == name])
    return "\n".join(lines).rstrip("\n")


def as_json(runs: Run | Sequence[Run]) -> str:
    """Everything but the rows, for programs."""
    found = [runs] if isinstance(runs, Run) else list(runs)
    made = [_summary(run) for run in found]
    return json.dumps(made[0] if len(made) == 1 else made, indent=1)


def write_summary(runs: Sequence[Run], file: Path) -> None:
    """`as_json` into a file."""
    file.write_text(as_json(runs) + "\n", "utf-8")


def write_csv(runs: Sequence[Run], file: Path) -> None:
    """All rows as CSV, in order of their start."""
    rows = sorted((row for run in runs for row in run.rows()), key=lambda row: row.start_ns)
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*Row._fields, "end_ns", "response_ns"])
        writer.writerows(_cells(row) for row in rows)


FORMATS: dict[str, Callable[[Run], str]] = {"cosbench": as_cosbench, "ssbench": as_ssbench, "json": as_json}


def _cosbench_cells(run: Run, key: Key) -> Iterator[object]:
    figures, elapsed_s = run.tally.figures[key], run.info.elapsed_s(key, run.tally.figures[key])
    kind = {"PUT": "write", "GET": "read", "DELETE": "delete", "LIST": "list"}.get(figures.op, "N/A")
    yield from (key.operation, kind, figures.successes_count, figures.bytes)
    measured = figures.successes_count > 0
    for value in (figures.response.mean_ns, figures.processing.mean_ns):
        yield "N/A" if value is None else text_ms(value, ".2f")
    for percent in COSBENCH_PERCENTILES:
        yield text_ms(figures.response.percentile_ns(percent), ".2f") if measured else "N/A"
    yield f"{figures.successes_count / elapsed_s:.2f}" if measured else "N/A"
    yield f"{figures.bytes / elapsed_s:.2f}" if measured else "N/A"
    yield f"{figures.success_ratio * 100:.2f}%" if figures.operations_count else "N/A"


def _last_stage(run: Run) -> list[Key]:
    stages = run.tally.stages()
    return stages[list(stages)[-1]] if stages else []


def _ssbench_section(run: Run, name: str, keys: Sequence[Key]) -> Iterator[str]:
    total = run.tally.total(keys)
    elapsed_s = run.info.elapsed_s(keys[0], total) if keys else 1.0
    retried = 100.0 * total.retries_count / max(total.operations_count, 1)
    retries = f"{total.retries_count:4} retries: {retried:5.2f}%" if run.info.records_attempts else "retries: N/A"
    yield name
    yield (
        f"       Count: {total.operations_count:5}  ({total.failures_count:4} error; {retries})"
        f"  Average requests per second: {total.successes_count / elapsed_s:5.1f}"
    )
    percentile = f"{_SSBENCH_PERCENTILE}%-ile"
    yield f"{'':26}{'min':>10}{'max':>10}{'avg':>9}{'std_dev':>12}{percentile:>10}{'':19}Worst latency TX ID"
    worst = max(total.slowest, default=None)
    transaction_id = worst.row.transaction_id if worst else ""
    yield from _ssbench_lines(total, "all obj sizes", transaction_id)
    classes = dict.fromkeys(key.operation.partition(" ")[2] for key in keys)
    if any(classes):
        for each in classes:
            part = run.tally.total(key for key in keys if key.operation.partition(" ")[2] == each)
            slowest = max(part.slowest, default=None)
            yield from _ssbench_lines(part, f"{each} objs", slowest.row.transaction_id if slowest else "")
    yield ""


def _ssbench_lines(figures: Figures, title: str, transaction_id: str) -> Iterator[str]:
    first = Times() if figures.op == "PUT" else figures.processing  # ssbench gives none for uploads
    for name, times in (("First-byte latency", first), ("Last-byte  latency", figures.response)):
        yield f"       {name}: {_seconds(times)}  ({title:>13})  {transaction_id}".rstrip()


def _seconds(times: Times) -> str:
    if not times.count:
        return "  N/A   -   N/A      N/A    (  N/A  )    N/A "
    low, high, mean = times.min_ns / 1e9, times.max_ns / 1e9, (times.mean_ns or 0) / 1e9
    at = (times.percentile_ns(_SSBENCH_PERCENTILE) or 0) / 1e9
    return f"{low:7.3f} - {high:7.3f}  {mean:7.3f}  ({times.deviation_ns / 1e9:7.3f})  {at:7.3f}"


def _summary(run: Run) -> dict[str, object]:
    total = run.tally.total()
    return {
        **dataclasses.asdict(run.info),
        "operations_count": total.operations_count,
        "failures_count": total.failures_count,
        "retries_count": total.retries_count if run.info.records_attempts else None,
        "errors": total.errors,
        "operations": [_operation(run, key, figures) for key, figures in run.tally.figures.items()],
        "slowest": [_slow(slow) for slow in sorted(total.slowest, reverse=True)],
    }


def _slow(slow: Slow) -> dict[str, object]:
    """An operation; one that failed has no response time, only a time after which it had."""
    row = slow.row
    return {
        **row._asdict(),
        **({"status": None, "attempt": None, "local_port": None} if row.status == STATUS_UNKNOWN else {}),
        "first_byte_ns": None if row.first_byte_ns < 0 else row.first_byte_ns,
        "duration_ns": None if row.duration_ns < 0 else row.duration_ns,
        "response_ns": row.latency_ns,
        "failed_after_ns": slow.response_ns if row.error else None,
    }


def _cells(row: Row) -> tuple[object, ...]:
    """A row as CSV: nothing where there is no such time."""
    first, lasted = row.first_byte_ns, row.duration_ns
    known = row._replace(first_byte_ns="" if first < 0 else first, duration_ns="" if lasted < 0 else lasted)  # type: ignore[arg-type]
    return *known, row.end_ns, "" if row.latency_ns is None else row.latency_ns


def _operation(run: Run, key: Key, figures: Figures) -> dict[str, object]:
    elapsed_s = run.info.elapsed_s(key, figures)
    return {
        **key._asdict(),
        "op": figures.op,
        "operations_count": figures.operations_count,
        "failures_count": figures.failures_count,
        "retries_count": figures.retries_count if run.info.records_attempts else None,
        "outside_count": figures.outside_count,
        "bytes": figures.bytes,
        "operations_per_s": figures.successes_count / elapsed_s,
        "bytes_per_s": figures.bytes / elapsed_s,
        "success_ratio": figures.success_ratio,
        "errors": figures.errors,
        "response_mean_ns": figures.response.mean_ns,
        "processing_mean_ns": figures.processing.mean_ns,
        "response_ns": {f"{percent:g}": figures.response.percentile_ns(percent) for percent in PERCENTILES},
    }
