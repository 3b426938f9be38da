"""Injects faults into the running service: nothing acknowledged may be lost, nothing false reported.

    python -m benchmarks.faults_of_service [--minutes 20] [--agents 2] [--seed 1] [--rate 40] [--keep FOLDER]

Hosts (network namespaces) around one send numbered requests each to the next, so a host sees about four packets for
each of `--rate`. Their agents send them to a collector; a viewer shows its live trace. For so long, parts are killed,
ended, stopped, their disks filled, their descriptors exhausted, agents' clocks stepped, agents cut off from the
collector, its token rotated; a seed says what and when. Beside, connections to the collector are cut, before and after
a segment was acknowledged (`witness`), and the status of session, live trace and page is compared with what is there
(`watch`). Then all agents end, the session is analysed, and it is judged (`judge`):

- every segment that was acknowledged is in the collector's folder, bit by bit; its packets, counted without our
  readers, are the trace's;
- every request that was sent while an agent surely captured (it was not being started, killed or stopped, and had not
  said that it does not) is in the trace of its host;
- the trace calls no packet lost and no way longer than its error bar allows: nothing was lost and ways are short;
- no statement of a status was wrong, no part failed that nothing was done to, none said anything but plain lines;
- nothing is left behind.

The exit status is 1 if any of this is not so. Needs root and network namespaces.
"""

import argparse
import dataclasses
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.faults_of_service import judge, usage, watch
from benchmarks.faults_of_service.parts import Part
from benchmarks.faults_of_service.service import Service, faults, start
from benchmarks.processes import ROOT
from testkit.live_hosts import Host, NoNamespacesError, star

DATA_DISK_BYTES, SPOOL_DISK = 512 << 20, "size=8m"
PACKET_BYTES = 300
"""At most that a packet takes at the collector: its segment, the live trace and the trace of all."""
PACKETS_A_REQUEST = 4
NUMBERS_A_CLIENT = 10**8
INSIDE = "--inside"
SETTLE_S = 180.0
SHOWN = 12
"""Faults of one kind that are listed."""


