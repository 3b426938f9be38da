"""The page of verdicts: docs/real-systems.md."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.real_systems.lab import ROOT
from benchmarks.real_systems.run import Judged

PAGE = """# True of systems that nobody here built

What `tracer replay` and `tracer report` say of other people's programs, held against truth that no packet gives: the
programs' own logs, counters of the kernel, the fault that was injected. Made at commit {commit} by

    python -m benchmarks.real_systems --docs docs

as root, from Debian's packages; each part of a system runs in a network namespace of its own and is captured by plain
`tcpdump -i IF -w FILE` and by `tracer capture` at once. What is wrong is written as wrong. `--list` names the systems
and what each needs, `--keep DIR` keeps captures, logs and traces, `--judge` judges those anew.

A number of requests is right if it is exact. A duration is right within 1 ms or 5 % of the log's, beyond what the log
rounds off. A program that waits for a processor before it looks at its clock makes a server's log shorter than the wire
and a client's longer; a duration between the logs of both ends is right, and is counted apart. Links between requests
are known from logs, or from a header that the product does not know; 95 % must be right (80 % where all calls look
alike), and no fewer than their own confidence promises. A clean run must have no finding of severity warning or error,
an injected fault must be the first of them, on the right host, and none of another kind beside it.

{right} of {total} statements are right.

| system | what | right |
|---|---|--:|
{systems}

"""


def write_docs(found: Sequence[Judged], folder: Path) -> None:
    """Write the page."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=ROOT
    ).stdout.strip()
    (folder / "real-systems.md").write_text(page(found, commit), "utf-8")


def page(found: Sequence[Judged], commit: str) -> str:
    """The page's text."""
    each = [verdict for one in found for verdict in one.verdicts]
    head = PAGE.format(
        commit=commit, right=sum(verdict.right for verdict in each), total=len(each), systems="\n".join(_systems(found))
    )
    lines = ["| system | capture by | statement | truth | said | verdict |", "|---|---|---|---|---|---|"]
    for one in found:
        for verdict in one.verdicts:
            cells = (one.system, one.by, verdict.statement, verdict.truth, verdict.said, _mark(verdict.right))
            lines.append(_row(cells))
    not_run = [f"- {one.system}: {one.problem}" for one in found if one.problem]
    rest = ["", "Not run:", "", *not_run] if not_run else []
    return head + "\n".join([*lines, *rest]) + "\n"


def _systems(found: Sequence[Judged]) -> list[str]:
    names = list(dict.fromkeys((one.system, one.words) for one in found if not one.problem))
    rows = []
    for name, words in names:
        each = [verdict for one in found if one.system == name for verdict in one.verdicts]
        rows.append(_row((name, words, f"{sum(verdict.right for verdict in each)} of {len(each)}")))
    return rows


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _mark(right: bool) -> str:
    return "right" if right else "**wrong**"
