"""Live runs of the bundled cluster, recorded with everything that is needed to score them.

Reads and writes, half of each, by a closed loop of so many workers, after 200 objects were put there; objects all of
1,000 bytes, or of 1 to 64 KB evenly, as in ssbench's scenarios with ranges. Servers log, daemons run. With a fault it
is made before the load and cleared after it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.linking.cases import Case, write_case
from storage_cluster.bench.results.rows import FILE_NAME

TRACER = (sys.executable, "-P", "-m", "tracer")
SIZES = {"1,000 bytes": "c(1000)B", "1 to 64 KB": "u(1,64)KB"}
"""Kinds of objects, in words and as the workload has them."""
FAULTS = {
    "slow disk": ("slow-disk", "storage2/d1", "--latency", "50ms"),
    "loss 1 %": ("drop", "storage3", "--probability", "1%"),
    "slow link": ("delay", "storage1", "--delay", "5ms", "--jitter", "2ms"),
}
"""Kinds of faults, in words and as `tracer cluster fault add` has them."""
_WORKLOAD = """name = "mixed"
[[stage]]
name = "init"
[[stage.work]]
kind = "init"
containers = "r(1,2)"
[[stage]]
name = "seed"
[[stage.work]]
kind = "prepare"
workers = 4
containers = "r(1,2)"
objects = "r(1,100)"
sizes = "{sizes}"
[[stage]]
name = "main"
[[stage.work]]
workers = {at_once}
total_ops = {operations}
operations = [
  {{ kind = "write", ratio = 50.0, containers = "u(1,2)", objects = "u(101,2000)", sizes = "{sizes}" }},
  {{ kind = "read", ratio = 50.0, containers = "u(1,2)", objects = "u(1,100)" }},
]
"""


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """A cluster of its own below `folder`; yields where its logs are."""
    os.environ["TWINTAP_CLUSTER_DIR"] = str(folder / "cluster")
    tracer("cluster", "up")
    try:
        yield folder / "cluster" / "logs"
    finally:
        tracer("cluster", "down")


def record(out: Path, objects: str, at_once: int, fault: str, operations: int) -> None:
    """One run on a fresh cluster, kept in `out`."""
    with tempfile.TemporaryDirectory(prefix="twintap-linking-") as name:
        folder = Path(name)
        workload = folder / "mixed.toml"
        workload.write_text(_WORKLOAD.format(sizes=SIZES[objects], at_once=at_once, operations=operations))
        load = (*TRACER, "bench", "run", str(workload), "--cluster", "-o", str(folder / "run"))
        with cluster(folder) as logs:
            if fault:
                tracer("cluster", "fault", "add", *FAULTS[fault])
            keep(out, Case("store", objects, at_once, fault), folder, logs, load)
        shutil.copy(folder / "run" / FILE_NAME, out)


def keep(out: Path, case: Case, folder: Path, logs: Path, load: tuple[str, ...]) -> None:
    """Record `load` on the running cluster, and keep captures and logs."""
    print(f"linking: recording {case.words}, {case.at_once} at once", file=sys.stderr)
    tracer("record", "-o", str(folder / "trace"), "--", *load)
    out.mkdir(parents=True, exist_ok=True)
    shutil.move(folder / "trace.captures", out / "captures")
    for file in logs.glob("*/*.jsonl"):
        (out / "logs" / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, out / "logs" / file.parent.name)
    write_case(out, case)


def tracer(*words: str) -> str:
    """What a `tracer` command prints; it must succeed."""
    done = subprocess.run([*TRACER, *words], text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"linking: `tracer {' '.join(words[:3])} …` failed:\n{done.stderr}{done.stdout[-1000:]}")
    return done.stdout


def hosts() -> dict[str, list[str]]:
    """The prefix that runs a command on each host of the running cluster."""
    return {host["host"]: host["enter"] for host in json.loads(tracer("cluster", "status", "--json"))["hosts"]}


def stamp() -> str:
    """A name for what is recorded now."""
    return time.strftime("%Y%m%dT%H%M%S")