def main() -> int:
    """Run, judge, print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, default=2, help="hosts with an agent, 2 or more")
    parser.add_argument("--rate", type=float, default=40, help="requests a second of each host")
    parser.add_argument("--keep", type=Path, help="copy what the collector took in there")
    parser.add_argument(INSIDE, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    return _inside(options) if options.inside else _outside(options.agents)


def _outside(agents_count: int) -> int:
    """Make the hosts, and run this program on the one in the middle, in a mount namespace of its own."""
    try:
        with tempfile.TemporaryDirectory(prefix="twintap-faults-") as folder, star(agents_count) as hosts:
            enter = ("unshare", "--mount", "--propagation", "private", *hosts.hub.enter)
            again = (sys.executable, "-m", "benchmarks.faults_of_service", *sys.argv[1:])
            inside = (INSIDE, folder, json.dumps([dataclasses.asdict(host) for host in hosts.around]))
            return subprocess.run([*enter, *again, *inside], check=False, cwd=ROOT).returncode
    except NoNamespacesError as error:
        raise SystemExit(f"faults_of_service: no network namespaces here: {error}") from None


def _inside(options: argparse.Namespace) -> int:
    folder, around = options.inside
    hosts = [Host(**{**each, "enter": tuple(each["enter"])}) for each in json.loads(around)]
    service = Service(Path(folder), {host.name: host for host in hosts}, options.seed)
    packets_count = options.agents * options.rate * PACKETS_A_REQUEST * options.minutes * 60
    data_bytes = DATA_DISK_BYTES + round(packets_count * PACKET_BYTES)
    for name, disk in service.disks.items():
        disk.place.mkdir()
        size = f"size={data_bytes}" if name == "data" else SPOOL_DISK
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(disk.place)], check=True)
    with ExitStack() as stack:
        _background(stack, service.witness)
        for host in hosts:
            service.traffic.append(_background(stack, _traffic("serve", host.enter, host.address)))
        for name in ("collector", *(f"agent {host.name}" for host in hosts)):
            stack.callback(_kill, service.parts[name])
            start(service, name)
        logs = [_ask(stack, service, number, hosts, options.rate) for number in range(len(hosts))]
        stack.callback(_kill, service.viewer)
        time.sleep(3)
        start(service, "viewer")
        watched, used = watch.Watch(service), usage.Usage(service)
        beside = [threading.Thread(target=each) for each in (watched.run, used.run, used.watch_for_standstills)]
        for thread in beside:
            thread.start()
        try:
            _hurt(service, options)
        finally:
            watched.end()
            used.end()
            for thread in beside:
                thread.join()
        return _judge(service, watched, used, logs, options)


def _ask(
    stack: ExitStack, service: Service, number: int, hosts: Sequence[Host], rate: float
) -> tuple[Path, tuple[str, str]]:
    """Have a host ask the next one; the log of it, and the two that must have its requests."""
    client, server = hosts[number], hosts[(number + 1) % len(hosts)]
    log = service.folder / f"requests-{client.name}"
    arguments = (server.address, str(rate), str(log), str(number * NUMBERS_A_CLIENT))
    service.traffic.append(_background(stack, _traffic("ask", client.enter, *arguments)))
    return log, (client.name, server.name)


def _hurt(service: Service, options: argparse.Namespace) -> None:
    begin = time.time()
    for done in faults(service, random.Random(options.seed), begin + options.minutes * 60):
        print(f"{done.begin - begin:7.1f} s  {done.target} {done.kind} for {done.end - done.begin:.1f} s", flush=True)
    time.sleep(5)


def _traffic(what: str, enter: Sequence[str], *arguments: str) -> Part:
    argv = (*enter, sys.executable, "-m", "benchmarks.faults_of_service.traffic", what, *arguments)
    return Part(f"traffic {what}", lambda: argv, "ready")


def _background(stack: ExitStack, part: Part) -> Part:
    stack.callback(_kill, part)
    if not part.start():
        raise SystemExit(f"{part.name} does not start: {[line.text for line in part.lines]}")
    return part


def _kill(part: Part) -> None:
    if part.is_up:
        part.end(signal.SIGKILL)


def _judge(
    service: Service,
    watched: watch.Watch,
    used: usage.Usage,
    logs: Sequence[tuple[Path, tuple[str, str]]],
    options: argparse.Namespace,
) -> int:
    """End the agents, analyse, judge, print."""
    faults_found: dict[str, list[str]] = {"a status was wrong": watched.wrong}
    faults_found["the traffic ended by itself"] = [
        f"{part.name}: {part.lines[-1].text}" for part in service.traffic if not part.is_up
    ]
    ended = [f"{name}: exit status {status}" for name, status in _agents_ended(service).items() if status]
    faults_found["an agent did not deliver everything"] = ended
    faults_found["acknowledged and lost"] = list(judge.segment_faults(service))
    status, answer = watch.post(service, "/analyse")
    faults_found["the analysis failed"] = [] if status == 200 else [f"{status}: {answer}"]
    sent, must, missing = 0, dict[str, int](), list[str]()
    if status == 200:
        faults_found["said wrongly"] = list(judge.trace_faults(service, answer["trace"]))
        sent, must, missing = judge.missing_requests(service, answer["trace"], logs)
    faults_found["captured and not in the trace"] = missing
    for name in ("collector", "viewer"):
        service.parts[name].end(signal.SIGTERM)
    faults_found["no plain line"] = list(judge.said_faults(service))
    faults_found["left behind"] = list(judge.leftovers(service))
    if options.keep:
        shutil.copytree(service.folder, options.keep, dirs_exist_ok=True)
    _print(service, watched, faults_found, sent, must)
    print("\n| memory, share of a processor | first quarter | second | third | fourth |\n|---|--:|--:|--:|--:|")
    print("\n".join(used.rows()))
    print(f"\nwhile the machine stood still: {'; '.join(used.standstills) or 'never'}")
    return int(any(faults_found.values()))


def _agents_ended(service: Service) -> dict[str, int]:
    """End each agent until it has delivered all; its last exit status."""
    statuses = {}
    for name in (f"agent {host}" for host in service.agents):
        deadline = time.monotonic() + SETTLE_S
        while (status := service.parts[name].end(signal.SIGTERM)) and time.monotonic() < deadline:
            start(service, name)
        statuses[name] = status
    return statuses


def _print(
    service: Service, watched: watch.Watch, found: dict[str, list[str]], sent: int, must: dict[str, int]
) -> None:
    kinds = Counter((done.kind, done.target) for done in service.done)
    print("\n| done | to | times |\n|---|---|--:|")
    for (kind, target), count in sorted(kinds.items()):
        print(f"| {kind} | {target} | {count} |")
    acknowledged = watch.acknowledgements(service)
    segments = {each["name"] for each in acknowledged}
    print(f"\nacknowledgements {len(acknowledged):,} of {len(segments):,} segments; requests sent {sent:,}; ")
    least, most = min(must.values(), default=0), max(must.values(), default=0)
    print(f"surely captured {sum(must.values()):,}, at each host {least:,} to {most:,}")
    print(", ".join(f"{name} {count:,}" for name, count in sorted(watched.counts.items())))
    for part in service.parts.values():
        said = Counter(_without_numbers(line.text) for line in part.lines)
        print(f"\n{part.name}, {len(part.lives)} lives, said:")
        for text, count in said.most_common(SHOWN):
            print(f"  {count:4} {text[:200]}")
    print("\n| judged | faults |\n|---|--:|")
    for what, those in found.items():
        print(f"| {what} | {len(those)} |")
    for what, those in found.items():
        for line in those[:SHOWN]:
            print(f"{what}: {line}")


def _without_numbers(text: str) -> str:
    return "".join("N" if letter.isdigit() else letter for letter in text)


if __name__ == "__main__":
    sys.exit(main())
