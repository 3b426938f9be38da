"""What asking a trace costs: `python -m benchmarks.questions`.

    python -m benchmarks.questions [--packets 10000000] [--folder FOLDER] [--captures FOLDER]

Captures of two hosts (an upload for each connection) are made and analysed, or those given are. Then each command is
run as typed, in a process of its own: the saved queries, `why`, the exports that go over all requests or packets, a
copy without names. For each: the clock and the CPU time, the most memory, the size of what it wrote.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from collector.sql.saved_queries import saved_queries
from testkit import upload_captures

HEAD = ("| command | s | CPU s | MiB, most | MiB written |", "|:--|--:|--:|--:|--:|")
EXPORTS = ("otlp", "har", "mermaid", "pcapng")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where captures and the trace go")
    parser.add_argument("--captures", type=Path, help="analyse these instead")
    options = parser.parse_args(argv)
    print("\n".join(HEAD), flush=True)
    with tempfile.TemporaryDirectory(prefix="twintap-questions-", dir=options.folder) as name:
        folder = Path(name)
        captures = options.captures or folder / "captures"
        if options.captures is None:
            captures.mkdir()
            upload_captures.write(captures, options.packets)
        trace = folder / "trace"
        _measure(folder, "replay", "--quiet", "-o", trace, captures)
        for query in saved_queries():
            _measure(folder, "query", trace, f"@{query}")
        _measure(folder, "why", trace)
        _measure(folder, "why", trace)  # with the index that the first one made
        for form in EXPORTS:
            _measure(folder, "export", trace, "--to", form, "-o", folder / f"out.{form}")
        _measure(folder, "scrub", trace, "-o", folder / "copy")
    return 0


def _measure(folder: Path, *arguments: object) -> None:
    """Run a command of `tracer`, and print its row."""
    words = [str(word) for word in arguments]
    before = {file: file.stat().st_mtime_ns for file in folder.glob("out.*")}
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "tracer", *words], stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    written = sum(file.stat().st_size for file in folder.glob("out.*") if file.stat().st_mtime_ns != before.get(file))
    shown = " ".join(word.replace(str(folder), "…") for word in words)
    failed = "" if process.returncode == 0 else f" (exit {process.returncode})"
    print(
        f"| `{shown}`{failed} | {seconds:.1f} | {used.ru_utime + used.ru_stime:.1f} | {used.ru_maxrss >> 10:,} "
        f"| {written / (1 << 20):.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
