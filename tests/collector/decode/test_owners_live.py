"""Which processes own connections: agents on two hosts, servers that answer with their own pid, and clients that print
theirs. So what a trace says is compared with what is true."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from testkit.live_hosts import Host, Pair, container

pytestmark = pytest.mark.live
SERVER = """
import os, signal, socket, sys
address, kind = sys.argv[1:]
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def listen(shared=False):
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((address, 7500))
    made.listen(64)
    return made
def answer(taken):
    taken.sendall(str(os.getpid()).encode().ljust(8))
    while taken.recv(100):
        pass
    taken.close()
def accept(listener):
    while True:
        taken, _ = listener.accept()
        if os.fork() == 0:  # the child serves it, and only the child has it
            answer(taken)
            os._exit(0)
        taken.close()
def accept_alone(listener):
    while True:
        answer(listener.accept()[0])
def keep(listener):
    kept = []
    while True:
        kept.append(listener.accept()[0])
        if os.fork() == 0:
            answer(kept[-1])
            os._exit(0)
if kind in ("workers", "reuseport"):
    listener = None if kind == "reuseport" else listen()
    for _ in range(2):
        if os.fork() == 0:
            own = listener or listen(shared=True)
            os.write(1, b"worker\\n")
            accept_alone(own)
    print("ready", flush=True)
    signal.pause()
listener = listen()
print("ready", flush=True)
{"fork": accept, "kept": keep, "alone": accept_alone}[kind](listener)
"""
CLIENT = """
import json, os, socket, sys, time
address, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
found = []
for _ in range(count):
    with socket.create_connection((address, 7500)) as made:
        answer = made.recv(8)
        found.append((made.getsockname()[1], int(answer)))
        time.sleep(seconds)
ticks = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
print(json.dumps({"pid": os.getpid(), "start_ticks": ticks, "servers": found}))
"""


def boot_ns() -> int:
    """When this system was started, as the kernel says it."""
    (line,) = (line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    return int(line.split()[1]) * 1_000_000_000


HELD_S = 2.6
"""Longer than the last look for a connection's owner."""


