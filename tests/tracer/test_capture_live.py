"""The agent on real interfaces: every packet once, in the right direction, with nothing secret on disk.

Each test makes its own namespaces; it skips, aloud, where that is not allowed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import dpkt
import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Dot1Q, Ether

from collector.capture_files.readers import open_capture
from collector.capture_files.records import Direction
from collector.service.ingest import session_status
from collector.service.recording import Cluster, ClusterHost, record
from testkit.live_hosts import TRACER, Capturing, Host, Pair, pair
from tests.helpers.system_tools import or_skip
from tracer.agent import AGAIN_SECONDS
from tracer.shipping import END_SECONDS

pytestmark = pytest.mark.live

SECRETS = (b"SECRET-TOKEN", b"SECRET-SIG", b"SECRET-COOKIE", b"SECRET-BODY")
SEND_FRAME = """
import socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
tap.bind((sys.argv[1], 0))
tap.send(bytes.fromhex(sys.argv[2]))
"""
FORWARD = """
import socket, sys, threading
def copy(source, target):
    while more := source.recv(65536):
        target.sendall(more)
    target.shutdown(socket.SHUT_WR)
door = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    one, _ = door.accept()
    other = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    threading.Thread(target=copy, args=(one, other), daemon=True).start()
    threading.Thread(target=copy, args=(other, one), daemon=True).start()
"""
MIB = 1 << 20
MSS = 1448
MLD_REPORTS = 4
"""Most of them in a test: the kernel sends some within seconds after an interface is up (RFC 3810 §9)."""

needs_tcpdump = pytest.mark.skipif(
    shutil.which("tcpdump") is None or os.geteuid() != 0,
    reason="NOT TESTED: tcpdump is not installed, or we are not root (in a user namespace it cannot drop privileges)",
)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Pair]:
    with ExitStack() as stack:
        with or_skip():
            made = stack.enter_context(pair())
        yield made


def packets(folder: Path) -> list[dict[str, int]]:
    """All events of a host's segments, in order, as rows."""
    rows: list[dict[str, int]] = []
    for path in sorted(folder.rglob("*.pcapng")):
        with open_capture(path) as reader:
            for batch in reader.batches():
                names = list(batch.events)
                rows += [dict(zip(names, row, strict=True)) for row in zip(*batch.events.values(), strict=True)]
    return rows


def tcpdump(host: Host, path: Path, interface: str):
    return host.running(
        *("tcpdump", "-p", "-n", "-U", "-i", interface, "-B", "16384", "--immediate-mode"),
        *("--time-stamp-precision=nano", "-w", str(path), "tcp"),
        ready="listening on",
    )


def tcpdump_keys(path: Path) -> Counter[tuple[int, int, int, int, int, int]]:
    """What identifies a packet: ports, seq, ack, flags, original length."""
    found: Counter[tuple[int, int, int, int, int, int]] = Counter()
    with path.open("rb") as file:
        for _, frame in dpkt.pcap.Reader(file):
            tcp = dpkt.ethernet.Ethernet(frame).data.data
            found[tcp.sport, tcp.dport, tcp.seq, tcp.ack, tcp.flags, len(frame)] += 1
    return found


def agent_keys(rows: list[dict[str, int]]) -> Counter[tuple[int, int, int, int, int, int]]:
    return Counter(
        (row["src_port"], row["dst_port"], row["seq"], row["ack"], row["flags"], row["original_len"]) for row in rows
    )


@needs_tcpdump
def test_every_packet_that_tcpdump_saw_beside_it_in_the_right_direction(hosts: Pair, tmp_path: Path) -> None:
    seen = {host.name: tmp_path / f"{host.name}.pcap" for host in (hosts.a, hosts.b)}
    with (
        hosts.a.capture(tmp_path) as agent_a,
        hosts.b.capture(tmp_path) as agent_b,
        tcpdump(hosts.a, seen["a"], "va"),
        tcpdump(hosts.b, seen["b"], "vb"),
    ):
        hosts.exchange(1, 100_000, 4 * MIB)
        said = agent_a.stop() + agent_b.stop()
    assert said.count("none dropped") == 2, said
    for name, own_port_is in (("a", "dst_port"), ("b", "src_port")):
        rows = packets(tmp_path / name)
        assert agent_keys(rows) == tcpdump_keys(seen[name])
        assert max(row["payload_len"] for row in rows) > 10 * MSS, "TSO's super-packets go over the veth whole"
        for row in rows:
            assert row["direction"] == (Direction.SEND if row[own_port_is] == 8080 else Direction.RECEIVE)
            assert row["captured_len"] <= min(row["original_len"], 4352)


