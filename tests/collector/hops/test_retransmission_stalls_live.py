"""Senders that a real kernel makes stand still: each brought about by a small program between two hosts of this
machine, captured by agents, and found; and a program that is merely slow, which is not."""

import sys
from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from testkit.live_hosts import Host, Pair, far_pair, pair
from tests.helpers.system_tools import or_skip

pytestmark = pytest.mark.live
SERVER = """
import socket, sys, time
address, sleep_s, buffer_bytes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if buffer_bytes:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
listener.bind((address, 8080))
listener.listen(8)
print("ready", flush=True)
connection, _ = listener.accept()
time.sleep(sleep_s)
got = b""
while data := connection.recv(1 << 16):
    got += data
    if got.endswith(b"END"):
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
        got = b""
"""
CLIENT = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 8080))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(sys.argv[2]))
for times, size, pause_s in (map(float, word.split(",")) for word in sys.argv[3:]):
    body = b"x" * int(size) + b"END"
    for _ in range(int(times)):
        connection.sendall(b"PUT /x HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body))
        connection.sendall(body[:100])
        time.sleep(pause_s)
        connection.sendall(body[100:])
        connection.recv(1000)
"""

KEPT_CLIENT = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 8080))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for size, pause_s, mark in (word.split(",") for word in sys.argv[2:]):
    body = b"x" * (int(size) // 2) + mark.encode() + b"x" * (int(size) // 2) + b"END"
    connection.sendall(b"PUT /x HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    connection.recv(1000)
    time.sleep(float(pause_s))
"""

CALLER = """
import errno, socket, sys
made = 0
for _ in range(60):
    try:
        connection = socket.create_connection((sys.argv[1], 8080))
    except OSError as error:
        assert error.errno == errno.EADDRNOTAVAIL, error
        break
    connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    connection.recv(1000)
    connection.close()
    made += 1
print(made)
"""
ANSWERER = """
import socket, sys
listener = socket.create_server((sys.argv[1], 8080))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
    connection.recv(1)
    connection.close()
"""


def setting(host: Host, name: str, value: str) -> None:
    """Set one of the host's `net.ipv4` (an ordinary user's PATH need not have sysctl)."""
    host.run(sys.executable, "-c", f"open('/proc/sys/net/ipv4/{name}', 'w').write('{value}')")


def findings_of(hosts: Pair, folder: Path, server: tuple[float, int], client: tuple[str, ...]) -> list[dict]:
    """Findings of what both programs do; `server`: sleeps before it reads, bytes of its buffer (0: the kernel's own);
    `client`: TCP_NODELAY, then uploads as `times,size,pause`."""
    with hosts.b.running(sys.executable, "-c", SERVER, hosts.b.address, *map(str, server), ready="ready"):
        return findings_while(hosts, folder, sys.executable, "-c", CLIENT, hosts.b.address, *client)


def findings_while(hosts: Pair, folder: Path, *argv: str) -> list[dict]:
    """Findings of what host `a` runs."""
    with hosts.a.capture(folder) as ours, hosts.b.capture(folder) as theirs:
        hosts.a.run(*argv)
        ours.stop(), theirs.stop()
    url = str(folder / "trace")
    analyse(host_sources([f"{host.name}={folder / host.name}" for host in (hosts.a, hosts.b)]), url)
    return [row for row in Trace(url).read("findings").to_pylist() if row["severity"] != "info"]


def test_a_message_in_two_writes_waits_for_a_delayed_ack(hosts: Pair, tmp_path: Path) -> None:
    (finding,) = findings_of(hosts, tmp_path, (0, 0), ("0", "5,300,0"))
    assert (finding["severity"], finding["kind"], finding["host"]) == ("warning", "delayed_ack", "a")
    assert finding["count"] >= 3
    assert 35e6 <= finding["cost_ns"] / finding["count"] <= 220e6
    assert finding["span_id"] is not None


def test_a_server_that_does_not_read_closes_its_window(hosts: Pair, tmp_path: Path) -> None:
    first = findings_of(hosts, tmp_path, (0.7, 20_000), ("1", "1,500000,0"))[0]
    assert (first["severity"], first["kind"], first["host"]) == ("warning", "zero_window", "b")
    assert 0.5e9 <= first["cost_ns"] <= 1.5e9


def test_an_application_that_pauses_is_not_held(hosts: Pair, tmp_path: Path) -> None:
    assert findings_of(hosts, tmp_path, (0, 0), ("1", "5,300,0.045", "5,300,0")) == []


def test_a_client_without_a_port_left(tmp_path: Path) -> None:
    """On hosts of its own: a port of this range that an earlier test used would be taken for a minute, and not seen."""
    with or_skip(), pair() as hosts:
        setting(hosts.a, "ip_local_port_range", "41000 41039")
        with hosts.b.running(sys.executable, "-c", ANSWERER, hosts.b.address, ready="ready"):
            (finding,) = findings_while(hosts, tmp_path, sys.executable, "-c", CALLER, hosts.b.address)
    assert (finding["severity"], finding["kind"], finding["host"]) == ("warning", "port_exhaustion", "a")
    assert finding["count"] == 40
    assert "(41000 to 41039)" in finding["text"]


def far_found(folder: Path, *client: str, lost: str = "", server_buffer: int = 0, sack: bool = True) -> dict[str, dict]:
    """Findings by kind, of uploads over a round trip of 40 ms.

    `client`: uploads as `size,pause after,mark within`; `lost`: what the first packet with it is lost for.
    """
    with or_skip(), far_pair(20, (lost,) if lost else ()) as hosts:
        setting(hosts.a, "tcp_congestion_control", "reno")
        setting(hosts.a, "tcp_sack", str(int(sack)))
        words = (hosts.b.address, "0", str(server_buffer))
        with hosts.b.running(sys.executable, "-c", SERVER, *words, ready="ready"):
            argv = (sys.executable, "-c", KEPT_CLIENT, hosts.b.address, *client)
            rows = findings_while(hosts, folder, *argv)
    found = {row["kind"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_lost_last_packet_waits_for_a_timer(tmp_path: Path) -> None:
    found = far_found(tmp_path, "6000,0,", lost="END")
    assert set(found) == {"packet_loss", "tail_loss"}
    assert (found["packet_loss"]["severity"], found["packet_loss"]["count"]) == ("warning", 1)
    tail = found["tail_loss"]
    assert (tail["severity"], tail["host"], tail["count"], tail["cause"]) == ("notice", "a", 1, "packet_loss on b")
    assert 60e6 <= tail["cost_ns"] <= 2e9


def test_a_lost_packet_is_known_by_those_behind_it(tmp_path: Path) -> None:
    found = far_found(tmp_path, "100000,0,", "100000,0,", "60000,0,LOSE", lost="LOSE")
    fast = found["fast_retransmission"]
    assert (fast["host"], fast["count"], fast["cause"]) == ("a", 1, "packet_loss on b")
    assert 35e6 <= fast["cost_ns"] <= 200e6
    assert not {"tail_loss", "retransmission_timeout"} & set(found)


def test_too_few_packets_behind_a_lost_one_leave_it_to_the_timer(tmp_path: Path) -> None:
    found = far_found(tmp_path, "3000,0,LOSE", lost="LOSE", sack=False)
    assert set(found) == {"packet_loss", "retransmission_timeout"}
    timeout = found["retransmission_timeout"]
    assert (timeout["host"], timeout["count"], timeout["cause"]) == ("a", 1, "packet_loss on b")
    assert 200e6 <= timeout["cost_ns"] <= 2e9


def test_a_window_too_small_for_the_way(tmp_path: Path) -> None:
    found = far_found(tmp_path, "200000,0,", server_buffer=16_000)
    assert set(found) - {"zero_window"} == {"small_window"}  # on a busy machine its reader may be late, too
    small = found["small_window"]
    assert (small["severity"], small["host"]) == ("warning", "b")
    assert 0.1e9 <= small["cost_ns"] <= 2e9


def test_a_kept_connection_begins_slowly_again(tmp_path: Path) -> None:
    found = far_found(tmp_path, "800000,0,", "800000,1.5,", "800000,0,")
    slow = found["slow_start_after_idle"]
    assert (slow["severity"], slow["host"]) == ("warning", "a")
    assert slow["cost_ns"] >= 40e6
