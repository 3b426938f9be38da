"""CPU time of the agent for each packet, beside `tcpdump -w` on the same interface at the same time.

    python -m benchmarks.agent_cpu [--quick]

Two hosts in network namespaces exchange traffic over a veth pair; on one of them the agent and tcpdump both capture all
TCP. Counted is the time both spend in user space and system calls (all threads, from the scheduler's nanoseconds),
from just before the traffic until all of it is on disk. What the kernel spends on copying into either ring is in
neither. Kinds of traffic: requests whose heads are read and redacted, data in super-packets, data split to the MSS.
"""

import argparse
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
from testkit.live_hosts import NoNamespacesError, Pair, pair

RUNS = 3

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
    options = parser.parse_args(argv)
    if shutil.which("tcpdump") is None:
        print("tcpdump is not installed: apt-get install tcpdump", file=sys.stderr)
        return 1
    try:
        with pair() as hosts:
            lines = [_row(kind, hosts) for kind in kinds(1 if options.quick else 10)]
    except (NoNamespacesError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    print("| traffic | packets | dropped by tcpdump | agent, ns a packet | tcpdump -w, ns a packet | agent / tcpdump |")
    print("|---|--:|--:|--:|--:|--:|")
    print("\n".join(lines))
    return 0


def _row(kind: Kind, hosts: Pair) -> str:
    for host in (hosts.a, hosts.b):
        host.run(sys.executable, "-c", OFFLOAD, host.interface, *(["off"] if kind.split else []))
    runs = [_measure(kind, hosts) for _ in range(RUNS)]
    for run in runs:
        assert run.agent_packets_count == run.tcpdump_packets_count + run.tcpdump_dropped_count, run
    agent_ns = median(run.agent_ns / run.agent_packets_count for run in runs)
    tcpdump_ns = median(run.tcpdump_ns / run.tcpdump_packets_count for run in runs)
    dropped_count = sum(run.tcpdump_dropped_count for run in runs)
    return (
        f"| {kind.name} | {runs[0].agent_packets_count:,} | {dropped_count:,} | {agent_ns:,.0f} | {tcpdump_ns:,.0f} "
        f"| {agent_ns / tcpdump_ns:.2f} |"
    )


def _measure(kind: Kind, hosts: Pair) -> Measured:
    with tempfile.TemporaryDirectory(prefix="twintap-agent-") as name, ExitStack() as stack:
        folder = Path(name)
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
        before = cpu_ns(agent.process.pid), cpu_ns(tcpdump.pid)
        _traffic(kind, hosts)
        _settle(folder)
        after = cpu_ns(agent.process.pid), cpu_ns(tcpdump.pid)
        agent.stop()
        tcpdump.terminate()
        assert tcpdump.stdout is not None
        said = tcpdump.stdout.read()
        captured_count, dropped_count = (_count(said, what) for what in ("captured", "dropped by kernel"))
        spent_ns = after[0] - before[0], after[1] - before[1]
        return Measured(*spent_ns, _packets(folder / "a"), captured_count, dropped_count)


def _count(said: str, what: str) -> int:
    found = re.search(rf"(\d+) packets {what}", said)
    assert found is not None, said
    return int(found[1])


def _traffic(kind: Kind, hosts: Pair) -> None:
    arguments = (hosts.b.address, kind.peer_kind, str(kind.count))
    with hosts.b.running(sys.executable, "-c", PEER, "server", *arguments, ready="ready"):
        hosts.a.run(sys.executable, "-c", PEER, "client", *arguments)


def _settle(folder: Path) -> None:
    """Wait until the agent's last segment is closed: both have then written all there was."""
    while not list(folder.glob("a/*.pcapng")) or list(folder.glob("a/*.partial")):
        subprocess.run(["sleep", "0.1"], check=True)
    subprocess.run(["sleep", "1.2"], check=True)


def _packets(folder: Path) -> int:
    count = 0
    for path in sorted(folder.glob("*.pcapng")):
        with open_capture(path) as reader:
            count += sum(len(batch.events["frame"]) for batch in reader.batches())
    return count


def cpu_ns(pid: int) -> int:
    """CPU time of a process, all its threads, in user space and in the kernel."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


if __name__ == "__main__":
    sys.exit(main())
