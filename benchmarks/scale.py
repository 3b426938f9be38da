"""Whether a packet costs the same, however many there are: `python -m benchmarks.scale`.

    python -m benchmarks.scale [--most 10000000] [--runs 1]

All stages, tables written, on two hosts' captures: from 10^5 packets up to `--most`, one connection for each upload;
then as many packets over 10, 1,000 and 100,000 connections (and a million, where `--most` allows as many uploads); then
a flood of a million SYNs from forged addresses that nobody follows up. Shown are CPU time for each packet, of all
threads, its ratio to the row of a million packets, and the peak resident memory. CPU time, since other load hardly
changes it.

10^8 packets take 10 GB of captures, 10 GB of intermediate data and about five minutes on two cores.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.processes import run
from testkit import upload_captures

SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000)
CONNECTIONS = (10, 1_000, 100_000, 1_000_000)
PACKETS_PER_UPLOAD = 44
MOST_WITH_CONNECTIONS = 100_000 * PACKETS_PER_UPLOAD
FLOOD = 1_000_000
REFERENCE = 1_000_000


@dataclass(frozen=True)
class Case:
    """Captures to analyse."""

    name: str
    files: tuple[Path, ...]
    packets_count: int
    connections_count: int


@dataclass(frozen=True)
class Cost:
    """What a case took: the median run's CPU time for each packet, and the most memory of any run."""

    case: Case
    cpu_us: float
    peak_rss_bytes: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; the exit status is that of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=10_000_000, help="packets of the largest capture")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args(argv)
    print("\n".join(table(options.most, options.runs)))
    return 0


def table(most: int, runs: int) -> list[str]:
    """The table of this module's header, as lines of Markdown."""
    costs = []
    with tempfile.TemporaryDirectory(prefix="twintap-scale-") as folder:
        for case in _cases(Path(folder), most):
            print(f"scale: {case.name}, {case.packets_count:,} packets", file=sys.stderr)
            costs.append(_measure(case, runs))
    base = next((cost.cpu_us for cost in costs if cost.case.packets_count >= REFERENCE), costs[-1].cpu_us)
    lines = ["| captures | packets | connections | CPU µs/packet | ratio | peak RSS |", "|---|--:|--:|--:|--:|--:|"]
    return lines + [
        f"| {cost.case.name} | {cost.case.packets_count:,} | {cost.case.connections_count:,} | {cost.cpu_us:.2f} "
        f"| {cost.cpu_us / base:.2f} | {cost.peak_rss_bytes / 2**20:,.0f} MiB |"
        for cost in costs
    ]


def _cases(folder: Path, most: int) -> Iterator[Case]:
    """One at a time: the files of one are overwritten by the next."""
    for size in SIZES:
        if size <= most:
            yield _uploads(folder, "an upload each", size, None)
    for connections in CONNECTIONS:
        size = max(connections * PACKETS_PER_UPLOAD, min(most, MOST_WITH_CONNECTIONS))
        if size <= most:
            yield _uploads(folder, "shared", size, connections)
    if most >= REFERENCE:
        yield Case("SYN flood", (upload_captures.write_flood(folder, FLOOD),), 2 * FLOOD, FLOOD)


def _uploads(folder: Path, name: str, packets_count: int, connections_count: int | None) -> Case:
    made = upload_captures.write(folder, packets_count, connections_count)
    return Case(name, (made.client, made.server), made.packets_count, made.connections_count)


def _measure(case: Case, runs: int) -> Cost:
    seconds, peak = [], 0
    for _ in range(runs):
        ran = run([sys.executable, "-m", "benchmarks.stages", "end_to_end", *map(str, case.files)])
        printed = json.loads(ran.last_line)
        assert printed["packets_count"] == case.packets_count, f"{printed} of {case}"
        seconds.append(printed["cpu_seconds"])
        peak = max(peak, ran.peak_rss_bytes)
    return Cost(case, median(seconds) / case.packets_count * 1e6, peak)


if __name__ == "__main__":
    sys.exit(main())
