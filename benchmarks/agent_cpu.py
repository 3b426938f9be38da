"""CPU time of the agent for each packet, beside `tcpdump -w` on the same interface at the same time.

    python -m benchmarks.agent_cpu [--quick] [--collector]

Two hosts in network namespaces exchange traffic over a veth pair; on one of them the agent and tcpdump both capture all
TCP. Counted is the time both spend in user space and system calls (all threads, from the scheduler's nanoseconds),
from just before the traffic until all of it is on disk. What the kernel spends on copying into either ring is in
neither. Kinds of traffic: requests whose heads are read and redacted, data in super-packets, data split to the MSS.
With `--collector` the agent delivers to a collector on the same host, by loopback, instead of writing to a folder; then
its compression and its requests are counted, too, and the bytes on loopback, both directions, headers included.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from collector.capture_files.readers import open_capture
from testkit.live_hosts import TRACER, Capturing, Host, NoNamespacesError, Pair, pair

RUNS = 3
COLLECTOR = "127.0.0.1:8710"

PEER = """
import socket, sys
HEAD = (b"PUT /v1/AUTH_test/photos/o HTTP/1.1\\r\\nHost: proxy:8080\\r\\nX-Trans-Id: tx0123456789abcdef\\r\\n"
        b"X-Auth-Token: AUTH_tk0123456789abcdef0123456789\\r\\nUser-Agent: bench\\r\\nContent-Length: 0\\r\\n\\r\\n")
ANSWER = b"HTTP/1.1 201 Created\\r\\nX-Trans-Id: tx0123456789abcdef\\r\\nContent-Length: 0\\r\\n\\r\\n"
role, address, kind, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
if role == "server":
    listener = socket.create_server((address, 8080))
    print("ready", flush=True)
    peer, _ = listener.accept()
else:
    peer = socket.create_connection((address, 8080))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if kind == "requests":
    mine, theirs = (HEAD, len(ANSWER)) if role == "client" else (ANSWER, len(HEAD))
    for _ in range(count):
        if role == "client":
            peer.sendall(mine)
        peer.recv(theirs, socket.MSG_WAITALL)
        if role == "server":
            peer.sendall(mine)
elif role == "client":
    block = bytes(1 << 18)
    for _ in range(count):
        peer.sendall(block)
    peer.shutdown(socket.SHUT_WR)
    peer.recv(1)
else:
    while peer.recv(1 << 20):
        pass
"""


OFFLOAD = """
import sys
from storage_cluster.hosts.offload import set_offload
offload = sys.argv[2:] != ["off"]
set_offload(sys.argv[1], tso=offload, gso=offload, gro=True)
"""


@dataclass(frozen=True)
class Kind:
    """A kind of traffic: `count` requests, or blocks of 256 KiB."""

    name: str
    peer_kind: str
    count: int
    split: bool  # by the sender's TCP, to the MSS
    agent_options: tuple[str, ...] = ()
    tcpdump_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One run: CPU ns of each, and packets that each wrote."""

    agent_ns: int
    tcpdump_ns: int
    agent_packets_count: int
    tcpdump_packets_count: int
    tcpdump_dropped_count: int
    wire_bytes: int


