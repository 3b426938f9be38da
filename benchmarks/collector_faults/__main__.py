"""Injects faults into one of two collectors of a session, and counts what became of requests, packets and segments.

    python -m benchmarks.collector_faults [--only TEXT]

Two hosts (network namespaces) with an agent each; the collectors share a data directory or have one each. The first is
the choice of the first host's agent, and where they share a directory the one that makes live traces and joins. One
request after another goes from one host to the other. Counted are the requests that the client sent and those that each
host's capture in the trace has; packets as the agents say that they captured them, in the trace, and in the segments
(read without the project's readers); segments that were acknowledged, that are stored, and that both collectors have.
*Went on* is the time from the fault until the agent says that segments go to the other collector.

Needs network namespaces, and root for the full disk. The exit status is 1 if a packet was lost or doubled, or a request
is not there.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.collector_faults.scene import Counts, Process, Scene, run_collectors
from testkit.live_hosts import NoNamespacesError, pair

STOPPED_S, DOWN_S, QUIET_S = 10.0, 4.0, 4.0
KILLS = 8
BETWEEN_KILLS_S = 1.3
COLUMNS = (
    "data",
    "done to the first collector",
    "went on",
    "requests sent",
    "seen at each host",
    "packets",
    "in the trace",
    "lost",
    "doubled",
    "segments acknowledged",
    "stored",
    "at both",
)


@dataclass(frozen=True)
class Fault:
    """What is done; `inject` does it, and says after how many seconds the agent went on to the other collector."""

    text: str
    is_shared: bool
    inject: Callable[[Scene], float | None]
    small_disk: str = ""


def main() -> int:
    """Run all faults, print a table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="of the faults, those with this text")
    wanted = parser.parse_args().only
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|---|---|{'--:|' * (len(COLUMNS) - 2)}", flush=True)
    are_whole = [_run(fault) for fault in FAULTS if wanted in fault.text]
    return 0 if all(are_whole) else 1


def _run(fault: Fault) -> bool:
    """Inject a fault, print its row; whether nothing was lost or doubled."""
    if fault.small_disk and os.geteuid() != 0:
        print(f"| each its own | {fault.text} | not tried: a small disk needs root |")
        return True
    try:
        with tempfile.TemporaryDirectory(prefix="twintap-faults-") as folder, pair() as hosts:
            scene = Scene(hosts, Path(folder), is_shared=fault.is_shared, small_disk=fault.small_disk)
            with run_collectors(scene) as end:
                scene.wait_for_more()
                went_on_s = fault.inject(scene)
                time.sleep(QUIET_S)
                found = end()
    except NoNamespacesError as error:
        raise SystemExit(f"collector_faults: no network namespaces here: {error}") from None
    print(_row(fault, went_on_s, found), flush=True)
    requests = {found.requests_seen.get(host) for host in ("a", "b")}
    return found.captured == found.in_trace == found.stored and requests == {found.requests_sent}


def _row(fault: Fault, went_on_s: float | None, found: Counts) -> str:
    data = "one" if fault.is_shared else "each its own"
    went_on = "" if went_on_s is None else f"{went_on_s:.1f} s"
    seen = " / ".join(f"{found.requests_seen.get(host, 0):,}" for host in ("a", "b"))
    counts = (found.captured, found.in_trace, found.lost, found.surplus_count, found.segments_sent, found.segments)
    numbers = " | ".join(f"{count:,}" for count in counts)
    at_both = "" if fault.is_shared else f"{found.held_twice:,}"
    return f"| {data} | {fault.text} | {went_on} | {found.requests_sent:,} | {seen} | {numbers} | {at_both} |"


def _seconds_until_said(process: Process, text: str, act: Callable[[], object]) -> float:
    """From an act until a process has said something once more."""
    before, begin = sum(text in line for line in process.lines), time.monotonic()
    act()
    while sum(text in line for line in process.lines) == before:
        assert time.monotonic() - begin < 60, process.lines
        time.sleep(0.01)
    return time.monotonic() - begin


def _nothing(_scene: Scene) -> None:
    time.sleep(DOWN_S)


def _kill(scene: Scene) -> float:
    first = scene.collectors[0]
    went_on_s = _seconds_until_said(scene.agents["a"], "meanwhile", lambda: first.end(signal.SIGKILL))
    time.sleep(DOWN_S)
    first.start("collecting at")
    return went_on_s


def _kill_again_and_again(scene: Scene) -> None:
    for number in range(KILLS):
        victim = scene.collectors[number % 2]
        victim.end(signal.SIGKILL)
        time.sleep(BETWEEN_KILLS_S)
        victim.start("collecting at")
        time.sleep(BETWEEN_KILLS_S)


def _stop(scene: Scene) -> float:
    first = scene.collectors[0]
    went_on_s = _seconds_until_said(scene.agents["a"], "meanwhile", lambda: first.send(signal.SIGSTOP))
    time.sleep(max(0.0, STOPPED_S - went_on_s))
    first.send(signal.SIGCONT)
    return went_on_s


def _fill(scene: Scene) -> None:
    scene.wait_for_line(scene.agents["a"], "no space left on the disk")
    scene.wait_for_more()


def _end(scene: Scene) -> float:
    first = scene.collectors[0]
    return _seconds_until_said(scene.agents["a"], "meanwhile", first.end)


FAULTS = (
    Fault("nothing", True, _nothing),
    Fault(f"killed (-9), started again {DOWN_S:.0f} s later", True, _kill),
    Fault(f"stopped for {STOPPED_S:.0f} s (SIGSTOP)", True, _stop),
    Fault("ended for good (SIGTERM)", True, _end),
    Fault(f"killed (-9) and started {KILLS} times, it and the other in turn", True, _kill_again_and_again),
    Fault("nothing", False, _nothing),
    Fault(f"killed (-9), started again {DOWN_S:.0f} s later", False, _kill),
    Fault(f"stopped for {STOPPED_S:.0f} s (SIGSTOP)", False, _stop),
    Fault(f"killed (-9) and started {KILLS} times, it and the other in turn", False, _kill_again_and_again),
    Fault("its disk is full (256 KiB)", False, _fill, small_disk="256k"),
)


if __name__ == "__main__":
    sys.exit(main())
