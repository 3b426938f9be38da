"""Traces of document 003's questions: GET of 1 MB at 1, 16 and 128 workers, through one and two gateways behind a
balancer, and of 100 MB from disks; and a picture of the packets through the balancer.

The objects are made before, so a trace holds nothing but the reads. What is kept of each: the report as text and as
JSON, which has where the time went.
"""

import dataclasses
import subprocess
from collections.abc import Sequence
from pathlib import Path

from storage_cluster.bench.paper.experiment_003 import (
    CPU_SHARE,
    FEW,
    MANY,
    SETUPS,
    Plan,
    load_stage,
    prepare_stages,
    workload,
    write_topology,
)
from storage_cluster.bench.paper.points import Notify, Point, bring_up
from storage_cluster.bench.paper.traces import Traced, read_report, run_tracer
from storage_cluster.hosts import cluster

_KINDS = ("zero_window", "host_saturated", "disk_saturated", "packet_loss", "server_error", "unanswered_request")
"""Kinds of findings that are listed."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A trace to record."""

    name: str
    title: str
    setup: str
    workers: int
    operations: int
    size: str = "1MB"
    is_picture: bool = False


WANTED = (
    Wanted("trace-get-1", "GET of 1 MB by 1 worker", "ssd", FEW, 60),
    Wanted("trace-get-16", "GET of 1 MB by 16 workers", "ssd", MANY, 240),
    Wanted("trace-get-128", "GET of 1 MB by 128 workers", "ssd", 128, 512),
    Wanted("trace-one-gateway", "GET of 1 MB by 16 workers, hosts of equal processors", "equal-1", MANY, 240),
    Wanted("trace-two-gateways", "GET of 1 MB by 16 workers, two gateways on such hosts", "equal-2", MANY, 240),
    Wanted("trace-large-hdd", "GET of 100 MB by 1 worker, HDD without a page cache", "hdd-cold", FEW, 2, "100MB"),
    Wanted("trace-large-ssd", "GET of 100 MB by 1 worker, SSD without a page cache", "ssd-cold", FEW, 2, "100MB"),
    Wanted("balancer-packets", "GETs of 100 KB through the balancer", "equal-2", FEW, 4, "100KB", is_picture=True),
)


_FEW_TRACES = ("trace-get-1", "trace-get-128", "balancer-packets")


def record(plan: Plan, folder: Path, notify: Notify) -> list[Traced]:
    """Record the traces of a plan that do not exist yet. Raises: ClusterError."""
    wanted = (each for each in WANTED if plan.has_all_traces or each.name in _FEW_TRACES)
    return [_record(each, folder, notify) for each in wanted if each.setup in plan.setups]


def _record(wanted: Wanted, folder: Path, notify: Notify) -> Traced:
    where = folder / wanted.name
    text, report = where.with_suffix(".txt"), where.with_suffix(".json")
    made = Traced(wanted.title, where, "", is_picture=wanted.is_picture)
    if not text.exists():
        notify(wanted.title)
        done = _record_reads(wanted, folder, where)
        if not (where / "trace.json").exists():
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            notify(f"  no trace of it ({why}); the next time it is tried again")
            return dataclasses.replace(made, said=why)
        state_dir = folder.absolute() / "cluster"
        report.write_text(run_tracer(("report", "--json", str(where)), state_dir).stdout, "utf-8")
        if wanted.is_picture:
            run_tracer(("export", "--to", "csv", "-o", str(made.csv_path), str(where)), state_dir)
        text.write_text(run_tracer(("report", str(where)), state_dir).stdout, "utf-8")
    return dataclasses.replace(made, said=text.read_text("utf-8"), **read_report(report, _KINDS))


def _record_reads(wanted: Wanted, folder: Path, where: Path) -> subprocess.CompletedProcess[str]:
    """Make the objects, then record their reading."""
    state_dir = folder.absolute() / "cluster"
    setup = SETUPS[wanted.setup]
    share = CPU_SHARE if setup.gateways else 0.0
    prepare = _write(folder / f"prepare-{wanted.size}.xml", list(prepare_stages(wanted.size)))
    load = _write(
        folder / f"{wanted.name}.xml",
        [load_stage("get", wanted.workers, wanted.size, seconds=0.0, operations=wanted.operations)],
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
