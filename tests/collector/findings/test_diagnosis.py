"""What is named as the cause, on scripts of a cluster's transfers with one trouble each; the rest follows from it.

Every case is a small form of a recorded run of `python -m benchmarks.diagnosis`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from msgspec.structs import replace

from collector.analysis import analyse
from collector.decode.host_capture import HostSource
from collector.findings.diagnosis import find
from collector.findings.missing import missing_replicas
from collector.findings.requests import requests_of
from collector.requests.critical_path import NONE
from collector.requests.exchanges import build_exchanges
from collector.requests.spans import link
from collector.trace.model import CounterInfo, HostInfo, TraceInfo
from collector.trace.reading import Trace
from testkit.netsim import Network, NetworkPath, Station
from testkit.tables import table
from tests.helpers.exchange_lines import exchanges_of
from tests.helpers.scripts import play
from tests.helpers.service_ports import named_ports, names_of_ports

HOSTS = ("proxy", "storage1", "storage2", "storage3")
PORTS = {8080: "swift-proxy", 6200: "swift-object", 6201: "swift-container"}
INFO = TraceInfo(created_ns=0, tool_version="", hosts=())
MS = 1000
"""Scripts give times in µs."""


def of_packets(script: str, dropped: Mapping[str, int] = MappingProxyType({})) -> list[dict]:
    """Findings of a script of transfers. Arguments: `dropped`, what captures say that they dropped, by host."""
    played = play(script)
    built = build_exchanges(played.hops, played.messages, played.connections, names_of_ports(PORTS))
    hosts = tuple(HostInfo(host, (), (), (), 1000, 1000, 0, 1) for host in HOSTS)
    counters = tuple(CounterInfo(host, "capture_dropped", "data_loss", count, "") for host, count in dropped.items())
    info = replace(INFO, services=named_ports(PORTS), hosts=hosts if dropped else (), counters=counters)
    return _find(built.exchanges, built.hops, played.connections, info=info)


def of_requests(text: str) -> list[dict]:
    """Findings of a script of exchanges."""
    empty = play("")
    return _find(exchanges_of(text), empty.hops, empty.connections)


def _find(exchanges, hops, connections, clocks=None, info=INFO) -> list[dict]:
    tables = {"hops": hops, "connections": connections, "exchanges": exchanges, "spans": link(exchanges)}
    clocks = table("clocks", []) if clocks is None else clocks
    return find(tables | {"clocks": clocks}, info).to_pylist()


def urgent_findings(findings: list[dict]) -> list[str]:
    """What somebody should act on: the kind, and where."""
    urgent = [row for row in findings if row["severity"] in ("error", "warning")]
    return [f"{row['kind']} {'–'.join(filter(None, (row['host'], row['peer_host'])))}" for row in urgent]


def causes_by_kind(findings: list[dict]) -> dict[str, str]:
    """Kinds of what follows from another, with their causes."""
    return {row["kind"]: row["cause"] for row in findings if row["cause"]}


def asking(
    number: int, at_us: int, client: str, server: str, port: int = 6200, late_us: int = 20, body: int = 400
) -> str:
    """A connection with a request and its answer; every packet is `late_us` on its way."""
    late, trip = f"late={late_us}", 2 * late_us + 100
    return f"""
    {client}:{40000 + number} > {server}:{port}
      {at_us} > syn {late}
      {at_us + trip // 2} < syn_ack {late}
      {at_us + trip} > 0:100 GET /a {late}
      {at_us + trip + trip // 2} < 0:{body} 200 body={body - 80} with={body - 80} {late}
    """


def everyone(count: int, apart_us: int, late_us) -> str:
    """All pairs of hosts ask each other `count` times; `late_us(client, server)` is how late packets are."""
    text, number = "", 0
    for turn in range(count):
        for client in HOSTS:
            for server in HOSTS[1:]:
                if client != server:
                    number += 1
                    text += asking(number, turn * apart_us, client, server, late_us=late_us(client, server))
    return text


def at(host: str, late_us: int):
    """Packets to and from one host are late."""
    return lambda client, server: late_us if host in (client, server) else 20


def between(one: str, other: str, late_us: int):
    """Packets between two hosts are late."""
    return lambda client, server: late_us if {one, other} == {client, server} else 20


@pytest.mark.parametrize(
    ("late_us", "expected"),
    [
        (at("storage2", 30 * MS), ["slow_link storage2"]),
        (between("proxy", "storage3", 5 * MS), ["slow_link storage3–proxy"]),
        (at("storage2", 100), []),
        (lambda client, server: 30 * MS, []),
    ],
    ids=["a host's link", "between two hosts", "not by much", "all alike: a long way, no fault"],
)
def test_slow_links(late_us, expected: list[str]) -> None:
    assert urgent_findings(of_packets(everyone(12, 200 * MS, late_us))) == expected


@pytest.mark.parametrize(
    ("counts", "size", "expected"),
    [
        ((40, 40), 1400, ["narrow_link storage3–proxy"]),
        ((40, 15), 1400, ["packet_loss storage3–proxy"]),
        ((40, 40), 100, ["packet_loss storage3–proxy"]),
    ],
    ids=[
        "it carries what it can",
        "its rate goes up and down: no limit of the link",
        "its rate times the wait is less than a packet: no queue",
    ],
)
def test_a_narrow_link_is_one_that_is_full(counts: tuple[int, int], size: int, expected: list[str]) -> None:
    """Packets wait longer and longer behind each other, and not at all after a pause; its losses follow from it."""
    text = everyone(12, 200 * MS, at("nobody", 0))
    for turn in range(10):
        begin = turn * 250 * MS
        for packet in range(counts[turn % 2]):
            text += f"""
            proxy:{50000 + turn * 40 + packet} > storage3:6200
              {begin + packet * 10} > 0:{size} PUT /a late={20 + packet * 2 * MS}
              {begin + 190 * MS} < 0:50 200
            """
        text += f"""
            proxy:{60000 + turn} > storage3:6200
              {begin + 500} > 0:{size} PUT /a lost
              {begin + 150 * MS} > 0:{size} #2 PUT /a
              {begin + 190 * MS} < 0:50 200
            """
    findings = of_packets(text)
    assert urgent_findings(findings) == expected
    assert causes_by_kind(findings).get("packet_loss") == (
        "narrow_link on storage3" if "narrow" in expected[0] else None
    )


def test_requests_that_keep_a_pace_are_no_narrow_link() -> None:
    """As many bytes in every slice, since each request waits for a disk; but its packets arrive far faster."""
    text = everyone(12, 200 * MS, at("nobody", 0))
    for turn in range(10):
        begin, late_us = turn * 250 * MS, 20
        text += f"proxy:{50000 + turn} > storage3:6200\n"
        for packet in range(40):
            late_us += 80 << (packet * 5 % 7)
            method = "PUT /a" if packet == 0 else ""
            text += f"{begin + packet} > {packet * 1400}:{packet * 1400 + 1400} {method} late={late_us}\n"
        text += f"{begin + 200 * MS} < 0:50 200\n"
    assert urgent_findings(of_packets(text)) == []


@pytest.mark.parametrize(
    ("gap_us", "expected"),
    [
        (lambda packet: MS, ["narrow_link storage3–proxy"]),
        (lambda packet: 80 << (packet * 5 % 7), []),
    ],
    ids=["one behind the other at one rate", "now and then: a busy receiver"],
)
def test_a_link_that_is_narrow_for_bursts_only(gap_us: Callable[[int], int], expected: list[str]) -> None:
    """Bursts of few packets and of many, so the link's rate goes up and down with what it is asked for."""
    text = everyone(12, 200 * MS, at("nobody", 0))
    for turn in range(10):
        late_us = 2 * MS
        text += f"proxy:{50000 + turn} > storage3:6200\n"
        for packet in range(8 if turn % 2 else 40):
            late_us += gap_us(packet)
            method = "PUT /a" if packet == 0 else ""
            text += f"{turn * 250 * MS + packet} > {packet * 1400}:{packet * 1400 + 1400} {method} late={late_us}\n"
        text += f"{turn * 250 * MS + 200 * MS} < 0:50 200\n"
    findings = of_packets(text)
    assert urgent_findings(findings) == expected
    assert not expected or "at most 10.9 Mbit/s" in findings[0]["text"]  # 1,400 bytes a ms, as a bin of 19 % has it


def cut_off(host: str, peers: Sequence[str]) -> str:
    """All of the cluster talks for a second; then SYNs between a host and its peers are lost for two."""
    text = everyone(6, 200 * MS, at("nobody", 0))
    for number, peer in enumerate(peers):
        for turn in range(8):
            text += f"""
            {peer}:{50000 + number * 100 + turn} > {host}:6200
              {1500 * MS + turn * 250 * MS} > syn lost
            """
    return text + asking(999, 5000 * MS, "proxy", "storage1")


def test_a_host_cut_off() -> None:
    findings = of_packets(cut_off("storage2", ("proxy", "storage1", "storage3")))
    assert urgent_findings(findings) == ["link_down storage2"]
    assert causes_by_kind(findings) == {"connection_unanswered": "link_down on storage2"}


def test_a_link_between_two_hosts_cut() -> None:
    assert urgent_findings(of_packets(cut_off("storage2", ("proxy",)))) == ["link_down storage2–proxy"]


@pytest.mark.parametrize(
    ("dropped", "urgent", "doubted"),
    [
        ({"storage2": 9}, ["link_down storage2"], set()),
        ({"storage2": 23}, ["capture_drop storage2", "link_down storage2"], set()),
        ({"storage2": 24}, ["capture_drop storage2"], {"link_down", "connection_unanswered"}),
        ({"storage1": 24}, ["capture_drop storage1", "link_down storage2"], set()),
        ({"storage2": 24, "storage1": 1}, ["capture_drop storage2"], {"link_down", "connection_unanswered"}),
    ],
    ids=["a few", "fewer than were lost", "as many as were lost", "elsewhere", "there, and one elsewhere"],
)
def test_what_captures_dropped_is_not_taken_for_lost(
    dropped: dict[str, int], urgent: list[str], doubted: set[str]
) -> None:
    findings = of_packets(cut_off("storage2", ("proxy", "storage1", "storage3")), dropped)
    assert urgent_findings(findings) == urgent
    assert {kind for kind, cause in causes_by_kind(findings).items() if cause == "capture_drop on storage2"} == doubted
    gaps = {row["host"]: row["text"] for row in findings if row["kind"] == "capture_drop"}
    assert gaps.keys() == dropped.keys()
    assert all(f"dropped {count} of {1000 + count:,} packets" in gaps[host] for host, count in dropped.items())
    texts = [row["text"] for row in findings if row["kind"] in doubted]
    assert all("this is not proven, since the captures there" in text for text in texts)


def test_a_full_listen_queue_is_distinguished_from_a_lost_syn() -> None:
    """The SYN arrived, and the kernel said nothing."""
    script = """
        client:40000 > proxy:8080
              0 > syn
        1000000 > syn #2
        1000050 < syn_ack
        1000100 > 0:100 GET /a
        1000200 < 0:50 200
    """
    (finding,) = of_packets(script)
    assert (finding["kind"], finding["host"]) == ("listen_queue_full", "proxy")
    assert "the kernel of proxy ignored 1 handshake packet that it had received" in finding["text"]
    assert finding["cost_ns"] == 1_000_070_000


def test_an_answer_to_a_syn_that_was_lost() -> None:
    script = """
        client:40000 > proxy:8080
              0 > syn
             50 < syn_ack lost
        1000000 > syn #2
        1000050 < syn_ack #2
        1000100 > 0:100 GET /a
        1000200 < 0:50 200
    """
    assert urgent_findings(of_packets(script)) == ["syn_retry proxy"]


def test_ports_of_one_host_that_refuse_are_one_finding() -> None:
    script = "".join(
        f"""
        proxy:4000{number} > storage1:{port}
          {number * 100} > syn
          {number * 100 + 50} < rst
        """
        for number, port in enumerate((6200, 6201, 6200))
    )
    (finding,) = of_packets(script)
    assert (finding["kind"], finding["host"], finding["count"]) == ("connection_refused", "storage1", 3)
    assert "storage1:6200, storage1:6201" in finding["text"]


@pytest.mark.parametrize(("share", "expected"), [(0.1, ["reordering server–client"]), (0.0, [])])
def test_reordered_packets(tmp_path: Path, share: float, expected: list[str]) -> None:
    network = Network(
        [Station("client", "10.0.0.1"), Station("server", "10.0.0.2")], NetworkPath(reorder=share), seed=1
    )
    for number in range(10):
        network.connect("client", "server", 40000 + number, 2000, 60_000, at_ns=number * 20_000_000)
    network.run()
    files = network.write(tmp_path)
    analyse([HostSource(file.stem, (file,)) for file in files], str(tmp_path / "trace"))
    assert urgent_findings(Trace(str(tmp_path / "trace")).read("findings").to_pylist()) == expected


def script_of_a_stop(answers_at: str) -> str:
    """storage2 is asked by the proxy all the time and answers nothing between 1 and 6 s; the others go on."""
    text = ""
    for number in range(60):
        begin = number * 100 * MS
        ends = dict.fromkeys(HOSTS[1:], f"{begin + 2 * MS} {begin + 2 * MS + 10}")
        up = ""
        if 10 <= number < 60:
            ends["storage2"], up = answers_at, f"up={begin + 2000 * MS}"
        for host, end in ends.items():
            text += f"proxy > {host}/swift-object {begin} {begin + 10} {end} {up if host == 'storage2' else ''}\n"
    return text


def test_a_server_that_is_stopped() -> None:
    findings = of_requests(script_of_a_stop("- -"))
    assert urgent_findings(findings) == ["server_silent storage2"]


@pytest.mark.parametrize(
    ("said_ms", "expected"),
    [((), ["storage2"]), (range(1500, 8001, 500), []), ((1100,), ["storage2"]), ((9000,), ["storage2"])],
    ids=["nothing", "meanwhile", "at its beginning", "later"],
)
def test_a_server_that_says_something_in_a_stream_is_not_silent(said_ms: Sequence[int], expected: list[str]) -> None:
    streams = (f"watcher > storage2/swift-object 10 20 {at * MS} {at * MS + 10} stream=1\n" for at in said_ms)
    assert silent_servers(script_of_a_stop("- -") + "".join(streams)) == expected


@pytest.mark.parametrize(("stream", "expected"), [("", []), ("web", ["client_gave_up"]), ("other", [])])
def test_a_host_that_holds_a_stream_to_a_silent_one_may_wait_for_it(stream: str, expected: list[str]) -> None:
    """Clients of `web` give up while storage2, which it follows in a stream, answers nothing."""
    text = script_of_a_stop("- -")
    for at in range(2000, 5000, 500):
        begin = at * MS
        text += f"client > web/shop {begin} {begin + 10} - - up={begin + 700 * MS} left={begin + 700 * MS}\n"
    if stream:
        text += f"{stream} > storage2/replication 10 20 {900 * MS} {900 * MS + 10} stream=1\n"
    caused = {row["kind"] for row in of_requests(text) if row["host"] == "web" and row["cause"]}
    assert sorted(caused) == expected


def test_a_silence_that_a_stream_ends_shows_the_request_that_waited_then() -> None:
    text = "".join(f"client > web {at} {at} {at + 3000} {at + 3010}\n" for at in range(0, 100_000, 10_000))
    waited = [f"client > web {at} {at} 2300000 2300010\n" for at in (200_000, 210_000, 220_000)]
    resumed = "client > web 10 20 2210000 2210010 stream=1\n"
    (silent,) = [row for row in of_requests(text + "".join(waited) + resumed) if row["kind"] == "server_silent"]
    assert "answered nothing for 2.010 s" in silent["text"]
    assert (silent["span_id"], silent["count"]) == (11, 3)


def greeted_late(begin: int, said: int) -> str:
    return (
        f"web > db/mysql {said + 100} {said + 110} {said + 200} {said + 210} protocol=mysql "
        f"connect={begin} connected={begin + 20} accepted={begin + 30} greeting={said + 30} greeted={said + 40}\n"
    )


def asked_for_more_late(begin: int, said: int) -> str:
    return (
        f"web > db/mysql {begin} {begin + 10} {said + 200} {said + 210} protocol=mysql "
        f"continue={said + 10} continued={said + 20} body={said + 100} whole={said + 110}\n"
    )


@pytest.mark.parametrize(("line", "accepted"), [(greeted_late, "connections"), (asked_for_more_late, "data")])
def test_a_server_that_owes_a_greeting_or_its_word_to_go_on_is_silent(
    line: Callable[[int, int], str], accepted: str
) -> None:
    """Ten logins a second; in the second one the server is stopped, when four have begun."""

    def silences(until_ms: int) -> list[dict]:
        usual = [line(at * MS, (at + 1) * MS) for at in (*range(0, 1000, 100), *range(3100, 4000, 100))]
        late = [line(at * MS, until_ms * MS) for at in range(1000, 1400, 100)]
        return [row for row in of_requests("".join(usual + late)) if row["kind"] == "server_silent"]

    (silent,) = silences(3000)
    assert (silent["host"], silent["count"]) == ("db", 4)
    assert f"answered nothing for 2.000 s, while its kernel kept accepting {accepted}: 4 requests" in silent["text"]
    assert silences(1400) == []


def test_what_is_asked_of_a_server_that_stays_silent_has_no_finding_of_its_own() -> None:
    """The longest wait ended when its client left; the server answered nobody until the end."""
    text = "".join(
        f"proxy > storage1/swift-object {at} {at} {at + 2000} {at + 2010}\n" for at in range(0, 100_000, 10_000)
    )
    for asked_s, left_s in ((0.2, 10.2), (0.3, 10.3), (0.4, 10.4)):
        asked, left = round(asked_s * 1e6), round(left_s * 1e6)
        text += f"proxy > storage1/swift-object {asked} {asked} - - up={left} outcome=abandoned\n"
    for asked_s in (19, 19.5, 21):
        asked = round(asked_s * 1e6)
        text += f"storage2 > storage1/swift-object {asked} {asked} - - up=23000000 outcome=abandoned\n"
    (silent,) = [row for row in of_requests(text) if row["kind"] == "server_silent"]
    assert (silent["to_trace_ns"] - silent["from_trace_ns"]) / 1e9 > 20


def test_a_silence_begins_after_the_last_answer_whatever_was_given_up_since() -> None:
    text = "".join(
        f"proxy > storage1/swift-object {at} {at} {at + 2000} {at + 2010}\n" for at in range(0, 100_000, 10_000)
    )
    for asked_s, answered_s, left_s in ((1, None, 20), (1, None, 21), (9, 10, None), (8.5, None, 11)):
        asked, answered = round(asked_s * 1e6), "- -" if answered_s is None else f"{answered_s * 10**6} " * 2
        up = "" if left_s is None else f"up={left_s * 10**6}"
        text += f"proxy > storage1/swift-object {asked} {asked} {answered} {up}\n"
    (silent,) = [row for row in of_requests(text) if row["kind"] == "server_silent"]
    assert "answered nothing for 11.000 s" in silent["text"]


def silent_servers(text: str) -> list[str]:
    return [row["host"] for row in of_requests(text) if row["kind"] == "server_silent"]


@pytest.mark.parametrize(
    ("called_us", "expected"), [(3000, ["web"]), (1_900_000, ["db"])], ids=["briefly", "all along"]
)
def test_a_server_that_called_others_is_silent_if_that_is_not_what_held_it_up(
    called_us: int, expected: list[str]
) -> None:
    """A process that was stopped for 2 s asked its database for 3 ms when it went on, and was excused by that."""
    text = "".join(f"client > web {at} {at} {at + 3000} {at + 3010}\n" for at in range(0, 100_000, 10_000))
    for number in range(4):
        asked, resumed = 200_000 + number * 1000, 2_200_000 + number * 5000
        answered = max(resumed, asked + 100 + called_us) + 4000
        called = answered - 500 - called_us
        text += f"client > web {asked} {asked} {answered} {answered + 10} tx=t{number}\n"
        text += f"web > db {called} {called} {called + called_us} {called + called_us} tx=t{number}\n"
    assert silent_servers(text) == expected


@pytest.mark.parametrize(("target", "expected"), [("/same", []), ("/other", ["cache"])])
def test_a_cache_that_asks_its_origin_once_for_several_is_not_silent(target: str, expected: list[str]) -> None:
    text = "".join(f"client > cache {at} {at} {at + 1000} {at + 1010}\n" for at in range(0, 100_000, 10_000))
    text += "client > cache 200000 200000 15200000 15200010 target=/same\n"
    text += "cache > origin 200100 200110 15199900 15199910 target=/same\n"
    for asked in (300_000, 400_000, 9_000_000):
        text += f"client > cache {asked} {asked} 15199990 15200020 target={target}\n"
    assert silent_servers(text) == expected


@pytest.mark.parametrize(("is_sending", "expected"), [(True, []), (False, ["broker"])], ids=["publisher", "none"])
def test_a_broker_is_not_silent_while_its_publisher_is(is_sending: bool, expected: list[str]) -> None:
    """Of a protocol that cannot be read: deliveries came again when the publisher went on after 6 s."""
    often = [*range(0, 2_000_000, 20_000), *range(8_000_000, 8_400_000, 20_000)]
    text = ""
    for number in range(3):
        for at, after in itertools.pairwise(often):
            begin = at + 500 + 10 * number
            text += f"consumer{number} > broker {begin} {begin} {after} {after + 5} protocol=unknown\n"
    if is_sending:
        text += "publisher > broker 0 0 8500000 8500010 whole=8450000 protocol=unknown\n"
    assert silent_servers(text) == expected


def replicas(count: int, took, hosts: Sequence[str] = HOSTS[1:]) -> str:
    """Uploads, each to all storage hosts, object and container; `took(host, service, device)` in µs."""
    text = ""
    for number in range(count):
        begin = number * 2000 * MS
        end = begin + 1900 * MS
        text += f"client > proxy/swift-proxy {begin} {begin + 10} {end} {end + 10} tx={number}\n"
        for host in hosts:
            for service in ("swift-object", "swift-container"):
                device = f"d{1 + number % 2}"
                end = begin + 20 + took(host, service, device)
                target = f"target=/{device}/12/AUTH_a/c"
                text += f"proxy > {host}/{service} {begin + 20} {begin + 20} {end} {end + 10} tx={number} {target}\n"
    return text


SLOW = 300 * MS


def test_a_disk_whose_requests_are_all_given_up_is_slow() -> None:
    """What was never answered took at least as long as its client waited."""
    text = replicas(40, lambda host, service, device: 2 * MS)
    lines = []
    for line in text.splitlines():
        words = line.split()
        if words[2] == "storage2/swift-object" and "target=/d2/12/AUTH_a/c" in words:
            words[5:7] = ["-", "-", f"up={int(words[3]) + SLOW}"]
        lines.append(" ".join(words))
    assert urgent_findings(of_requests("\n".join(lines))) == ["slow_disk storage2"]


@pytest.mark.parametrize(("took_us", "cause"), [(500, "server_error"), (SLOW, "slow_disk")])
def test_a_disk_that_fails_at_once_is_broken_and_one_that_fails_late_is_slow(took_us: int, cause: str) -> None:
    """On the same disk others take long: what repairs it, or what waits for it."""
    slow = ("storage2", "swift-object", "d2")
    lines = replicas(60, lambda *of: SLOW if of == slow else 2 * MS)
    changed = []
    for line in lines.splitlines():
        words = line.split()
        if words[2] == "storage2/swift-object" and "target=/d2/12/AUTH_a/c" in words and len(changed) % 3 < 2:
            end = int(words[4]) + took_us
            words[5:7] = [str(end), str(end + 10)]
            words.append("status=500")
        changed.append(" ".join(words))
    findings = [row for row in of_requests("\n".join(changed)) if row["service"] == "swift-object"]
    assert urgent_findings(findings) == [f"{cause} storage2"]
    assert {row["kind"] for row in findings} == {"server_error", "slow_disk"}


def test_a_request_given_up_before_all_of_it_arrived_took_no_time() -> None:
    lines = replicas(40, lambda host, service, device: 2 * MS).splitlines()
    words = lines[1].split()
    words[5:7] = ["-", "-", f"up={int(words[3]) - 5}"]
    assert urgent_findings(of_requests("\n".join([lines[0], " ".join(words), *lines[2:]]))) == []


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        (lambda host, service, device: SLOW if host == "storage2" else 2 * MS, "host_starved storage2"),
        (
            lambda host, service, device: SLOW if (host, service) == ("storage2", "swift-object") else 2 * MS,
            "slow_replica storage2",
        ),
        (
            lambda host, service, device: (
                SLOW if (host, service, device) == ("storage2", "swift-object", "d2") else 2 * MS
            ),
            "slow_disk storage2",
        ),
        (
            lambda host, service, device: (
                2 * MS if host != "storage2" else SLOW if (service, device) == ("swift-object", "d2") else 15 * MS
            ),
            "slow_disk storage2",
        ),
        (
            lambda host, service, device: (
                2 * MS if host != "storage2" else SLOW if (service, device) == ("swift-object", "d2") else 90 * MS
            ),
            "host_starved storage2",
        ),
    ],
    ids=[
        "whatever it serves: the host",
        "one service: the server",
        "one device: the disk",
        "one device, and a little of it elsewhere: the disk",
        "one device most of all: the host",
    ],
)
def test_what_is_slow_is_explained(took, expected: str) -> None:
    assert urgent_findings(of_requests(replicas(20, took))) == [expected]


