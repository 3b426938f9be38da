"""Traces beside a sweep: its pictures 15 and 16 and, for each medium, the point with the most failures, repeated under
`tracer record`.

Nothing of the tracer is imported: it is run as a command, and its output is kept. Where it is not installed (the store
can be installed without it) there are no traces, and a message says so.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.bench.paper.experiment_000 import Series, name
from storage_cluster.bench.paper.points import Notify, Point
from storage_cluster.bench.paper.statements_000 import FIGURES_15
from storage_cluster.hosts import cluster, state

_CAUSES = (
    *("server_error", "unanswered_request", "server_silent", "listen_queue_full", "connection_refused"),
    *("connection_reset", "connection_unanswered", "syn_retry", "packet_loss", "capture_drop"),
)
"""Kinds of findings that say why requests fail, from what the client sees to its cause; last, what was not captured."""
_TRACER = (sys.executable, "-m", "tracer")


@dataclasses.dataclass(frozen=True)
class Traced:
    """A trace, the output of `tracer record`, and the findings of `tracer report`."""

    title: str
    folder: Path
    said: str
    findings: tuple[str, ...] = ()
    parts_ns: dict[str, int] = dataclasses.field(default_factory=dict)  # where the command's time went
    stages_ns: dict[str, int] = dataclasses.field(default_factory=dict)  # where that of a mean request went
    is_picture: bool = False

    @property
    def csv_path(self) -> Path:
        """Its tables as CSV."""
        return self.folder.with_suffix(".csv")


def worst(series: Series, points: Sequence[Point]) -> list[Point]:
    """Of each medium the point with the most failures and retries, if there were any."""
    by_name = {point.name: point for point in points}
    found = []
    for media in dict.fromkeys(media for media, _ in series):
        counts = {
            name(*key, each.concurrency): (each.failures_count, each.retries_count)
            for key, series_points in series.items()
            for each in series_points
            if key[0] == media
        }
        first = max(counts, key=lambda each: counts[each])
        found += [by_name[first]] if any(counts[first]) else []
    return found


def accounts(traced: Sequence[Traced]) -> dict[str, tuple[str, ...]]:
    """Medium to what the trace of its worst point shows to be wrong."""
    of_points = (each for each in traced if not each.is_picture)
    return {each.folder.name.removeprefix("trace-").partition("-")[0]: each.findings for each in of_points}


def record(pictures: Mapping[str, Path], worst_points: Sequence[Point], folder: Path, notify: Notify) -> list[Traced]:
    """Record the traces that do not exist yet: of these pictures, by their topologies, and points.

    Raises: ClusterError.
    """
    two = (*_TRACER, "bench", "run", "put", "--count", "2", "--size", "1")
    todo = [
        *(
            (f"Figure 15: two objects of 1 B by the load generator{_suffix(name)}", name, topology, two)
            for name, topology in pictures.items()
            if name.startswith("figure-15")
        ),
        ("Figure 16: one object of 1 B by `swift`", "figure-16", pictures["figure-16"], _upload(folder)),
        *(
            (f"Where most went wrong: {each.name}", f"trace-{each.name}", each.topology, _again(each))
            for each in worst_points
        ),
    ]
    return [_record(title, folder / where, topology, argv, folder, notify) for title, where, topology, argv in todo]


def _suffix(name: str) -> str:
    """What a picture was made with, as its title has it."""
    with_what = FIGURES_15.get(name, "")
    return f" ({with_what})" if with_what else ""


def _again(point: Point) -> tuple[str, ...]:
    return (*_TRACER, "bench", "run", *point.argv)


def _record(title: str, where: Path, topology: Path, argv: Sequence[str], folder: Path, notify: Notify) -> Traced:
    said, found = where.with_suffix(".txt"), where.with_suffix(".json")
    picture = where.name.startswith("figure")
    made = Traced(title, where, "", is_picture=picture)
    if not said.exists():
        notify(title)
        state_dir = folder.absolute() / "cluster"
        try:
            cluster.up(state_dir, topology, quiet=True)
            done = run_tracer(["record", "-o", str(where), "--", *argv], state_dir)
        finally:
            cluster.down(state_dir)
        if not (where / "trace.json").exists():
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            notify(f"  no trace of it ({why}); the next time it is tried again")
            return dataclasses.replace(made, said=why)
        if picture:
            run_tracer(["export", "--to", "csv", "-o", str(made.csv_path), str(where)], state_dir)
        found.write_text(run_tracer(["report", "--json", str(where)], state_dir).stdout, "utf-8")
        said.write_text(done.stdout or done.stderr, "utf-8")
    return dataclasses.replace(made, said=said.read_text("utf-8"), **read_report(found))


def run_tracer(argv: Sequence[str], state_dir: Path) -> subprocess.CompletedProcess[str]:
    """One command of the tracer to its end, for the cluster of a state directory."""
    environment = os.environ | {state.STATE_DIR_VARIABLE: str(state_dir), "COLUMNS": "100"}
    return subprocess.run([*_TRACER, *argv], env=environment, capture_output=True, text=True, check=False)


def read_report(file: Path, kinds: Sequence[str] = _CAUSES) -> dict[str, Any]:
    """`findings` of these kinds, `parts_ns` and `stages_ns` of a report in JSON; nothing if there is none."""
    try:
        report = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    causes = (each for each in report["findings"] if each["kind"] in kinds and each["severity"] != "info")
    wrong = tuple(each["text"] for each in sorted(causes, key=lambda each: kinds.index(each["kind"])))
    return {
        "findings": wrong,
        "parts_ns": {part["label"]: part["duration_ns"] for part in report["story"]["parts"]},
        "stages_ns": {stage["stage"]: stage["mean_ns"] for stage in report.get("stages", ())},
    }


def _upload(folder: Path) -> tuple[str, ...]:
    one_byte = folder / "1B"
    one_byte.write_bytes(b"x")
    return (str(Path(sys.executable).with_name("swift")), "upload", "photos", str(one_byte), "--object-name", "1B")
