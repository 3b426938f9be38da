"""What becomes of an analysis on a Dask cluster when something fails: `python -m benchmarks.worker_faults`.

    python -m benchmarks.worker_faults [--packets 3000000] [--folder FOLDER] [CASE …]

Captures of two hosts; a scheduler and two workers, each a process of its own; `tracer replay --engine dask://…`. In the
midst of it something is killed (SIGKILL), or its disk is full. Shown are how the run ended, in which time, what it
said, whether the trace is that of one process, byte for byte, and what was left beside it. The full disk needs root.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import ROOT
from benchmarks.workers import contents
from testkit import traffic_shapes, upload_captures

TRACER = str(Path(sys.executable).with_name("tracer"))
DISK_BYTES = 60 << 20
"""Of the full disk: less than what a run of a million packets needs."""
PATIENCE_S = 900


@dataclass
class Cluster:
    """Processes of a Dask cluster."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self) -> None:
        """Start one more worker."""
        command = [sys.executable, "-m", "dask", "worker", self.address, "--nthreads", "1", "--no-nanny"]
        self.workers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


@contextmanager
def run_cluster(folder: Path) -> Iterator[Cluster]:
    """A scheduler and two workers, ended with the context."""
    place = folder / "scheduler.json"
    place.unlink(missing_ok=True)
    command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen([*command, "--scheduler-file", str(place)], **quiet)
    try:
        while not place.exists():
            time.sleep(0.1)
        cluster = Cluster(json.loads(place.read_text())["address"], scheduler)
        for _ in range(2):
            cluster.add_worker()
        yield cluster
    finally:
        for process in [*cluster.workers, scheduler]:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Case:
    """Something that fails: `when` files of this pattern lie in the scratch folder, `do` is done."""

    name: str
    when: str
    do: Callable[[Cluster, "subprocess.Popen[bytes]"], None]


def _kill_worker(cluster: Cluster, _: "subprocess.Popen[bytes]") -> None:
    cluster.workers[0].send_signal(signal.SIGKILL)


def _kill_both_workers_and_start_one(cluster: Cluster, _: "subprocess.Popen[bytes]") -> None:
    for worker in cluster.workers:
        worker.send_signal(signal.SIGKILL)
    cluster.add_worker()


def _kill_scheduler(cluster: Cluster, _: "subprocess.Popen[bytes]") -> None:
    cluster.scheduler.send_signal(signal.SIGKILL)


def _kill_replay(_: Cluster, replay: "subprocess.Popen[bytes]") -> None:
    replay.send_signal(signal.SIGKILL)


def _nothing(_: Cluster, __: "subprocess.Popen[bytes]") -> None:
    """Let it be."""


READING, MATCHING, REBUILDING, LINKING = "*.work", "*-0.tables", "*.run", "links/*.tables"
CASES = {
    "none": Case("nothing", READING, _nothing),
    "worker-reading": Case("a worker, while captures are read", READING, _kill_worker),
    "worker-matching": Case("a worker, while packets are matched", MATCHING, _kill_worker),
    "worker-rebuilding": Case("a worker, while requests are rebuilt", REBUILDING, _kill_worker),
    "worker-linking": Case("a worker, while requests are linked; 1.3 million of them", LINKING, _kill_worker),
    "workers": Case("both workers; a new one starts", MATCHING, _kill_both_workers_and_start_one),
    "scheduler": Case("the scheduler", MATCHING, _kill_scheduler),
    "replay": Case("`tracer replay` itself", MATCHING, _kill_replay),
    "disk": Case("the shared folder is full", READING, _nothing),
    "huge": Case("nothing; one connection has 100 times the packets of a partition", READING, _nothing),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases and print the table; 1 if a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=3_000_000)
    parser.add_argument("--folder", type=Path, help="where captures and traces go")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all without any")
    options = parser.parse_args(argv)
    print("| what is killed | exit | s | trace | left beside it | said |\n|---|--:|--:|---|---|---|", flush=True)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="twintap-worker-faults-", dir=options.folder) as name:
        folder = Path(name)
        files = _captures(folder / "uploads", options.packets)
        for case in options.cases or CASES:
            row, is_right = _run(CASES[case], OTHERS[case](folder / case) if case in OTHERS else files, folder, case)
            wrong += not is_right
            print(row, flush=True)
    return int(wrong > 0)


def _captures(folder: Path, packets_count: int) -> list[Path]:
    folder.mkdir()
    made = upload_captures.write(folder, packets_count)
    return [made.client, made.server]


def _huge(folder: Path) -> list[Path]:
    """Captures of a single connection of two million packets."""
    folder.mkdir()
    traffic_shapes.bulk(folder, 2_000_000)
    return sorted(folder.glob("*.pcap"))


def _small_requests(folder: Path) -> list[Path]:
    """Captures of more requests than are linked whole."""
    folder.mkdir()
    traffic_shapes.keep_alive(folder, 8_000_000, 1_000)
    return sorted(folder.glob("*.pcap"))


OTHERS: dict[str, Callable[[Path], list[Path]]] = {"huge": _huge, "worker-linking": _small_requests}
"""Cases with captures of their own."""


def _run(case: Case, files: Sequence[Path], folder: Path, key: str) -> tuple[str, bool]:
    expected, trace, scratch = folder / f"{files[0].parent.name}-here", folder / "trace", folder / "scratch"
    if not expected.exists():
        command = [TRACER, "replay", "--quiet", "-o", str(expected), *map(str, files)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    shutil.rmtree(trace, ignore_errors=True)
    scratch.mkdir(exist_ok=True)
    with ExitStack() as opened:
        if key == "disk":
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(scratch)], check=True)
            opened.callback(subprocess.run, ["umount", str(scratch)], check=True)
        cluster = opened.enter_context(run_cluster(folder))
        engine = cluster.address.replace("tcp://", "dask://")
        command = [TRACER, "replay", "--quiet", "--engine", engine, "--scratch", str(scratch), "-o", str(trace)]
        said = opened.enter_context((folder / "said").open("w+"))
        began = time.perf_counter()
        replay = subprocess.Popen([*command, *map(str, files)], stdout=said, stderr=subprocess.STDOUT, cwd=ROOT)
        while replay.poll() is None and not list(scratch.glob(f"*/{case.when}")):
            time.sleep(0.02)
        case.do(cluster, replay)
        code = replay.wait(PATIENCE_S)
        seconds = time.perf_counter() - began
        said.seek(0)
        lines = said.read().splitlines()
        left = len(list(scratch.iterdir()))
    is_there = (trace / "trace.json").exists()
    is_same = is_there and contents(trace) == contents(expected)
    state = "the same" if is_same else "WRONG" if is_there else "none"
    words = lines[-1] if code and lines else ""
    is_right = is_same if code == 0 else not is_there
    return f"| {case.name} | {code} | {seconds:.0f} | {state} | {left or 'nothing'} | {words} |", is_right


if __name__ == "__main__":
    sys.exit(main())
