"""Chooses packets of some connections from an agent's segments, by a text in their payload or by their ends.

    req-000828                       every connection in a packet of which this stands, as it was captured
    10.0.0.7:41234                   every connection with that end
    10.0.0.7:41234 10.0.0.9:8080     that connection

A request's id is in the heads of its messages at both of their ends, on every host that the request passes and that
sends it on. So each host finds its connections by itself, and all ends of them are found.

Segments are searched as bytes, and only those with a hit are read packet by packet. Read is what the agent writes:
Ethernet with VLAN tags or raw IP, and TCP without extension headers of IPv6.
Limits: an id inside TLS, or compressed by HPACK, does not stand in the packets: name the connection. A connection whose
address is translated on the way is found at each end only if the id stands there.
Cost: about 1 s for each GiB of segments without a hit; 2 us for each packet of the others.
"""

import ipaddress
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tracer.errors import InputError

End = bytes
"""An address and a port, as in a header."""
Connection = frozenset[End]

LEAST_TEXT, LONGEST_TEXT = 4, 200
_END = re.compile(r"\[?([0-9A-Fa-f:.]+?)\]?:(\d{1,5})")
_BLOCK = struct.Struct("<II")
_PACKET = struct.Struct("<IIIII")
_PACKET_BLOCK, _INTERFACE_BLOCK = 6, 1
_PACKET_HEADER_LEN = 28
_RAW_IP = 101
_VLAN = (b"\x81\x00", b"\x88\xa8")
_TCP = 6


@dataclass(frozen=True, slots=True)
class ConnectionChoice:
    """Which connections: those with all of `ends`, or, without any, those in which `text` stands."""

    text: bytes = b""
    ends: tuple[End, ...] = ()

    def find(self, segment: bytes) -> set[Connection]:
        """The connections of a segment that are chosen."""
        if self.text not in segment or not all(end[:-2] in segment for end in self.ends):
            return set()
        return {
            connection
            for data, connection in _packets(segment)
            if connection and (connection.issuperset(self.ends) if self.ends else self.text in data)
        }


def parse_choice(text: str) -> ConnectionChoice:
    """The choice of a text. Raises: InputError."""
    words = text.split()
    found = [_END.fullmatch(word) for word in words]
    if words and all(found):
        if len(words) > 2:
            raise InputError(f"{text!r} names more than two ends of a connection", "give ADDRESS:PORT, or two of them")
        return ConnectionChoice(ends=tuple(_end(each[1], each[2]) for each in found if each))
    if not LEAST_TEXT <= len(text.encode()) <= LONGEST_TEXT:
        what = f"a text to look for in packets has {LEAST_TEXT} to {LONGEST_TEXT} bytes"
        raise InputError(what, "give a request's id, or the ends of a connection: 10.0.0.7:41234 10.0.0.9:8080")
    return ConnectionChoice(text.encode())


def copy_chosen(segment: bytes, connections: set[Connection]) -> bytes | None:
    """The segment with no packets but those of some connections; None if it has none of them."""
    if not any(_may_hold(segment, connection) for connection in connections):
        return None
    parts, count = [], 0
    for block, is_packet, connection in _blocks(segment):
        if not is_packet or connection in connections:
            parts.append(block)
            count += is_packet
    return b"".join(parts) if count else None


def _end(address: str, port: str) -> End:
    try:
        return ipaddress.ip_address(address).packed + int(port).to_bytes(2, "big")
    except (ValueError, OverflowError):
        raise InputError(f"{address}:{port} is no end of a connection", "give ADDRESS:PORT") from None


def _may_hold(segment: bytes, connection: Connection) -> bool:
    """Whether the addresses of a connection stand behind each other, as in the header of its packets."""
    ends = [end[:-2] for end in connection] * (3 - len(connection))
    return ends[0] + ends[1] in segment or ends[1] + ends[0] in segment


def _packets(segment: bytes) -> Iterator[tuple[bytes, Connection | None]]:
    return ((block, connection) for block, is_packet, connection in _blocks(segment) if is_packet)


def _blocks(segment: bytes) -> Iterator[tuple[bytes, bool, Connection | None]]:
    """The blocks of a segment, whether each is a packet, and of which connection."""
    links: list[int] = []
    at = 0
    while at + _BLOCK.size <= len(segment):
        kind, length = _BLOCK.unpack_from(segment, at)
        if length < 12 or at + length > len(segment):
            return
        block = segment[at : at + length]
        if kind == _INTERFACE_BLOCK:
            links.append(int.from_bytes(block[8:10], "little"))
        connection = None
        if kind == _PACKET_BLOCK and length > _PACKET_HEADER_LEN:
            interface, _, _, captured_len, _ = _PACKET.unpack_from(block, 8)
            data = block[_PACKET_HEADER_LEN : _PACKET_HEADER_LEN + captured_len]
            if interface < len(links):
                connection = _connection(data, is_raw=links[interface] == _RAW_IP)
        yield block, kind == _PACKET_BLOCK, connection
        at += length


def _connection(frame: bytes, *, is_raw: bool) -> Connection | None:
    """The connection of a frame; None if it is not read."""
    at = 0
    if not is_raw:
        at = 12
        while frame[at : at + 2] in _VLAN:
            at += 4
        at += 2
    if at >= len(frame):
        return None
    version = frame[at] >> 4
    if version == 4 and len(frame) > at + 20 and frame[at + 9] == _TCP:
        addresses, size, ports = at + 12, 4, at + 4 * (frame[at] & 15)
    elif version == 6 and len(frame) > at + 40 and frame[at + 6] == _TCP:
        addresses, size, ports = at + 8, 16, at + 40
    else:
        return None
    source = frame[addresses : addresses + size] + frame[ports : ports + 2]
    target = frame[addresses + size : addresses + 2 * size] + frame[ports + 2 : ports + 4]
    return frozenset((source, target)) if len(target) == size + 2 else None
