"""Is the load generator fast enough, does it stay small, and are its times true?

    python -m benchmarks.bench_generator speed [--swift-bench PATH]
    python -m benchmarks.bench_generator memory [--seconds 120] [--rate 300]
    python -m benchmarks.bench_generator truth [--count 500] [--concurrency 8]

`speed` puts 1,000-byte objects on a server that answers at once (`benchmarks.instant_server`), generator and server
each on a core of its own, and says how many requests per second of its processor's time the generator makes, too: that
is what a busy machine leaves true. On the same server S3 is measured in turn with Swift, with each way to secure a
payload: what signing costs the generator. With swift-bench (pip install swift-bench, in an environment of its own) both
run in turn, three times, and the ratio is that of the best of each.

`memory` runs a closed loop, or an open one of a rate, and fits a line to the resident size after its first fifth.

`truth` records a run on the bundled cluster with `tracer record` and holds each request's measured latency against the
same request's packets at the client's host: from the first packet of the request that was sent to the last packet of
the response that was received. Needs the cluster's privileges.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from collector.trace.reading import Trace
from storage_cluster.bench.results import folder

OBJECT_BYTES = 1000
WORKERS = 64
TURNS = 3
PAYLOADS = ("unsigned", "signed", "chunked", "trailer")


@contextlib.contextmanager
def instant_server(core: int) -> Iterator[str]:
    """Its auth URL."""
    argv = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.instant_server", "0"]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/auth/v1.0"
    finally:
        server.terminate()
        server.wait()


def swift(auth: str) -> tuple[str, ...]:
    """The options that name the store as Swift's."""
    return ("--auth", auth)


def s3(auth: str, payload: str) -> tuple[str, ...]:
    """The same as S3's."""
    url = auth.removesuffix("/auth/v1.0")
    return ("--s3", url, "--access-key", "k", "--secret-key", "s", "--storage", f"payload={payload}")


def bench(store: tuple[str, ...], *argv: str, prefix: tuple[str, ...] = ()) -> list[str]:
    """`tracer bench run …` on that store."""
    return [*prefix, sys.executable, "-m", "tracer", "bench", "run", *argv, *store]


def own_turn(store: tuple[str, ...], core: int, count: int, size_bytes: int) -> tuple[float, float]:
    """Requests per second, and per second of the generator's processor time."""
    with tempfile.TemporaryDirectory() as scratch:
        before = os.times()
        argv = ["put", "--count", str(count), "--size", str(size_bytes), "--concurrency", str(WORKERS)]
        argv += ["-o", f"{scratch}/run"]
        subprocess.run(bench(store, *argv, prefix=("taskset", "-c", str(core))), check=True, capture_output=True)
        used_s = sum(os.times()[2:4]) - sum(before[2:4])
        run = folder.load(Path(scratch) / "run")
        key = next(key for key in run.tally.figures if key.stage == "put")
        figures = run.tally.figures[key]
        return figures.successes_count / run.info.elapsed_s(key, figures), count / used_s


def swift_bench_turn(program: str, auth: str, core: int, count: int) -> float:
    """swift-bench's own figure for PUTs."""
    argv = ["taskset", "-c", str(core), program, "-A", auth, "-U", "test:tester", "-K", "testing", "-c", str(WORKERS)]
    argv += ["-s", str(OBJECT_BYTES), "-n", str(count), "-g", "0", "-x"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "PUTS **FINAL**" in line]
    return float(lines[-1].rsplit(",", 1)[1].strip().removesuffix("/s"))