def test_no_secret_and_no_body_reaches_the_disk(hosts: Pair, tmp_path: Path) -> None:
    with hosts.a.capture(tmp_path) as agent:
        hosts.exchange(1, 50_000)
        agent.stop()
    content = b"".join(path.read_bytes() for path in (tmp_path / "a").iterdir())
    for visible in (
        b"PUT /o?temp_url_sig=xxxxxxxxxx&size=1 HTTP/1.1",
        b"X-Auth-Token: xxxxxxxxxxxx\r\n",
        b"tx-visible",
    ):
        assert visible in content
    assert [secret for secret in SECRETS if secret in content] == []


@pytest.mark.parametrize(("payload", "longest"), [("none", 0), ("100", 100)])
def test_other_payload_policies(hosts: Pair, tmp_path: Path, payload: str, longest: int) -> None:
    with hosts.a.capture(tmp_path, "--payload", payload) as agent:
        hosts.exchange(50_000)
        agent.stop()
    rows = packets(tmp_path / "a")
    kept = [row["payload_len"] - (row["original_len"] - row["captured_len"]) for row in rows]
    assert max(kept) == longest
    content = b"".join(path.read_bytes() for path in (tmp_path / "a").iterdir())
    assert [secret for secret in SECRETS[:3] if secret in content] == []


def test_statistics_add_up_to_the_packets(hosts: Pair, tmp_path: Path) -> None:
    """Over all segments: a packet may be counted in one and, still in the ring then, be written to the next."""
    with hosts.a.capture(tmp_path) as agent:
        hosts.exchange(MIB)
        agent.stop()
    counted = Counter[str]()
    for path in (tmp_path / "a").iterdir():
        with open_capture(path) as reader:
            counted["decoded"] += sum(len(batch.events["frame"]) for batch in reader.batches())
            (interface,) = reader.interfaces
            counted["packets"] += interface.packets_count
            counted["received"] += interface.received_count or 0
            counted["dropped"] += interface.dropped_count or 0
            assert reader.host == "a"
            assert "10.9.0.1" in {record.address for record in reader.names}
    assert counted["decoded"] > 10
    assert (counted["packets"], counted["dropped"]) == (counted["decoded"], 0)
    others = counted["received"] - counted["packets"]  # IPv6 with extension headers is judged by the agent: MLD reports
    assert 0 <= others <= MLD_REPORTS


def test_a_pretended_clock_error_is_in_every_stamp(hosts: Pair, tmp_path: Path) -> None:
    hour_ns = 3_600_000_000_000
    begin_ns = time.time_ns()
    with hosts.a.capture(tmp_path, "--clock-error", f"offset_ns={hour_ns}") as agent:
        hosts.exchange(MIB)
        agent.stop()
    stamps = [row["host_ns"] for row in packets(tmp_path / "a")]
    assert len(stamps) > 10
    assert begin_ns + hour_ns < min(stamps) <= max(stamps) < time.time_ns() + hour_ns


@needs_tcpdump
def test_loopback_shows_each_packet_once(hosts: Pair, tmp_path: Path) -> None:
    seen = tmp_path / "lo.pcap"
    local = Host("a", "127.0.0.1", "lo", hosts.a.enter)
    with local.capture(tmp_path) as agent, tcpdump(local, seen, "lo"):
        Pair(local, local).exchange(1, MIB)
        agent.stop()
    assert agent_keys(packets(tmp_path / "a")) == tcpdump_keys(seen)


