"""Compares a live capture with tcpdump: `python -m benchmarks.live`.

Brings up a cluster of its own, records uploads of 1 MiB over links that split packets as network cards do, with
`tcpdump -i eth0` and `tcpdump -i any` beside the agent on every host, and prints: packets of each host by agent and by
tcpdump, hops in each state, the share of bytes that were paired, delays below zero, and how far the request times that
`tracer replay` finds in the `-i any` files are from those of the agents' trace, beside the stated uncertainty.

Needs tcpdump, and network namespaces as root or as an ordinary user.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from collector.trace.reading import Trace

TRACER = [sys.executable, "-P", "-m", "tracer"]
UPLOADS = ["bench", "run", "put", "--count", "20", "--size", str(1 << 20), "--concurrency", "2"]
TCPDUMP_READY = "listening on"
EDGE_NS = 100_000
"""Each socket stamps a packet for itself, so the first and the last are a little apart."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the cluster, and the prefix that runs a command there."""

    name: str
    enter: list[str]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="twintap-live-") as name:
        folder = Path(name)
        os.environ["TWINTAP_CLUSTER_DIR"] = str(folder / "cluster")
        with _cluster() as hosts:
            with _tcpdumps(hosts, "eth0", folder), _tcpdumps(hosts, "any", folder):
                trace = folder / "trace"
                _run("record", "-o", str(trace), "--", *TRACER, *UPLOADS)
            _print_counts(hosts, trace, folder)
        _print_hops(trace)
        files = [f"{host.name}={folder / f'{host.name}.any.pcap'}" for host in hosts]
        _run("replay", "-o", str(folder / "any"), *files)
        _print_difference(trace, folder / "any")


def _run(*words: str) -> str:
    done = subprocess.run([*TRACER, *words], text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"live: `tracer {' '.join(words[:3])} …` failed:\n{done.stderr}")
    return done.stdout


@contextmanager
def _cluster() -> Iterator[list[Host]]:
    _run("cluster", "up", "--no-daemons")
    try:
        status = json.loads(_run("cluster", "status", "--json"))
        yield [Host(host["host"], host["enter"]) for host in status["hosts"]]
    finally:
        _run("cluster", "down")


@contextmanager
def _tcpdumps(hosts: list[Host], interface: str, folder: Path) -> Iterator[None]:
    """A tcpdump on every host while the block runs, each writing `<host>.<interface>.pcap`."""
    running = []
    for host in hosts:
        out = folder / f"{host.name}.{interface}.pcap"
        # Root within, so that tcpdump needs no user of its own to write the file.
        words = ["tcpdump", "-i", interface, "-s", "1000", "-B", "16384", "-Z", "root", "--nano", "-U", "-w", str(out)]
        process = subprocess.Popen([*host.enter, *words, "tcp"], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        while TCPDUMP_READY not in (line := process.stderr.readline()):
            if not line:
                raise SystemExit(f"live: tcpdump does not run on {host.name}")
        running.append(process)
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.communicate()


def _print_counts(hosts: list[Host], trace: Path, folder: Path) -> None:
    """Packets on eth0 by both, between the first and the last that the agent has: tcpdump runs longer."""
    events = pl.DataFrame(Trace(str(trace)).read("events", ["host", "point", "host_ns"]))
    print("| host | agent, eth0 | tcpdump, same time |\n|---|---|---|")
    for host in hosts:
        own = events.filter(pl.col("point").cast(pl.String) == f"{host.name}/eth0")["host_ns"]
        stamps = _stamps(folder / f"{host.name}.eth0.pcap")
        same = sum(own.min() - EDGE_NS <= stamp <= own.max() + EDGE_NS for stamp in stamps)
        print(f"| {host.name} | {len(own):,} | {same:,} |")


def _stamps(path: Path) -> list[int]:
    from collector.capture_files.readers import open_capture  # noqa: PLC0415 - the core is needed only here

    with open_capture(path) as reader:
        return [stamp for batch in reader.batches() for stamp in batch.events["host_ns"].tolist()]


def _print_hops(trace: Path) -> None:
    hops = pl.DataFrame(Trace(str(trace)).read("hops")).with_columns(pl.col(pl.Categorical).cast(pl.String))
    quality = pl.DataFrame(Trace(str(trace)).read("quality"))
    print("\n| hops | count |\n|---|---|")
    for state, count in sorted(hops.group_by("state").len().iter_rows()):
        print(f"| {state} | {count:,} |")
    print(f"| of data, sharing an end with another (offload) | {quality['split_count'].sum():,} |")
    bytes_count, matched = quality["bytes"].sum(), quality["matched_bytes"].sum()
    print(f"\nbytes in window {bytes_count:,}, paired {matched:,} ({100 * matched / bytes_count:.4f} %)")
    print(f"hops received before they were sent: {quality['early_count'].sum()}")


def _print_difference(trace: Path, replayed: Path) -> None:
    """Of each request at the client: its duration in both traces."""
    ours, theirs = _requests(trace), _requests(replayed)
    both = ours.join(theirs, on="transaction_id", suffix="_any")
    apart = (both["duration_ns"] - both["duration_ns_any"]).abs()
    uncertainty = both.select(pl.max_horizontal("uncertainty_ns", "uncertainty_ns_any")).to_series()
    print(f"\nrequests: {len(ours)} live, {len(theirs)} from `tcpdump -i any`, {len(both)} the same")
    print(f"their durations differ by {apart.median():,.0f} ns (median), {apart.max():,} ns at most")
    print(f"within the stated uncertainty: {(apart <= uncertainty).sum()} of {len(both)}")


def _requests(trace: Path) -> pl.DataFrame:
    exchanges = pl.DataFrame(Trace(str(trace)).read("exchanges"))
    return exchanges.filter(pl.col("client_host").cast(pl.String) == "client").select(
        "transaction_id",
        "uncertainty_ns",
        duration_ns=pl.col("response_last_received_trace_ns") - pl.col("request_first_sent_trace_ns"),
    )


if __name__ == "__main__":
    main()
