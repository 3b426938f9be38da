"""How soon a packet is shown as an arrow, and how much memory live analysis takes: `python -m benchmarks.live_latency`.

    python -m benchmarks.live_latency [--seconds 60] [--rate 300] [--window 10] [--mib 64]

Two hosts in network namespaces exchange small HTTP requests at an even rate over connections that live a few seconds.
An agent on each ships to a collector on one of them. Beside, this program looks at the live trace a hundred times a
second: the latency of a hop is from its send stamp (all here have one clock) to when a trace that holds it has been
read. Printed are its median, 95th percentile and maximum, over all hops paired after the first five seconds; the
collector's resident memory over time; and what the collector says of its rounds.

Needs network namespaces, as root or as an ordinary user.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from collector.trace.reading import Trace
from collector.trace.schema import HopState
from testkit.live_hosts import TRACER, Capturing, Host, NoNamespacesError, Pair, pair
from tracer.errors import InputError

TOKEN, SESSION = "benchmark", "live"
PORT = 8710
POLL_SECONDS = 0.01
WARM_UP_SECONDS = 5.0
MIB = 1 << 20

SERVER = """
import socketserver, sys
class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    def handle(self):
        while self.request.recv(65536):
            self.request.sendall(b"HTTP/1.1 201 Created\\r\\nContent-Length: 0\\r\\n\\r\\n")
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
server = Server((sys.argv[1], 8080), Handler)
print("ready", flush=True)
server.serve_forever()
"""

CLIENT = """
import socket, sys, time
address, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
head = "PUT /v1/a/c/o{0} HTTP/1.1\\r\\nHost: s\\r\\nX-Trans-Id: tx{0:09d}\\r\\nContent-Length: 500\\r\\n\\r\\n"
open_sockets, began = {}, time.monotonic()
print("ready", flush=True)
for number in range(int(rate * seconds)):
    time.sleep(max(0, began + number / rate - time.monotonic()))
    place = number % 8
    if number % (8 * 97) < 8 and place in open_sockets:
        open_sockets.pop(place).close()
    if place not in open_sockets:
        open_sockets[place] = socket.create_connection((address, 8080))
        open_sockets[place].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    open_sockets[place].sendall(head.format(number).encode() + b"x" * 500)
    open_sockets[place].recv(65536)
print(f"{number + 1} requests in {time.monotonic() - began:.1f} s", flush=True)
"""

STATUS = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
print(urllib.request.urlopen(request).read().decode())
"""


@dataclass
class Seen:
    """What was seen of the live trace so far."""

    latencies_ns: list[np.ndarray] = field(default_factory=list)
    newest_ns: int = 0
    rss_bytes: list[int] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    created_ns: int = 0

    def look(self, trace: str, measured: bool) -> None:
        """Note the hops that were not in the trace before."""
        try:
            info, hops, seen_ns = Trace(trace).read_unchanged(lambda info: (info, _hops(trace), time.time_ns()))
        except InputError:  # there is none yet
            return
        if info.created_ns == self.created_ns:
            return
        self.created_ns = info.created_ns
        paired = hops.filter(pl.col("state").cast(pl.String) == HopState.MATCHED)
        new = paired.filter(pl.col("receive_trace_ns") > self.newest_ns)
        self.newest_ns = max(self.newest_ns, paired["receive_trace_ns"].max() or 0)
        if measured:
            self.latencies_ns.append(seen_ns - new["send_trace_ns"].to_numpy())
            for state, count in hops.group_by(pl.col("state").cast(pl.String)).len().iter_rows():
                self.states[state] = self.states.get(state, 0) + count


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=300, help="requests a second")
    parser.add_argument("--window", type=float, default=10)
    parser.add_argument("--mib", type=int, default=64, help="segments in the window")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="twintap-live-") as folder, pair() as hosts:
            _measure(hosts, Path(folder), options)
    except NoNamespacesError as error:
        raise SystemExit(f"live_latency: no network namespaces here: {error}") from None


def _measure(hosts: Pair, folder: Path, options: argparse.Namespace) -> None:
    url = f"http://{hosts.b.address}:{PORT}"
    collect = (*TRACER, "collect", "--data", str(folder / "data"), "--listen", f"{hosts.b.address}:{PORT}")
    live = ("--live-window", str(options.window), "--live-mib", str(options.mib))
    with (
        hosts.b.running(*collect, *access_options(folder), *live, ready="collecting at") as collector,
        hosts.b.running(sys.executable, "-c", SERVER, hosts.b.address, ready="ready"),
        shipping_agent(hosts.a, url, folder),
        shipping_agent(hosts.b, url, folder),
    ):
        traffic = (sys.executable, "-c", CLIENT, hosts.b.address, str(options.rate), str(options.seconds))
        with hosts.a.running(*traffic, ready="ready") as client:
            seen, began = Seen(), time.monotonic()
            trace = str(folder / "data" / "sessions" / SESSION / "live")
            while client.poll() is None:
                passed = time.monotonic() - began
                seen.look(trace, passed > WARM_UP_SECONDS)
                if passed > len(seen.rss_bytes):
                    seen.rss_bytes.append(_resident_bytes(collector.pid))
                time.sleep(POLL_SECONDS)
        status = hosts.b.run(sys.executable, "-c", STATUS, f"{url}/api/sessions/{SESSION}/live", TOKEN).stdout
        _print(options, seen, json.loads(status))


def access_options(folder: Path) -> tuple[str, ...]:
    """The options with which a collector and its agents have one token; within our own namespaces without TLS."""
    file = folder / "token"
    file.write_text(TOKEN)
    return "--token-file", str(file), "--plain-http"


@contextmanager
def shipping_agent(host: Host, url: str, folder: Path) -> Iterator[Capturing]:
    """`tracer capture` on a host that sends what it sees to the collector at `url`, while the context lasts."""
    shipping = (
        "--collector",
        url,
        *access_options(folder),
        "--session",
        SESSION,
        "--spool",
        str(folder / f"spool-{host.name}"),
    )
    argv = (*TRACER, "capture", "-i", host.interface, "--host", host.name, *shipping)
    with Capturing(host, argv) as running:
        yield running
        running.stop()


def _hops(trace: str) -> pl.DataFrame:
    return pl.DataFrame(Trace(trace).read("hops", ["state", "send_trace_ns", "receive_trace_ns"]))


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def _print(options: argparse.Namespace, seen: Seen, status: dict[str, object]) -> None:
    latencies = np.concatenate(seen.latencies_ns) / 1e9
    p50, p95, most = np.percentile(latencies, [50, 95, 100])
    print(f"{options.rate:g} requests/s for {options.seconds:g} s, window {options.window:g} s or {options.mib} MiB")
    print(f"packet to hop, {len(latencies):,} hops: p50 {p50:.2f} s, p95 {p95:.2f} s, max {most:.2f} s")
    print(f"within 2 s: {100 * (latencies <= 2).mean():.2f} %")
    print(f"hops by state, summed over the rounds seen: {seen.states}")
    memory = [resident // MIB for resident in seen.rss_bytes]
    print(f"collector's memory, MiB: {memory[:: max(1, len(memory) // 6)]}, most {max(memory)}")
    names = (
        "rounds_count",
        "cut_count",
        "covered_ns",
        "packets_count",
        "bytes_count",
        "slow_rounds_count",
        "last_round_ns",
        "arrival_lag_ns",
        "begun_before_count",
        "dropped_count",
    )
    print(", ".join(f"{name} {status[name]}" for name in names))


if __name__ == "__main__":
    main()
