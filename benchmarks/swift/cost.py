"""The processor time that each of Swift's servers spends on a PUT, by size.

On the hosts of `paper-2016` (`TWINTAP_SWIFT_TOPOLOGY=paper-2016`), which have one replica and a network that does not
split, what that topology says of a request and of a MB (`[host.processor]`) is held against this.
"""

import collections
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from benchmarks.swift import hosts

SIZES = (1000, 1_000_000)
CONCURRENCY = (1, 8)
_SERVER = re.compile(r"swift-(proxy|object|container|account)-server")
_PATIENCE_S = 120.0


def measure(rounds: int, duration_s: float) -> None:
    """Set Swift up, measure in rounds, print, and take it down."""
    hosts.up(daemons=False)
    try:
        for size in SIZES * rounds:
            _load("PREPARE", size)
            for concurrency in CONCURRENCY:
                before = _used_ms()
                found = json.loads(_load("PUT", size, concurrency, duration_s))
                count = found["requests_count"] * (duration_s + 1) / duration_s  # without those of the warm-up second
                each = "  ".join(f"{name} {(ms - before[name]) / count:.2f}" for name, ms in _used_ms().items())
                click.echo(f"PUT {size:>9,} B c={concurrency}  {each}  ms of a core")
    finally:
        hosts.down()


def _load(method: str, size: int, concurrency: int = 1, duration_s: float = 0) -> bytes:
    environment = hosts.environment()
    access = [environment[name] for name in ("ST_AUTH", "ST_USER", "ST_KEY")]
    argv = [sys.executable, "-m", "benchmarks.swift.load", *access, method, str(size), str(concurrency)]
    return subprocess.run(
        [*hosts.load().enter("client"), *argv, str(duration_s)],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},  # entering a host loses the directory
        timeout=_PATIENCE_S,
    ).stdout


def _used_ms() -> Mapping[str, float]:
    """Server to the processor time of its processes so far."""
    used: dict[str, float] = collections.defaultdict(float)
    for _, line in hosts.processes(hosts.load()):
        pid, _, command = line.partition(" ")
        if found := _SERVER.search(command):
            fields = Path("/proc", pid, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            used[found[1]] += 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used