def speed(arguments: argparse.Namespace) -> None:
    """Requests per second, ours on Swift and on S3, and swift-bench's."""
    turns: dict[str, list[tuple[float, float]]] = {}
    other = []
    with instant_server(1) as auth:
        stores = {"Swift": swift(auth)} | {f"S3, {payload}": s3(auth, payload) for payload in PAYLOADS}
        for _ in range(TURNS):
            for name, store in stores.items():
                turns.setdefault(name, []).append(own_turn(store, 0, arguments.count, arguments.size))
            if arguments.swift_bench:
                other.append(swift_bench_turn(arguments.swift_bench, auth, 0, max(arguments.count // 10, 100)))
    print(f"tracer bench, PUTs of {arguments.size:,} bytes: requests/s on one core; per second of its processor time,")
    print("start of the program included; µs of it for each request: best of the turns (all of them)")
    for name, found in turns.items():
        rates, by_cpu = zip(*found, strict=True)
        listed = ", ".join(f"{each:,.0f}" for each in by_cpu)
        print(f"  {name:<14}{max(rates):>8,.0f}{max(by_cpu):>8,.0f}{1e6 / max(by_cpu):>7.1f}  ({listed})")
    if other:
        print(f"swift-bench:  {max(other):,.0f} requests/s (turns: {', '.join(f'{rate:,.0f}' for rate in other)})")
        print(f"ratio:        {max(rate for rate, _ in turns['Swift']) / max(other):.1f}")


def memory(arguments: argparse.Namespace) -> None:
    """The slope of the resident size."""
    workload = Path(tempfile.mkdtemp()) / "w.toml"
    rate = f"rate_per_s = {arguments.rate}\n" if arguments.rate else ""
    workload.write_text(
        f'name = "m"\n[[stage]]\nname = "main"\n[[stage.work]]\n{rate}'
        f"workers = {WORKERS}\nruntime_s = {arguments.seconds}\n"
        f'operations = [{{ kind = "write", containers = "c(1)", objects = "s(1,1000000)", sizes = "c(100)B" }}]\n'
    )
    sizes: list[tuple[float, int]] = []
    with instant_server(1) as auth:
        out = workload.parent / "run"
        running = subprocess.Popen(bench(swift(auth), str(workload), "-o", str(out)), stdout=subprocess.DEVNULL)
        while running.poll() is None:
            time.sleep(1)
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{running.pid}/statm").read_text().split()
                sizes.append((time.monotonic(), int(status[1]) * os.sysconf("SC_PAGE_SIZE")))
    steady = sizes[len(sizes) // 5 : -2]
    slope = float(np.polyfit([at for at, _ in steady], [size for _, size in steady], 1)[0])
    quarters = [np.median([size for _, size in part]) / 2**20 for part in np.array_split(np.array(steady), 4)]
    count = folder.load(out).tally.total().operations_count
    print(f"{count:,} requests in {arguments.seconds} s; resident MiB, median of each quarter after the first fifth:")
    print("  " + ", ".join(f"{quarter:.1f}" for quarter in quarters))
    print(f"slope: {slope / 1024:+.1f} KiB/s, {slope * 3600 / 2**20:+.0f} MiB in an hour if it went on")


def truth(arguments: argparse.Namespace) -> None:
    """Measured latency against the packets."""
    with tempfile.TemporaryDirectory() as scratch:
        argv = [sys.executable, "-m", "tracer", "record", "-o", f"{scratch}/trace", "--"]
        argv += [sys.executable, "-m", "tracer", "bench", "run", "put", "--count", str(arguments.count)]
        argv += ["--concurrency", str(arguments.concurrency), "-o", f"{scratch}/run"]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        differences = _differences(Path(scratch) / "run", f"{scratch}/trace")
    ordered = sorted(differences)
    print(f"{len(ordered)} requests: measured latency minus that of their packets at the client's host, µs")
    late = ordered[int(0.9 * len(ordered))] / 1e3
    print(f"  median {statistics.median(ordered) / 1e3:.1f}, 90 % {late:.1f}, largest {ordered[-1] / 1e3:.1f}")
    print(f"  negative: {sum(value < 0 for value in ordered)}, smallest {ordered[0] / 1e3:.1f}")


def _differences(run: Path, trace: str) -> list[int]:
    exchanges = Trace(trace).read("exchanges")
    at_client = exchanges.filter(pc.equal(exchanges["client_host"], "client")).to_pylist()
    packets = {
        each["transaction_id"]: each["response_last_received_trace_ns"] - each["request_first_sent_trace_ns"]
        for each in at_client
        if each["transaction_id"] and each["response_last_received_trace_ns"] and each["request_first_sent_trace_ns"]
    }
    rows = [row for row in folder.load(run).rows() if row.stage == "put" and row.transaction_id in packets]
    return [row.duration_ns - max(row.connect_ns, 0) - packets[row.transaction_id] for row in rows]


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(required=True)
    for function in (speed, memory, truth):
        each = which.add_parser(function.__name__)
        each.set_defaults(function=function)
        each.add_argument("--count", type=int, default=500 if function is truth else 30_000)
        each.add_argument("--size", type=int, default=OBJECT_BYTES)
        each.add_argument("--concurrency", type=int, default=8)
        each.add_argument("--seconds", type=int, default=120)
        each.add_argument("--rate", type=int, default=0)
        each.add_argument("--swift-bench", default="")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
