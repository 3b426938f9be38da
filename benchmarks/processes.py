"""One measured process: its duration, its memory, and the last line of its output."""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Ran:
    """One process: its wall and CPU time, its peak memory, and the last line it printed."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    last_line: str


def run(command: list[str]) -> Ran:
    """Run to the end; output goes to a file, so that no pipe slows the tool down."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        if process.returncode:
            raise SystemExit(f"bench: `{' '.join(command[:4])} …` failed:\n{err.read().decode(errors='replace')}")
        out.seek(max(0, out.seek(0, os.SEEK_END) - 4096))
        lines = out.read().decode(errors="replace").splitlines() or [""]
    return Ran(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, lines[-1])
