"""How exact link faults are: `python -m benchmarks.fault_links`.

Brings up a cluster of its own and sends between two hosts with each fault in force: single round trips (delay asked for
and seen) and a stream (throughput, and what the relay's process costs). Times are wall-clock and depend on what else
runs; the undisturbed link in the same run is the yardstick.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from storage_cluster.faults import control
from storage_cluster.hosts import cluster

PORT = 7000
SERVER = """
import socket, threading
listening = socket.create_server(("", 7000))
print("ready", flush=True)
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(1 << 20):
        if len(data) == 1:
            connection.sendall(data)
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""
CLIENT = """
import json, socket, sys, time
address, what, amount = sys.argv[1], sys.argv[2], float(sys.argv[3])
connection = socket.create_connection((address, 7000))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if what == "pings":
    times = []
    for _ in range(int(amount)):
        begin = time.perf_counter_ns()
        connection.sendall(b"x")
        connection.recv(1)
        times.append(time.perf_counter_ns() - begin)
        time.sleep(0.002)
    print(json.dumps(times))
else:
    sent, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < amount:
        sent += connection.send(bytes(1 << 18))
    print(json.dumps(sent * 8 / (time.perf_counter() - begin) / 1e6))
"""
FAULTS = (
    ("none", None),
    ("drop 0 % (section, no relay)", {"kind": "drop", "parameters": {"probability": 0.0}}),
    ("delay 0 (section and relay)", {"kind": "delay", "parameters": {"delay_ns": 0}}),
    ("delay 1 ms", {"kind": "delay", "parameters": {"delay_ns": 1_000_000}}),
    ("delay 5 ms", {"kind": "delay", "parameters": {"delay_ns": 5_000_000}}),
    ("delay 20 ms", {"kind": "delay", "parameters": {"delay_ns": 20_000_000}}),
    ("drop 1 %", {"kind": "drop", "parameters": {"probability": 0.01}}),
    ("reorder 5 % by 1 ms", {"kind": "reorder", "parameters": {"probability": 0.05}}),
    ("bandwidth 10 mbit", {"kind": "bandwidth", "parameters": {"rate_bits_per_s": 10_000_000}}),
)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="twintap-links-") as folder:
        state_dir = Path(folder, "cluster")
        cluster.up(state_dir)
        try:
            _measure(state_dir, cluster.status(state_dir))
        finally:
            cluster.down(state_dir)


def _measure(state_dir: Path, running: cluster.ClusterStatus) -> None:
    server = subprocess.Popen(
        [*running.host("storage1").enter, sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    print(f"{'fault':<30} {'round trip, ms: median':>22} {'p90':>7} {'Mbit/s':>7} {'relay, CPU s per s':>18}")
    for name, fault in FAULTS:
        if fault is not None:
            control.ask(state_dir, {"order": "add", "fault": {"target": "storage1", **fault}})
        times_ms = [time_ns / 1e6 for time_ns in _client(running, "pings", 200)]
        before_s = _relay_cpu_s()
        rate = _client(running, "stream", 3)
        cpu = (_relay_cpu_s() - before_s) / 3
        control.ask(state_dir, {"order": "clear", "ids": None})
        median, p90 = statistics.median(times_ms), statistics.quantiles(times_ms, n=10)[-1]
        print(f"{name:<30} {median:>22.3f} {p90:>7.3f} {rate:>7.0f} {cpu:>18.2f}", flush=True)


def _client(running: cluster.ClusterStatus, what: str, amount: float):
    host = running.host("client")
    argv = [*host.enter, sys.executable, "-c", CLIENT, running.host("storage1").addresses[0], what, str(amount)]
    return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def _relay_cpu_s() -> float:
    """CPU seconds of all relay processes."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and b"storage_cluster.faults.relay" in _read(entry / "cmdline"):
            fields = _read(entry / "stat").rpartition(b")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
