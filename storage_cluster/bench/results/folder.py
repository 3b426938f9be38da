"""A run's folder: its workload, its figures, every request. It can be read at any time, also after a SIGKILL.

    run.json            what ran, its stages, figures after each stage; written anew, whole or not at all
    requests.csv.zst    a row for every attempt
    timeline.csv        counts of each second
    NAME/…              with several drivers: the same two of each driver

While a run goes on (or when it was killed) `run.json` says `running`, and its figures are drawn from the rows again.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from storage_cluster.bench.errors import RunError
from storage_cluster.bench.model import Stage, Work, Workload
from storage_cluster.bench.parameters import describe_parameters
from storage_cluster.bench.results import rows
from storage_cluster.bench.results.figures import Figures, Key, Tally

INFO_NAME = "run.json"
FORMAT_VERSION = 1
WARP = "warp"
"""The source of a run that warp measured (`warp_run`)."""


@dataclasses.dataclass(frozen=True)
class WorkInfo:
    """The properties of a work that figures need."""

    name: str
    workers: int
    runtime_s: float  # 0: until all was done, which may end it before its time, too
    is_schedule: bool = False


@dataclasses.dataclass(frozen=True)
class StageInfo:
    """A stage: its works, and when it ran."""

    name: str
    works: tuple[WorkInfo, ...]
    started_ns: int = 0  # wall clock; 0: not yet
    ended_ns: int = 0


@dataclasses.dataclass(frozen=True)
class Mark:
    """Something that happened during a run, for its time axis."""

    kind: str  # fault, driver lost, paused, resumed, stopped
    text: str
    time_ns: int  # wall clock
    ended_ns: int = 0  # of a fault; 0: a moment, or not yet


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """A run."""

    name: str
    source: str  # cosbench, ssbench, toml, command, warp
    command: str
    started_ns: int
    stages: tuple[StageInfo, ...]
    state: str = "running"  # done, failed, cancelled
    note: str = ""  # why it failed
    ended_ns: int = 0
    drivers: tuple[str, ...] = ()
    lost_drivers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what happened on the way
    parameters: dict[str, str] = dataclasses.field(default_factory=dict)  # that a sweep set
    workload: dict[str, str] = dataclasses.field(default_factory=dict)  # every parameter that can be set
    marks: tuple[Mark, ...] = ()
    format_version: int = FORMAT_VERSION

    @property
    def records_attempts(self) -> bool:
        """Whether retries, answers and connections of its operations are known; warp does not record them."""
        return self.source != WARP

    def elapsed_s(self, key: Key, figures: Figures) -> float:
        """The duration for rates: the work's run time if it has one, otherwise from its first start to its last end."""
        works = {work.name: work for stage in self.stages if stage.name == key.stage for work in stage.works}
        runtime_s = works[key.work].runtime_s if key.work in works else 0.0
        return runtime_s or max(figures.last_end_ns - figures.first_start_ns, 1) / 1e9


@dataclasses.dataclass(frozen=True)
class Run:
    """A run and its figures."""

    info: RunInfo
    tally: Tally
    folder: Path

    def rows(self) -> Iterator[rows.Row]:
        """Every attempt, of every driver."""
        for file in sorted([self.folder / rows.FILE_NAME, *self.folder.glob(f"*/{rows.FILE_NAME}")]):
            if file.exists():
                yield from rows.read_rows(file)


def describe(workload: Workload, command: str, parameters: dict[str, str] | None = None) -> RunInfo:
    """The record of a run that is about to begin."""
    stages = tuple(_stage_info(stage) for stage in workload.stages)
    return RunInfo(
        workload.name,
        workload.source,
        command,
        time.time_ns(),
        stages,
        parameters=parameters or {},
        workload=describe_parameters(workload),
    )


def with_stage(info: RunInfo, number: int, started_ns: int, ended_ns: int) -> RunInfo:
    """The record of the run after a stage has begun (`ended_ns` 0) or ended."""
    stages = list(info.stages)
    stages[number] = dataclasses.replace(stages[number], started_ns=started_ns, ended_ns=ended_ns)
    return dataclasses.replace(info, stages=tuple(stages))


def create(folder: Path) -> None:
    """Make a run's folder. Raises: RunError if there is something there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RunError(f"{folder} is not empty", "choose another folder with -o")
    except OSError as error:
        raise RunError(f"{folder} cannot be made ({error.strerror})", "choose another folder with -o") from None


def make_unused(parent: Path) -> Path:
    """Make an empty folder named after the time, with a number behind it where others have that name; safe among
    processes that do so at once. Raises: RunError if none can be made.
    """
    name = time.strftime("%Y%m%dT%H%M%S")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        raise RunError(f"{parent} cannot be written to ({error.strerror})", "choose another folder with -o") from None
    raise AssertionError("numbers do not end")


def save(folder: Path, info: RunInfo, tally: Tally) -> None:
    """Replace `run.json` atomically: a reader finds the old or the new one."""
    written = folder / f".{INFO_NAME}"
    body = json.dumps({**dataclasses.asdict(info), "figures": tally.dump()}, indent=1)
    written.write_text(body + "\n", "utf-8")
    os.replace(written, folder / INFO_NAME)


def load_info(folder: Path) -> RunInfo:
    """A run's record without its figures. Raises: RunError."""
    return _read(folder)[0]


def load(folder: Path) -> Run:
    """A run, finished or not. Raises: RunError."""
    info, figures = _read(folder)
    try:
        tally = Tally.load(figures)
    except (ValueError, KeyError, TypeError):
        raise _unreadable(folder, "not a run's") from None
    run = Run(info, tally, folder)
    return dataclasses.replace(run, tally=_from_rows(run)) if info.state == "running" else run


def _read(folder: Path) -> tuple[RunInfo, list[dict]]:
    """A run's record, and its figures as they are dumped. Raises: RunError."""
    try:
        found = json.loads((folder / INFO_NAME).read_text("utf-8"))
        figures = found.pop("figures")
        return _info(found), figures
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "not a run's"
        raise _unreadable(folder, reason) from None


def _unreadable(folder: Path, reason: str) -> RunError:
    return RunError(f"{folder / INFO_NAME} cannot be read ({reason})", "give a folder of `tracer bench run`")


def _from_rows(run: Run) -> Tally:
    tally = Tally()
    for row in run.rows():
        tally.add(row)
    return tally


def _stage_info(stage: Stage) -> StageInfo:
    return StageInfo(stage.name, tuple(map(_work_info, stage.works)))


def _work_info(work: Work) -> WorkInfo:
    limited = work.total_ops or work.total_bytes
    return WorkInfo(work.name, work.workers_max, 0.0 if limited else work.runtime_s, bool(work.schedule))


def _info(found: dict) -> RunInfo:
    stages = tuple(
        StageInfo(**{**stage, "works": tuple(WorkInfo(**work) for work in stage["works"])}) for stage in found["stages"]
    )
    names = {name: tuple(found.get(name, ())) for name in ("drivers", "lost_drivers", "notes")}
    marks = tuple(Mark(**mark) for mark in found.get("marks", ()))
    return RunInfo(**{**found, **names, "stages": stages, "marks": marks})
