"""Time to list a session of many segments, before and after they are joined, and their bytes on disk.

    python -m benchmarks.session_listing [--segments 170000] [--hosts 2]

The segments are those of a day: each has 40 packets of a real capture (`captures/bench-2-puts`), and they arrived at
equal distances. They are written as the collector stores them; then the collector joins what has aged, and removes what
it joined. A listing is what `GET /api/sessions/SESSION` does; the first one after a start knows nothing yet.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from collector.capture_files import joined
from collector.capture_files.readers import open_capture
from collector.service.ingest import session_status
from collector.service.joining import Joining
from collector.service.under_way import UnderWay
from testkit import capture_files
from tracer.segments import segment_name

CAPTURE = Path(__file__).parents[1] / "captures" / "bench-2-puts" / "proxy.pcapng"
INCARNATION = "20261125T000000-0a1b2c"
PACKETS_COUNT = 40
VARIANTS_COUNT = 50
DAY_NS = 86_400_000_000_000
REPEATS = 7


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.session_listing", description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=170_000)
    parser.add_argument("--hosts", type=int, default=2)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="twintap-listing-") as folder:
        data = Path(folder)
        write_session(data, options.segments, options.hosts)
        print(line_of("as they came", data))
        begun = time.process_time()
        count = Joining(data / "sessions", 10, UnderWay().keep_out).step()
        seconds = time.process_time() - begun
        print(f"{count:,} segments joined in {seconds:.1f} s of CPU time ({seconds / max(count, 1) * 1e6:.0f} us each)")
        print(line_of("joined", data))
    return 0


def write_session(data: Path, count: int, hosts_count: int) -> None:
    """A day's session that ended just now."""
    variants = list(segment_contents())
    ended_ns = time.time_ns() - DAY_NS // 100
    for host in (f"host{number}" for number in range(1, hosts_count + 1)):
        folder = data / "sessions" / "day" / host / INCARNATION
        folder.mkdir(parents=True)
        each = count // hosts_count
        for number in range(1, each + 1):
            path = folder / segment_name(f"{host}-{INCARNATION}", number)
            path.write_bytes(variants[number % len(variants)])
            arrived_ns = ended_ns - (each - number) * (DAY_NS // each)
            os.utime(path, ns=(arrived_ns, arrived_ns))


def segment_contents() -> Iterator[bytes]:
    """Segments of consecutive packets of the capture, as an agent writes them."""
    head = capture_files.section(pairs=((1, b"twintap.host=proxy"), (1, b"twintap.since=5"))) + capture_files.interface(
        pairs=((2, b"eth0"), (9, b"\x09"))
    )
    for number in range(VARIANTS_COUNT):
        first = 1 + number * PACKETS_COUNT
        with open_capture(CAPTURE) as reader:
            packets = reader.copy_packets(range(first, first + PACKETS_COUNT))
        flags = [((2, int(packet.direction).to_bytes(4, "little")),) for packet in packets]
        blocks = [
            capture_files.enhanced_packet(packet.host_ns, packet.data, original_len=packet.original_len, pairs=pairs)
            for packet, pairs in zip(packets, flags, strict=True)
        ]
        if blocks:
            yield head + b"".join(blocks)


def line_of(what: str, data: Path) -> str:
    """How long a listing takes, and how much there is."""
    joined._summary.cache_clear()
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        status = session_status(data, "day")
        times.append((time.perf_counter() - begun) * 1e3)
    files = sum(len(names) for _, _, names in os.walk(data))
    hosts = status.hosts
    segments, size = sum(host.segments_count for host in hosts), sum(host.bytes_count for host in hosts)
    missing = sum(host.missing_count for host in hosts)
    return (
        f"{what:14} {segments:,} segments ({missing} missing) in {files:,} files, {size / 1e6:,.0f} MB: "
        f"first listing {times[0]:.0f} ms, then {statistics.median(times[1:]):.0f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
