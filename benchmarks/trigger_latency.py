"""From a trigger to the pinned trace: `python -m benchmarks.trigger_latency [--times 5] [--after 10]`.

Two hosts in network namespaces with a flight recorder each exchange 50 HTTP requests a second; their collector has the
trigger `status:error`, with its defaults but for how soon it may fire again. Again and again a request fails. Printed
is the time from its answer until the trigger fired, from there until the first trace was there (what was before), and
until the whole one (also what comes after, `--after`). Each trace is read: the first must hold the failed request with
both ends, the whole one also packets of the time after.

The recorders send all as their sample (`--sample 10`), so that each failed request is seen at once; with the default of
1 s of each 10, a trigger sees what lasts.
Needs network namespaces, as root or as an ordinary user.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from collector.trace.reading import Trace
from testkit.live_hosts import NoNamespacesError, pair
from testkit.recorded_pair import RecordedPair, record_pair

SECOND_NS = 1_000_000_000
POLL_S = 0.02
PATIENCE_S = 120
WARM_UP_S = 10
GOAL_S = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a trace lacks something, or the goal is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.trigger_latency", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--after", type=float, default=10, help="seconds that are kept after a trigger")
    options = parser.parse_args(argv)
    collect = ("--trigger", "status:error", "--trigger-hold-off", "1", "--trigger-after", f"{options.after:g}")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="twintap-trigger-") as folder,
            pair() as hosts,
            record_pair(hosts, Path(folder), *collect, capture=("--sample", "10")) as both,
        ):
            time.sleep(WARM_UP_S)
            rows = [measure(both, number) for number in range(options.times)]
    except NoNamespacesError as error:
        raise SystemExit(f"trigger_latency: no network namespaces here: {error}") from None
    print("| | median | most |\n|---|--:|--:|")
    names = ("failed answer to trigger", "trigger to first trace", "trigger to whole trace")
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        print(f"| {name} | {statistics.median(column):.1f} s | {max(column):.1f} s |")
    return max(row[1] for row in rows) > GOAL_S


def measure(both: RecordedPair, number: int) -> tuple[float, float, float]:
    """Of one failed request: seconds from its answer to the trigger, and from that to the first and the whole trace."""
    known_count = len(both.windows())
    failed_ns = both.fail(f"req-failed-{number}")

    def newest() -> dict[str, Any]:
        return both.windows()[known_count] if len(both.windows()) > known_count else {}

    wait_for(lambda: newest().get("first_ns") or newest().get("ready_ns"))
    first = newest()
    check(has_failed(both.trace(first)), "the first trace does not hold the failed request at both ends")
    wait_for(lambda: newest().get("ready_ns"))
    whole = newest()
    check(has_failed(both.trace(whole)), "the whole trace does not hold the failed request at both ends")
    lasts_ns = [host.last_host_ns or 0 for host in Trace(both.trace(whole)).info().hosts]
    check(min(lasts_ns) > whole["to_ns"] - 2 * SECOND_NS, "the whole trace lacks what came after")
    opened_ns, first_ns = whole["opened_ns"], whole["first_ns"] or whole["ready_ns"]
    to_first_s, to_whole_s = ((at_ns - opened_ns) / SECOND_NS for at_ns in (first_ns, whole["ready_ns"]))
    return (opened_ns - failed_ns) / SECOND_NS, to_first_s, to_whole_s


def has_failed(trace: str) -> bool:
    """Whether a trace holds an error with both ends."""
    frame = pl.DataFrame(Trace(trace).read("exchanges", ["status", "client_host", "server_host"]))
    found = frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).filter(pl.col("status") == 500)
    return ("a", "b") in found.select("client_host", "server_host").rows()


def wait_for(condition: Callable[[], Any]) -> None:
    """Look until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        check(time.monotonic() < deadline, "no trace came")
        time.sleep(POLL_S)


def check(holds: object, what: str) -> None:
    """End with what is wrong, if something is."""
    if not holds:
        raise SystemExit(f"trigger_latency: {what}")


if __name__ == "__main__":
    sys.exit(main())
