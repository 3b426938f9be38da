"""Capture files from packets, written byte by byte: every variant that the formats allow.

Nothing here uses our own code or a capture library, so that readers can be checked against it.
"""

import struct
from collections.abc import Iterable, Sequence

SECTION = 0x0A0D0D0A
INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, NAMES, STATISTICS, ENHANCED_PACKET = 1, 2, 3, 4, 5, 6

Option = tuple[int, bytes]


def pcap(
    packets: Iterable[tuple[int, bytes]],
    *,
    link_type: int = 1,
    order: str = "<",
    nanoseconds: bool = True,
    snaplen: int = 262_144,
    original_lens: Sequence[int] | None = None,
) -> bytes:
    """A pcap file of (host_ns, bytes) packets, cut at `snaplen`."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link_type)]
    for number, (host_ns, data) in enumerate(packets):
        seconds, fraction = divmod(host_ns, 1_000_000_000)
        original_len = original_lens[number] if original_lens else len(data)
        fraction = fraction if nanoseconds else fraction // 1_000
        kept = data[:snaplen]
        parts.append(struct.pack(order + "IIII", seconds, fraction, len(kept), original_len) + kept)
    return b"".join(parts)


def options(order: str, pairs: Iterable[Option]) -> bytes:
    """Options with their padding, and the end of options if there are any."""
    written = b"".join(struct.pack(order + "HH", code, len(value)) + pad(value) for code, value in pairs)
    return written + struct.pack(order + "HH", 0, 0) if written else b""


def pad(value: bytes) -> bytes:
    """`value` with zeros up to a multiple of 4."""
    return value + bytes(-len(value) % 4)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A pcapng block around `body`."""
    length = len(body) + 12
    return struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", length)


def section(order: str = "<", pairs: Iterable[Option] = ()) -> bytes:
    """A section header of unknown length."""
    return block(SECTION, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options(order, pairs), order)


def interface(
    link_type: int = 1, order: str = "<", snaplen: int = 0, pairs: Iterable[Option] = ((9, b"\x09"),)
) -> bytes:
    """An interface description; nanoseconds by default."""
    return block(INTERFACE, struct.pack(order + "HHI", link_type, 0, snaplen) + options(order, pairs), order)


def enhanced_packet(
    ticks: int,
    data: bytes,
    *,
    interface_id: int = 0,
    order: str = "<",
    original_len: int | None = None,
    pairs: Iterable[Option] = (),
) -> bytes:
    """An Enhanced Packet Block."""
    lengths = (len(data), len(data) if original_len is None else original_len)
    fixed = struct.pack(order + "IIIII", interface_id, ticks >> 32, ticks & 0xFFFFFFFF, *lengths)
    return block(ENHANCED_PACKET, fixed + pad(data) + options(order, pairs), order)


def obsolete(ticks: int, data: bytes, *, interface_id: int = 0, drops: int = 0xFFFF, order: str = "<") -> bytes:
    """An obsolete Packet Block."""
    fixed = struct.pack(order + "HHIIII", interface_id, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(OBSOLETE_PACKET, fixed + pad(data), order)


def simple(data: bytes, order: str = "<") -> bytes:
    """A Simple Packet Block."""
    return block(SIMPLE_PACKET, struct.pack(order + "I", len(data)) + pad(data), order)


def statistics(interface_id: int, pairs: Iterable[Option], order: str = "<") -> bytes:
    """An Interface Statistics Block."""
    return block(STATISTICS, struct.pack(order + "III", interface_id, 0, 0) + options(order, pairs), order)


def names(records: Iterable[tuple[bytes, list[str]]], order: str = "<") -> bytes:
    """A Name Resolution Block: packed address, names."""
    pairs = [
        (1 if len(address) == 4 else 2, address + b"".join(name.encode() + b"\0" for name in given))
        for address, given in records
    ]
    return block(NAMES, options(order, pairs), order)
