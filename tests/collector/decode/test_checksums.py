"""Checksums of captured packets, against scapy's."""

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import CookedLinux, Dot1Q, Ether
from scapy.packet import Packet, Raw

from collector.decode.checksums import Checksum, tcp_checksum

ETHERNET = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
FOUR, SIX = IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="fd00::1", dst="fd00::2")
SEGMENT = TCP(sport=40_000, dport=80, seq=7, options=[("Timestamp", (1, 2))])


@pytest.mark.parametrize("length", [0, 1, 7, 1448])
@pytest.mark.parametrize(
    ("link_type", "below"),
    [
        (1, ETHERNET / FOUR),
        (1, ETHERNET / SIX),
        (1, ETHERNET / Dot1Q(vlan=4) / FOUR),
        (101, FOUR),
        (113, CookedLinux(proto=0x0800) / FOUR),
    ],
    ids=["ethernet", "ipv6", "vlan", "raw", "cooked"],
)
def test_every_flipped_bit_shows(link_type: int, below: Packet, length: int) -> None:
    data = bytes(below / SEGMENT / Raw(b"x" * length))
    assert tcp_checksum(link_type, data) == Checksum.GOOD
    for at in (len(data) - 1, len(data) - length // 2 - 1):
        wrong = data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]
        assert tcp_checksum(link_type, wrong) == Checksum.BAD
    assert tcp_checksum(link_type, data[:-1]) == Checksum.UNKNOWN, "cut"


def test_what_a_card_completes_later_is_neither_right_nor_wrong() -> None:
    data = bytes(ETHERNET / FOUR / SEGMENT / Raw(b"x" * 100))
    pseudo = data[26:34] + bytes([0, 6]) + (len(data) - 34).to_bytes(2, "big")
    total = sum(int.from_bytes(pseudo[at : at + 2], "big") for at in range(0, len(pseudo), 2))
    partial = ((total & 0xFFFF) + (total >> 16)).to_bytes(2, "big")
    assert tcp_checksum(1, data[:50] + partial + data[52:]) == Checksum.UNFILLED


@pytest.mark.parametrize(
    ("link_type", "data"),
    [(1, b""), (1, bytes(ETHERNET)), (147, bytes(ETHERNET / FOUR / SEGMENT)), (1, bytes(ETHERNET / IP(proto=17)))],
    ids=["empty", "no network layer", "another link", "UDP"],
)
def test_anything_else_is_not_judged(link_type: int, data: bytes) -> None:
    assert tcp_checksum(link_type, data) == Checksum.UNKNOWN
    assert tcp_checksum(1, bytes(ETHERNET / IP(src="10.0.0.1", flags="MF") / SEGMENT)) == Checksum.UNKNOWN
