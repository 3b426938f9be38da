"""What the analysis of periods costs a collector while it receives: `python -m benchmarks.periods_live`.

    python -m benchmarks.periods_live [--minutes 6] [--mbit 6] [--live 10]

Two hosts in network namespaces; redis-benchmark keeps one busy from the other, over a link that lets so many megabits
of requests through a second. An agent on each ships to a collector on one of them, first one without periods, then one
that makes a trace of each minute. Printed are, of each: packets that the agents captured and dropped, the collector's
CPU time a minute with its own processes, their most memory, how late segments arrived at most, and how long at most a
period was due. CPU time is of the whole; `--live 0` leaves out live traces, which otherwise take most of it.

Needs redis (`redis-server`, `redis-benchmark`) and root, for network namespaces and `tc`.
"""

import argparse
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.live_latency import MIB, PORT, STATUS, TOKEN, access_options, shipping_agent
from testkit.live_hosts import TRACER, Host, NoNamespacesError, pair

REDIS_PORT = 6379
SETTLE_SECONDS = 30.0
"""A period is analysed when the minute after it has been received; so long is waited after the last packet."""
NEEDED = ("redis-server", "redis-benchmark", "tc")


@dataclass(slots=True)
class Cost:
    """What was seen of one collector."""

    cpu_seconds: float = 0.0
    seconds: float = 0.0
    most_bytes: int = 0
    most_lag_seconds: float = 0.0
    most_behind_seconds: float = 0.0
    captured_count: float = 0.0
    dropped_count: float = 0.0
    traces_count: float = 0.0

    def look(self, collector: psutil.Process, metrics: str) -> None:
        """Note how it is now."""
        self.most_bytes = max(self.most_bytes, sum(each.memory_info().rss for each in _family(collector)))
        self.most_lag_seconds = max([self.most_lag_seconds, *_values(metrics, "twintap_agent_lag_seconds")])
        behind = _values(metrics, "twintap_collector_periods_behind_seconds")
        self.most_behind_seconds = max([self.most_behind_seconds, *behind])
        self.captured_count = sum(_values(metrics, "twintap_agent_packets_total"))
        self.dropped_count = sum(_values(metrics, "twintap_agent_dropped_packets_total"))
        self.traces_count = sum(_values(metrics, "twintap_collector_periods", 'state="trace"'))

    def row(self, name: str) -> str:
        """As a row of a table in Markdown."""
        return (
            f"| {name} | {self.captured_count:,.0f} | {self.dropped_count:,.0f} "
            f"| {60 * self.cpu_seconds / self.seconds:.1f} "
            f"| {self.most_bytes // MIB:,} | {self.most_lag_seconds:.1f} | {self.traces_count:.0f} "
            f"| {self.most_behind_seconds:.0f} |"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--mbit", type=float, default=6, help="of requests, a second")
    parser.add_argument("--live", type=float, default=10, help="seconds of the live trace; 0 for none")
    options = parser.parse_args()
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if lacking:
        raise SystemExit(f"periods_live: {', '.join(lacking)} not found; on Debian: apt install redis iproute2")
    print("| periods | packets | dropped | CPU s a minute | most MiB | latest segment, s | traces | longest due, s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for name, more in (("none", ()), ("a minute each", ("--period", "1m"))):
        try:
            with tempfile.TemporaryDirectory(prefix="twintap-periods-") as folder, pair() as hosts:
                found = _measure(hosts.a, hosts.b, Path(folder), more, options)
        except NoNamespacesError as error:
            raise SystemExit(f"periods_live: no network namespaces here: {error}") from None
        print(found.row(name), flush=True)


def _measure(client: Host, server: Host, folder: Path, more: tuple[str, ...], options: argparse.Namespace) -> Cost:
    url, cost = f"http://{server.address}:{PORT}", Cost()
    _limit(client, options.mbit)
    where = ("--data", str(folder / "data"), "--listen", f"{server.address}:{PORT}")
    collect = (*TRACER, "collect", *where, *more, "--live-window", str(options.live))
    redis = (
        "redis-server",
        "--bind",
        server.address,
        "--port",
        str(REDIS_PORT),
        "--protected-mode",
        "no",
        "--save",
        "",
    )
    load = (
        "redis-benchmark",
        "-h",
        server.address,
        "-c",
        "20",
        "-l",
        "-q",
        "-d",
        "64",
        "-r",
        "100000",
        "-t",
        "get,set",
    )
    with (
        server.running(*collect, *access_options(folder), ready="collecting at") as running,
        server.running(*redis, ready="Ready to accept"),
        shipping_agent(client, url, folder),
        shipping_agent(server, url, folder),
        subprocess.Popen([*client.enter, *load], stdout=subprocess.DEVNULL) as traffic,
    ):
        collector, began = psutil.Process(running.pid), time.monotonic()
        end = began + 60 * options.minutes
        try:
            while (now := time.monotonic()) < end + SETTLE_SECONDS:
                if now >= end:
                    traffic.kill()
                cost.look(collector, server.run("python3", "-c", STATUS, f"{url}/metrics", TOKEN).stdout)
                time.sleep(2.0)
        finally:
            traffic.kill()
        cost.seconds = time.monotonic() - began
        cost.cpu_seconds = sum(map(_cpu_seconds, _family(collector)))
    return cost


def _limit(host: Host, mbit: float) -> None:
    """Let so much of what is sent to redis through; all else at once."""
    device = ("dev", host.interface)
    host.run("tc", "qdisc", "add", *device, "root", "handle", "1:", "htb", "default", "10")
    host.run("tc", "class", "add", *device, "parent", "1:", "classid", "1:10", "htb", "rate", "10gbit")
    host.run("tc", "class", "add", *device, "parent", "1:", "classid", "1:20", "htb", "rate", f"{mbit}mbit")
    of_redis = ("u32", "match", "ip", "dport", str(REDIS_PORT), "0xffff", "flowid", "1:20")
    host.run("tc", "filter", "add", *device, "protocol", "ip", "parent", "1:", *of_redis)


def _family(process: psutil.Process) -> Iterator[psutil.Process]:
    yield process
    with suppress(psutil.NoSuchProcess):
        yield from process.children(recursive=True)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _values(metrics: str, name: str, label: str = "") -> list[float]:
    lines = re.findall(rf"^{re.escape(name)}(?:{{(.*)}})? (\S+)$", metrics, re.MULTILINE)
    return [float(value) for labels, value in lines if label in labels]


if __name__ == "__main__":
    main()
