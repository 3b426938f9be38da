"""Traces of document 003's questions: GET of 1 MB at 1, 16 and 128 workers, and through two gateways.

The objects are made before, so a trace holds nothing but the reads. What is kept of each: the report as text and as
JSON, which has where the time of a mean request went.
"""

import dataclasses
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from storage_cluster.bench.paper.experiment_003 import (
    CPU_SHARE,
    FEW,
    MANY,
    SETUPS,
    load_stage,
    prepare_stages,
    workload,
    write_topology,
)
from storage_cluster.bench.paper.points import Notify, Point, bring_up
from storage_cluster.bench.paper.traces import Traced, read_report, run_tracer
from storage_cluster.hosts import cluster

SIZE = "1MB"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A trace to record."""

    name: str
    title: str
    setup: str
    workers: int
    operations: int


WANTED = (
    Wanted("trace-get-1", "GET of 1 MB by 1 worker", "ssd", FEW, 60),
    Wanted("trace-get-16", "GET of 1 MB by 16 workers", "ssd", MANY, 240),
    Wanted("trace-get-128", "GET of 1 MB by 128 workers", "ssd", 128, 512),
    Wanted("trace-one-gateway", "GET of 1 MB by 16 workers, one gateway behind a balancer", "equal-1", MANY, 240),
    Wanted("trace-two-gateways", "GET of 1 MB by 16 workers, two gateways behind a balancer", "equal-2", MANY, 240),
)


def record(setups: Collection[str], folder: Path, notify: Notify) -> list[Traced]:
    """Record the traces of these setups that do not exist yet. Raises: ClusterError."""
    return [_record(wanted, folder, notify) for wanted in WANTED if wanted.setup in setups]


def _record(wanted: Wanted, folder: Path, notify: Notify) -> Traced:
    where = folder / wanted.name
    text, report = where.with_suffix(".txt"), where.with_suffix(".json")
    made = Traced(wanted.title, where, "")
    if not text.exists():
        notify(wanted.title)
        done = _record_reads(wanted, folder, where)
        if not (where / "trace.json").exists():
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            notify(f"  no trace of it ({why}); the next time it is tried again")
            return dataclasses.replace(made, said=why)
        state_dir = folder.absolute() / "cluster"
        report.write_text(run_tracer(("report", "--json", str(where)), state_dir).stdout, "utf-8")
        text.write_text(run_tracer(("report", str(where)), state_dir).stdout, "utf-8")
    return dataclasses.replace(made, said=text.read_text("utf-8"), **read_report(report))


def _record_reads(wanted: Wanted, folder: Path, where: Path) -> subprocess.CompletedProcess[str]:
    """Make the objects, then record their reading."""
    state_dir = folder.absolute() / "cluster"
    setup = SETUPS[wanted.setup]
    share = CPU_SHARE if setup.gateways else 0.0
    prepare = _write(folder / "prepare.xml", list(prepare_stages(SIZE)))
    load = _write(
        folder / f"{wanted.name}.xml",
        [load_stage("get", wanted.workers, SIZE, seconds=0.0, operations=wanted.operations)],
    )
    try:
        bring_up(Point(wanted.name, (), write_topology(setup, folder), share), state_dir)
        done = run_tracer(("bench", "run", str(prepare), "-o", str(where.with_suffix(".prepared"))), state_dir)
        if done.returncode:
            return done
        words = ("record", "-o", str(where), "--", "tracer", "bench", "run", str(load))
        return run_tracer((*words, "-o", str(where.with_suffix(".run"))), state_dir)
    finally:
        cluster.down(state_dir)


def _write(file: Path, stages: Sequence[str]) -> Path:
    file.write_text(workload(file.stem, stages), "utf-8")
    return file
