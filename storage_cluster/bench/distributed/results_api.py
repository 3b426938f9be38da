"""What the controller's page reads of a run: its windows, its slowest requests, its report, how it compares.

GET  /api/runs/ID                         state, stages, marks (faults, lost drivers, pauses), parameters
GET  /api/runs/ID/windows                 counts, errors, percentiles, heat map over time   ?stage=&operation=
GET  /api/runs/ID/slowest                 the slowest requests between two times            ?from_s=&to_s=&…
GET  /api/runs/ID/report                  ?form= text, cosbench, ssbench, json
GET  /api/compare                         ?first=&second=   as text; /api/comparison: for the page
"""

import dataclasses
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from fastapi import FastAPI, HTTPException
from starlette.responses import PlainTextResponse

from storage_cluster.bench.fault_marks import fault_marks
from storage_cluster.bench.results import comparable, compare, export, windows
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results.figures import Key
from storage_cluster.bench.results.folder import RunInfo
from storage_cluster.bench.results.report_text import as_text
from storage_cluster.bench.results.rows import STATUS_UNKNOWN, Row
from storage_cluster.errors import ClusterError

READERS_MAX = 6
SLOWEST_SHOWN = 20


class Runs(Protocol):
    """Where runs are found."""

    def folder(self, key: str) -> Path:
        """A run's folder. Raises: KeyError if there is none."""

    def info(self, key: str) -> RunInfo:
        """A run's record, also while it goes on. Raises: KeyError, ClusterError."""


class Readers:
    """The windows of the runs that were looked at last."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._readers: OrderedDict[str, windows.RunReader] = OrderedDict()

    def get(self, key: str, info: RunInfo) -> windows.RunReader:
        """A run's reader. Raises: KeyError if the run has no folder."""
        folder = self._runs.folder(key)
        reader = self._readers.setdefault(key, windows.RunReader(folder, info.started_ns))
        self._readers.move_to_end(key)
        while len(self._readers) > READERS_MAX:
            self._readers.popitem(last=False)
        return reader


def add_results(app: FastAPI, runs: Runs) -> None:
    """Serve the results of runs."""
    _add_windows(app, runs)
    _add_reports(app, runs)


def _add_windows(app: FastAPI, runs: Runs) -> None:
    readers = Readers(runs)

    @app.get("/api/runs/{key}/windows")
    def over_time(key: str, stage: str = "", operation: str = "") -> dict[str, Any]:
        info = _info(runs, key)
        until_ns = info.ended_ns or (time.time_ns() if info.state == "running" else 0)

        def describe(found: windows.Windows) -> dict[str, object]:
            chosen = windows.describe(found, _filter(stage, operation), until_ns)
            return {**chosen, "choices": [each._asdict() for each in found.operations()]}

        return {**_reader(readers, key, info).read(describe), **_axis(info)}

    @app.get("/api/runs/{key}/slowest")
    def slowest(
        key: str, from_s: float = 0.0, to_s: float = 1e9, stage: str = "", operation: str = ""
    ) -> dict[str, Any]:
        info = _info(runs, key)

        def find(found: windows.Windows) -> list[Row]:
            end_s = min(to_s, (found.last_end_ns - found.origin_ns) / windows.NS + found.width_ns / windows.NS)
            return windows.slowest(found, _filter(stage, operation), max(from_s, 0.0), end_s, SLOWEST_SHOWN)

        rows = _reader(readers, key, info).read(find)
        return {"requests": [_request(row, info.started_ns) for row in rows]}


def _add_reports(app: FastAPI, runs: Runs) -> None:
    @app.get("/api/runs/{key}/report")
    def report(key: str, form: str = "text") -> PlainTextResponse:
        if form != "text" and form not in export.FORMATS:
            raise HTTPException(404, f"forms are text, {', '.join(export.FORMATS)}")
        run = _load(runs, key)
        return PlainTextResponse(as_text(run) if form == "text" else export.FORMATS[form](run))

    @app.get("/api/compare")
    def compare_as_text(first: str, second: str) -> PlainTextResponse:
        loaded = _load(runs, first), _load(runs, second)
        try:
            return PlainTextResponse(compare.as_text(*loaded, compare.compare(*loaded)))
        except ClusterError as error:
            raise HTTPException(409, str(error)) from None

    @app.get("/api/comparison")
    def comparison(first: str, second: str) -> dict[str, Any]:
        loaded = _load(runs, first), _load(runs, second)
        judged = comparable.judge(*loaded)
        found = [] if judged.obstacles else compare.compare(*loaded)
        return {**dataclasses.asdict(judged), "operations": [_comparison_json(each) for each in found]}


def _comparison_json(each: compare.Comparison) -> dict[str, Any]:
    differences = [
        {**dataclasses.asdict(one), "change": one.change, "verdict": one.verdict} for one in each.differences
    ]
    return {**each.key._asdict(), "note": each.note, "differences": differences}


def _axis(info: RunInfo) -> dict[str, Any]:
    """Stages and marks, in seconds since the run began."""

    def since(time_ns: int) -> float | None:
        return (time_ns - info.started_ns) / windows.NS if time_ns else None

    faults = fault_marks(info.started_ns, time.time_ns()) if info.state == "running" else ()
    return {
        "stages": [
            {"name": stage.name, "from_s": since(stage.started_ns), "to_s": since(stage.ended_ns)}
            for stage in info.stages
            if stage.started_ns
        ],
        "marks": [
            {"kind": mark.kind, "text": mark.text, "from_s": since(mark.time_ns), "to_s": since(mark.ended_ns)}
            for mark in sorted((*info.marks, *faults), key=lambda each: each.time_ns)
        ],
    }


def _request(row: Row, origin_ns: int) -> dict[str, Any]:
    error = f"status {row.status}" if row.error == "status" else row.error
    is_known = row.status != STATUS_UNKNOWN
    return {
        "op": row.op, "file": row.file, "operation": row.operation, "stage": row.stage,
        "status": row.status if is_known else None, "local_port": row.local_port if is_known else None,
        "error": error, "attempt": row.attempt, "transaction_id": row.transaction_id,
        "driver": row.client_id, "endpoint": row.endpoint, "bytes": row.bytes, "start_ns": str(row.start_ns),
        "end_s": (row.end_ns - origin_ns) / windows.NS, "latency_ns": row.latency_ns,
        "failed_after_ns": row.response_ns if row.error else None,
    }  # fmt: skip


def _filter(stage: str, operation: str) -> Callable[[Key], bool]:
    """The keys of a stage, and of an operation (`WORK/OPERATION`); "" for all."""
    return lambda key: (
        (not stage or key.stage == stage) and (not operation or f"{key.work}/{key.operation}" == operation)
    )


def _info(runs: Runs, key: str) -> RunInfo:
    try:
        return runs.info(key)
    except KeyError:
        raise HTTPException(404, "no such run") from None
    except ClusterError as error:
        raise HTTPException(409, str(error)) from None


def _reader(readers: Readers, key: str, info: RunInfo) -> windows.RunReader:
    try:
        return readers.get(key, info)
    except KeyError:
        raise HTTPException(409, "the run has not begun") from None


def _load(runs: Runs, key: str) -> folders.Run:
    try:
        return folders.load(runs.folder(key))
    except KeyError:
        raise HTTPException(404, "no such run") from None
    except ClusterError as error:
        raise HTTPException(409, str(error)) from None
