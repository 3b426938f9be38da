"""What an analysis on a Dask cluster costs: `python -m benchmarks.workers`.

    python -m benchmarks.workers [--packets 10000000 …] [--workers 2 --workers 4 …] [--folder FOLDER]

Captures of two hosts with an upload for each connection, written once for each size; then `tracer replay` as it is
typed, in one process and with so many workers on this machine, whose cores they share. For each run: the clock, the CPU
time of the process that was typed and of the others, the most memory of each, and the bytes that all wrote and read (of
files and sockets; what is read through a memory map is not counted). The share of CPU time of the one process is what
does not spread. Each trace is compared with that of one process, byte for byte.

A packet of a trace takes 100 bytes of a capture, and up to 250 of intermediate data and tables.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.processes import ROOT
from testkit import upload_captures

LOOK_EVERY_S = 0.1


@dataclass
class Process:
    """What one process has taken when it was last looked at."""

    cpu_s: float = 0.0
    peak_rss: int = 0
    written: int = 0
    read: int = 0

    def look(self, process: psutil.Process) -> None:
        """Note what it has taken by now."""
        with process.oneshot():
            times, io = process.cpu_times(), process.io_counters()
            self.cpu_s = times.user + times.system
            self.peak_rss = max(self.peak_rss, process.memory_info().rss)
            self.written, self.read = io.write_chars, io.read_chars


@dataclass
class Cost:
    """What a run took, in `own` by the process that was typed, in `others` by those that it started."""

    packets_count: int
    workers: int
    wall_s: float = 0.0
    own: Process = field(default_factory=Process)
    others: dict[int, Process] = field(default_factory=dict)
    is_same: bool = True

    def row(self) -> str:
        """A line of the table."""
        others = list(self.others.values())
        cpu_s = self.own.cpu_s + sum(one.cpu_s for one in others)
        everyone = [self.own, *others]
        return (
            f"| {self.packets_count:,} | {self.workers or 'none'} | {self.wall_s:.0f} | {self.own.cpu_s:.1f} "
            f"| {cpu_s - self.own.cpu_s:.1f} | {1e6 * cpu_s / self.packets_count:.2f} "
            f"| {self.own.cpu_s / cpu_s:.2f} | {self.own.peak_rss >> 20:,} "
            f"| {max((one.peak_rss for one in others), default=0) >> 20:,} "
            f"| {sum(one.written for one in everyone) / 1e9:.1f} | {sum(one.read for one in everyone) / 1e9:.1f} "
            f"| {'yes' if self.is_same else 'NO'} |"
        )


HEAD = (
    "| packets | workers | s | CPU s, own | CPU s, workers | CPU µs/packet | own share | MiB, own | MiB, a worker "
    "| GB written | GB read | same |",
    "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; 1 if a trace differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, action="append")
    parser.add_argument("--workers", type=int, action="append", help="0: one process")
    parser.add_argument("--folder", type=Path, help="where captures and traces go")
    options = parser.parse_args(argv)
    costs = []
    print("\n".join(HEAD), flush=True)
    with tempfile.TemporaryDirectory(prefix="twintap-workers-", dir=options.folder) as folder:
        for packets_count in options.packets or [10_000_000]:
            made = upload_captures.write(Path(folder), packets_count)
            for workers in [0, *(options.workers or [2, 4, 8])]:
                costs.append(measure([made.client, made.server], made.packets_count, workers, Path(folder)))
                print(costs[-1].row(), flush=True)
    return int(not all(cost.is_same for cost in costs))


def measure(files: Sequence[Path], packets_count: int, workers: int, folder: Path) -> Cost:
    """Run once; the trace of `workers` 0 stays, to be compared with."""
    cost, trace = Cost(packets_count, workers), folder / f"trace-{workers}"
    shutil.rmtree(trace, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("tracer")), "replay", "--quiet", "-o", str(trace)]
    command += ["--workers", str(workers)] if workers else []
    began = time.perf_counter()
    with (folder / "said").open("w+") as said:
        process = psutil.Popen([*command, *map(str, files)], stdout=said, stderr=subprocess.STDOUT, cwd=ROOT)
        while process.poll() is None:
            _look(process, cost)
            time.sleep(LOOK_EVERY_S)
        cost.wall_s = time.perf_counter() - began
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"workers: exit status {process.returncode}:\n{said.read()}")
    if workers:
        cost.is_same = contents(trace) == contents(folder / "trace-0")
        shutil.rmtree(trace)
    return cost


def _look(process: psutil.Process, cost: Cost) -> None:
    try:
        alive = process.children(recursive=True)
        for child in alive:
            cost.others.setdefault(child.pid, Process()).look(child)
        cost.own.look(process)
        for pid in cost.others.keys() - {child.pid for child in alive}:  # the kernel adds those that have ended
            cost.own.written -= cost.others[pid].written
            cost.own.read -= cost.others[pid].read
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return  # it has just ended


def contents(trace: Path) -> dict[str, object]:
    """Digests of the tables, and `trace.json` but for when it was made."""
    document = json.loads((trace / "trace.json").read_text())
    del document["created_ns"]
    digests = {}
    for path in sorted(trace.glob("*.parquet")):
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return {"trace.json": document, **digests}


if __name__ == "__main__":
    sys.exit(main())
