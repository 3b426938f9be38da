"""Traces beside a sweep: its pictures 15 and 16, and the point where most went wrong, done again under `tracer record`.

Nothing of the tracer is imported: it is run, as anybody would, and what it says is kept. Where it is not installed
(the store can be without it) there are no traces, and that is told.
"""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from storage_cluster.bench.paper.experiment_000 import Series, name
from storage_cluster.bench.paper.points import Point, Tell
from storage_cluster.hosts import cluster, state


@dataclasses.dataclass(frozen=True)
class Traced:
    """A trace, and what `tracer record` said of it."""

    title: str
    folder: Path
    said: str


def worst(series: Series, points: Sequence[Point]) -> Point | None:
    """The point with the most failures and retries; None if there were none."""
    by_name = {point.name: point for point in points}
    counts = {
        name(*key, found.concurrency): (found.failures_count, found.retries_count)
        for key, series_points in series.items()
        for found in series_points
    }
    first = max(counts, key=lambda each: counts[each], default="")
    return by_name[first] if first and any(counts[first]) else None


def record(points: Sequence[Point], worst_point: Point | None, folder: Path, tell: Tell) -> list[Traced]:
    """Make the traces that are not there yet. Raises: ClusterError."""
    tracer = (sys.executable, "-m", "tracer")
    two = (*tracer, "bench", "run", "put", "--count", "2", "--size", "1")
    todo = [
        ("Figure 15: two objects of 1 B by the load generator", "figure-15", points[0].topology, two),
        ("Figure 16: one object of 1 B by `swift`", "figure-16", points[0].topology, _upload(folder)),
    ]
    if worst_point is not None:
        argv = (*tracer, "bench", "run", *worst_point.argv)
        todo.append(
            (f"Where most went wrong: {worst_point.name}", f"trace-{worst_point.name}", worst_point.topology, argv)
        )
    return [_record(title, folder / where, topology, argv, folder, tell) for title, where, topology, argv in todo]


def _record(title: str, where: Path, topology: Path, argv: Sequence[str], folder: Path, tell: Tell) -> Traced:
    said = where.with_suffix(".txt")
    if not said.exists():
        tell(title)
        state_dir = folder.absolute() / "cluster"
        environment = os.environ | {state.STATE_DIR_VARIABLE: str(state_dir), "COLUMNS": "100"}
        try:
            cluster.up(state_dir, topology, quiet=True)
            command = [sys.executable, "-m", "tracer", "record", "-o", str(where), "--", *argv]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        finally:
            cluster.down(state_dir)
        said.write_text(done.stdout or done.stderr, "utf-8")
    return Traced(title, where, said.read_text("utf-8"))


def _upload(folder: Path) -> tuple[str, ...]:
    one_byte = folder / "1B"
    one_byte.write_bytes(b"x")
    return (str(Path(sys.executable).with_name("swift")), "upload", "photos", str(one_byte), "--object-name", "1B")