def kinds(scale: int) -> tuple[Kind, ...]:
    """Return what is measured; `scale` 1 is quick."""
    headers = {"agent_options": ("--payload", "none"), "tcpdump_options": ("-s", "96")}
    return (
        Kind("requests", "requests", 10_000 * scale, split=False),
        Kind("requests, headers only", "requests", 10_000 * scale, split=False, **headers),
        Kind("data, super-packets", "data", 2_000 * scale, split=False),
        Kind("data, MSS", "data", 400 * scale, split=True),
        Kind("data, MSS, headers only", "data", 400 * scale, split=True, **headers),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.agent_cpu", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the traffic")
    parser.add_argument("--collector", action="store_true", help="the agent delivers to one")
    options = parser.parse_args(argv)
    if shutil.which("tcpdump") is None:
        print("tcpdump is not installed: apt-get install tcpdump", file=sys.stderr)
        return 1
    try:
        with pair() as hosts:
            lines = [_row(kind, hosts, options.collector) for kind in kinds(1 if options.quick else 10)]
    except (NoNamespacesError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    wire = " bytes a packet on the wire |" if options.collector else ""
    print("| traffic | packets | dropped by tcpdump | agent, ns a packet | tcpdump -w, ns a packet | ratio |" + wire)
    print("|---|--:|--:|--:|--:|--:|" + ("--:|" if wire else ""))
    print("\n".join(lines))
    return 0


def _row(kind: Kind, hosts: Pair, delivers: bool) -> str:
    for host in (hosts.a, hosts.b):
        host.run(sys.executable, "-c", OFFLOAD, host.interface, *(["off"] if kind.split else []))
    runs = [_measure(kind, hosts, delivers) for _ in range(RUNS)]
    for run in runs:
        assert run.agent_packets_count == run.tcpdump_packets_count + run.tcpdump_dropped_count, run
    agent_ns = median(run.agent_ns / run.agent_packets_count for run in runs)
    tcpdump_ns = median(run.tcpdump_ns / run.tcpdump_packets_count for run in runs)
    dropped_count = sum(run.tcpdump_dropped_count for run in runs)
    wire = median(run.wire_bytes / run.agent_packets_count for run in runs)
    return (
        f"| {kind.name} | {runs[0].agent_packets_count:,} | {dropped_count:,} | {agent_ns:,.0f} | {tcpdump_ns:,.0f} "
        f"| {agent_ns / tcpdump_ns:.2f} |" + (f" {wire:.1f} |" if delivers else "")
    )


def _measure(kind: Kind, hosts: Pair, delivers: bool) -> Measured:
    with tempfile.TemporaryDirectory(prefix="twintap-agent-") as name, ExitStack() as stack:
        folder = Path(name)
        if delivers:
            agent = _delivering(stack, hosts.a, folder, kind.agent_options)
        else:
            agent = stack.enter_context(hosts.a.capture(folder, "--ring-mib", "64", *kind.agent_options))
        argv = (
            "tcpdump",
            "-p",
            "-n",
            "-i",
            "va",
            "-B",
            "65536",
            "-w",
            str(folder / "t.pcap"),
            *kind.tcpdump_options,
            "tcp",
        )
        tcpdump = stack.enter_context(hosts.a.running(*argv, ready="listening on"))
        before = cpu_ns(agent.process.pid), cpu_ns(tcpdump.pid), _loopback_bytes(hosts.a)
        _traffic(kind, hosts)
        _settle(folder, delivers)
        after = cpu_ns(agent.process.pid), cpu_ns(tcpdump.pid), _loopback_bytes(hosts.a)
        agent.stop()
        tcpdump.terminate()
        assert tcpdump.stdout is not None
        said = tcpdump.stdout.read()
        captured_count, dropped_count = (_count(said, what) for what in ("captured", "dropped by kernel"))
        spent_ns = after[0] - before[0], after[1] - before[1]
        return Measured(*spent_ns, _packets(folder), captured_count, dropped_count, after[2] - before[2])


def _delivering(stack: ExitStack, host: Host, folder: Path, options: Sequence[str]) -> Capturing:
    """An agent that delivers to a collector on its own host."""
    collect = ("collect", "--data", str(folder / "data"), "--listen", COLLECTOR, "--no-token")
    stack.enter_context(host.running(*TRACER, *collect, ready="collecting at"))
    capture = ("capture", "-i", host.interface, "--host", host.name, "--session", "s", "--ring-mib", "64")
    to = ("--collector", f"http://{COLLECTOR}", "--spool", str(folder / "spool"))
    return stack.enter_context(Capturing(host, (*TRACER, *capture, *to, *options)))


def _loopback_bytes(host: Host) -> int:
    """Sent by loopback since the host is there."""
    (found,) = json.loads(host.run("ip", "-s", "-j", "link", "show", "lo").stdout)
    return int(found["stats64"]["tx"]["bytes"])


def _count(said: str, what: str) -> int:
    found = re.search(rf"(\d+) packets {what}", said)
    assert found is not None, said
    return int(found[1])


def _traffic(kind: Kind, hosts: Pair) -> None:
    arguments = (hosts.b.address, kind.peer_kind, str(kind.count))
    with hosts.b.running(sys.executable, "-c", PEER, "server", *arguments, ready="ready"):
        hosts.a.run(sys.executable, "-c", PEER, "client", *arguments)


def _settle(folder: Path, delivers: bool) -> None:
    """Wait until the last segment is closed, and delivered if it is to be: both have then written all there was."""
    waiting = ("*.partial", "spool/**/*.pcapng") if delivers else ("*.partial",)
    while not list(folder.rglob("*.pcapng")) or any(list(folder.rglob(each)) for each in waiting):
        subprocess.run(["sleep", "0.1"], check=True)
    subprocess.run(["sleep", "1.2"], check=True)


def _packets(folder: Path) -> int:
    count = 0
    for path in sorted(folder.rglob("*.pcapng")):
        with open_capture(path) as reader:
            count += sum(len(batch.events["frame"]) for batch in reader.batches())
    return count


def cpu_ns(pid: int) -> int:
    """CPU time of a process, all its threads, in user space and in the kernel."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


if __name__ == "__main__":
    sys.exit(main())
