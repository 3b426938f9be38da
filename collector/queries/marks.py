"""Marks on the time axis of a trace: findings of the report, injected faults, stages of load, and times in which a host
was not capturing.

Faults are read from `faults.jsonl`, the bundled cluster's record of injected faults, in the trace's folder or where
`tracer record` keeps its captures. Stages of load are read from the load generator's runs. The times of both are of the
machine's clock, as are the reference host's; of a run of another generator (warp) they are of the host that made its
requests, if that was captured.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct

from collector.clocks.alignment import to_trace_ns
from collector.decode.activity import DropSpan
from collector.hops.capture_drops import capture_drops
from collector.hops.capture_windows import trace_spans
from collector.queries.bench_runs import LoadStage, may_be_of, read_run, records_no_ids, stages_of
from collector.queries.timeline.columns import NO_LANE
from collector.queries.trace_view import TraceView
from tracer.errors import InputError

FAULTS_FILE = "faults.jsonl"
MOST_FINDINGS = 500
"""At most so many findings are shown, those with the greatest cost."""


class Mark(Struct, frozen=True):
    """Something that lasted from `from_ns` to `to_ns`, on a lane or, with `NO_LANE`, on no host in particular."""

    kind: str  # a finding's severity, "fault", "load", "uncovered" or "in part"
    lane: int
    from_ns: int
    to_ns: int
    text: str


def findings(trace: TraceView) -> tuple[Mark, ...]:
    """The findings that have a time, by time."""
    lanes = {lane.host: number for number, lane in enumerate(trace.lanes)}
    rows = trace.stored.read("findings", COLUMNS).to_pylist()
    timed = [row for row in rows if row["from_trace_ns"] is not None]
    shown = sorted(timed, key=lambda row: -(row["cost_ns"] or 0))[:MOST_FINDINGS]
    return tuple(sorted((_mark(row, lanes, trace.start_ns) for row in shown), key=lambda mark: mark.from_ns))


def faults(trace: TraceView) -> tuple[Mark, ...]:
    """The faults that were in force during the trace.

    Raises: `InputError` if their record is damaged.
    """
    folder = trace.stored.folder
    places = [] if folder is None else [folder, folder.with_name(f"{folder.name}.captures")]
    files = [place / FAULTS_FILE for place in places if (place / FAULTS_FILE).is_file()]
    return _read_marks(files[0], trace) if files else ()


def uncovered_marks(trace: TraceView) -> tuple[Mark, ...]:
    """The times in which hosts were not capturing: before and after their captures, and in gaps of them. Also those
    in which their captures dropped packets, or their agents' budgets allowed only some connections (kind "in part"). By
    time."""
    clocks, found = trace.stored.read("clocks"), []
    hosts = {host.host: host for host in trace.info.hosts}
    for number, lane in enumerate(trace.lanes):
        host = hosts.get(lane.host)
        if host is None or not host.coverage:
            continue
        spans = [
            (begin - trace.start_ns, end - trace.start_ns)
            for begin, end in trace_spans(host.host, host.coverage, clocks)
        ]
        edges = [0, *(edge for span in spans for edge in span), trace.duration_ns]
        between = zip(edges[::2], edges[1::2], strict=True)
        found += [
            Mark("uncovered", number, begin, end, f"{host.host} was not capturing")
            for begin, end in between
            if begin < end
        ]
        sampled = trace_spans(host.host, tuple((begin, end) for begin, end, _ in host.sampled), clocks)
        found += [
            Mark("in part", number, begin - trace.start_ns, end - trace.start_ns, _sampled_words(depth))
            for (begin, end), (_, _, depth) in zip(sampled, host.sampled, strict=True)
        ]
    numbers = {lane.host: number for number, lane in enumerate(trace.lanes)}
    found += [
        Mark(
            "in part",
            numbers[drops.host],
            each.from_ns - trace.start_ns,
            each.to_ns - trace.start_ns,
            _drop_words(each),
        )
        for drops in capture_drops(trace.info, clocks)
        if drops.host in numbers
        for each in drops.stretches
    ]
    return tuple(sorted(found, key=lambda mark: mark.from_ns))


def _drop_words(stretch: DropSpan) -> str:
    return f"captured in part: the capture itself dropped {stretch.count:,} packet{'s' * (stretch.count != 1)} here"


def _sampled_words(depth: int) -> str:
    return f"captured in part: its agent's CPU budget allowed one connection in {1 << depth} here"


def load_steps(trace: TraceView, runs: Iterable[Path]) -> tuple[Mark, ...]:
    """The stages of load during the trace, by time: a mark for each stage in the folders `runs`."""
    marks: list[Mark] = []
    end_ns = trace.start_ns + trace.duration_ns
    for folder in runs:
        stages = [stage for stage in stages_of(folder) if may_be_of(stage, trace.start_ns, end_ns)]
        host = _host_of(folder, trace) if stages else ""
        marks += [_load_mark(stage, trace, host) for stage in stages]
    during = [mark for mark in marks if mark.to_ns >= 0 and mark.from_ns <= trace.duration_ns]
    return tuple(sorted(during, key=lambda mark: mark.from_ns))


def _host_of(folder: Path, trace: TraceView) -> str:
    """The host whose clock the times of a run are of; "" if that is the reference host's, or not known."""
    if not records_no_ids(folder) or read_run(folder) is None:  # the latter if its rows are damaged
        return ""
    return next(iter(trace.join_run(folder).hosts), "")


def _load_mark(stage: LoadStage, trace: TraceView, host: str) -> Mark:
    edges = [stage.started_ns, stage.ended_ns]
    if host:
        clocks = trace.stored.read("clocks")
        edges = to_trace_ns(pa.array([host] * 2), pa.array(edges), clocks).tolist()
    return Mark("load", NO_LANE, edges[0] - trace.start_ns, edges[1] - trace.start_ns, _load_text(stage))


def _load_text(stage: LoadStage) -> str:
    return f"{stage.name}, {stage.concurrency:,} at once"


COLUMNS = ("severity", "host", "from_trace_ns", "to_trace_ns", "cost_ns", "text")


def _mark(row: dict[str, Any], lanes: dict[str, int], start_ns: int) -> Mark:
    begin = row["from_trace_ns"] - start_ns
    end = begin if row["to_trace_ns"] is None else row["to_trace_ns"] - start_ns
    return Mark(row["severity"] or "info", lanes.get(row["host"], NO_LANE), begin, end, row["text"] or "")


def _read_marks(file: Path, trace: TraceView) -> tuple[Mark, ...]:
    lanes = {lane.host: number for number, lane in enumerate(trace.lanes)}
    made: dict[int, Mark] = {}
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            at = int(event["wall_ns"]) - trace.start_ns
            if event["event"] == "planned":
                target = str(event["fault"]["target"])
                lane = lanes.get(target.partition("/")[0], NO_LANE)
                made[event["id"]] = Mark("planned", lane, at, at, f"{event['fault']['kind']} on {target}")
            else:
                known, begun = made[event["id"]], event["event"] == "started"
                bounds = (at, trace.duration_ns) if begun else (known.from_ns, at)
                made[event["id"]] = Mark("fault", known.lane, *bounds, known.text)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file} is damaged ({error})", "move it away to look at the trace without its faults"
        ) from None
    return tuple(
        mark for mark in made.values() if mark.kind == "fault" and mark.to_ns >= 0 and mark.from_ns <= trace.duration_ns
    )
