"""Captures of a run, as a user would take them: plain `tcpdump -i IF -w FILE`, and `tracer capture --write`.

Both run beside each other on every host, so what they lead to is held against the same truth.
"""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.real_systems.lab import ROOT, Host, Lab, LabError

TCPDUMP, AGENT = "tcpdump", "agent"
BOTH = (TCPDUMP, AGENT)
_TRACER = (sys.executable, "-P", "-m", "tracer")
_SETTLED_S = 1.2
"""Longest that the kernel keeps a packet back from tcpdump (its buffer's timeout is 1 s)."""


@contextmanager
def capturing(lab: Lab, hosts: Iterable[str], folder: Path, by: Iterable[str] = BOTH) -> Iterator[None]:
    """Capture on these hosts, into `folder/tcpdump` and `folder/agent`."""
    wanted = [(lab.hosts[name], kind) for name in hosts for kind in by]
    with running(*((tcpdump if kind == TCPDUMP else agent)(host, folder / kind) for host, kind in wanted)):
        yield


@dataclass(frozen=True)
class Capture:
    """One capture to be run: where, what, and what it prints when it captures."""

    host: Host
    argv: tuple[str, ...]
    ready: str


def tcpdump(host: Host, folder: Path, interface: str = "", *options: str) -> Capture:
    """As a user would: its defaults (microseconds, whole packets) if there are no options."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = interface or ("eth0" if len(host.addresses) == 1 else "any")
    argv = ("tcpdump", "-i", chosen, "-Z", "root", "-w", str(folder / f"{host.name}.pcap"), *options)
    return Capture(host, argv, "listening on")


def agent(host: Host, folder: Path, *options: str) -> Capture:
    """Ours, on all of the host's interfaces unless `options` name others."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = [word for number in range(len(host.addresses)) for word in ("-i", f"eth{number}")]
    chosen = [] if "-i" in options else ours
    argv = (*_TRACER, "capture", *chosen, "--host", host.name, "--write", str(folder), *options)
    return Capture(host, argv, "capturing on")


@contextmanager
def running(*captures: Capture) -> Iterator[None]:
    """All of them capture; they are stopped when what the last packets were has reached them. Raises: LabError."""
    processes = [_start(capture) for capture in captures]
    try:
        for capture, process in zip(captures, processes, strict=True):
            _await(capture, process)
        yield
        time.sleep(_SETTLED_S)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate()


def _start(capture: Capture) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*capture.host.enter, *capture.argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
    )  # fmt: skip


def _await(capture: Capture, process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if capture.ready in line:
            return
    raise LabError(f"{capture.argv[0]} on {capture.host.name} does not capture: {said.strip()}")
