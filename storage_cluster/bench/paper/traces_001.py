"""Where the proxy of document 001 spends its time: writes one at a time under `tracer record`, past it and through it.

    client ─── A ──▶ proxy ─ B ─ C ─ D ──▶ store ─ E
    client ◀── H ─── proxy ─ G ◀──── F ─── store

From the trace's exchanges, each request's duration is cut at the moments when A to H end. A stage that began before
the one before it had ended, as where bodies are passed on while they arrive, counts from that end: so the stages add up
to the duration.

Nothing of the tracer is imported: it is run as a command, and its output is kept.
"""

import csv
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage_cluster.bench.paper.arrows import Picture, read_picture
from storage_cluster.bench.paper.experiment_001 import (
    LARGER_KB,
    PROXY,
    SETUPS,
    Stage,
    store_for,
    workload_of,
    write_topology,
)
from storage_cluster.bench.paper.points import Notify
from storage_cluster.bench.paper.traces import Traced, read_report, run_tracer
from storage_cluster.hosts import cluster

VARIANTS = ("paper", "improved")
OPERATIONS_COUNT = 20

BODY_IN = "body on its way to the proxy"
BEFORE = "proxy, before it asks the store"
CONNECT = "connection to the store"
BODY_OUT = "body on its way to the store"
STORE = "in the store"
ANSWER = "answer on its way to the proxy"
AFTER = "proxy, after the store's answer"
BACK = "answer on its way to the client"
STAGES = (BODY_IN, BEFORE, CONNECT, BODY_OUT, STORE, ANSWER, AFTER, BACK)
_OF_ROOT = {BODY_IN: "request_last_received", AFTER: "response_first_sent", BACK: "response_last_received"}
_OF_CALL = {
    BEFORE: "request_first_sent",
    CONNECT: "connected",
    BODY_OUT: "request_last_received",
    STORE: "response_first_sent",
    ANSWER: "response_last_received",
}
_PAST_IT = {BODY_OUT: "request_last_received", STORE: "response_first_sent", BACK: "response_last_received"}

Row = Mapping[str, str]
StageTimes = dict[str, float]
"""Stage to its mean, ms."""


@dataclasses.dataclass(frozen=True)
class Writes:
    """The writes of one size in a trace, past the proxy or through it."""

    setup: str
    target: str
    size_kb: int
    mean_ms: StageTimes
    count: int


def record(setups: Sequence[str], folder: Path, notify: Notify) -> list[Traced]:
    """Record the traces of these setups that do not exist yet. Raises: ClusterError."""
    return [_record(variant, folder, notify) for variant in VARIANTS if variant in setups]


def read_writes(traced: Sequence[Traced]) -> list[Writes]:
    """Where the time of the writes in these traces went."""
    return [each for trace in traced if trace.csv_path.is_dir() for each in _read_trace(trace)]


