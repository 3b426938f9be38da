"""What packets alone say of Ceph's gateway: `python -m benchmarks.rgw_packets -o DIR`.

A Ceph of Debian's packages, each part in a network namespace: one monitor, three OSDs that keep all in memory (three
replicas), RADOS Gateway, a client. Every host is captured while `tracer bench` reads objects of 1 MB at 1, 16 and 128
workers; `tracer replay` makes a trace of it. Prints a Markdown table, and leaves the traces in DIR.

    own      share of a request in which no OSD owes an answer, until the gateway's next packet to an OSD or the client
    waiting  share in which an OSD owes an answer: from a packet of data to it to the first byte back
    the rest bytes are under way to the gateway or to the client

Ceph's messages are not decoded, and many requests share the connections to an OSD. So the shares are known only for one
worker, where whatever moves belongs to the one request; for more there are bytes, processor time, and how long
receivers kept senders waiting. What is in a message, which of a request's messages an OSD was slow at, and for which
request, only their decoding can show.

Processor time is that of the daemons' processes (`/proc/PID/stat`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.real_systems.capturing import AGENT, capturing
from benchmarks.real_systems.lab import ROOT, Lab
from testkit.s3_stores import ACCESS_KEY, SECRET_KEY

MB = 1_000_000
READS = {1: 60, 16: 240, 128: 512}
OBJECTS_COUNT = max(READS.values())
OSDS = ("osd0", "osd1", "osd2")
PORT = 8000
HOSTS = {
    "client": "10.68.0.10", "gateway": "10.68.0.20", "osd0": "10.68.0.31", "osd1": "10.68.0.32", "osd2": "10.68.0.33",
    "mon": "10.68.0.40",
}  # fmt: skip
READY_S = 60.0
_TRACER = (sys.executable, "-P", "-m", "tracer")
_ENTITIES = {"mon.": ("mon",), "client.admin": ("mon", "osd", "mgr")} | {f"osd.{n}": ("mon", "osd") for n in range(3)}
_CONF = """
[global]
fsid = {fsid}
mon host = [v2:{mon}:3300/0]
mon initial members = a
osd pool default size = 3
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 2147483648
mon data avail crit = 1
mon max pg per osd = 1000
ms bind msgr1 = false
run dir = {folder}
admin socket =
log file = {folder}/$name.log
pid file =
mon data = {folder}/mon
osd data = {folder}/osd-$id
keyring = {folder}/keyring
rgw data = {folder}/rgw
rgw frontends = beast endpoint={gateway}:{port}
[mon.a]
public addr = {mon}
{osds}
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a run."""

    workers: int
    mb_per_s: float
    mean_ms: float
    own: float | None
    waiting: float | None
    cpu_ms_per_mb: dict[str, float]
    in_per_byte: float
    out_per_byte: float
    unread_ms: dict[str, float]


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
        _bench(lab, "put", folder / "put", OBJECTS_COUNT, 8)
        found = [_measure(lab, workers, count) for workers, count in READS.items()]
    print("\n".join(_table(found)))


def _start_ceph(lab: Lab) -> None:
    osds = "\n".join(f"[osd.{n}]\npublic addr = {HOSTS[host]}" for n, host in enumerate(OSDS))
    fsid, folder = str(uuid.uuid4()), lab.folder
    words = {"fsid": fsid, "mon": HOSTS["mon"], "gateway": HOSTS["gateway"], "port": PORT, "folder": folder}
    conf = lab.file("ceph.conf", _CONF.format(osds=osds, **words))
    os.environ["CEPH_CONF"] = str(conf)
    for name in ("mon", "rgw", *(f"osd-{n}" for n in range(3))):
        (folder / name).mkdir(exist_ok=True)
    keyring, monitors = str(folder / "keyring"), str(folder / "monmap")
    lab.run("mon", "ceph-authtool", "--create-keyring", keyring)
    for entity, capabilities in _ENTITIES.items():
        granted = [word for daemon in capabilities for word in ("--cap", daemon, "allow *")]
        lab.run("mon", "ceph-authtool", keyring, "--gen-key", "-n", entity, *granted)
    lab.run("mon", "monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:{HOSTS['mon']}:3300]", monitors)
    lab.run("mon", "ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors, "--keyring", keyring)
    lab.start("mon", "ceph-mon", "-i", "a", "-f", port=3300)
    for number, host in enumerate(OSDS):
        osd = str(uuid.uuid4())
        lab.run("mon", "ceph", "osd", "new", osd)
        lab.run(host, "ceph-osd", "-i", str(number), "--mkfs", "--osd-uuid", osd)
        lab.start(host, "ceph-osd", "-i", str(number), "-f")
    keys = ("--access-key", ACCESS_KEY, "--secret", SECRET_KEY)
    lab.run("mon", "radosgw-admin", "user", "create", "--uid", "tester", "--display-name", "tester", *keys)
    lab.start("gateway", "radosgw", "-f", "-n", "client.admin")
    lab.await_port("gateway", PORT)


def _bench(lab: Lab, what: str, output: Path, count: int, workers: int) -> None:
    words = ("--count", str(count), "--size", str(MB), "--concurrency", str(workers), "-o", str(output))
    store = ("--s3", f"http://{HOSTS['gateway']}:{PORT}", "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY)
    lab.run("client", *_TRACER, "bench", "run", what, *words, *store, timeout_s=300)


def _measure(lab: Lab, workers: int, count: int) -> Measured:
    output, captures, trace = (lab.folder / f"{name}-{workers}" for name in ("run", "captures", "trace"))
    before = _cpu_ms(lab)
    with capturing(lab, [host for host in HOSTS if host != "mon"], captures, (AGENT,)):
        _bench(lab, "get", output, count, workers)
    spent = {host: ms - before[host] for host, ms in _cpu_ms(lab).items()}
    argv = (*_TRACER, "replay", str(captures / AGENT), "-o", str(trace))
    subprocess.run(argv, check=True, capture_output=True, cwd=ROOT)
    return _read(workers, count, spent, trace)


def _cpu_ms(lab: Lab) -> dict[str, float]:
    """Processor time of each daemon so far."""
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    found = {}
    for host, program in {"gateway": "radosgw", **dict.fromkeys(OSDS, "ceph-osd")}.items():
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in lab.pids(host, program)]
        found[host] = sum(int(each[11]) + int(each[12]) for each in fields) * tick_ms
    return found


def _read(workers: int, count: int, spent: dict[str, float], trace: Path) -> Measured:
    hops = pl.read_parquet(trace / "hops.parquet").with_columns(
        size=pl.col("stream_end") - pl.col("stream_start"), send=pl.col("send_host").cast(str),
        receive=pl.col("receive_host").cast(str),
    )  # fmt: skip
    data = hops.filter((pl.col("kind").cast(str) == "data") & (pl.col("size") > 0))
    exchanges = pl.read_parquet(trace / "exchanges.parquet").filter(
        (pl.col("method") == "GET") & (pl.col("client_host").cast(str) == "client")
    )
    begin, end = exchanges["request_first_sent_trace_ns"], exchanges["response_last_received_trace_ns"]
    body = count * MB
    own, waiting = _shares(data, exchanges) if workers == 1 else (None, None)
    report = subprocess.run((*_TRACER, "report", "--json", str(trace)), check=True, capture_output=True, cwd=ROOT)
    unread = [each for each in json.loads(report.stdout)["findings"] if each["kind"] == "zero_window"]
    return Measured(
        workers,
        body * 1e9 / (max(end.to_list()) - min(begin.to_list())) / MB,
        statistics.mean((end - begin).to_list()) / 1e6,
        own,
        waiting,
        {host: ms / (body / MB) for host, ms in spent.items()},
        int(data.filter(pl.col("receive") == "gateway")["size"].sum()) / body,
        int(data.filter(pl.col("send") == "gateway")["size"].sum()) / body,
        {host: sum(each["cost_ns"] for each in unread if each["host"] == host) / 1e6 for host in HOSTS},
    )


def _shares(data: pl.DataFrame, exchanges: pl.DataFrame) -> tuple[float, float]:
    """The gateway's own share of all requests, and that of waiting for OSDs, where requests do not overlap."""
    own_ns = waiting_ns = whole_ns = 0
    for row in exchanges.iter_rows(named=True):
        begin, end = row["request_first_received_trace_ns"], row["response_last_sent_trace_ns"]
        whole_ns += row["response_last_received_trace_ns"] - row["request_first_sent_trace_ns"]
        for state, span_ns in _spans(data, begin, end):
            own_ns += span_ns if state == "own" else 0
            waiting_ns += span_ns if state == "waiting" else 0
    return own_ns / whole_ns, waiting_ns / whole_ns