def test_a_server_that_waits_for_a_slow_one_is_not_slow() -> None:
    """The proxies wait for storage2, which alone is named."""
    text = ""
    for number in range(20):
        begin = number * 2000 * MS
        for front, took in (("proxy1", SLOW), ("proxy2", 3 * MS)):
            back = "storage2" if front == "proxy1" else "storage1"
            tx = f"tx={front}{number}"
            text += f"client > {front}/swift-proxy {begin} {begin} {begin + took + 100} {begin + took + 110} {tx}\n"
            text += f"{front} > {back}/swift-object {begin + 50} {begin + 50} {begin + took} {begin + took + 10} {tx}\n"
    assert urgent_findings(of_requests(text)) == ["slow_replica storage2"]


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ("operation=GetObject", "operation=ListObjectsV2"),
        (
            "protocol=http/2 method=POST result=0 target=/a.B/Get",
            "protocol=http/2 method=POST result=0 target=/a.B/All",
        ),
        ("protocol=postgresql method=SELECT target=FROM_a", "protocol=postgresql method=SELECT target=FROM_b"),
    ],
    ids=["s3", "grpc", "sql"],
)
def test_an_operation_is_compared_with_the_same_one(usual: str, other: str) -> None:
    """All have one method; the other operation takes longer."""
    for asked_of_second, expected in ((other, []), (usual, ["slow_replica app2"])):
        text = ""
        for number in range(20):
            begin = number * 2000 * MS
            for host, asked, took in (("app1", usual, 3 * MS), ("app2", asked_of_second, SLOW)):
                times = f"{begin} {begin + 10} {begin + took} {begin + took + 10}"
                text += f"client > {host}/app {times} tx={host}{number} {asked}\n"
        assert urgent_findings(of_requests(text)) == expected


