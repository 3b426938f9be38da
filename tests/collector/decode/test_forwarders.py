"""A router or NAT box captured as a third host: all must be as if it had not been captured."""

from pathlib import Path

import polars as pl
import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from collector.analysis import AnalysisOptions, analyse
from collector.decode.forwarders import forwarded_pairs
from collector.decode.host_addresses import Traffic
from collector.decode.host_capture import HostSource
from collector.trace.reading import Trace
from testkit import capture_files as files

BASE_NS, REQUEST_NS, WAY_NS = 1_700_000_000_000_000_000, 20_000_000, 50_000
CLIENT, INSIDE, OUTSIDE, SERVER = "10.70.1.2", "10.70.1.1", "10.70.2.1", "10.70.2.2"
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
CLOCKS_NS = {"client": 0, "router": 7_000_000_000, "server": -3_000_000}
PLAIN = (CLIENT, SERVER, 80)
KINDS = {
    "plain": (PLAIN, PLAIN),
    "masquerade": (PLAIN, (OUTSIDE, SERVER, 80)),
    "dnat": ((CLIENT, INSIDE, 8080), (OUTSIDE, SERVER, 80)),
}
"""Client, server and its port, on either side of the router."""
CONNECTIONS, REQUESTS = 6, 3
Packet = tuple[int, bytes]
Turn = tuple[bool, str, int, int, bytes]
"""Whether the client sends, flags, sequence and acknowledgment number, payload."""


def turns(number: int, server_isn: int | None = None) -> list[Turn]:
    """One connection: handshake, requests and answers, close."""
    seq, ack = 1_000_003 * (number + 1), server_isn or 7_000_003 * (number + 1)
    said: list[Turn] = [(True, "S", seq, 0, b""), (False, "SA", ack, seq + 1, b"")]
    seq, ack = seq + 1, ack + 1
    said.append((True, "A", seq, ack, b""))
    for request in range(REQUESTS):
        ask = f"GET /{number}-{request} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        said.append((True, "PA", seq, ack, ask))
        said.append((False, "PA", ack, seq + len(ask), answer))
        seq, ack = seq + len(ask), ack + len(answer)
        said.append((True, "A", seq, ack, b""))
    return [*said, (True, "FA", seq, ack, b""), (False, "FA", ack, seq + 1, b""), (True, "A", seq + 1, ack + 1, b"")]