def read_pictures(traced: Sequence[Traced]) -> dict[str, Picture]:
    """The packets of one write of 100 KB through each proxy; the name of its figure to the picture."""
    made = {}
    for trace in (each for each in traced if each.csv_path.is_dir()):
        variant = trace.folder.name.removeprefix("trace-")
        roots, _ = _requests(trace.csv_path, Stage("put", PROXY, LARGER_KB[0], 1, 1))
        one = sorted(roots.values(), key=_duration_ns)[len(roots) // 2]
        begin_ns, end_ns = _moment_ns(one, "request_first_sent"), _moment_ns(one, "response_last_received")
        title = f"One PUT of 100 KB, {SETUPS[variant].words}: {(end_ns - begin_ns) / 1e6:.0f} ms"
        found = read_picture(title, trace.folder, trace.csv_path)
        within = tuple(arrow for arrow in found.arrows if begin_ns <= arrow.sent_ns <= end_ns)
        made[f"packets-{variant}"] = dataclasses.replace(found, arrows=within, began_ns=0)
    return made


def _record(variant: str, folder: Path, notify: Notify) -> Traced:
    where = folder / f"trace-{variant}"
    text, report = where.with_suffix(".txt"), where.with_suffix(".json")
    made = Traced(f"Writes of 100 KB and 1 MB past and through the {SETUPS[variant].words}", where, "")
    if not text.exists():
        notify(made.title)
        state_dir = folder.absolute() / "cluster"
        topology = write_topology(SETUPS[variant], folder)
        file = folder / f"trace-{variant}.xml"
        file.write_text(workload_of(variant, _stages(), topology, operations_count=OPERATIONS_COUNT), "utf-8")
        try:
            cluster.up(state_dir, topology, quiet=True)
            load = ("bench", "run", str(file.absolute()), "-o", str(where.absolute().with_suffix(".run")))
            done = run_tracer(("record", "-o", str(where), "--", "tracer", *load), state_dir)
        finally:
            cluster.down(state_dir)
        if not (where / "trace.json").exists():
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            notify(f"  no trace of it ({why}); the next time it is tried again")
            return dataclasses.replace(made, said=why)
        run_tracer(("export", "--to", "csv", "-o", str(made.csv_path), str(where)), state_dir)
        report.write_text(run_tracer(("report", "--json", str(where)), state_dir).stdout, "utf-8")
        text.write_text(run_tracer(("report", str(where)), state_dir).stdout, "utf-8")
    return dataclasses.replace(made, said=text.read_text("utf-8"), **read_report(report))


def _stages() -> list[Stage]:
    return [Stage("put", target, size_kb, 1, 1) for size_kb in LARGER_KB for target in (store_for(size_kb), PROXY)]


def _read_trace(trace: Traced) -> list[Writes]:
    variant = trace.folder.name.removeprefix("trace-")
    found = []
    for stage in _stages():
        roots, calls = _requests(trace.csv_path, stage)
        if stage.target == PROXY:
            times = [stage_times(root, calls[key]) for key, root in roots.items() if key in calls]
        else:
            times = [_cut(root, [(name, root, moment) for name, moment in _PAST_IT.items()]) for root in roots.values()]
        if times:
            mean = {name: statistics.mean(each.get(name, 0.0) for each in times) for name in STAGES}
            found.append(Writes(variant, stage.target, stage.size_kb, mean, len(times)))
    return found


def stage_times(root: Row, call: Row) -> StageTimes:
    """The stages of a request through the proxy, ms, given the exchanges of it and of its call of the store."""
    ends = [(BODY_IN, root, _OF_ROOT[BODY_IN])]
    begun = "connect_start" if call["connect_start_trace_ns"] else _OF_CALL[BEFORE]
    ends += [(name, call, begun if name == BEFORE else moment) for name, moment in _OF_CALL.items()]
    ends += [(name, root, _OF_ROOT[name]) for name in (AFTER, BACK)]
    return _cut(root, ends)


def _cut(root: Row, ends: Sequence[tuple[str, Row, str]]) -> StageTimes:
    """A request's duration, cut at the ends of its stages: each counts from the latest end before it."""
    at_ns = _moment_ns(root, "request_first_sent")
    made = {}
    for name, row, moment in ends:
        end_ns = max(at_ns, _moment_ns(row, moment) if row[f"{moment}_trace_ns"] else 0)
        made[name] = (end_ns - at_ns) / 1e6
        at_ns = end_ns
    return made


def _requests(csv_path: Path, stage: Stage) -> tuple[dict[str, Row], dict[str, Row]]:
    """The client's exchanges of a stage, and the proxy's calls for them, by target."""
    with (csv_path / "exchanges.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["method"] == "PUT" and f"/{stage.name}-" in row["target"]]
    complete = [row for row in rows if row["response_last_received_trace_ns"]]
    return (
        {row["target"]: row for row in complete if row["client_host"] == "client"},
        {row["target"]: row for row in complete if row["client_host"] == PROXY},
    )


def _moment_ns(row: Row, moment: str) -> int:
    return int(row[f"{moment}_trace_ns"])


def _duration_ns(row: Row) -> int:
    return _moment_ns(row, "response_last_received") - _moment_ns(row, "request_first_sent")
