"""Where the time of messages goes that are not one quick burst, on a real kernel: a server that sends now and then, a
client that produces its body slowly, a server that reads slowly, a download that loses packets."""

import sys
from pathlib import Path

import polars as pl
import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.requests.spans import LEDGER_COLUMNS
from testkit.live_hosts import Pair, far_pair
from tests.helpers.system_tools import or_skip

pytestmark = pytest.mark.live
MS = 1_000_000
SERVER = """
import socket, sys, time
address, read_pause_s, pieces, piece_bytes, pause_s = sys.argv[1], *map(float, sys.argv[2:])
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if read_pause_s:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
listener.bind((address, 8080))
listener.listen(8)
print("ready", flush=True)
connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
got = connection.recv(1000)
time.sleep(read_pause_s)
while not got.endswith(b"END"):
    got = got[-3:] + connection.recv(1 << 16)
body = int(pieces) * int(piece_bytes)
connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % body)
for _ in range(int(pieces)):
    time.sleep(pause_s)
    connection.sendall(b"x" * int(piece_bytes))
connection.recv(1)
"""
CLIENT = """
import socket, sys, time
pieces, piece_bytes, pause_s = map(float, sys.argv[2:])
connection = socket.create_connection((sys.argv[1], 8080))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
body = int(pieces) * int(piece_bytes) + 3
connection.sendall(b"PUT /x HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % body)
for _ in range(int(pieces)):
    time.sleep(pause_s)
    connection.sendall(b"x" * int(piece_bytes))
connection.sendall(b"END")
head, body = connection.recv(1 << 16).split(b"\\r\\n\\r\\n")
left = int(head.split(b": ")[1]) - len(body)
while left > 0:
    left -= len(connection.recv(1 << 16))
"""


def ledger(
    hosts: Pair,
    folder: Path,
    *,
    read_pause_s: float = 0,
    answer: tuple[int, int, float] = (1, 10, 0),
    body: tuple[int, int, float] = (1, 10, 0),
) -> dict[str, int]:
    """The ledger of one request in ns, and its `duration_ns`: `answer` and `body` in so many pieces of so many bytes,
    with a pause in seconds before each."""
    arguments = [str(word) for word in (hosts.b.address, read_pause_s, *answer)]
    serving = hosts.b.running(sys.executable, "-c", SERVER, *arguments, ready="ready")
    with serving, hosts.a.capture(folder) as ours, hosts.b.capture(folder) as theirs:
        hosts.a.run(sys.executable, "-c", CLIENT, hosts.b.address, *map(str, body))
        ours.stop(), theirs.stop()
    url = str(folder / "trace")
    analyse(host_sources([f"{host.name}={folder / host.name}" for host in (hosts.a, hosts.b)]), url)
    (row,) = pl.read_parquet(f"{url}/spans.parquet").to_dicts()
    (exchange,) = pl.read_parquet(f"{url}/exchanges.parquet").to_dicts()
    assert row["critical_ns"] == sum(row[name] for name in LEDGER_COLUMNS)
    took = exchange["response_last_received_trace_ns"] - exchange["request_first_sent_trace_ns"]
    return {name: row[name] for name in LEDGER_COLUMNS} | {"duration_ns": took}


def test_a_server_that_sends_now_and_then_is_not_the_network(hosts: Pair, tmp_path: Path) -> None:
    found = ledger(hosts, tmp_path, answer=(5, 100, 0.1))
    assert found["response_idle_ns"] > 495 * MS
    assert found["duration_ns"] - found["response_idle_ns"] - found["work_ns"] < 10 * MS
    assert found["send_held_ns"] == found["reader_wait_ns"] == 0


def test_a_client_that_produces_its_body_slowly_is_not_the_network(hosts: Pair, tmp_path: Path) -> None:
    found = ledger(hosts, tmp_path, body=(5, 2_000, 0.1))
    assert found["request_idle_ns"] > 490 * MS
    assert found["request_network_ns"] < 10 * MS


def test_a_server_that_reads_late_is_waited_for(hosts: Pair, tmp_path: Path) -> None:
    found = ledger(hosts, tmp_path, read_pause_s=0.5, body=(1, 200_000, 0))
    assert found["reader_wait_ns"] > 400 * MS
    assert found["request_network_ns"] + found["request_idle_ns"] < 90 * MS


def test_a_download_that_is_always_on_its_way_is_the_network(tmp_path: Path) -> None:
    with or_skip(), far_pair(20) as hosts:
        found = ledger(hosts, tmp_path, answer=(1, 60_000, 0))
    assert found["response_idle_ns"] + found["request_idle_ns"] + found["reader_wait_ns"] < 3 * MS
    assert found["response_network_ns"] + found["send_held_ns"] > 20 * MS
    assert found["response_network_ns"] > 15 * MS
