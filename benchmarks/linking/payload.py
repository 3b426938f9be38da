"""Captures that show less, from captures that show all: without any payload, as `tracer capture --payload none` keeps
them (each packet is cut behind its TCP header, so no head of a message is left to read); or with all heads, but without
transaction ids, as a system that hands none on shows them (the headers that hold one get another name).

Source: draft-ietf-opsawg-pcapng, §4.3 (Enhanced Packet Block). Limits: Ethernet, little-endian files, as our agents
write them; other packets are kept whole.
"""

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from collector.services.services import id_headers

ENHANCED_PACKET = 6
ETHERNET_LEN, IPV6_LEN, TCP = 14, 40, 6
_BLOCK = struct.Struct("<II")
_PACKET = struct.Struct("<IIIII")


def strip_folder(source: Path, target: Path) -> Path:
    """Strip the captures of all hosts (folders below `source`) into folders of the same names below `target`."""
    return _rewrite(source, target, lambda packet: packet[: header_len(packet)])


def hide_ids(source: Path, target: Path) -> Path:
    """The captures of all hosts below `source` without transaction ids, in folders of the same names below `target`."""
    names = b"|".join(re.escape(name.encode()) for name in id_headers())
    shown = re.compile(rb"(?<=\r\n)(?:" + names + rb")(?=:)", re.IGNORECASE)

    def mask_names(packet: bytes) -> bytes:
        return shown.sub(lambda name: b"x" * len(name[0]), packet)

    return _rewrite(source, target, mask_names)


def _rewrite(source: Path, target: Path, kept: Callable[[bytes], bytes]) -> Path:
    for file in sorted(source.glob("*/*.pcapng")):
        written = target / file.parent.name / file.name
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(b"".join(_rewrite_blocks(file.read_bytes(), kept)))
    return target


def _rewrite_blocks(data: bytes, kept: Callable[[bytes], bytes]) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(data):
        kind, length = _BLOCK.unpack_from(data, at)
        block = data[at : at + length]
        yield _rewrite_packet(block, kept) if kind == ENHANCED_PACKET else block
        at += length


def _rewrite_packet(block: bytes, kept: Callable[[bytes], bytes]) -> bytes:
    """A packet block with what is kept of its packet."""
    interface, high, low, captured_len, original_len = _PACKET.unpack_from(block, 8)
    packet = block[28 : 28 + captured_len]
    options = block[28 + _pad(captured_len) : -4]
    left = kept(packet)
    body = _PACKET.pack(interface, high, low, len(left), original_len) + left.ljust(_pad(len(left)), b"\0") + options
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


def _pad(length: int) -> int:
    return -(-length // 4) * 4
