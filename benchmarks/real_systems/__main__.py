"""Is what the product reports of third-party systems true? `python -m benchmarks.real_systems [NAME…]`.

Each scenario brings a system of Debian's or PyPI's packages up, each part in a network namespace of its own, captures
it with plain tcpdump and with our agent, and holds every statement of `tracer replay` and `tracer report` against logs,
counters and the fault that was injected. Prints a line for each statement; exits 1 if one is wrong. As root.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.real_systems import systems  # noqa: F401  registers all scenarios
from benchmarks.real_systems.captures import judged_captures
from benchmarks.real_systems.lab import LabError
from benchmarks.real_systems.run import Judged, record, verdicts_of
from benchmarks.real_systems.scenario import REGISTER, Scenario, missing
from benchmarks.real_systems.table import write_docs


def main() -> int:
    """Run, judge, print."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is cleaned up
    if options.list:
        for name, wanted in REGISTER.items():
            print(f"{name:<22} {wanted.words}{_note(missing(wanted))}")
        return 0
    found = []
    with tempfile.TemporaryDirectory(prefix="twintap-real-") as made:
        for one in _all(options, options.keep or Path(made)):
            found.append(one)
            _show(one)
    if options.docs:
        write_docs(found, options.docs)
    wrong = sum(not verdict.right for one in found for verdict in one.verdicts)
    total = sum(len(one.verdicts) for one in found)
    print(f"{total - wrong} of {total} statements right; {sum(bool(one.problem) for one in found)} scenarios not run")
    return 1 if wrong else 0


def _all(options: argparse.Namespace, folder: Path) -> Iterator[Judged]:
    for name in options.names or ([] if options.captures else REGISTER):
        yield from _one(REGISTER[name], folder / name, again=options.judge)
    if options.captures:
        yield from judged_captures(options.captures, folder)


def _one(wanted: Scenario, folder: Path, *, again: bool) -> Iterator[Judged]:
    problem = "" if again else missing(wanted)
    if not problem and not again:
        print(f"{wanted.name}: {wanted.words}", file=sys.stderr, flush=True)
        try:
            record(wanted, folder)
        except LabError as error:
            problem = str(error)
    if problem:
        yield Judged(wanted.name, wanted.words, "", problem=problem)
    else:
        yield from verdicts_of(wanted, folder)


def _show(one: Judged) -> None:
    if one.problem:
        print(f"-     {one.system:<18} not run: {one.problem}")
    for verdict in one.verdicts:
        mark = "ok   " if verdict.right else "WRONG"
        print(f"{mark} {one.system:<18} {one.by:<8} {verdict.statement}: true {verdict.truth}; said {verdict.said}")
    sys.stdout.flush()


def _note(problem: str) -> str:
    return f" ({problem})" if problem else ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[[], *REGISTER], help="scenarios; all if none is named"
    )
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep captures, logs, truth and traces in DIR/NAME")
    parser.add_argument("--judge", action="store_true", help="run nothing; judge anew what --keep kept")
    parser.add_argument(
        "--captures", type=Path, metavar="DIR", help="judge captures of others, folders in DIR, with truth_http.json"
    )
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write the table to DIR/real-systems.md")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # all is cleaned up on the way here