def packets_of_connection(
    ends: tuple[str, str, int], port: int, said: list[Turn], begin_ns: int, place: int, host: str
) -> list[Packet]:
    """What a host captures of a connection, so many quarters of the way (`place`, 0 to 4) from the client."""
    (client, server, server_port), packets, at = ends, [], begin_ns
    for from_client, flags, seq, ack, payload in said:
        passed = place if from_client else 4 - place
        way = (client, server, port, server_port) if from_client else (server, client, server_port, port)
        segment = TCP(sport=way[2], dport=way[3], seq=seq, ack=ack, flags=flags)
        data = bytes(ETHERNET / IP(src=way[0], dst=way[1]) / segment / Raw(payload))
        packets.append((BASE_NS + CLOCKS_NS[host] + at + passed * WAY_NS // 4, data))
        at += WAY_NS + (1_000_000 if payload and from_client else 10_000)
    return packets


def packets_at(kind: str, host: str, side: int, place: int, count: int = CONNECTIONS) -> list[Packet]:
    """All connections as a host sees them, on one side of the router."""
    return [
        packet
        for number in range(count)
        for packet in packets_of_connection(
            KINDS[kind][side],
            (40_000 if KINDS[kind][side][0] == CLIENT else 50_000) + number,
            turns(number),
            number * REQUEST_NS,
            place,
            host,
        )
    ]


def trace(folder: Path, captures: dict[str, list[list[Packet]]], partition_bits: int = 0) -> str:
    sources = []
    for host, of_files in captures.items():
        paths = tuple(folder / f"{host}{number}.pcap" for number in range(len(of_files)))
        for path, packets in zip(paths, of_files, strict=True):
            path.write_bytes(files.pcap(sorted(packets)))
        sources.append(HostSource(host, paths))
    analyse(sources, str(folder / "trace"), options=AnalysisOptions(partition_bits=partition_bits))
    return str(folder / "trace")


def said_of(url: str) -> dict[str, list[dict[str, object]]]:
    """What a trace says besides the packets themselves, and its numbers of rows."""
    ids = ["connection_id", "exchange_id", "span_id", "parent_span_id", "trace_id"]
    tables = {}
    for name in ("hops", "connections", "exchanges", "findings", "clocks"):
        frame = pl.DataFrame(Trace(url).read(name)).with_columns(pl.col(pl.Categorical).cast(pl.String))
        if name == "clocks":
            frame = frame.filter(pl.col("host") != "router")
        tables[name] = sorted(frame.drop(ids, strict=False).to_dicts(), key=repr)
    return tables


ROUTER_FILES = {
    "client's side": [(0, 1)],
    "server's side": [(1, 3)],
    "two files": [(0, 1), (1, 3)],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sides", ROUTER_FILES)
@pytest.mark.parametrize("partition_bits", [0, 3])
def test_all_is_as_without_the_router(tmp_path: Path, kind: str, sides: str, partition_bits: int) -> None:
    ends = {"client": [packets_at(kind, "client", 0, 0)], "server": [packets_at(kind, "server", 1, 4)]}
    router = [packets_at(kind, "router", side, place) for side, place in ROUTER_FILES[sides]]
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    without = said_of(trace(tmp_path / "without", ends, partition_bits))
    url = trace(tmp_path / "with", {"router": router, **ends}, partition_bits)
    assert len(without["exchanges"]) == CONNECTIONS * REQUESTS
    assert said_of(url) == without
    info = Trace(url).info()
    assert [(host.host, host.on_path) for host in info.hosts] == [
        ("router", True),
        ("client", False),
        ("server", False),
    ]
    assert not info.counters and info.hosts[0].addresses == ()
    events = pl.DataFrame(Trace(url).read("events")).filter(pl.col("host").cast(pl.String) == "router")
    assert len(events) == sum(map(len, router)) and events["connection_id"].null_count() == len(events)


def test_what_is_sent_to_the_router_itself_stays(tmp_path: Path) -> None:
    """The connection by which its keeper is there has no other end that was captured."""
    ends = {"client": [packets_at("masquerade", "client", 0, 0)], "server": [packets_at("masquerade", "server", 1, 4)]}
    kept = packets_of_connection(("10.70.9.9", INSIDE, 22), 33_000, turns(70), 0, 4, "router")
    router = [packets_at("masquerade", "router", 0, 1) + kept]
    url = trace(tmp_path, {"client": ends["client"], "router": router, "server": ends["server"]})
    connections = pl.DataFrame(Trace(url).read("connections")).with_columns(pl.col(pl.Categorical).cast(pl.String))
    served = dict(connections["server_host"].value_counts().iter_rows())
    assert served == {"server": CONNECTIONS, "router": 1}


def test_a_proxy_that_ends_tcp_is_an_end(tmp_path: Path) -> None:
    front, back = (CLIENT, INSIDE, 8080), (OUTSIDE, SERVER, 80)
    outer = [(40_000 + number, turns(number), number * REQUEST_NS) for number in range(CONNECTIONS)]
    inner = [(50_000 + number, turns(number + 100), number * REQUEST_NS + 100_000) for number in range(CONNECTIONS)]

    def all_of(
        ends: tuple[str, str, int], those: list[tuple[int, list[Turn], int]], place: int, host: str
    ) -> list[Packet]:
        return [
            packet
            for port, said, begin in those
            for packet in packets_of_connection(ends, port, said, begin, place, host)
        ]

    url = trace(
        tmp_path,
        {
            "client": [all_of(front, outer, 0, "client")],
            "router": [all_of(front, outer, 4, "router") + all_of(back, inner, 0, "router")],
            "server": [all_of(back, inner, 4, "server")],
        },
    )
    assert not any(host.on_path for host in Trace(url).info().hosts)
    assert len(Trace(url).read("exchanges")) == 2 * CONNECTIONS * REQUESTS


def test_who_was_captured_with_one_neighbour_alone_is_the_farthest_point(tmp_path: Path) -> None:
    url = trace(
        tmp_path, {"client": [packets_at("plain", "client", 0, 0)], "router": [packets_at("plain", "router", 0, 1)]}
    )
    assert not any(host.on_path for host in Trace(url).info().hosts)
    assert len(Trace(url).read("exchanges")) == CONNECTIONS * REQUESTS


def gaps(pair: tuple[int, int], gap_ns: int, keys: range) -> dict[tuple[int, int], tuple[int, int, int]]:
    return {(key, 5): (*pair, gap_ns) for key in keys}


def test_who_ends_as_much_as_it_forwards_between_two_addresses_is_left_an_end() -> None:
    """1 asks 2; through 3, which asks 2 itself as well by the address that it translates 1 to."""
    pairs = {(3, 2): 9, (2, 3): 9}
    client = Traffic({(1, 2): 9, (2, 1): 9}, gaps_ns=gaps((1, 2), 900, range(10)))
    server = Traffic(pairs, gaps_ns=gaps((3, 2), 100, range(20)))
    forwards = Traffic(pairs, gaps_ns=gaps((3, 2), 500, range(10)))
    asks_too = Traffic(pairs, gaps_ns=gaps((3, 2), 500, range(20)))
    assert forwarded_pairs([client, forwards, server]) == [frozenset(), frozenset({(2, 3), (3, 2)}), frozenset()]
    assert forwarded_pairs([client, asks_too, server]) == [frozenset()] * 3