def _spans(data: pl.DataFrame, begin: int, end: int) -> Iterator[tuple[str, int]]:
    """The time at the gateway from one packet of data to the next, and what it was spent on."""
    arrivals = data.filter(pl.col("receive") == "gateway").select(
        at="receive_trace_ns", host="send", is_sent=pl.lit(False)
    )
    sends = data.filter(pl.col("send") == "gateway").select(at="send_trace_ns", host="receive", is_sent=pl.lit(True))
    within = pl.concat([arrivals, sends]).filter(pl.col("at").is_between(begin, end)).sort("at")
    owing: set[str] = set()
    last = begin
    for at, host, is_sent in within.iter_rows():
        yield "waiting" if owing else "own" if is_sent else "moving", at - last
        last = at
        if host != "client":
            owing = owing | {host} if is_sent else owing - {host}


def _table(found: list[Measured]) -> Iterator[str]:
    yield "| workers | " + " | ".join(str(each.workers) for each in found) + " |"
    yield "|---" + "|--:" * len(found) + "|"
    rows = {
        "MB/s": [f"{each.mb_per_s:.0f}" for each in found],
        "mean, ms": [f"{each.mean_ms:.1f}" for each in found],
        "the gateway's own time": ["-" if each.own is None else f"{each.own:.0%}" for each in found],
        "an OSD owes an answer": ["-" if each.waiting is None else f"{each.waiting:.0%}" for each in found],
        "processor of radosgw, ms per MB": [f"{each.cpu_ms_per_mb['gateway']:.2f}" for each in found],
        "processor of the OSDs, ms per MB": [
            f"{sum(ms for host, ms in each.cpu_ms_per_mb.items() if host != 'gateway'):.2f}" for each in found
        ],
        "bytes into the gateway per byte of objects": [f"{each.in_per_byte:.3f}" for each in found],
        "bytes out of it": [f"{each.out_per_byte:.3f}" for each in found],
        "waits for a reader, by host, ms": [
            "; ".join(f"{host} {ms:,.0f}" for host, ms in each.unread_ms.items() if ms) or "-" for each in found
        ],
    }
    for name, values in rows.items():
        yield f"| {name} | {' | '.join(values)} |"


if __name__ == "__main__":
    main()
