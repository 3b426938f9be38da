"""Runs one scenario, and judges the files that it left.

A run's folder: `tcpdump/`, `agent/` (the captures), `truth.json`, `lab/` (configuration and logs of the programs), and
by each of the two kinds of capture `said-KIND/` (the trace and the report).
"""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.real_systems.judge import judge
from benchmarks.real_systems.lab import LabError
from benchmarks.real_systems.said import say
from benchmarks.real_systems.scenario import Scenario
from benchmarks.real_systems.truth import Truth, read_truth
from benchmarks.real_systems.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdicts on one kind of capture of one scenario; `problem` if there are none."""

    system: str
    words: str
    by: str
    verdicts: tuple[Verdict, ...] = ()
    problem: str = ""


def record(wanted: Scenario, folder: Path) -> None:
    """Bring a scenario up, capture it, write down the truth, take it down. Raises: LabError."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lab").mkdir(parents=True)
    with wanted.lab(folder / "lab") as lab:
        wanted.start(lab)
        with wanted.capturing(lab, folder):
            truth = wanted.traffic(lab)
    truth.write(folder)


def verdicts_of(wanted: Scenario, folder: Path) -> Iterator[Judged]:
    """The verdicts on what `record` left in a folder, for each kind of capture."""
    truth = read_truth(folder)
    with ThreadPoolExecutor() as pool:
        for by, verdicts in zip(
            wanted.by, pool.map(lambda by: _verdicts(wanted, truth, folder, by), wanted.by), strict=True
        ):
            yield Judged(wanted.name, wanted.words, by, verdicts)


def _verdicts(wanted: Scenario, truth: Truth, folder: Path, by: str) -> tuple[Verdict, ...]:
    out = folder / f"said-{by}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    try:
        said = say(wanted.captures(folder, by), out)
    except LabError as error:
        return (Verdict("a trace can be made", "yes", str(error), right=False),)
    return (*judge(said, truth), *wanted.judge(said, truth))
