"""Document 004: small objects by many workers, large ones by a few, from seven hosts; rounds of each and their median.

The workloads are COSBench files, as the document's author used: 350 KB × 256 workers × 60 s, reads and writes apart;
and 10 large objects written and read once each, without a time limit. What it reports: op/s, MB/s, 90 % response time,
success ratio.

The document has three runs and their mean. Here are more, and their median: one run that other work of the machine
slowed moves a mean, and not a median. The interval is that of all rounds.

Source: the document's "試験条件"; its numbers are a public cloud's, so only the form is the same.
"""

import dataclasses
import os
import platform
import shlex
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage_cluster import topology
from storage_cluster.bench.paper.points import Point
from storage_cluster.bench.results.figures import in_ms
from storage_cluster.bench.results.folder import Run

RUNS_COUNT = 5
LARGE_COUNT = 10
LARGE_MB = (1024, 256, 64, 16)
SPARE = 3  # of the free space at most one in so many bytes is filled
REPLICAS = 3
TOPOLOGY = "paper-004"
_FILES = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is done."""

    runs_count: int = RUNS_COUNT
    workers: int = 256
    runtime_s: float = 60.0
    large_mb: int = 0  # 0: as large as the disk allows


QUICK = Plan(runs_count=1, workers=32, runtime_s=5.0, large_mb=16)


@dataclasses.dataclass(frozen=True)
class Line:
    """One operation: medians over the rounds, and the least and the greatest op/s and response time of them."""

    title: str
    operations_per_s: float
    megabytes_per_s: float
    response_90_ms: float
    success_percent: float
    least_per_s: float
    greatest_per_s: float
    rounds_count: int
    responses_90_ms: tuple[float, float]


def points(plan: Plan, folder: Path) -> list[Point]:
    """Runs from the hosts of load, round by round."""
    topology_file = topology.find(TOPOLOGY)
    large = plan.large_mb or largest(shutil.disk_usage(folder).free)
    made = []
    for number in range(1, plan.runs_count + 1):
        small_argv = (
            *(str(_FILES / "004-small.xml"), "--set", f"write.workers={plan.workers}"),
            *("--set", f"read.workers={plan.workers}", "--set", f"write.runtime_s={plan.runtime_s}"),
            *("--set", f"read.runtime_s={plan.runtime_s}"),
        )
        sizes = f"c({large})MB"
        large_argv = (str(_FILES / "004-large.xml"), "--set", f"write.write.write.sizes={sizes}")
        made.append(Point(f"small-{number}", small_argv, topology_file, on_drivers=True))
        made.append(Point(f"large-{number}", large_argv, topology_file, on_drivers=True))
    return made


def largest(free_bytes: int) -> int:
    """The size of a large object, MB, such that all replicas fit."""
    fitting = (mb for mb in LARGE_MB if mb * 10**6 * LARGE_COUNT * REPLICAS * SPARE <= free_bytes)
    return next(fitting, LARGE_MB[-1])


def table(runs: Mapping[str, Run]) -> list[Line]:
    """The document's figures, medians over the rounds."""
    found = []
    for kind in ("small", "large"):
        for stage in ("write", "read"):
            parts = [_figures(run, stage) for name, run in sorted(runs.items()) if name.startswith(kind)]
            if parts:
                found.append(_median(f"{kind} {stage}", parts))
    return found


def as_text(lines: Sequence[Line]) -> str:
    """The table for a terminal."""
    made = [f"{'':<12}{'op/s':>10}{'MB/s':>10}{'90 % ms':>12}{'success':>10}{'op/s from':>11}{'to':>10}"]
    made += (
        f"{each.title:<12}{_rate(each.operations_per_s):>10}{each.megabytes_per_s:>10,.2f}"
        f"{each.response_90_ms:>12,.1f}{each.success_percent:>9.2f}%{_rate(each.least_per_s):>11}"
        f"{_rate(each.greatest_per_s):>10}"
        for each in lines
    )
    return "\n".join(made)


def _rate(per_s: float) -> str:
    """Operations per second: large objects take minutes."""
    return f"{per_s:,.2f}" if per_s >= 1 else f"{per_s:.4f}"


def _drivers_count() -> int:
    return sum(not host.services for host in topology.load(topology.find(TOPOLOGY)).hosts)


def _set(done: Sequence[Point], parameter: str) -> str:
    """What a parameter of the small objects' workload was set to."""
    found = (argument for point in done for argument in point.argv if argument.startswith(f"{parameter}="))
    return next(found, "=").partition("=")[2].removesuffix(".0")


def publish(
    lines: Sequence[Line], done: Sequence[Point], folder: Path, command: Sequence[str], drawn: Sequence[Path] = ()
) -> Path:
    """The table as Markdown, as docs have it, and the pictures beside it; its file."""
    size = next(argument for point in done for argument in point.argv if ".sizes=" in argument).partition("=")[2]
    size = size.removeprefix("c(").replace(")", " ")  # c(256)MB, as COSBench has it
    text = [
        "# Document 004, done again",
        "",
        f"Written by `{shlex.join(command)}`, {time.strftime('%Y-%m-%d')}, on {os.cpu_count()} cores, "
        f"Linux {platform.release()}. Medians of {sum(point.name.startswith('small') for point in done)} rounds from "
        f"{_drivers_count()} hosts of load, one of them with the controller, against a store of "
        f"{len(topology.load(topology.find(TOPOLOGY)).hosts) - _drivers_count()} hosts ({REPLICAS} replicas). Small: "
        f"350 KB, {_set(done, 'write.workers')} workers, {_set(done, 'write.runtime_s')} s of each. Large: "
        f"{LARGE_COUNT} objects of {size}.",
        "",
        "| | op/s | in all rounds | MB/s | 90 % response time, ms | in all rounds | success |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *(
            f"| {each.title} | {_rate(each.operations_per_s)} | {_rate(each.least_per_s)} to "
            f"{_rate(each.greatest_per_s)} | {each.megabytes_per_s:,.2f} | {each.response_90_ms:,.0f} | "
            f"{each.responses_90_ms[0]:,.0f} to {each.responses_90_ms[1]:,.0f} | {each.success_percent:.2f} % |"
            for each in lines
        ),
        "",
        *(f"![{file.stem}]({file.name})" for file in drawn),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("\n".join(text) + "\n", "utf-8")
    return folder / "README.md"


def _figures(run: Run, stage: str) -> tuple[float, float, float, float]:
    key = next(key for key in run.tally.figures if key.stage == stage)
    figures = run.tally.figures[key]
    elapsed_s = run.info.elapsed_s(key, figures)
    response_90_ms = in_ms(figures.response.percentile_ns(90.0))
    rates = figures.successes_count / elapsed_s, figures.bytes / elapsed_s / 1e6
    return *rates, response_90_ms, 100 * figures.success_ratio


def _median(title: str, parts: Sequence[tuple[float, float, float, float]]) -> Line:
    rate, bandwidth, response, success = (statistics.median(values) for values in zip(*parts, strict=True))
    rates = [part[0] for part in parts]
    responses = [part[2] for part in parts]
    within = min(responses), max(responses)
    return Line(title, rate, bandwidth, response, success, min(rates), max(rates), len(parts), within)
