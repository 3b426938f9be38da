"""Where the time of Ceph's gateway goes, by its packets: `python -m benchmarks.rgw_packets -o DIR`.

A Ceph of Debian's packages, each part in a network namespace: one monitor, three OSDs that keep all in memory (three
replicas), RADOS Gateway, a client. Every host is captured while `tracer bench` reads and writes objects of 1 MB at 1
and 128 workers; `tracer replay` makes a trace of it. Prints a Markdown table, and leaves the traces in DIR.

Ceph's messages are in the traces, so a request to the gateway has its operations on OSDs below it, and these what they
send to replicas. The parts of a request's duration (docs/glossary.md, "the ledger") are summed by where they were
spent: at the gateway, at the OSDs that it asks, at their replicas, on the way between these. Which request an operation
belongs to is inferred; for operations on an object of the request's name the table has the share that is right.

Processor time is that of the daemons' processes (`/proc/PID/stat`). Captures hold whole packets: where messages follow
each other without a pause, one begins in the middle of a packet, which an agent does not keep.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.real_systems.capturing import running, tcpdump
from benchmarks.real_systems.lab import ROOT, Lab
from testkit.ceph_cluster import MON, Cluster, start_daemons
from testkit.s3_stores import ACCESS_KEY, SECRET_KEY

MB = 1_000_000
RUNS = {("get", 1): 60, ("get", 128): 256, ("put", 1): 40, ("put", 128): 128}
"""Requests of each run."""
OSDS = ("osd0", "osd1", "osd2")
PORT = 8000
HOSTS = {
    "client": "10.68.0.10", "gateway": "10.68.0.20", "osd0": "10.68.0.31", "osd1": "10.68.0.32", "osd2": "10.68.0.33",
    "mon": "10.68.0.40",
}  # fmt: skip
BUFFER = ("-B", "65536")
"""KiB that the kernel keeps for tcpdump of each host."""
_TRACER = (sys.executable, "-P", "-m", "tracer")


PARTS = {
    ("gateway", 0): "the gateway's own: work, queue, pauses in its answers",
    ("osd", 1): "OSDs that it asks: work and queue",
    ("osd", 2): "their replicas: work and queue",
    ("network", 1): "on the way between gateway and OSDs",
    ("network", 2): "on the way between OSDs",
    ("network", 0): "on the way between client and gateway",
    ("held", 0): "the client did not read, or TCP held the gateway",
    ("held", 1): "TCP held the gateway or an OSD",
}
"""What a part of a request's duration is called, by its kind and the depth of the span that it was spent in."""
WRITTEN_S = 6
"""Until tcpdump has written what it holds: it drops that when it ends."""
OF_PART = {
    "queue_ns": "", "work_ns": "", "request_idle_ns": "", "response_idle_ns": "", "fan_out_wait_ns": "osd",
    "server_or_network_ns": "network", "request_network_ns": "network", "response_network_ns": "network",
    "connect_ns": "network", "stall_ns": "network", "send_held_ns": "held", "reader_wait_ns": "held",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a run."""

    what: str
    workers: int
    mb_per_s: float
    mean_ms: float
    shares: dict[tuple[str, int], float]
    """Share of all requests' time, by kind and depth."""
    operations: list[tuple[str, float, float]]
    """Operations of a request: name, how many, mean duration in ms."""
    right: tuple[int, int]
    """Of so many operations on the object of a request, how many are linked to a request for it."""
    cpu_ms_per_mb: dict[str, float]
    in_per_byte: float
    out_per_byte: float


def main() -> None:
    """Bring Ceph up, load it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/rgw-packets"))
    folder = parser.parse_args().output.absolute()
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: give another folder with -o")
    folder.mkdir(parents=True, exist_ok=True)
    with Lab(folder, HOSTS, is_urgent=False) as lab:
        _start_ceph(lab)
        _bench(lab, "put", folder / "put", max(RUNS.values()), 8)
        spent = {run: _record(lab, *run, count) for run, count in RUNS.items()}
    found = [_read(folder, *run, count, spent[run]) for run, count in RUNS.items()]
    print("\n".join(_table(found)))


def _start_ceph(lab: Lab) -> None:
    gateway = f"{HOSTS['gateway']}:{PORT}"
    cluster = Cluster(lab.folder, HOSTS["mon"], [HOSTS[osd] for osd in OSDS], gateway=gateway, size=3)
    os.environ["CEPH_CONF"] = str(cluster.conf)
    host = {f"osd.{number}": name for number, name in enumerate(OSDS)}

    def run(daemon: str, *argv: str) -> None:
        lab.run(host.get(daemon, daemon), *argv)

    def start(daemon: str, *argv: str) -> None:
        lab.start(host.get(daemon, daemon), *argv, port=cluster.mon_port if daemon == MON else None)

    start_daemons(cluster, run, start, users={"tester": (ACCESS_KEY, SECRET_KEY)})
    lab.await_port("gateway", PORT)


def _bench(lab: Lab, what: str, output: Path, count: int, workers: int) -> None:
    words = ("--count", str(count), "--size", str(MB), "--concurrency", str(workers), "-o", str(output))
    store = ("--s3", f"http://{HOSTS['gateway']}:{PORT}", "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY)
    lab.run("client", *_TRACER, "bench", "run", what, *words, *store, timeout_s=300)


def _record(lab: Lab, what: str, workers: int, count: int) -> dict[str, float]:
    """Capture a run. Returns the processor time that each daemon spent."""
    name = f"{what}-{workers}"
    before = _cpu_ms(lab)
    captures = [
        tcpdump(lab.hosts[host], lab.folder / f"captures-{name}", "", *BUFFER) for host in HOSTS if host != "mon"
    ]
    with running(*captures):
        _bench(lab, what, lab.folder / f"run-{name}", count, workers)
        time.sleep(WRITTEN_S)
    return {host: ms - before[host] for host, ms in _cpu_ms(lab).items()}


def _cpu_ms(lab: Lab) -> dict[str, float]:
    """Processor time of each daemon so far."""
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    found = {}
    for host, program in {"gateway": "radosgw", **dict.fromkeys(OSDS, "ceph-osd")}.items():
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in lab.pids(host, program)]
        found[host] = sum(int(each[11]) + int(each[12]) for each in fields) * tick_ms
    return found


def _read(folder: Path, what: str, workers: int, count: int, spent: dict[str, float]) -> Measured:
    name, body = f"{what}-{workers}", count * MB
    trace = folder / f"trace-{name}"
    argv = (*_TRACER, "replay", *map(str, sorted((folder / f"captures-{name}").glob("*.pcap"))), "-o", str(trace))
    subprocess.run(argv, check=True, capture_output=True, cwd=ROOT)
    requests = _requests(trace)
    asked = requests.filter((pl.col("method") == what.upper()) & pl.col("target").str.contains("object-"))
    asked = asked.filter(pl.col("depth") == 0).drop_nulls(["start_trace_ns", "end_trace_ns"])
    own = requests.filter(pl.col("trace_id").is_in(asked["trace_id"].implode()))
    duration = asked["end_trace_ns"] - asked["start_trace_ns"]
    took_ns = int(asked["end_trace_ns"].max()) - int(asked["start_trace_ns"].min())  # type: ignore[arg-type]
    data = _data(trace)
    return Measured(
        what,
        workers,
        body * 1e9 / took_ns / MB,
        statistics.mean(duration.to_list()) / 1e6,
        _shares(own),
        _operations(own, len(asked)),
        _count_right_links(own, asked),
        {host: ms / (body / MB) for host, ms in spent.items()},
        int(data.filter(pl.col("receive") == "gateway")["size"].sum()) / body,
        int(data.filter(pl.col("send") == "gateway")["size"].sum()) / body,
    )


def _requests(trace: Path) -> pl.DataFrame:
    """The exchanges with their spans."""
    exchanges = pl.read_parquet(trace / "exchanges.parquet", columns=["exchange_id", "method", "target"])
    found = pl.read_parquet(trace / "spans.parquet").join(exchanges, left_on="span_id", right_on="exchange_id")
    return found.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _data(trace: Path) -> pl.DataFrame:
    hops = pl.read_parquet(trace / "hops.parquet").with_columns(
        size=pl.col("stream_end") - pl.col("stream_start"), send=pl.col("send_host").cast(str),
        receive=pl.col("receive_host").cast(str),
    )  # fmt: skip
    return hops.filter((pl.col("kind").cast(str) == "data") & (pl.col("size") > 0))


def _shares(own: pl.DataFrame) -> dict[tuple[str, int], float]:
    """The share of each part in the time of all requests."""
    found: Counter[tuple[str, int]] = Counter()
    for row in own.iter_rows(named=True):
        depth = min(row["depth"], 2)
        for column, kind in OF_PART.items():
            found[kind or ("osd" if depth else "gateway"), depth] += row[column]
    whole = sum(found.values())
    return {part: ns / whole for part, ns in found.items()}


def _operations(own: pl.DataFrame, count: int) -> list[tuple[str, float, float]]:
    took_ms = (pl.col("end_trace_ns") - pl.col("start_trace_ns")).mean() / 1e6
    each = own.filter(pl.col("depth") > 0).group_by("method").agg(pl.len().alias("count"), took_ms.alias("ms"))
    rows = each.filter(pl.col("count") > count / 50).sort("count", "method", descending=True)
    return [(name, number / count, ms) for name, number, ms in rows.iter_rows()]


def _count_right_links(own: pl.DataFrame, asked: pl.DataFrame) -> tuple[int, int]:
    name = pl.col("target").str.extract(r"(object-\d+)")
    wanted = asked.select(parent_span_id="span_id", wanted=name)
    below = own.filter((pl.col("depth") == 1) & name.is_not_null()).join(wanted, on="parent_span_id", how="left")
    return below.filter(name == pl.col("wanted")).height, below.height


def _table(found: list[Measured]) -> Iterator[str]:
    yield "| | " + " | ".join(f"{each.what.upper()}, {each.workers}" for each in found) + " |"
    yield "|---" + "|--:" * len(found) + "|"
    rows = {
        "MB/s": [f"{each.mb_per_s:.0f}" for each in found],
        "mean, ms": [f"{each.mean_ms:.1f}" for each in found],
    }
    for part, words in PARTS.items():
        rows[words] = [f"{each.shares.get(part, 0):.0%}" for each in found]
    rows |= {
        "operations linked to a request for their object": [f"{each.right[0]} of {each.right[1]}" for each in found],
        "processor of radosgw, ms per MB": [f"{each.cpu_ms_per_mb['gateway']:.2f}" for each in found],
        "processor of the OSDs, ms per MB": [
            f"{sum(ms for host, ms in each.cpu_ms_per_mb.items() if host != 'gateway'):.2f}" for each in found
        ],
        "bytes into the gateway per byte of objects": [f"{each.in_per_byte:.3f}" for each in found],
        "bytes out of it": [f"{each.out_per_byte:.3f}" for each in found],
    }
    for name, values in rows.items():
        yield f"| {name} | {' | '.join(values)} |"
    for each in found:
        yield f"\n{each.what.upper()}, {each.workers} workers, operations of a request:"
        yield from (f"- {number:.2f} × `{name}`, {ms:.2f} ms" for name, number, ms in each.operations)


if __name__ == "__main__":
    main()
