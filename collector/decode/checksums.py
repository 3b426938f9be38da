"""Verifies the TCP checksum of a captured packet, as the receiver's TCP does first of all.

A checksum can be judged only if the whole segment was captured, at its receiver. A sender's capture has only the sum of
the pseudo-header, which the network card completes later; so has a capture on a virtual link (veth, `lo`), or behind
GRO, which merges only correct segments: such checksums are `UNFILLED`.

Source: RFC 9293 §3.1 (the sum), RFC 8200 §8.1 (IPv6's pseudo-header), RFC 1071; link types as tcpdump.org/linktypes.
"""

from enum import StrEnum

import numpy as np

TCP = 6
ETHERNET, RAW, COOKED, COOKED_2, IPV4, IPV6 = 1, (12, 14, 101), 113, 276, 228, 229
VLAN_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
IP_TYPES = {0x0800: 4, 0x86DD: 6}


class Checksum(StrEnum):
    """The state of a packet's checksum."""

    GOOD = "good"
    BAD = "bad"
    UNFILLED = "unfilled"  # only the pseudo-header's sum: completed later, or never
    UNKNOWN = "unknown"  # not all was captured, or no plain TCP over IP


def tcp_checksum(link_type: int, data: bytes) -> Checksum:
    """The state of a captured frame's TCP checksum.

    Arguments: `link_type` as registered. Cost: ~15 µs. Tunnels, fragments and IPv6's further headers are `UNKNOWN`.
    """
    ends = _whole_segment(link_type, data)
    if ends is None:
        return Checksum.UNKNOWN
    addresses, segment = ends
    length = len(segment)
    pseudo = _ones_complement_sum(addresses + length.to_bytes(4, "big") + TCP.to_bytes(4, "big"))
    found = int.from_bytes(segment[16:18], "big")
    if found == pseudo:
        return Checksum.UNFILLED
    right = _ones_complement_sum(pseudo.to_bytes(2, "big") + segment) == 0xFFFF
    return Checksum.GOOD if right else Checksum.BAD


def tcp_payload(link_type: int, data: bytes) -> bytes:
    """The payload of a captured frame's TCP segment; empty if `tcp_checksum` is `UNKNOWN`."""
    ends = _whole_segment(link_type, data)
    return b"" if ends is None else ends[1][(ends[1][12] >> 4) * 4 :]


def _whole_segment(link_type: int, data: bytes) -> tuple[bytes, bytes] | None:
    """Both addresses, and the whole segment."""
    start = _network_offset(link_type, data)
    if start is None:
        return None
    version = data[start] >> 4 if len(data) > start else 0
    return _ipv4(data, start) if version == 4 else _ipv6(data, start) if version == 6 else None


def _network_offset(link_type: int, data: bytes) -> int | None:
    """The offset of the IP header; None without one."""
    if link_type in RAW or link_type in (IPV4, IPV6):
        return 0
    if link_type not in (ETHERNET, COOKED, COOKED_2):
        return None
    at, start = {ETHERNET: (12, 14), COOKED: (14, 16), COOKED_2: (0, 20)}[link_type]
    kind = int.from_bytes(data[at : at + 2], "big")
    while kind in VLAN_TAGS and len(data) >= start + 4:
        kind = int.from_bytes(data[start + 2 : start + 4], "big")
        start += 4
    return start if kind in IP_TYPES else None


def _ipv4(data: bytes, start: int) -> tuple[bytes, bytes] | None:
    """Both addresses, and the whole segment."""
    header = data[start : start + 20]
    if len(header) < 20 or header[9] != TCP or int.from_bytes(header[6:8], "big") & 0x3FFF:
        return None
    total_len, header_len = int.from_bytes(header[2:4], "big"), (header[0] & 0xF) * 4
    return _whole(header[12:20], data[start + header_len : start + total_len], total_len - header_len)


def _ipv6(data: bytes, start: int) -> tuple[bytes, bytes] | None:
    header = data[start : start + 40]
    if len(header) < 40 or header[6] != TCP:
        return None
    payload_len = int.from_bytes(header[4:6], "big")
    return _whole(header[8:40], data[start + 40 : start + 40 + payload_len], payload_len)


def _whole(addresses: bytes, segment: bytes, length: int) -> tuple[bytes, bytes] | None:
    return (addresses, segment) if len(segment) == length >= 20 else None


def _ones_complement_sum(data: bytes) -> int:
    """The ones' complement sum of 16-bit words (RFC 1071)."""
    total = int(np.frombuffer(data + b"\0" * (len(data) % 2), dtype=">u2").sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
