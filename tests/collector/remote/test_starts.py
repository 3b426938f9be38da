"""Command lines of what captures on a host, its stream, and the words about it."""

import struct
from pathlib import Path

import pytest

from collector.remote import scripts
from collector.remote.preflight import Clock, HostFacts, Interface, Method, Plan
from collector.remote.progress import HostFigures, lag, last_line, progress_line
from collector.remote.starts import StartOptions, agent_arguments, tcpdump_words
from collector.remote.streams import AgentReceiver, TcpdumpReceiver, receiver_of
from tracer import secret_rules
from tracer.errors import InputError

ETH0 = Interface("eth0", 2, bytes([2, 0, 0, 0, 0, 1]))
FACTS = HostFacts(system="Linux", tcpdump="/usr/bin/tcpdump", libpcap=(1, 10), sudo="tcpdump")
OPTIONS = StartOptions("none", (("10.0.0.5", 50123), ("2001:db8::5", 50124)))


def test_the_agent_leaves_out_our_connections() -> None:
    words = agent_arguments("web1", Plan(Method.SENT, False, (ETH0,)), OPTIONS, 7, keeps_secrets=True)
    assert " ".join(words) == (
        "--interface eth0 --host web1 --payload none --rules-len 7 "
        "--exclude 10.0.0.5:50123 --exclude [2001:db8::5]:50124 --keep-secrets"
    )


@pytest.mark.parametrize(("owners", "more"), [("users", []), ("processes", ["--processes"]), ("none", ["--no-owners"])])
def test_the_agent_gets_no_option_for_what_it_does_anyway(owners: str, more: list[str]) -> None:
    words = agent_arguments("web1", Plan(Method.SENT, False, (ETH0,)), StartOptions(owners=owners), 0, False)
    assert words[8:] == more


def test_tcpdump_leaves_out_our_connections() -> None:
    words = tcpdump_words(FACTS, Plan(Method.TCPDUMP, True, (ETH0,)), OPTIONS)
    assert words[:7] == ["sudo", "-n", "/usr/bin/tcpdump", "-i", "any", "-y", "LINUX_SLL2"]
    assert words[-1] == ("tcp and not (host 10.0.0.5 and tcp port 50123) and not (host 2001:db8::5 and tcp port 50124)")
    older = tcpdump_words(HostFacts(tcpdump="tcpdump", libpcap=(1, 9)), Plan(Method.TCPDUMP, False, (ETH0,)), OPTIONS)
    assert older[:3] == ["tcpdump", "-i", "eth0"]


def test_no_name_ends_a_script_early() -> None:
    evil = "x'; touch /tmp/evil; '"
    assert scripts.installed_agent(evil, [evil]).count("'\"'\"'") == 4
    assert scripts.as_root("echo 'a'") == "exec sudo -n sh -c 'echo '\"'\"'a'\"'\"''\n"


def _block(kind: int, body: bytes) -> bytes:
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


SECTION = _block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + _block(1, bytes(8))


@pytest.mark.parametrize("cut", [0, 5])
def test_an_agents_stream_is_stored_up_to_its_last_whole_block(tmp_path: Path, cut: int) -> None:
    receiver = AgentReceiver("web1", tmp_path)
    for piece in (SECTION[:7], SECTION[7:], SECTION[:cut]):
        receiver.feed(piece)
    receiver.finish()
    (file,) = tmp_path.iterdir()
    assert (file.name, file.read_bytes()) == ("web1-000001.pcapng", SECTION)
    assert file.stat().st_mode & 0o777 == 0o600


def test_of_a_stream_without_a_block_nothing_stays(tmp_path: Path) -> None:
    receiver = AgentReceiver("web1", tmp_path)
    receiver.feed(b"bash: no such file\n")
    receiver.finish()
    assert list(tmp_path.iterdir()) == []


def test_an_agents_clock_counts_once_its_bytes_are_here(tmp_path: Path) -> None:
    receiver = AgentReceiver("web1", tmp_path)
    receiver.note_line("status packets=3 dropped=1 written_bytes=10 host_ns=500")
    assert (receiver.packets_count, receiver.dropped_count, receiver.newest_host_ns()) == (3, 1, None)
    receiver.feed(bytes(10))
    receiver.note_line("notice interface eth0 is down")
    assert receiver.newest_host_ns() == 500
    receiver.finish()


def _tcpdump(tmp_path: Path) -> TcpdumpReceiver:
    made = receiver_of("web1", FACTS, Plan(Method.TCPDUMP, False, (ETH0,)), StartOptions("heads"), tmp_path)
    assert isinstance(made, TcpdumpReceiver)
    return made


def _sll2(payload: bytes) -> bytes:
    ip = struct.pack(">BBHHHBBH8x", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0)
    tcp = struct.pack(">HHIIBBHHH", 50000, 80, 1, 1, 0x50, 0x18, 100, 0, 0)
    data = struct.pack(">HHIHBB8x", 0x0800, 0, ETH0.index, 1, 4, 6) + ip + tcp + payload
    return struct.pack("<IIII", 1_700_000_000, 7, len(data), len(data)) + data


PCAP = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 276)


def test_of_tcpdumps_stream_only_what_the_policy_keeps_is_stored(tmp_path: Path) -> None:
    receiver = _tcpdump(tmp_path)
    payload = b"GET /a HTTP/1.1\r\nX-Auth-Token: geheim\r\n\r\n"
    receiver.feed(PCAP + _sll2(payload) + _sll2(payload)[:30])
    receiver.note_line("5 packets dropped by kernel")
    assert (receiver.packets_count, receiver.newest_host_ns()) == (1, 1_700_000_000_000_000_007)
    assert receiver.newest_host_ns() is None, "while nothing comes, it is not known how far behind it is"
    receiver.finish()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret_rules.rules().payload(payload) in stored
    assert b"geheim" not in stored
    assert receiver.dropped_count == 5


def test_what_is_no_capture_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the stream is no capture as tcpdump writes it: it does not begin as pcap"):
        _tcpdump(tmp_path).feed(b"sudo: a password is required\n")


def test_progress_is_packets_drops_and_lag() -> None:
    hosts = [
        HostFigures("web1", 12034, 0, 200_000_000),
        HostFigures("db1", 1, 7, None),
        HostFigures("api1", 0, 0, 5, has_ended=True),
    ]
    assert progress_line(hosts) == "web1 12,034 packets, 0.2 s behind · db1 1 packet, 7 dropped · api1 0 packets, ended"
    assert last_line(hosts[1], None, "") == "db1: 1 packet, 7 dropped there"
    assert last_line(hosts[0], 500_000_000, "the connection broke") == (
        "web1: 12,034 packets, none dropped, at most 500.0 ms behind, ended early: the connection broke"
    )


def test_lag_is_by_the_hosts_clock() -> None:
    assert lag(10_000, 9_500, Clock(-300, 10)) == 200
    assert lag(10_000, 10_500, Clock(0, 10)) == 0, "never less than nothing"
    assert lag(10_000, None, Clock(0, 10)) is None
    assert lag(10_000, 9_500, None) is None