GET_TWICE = """
    client > proxy/swift-proxy      0  10 900 910 tx=1
    proxy > storage1/swift-object  20  30 100 110 tx=1 status=404 target=/d1/7/a/c/o
    proxy > storage2/swift-object 120 130 800 810 tx=1 target=/d2/7/a/c/o
    """


def missing(text: str) -> list[tuple[str, int]]:
    return [(row["host"], row["count"]) for row in of_requests(text) if row["kind"] == "missing_replica"]


def test_a_replica_that_lacks_what_another_has() -> None:
    text = """
    client > proxy/swift-proxy      0  10 900 910 tx=2 status=404
    proxy > storage1/swift-object  20  30 100 110 tx=2 status=404 target=/d1/7/a/c/p
    proxy > storage3/swift-object 120 130 800 810 tx=2 target=/d1/7/a/c/p
    """
    assert missing(GET_TWICE + text) == [("storage1", 2)]


@pytest.mark.parametrize(
    "text",
    [
        GET_TWICE.replace("/d2/7/a/c/o", "/d2/7/a/c/other"),
        GET_TWICE.replace("target=/d1/7/a/c/o", "target=-").replace("target=/d2/7/a/c/o", "target=-"),
        GET_TWICE + "proxy > storage2/swift-object 111 112 118 119 tx=1 method=PUT target=/d2/7/a/c/o status=201",
        GET_TWICE + "proxy > storage3/swift-object 111 112 - - tx=3 method=DELETE target=/d9/7/a/c/o",
        GET_TWICE + "proxy > storage2/swift-object 90 91 98 99 tx=1 status=404 target=/d2/7/a/c/o",
        GET_TWICE.replace("storage2", "storage1").replace("/d2/", "/d1/"),
    ],
    ids=[
        "another thing",
        "what was asked for cannot be seen",
        "put meanwhile",
        "deleted meanwhile at a third server",
        "the other server did not always have it, either",
        "the same server",
    ],
)
def test_a_404_that_something_else_explains(text: str) -> None:
    assert missing(text) == []


