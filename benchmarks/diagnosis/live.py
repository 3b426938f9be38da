"""Recording runs with faults: a cluster of its own, load, `tracer record`.

A run's folder holds the trace, its captures (`TRACE.captures`, so it can be analysed again by a newer diagnosis) and
`truth.json`: the cluster's own record of the faults (`faults.jsonl`), which only the judge reads. All objects are put
anew before each run, so that none begins with what the fault before left behind.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.diagnosis.cases import CLEAN, Case, Load
from storage_cluster.faults import log
from storage_cluster.faults.control import ask
from storage_cluster.hosts import cluster

TRACER = [sys.executable, "-P", "-m", "tracer"]
TRUTH_FILE = "truth.json"
PREPARE = """
name = "prepare"
[[stage]]
name = "init"
[[stage.work]]
kind = "init"
containers = "r(1,2)"
[[stage]]
name = "prepare"
[[stage.work]]
kind = "prepare"
workers = 4
containers = "r(1,2)"
objects = "r(1,20)"
sizes = "{sizes}"
"""
LOAD = """
name = "mixed"
[[stage]]
name = "main"
[[stage.work]]
workers = {workers}
runtime_s = {seconds}
keep_alive = {keep_alive}
{rate}
operations = [
    {{ kind = "write", ratio = {writes}, containers = "u(1,2)", objects = "u(1,20)", sizes = "{sizes}" }},
    {{ kind = "read", ratio = {reads}, containers = "u(1,2)", objects = "u(1,20)" }},
]
"""


def record_all(cases: list[Case], folder: Path, seconds: float) -> None:
    """Record each case into `folder/NAME`, on a cluster that is brought up for it all."""
    state_dir = folder / "cluster"
    os.environ["TWINTAP_CLUSTER_DIR"] = str(state_dir)
    folder.mkdir(parents=True, exist_ok=True)
    cluster.up(state_dir)
    try:
        for case in cases:
            print(f"recording {case.name}: {' '.join(case.words) or 'no fault'}", flush=True)
            _record(case, folder, state_dir, seconds)
    finally:
        cluster.down(state_dir)


def _record(case: Case, folder: Path, state_dir: Path, seconds: float) -> None:
    place = folder / case.name
    place.mkdir(parents=True, exist_ok=True)
    (place / "prepare.toml").write_text(PREPARE.format(sizes=case.load.sizes), "utf-8")
    _tracer(folder, "bench", "run", str(place / "prepare.toml"), "--cluster", "-o", str(place / "prepared"))
    known = len(log.read(state_dir))
    (place / "load.toml").write_text(_workload(case.load, seconds), "utf-8")
    words = ["bench", "run", str(place / "load.toml"), "--cluster", "--seed", str(case.number)]
    argv = [*TRACER, *words, "-o", str(place / "bench")]
    if case.before:
        _tracer(folder, "cluster", "fault", "add", *case.words)
    elif case.kind != CLEAN:
        argv = [sys.executable, "-m", "benchmarks.diagnosis.during", str(place / "bench"), *case.words, "--", *argv]
    _tracer(folder, "record", "-o", str(place / "trace"), "--", *argv)
    ask(state_dir, {"order": "clear", "ids": None})
    _check(log.read(state_dir)[known:])
    truth = [dataclasses.asdict(record) for record in log.read(state_dir)[known:]]
    (place / TRUTH_FILE).write_text(json.dumps({"kind": case.kind, "faults": truth}, indent=1), "utf-8")


def _check(faults: tuple[log.Record, ...]) -> None:
    for record in faults:
        if record.started_ns is None:
            raise SystemExit(f"diagnosis: {record.fault.text()} could not be made: {record.how} {record.detail}")


def _workload(load: Load, seconds: float) -> str:
    return LOAD.format(
        workers=load.workers,
        seconds=seconds,
        keep_alive=str(load.keep_alive).lower(),
        rate="" if load.rate_per_s is None else f"rate_per_s = {load.rate_per_s}",
        sizes=load.sizes,
        reads=load.read_share,
        writes=100.0 - load.read_share,
    )


def _tracer(folder: Path, *words: str) -> None:
    """Run a command; what it said is kept in `folder/said.txt`. A load that met failures is no failure of ours."""
    with (folder / "said.txt").open("a", encoding="utf-8") as said:
        said.write(f"\n$ tracer {' '.join(words)}\n")
        said.flush()
        status = subprocess.run([*TRACER, *words], stdout=said, stderr=said, check=False).returncode
    if status not in (0, 1):
        raise SystemExit(f"diagnosis: `tracer {' '.join(words[:4])} …` failed; see {folder / 'said.txt'}")
