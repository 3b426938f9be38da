"""Runs the points of a sweep, each as a process with a cluster of its own; finished points are not repeated.

The reason for separate clusters: an overload outlasts its run, since abandoned requests still wait for the disk.

A point's run is `tracer bench run …` on the client host, so its folder is like any other run's. The cluster has its own
state directory below the experiment's folder; the machine's other clusters are not touched.
"""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from storage_cluster import topology as topologies
from storage_cluster.bench.errors import RunError
from storage_cluster.bench.paper import drivers_004
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results.folder import Run
from storage_cluster.faults import control
from storage_cluster.faults.kinds import Fault, Parameters
from storage_cluster.hosts import cluster, state

Notify = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Point:
    """One run: arguments of `tracer bench run`, and the topology that it needs."""

    name: str  # also its folder's
    argv: tuple[str, ...]
    topology: Path
    cpu_share: float = 0.0  # of one core, that each host but the client has; 0: all share the machine's
    on_drivers: bool = False  # `tracer bench submit` to drivers on all hosts without services; else `bench run`


def do(points: Sequence[Point], folder: Path, notify: Notify) -> None:
    """Run all points that are not finished yet. Raises: ClusterError."""
    state_dir = folder.absolute() / "cluster"
    signal.signal(signal.SIGTERM, _end)  # so that the cluster is taken down then, too
    try:
        for number, point in enumerate(points, 1):
            if is_done(folder / point.name):
                continue
            notify(f"{number}/{len(points)}  {point.name}")
            cluster.down(state_dir)
            bring_up(point, state_dir)
            _run(point, folder, state_dir)
    finally:
        cluster.down(state_dir)


def bring_up(point: Point, state_dir: Path) -> None:
    """Bring up the cluster that a point needs. Raises: ClusterError."""
    cluster.up(state_dir, point.topology, quiet=True)
    if not point.cpu_share:
        return
    for host in topologies.load(point.topology).hosts:
        if host.services:
            fault = Fault("cpu", host.name, Parameters(cpu_share=point.cpu_share))
            control.ask(state_dir, {"order": "add", "fault": dataclasses.asdict(fault)})


def is_done(folder: Path) -> bool:
    """Whether a point's run exists and was not interrupted."""
    try:
        return folders.load(folder).info.state != "running"
    except RunError:
        return False


def load(points: Sequence[Point], folder: Path) -> dict[str, Run]:
    """The runs of the finished points."""
    return {point.name: folders.load(folder / point.name) for point in points if is_done(folder / point.name)}


def _run(point: Point, folder: Path, state_dir: Path) -> None:
    where = folder / point.name
    if where.exists():
        where.rename(where.with_name(f"{where.name}.unfinished-{os.getpid()}"))
    if point.on_drivers:
        drivers_004.run(state_dir, point.argv, where)
        return
    argv = [sys.executable, "-m", "tracer", "bench", "run", *point.argv, "-o", str(where)]
    environment = os.environ | {state.STATE_DIR_VARIABLE: str(state_dir)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if not is_done(where):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RunError(f"{point.name} did not end ({last})", "see why, then run it again: what is done is kept")


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