@pytest.mark.parametrize(("confidence", "expected"), [(0.79, 0), (0.8, 1), (None, 1)])
def test_calls_that_may_be_of_two_requests_say_nothing_of_one(confidence: float | None, expected: int) -> None:
    """MinIO, targets cut before the object's name: calls linked with a confidence of 49 % were a replica's 404."""
    exchanges = exchanges_of(GET_TWICE)
    spans = link(exchanges)
    guessed = pa.array([None, confidence, confidence], spans.schema.field("confidence").type)
    spans = spans.set_column(spans.column_names.index("confidence"), "confidence", guessed)
    requests = requests_of([exchanges], [spans])
    assert len(list(missing_replicas(requests))) == expected
    assert (requests.parent != NONE).sum() == 2


@pytest.mark.parametrize(("service", "expected"), [("swift-object", True), ("files", False)])
def test_replicators_are_spoken_of_where_there_are_some(service: str, expected: bool) -> None:
    text = GET_TWICE.replace("swift-object", service).replace("/d1/", "/x/").replace("/d2/", "/x/")
    (finding,) = (row for row in of_requests(text) if row["kind"] == "missing_replica")
    assert ("replicators" in finding["remedy"]) is expected


def test_a_change_after_both_answers_explains_nothing() -> None:
    later = "proxy > storage2/swift-object 820 830 840 850 tx=1 method=PUT target=/d2/7/a/c/o status=201"
    assert missing(GET_TWICE + later) == [("storage1", 1)]


