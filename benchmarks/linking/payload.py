"""Captures without any payload, from captures that have it: the same packets, as `tracer capture --payload none` keeps
them. Each packet is cut behind its TCP header, so no head of a message is left to read.

Source: draft-ietf-opsawg-pcapng, §4.3 (Enhanced Packet Block). Limits: Ethernet, little-endian files, as our agents
write them; other packets are kept whole.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

ENHANCED_PACKET = 6
ETHERNET_LEN, IPV6_LEN, TCP = 14, 40, 6
_BLOCK = struct.Struct("<II")
_PACKET = struct.Struct("<IIIII")


def strip_folder(source: Path, target: Path) -> Path:
    """Strip the captures of all hosts (folders below `source`) into folders of the same names below `target`."""
    for file in sorted(source.glob("*/*.pcapng")):
        stripped = target / file.parent.name / file.name
        stripped.parent.mkdir(parents=True, exist_ok=True)
        stripped.write_bytes(b"".join(_stripped(file.read_bytes())))
    return target


def _stripped(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(data):
        kind, length = _BLOCK.unpack_from(data, at)
        block = data[at : at + length]
        yield _cut(block) if kind == ENHANCED_PACKET else block
        at += length


def _cut(block: bytes) -> bytes:
    """A packet block with what lies behind the TCP header taken out."""
    interface, high, low, captured_len, original_len = _PACKET.unpack_from(block, 8)
    packet = block[28 : 28 + captured_len]
    options = block[28 + _padded(captured_len) : -4]
    kept = packet[: header_len(packet)]
    body = _PACKET.pack(interface, high, low, len(kept), original_len) + kept.ljust(_padded(len(kept)), b"\0") + options
    length = len(body) + 12
    return _BLOCK.pack(ENHANCED_PACKET, length) + body + struct.pack("<I", length)


def header_len(packet: bytes) -> int:
    """How much of an Ethernet frame is headers up to TCP's end; all of it if it is no TCP over IP."""
    kind = packet[12:14]
    if kind == b"\x08\x00" and len(packet) > 33 and packet[23] == TCP:
        tcp = ETHERNET_LEN + 4 * (packet[14] & 15)
    elif kind == b"\x86\xdd" and len(packet) > 53 and packet[20] == TCP:
        tcp = ETHERNET_LEN + IPV6_LEN
    else:
        return len(packet)
    return tcp + 4 * (packet[tcp + 12] >> 4) if len(packet) > tcp + 12 else len(packet)


def _padded(length: int) -> int:
    return -(-length // 4) * 4