def test_several_interfaces_in_one_file(hosts: Pair, tmp_path: Path) -> None:
    local = Host("a", "127.0.0.1", "lo", hosts.a.enter)
    with hosts.a.capture(tmp_path, "-i", "va", "-i", "lo") as agent:
        hosts.exchange(1)
        Pair(local, local).exchange(1)
        agent.stop()
    interfaces: set[int] = set()
    for path in (tmp_path / "a").iterdir():
        with open_capture(path) as reader:
            interfaces |= {int(index) for batch in reader.batches() for index in batch.events["interface"]}
            assert [interface.name for interface in reader.interfaces] == ["va", "lo"]
    assert interfaces == {0, 1}


@pytest.mark.parametrize("expression", [(), ("tcp", "port", "8080")])
def test_tagged_packets_keep_their_tag(hosts: Pair, tmp_path: Path, expression: tuple[str, ...]) -> None:
    """The sender's kernel leaves the tag in the frame, the receiver's takes it out: the capture shows the same."""
    tagged = Ether(dst="ff:ff:ff:ff:ff:ff") / Dot1Q(vlan=5) / IP(src="10.9.5.1", dst="10.9.5.2") / TCP(sport=8080)
    with hosts.a.capture(tmp_path, *expression) as agent_a, hosts.b.capture(tmp_path, *expression) as agent_b:
        for frame in (bytes(tagged), bytes(tagged / "no message head")):
            hosts.a.run(sys.executable, "-c", SEND_FRAME, "va", frame.hex())
        said = agent_a.stop() + agent_b.stop()
    assert said.count("2 packets") == 2, said
    for name, direction in (("a", Direction.SEND), ("b", Direction.RECEIVE)):
        rows = packets(tmp_path / name)
        assert [(row["direction"], row["captured_len"]) for row in rows] == [(direction, 58), (direction, 58)]
        assert [row["original_len"] for row in rows] == [len(tagged), len(tagged) + 15]
        content = b"".join(path.read_bytes() for path in (tmp_path / name).iterdir())
        assert content.count(bytes(tagged)[:20]) == 2


def test_a_filter_keeps_what_it_says(hosts: Pair, tmp_path: Path) -> None:
    with hosts.a.capture(tmp_path, "src", "port", "8080") as agent:
        hosts.exchange(1)
        agent.stop()
    rows = packets(tmp_path / "a")
    assert {row["src_port"] for row in rows} == {8080}


def test_segments_rotate_while_traffic_goes_on(hosts: Pair, tmp_path: Path) -> None:
    with hosts.a.capture(tmp_path) as agent:
        first = tmp_path / "a" / "a-000001.pcapng"
        while not first.exists():  # traffic, until the first segment is a second old and closed
            hosts.exchange(1)
        hosts.exchange(1)
        agent.stop()
    names = [path.name for path in sorted((tmp_path / "a").iterdir())]
    assert names[:2] == ["a-000001.pcapng", "a-000002.pcapng"]
    assert len(packets(tmp_path / "a")) > 20


def test_a_killed_agent_leaves_nothing_that_trips_the_next(hosts: Pair, tmp_path: Path) -> None:
    with hosts.a.capture(tmp_path, "--payload", "1000") as agent:
        hosts.exchange(1)
        while not list((tmp_path / "a").glob("*.partial")):
            hosts.exchange(1)
        agent.process.kill()
    with hosts.a.capture(tmp_path) as agent:
        hosts.exchange(1)
        agent.stop()
    left = [path.name for path in sorted((tmp_path / "a").iterdir())]
    assert left
    assert all(name.endswith(".pcapng") for name in left)
    assert packets(tmp_path / "a")


def test_an_interface_that_goes_down_is_reported_and_captured_again(hosts: Pair, tmp_path: Path) -> None:
    with hosts.a.capture(tmp_path) as agent:
        hosts.a.run("ip", "link", "set", "va", "down")
        assert "interface va is down" in agent.line()
        hosts.a.run("ip", "link", "set", "va", "up")
        hosts.exchange(1)
        assert "none dropped" in agent.stop()
        assert agent.process.returncode == 0
    assert len(packets(tmp_path / "a")) > 5


