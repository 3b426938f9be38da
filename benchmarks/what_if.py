"""Whether what `tracer what-if` says comes true: `python -m benchmarks.what_if` (where namespaces are allowed).

    python -m benchmarks.what_if [--count 60] [--rounds 3] [--only NAME]

The bundled cluster runs both ways, in turn, and is recorded each time: as it is, and with the change made in earnest.
Uploads are due at a steady rate, so that what one leaves behind (a replica that nobody waits for any more) takes no
time from the next: the load is the same both ways, as what-if assumes.
From the records of the one the durations of its uploads with the change are predicted, and stand beside the durations
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
CLASS = "PUT object"
TOPOLOGY = Path(__file__).parents[1] / "storage_cluster" / "topologies" / "six-hosts.toml"
DEVICES = ("d1", "d2")
RATE_PER_S = 8
WORKLOAD = """
name = "uploads"
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
name = "main"
[[stage.work]]
workers = 8
runtime_s = {seconds}
rate_per_s = {rate}
arrivals = "even"
operations = [{{ kind = "write", ratio = 100, containers = "u(1,1)", objects = "s(1,100000)", sizes = "c(10)KB" }}]
"""
HEAD = (
    "| change | requests | p50 before | predicted | measured | p99 before | predicted | measured |",
    "|:--|--:|--:|--:|--:|--:|--:|--:|",
)


@dataclass(frozen=True, slots=True)
class Way:
    """How the cluster is: its quorum, how long a proxy waits for other answers after it (s), and faults."""

    quorum: int = 2
    others_s: float = 0.5
    faults: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """Two ways, and the change that leads from the first to the second."""

    name: str
    before: Way
    after: Way
    changes: Changes | None


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
    Experiment("nothing", Way(), Way(), None),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="uploads in a round")
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
                _record(folder / side, way, count)
                for side, way in (("before", experiment.before), ("after", experiment.after))
            )
            before += _durations(was)
            measured += _durations(now)
            predicted += _forecast(was, experiment.changes)
    cells = []
    for share in (0.5, 0.99):
        cells += [f"{np.quantile(values, share) / 1e6:.1f} ms" for values in (before, predicted, measured)]
    return f"| {experiment.name} | {len(before)} + {len(measured)} | {' | '.join(cells)} |"


def _record(folder: Path, way: Way, count: int) -> str:
    """Record uploads to a cluster that is as `way` says. Returns the trace."""
    folder.mkdir()
    topology, trace = folder / "topology.toml", folder / "trace"
    lines = TOPOLOGY.read_text().replace("replicas = 3\n", f"replicas = 3\nwrite_quorum = {way.quorum}\n", 1)
    topology.write_text(lines.replace("[intervals]\n", f"[intervals]\npost_quorum_timeout_s = {way.others_s}\n", 1))
    environment = os.environ | {STATE_DIR_VARIABLE: str(folder / "cluster")}

    def run(*words: str) -> None:
        subprocess.run(
            [*TRACER, *words], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    workload = folder / "uploads.toml"
    workload.write_text(WORKLOAD.format(seconds=count / RATE_PER_S, rate=RATE_PER_S))
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


def _durations(trace: str) -> list[int]:
    table = open_trace(trace).load.table
    return [took for name, took in table.select("class", "duration_ns").iter_rows() if name.startswith(CLASS)]


def _forecast(trace: str, changes: Changes | None) -> list[int]:
    if changes is None:
        return _durations(trace)
    durations = what_if(open_trace(trace), changes).durations_ns
    return [int(now) for name, (_, nows) in durations.items() if name.startswith(CLASS) for now in nows]


if __name__ == "__main__":
    sys.exit(main())