def test_a_full_disk_and_the_failures_that_follow_from_it() -> None:
    text = """
    client > proxy/swift-proxy      0  10 900 910 tx=1 method=PUT status=503
    proxy > storage1/swift-object  20  30 100 110 tx=1 method=PUT status=507 target=/d1/7/a/c/o
    """
    findings = of_requests(text)
    assert urgent_findings(findings) == ["disk_full storage1"]
    assert "(device d1)" in findings[0]["text"]
    assert causes_by_kind(findings) == {"server_error": "disk_full on storage1"}


def test_an_error_of_grpc_is_an_error_of_its_server_whatever_the_status_of_http() -> None:
    text = """
    web > cart/cart  0 10 900 910 protocol=http/2 method=POST target=/shop.Cart/Get result=14
    web > cart/cart 50 60 950 960 protocol=http/2 method=POST target=/shop.Cart/Get result=5
    """
    [finding] = [row for row in of_requests(text) if row["kind"] == "server_error"]
    assert finding["text"] == "cart on cart answered 200 UNAVAILABLE to 1 request"


def test_clocks_that_are_wrong_or_were_set() -> None:
    def clock(host: str, offset_ns: int, skew_ppb: int = 0) -> dict[str, object]:
        line = {"offset_ns": offset_ns, "skew_ppb": skew_ppb, "uncertainty_ns": 5000}
        return {"host": host, "method": "hull", **line, "from_host_ns": 10**9, "to_host_ns": 3 * 10**9, "from_frame": 1}

    def after(host: str, offset_ns: int) -> dict[str, object]:
        return clock(host, offset_ns) | {"from_host_ns": 4 * 10**9, "to_host_ns": 5 * 10**9, "from_frame": 9}

    rows = [
        clock("a", 0) | {"reference": True},
        *(clock("b", 80_000_000, 200_000), clock("c", 2_000_000), clock("d", 0), after("d", 3_000_000)),
        *(clock("e", 0), after("e", 9_000)),  # no more than the lines are uncertain by
    ]
    host = HostInfo("a", (), (), (), 1, 1, 0, 1)
    info = replace(INFO, hosts=tuple(replace(host, host=name) for name in "abcde"))
    empty = play("")
    findings = _find(exchanges_of(""), empty.hops, empty.connections, table("clocks", rows), info)
    assert urgent_findings(findings) == ["clock_offset b", "clock_step d"]
    assert "80.0 ms ahead of the reference, and runs 200 ± 5 ppm too fast" in findings[0]["text"]
    assert "was set 1 time while it was captured, by 3.0 ms" in findings[1]["text"]
    assert [(row["from_trace_ns"], row["to_trace_ns"]) for row in findings] == [
        (920_000_000, 2_919_600_000),
        (3_997_000_000, 3_997_000_000),
    ]


def late_connection(client: str, server: str, background: str = "") -> str:
    """A connection whose first SYN was lost, with a request; then others of the same hosts, which are well."""
    return f"""
        {client}:40000 > {server}:6200
              0 > syn lost
        1000000 > syn #2
        1000050 < syn_ack
        1000100 > 0:100 GET /a {background}
        1000200 < 0:50 200
    """


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (late_connection("client", "storage2"), ["syn_retry storage2"]),
        (late_connection("storage1", "storage2", "agent=object-replicator") + asking(1, 0, "client", "storage1"), []),
    ],
    ids=["a client waited for it", "a replicator did"],
)
def test_a_lost_syn_is_weighed_by_who_waited(text: str, expected: list[str]) -> None:
    assert urgent_findings(of_packets(text)) == expected
