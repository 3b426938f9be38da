"""Runs of the load generator that never ran: their folders, with rows drawn from a seed, for tests and pictures.

A run prepares 400 objects and then reads and writes for `seconds`; response times are log-normal. What goes wrong on
the way is given: a fault that makes requests slower and some fail, a driver that is lost, a stall.
"""

import dataclasses
import math
import random
from collections.abc import Iterator
from pathlib import Path

from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results import rows
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.folder import Mark, Run, RunInfo, StageInfo, WorkInfo
from storage_cluster.bench.results.rows import Row

MS = 1_000_000
NS = 1_000_000_000
STARTED_NS = 1_795_726_800_000_000_000
PREPARE_S = 4.0
Span = tuple[float, float]
"""Seconds since the main stage began."""


@dataclasses.dataclass(frozen=True)
class Course:
    """How a run went."""

    seconds: float = 60.0
    per_s: float = 200.0
    median_ms: float = 4.0
    fault: Span | None = None  # requests are five times as slow, a tenth fails with 503
    stall: Span | None = None  # reads that begin in it end with it, or the run
    stall_share: float = 0.2  # of the reads
    lost_at: float | None = None  # driver d2 is gone from then on; until the others take over, half is done
    seed: int = 1


def write_run(folder: Path, course: Course, *, name: str = "small objects", workers: int = 16) -> Run:
    """Write the folder of such a run; the run."""
    folders.create(folder)
    found = list(_rows(course))
    file, tally = rows.RowFile.create(folder / rows.FILE_NAME), Tally()
    for row in found:
        tally.add(row)
    file.write("".join(map(rows.as_line, found)))
    file.close()
    info = _info(course, name, workers)
    folders.save(folder, info, tally)
    return Run(info, tally, folder)


def _info(course: Course, name: str, workers: int) -> RunInfo:
    main_ns = STARTED_NS + round(PREPARE_S * NS)
    end_ns = main_ns + round(course.seconds * NS)
    marks = []
    if course.fault:
        begin, end = (main_ns + round(second * NS) for second in course.fault)
        marks.append(Mark("fault", "slow-disk storage2/d1 latency 50 ms", begin, end))
    if course.lost_at is not None:
        marks.append(Mark("driver lost", "d2 lost", main_ns + round(course.lost_at * NS)))
    workload = {
        "prepare.prepare.workers": "4",
        "main.main.workers": str(workers),
        "main.main.runtime_s": f"{course.seconds:g}",
    }
    mix = {"read": "80", "write": "20"}
    workload |= {f"main.main.{operation}.ratio": ratio for operation, ratio in mix.items()}
    return RunInfo(
        name, "toml", "tracer bench controller", STARTED_NS,
        (
            StageInfo("prepare", (WorkInfo("prepare", 4, 0.0),), STARTED_NS, main_ns),
            StageInfo("main", (WorkInfo("main", workers, course.seconds),), main_ns, end_ns),
        ),
        "done", "", end_ns, ("d1", "d2"), ("d2",) if course.lost_at is not None else (),
        workload=workload | {"main.main.write.sizes": "c(64)KB"}, marks=tuple(marks),
    )  # fmt: skip


def _rows(course: Course) -> Iterator[Row]:
    rng = random.Random(course.seed)
    for number in range(400):
        took_ns = round(rng.lognormvariate(math.log(course.median_ms * 2), 0.4) * MS)
        yield _row(number, number * PREPARE_S / 405 - PREPARE_S, took_ns, "prepare", "prepare", "")
    at, number = 0.0, 400
    while (at := at + rng.expovariate(_rate(course, at))) < course.seconds:
        number += 1
        operation = "write" if rng.random() < 0.2 else "read"
        took_ms = rng.lognormvariate(math.log(course.median_ms * (3 if operation == "write" else 1)), 0.5)
        error = ""
        if course.fault and course.fault[0] <= at < course.fault[1]:
            took_ms *= 5
            error = "status" if rng.random() < 0.1 else ""
        stalls = course.stall and course.stall[0] <= at < course.stall[1] and operation == "read"
        if course.stall and stalls and rng.random() < course.stall_share:
            took_ms = (course.stall[1] - at) * 1000
        elif error == "" and rng.random() < 0.0005:
            error = "read_timeout"
        yield _row(number, at, round(took_ms * MS), "main", operation, error)


def _rate(course: Course, at: float) -> float:
    is_short = course.lost_at is not None and course.lost_at <= at < course.lost_at + 2
    return course.per_s / (2 if is_short else 1)


def _row(number: int, at: float, took_ns: int, stage: str, operation: str, error: str) -> Row:
    start_ns = STARTED_NS + round((PREPARE_S + at) * NS)
    is_read = operation == "read"
    answered = error != "read_timeout"
    status = (503 if error else 200 if is_read else 201) if answered else 0
    return Row(
        number, number % 16, "GET" if is_read else "PUT", f"d{number % 2 + 1}", 64_000, "10.77.0.31:8080",
        f"mycontainers_1/myobjects_{number % 1000}", error, start_ns, took_ns * 9 // 10 if answered else -1, took_ns,
        stage, "main" if stage == "main" else stage, operation, status, 1, True, True, 0, -1,
        f"tx{number:021x}-006a1b2c3d" if answered else "", 40_000 + number % 16,
    )  # fmt: skip
