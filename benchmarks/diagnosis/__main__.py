"""How often the first finding is right: `python -m benchmarks.diagnosis FOLDER`.

Brings up a cluster of its own. For each run: load (a mix of reads and writes), a fault of `tracer cluster fault` that
begins half a second after it, on a host (or link, or device) drawn from the run's number, `tracer record`; then the
first finding is held against the cluster's own record of faults (`faults.jsonl`), which the diagnosis never reads.
Clean runs count false findings. Prints a line for each run, and the confusion table in Markdown.

Runs are kept in FOLDER with their captures: `--judge` grades what is there, `--again` analyses it anew before.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from benchmarks.diagnosis.cases import CLEAN, PLANS, Case, cases
from benchmarks.diagnosis.judge import Verdict, judge_run, table
from benchmarks.diagnosis.live import TRUTH_FILE, record_all


def main() -> None:
    """Record, judge, print."""
    options = _options()
    if not options.judge and not options.again:
        kinds = options.only.split(",") if options.only else [CLEAN, *PLANS]
        wanted = [case for kind in kinds for case in _selected_cases(kind, options)]
        left = [case for case in wanted if not (options.folder / case.name / TRUTH_FILE).exists()]
        record_all(left, options.folder.resolve(), options.seconds)
    runs = sorted(path.parent for path in options.folder.glob(f"*/{TRUTH_FILE}"))
    verdicts = []
    for run in runs:
        verdicts.append(judge_run(run, again=options.again))
        print(_line(verdicts[-1]), file=sys.stderr)
    print(table(verdicts))
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(verdict) for verdict in verdicts], indent=1), "utf-8")


def _selected_cases(kind: str, options: argparse.Namespace) -> list[Case]:
    count = options.clean if kind == CLEAN else options.runs
    return cases(kind, options.first + count)[options.first :]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3, help="of each kind of fault (3)")
    parser.add_argument("--clean", type=int, default=10, help="runs without a fault (10)")
    parser.add_argument("--first", type=int, default=0, help="number of the first run of each kind (0)")
    parser.add_argument("--only", default="", help="these kinds only, with commas between")
    parser.add_argument("--seconds", type=float, default=8.0, help="of load in each run (8)")
    parser.add_argument("--judge", action="store_true", help="record nothing; grade what is in FOLDER")
    parser.add_argument("--again", action="store_true", help="likewise, and analyse the captures anew")
    parser.add_argument("--json", type=Path, help="write the verdicts here")
    return parser.parse_args()


def _line(verdict: Verdict) -> str:
    mark = ("ok   " if verdict.right else "WRONG") if verdict.in_time else "late "
    more = f" (then {', '.join(verdict.others)})" if verdict.others else ""
    return f"{mark} {verdict.run:<14} {verdict.place:<18} {verdict.found} {verdict.found_place}{more}"


if __name__ == "__main__":
    main()
