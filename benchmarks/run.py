"""`make bench`: our stages beside tshark, dpkt and tcpdump on the same files, in one run, on this machine.

Each measurement is a process of its own; runs of the tools take turns, so a slow minute hits all of them. Shown are the
median over the runs by the clock and by CPU time (of all threads), its spread, the ratio to `tshark -T fields` and the
peak resident memory; then, of the largest size, where end to end spends its time (`benchmarks.profile`). From the
whole-process times of tshark and tcpdump the time they take on an empty capture is subtracted; our stages and dpkt are
timed inside the process, after imports. The table goes to stdout and, with its raw figures, to `benchmarks/results/`.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from benchmarks import profile, requests_speed, scale
from benchmarks.processes import ROOT, run
from testkit import upload_captures

RESULTS = ROOT / "benchmarks" / "results"

FULL_SIZES = (100_000, 1_000_000, 10_000_000)
QUICK_SIZES = (100_000,)
SCALE_FULL, SCALE_QUICK = 10_000_000, 100_000
"""Packets of the largest capture in the table of `benchmarks.scale`."""
REQUESTS_FULL, REQUESTS_QUICK = 1_000_000, 10_000
"""Exchanges of the largest trace in the table of `benchmarks.requests_speed`."""
SLOW_LIMIT = 1_000_000
"""Above so many packets only ours are measured: the others would take the afternoon."""

TSHARK_FIELDS = {
    "frame": ("number", "time_epoch"),
    "ip": ("src", "dst", "id"),
    "tcp": ("srcport", "dstport", "seq_raw", "ack_raw", "flags", "len", "window_size_value"),
    "tcp.options.timestamp": ("tsval", "tsecr"),
}
"""What our decoder gives as well, HTTP heads aside."""

OURS = {"decode": "twintap decode", "match": "twintap match", "end_to_end": "twintap end to end"}
OTHERS = {"tshark": "tshark -T fields", "dpkt": "dpkt", "tcpdump": "tcpdump -w /dev/null"}
REFERENCE = "tshark"


@dataclass
class Series:
    """All runs of one tool on one size."""

    tool: str
    packets_count: int
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_rss_bytes: int = 0

    @property
    def packets_per_second(self) -> float:
        """Packets a second in the median run."""
        return self.packets_count / median(self.seconds)

    @property
    def packets_per_cpu_second(self) -> float:
        """Packets for each second of one core in the median run: what a busy machine changes least."""
        return self.packets_count / median(self.cpu_seconds)

    @property
    def spread(self) -> float:
        """Longest run over shortest, minus one."""
        return max(self.seconds) / min(self.seconds) - 1


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, keep it; the exit status is that of the process."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure Twintap beside tshark, dpkt and tcpdump.")
    parser.add_argument("--quick", action="store_true", help="one small size, about a minute")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement (default: 3)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="twintap-bench-") as folder:
        sizes = QUICK_SIZES if options.quick else FULL_SIZES
        series = _measure(Path(folder), sizes, options.runs)
        stages = _profile_table(Path(folder))
    flatness = scale.table(SCALE_QUICK if options.quick else SCALE_FULL, 1)
    requests = requests_speed.table(REQUESTS_QUICK if options.quick else REQUESTS_FULL)
    links = _linking_table(options.quick)
    agent = _agent_table(options.quick)
    parts = (_table(series), stages, flatness, requests, links, agent)
    text = "\n".join([_heading(options.runs), *(line for part in parts for line in ("", *part))])
    print(text)
    _keep(text, series)
    return 0


def _measure(folder: Path, sizes: Sequence[int], runs: int) -> list[Series]:
    done: list[Series] = []
    for size in sizes:
        captures = upload_captures.write(folder, size)
        print(f"bench: {captures.packets_count:,} packets", file=sys.stderr)
        tools = {**OURS, **(_installed_tools(OTHERS) if size <= SLOW_LIMIT else {})}
        series = {tool: Series(tool, captures.packets_count) for tool in tools}
        for _ in range(runs):
            for tool, one in series.items():
                _run_once(tool, [captures.client, captures.server], one)
        done += series.values()
    return done


def _installed_tools(tools: dict[str, str]) -> dict[str, str]:
    found = {tool: title for tool, title in tools.items() if tool == "dpkt" or shutil.which(tool)}
    for tool in tools.keys() - found.keys():
        print(f"bench: {tool} is not installed, so it is not measured (apt-get install {tool})", file=sys.stderr)
    return found


def _run_once(tool: str, files: list[Path], series: Series) -> None:
    if tool in OURS or tool == "dpkt":
        ran = run([sys.executable, "-m", "benchmarks.stages", tool, *map(str, files)])
        printed = json.loads(ran.last_line)
        assert printed["packets_count"] == series.packets_count, (
            f"{tool} saw {printed} of {series.packets_count} packets"
        )
        series.seconds.append(printed["seconds"])
        series.cpu_seconds.append(printed["cpu_seconds"])
        series.peak_rss_bytes = max(series.peak_rss_bytes, ran.peak_rss_bytes)
        return
    empty = files[0].parent / "empty.pcap"
    empty.write_bytes(upload_captures.PCAP_NS_HEADER)
    idle = run(_reading(tool, empty))
    parts = [run(_reading(tool, file)) for file in files]
    series.seconds.append(sum(part.seconds - idle.seconds for part in parts))
    series.cpu_seconds.append(sum(part.cpu_seconds - idle.cpu_seconds for part in parts))
    series.peak_rss_bytes = max(series.peak_rss_bytes, *(part.peak_rss_bytes for part in parts))


def _reading(tool: str, file: Path) -> list[str]:
    if tool == "tcpdump":
        return ["tcpdump", "-n", "-r", str(file), "-w", "/dev/null"]
    fields = [part for layer, names in TSHARK_FIELDS.items() for name in names for part in ("-e", f"{layer}.{name}")]
    return ["tshark", "-n", "-r", str(file), "-T", "fields", *fields]


def _table(series: list[Series]) -> list[str]:
    lines = [
        f"| packets | tool | packets/s | packets/CPU-s | median s | spread | × {OTHERS[REFERENCE]} | peak RSS |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    reference = {one.packets_count: one.packets_per_second for one in series if one.tool == REFERENCE}
    for one in series:
        base = reference.get(one.packets_count)
        ratio = f"{one.packets_per_second / base:.1f}" if base else "–"
        lines.append(
            f"| {one.packets_count:,} | {(OURS | OTHERS)[one.tool]} | {one.packets_per_second:,.0f} "
            f"| {one.packets_per_cpu_second:,.0f} "
            f"| {median(one.seconds):.3f} | {one.spread:.0%} | {ratio} "
            f"| {one.peak_rss_bytes / 2**20:,.0f} MiB |"
        )
    return lines


def _profile_table(folder: Path) -> list[str]:
    """Where end to end spends its time, on the captures written last."""
    files = [str(folder / f"{host}.pcap") for host in (upload_captures.CLIENT, upload_captures.SERVER)]
    found = json.loads(run([sys.executable, "-m", "benchmarks.profile", *files]).last_line)
    return profile.table(found)


def _agent_table(quick: bool) -> list[str]:
    """The agent's CPU for each packet beside `tcpdump -w`'s."""
    return _of_namespaces("Agent", ["benchmarks.agent_cpu", *(["--quick"] if quick else [])])


def _linking_table(quick: bool) -> list[str]:
    """How often links are right, on one recording; the whole table takes an hour."""
    return [] if quick else _of_namespaces("Links", ["benchmarks.linking", "--quick"])


def _of_namespaces(what: str, module: list[str]) -> list[str]:
    """What a benchmark prints that needs namespaces; where there are none, that it was not measured."""
    command = [sys.executable, "-m", *module]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return [f"{what}: not measured ({reason})"]
    return done.stdout.strip().splitlines()


def _heading(runs: int) -> str:
    names = (line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name"))
    machine = f"{os.cpu_count()} × {next(names, platform.machine())}, Linux {platform.release()}"
    return f"{time.strftime('%Y-%m-%d')}, {machine}, Python {platform.python_version()}, median of {runs}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def _keep(text: str, series: list[Series]) -> None:
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / time.strftime("%Y%m%d-%H%M%S")
    stem.with_suffix(".md").write_text(text + "\n")
    stem.with_suffix(".json").write_text(json.dumps([asdict(one) for one in series], indent=1) + "\n")
    print(f"\nkept in {stem.with_suffix('.md').relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
