"""A server that dies with one connection open, and one that cuts a chunked answer short; and what is no such thing."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from testkit.live_hosts import Pair, pair
from tests.collector.hops.test_damaged_live import tcpdumps
from tests.helpers.system_tools import or_skip

pytestmark = pytest.mark.live
SERVER = """
import os, socket, sys, time
listener = socket.create_server((sys.argv[1], 8080))
print("ready", flush=True)
HEAD = b"HTTP/1.1 200 OK\\r\\n"
PIECE = b"5\\r\\nhello\\r\\n"
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(1 << 16):
        path = data.split()[1]
        time.sleep(0.02)
        if path == b"/ok":
            connection.sendall(HEAD + b"Content-Length: 2\\r\\n\\r\\nok")
            continue
        if path == b"/die":
            os._exit(1)
        if path != b"/close":
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\\r\\n\\r\\n" + PIECE)
            time.sleep(0.02)
            connection.sendall(PIECE)
            time.sleep(0.02)
        if path == b"/whole":
            connection.sendall(b"0\\r\\n\\r\\n")
        if path == b"/trailer":
            connection.sendall(b"0\\r\\nSum: 10\\r\\n\\r\\n")
        break
    connection.close()
"""
CLIENT = """
import socket, sys, time
def ask(path):
    try:
        with socket.create_connection((sys.argv[1], 8080)) as connection:
            for each in (b"/ok", path):
                connection.sendall(b"GET " + each + b" HTTP/1.1\\r\\nHost: web\\r\\n\\r\\n")
                got = connection.recv(1 << 16)
            while path != b"/ok" and got:
                got = connection.recv(1 << 16)
    except OSError:
        pass
    time.sleep(0.05)
for path in sys.argv[2:]:
    ask(path.encode())
"""
ENDINGS = ("server_died", "unanswered_request", "connection_reset", "truncated_response", "client_gave_up")


@pytest.fixture
def hosts() -> Iterator[Pair]:
    if shutil.which("tcpdump") is None:
        pytest.skip("NOT TESTED, not installed: tcpdump")
    with or_skip(), pair() as both:
        yield both


def kinds(hosts: Pair, folder: Path, *paths: str, by_agents: bool = False) -> dict[str, str]:
    """What is found when a client asks for these, each on a connection of its own: texts by kind."""
    with hosts.b.running(sys.executable, "-c", SERVER, hosts.b.address, ready="ready"), ExitStack() as stack:
        agents = [stack.enter_context(host.capture(folder)) for host in (hosts.a, hosts.b) if by_agents]
        if not by_agents:
            stack.enter_context(tcpdumps(folder, hosts.a, hosts.b))
        hosts.a.run(sys.executable, "-c", CLIENT, hosts.b.address, *paths)
        for agent in agents:
            agent.stop()
    analyse(host_sources([str(folder)]), str(folder / "trace"))
    rows = Trace(str(folder / "trace")).read("findings").to_pylist()
    return {row["kind"]: row["text"] for row in rows if row["kind"] in ENDINGS}


def test_a_server_that_dies_with_one_connection_open_and_refuses_afterwards(hosts: Pair, tmp_path: Path) -> None:
    found = kinds(hosts, tmp_path, "/ok", "/die", "/ok", "/ok")
    assert "ended 1 connection with " in found["server_died"]
    assert "instead of an answer, and refused 2 connections after that: 1 request failed" in found["server_died"]
    assert "unanswered_request" not in found and "connection_reset" not in found


def test_a_server_that_closes_one_connection_and_goes_on_has_not_died(hosts: Pair, tmp_path: Path) -> None:
    found = kinds(hosts, tmp_path, "/ok", "/close", "/ok")
    assert "closed by the server without an answer" in found["unanswered_request"]
    assert "server_died" not in found


def test_a_server_that_closes_one_connection_and_dies_only_later_has_not_died_then(hosts: Pair, tmp_path: Path) -> None:
    found = kinds(hosts, tmp_path, "/close", "/ok", "/die", "/ok")
    assert "closed by the server without an answer" in found["unanswered_request"]
    assert "ended 1 connection with " in found["server_died"]


def test_a_chunked_answer_that_is_cut_short(hosts: Pair, tmp_path: Path) -> None:
    found = kinds(hosts, tmp_path, "/whole", "/cut", "/whole")
    assert found.keys() == {"truncated_response"}
    assert "1 of 6 requests" in found["truncated_response"]
    assert "the last chunk never arrived, after " in found["truncated_response"]


@pytest.mark.parametrize("path", ["/whole", "/trailer"])
def test_a_whole_chunked_answer_is_not_cut_short(hosts: Pair, tmp_path: Path, path: str) -> None:
    assert not kinds(hosts, tmp_path, path, path)


def test_where_only_heads_are_kept_nothing_is_said_of_chunks(hosts: Pair, tmp_path: Path) -> None:
    assert not kinds(hosts, tmp_path, "/whole", "/cut", "/whole", by_agents=True)
