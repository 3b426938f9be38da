"""Side by side: the bundled cluster and OpenStack Swift, the same requests from the same client, in turns.

Both are up all the time, each in network namespaces of its own with the same links, data on the same file system. A
scenario runs on one and then on the other, in rounds, so that what else the machine does falls on both; a figure is
the median over the rounds. Neither has its background daemons, whose rounds would be part of the figures. Beside
requests/s and latencies stands the processor time that all servers together spent on a request, which other load on
the machine hardly changes.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.swift import hosts
from storage_cluster import topology as topologies
from storage_cluster.hosts import cluster, namespaces, state

SCENARIOS = tuple((method, size) for size in (1024, 1_048_576) for method in ("PUT", "GET"))
CONCURRENCIES = (1, 32, 256)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LOAD_TIMEOUT_S = 600


@dataclass(frozen=True)
class Store:
    """One of the two."""

    name: str
    enter: list[str]
    environment: dict[str, str]
    net_inodes: tuple[int, ...]


@dataclass(frozen=True)
class Figures:
    """What one run of one scenario gave."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    requests_count: int
    failures_count: int
    statuses: str
    client_cpu_s: float
    servers_cpu_ms: float


@contextmanager
def stores(topology_file: Path | None) -> Iterator[tuple[Store, Store]]:
    """Both, up; taken down at the end."""
    with tempfile.TemporaryDirectory(prefix="twintap-compare-", dir=hosts.state_dir().parent) as directory:
        ours_dir = Path(directory)
        try:
            cluster.up(ours_dir, topology_file or _without_daemons(ours_dir))
            hosts.up(daemons=False)
            yield _ours(ours_dir), _swift()
        finally:
            hosts.down()
            cluster.down(ours_dir)


def measure(store: Store, method: str, size: int, concurrency: int, duration_s: float) -> Figures:
    """One run."""
    before = _cpu_s(store)
    found = json.loads(_load(store, method, size, concurrency, duration_s))
    spent_s = _cpu_s(store) - before
    share = duration_s / (duration_s + 1)  # the warm-up second is in the processor time, not in the count
    return Figures(**found, servers_cpu_ms=round(1e3 * spent_s * share / max(1, found["requests_count"]), 2))


def _load(store: Store, method: str, size: int, concurrency: int = 1, duration_s: float = 0) -> bytes:
    argv = [sys.executable, "-m", "benchmarks.swift.load"]
    access = [store.environment[name] for name in ("ST_AUTH", "ST_USER", "ST_KEY")]
    return subprocess.run(
        [*store.enter, *argv, *access, method, str(size), str(concurrency), str(duration_s)],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},  # entering a host loses the directory
        timeout=_LOAD_TIMEOUT_S,
    ).stdout


def compare(topology_file: Path | None, rounds: int, duration_s: float, nice: int, only: tuple[str, ...]) -> None:
    """All scenarios; prints a table."""
    click.echo(_line("scenario", "store", "req/s", "p50 ms", "p99 ms", "fail", "CPU ms/req", "req/s ×", "p99 ×"))
    with stores(topology_file) as (ours, swift):
        if nice:
            _prefer([os.getpid()], nice)  # and so the client
            for store in (ours, swift):
                _prefer([process.pid for process in state.processes_inside(store.net_inodes)], nice)
        for method, size in SCENARIOS:
            for store in (ours, swift):
                _load(store, "PREPARE", size)
            for concurrency in CONCURRENCIES:
                name = f"{method} {'1 KiB' if size == 1024 else '1 MiB'} c={concurrency}"
                if only and not any(word in name for word in only):
                    continue
                runs: dict[str, list[Figures]] = {ours.name: [], swift.name: []}
                for turn in range(rounds):
                    for store in (ours, swift) if turn % 2 == 0 else (swift, ours):
                        runs[store.name].append(measure(store, method, size, concurrency, duration_s))
                _print(name, runs[ours.name], runs[swift.name])


def _print(name: str, ours: list[Figures], swift: list[Figures]) -> None:
    speed = _median(ours, lambda run: run.requests_per_s) / _median(swift, lambda run: run.requests_per_s)
    tail = _median(ours, lambda run: run.p99_ms) / _median(swift, lambda run: run.p99_ms)
    for store, runs, ratios in (("twintap", ours, (f"{speed:.2f}", f"{tail:.2f}")), ("swift", swift, ("", ""))):
        click.echo(
            _line(
                name,
                store,
                f"{_median(runs, lambda run: run.requests_per_s):.0f}",
                f"{_median(runs, lambda run: run.p50_ms):.1f}",
                f"{_median(runs, lambda run: run.p99_ms):.1f}",
                str(sum(run.failures_count for run in runs)),
                f"{_median(runs, lambda run: run.servers_cpu_ms):.2f}",
                *ratios,
            )
        )


def _line(*columns: str) -> str:
    return "| " + " | ".join(f"{column:>{width}}" for column, width in zip(columns, _WIDTHS, strict=True)) + " |"


_WIDTHS = (18, 7, 6, 8, 8, 4, 10, 7, 6)


def _median(runs: list[Figures], of: Callable[[Figures], float]) -> float:
    return statistics.median(map(of, runs))


def _without_daemons(directory: Path) -> Path:
    """The bundled topology, as a file, without the background daemons."""
    file = directory / "compare.toml"
    file.write_text(topologies.BUNDLED_FILE.read_text("utf-8").replace(', "daemons"', ""), "utf-8")
    return file


def _prefer(pids: Iterable[int], nice: int) -> None:
    """Give processes that priority, and their session too: the kernel may share the processor among sessions first."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
        autogroup = Path(f"/proc/{pid}/autogroup")
        if autogroup.exists():
            autogroup.write_text(str(nice), "ascii")


def _ours(state_dir: Path) -> Store:
    running = cluster.status(state_dir)
    client = running.host(running.client_host)
    inodes = tuple(host.net_inode for host in running.hosts if host.host != client.host)
    return Store("twintap", list(client.enter), running.environment, inodes)


def _swift() -> Store:
    running = hosts.load()
    others = (holder.pid for name, holder in running.holders.items() if name != "client")
    return Store(
        "swift", running.enter("client"), hosts.environment(), tuple(namespaces.inode(p, "net") for p in others)
    )


def _cpu_s(store: Store) -> float:
    """Processor time of everything that runs on the store's hosts, without the client."""
    total = 0
    for process in state.processes_inside(store.net_inodes):
        fields = Path(f"/proc/{process.pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S
