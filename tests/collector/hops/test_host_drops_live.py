"""Packets that a host's own firewall drops behind its capture; and what is no such thing: loss and delay on the way,
lost acknowledgements, disorder."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from storage_cluster.faults.relay import Rule
from testkit.live_hosts import Host, Pair, far_pair, pair
from tests.helpers.system_tools import or_skip

pytestmark = pytest.mark.live
SERVER = """
import socket, sys, threading
listener = socket.create_server((sys.argv[1], 8080))
print("ready", flush=True)
def serve(connection):
    got = b""
    while data := connection.recv(1 << 16):
        got += data
        if got.endswith(b"END"):
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 20002\\r\\n\\r\\n" + b"y" * 20002)
            got = b""
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""
CLIENT = """
import socket, sys
for _ in range(int(sys.argv[2])):
    connection = socket.create_connection((sys.argv[1], 8080))
    for _ in range(10):
        body = b"x" * 40000 + b"END"
        connection.sendall(b"PUT /x HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
        left = 20002
        while left > 0:
            left -= len(connection.recv(1 << 16))
    connection.close()
"""
PAYLOAD = "meta length > 500"


@pytest.fixture
def hosts() -> Iterator[Pair]:
    with or_skip(), far_pair(0.5) as both:
        yield both


def rule(host: Host, family: str, chain: str, match: str) -> None:
    """Let the host's packet filter drop some: `match` and `drop` in `chain` (its type, hook and priority)."""
    text = f"table {family} t {{\n chain c {{\n type filter {chain};\n {match} drop\n }}\n}}\n"
    done = subprocess.run([*host.enter, "nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED, no packet filter here: {done.stderr}")


def kinds(hosts: Pair, folder: Path, connections_count: int = 4) -> dict[tuple[str, str | None], dict]:
    """Findings by kind and host, of ten uploads on each connection from `a` to `b`, with answers of 20 kB."""
    with (
        hosts.b.running(sys.executable, "-c", SERVER, hosts.b.address, ready="ready"),
        hosts.a.capture(folder) as ours,
        hosts.b.capture(folder) as theirs,
    ):
        hosts.a.run(sys.executable, "-c", CLIENT, hosts.b.address, str(connections_count))
        ours.stop(), theirs.stop()
    url = str(folder / "trace")
    analyse(host_sources([f"{host.name}={folder / host.name}" for host in (hosts.a, hosts.b)]), url)
    return {(row["kind"], row["host"]): row for row in Trace(url).read("findings").to_pylist()}


def test_what_a_firewall_drops_behind_the_capture_is_named(hosts: Pair, tmp_path: Path) -> None:
    rule(hosts.b, "ip", "hook input priority 0", f"tcp dport 8080 {PAYLOAD} numgen random mod 100 < 2 counter")
    found = kinds(hosts, tmp_path)
    counted = hosts.b.run("nft", "list", "ruleset").stdout
    dropped = int(counted.split("packets ")[1].split()[0])
    finding = found["dropped_in_host", "b"]
    assert finding["severity"] == "warning"
    assert dropped / 2 <= finding["count"] <= dropped
    assert finding["cost_ns"] > 0
    assert finding["connection_id"] is not None
    assert "nft list ruleset" in finding["remedy"]
    assert ("packet_loss", "b") not in found
    assert ("dropped_in_host", "a") not in found


def test_an_answer_that_the_client_drops_is_the_clients(hosts: Pair, tmp_path: Path) -> None:
    rule(hosts.a, "ip", "hook input priority 0", f"tcp sport 8080 {PAYLOAD} numgen random mod 100 < 2")
    found = kinds(hosts, tmp_path)
    assert ("dropped_in_host", "a") in found
    assert ("dropped_in_host", "b") not in found


DISORDER = Rule("", True, True, probability=0.1, delay_ns=4_000_000, jitter_ns=0, overtaken=True, seed=1)
UNEVEN = Rule("", True, True, probability=0.05, delay_ns=60_000_000, jitter_ns=0, overtaken=False, seed=1)


@pytest.mark.parametrize(
    ("lost", "rules"),
    [
        (("lose=0.03:500:100000",), ()),
        (("lose=0.3:60:100",), ()),  # not ARP, without which nothing is reached
        ((), (DISORDER,)),
        (("lose=0.02:0:100000",), (DISORDER,)),
        (("lose=0.05:0:100000",), (UNEVEN,)),
    ],
    ids=["data lost on the way", "acknowledgements lost", "disorder", "loss and disorder", "loss and late packets"],
)
def test_what_happens_on_the_way_is_not_the_hosts(
    tmp_path: Path, lost: tuple[str, ...], rules: tuple[Rule, ...]
) -> None:
    with or_skip(), far_pair(1, lost, rules) as hosts:
        found = kinds(hosts, tmp_path)
    assert not {kind for kind, _ in found} & {"dropped_in_host"}


def test_drops_on_a_link_of_microseconds_are_found(tmp_path: Path) -> None:
    with or_skip(), pair() as hosts:
        rule(hosts.b, "ip", "hook input priority 0", f"tcp dport 8080 {PAYLOAD} numgen random mod 100 < 10 counter")
        found = kinds(hosts, tmp_path, connections_count=16)  # of few drops, chance alone hides half
        counted = hosts.b.run("nft", "list", "ruleset").stdout
    dropped = int(counted.split("packets ")[1].split()[0])
    assert dropped / 2 <= found["dropped_in_host", "b"]["count"] <= dropped
