"""Whether what `tracer what-if` says comes true: `python -m benchmarks.what_if` (where namespaces are allowed).

    python -m benchmarks.what_if [--count 60] [--rounds 3] [--only NAME]

The bundled cluster runs both ways, in turn, and is recorded each time: as it is, and with the change made in earnest.
Uploads are due at a steady rate, so that what an upload leaves behind (a replica that nobody waits for any more) takes
no time from the next: the load is the same both ways, as what-if assumes.
From the records of the one the durations of its requests with the change are predicted, and stand beside the durations
that were measured with it. The last row changes nothing: by so much two runs of the same differ.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collector.queries.trace_view import open_trace
from collector.queries.what_if import Changes, what_if
from storage_cluster.hosts.state import STATE_DIR_VARIABLE

TRACER = (sys.executable, "-m", "tracer")
TOPOLOGY = Path(__file__).parents[1] / "storage_cluster" / "topologies" / "six-hosts.toml"
DEVICES = ("d1", "d2")
RATE_PER_S = 8
CLASSES = {"write": "PUT object", "read": "GET object"}
OPERATIONS = {
    "write": 'objects = "s(1,100000)", sizes = "c(10)KB"',
    "read": 'objects = "s(1,20)"',
}
LOADS = {"write": f'workers = 8\nrate_per_s = {RATE_PER_S}\narrivals = "even"', "read": "workers = 1"}
WORKLOAD = """
name = "steady"
[auth]
kind = "tempauth"
auth_url = "cluster"
username = "test:tester"
password = "testing"
[[stage]]
name = "init"
[[stage.work]]
kind = "init"
containers = "r(1,1)"
[[stage]]
name = "prepare"
[[stage.work]]
kind = "prepare"
containers = "r(1,1)"
objects = "r(1,20)"
sizes = "c(300)B"
[[stage]]
name = "main"
[[stage.work]]
runtime_s = {seconds}
{load}
operations = [{{ kind = "{kind}", ratio = 100, containers = "u(1,1)", {objects} }}]
"""
HEAD = (
    "| change | requests | p50 before | predicted | measured | p99 before | predicted | measured |",
    "|:--|--:|--:|--:|--:|--:|--:|--:|",
)


@dataclass(frozen=True, slots=True)
class Way:
    """How the cluster is: its quorum, how long a proxy waits for other answers after it (s), what else `[backend]` of
    its topology says, and faults."""

    quorum: int = 2
    others_s: float = 0.5
    backend: str = ""
    faults: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """Two ways, the change that leads from the first to the second, and the operation that is done to both."""

    name: str
    before: Way
    after: Way
    changes: Changes | None
    operation: str = "write"


EXPERIMENTS = (
    Experiment("a quorum of 1 (it waited for all three)", Way(), Way(1, others_s=0), Changes(quorum=1)),
    Experiment("a quorum of 2 (it waited for all three)", Way(), Way(2, others_s=0), Changes(quorum=2)),
    Experiment(
        "half the round trip (8 ms to 4 ms at the proxy)",
        Way(faults=(("delay", "proxy", "--delay", "4ms"),)),
        Way(faults=(("delay", "proxy", "--delay", "2ms"),)),
        Changes(round_trip=0.5),
    ),
    Experiment(
        "no loss (it was 2 % at the proxy)",
        Way(faults=(("drop", "proxy", "--probability", "2%"),)),
        Way(),
        Changes(no_loss=True),
    ),
    Experiment(
        "storage2 as fast as storage1 (its disk was 30 ms slower)",
        Way(quorum=3, faults=tuple(("slow-disk", f"storage2/{each}", "--latency", "30ms") for each in DEVICES)),
        Way(quorum=3),
        Changes(as_fast={"storage2": "storage1"}),
    ),
    Experiment(
        "TCP_NODELAY (no server had it; 300 bytes read again and again)",
        Way(backend='connections = "pooled"\nanswers = "pieces"\nnodelay = false'),
        Way(backend='connections = "pooled"\nanswers = "pieces"'),
        Changes(no_delay=True),
        operation="read",
    ),
    Experiment("nothing", Way(), Way(), None),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="requests in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="experiments whose name holds this")
    options = parser.parse_args(argv)
    print("\n".join(HEAD), flush=True)
    for experiment in EXPERIMENTS:
        if options.only in experiment.name:
            print(_row(experiment, options.count, options.rounds), flush=True)
    return 0


def _row(experiment: Experiment, count: int, rounds: int) -> str:
    before, predicted, measured = (list[int]() for _ in range(3))
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="twintap-what-if-") as name:
            folder = Path(name)
            was, now = (
                _record(folder / side, way, experiment.operation, count)
                for side, way in (("before", experiment.before), ("after", experiment.after))
            )
            before += _durations(was, experiment.operation)
            measured += _durations(now, experiment.operation)
            predicted += _forecast(was, experiment)
    cells = []
    for share in (0.5, 0.99):
        cells += [f"{np.quantile(values, share) / 1e6:.1f} ms" for values in (before, predicted, measured)]
    return f"| {experiment.name} | {len(before)} + {len(measured)} | {' | '.join(cells)} |"


def _record(folder: Path, way: Way, operation: str, count: int) -> str:
    """Record `count` operations of a cluster that is as `way` says. Returns the trace."""
    folder.mkdir()
    topology, workload, trace = folder / "topology.toml", folder / "steady.toml", folder / "trace"
    topology.write_text(_topology(way))
    parts = {"kind": operation, "objects": OPERATIONS[operation], "load": LOADS[operation]}
    workload.write_text(WORKLOAD.format(seconds=count / RATE_PER_S, **parts))
    environment = os.environ | {STATE_DIR_VARIABLE: str(folder / "cluster")}

    def run(*words: str) -> None:
        subprocess.run(
            [*TRACER, *words], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    load = ("bench", "run", str(workload), "--cluster", "-o")
    run("cluster", "up", "--no-daemons", "--topology", str(topology))
    try:
        run("cluster", "exec", "client", "--", *TRACER, "bench", "run", "put", "--count", "10", "--size", "10000")
        for fault in way.faults:
            run("cluster", "fault", "add", *fault)
        run("record", "--quiet", "-o", str(trace), "--", *TRACER, *load, str(folder / "run"))
    finally:
        run("cluster", "down")
    return str(trace)


def _topology(way: Way) -> str:
    lines = TOPOLOGY.read_text().replace("replicas = 3\n", f"replicas = 3\nwrite_quorum = {way.quorum}\n", 1)
    lines = lines.replace("[intervals]\n", f"[intervals]\npost_quorum_timeout_s = {way.others_s}\n", 1)
    return f"{lines}\n[backend]\n{way.backend}\n"


def _durations(trace: str, operation: str) -> list[int]:
    table = open_trace(trace).load.table
    rows = table.select("class", "duration_ns").iter_rows()
    return [took for name, took in rows if _is_counted(name, operation)]


def _forecast(trace: str, experiment: Experiment) -> list[int]:
    if experiment.changes is None:
        return _durations(trace, experiment.operation)
    durations = what_if(open_trace(trace), experiment.changes).durations_ns
    return [
        int(now) for name, (_, nows) in durations.items() if _is_counted(name, experiment.operation) for now in nows
    ]


def _is_counted(class_name: str, operation: str) -> bool:
    """Whether requests of this class are those of the main stage: uploads that prepare it have less than 1 KiB."""
    return class_name.startswith(CLASSES[operation]) and (operation != "write" or "under 1 KiB" not in class_name)


if __name__ == "__main__":
    sys.exit(main())