def test_an_interface_that_is_removed_ends_the_capture_and_keeps_what_came(hosts: Pair, tmp_path: Path) -> None:
    hosts.a.run("ip", "link", "add", "gone", "type", "veth", "peer", "name", "gone2")
    with hosts.a.capture(tmp_path, "-i", "gone") as agent:
        hosts.a.run("ip", "link", "del", "gone")
        said = agent.rest()
        assert agent.process.returncode == 2
    assert said.splitlines()[-1].endswith(
        "Z ERROR twintap: interface gone was removed; what was captured until then is kept"
    )
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["a-000001.pcapng"]


def test_a_full_disk_stops_the_capture_and_keeps_what_was_whole(hosts: Pair, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    script = (
        f'mount -t tmpfs -o size=2m small {small} && {{ "$@"; status=$?; cp -r {small}/a {tmp_path}/; exit $status; }}'
    )
    mounted = Host("a", hosts.a.address, "va", (*hosts.a.enter, "unshare", "--mount", "sh", "-c", script, "sh"))
    with mounted.capture(small, "--payload", "60000") as agent:
        hosts.exchange(4 * MIB, 4 * MIB)
        said = agent.rest()
        assert agent.process.returncode == 2
    assert f" ERROR twintap: no space left on the disk of {small}/a; free some space" in said.splitlines()[-1]
    left = sorted((tmp_path / "a").iterdir())
    assert [path.name for path in left] == [f"a-{number:06d}.pcapng" for number in range(1, len(left) + 1)]
    rows = packets(tmp_path / "a")
    assert sum(row["captured_len"] for row in rows) > MIB
    with open_capture(left[-1]) as reader:
        list(reader.batches())
        assert [counter for counter in reader.counters if counter.severity != "info"] == []


def test_missing_privilege_and_interface_are_one_line(hosts: Pair, tmp_path: Path) -> None:
    argv = [*TRACER, "capture", "-i", "lo", "--write", str(tmp_path)]
    plain = ["setpriv", "--bounding-set=-net_raw", *argv] if os.geteuid() == 0 else argv
    refused = subprocess.run(plain, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("tracer: the kernel refused a packet socket: CAP_NET_RAW is missing; run as root")
    missing = hosts.a.run(*TRACER, "capture", "-i", "eth7", "--write", str(tmp_path), check=False)
    assert missing.returncode == 2
    assert missing.stderr == "tracer: no interface eth7; there are: lo, va\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("interface", ["lo", "va"])
def test_an_interface_without_hardware_timestamps_is_refused_with_what_it_offers(
    hosts: Pair, tmp_path: Path, interface: str
) -> None:
    """A card that has them is not here: this is what the kernel answers for loopback and veth."""
    argv = (*TRACER, "capture", "-i", interface, "--write", str(tmp_path), "--timestamps", "hardware")
    refused = hosts.a.run(*argv, check=False)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"tracer: interface {interface} has software timestamps only; "
        "give --timestamps software; no interface of this host has hardware timestamps\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: what root gives up; we are not root")
@pytest.mark.parametrize(
    ("mode", "owners", "more"), [(0o700, "users", 0), (0o555, "users", 1 << 1), (0o700, "processes", 1 << 2 | 1 << 19)]
)
def test_an_agent_keeps_the_right_to_packet_sockets_alone(
    hosts: Pair, tmp_path: Path, mode: int, owners: str, more: int
) -> None:
    """Where root alone could not write, CAP_DAC_OVERRIDE (1) stays beside CAP_NET_RAW (13); to see processes
    CAP_DAC_READ_SEARCH (2) and CAP_SYS_PTRACE (19)."""
    folder = tmp_path / "captures"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    folder.chmod(mode)
    if mode == 0o700:
        os.chown(folder, 0, 0)
    agent = Capturing(
        hosts.a, (*TRACER, "capture", "-i", "va", "--host", "a", "--write", str(folder), "--owners", owners)
    )
    with agent:
        hosts.exchange(1)
        threads = [path.read_text() for path in Path(f"/proc/{agent.process.pid}/task").glob("*/status")]
        agent.stop()
    assert len(threads) > 1
    for text in threads:
        held = dict(re.findall(r"^(Cap\w+|NoNewPrivs):\t(\w+)$", text, re.MULTILINE))
        assert {int(held[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {1 << 13 | more}
        assert {held["CapInh"], held["CapAmb"]} == {"0" * 16}
        assert held["NoNewPrivs"] == "1"
    assert list(folder.glob("a/*.pcapng"))


def test_recording_two_hosts_while_a_command_runs(hosts: Pair, tmp_path: Path) -> None:
    a, b = (ClusterHost(host.name, (host.interface, "lo"), host.enter) for host in (hosts.a, hosts.b))
    cluster = Cluster("a", {"NUMBER": "5"}, (a, b))
    done = record(
        cluster, [], ["sh", "-c", f"ip address show va > {tmp_path}/shown; exit $NUMBER"], tmp_path / "captures"
    )
    assert done.command.exit_status == 5
    assert "10.9.0.1" in (tmp_path / "shown").read_text()
    assert done.failures == ()
    assert [path.name for path in sorted((tmp_path / "captures").glob("*/*"))] == ["a-000001.pcapng", "b-000001.pcapng"]


def _token_options(folder: Path) -> tuple[str, str]:
    (folder / "token").write_text("t\n")
    return "--token-file", str(folder / "token")


def test_a_collector_that_is_killed_gets_every_segment_once(hosts: Pair, tmp_path: Path) -> None:
    data, spool = tmp_path / "data", tmp_path / "spool"
    token = _token_options(tmp_path)
    collect = (*TRACER, "collect", "--data", str(data), "--listen", "127.0.0.1:8710", *token)
    send = ("--collector", "http://127.0.0.1:8710", "--session", "s1", *token, "--spool", str(spool))
    agent = Capturing(hosts.a, (*TRACER, "capture", "-i", "va", "--host", "a", *send))
    with hosts.a.running(*collect, ready="collecting at") as collector, agent:
        while not list(data.rglob("*.pcapng")):
            hosts.exchange(1)
        collector.kill()
        collector.wait()
        while len(list(spool.rglob("*.pcapng"))) < 2:
            hosts.exchange(1)
        with hosts.a.running(*collect, ready="collecting at"):
            said = agent.stop()
    assert agent.process.returncode == 0, said
    captured = re.search(r"([\d,]+) packets, none dropped", said)
    assert captured is not None
    assert len(packets(data / "sessions" / "s1" / "a")) == int(captured[1].replace(",", ""))
    (status,) = session_status(data, "s1").hosts
    assert status.closed
    assert status.missing_count == 0
    assert list(spool.rglob("*.pcapng")) == []
    content = b"".join(path.read_bytes() for path in data.rglob("*.pcapng"))
    assert [secret for secret in SECRETS if secret in content] == []


def test_without_a_collector_segments_stay_in_the_spool_and_the_next_agent_sends_them(
    hosts: Pair, tmp_path: Path
) -> None:
    data, spool = tmp_path / "data", tmp_path / "spool"
    send = ("--collector", "http://127.0.0.1:8710", "--session", "s1", "--spool", str(spool))
    argv = (*TRACER, "capture", "-i", "va", "--host", "a", *send)
    with Capturing(hosts.a, argv) as agent:
        hosts.exchange(1)
        said = agent.stop()
    assert agent.process.returncode == 2
    assert re.search(r"twintap: \d+ segments are not at the collector yet, they are kept in .*; the next agent", said)
    collect = (*TRACER, "collect", "--data", str(data), "--listen", "127.0.0.1:8710")
    with hosts.a.running(*collect, ready="collecting at"), Capturing(hosts.a, argv) as agent:
        assert agent.stop().endswith("segments sent, 0 lost\n")
    (status,) = session_status(data, "s1").hosts
    assert status.closed
    assert status.segments_count == 2
    assert len(packets(data / "sessions" / "s1" / "a")) > 5


def stopping(agent: Capturing) -> None:
    """Stop it, and wait until it has captured its last packet."""
    agent.process.terminate()
    while "packets, none dropped" not in agent.line():
        assert agent.process.poll() is None


def test_a_stopped_agent_goes_on_trying_and_delivers_when_the_collector_answers(hosts: Pair, tmp_path: Path) -> None:
    data, spool = tmp_path / "data", tmp_path / "spool"
    token = tmp_path / "token"
    token.write_text("t")
    send = ("--collector", "http://127.0.0.1:8710", "--session", "s1", "--spool", str(spool))
    argv = (*TRACER, "capture", "-i", "va", "--host", "a", *send, "--token-file", str(token))
    collect = (*TRACER, "collect", "--data", str(data), "--listen", "127.0.0.1:8711", "--token-file", str(token))
    with hosts.a.running(*collect, ready="collecting at"), Capturing(hosts.a, argv) as agent:
        hosts.exchange(1)
        stopping(agent)
        with hosts.a.running(sys.executable, "-S", "-E", "-c", FORWARD, "8710", "8711", ready="ready"):
            assert agent.rest().endswith("segments sent, 0 lost\n")
    assert agent.process.returncode == 0
    assert session_status(data, "s1").hosts[0].closed
    assert list(spool.rglob("*.pcapng")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_stopped_agent_at_once(hosts: Pair, tmp_path: Path, number: signal.Signals) -> None:
    send = ("--collector", "http://127.0.0.1:8710", "--session", "s1", "--spool", str(tmp_path))
    with Capturing(hosts.a, (*TRACER, "capture", "-i", "va", "--host", "a", *send)) as agent:
        hosts.exchange(1)
        stopping(agent)
        with suppress(subprocess.TimeoutExpired):
            agent.process.wait(2 * AGAIN_SECONDS)
        began = time.monotonic()
        agent.process.send_signal(number)
        agent.process.wait(2 * END_SECONDS)
        took = time.monotonic() - began
        said = agent.rest()
    assert agent.process.returncode == 2
    assert took < END_SECONDS / 2
    assert "segments are not at the collector yet" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("options", [(), ("tcp",)])
def test_agents_leave_their_deliveries_out_on_their_hosts_and_on_the_collectors(
    options: tuple[str, ...], hosts: Pair, tmp_path: Path
) -> None:
    """The collector listens at all addresses of `b`; the agent there reaches it by loopback, the other by the wire."""
    counts = _ports_captured(hosts, tmp_path, *options)
    assert counts["a", 8710] == counts["b", 8710] == 0
    assert counts["a", 8080] > 5
    assert counts["b", 8080] > 5


def test_deliveries_are_recorded_where_that_is_wanted(hosts: Pair, tmp_path: Path) -> None:
    counts = _ports_captured(hosts, tmp_path, "--include-own")
    assert counts["a", 8710] > 5
    assert counts["b", 8710] > 5


def _ports_captured(hosts: Pair, tmp_path: Path, *options: str) -> Counter[tuple[str, int]]:
    """Packets at the collector by host and server's port, of two agents that deliver for a while."""
    data = tmp_path / "data"
    token = (*_token_options(tmp_path), "--plain-http")
    collect = (*TRACER, "collect", "--data", str(data), "--listen", "0.0.0.0:8710", *token)

    def agent(host: Host, address: str) -> Capturing:
        send = ("--collector", f"http://{address}:8710", "--session", "s1", *token)
        spool = ("--spool", str(tmp_path / f"spool-{host.name}"))
        argv = (*TRACER, "capture", "-i", host.interface, "-i", "lo", "--host", host.name, *send, *spool, *options)
        return Capturing(host, argv)

    with hosts.b.running(*collect, ready="collecting at"), agent(hosts.a, hosts.b.address) as a:
        with agent(hosts.b, "localhost") as b:
            while min(len(list((data / "sessions" / "s1").glob(f"{name}/*/*.pcapng"))) for name in "ab") < 4:
                hosts.exchange(1)
            b.stop()
        a.stop()
    found: Counter[tuple[str, int]] = Counter()
    for name in "ab":
        for packet in packets(data / "sessions" / "s1" / name):
            for port in (8080, 8710):
                found[name, port] += port in (packet["src_port"], packet["dst_port"])
    return found
