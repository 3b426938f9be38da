"""Bytes a packet that an agent sends: segments as pcapng, compressed by zstd alone, and packed as they are sent.

    python -m benchmarks.segment_size [--seconds N]

Two hosts in network namespaces; on each an agent captures what real programs exchange: wrk and nginx with connections
that are kept and with a connection for each request, redis-benchmark and Redis, a long download, and requests at a slow
pace. Segments are at most one second old (those for a collector half a second), so their sizes include what each costs
by itself.
The checksums of the network are not in them (veth leaves them to be filled in); a network card's are, which cost two
bytes for each packet with payload: a second column adds them. Times are of one core, without anything beside.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from collector import _core
from testkit.live_hosts import Host, NoNamespacesError, Pair, pair
from tracer import _capture

PACKET_BLOCK = 6
NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr notice;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {folder}; proxy_temp_path {folder};
 fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
 server {{ listen {address}:8080; root {folder}; }} }}
"""
PACED = """
import http.client, sys, time
connection = http.client.HTTPConnection(sys.argv[1], 8080)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    connection.request("GET", "/small"); connection.getresponse().read(); time.sleep(0.005)
"""


@dataclass(frozen=True)
class Sizes:
    """Of the segments of one host: packets, those with payload, and bytes each way; ns to pack a packet."""

    packets_count: int
    payloads_count: int
    plain_bytes: int
    zstd_bytes: int
    packed_bytes: int
    pack_ns: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.segment_size", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=3)
    seconds = parser.parse_args(argv).seconds
    missing = [name for name in ("nginx", "wrk", "redis-server", "redis-benchmark") if shutil.which(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 1
    print("| traffic | payload | host | packets | pcapng | zstd | packed | … with checksums | ns a packet |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|")
    try:
        with pair() as hosts, tempfile.TemporaryDirectory(prefix="twintap-size-") as folder:
            for payload in ("none", "heads"):
                for name, traffic in _traffic(hosts, Path(folder), seconds).items():
                    _measure(f"{name} | {payload}", hosts, traffic, "--payload", payload)
    except NoNamespacesError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _traffic(hosts: Pair, folder: Path, seconds: int) -> dict[str, Callable[[], None]]:
    """What makes each kind of traffic, by name."""
    a, b = hosts.a, hosts.b
    folder.chmod(0o755)
    (folder / "small").write_bytes(b"s" * 612)
    (folder / "large").write_bytes(bytes(50_000_000))
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, address=b.address))
    nginx = ("nginx", "-e", "stderr", "-c", str(folder / "nginx.conf"))
    redis = ("redis-server", "--bind", b.address, "--protected-mode", "no", "--save", "")
    wrk = ("wrk", "-t1", "-c50", f"-d{seconds}s")
    url = f"http://{b.address}:8080"

    def with_nginx(*argv: str) -> Callable[[], None]:
        return lambda: _beside(b, nginx, "epoll", a, argv)

    bench = ("redis-benchmark", "-h", b.address, "-q", "-r", "100000", "-c", "50", "-n", str(seconds * 20_000))
    return {
        "wrk, nginx": with_nginx(*wrk, f"{url}/small"),
        "wrk, nginx, no keep-alive": with_nginx(*wrk, "-H", "Connection: close", f"{url}/small"),
        "wrk, nginx, 50 MB": with_nginx("wrk", "-t1", "-c2", f"-d{seconds}s", f"{url}/large"),
        "200 requests/s, nginx": with_nginx(sys.executable, "-c", PACED, b.address, str(seconds)),
        "redis-benchmark": lambda: _beside(b, redis, "Ready to accept", a, (*bench, "-t", "get,set")),
    }


def _beside(server_host: Host, server: Sequence[str], ready: str, host: Host, argv: Sequence[str]) -> None:
    with server_host.running(*server, ready=ready):
        host.run(*argv)


def _measure(name: str, hosts: Pair, traffic: Callable[[], None], *options: str) -> None:
    with tempfile.TemporaryDirectory(prefix="twintap-size-") as place:
        folder = Path(place)
        ring = ("--ring-mib", "64", *options)
        with hosts.a.capture(folder, *ring) as one, hosts.b.capture(folder, *ring) as other:
            traffic()
            one.stop()
            other.stop()
        for host in ("a", "b"):
            sizes = [_sizes(path.read_bytes()) for path in sorted((folder / host).glob("*.pcapng"))]
            print(f"| {name} | {host} | {_row(sizes)} |", flush=True)


def _row(sizes: Sequence[Sizes]) -> str:
    count = sum(each.packets_count for each in sizes)
    packed = sum(each.packed_bytes for each in sizes)
    checksums = 2 * sum(each.payloads_count for each in sizes)
    plain, zstd = sum(each.plain_bytes for each in sizes), sum(each.zstd_bytes for each in sizes)
    spent = sum(each.pack_ns for each in sizes)
    cells = (plain / count, zstd / count, packed / count, (packed + checksums) / count)
    return " | ".join([f"{count:,}", *(f"{cell:.1f}" for cell in cells), f"{spent / count:.0f}"])


def _sizes(content: bytes) -> Sizes:
    begun = time.thread_time_ns()
    packed = _capture.pack(content)
    spent = time.thread_time_ns() - begun
    assert _core.unpack(packed, len(content)) == content
    packets, payloads = _packets(content)
    zstd = zstandard.ZstdCompressor(level=3).compress(content)
    return Sizes(packets, payloads, len(content), len(zstd), len(packed), spent)


def _packets(content: bytes) -> tuple[int, int]:
    """How many, and how many with payload: longer at the interface than headers with timestamps."""
    at = count = payloads = 0
    while at + 12 <= len(content):
        kind, length = (int.from_bytes(content[at + skip : at + skip + 4], "little") for skip in (0, 4))
        if kind == PACKET_BLOCK:
            count += 1
            payloads += int.from_bytes(content[at + 24 : at + 28], "little") > 66
        at += length
    return count, payloads


if __name__ == "__main__":
    sys.exit(main())