def owners_and_truth(
    hosts: Pair,
    folder: Path,
    kind: str,
    *clients: tuple[int, float],
    options: tuple[str, ...] = ("--owners", "processes"),
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run a server, and clients that make so many connections and hold each for so many seconds, all at once.

    Returns: the rows of `connections`, and for each client its pid and the port and server's pid of each connection."""
    server = (sys.executable, "-c", SERVER, hosts.b.address, kind)
    with (
        hosts.b.running(*server, ready="ready") as serving,
        hosts.a.capture(folder, *options) as ours,
        hosts.b.capture(folder, *options) as theirs,
    ):
        argv = (*hosts.a.enter, sys.executable, "-c", CLIENT, hosts.b.address)
        running = [
            subprocess.Popen([*argv, str(count), str(seconds)], stdout=subprocess.PIPE, text=True)
            for count, seconds in clients
        ]
        truths = [json.loads(each.communicate(timeout=60)[0]) for each in running]
        ours.stop(), theirs.stop()
        subprocess.run(["pkill", "-P", str(serving.pid)], check=False)
    url = str(folder / "trace")
    analyse(host_sources([f"{host.name}={folder / host.name}" for host in (hosts.a, hosts.b)]), url)
    return Trace(url).read("connections").to_pylist(), truths


@pytest.mark.parametrize("kind", ["alone", "workers", "reuseport", "fork"])
def test_the_process_that_has_a_connections_socket_owns_it(hosts: Pair, tmp_path: Path, kind: str) -> None:
    rows, truths = owners_and_truth(hosts, tmp_path, kind, *[(1, HELD_S)] * (1 if kind == "alone" else 3))
    by_port = {row["client_port"]: row for row in rows}
    for truth in truths:
        ((port, server_pid),) = truth["servers"]
        row = by_port[port]
        assert (row["client_pid"], row["client_owner_evidence"]) == (truth["pid"], "socket")
        assert (row["server_pid"], row["server_owner_evidence"]) == (server_pid, "socket")
        assert row["client_exe"] == row["server_exe"] == os.path.realpath(sys.executable)
        assert row["server_user"] == row["client_user"] == "root" or os.geteuid() != 0
        assert row["client_process_start_host_ns"] == boot_ns() + truth["start_ticks"] * 10_000_000


def test_several_processes_that_have_a_socket_have_no_pid(hosts: Pair, tmp_path: Path) -> None:
    ((row, *_), _) = owners_and_truth(hosts, tmp_path, "kept", (1, HELD_S))
    assert row["server_pid"] is None
    assert (row["server_exe"], row["server_owner_evidence"]) == (os.path.realpath(sys.executable), "socket")


def test_of_short_connections_nothing_wrong_is_said(hosts: Pair, tmp_path: Path) -> None:
    rows, (truth,) = owners_and_truth(hosts, tmp_path, "workers", (50, 0))
    servers, by_port = dict(truth["servers"]), {row["client_port"]: row for row in rows}
    assert len(by_port) == 50
    for port, row in by_port.items():
        assert row["client_pid"] in (None, truth["pid"])
        assert row["server_pid"] in (None, servers[port])
    programs = {row[f"{side}_exe"] for row in rows for side in ("client", "server")}
    assert programs - {None} == {os.path.realpath(sys.executable)}


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: what root gives up; we are not root")
def test_without_more_rights_users_are_said_and_processes_counted(hosts: Pair, tmp_path: Path) -> None:
    rows, _ = owners_and_truth(hosts, tmp_path, "alone", (1, HELD_S), options=())
    (row,) = rows
    assert (row["client_process"], row["client_pid"], row["client_user"]) == (None, None, "root")
    assert (row["server_process"], row["server_pid"], row["server_user"]) == (None, None, "root")
    counters = {counter.name: counter.severity for counter in Trace(str(tmp_path / "trace")).info().counters}
    assert counters["owners_unreadable"] == "info"


def test_an_agent_that_shall_not_say_it_does_not(hosts: Pair, tmp_path: Path) -> None:
    rows, _ = owners_and_truth(hosts, tmp_path, "alone", (1, 0.2), options=("--owners", "none"))
    assert {row[name] for row in rows for name in row if "owner" in name or "process" in name} == {None}
    assert b"twintap.owner" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.pcapng"))


@pytest.fixture
def inside(hosts: Pair) -> Iterator[Host]:
    """A container on `hosts.b`, which `hosts.a` reaches by that host."""
    with container(hosts.b) as made:
        hosts.a.run(*f"ip route add {made.address}/32 via {hosts.b.address}".split())
        try:
            yield made
        finally:
            hosts.a.run(*f"ip route delete {made.address}/32".split())


@pytest.mark.parametrize("interface", ["vc", "any"])
def test_a_process_in_a_container_is_seen_from_its_host(
    hosts: Pair, inside: Host, tmp_path: Path, interface: str
) -> None:
    """Also one that came after the agent, and by a connection that began from there."""
    with (
        hosts.a.capture(tmp_path, "--owners", "processes") as ours,
        hosts.b.capture(tmp_path, "--owners", "processes", "-i", interface) as theirs,
        inside.running(sys.executable, "-c", SERVER, inside.address, "alone", ready="ready"),
    ):
        asking = (sys.executable, "-c", CLIENT, inside.address, "1", str(HELD_S))
        truth = json.loads(hosts.a.run(*asking).stdout)
        ours.stop(), theirs.stop()
    url = str(tmp_path / "trace")
    analyse(host_sources([f"{host.name}={tmp_path / host.name}" for host in (hosts.a, hosts.b)]), url)
    (row,) = Trace(url).read("connections").to_pylist()
    assert (row["client_pid"], row["server_pid"]) == (truth["pid"], truth["servers"][0][1])
    assert row["server_owner_evidence"] == "socket"
    assert row["server_exe"] == os.path.realpath(sys.executable)
