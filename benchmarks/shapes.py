"""What a packet costs in traffic of six shapes: `python -m benchmarks.shapes`.

    python -m benchmarks.shapes [--packets 1000000] [--runs 3] [SHAPE…]

Uploads with a connection each; small requests on 10, 1,000 and 100,000 kept connections, interleaved packet by packet;
one bulk stream; uploads of which 1 % is lost and as many segments overtake others; 64 streams of HTTP/2; a SYN flood.
Of each: `tracer replay` as it is typed, from its start to its report, and in turns with it `tcpdump -r F -w /dev/null`
of the same files; CPU time is that of all threads. Matching is timed by itself (`benchmarks.stages match`): with
messages and tables, and pairing alone. Shown are medians. One connection has at most 1,500,000 packets in a file, so
`bulk` and `http2` end at three million. The exit status is 1 if an analysis found other packets, partners, requests or
losses than were written.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from benchmarks.processes import Ran, run
from collector.trace.reading import Trace
from testkit import traffic_shapes, upload_captures
from testkit.traffic_shapes import Written

FLOOD_PACKETS = 2
"""Of each forged address."""


@dataclass(frozen=True)
class Cost:
    """The runs of one shape."""

    name: str
    written: Written
    replays: tuple[Ran, ...]
    readings: tuple[Ran, ...]  # by tcpdump
    matching_s: float
    pairing_s: float  # of it, pairing alone
    faults: tuple[str, ...]

    @property
    def cpu_ns(self) -> float:
        """Of `tracer replay`, for each packet."""
        return median(each.cpu_seconds for each in self.replays) / self.written.packets_count * 1e9

    @property
    def ratio(self) -> float:
        """Of the time by the clock to tcpdump's."""
        return median(each.seconds for each in self.replays) / median(each.seconds for each in self.readings)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; the exit status is that of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=1_000_000, help="packets of each shape, both captures together")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)}; all without any")
    options = parser.parse_args(argv)
    costs = []
    for name in options.shapes or SHAPES:
        with tempfile.TemporaryDirectory(prefix="twintap-shapes-") as folder:
            print(f"shapes: {name}", file=sys.stderr)
            costs.append(_measure(name, Path(folder), options.packets, options.runs))
    print("\n".join(_table(costs)))
    for cost in costs:
        for fault in cost.faults:
            print(f"{cost.name}: {fault}")
    return int(any(cost.faults for cost in costs))


def _uploads(folder: Path, packets_count: int) -> Written:
    made = upload_captures.write(folder, packets_count)
    return Written((made.client, made.server), made.packets_count, made.connections_count)


def _flood(folder: Path, packets_count: int) -> Written:
    path = upload_captures.write_flood(folder, packets_count // FLOOD_PACKETS)
    return Written((path,), packets_count // FLOOD_PACKETS * FLOOD_PACKETS, 0)


def _keep_alive(connections_count: int) -> Callable[[Path, int], Written]:
    return lambda folder, packets_count: traffic_shapes.keep_alive(folder, packets_count, connections_count)


SHAPES: dict[str, Callable[[Path, int], Written]] = {
    "uploads": _uploads,
    "keep-alive-10": _keep_alive(10),
    "keep-alive-1000": _keep_alive(1_000),
    "keep-alive-100000": _keep_alive(100_000),
    "bulk": traffic_shapes.bulk,
    "lossy": traffic_shapes.lossy,
    "http2": traffic_shapes.http2,
    "flood": _flood,
}


def write(name: str, folder: Path, packets_count: int) -> Written:
    """Write the captures of one shape."""
    return SHAPES[name](folder, packets_count)


def _measure(name: str, folder: Path, packets_count: int, runs: int) -> Cost:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # what is measured begins with its parent's peak memory
        written = pool.submit(write, name, folder, packets_count).result()
    files = [str(path) for path in written.files]
    tcpdump = 'for file in "$@"; do tcpdump -n -r "$file" -w /dev/null || exit 1; done'
    replays, readings = [], []
    for number in range(runs):
        trace = str(folder / f"trace-{number}")
        replays.append(run([sys.executable, "-m", "tracer", "replay", "-o", trace, *files]))
        readings.append(run(["sh", "-c", tcpdump, "sh", *files]))
    matched = json.loads(run([sys.executable, "-m", "benchmarks.stages", "match", *files]).last_line)
    found = Trace(str(folder / "trace-0"))
    return Cost(
        name,
        written,
        tuple(replays),
        tuple(readings),
        matched["cpu_seconds"],
        matched["pairing_cpu_seconds"],
        _faults(found, written),
    )


def _faults(found: Trace, written: Written) -> tuple[str, ...]:
    """What the trace holds otherwise than it was written."""
    packets = sum(host.packets_count for host in found.info().hosts)
    states = found.read("hops", ["state"])["state"].value_counts().to_pylist()
    of_state = {each["values"]: each["counts"] for each in states}
    unpaired = of_state.get("unmatched", 0) + of_state.get("outside_window", 0)
    pairs = (
        ("packets", packets, written.packets_count),
        ("requests", found.read("exchanges", ["exchange_id"]).num_rows, written.requests_count),
        ("lost packets", of_state.get("lost", 0), written.lost_count),
        ("packets without a partner", unpaired, 0 if len(written.files) > 1 else written.packets_count),
    )
    return tuple(f"{was:,} {what} were written, {seen:,} found" for what, seen, was in pairs if seen != was)


def _table(costs: Sequence[Cost]) -> list[str]:
    least = min(cost.cpu_ns for cost in costs)
    lines = [
        "| shape | packets | replay, s | tcpdump, s | ratio | CPU ns/packet | to the least "
        "| matching, M/s | pairing, M/s | MiB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    return lines + [
        f"| {cost.name} | {cost.written.packets_count:,} | {median(each.seconds for each in cost.replays):.2f} "
        f"| {median(each.seconds for each in cost.readings):.2f} | {cost.ratio:.1f} | {cost.cpu_ns:,.0f} "
        f"| {cost.cpu_ns / least:.2f} | {cost.written.packets_count / cost.matching_s / 1e6:.1f} "
        f"| {cost.written.packets_count / cost.pairing_s / 1e6:.1f} "
        f"| {max(each.peak_rss_bytes for each in cost.replays) / 2**20:,.0f} |"
        for cost in costs
    ]


if __name__ == "__main__":
    sys.exit(main())
