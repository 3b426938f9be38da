"""What a series costs, period by period: `python -m benchmarks.series_scale`.

    python -m benchmarks.series_scale [--packets 1000000000] [--hours 10] [--folder FOLDER]

Captures of two hosts, an upload for each connection, in files of a minute named as an agent's segments are. They are
written an hour at a time (with a minute more), the hour's trace is made, as `tracer replay --every 1h` makes it, and
removed; its summary stays. So the disk holds one hour, however many there are. For each hour: the clock and the
CPU time, the most memory of the process, the bytes that it wrote and read, and how many requests the series counts by
then; at the end whether that is how many there were.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from collector.analysis import AnalysisOptions
from collector.decode.sources import host_sources
from collector.series.making import PeriodMaker
from collector.series.overview import build_overview
from collector.series.series import Series, period_at
from testkit import upload_captures
from testkit.upload_captures import GROUP, START_NS

HOUR_NS, MINUTES = 3_600 * 10**9, 60
PACKETS_PER_UPLOAD = 44
HEAD = (
    "| hour | packets | requests so far | s | CPU s | CPU µs/packet | MiB, most | GB written | GB read |",
    "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; 1 if a request is missing or counted twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=100_000_000)
    parser.add_argument("--hours", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="where captures and the series go")
    options = parser.parse_args(argv)
    minutes_count = options.hours * MINUTES
    bouts = max(1, round(options.packets / PACKETS_PER_UPLOAD / GROUP / minutes_count))
    print("\n".join(HEAD), flush=True)
    # Another process writes the captures, so that this one's memory is the analysis's.
    with (
        tempfile.TemporaryDirectory(prefix="twintap-series-", dir=options.folder) as folder,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as writer,
    ):
        counts = measure(Path(folder), options.hours, bouts, writer)
    expected = minutes_count * bouts * GROUP
    print(f"requests: {expected:,} made, {counts:,} counted", flush=True)
    return int(counts != expected)


def measure(folder: Path, hours: int, bouts: int, writer: ProcessPoolExecutor) -> int:
    """Make the traces of all hours, each minute with so many groups of uploads; the requests that the series counts."""
    series = Series.make(folder / "series", HOUR_NS)
    maker = PeriodMaker(series, AnalysisOptions())
    begin_ns = -(-START_NS // HOUR_NS) * HOUR_NS
    group_ns = 60 * 10**9 // bouts
    first_bout = -(-(begin_ns - START_NS) // group_ns)
    written = 0
    for hour in range(hours):
        last = min((hour + 1) * MINUTES + 1, hours * MINUTES)
        packets_count = 0
        for minute in range(written, last):
            name = f"segments-{minute + 1:08}.pcapng"
            first = first_bout + minute * bouts
            job = writer.submit(upload_captures.write_part, folder / "captures", first, bouts, group_ns, name)
            packets_count += job.result().packets_count
        written = last
        Path("/proc/self/clear_refs").write_text("5")  # the most memory is counted anew
        began, cpu, io = time.perf_counter(), time.process_time(), _io()
        maker.make(period_at(begin_ns + hour * HOUR_NS, HOUR_NS), host_sources([str(folder / "captures")]))
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        wrote, read = ((now - before) / 1e9 for now, before in zip(_io(), io, strict=True))
        counted = build_overview(series).requests_count
        print(
            f"| {hour + 1} | {packets_count:,} | {counted:,} | {seconds:.0f} | {cpu_s:.0f} "
            f"| {1e6 * cpu_s / packets_count:.2f} | {_peak_kib() >> 10:,} | {wrote:.1f} | {read:.1f} |",
            flush=True,
        )
        series.remove_trace(series.entries()[-1].period)
        for host in (folder / "captures").iterdir():
            for file in sorted(host.iterdir())[:-2]:  # the last minute of this hour and the first of the next one stay
                file.unlink()
    return counted


def _io() -> tuple[int, int]:
    """Bytes that this process wrote and read."""
    found = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(found["wchar"]), int(found["rchar"])


def _peak_kib() -> int:
    """The most resident memory since it was last cleared."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


if __name__ == "__main__":
    sys.exit(main())
