"""For any input, the pipeline must end with a trace or a one-line error: `python -m benchmarks.fuzz`.

Takes captures of every system at hand (the repository's, and those below each FOLDER), mutates them (`mutations`) and
runs replay, report and the queries of the viewer over each (`pipeline`). Held of every run (`rules`): exit status 0, or
2 with one plain sentence; never a traceback; nothing unprintable in output or tables; at most 2 GiB and 60 s of CPU
time. Held of pairs of runs: hosts in another order change nothing, a shifted clock changes no pairing, and a file that
is cut off makes no finding appear at other hosts.

Every capture is a function of its number, so `--first N --count 1` runs one again. Failing ones are kept with `--keep`.
Exit status 1 if anything failed.
"""

import argparse
import collections
import dataclasses
import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tracer.cli import set_up_libraries

set_up_libraries()

from benchmarks.fuzz import mutations, pipeline, rules, systems  # noqa: E402

RULE_SHARE = 0.3
"""Of captures over which a pair of runs is made."""
SAY_EVERY = 100
HTML_SHARE = 0.15
"""Of runs that also write JSON and page: that takes as long as everything else."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Of one capture: what was done to it, how it went, and what was wrong."""

    number: int
    name: str
    failures: tuple[str, ...]
    status: int
    peak_bytes: int
    cpu_s: float


def judge(number: int, folders: Sequence[Path], keep: Path | None = None) -> Verdict:
    """Make the capture of that number, run the pipeline over it, and judge it."""
    random = Random(number)
    captures = systems.load(random.choice(list(folders)), random)
    rule = random.choice(rules.RULES) if random.random() < RULE_SHARE else None
    names = ["as it is"]
    if rule is None or (random.random() < 0.5 and rule is rules.RULES[0]):
        captures, names = mutations.mutate(captures, random)
    name = f"{captures.name}: {', '.join(names)}" + (f"; {rule.name}" if rule else "")
    mode = random.choice(pipeline.MODES) if rule is None else "named"
    with tempfile.TemporaryDirectory(prefix="twintap-fuzz-") as folder:
        runs, found = _runs(captures, mode, rule, Path(folder), random)
        if found and keep is not None:
            shutil.copytree(folder, keep / str(number), dirs_exist_ok=True)
    return Verdict(number, name, tuple(found), runs[0].status, max(run.peak_bytes for run in runs),
                   max(run.cpu_s for run in runs))  # fmt: skip


def _runs(
    captures: systems.Captures, mode: str, rule: rules.Rule | None, folder: Path, random: Random
) -> tuple[list[pipeline.Run], list[str]]:
    runs = [_run(captures, mode, folder / "one", html=random.random() < HTML_SHARE)]
    found = rules.failures(runs[0])
    if rule is None or found:
        return runs, found
    changed, host = rule.change(captures, random)
    runs.append(_run(changed, mode, folder / "other", html=False))
    found = rules.failures(runs[1])
    if not found and all(run.observed for run in runs):
        found = rule.compare(runs[0].observed, runs[1].observed, host)
    return runs, found


def _run(captures: systems.Captures, mode: str, folder: Path, *, html: bool) -> pipeline.Run:
    folder.mkdir()
    (folder / "captures").mkdir()
    return pipeline.run(pipeline.write(captures, folder / "captures", mode), folder, html=html)


def verdicts(numbers: Sequence[int], folders: Sequence[Path], workers: int, keep: Path | None) -> Iterator[Verdict]:
    """Those of all the captures, as they come."""
    jobs = [(number, folders, keep) for number in numbers]
    if workers == 1:
        yield from (judge(*job) for job in jobs)
        return
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap_unordered(_judge, jobs)


def _judge(job: tuple[int, Sequence[Path], Path | None]) -> Verdict:
    return judge(*job)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.split("\n", 1)[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="more captures to start from")
    parser.add_argument("--count", type=int, default=200, help="captures (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="number of the first (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at a time (default: cores)")
    parser.add_argument("--keep", type=Path, help="put failing captures there")
    given = parser.parse_args()
    folders = systems.find(given.folders)
    gc.freeze()  # children share what is here now
    began_s, statuses, failed, most_bytes, most_cpu_s = time.monotonic(), collections.Counter[int](), 0, 0, 0.0
    for verdict in verdicts(range(given.first, given.first + given.count), folders, given.workers, given.keep):
        statuses[verdict.status] += 1
        most_bytes, most_cpu_s = max(most_bytes, verdict.peak_bytes), max(most_cpu_s, verdict.cpu_s)
        if verdict.failures:
            failed += 1
            print(f"{verdict.number}  {verdict.name}\n    " + "\n    ".join(verdict.failures), flush=True)
        if statuses.total() % SAY_EVERY == 0:
            print(f"{statuses.total()} captures, {failed} failed", file=sys.stderr, flush=True)
    took_s = time.monotonic() - began_s
    print(f"{given.count} captures of {len(folders)} systems in {took_s:.0f} s: {failed} failed")
    print(f"exit statuses {dict(statuses)}; at most {most_bytes >> 20} MiB, {most_cpu_s:.1f} s of CPU time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
