"""Connections that a NAT translates, in captures that began after their handshakes.

A client asks and is answered on kept connections; the server's host sees them as those of a router. Nothing may be said
to be lost, whether or not the two halves are found to be one connection.
"""

from pathlib import Path

import polars as pl
import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from collector.decode.captures import decode
from collector.decode.host_capture import HostSource
from collector.hops.matching import Matched, match
from testkit import capture_files as files

BASE_NS, STEP_NS, ONE_WAY_NS = 1_700_000_000_000_000_000, 1_000_000, 50_000
CLIENT, OUTSIDE, ROUTER, SERVER = "10.66.0.1", "10.66.0.254", "10.66.1.254", "10.66.1.1"
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
Ends = tuple[str, int, str, int]
Turn = tuple[bool, int, int, int]
"""Whether the client sends, sequence and acknowledgment number, bytes."""


def turns(seq: int, ack: int, requests: int = 10) -> list[Turn]:
    found: list[Turn] = []
    for _ in range(requests):
        found += [(True, seq, ack, 100), (False, ack, seq + 100, 700), (True, seq + 100, ack + 700, 0)]
        seq, ack = seq + 100, ack + 700
    return found


def packets_at(ends: Ends, said: list[Turn], at_client: bool, stamped: bool, first: int = 0) -> list[tuple[int, bytes]]:
    """What one host captures of a connection, from its turn number `first` on."""
    client, client_port, server, server_port = ends
    packets = []
    for number, (from_client, seq, ack, length) in enumerate(said[first:], first):
        src, sport, dst, dport = ends if from_client else (server, server_port, client, client_port)
        options = [("Timestamp", (number + 1, number))] if stamped else []
        segment = TCP(sport=sport, dport=dport, seq=seq, ack=ack, flags="PA" if length else "A", options=options)
        data = bytes(ETHERNET / IP(src=src, dst=dst) / segment / Raw(b"x" * length))
        packets.append((BASE_NS + number * STEP_NS + (0 if from_client == at_client else ONE_WAY_NS), data))
    return packets


def match_captures(folder: Path, client: list[tuple[int, bytes]], server: list[tuple[int, bytes]]) -> Matched:
    sources = []
    for name, packets in (("client", client), ("server", server)):
        (folder / name).write_bytes(files.pcap(sorted(packets)))
        sources.append(HostSource(name, (folder / name,)))
    return match(decode(sources))


def states(found: Matched) -> dict[str, int]:
    counts = pl.DataFrame(found.hops)["state"].cast(pl.String).value_counts()
    return {str(state): count for state, count in counts.iter_rows()}


BESIDE = (CLIENT, 33_000, SERVER, 22)
"""A connection that nothing translates: so both hosts know each other's address."""


@pytest.mark.parametrize("stamped", [True, False], ids=["timestamps", "no timestamps"])
@pytest.mark.parametrize("outer", [(SERVER, 80), (OUTSIDE, 8_080)], ids=["masqueraded", "port forwarded too"])
def test_two_halves_are_one_connection(tmp_path: Path, stamped: bool, outer: tuple[str, int]) -> None:
    kept = [
        ((CLIENT, 40_000 + n, *outer), (ROUTER, 50_000 - n, SERVER, 80), turns(1_000 * n, 77_000 * n))
        for n in (1, 2, 3)
    ]
    beside = turns(5, 6, 2)
    at_client = packets_at(BESIDE, beside, True, stamped) + [
        p for a, _, said in kept for p in packets_at(a, said, True, stamped)
    ]
    at_server = packets_at(BESIDE, beside, False, stamped) + [
        p for _, b, said in kept for p in packets_at(b, said, False, stamped, 4)
    ]
    found = match_captures(tmp_path, at_client, at_server)
    assert found.connections.num_rows == 4
    assert states(found)["matched"] == len(beside) + 3 * (30 - 4)
    rows = pl.DataFrame(found.connections).drop_nulls("translated_client_port")
    ports = rows.select("client_port", "translated_client_port", "server_port").sort("client_port").rows()
    assert ports == [(40_000 + n, 50_000 - n, outer[1]) for n in (1, 2, 3)]


def test_where_a_proxy_ends_the_connection_they_are_two_and_nothing_is_lost(tmp_path: Path) -> None:
    beside = turns(5, 6, 2)
    at_client = packets_at(BESIDE, beside, True, True) + packets_at(
        (CLIENT, 40_000, SERVER, 80), turns(1_000, 70_000), True, True
    )
    at_server = packets_at(BESIDE, beside, False, True) + packets_at(
        (ROUTER, 50_000, SERVER, 80), turns(9_000, 33_000), False, True
    )
    found = match_captures(tmp_path, at_client, at_server)
    assert found.connections.num_rows == 3
    assert states(found) == {"matched": len(beside), "outside_window": 60}


def test_what_could_be_either_of_two_is_neither(tmp_path: Path) -> None:
    said, beside = turns(1_000, 70_000), turns(5, 6, 2)
    at_client = packets_at(BESIDE, beside, True, False) + packets_at((CLIENT, 40_000, SERVER, 80), said, True, False)
    at_server = packets_at(BESIDE, beside, False, False)
    for port in (50_000, 50_001):
        at_server += packets_at((ROUTER, port, SERVER, 80), said, False, False)
    found = match_captures(tmp_path, at_client, at_server)
    assert found.connections.num_rows == 4
    assert "lost" not in states(found)
    assert states(found)["matched"] == len(beside)


def test_few_packets_in_common_are_no_proof(tmp_path: Path) -> None:
    said, beside = turns(1_000, 70_000), turns(5, 6, 2)
    at_client = packets_at(BESIDE, beside, True, True) + packets_at((CLIENT, 40_000, SERVER, 80), said, True, True)
    at_server = packets_at(BESIDE, beside, False, True) + packets_at(
        (ROUTER, 50_000, SERVER, 80), said, False, True, len(said) - 4
    )
    found = match_captures(tmp_path, at_client, at_server)
    assert states(found) == {"matched": len(beside), "outside_window": 34}
