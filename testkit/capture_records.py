"""A capture file as a list of its records, so that mutations can aim at packets, stamps, lengths and options.

Nothing here uses our own readers. Only what the cutting apart needs is understood; a file that is neither pcap nor
pcapng is one record. `join(split(data)) == data` for every file.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

PCAP_MAGICS = {
    b"\xd4\xc3\xb2\xa1": "<",
    b"\xa1\xb2\xc3\xd4": ">",
    b"\x4d\x3c\xb2\xa1": "<",
    b"\xa1\xb2\x3c\x4d": ">",
}
PCAPNG_MAGIC = b"\n\r\r\n"
LITTLE = b"\x4d\x3c\x2b\x1a"
PCAP_HEADER_LEN, PCAP_RECORD_LEN = 24, 16
ENHANCED_PACKET = 6
ENHANCED_BODY = 28
"""Where an Enhanced Packet Block's packet begins."""
CAPTURED_AT = 20
"""Where its captured length stands."""


@dataclass(frozen=True, slots=True)
class Record:
    """A header, block or packet record as it stands in the file. `stamp_at` and `packet_at` are 0 for what is none."""

    data: bytes
    order: str = "<"
    stamp_at: int = 0
    """Where its two 32-bit words of time stand; -1 of a pcap record, whose time stands first."""
    packet_at: int = 0
    packet_end: int = 0

    @property
    def is_packet(self) -> bool:
        """Whether it holds a packet."""
        return self.packet_at > 0

    @property
    def packet(self) -> bytes:
        """The packet's bytes."""
        return self.data[self.packet_at : self.packet_end]

    def with_packet(self, packet: bytes) -> "Record":
        """The record with other bytes of the same length."""
        assert len(packet) == self.packet_end - self.packet_at
        return self.with_bytes(self.packet_at, packet)

    def with_bytes(self, at: int, data: bytes) -> "Record":
        """The record with `data` written over what stands at `at`."""
        return replace(self, data=self.data[:at] + data + self.data[at + len(data) :])

    def stamp(self) -> tuple[int, int]:
        """Its two words of time: seconds and fraction (pcap), high and low ticks (pcapng)."""
        first, second = struct.unpack_from(self.order + "II", self.data, max(self.stamp_at, 0))
        return first, second

    def with_stamp(self, first: int, second: int) -> "Record":
        """The record at another time."""
        words = struct.pack(self.order + "II", first & 0xFFFFFFFF, second & 0xFFFFFFFF)
        return self.with_bytes(max(self.stamp_at, 0), words)


def split(data: bytes) -> list[Record]:
    """The records of a capture file."""
    if data[:4] in PCAP_MAGICS and len(data) >= PCAP_HEADER_LEN:
        return list(_pcap_records(data, PCAP_MAGICS[data[:4]]))
    if data[:4] == PCAPNG_MAGIC:
        return list(_blocks(data))
    return [Record(data)]


def join(records: Sequence[Record]) -> bytes:
    """The file of these records."""
    return b"".join(record.data for record in records)


def packet_places(records: Sequence[Record]) -> list[int]:
    """Which of the records are packets."""
    return [place for place, record in enumerate(records) if record.is_packet]


def first_packets(records: Sequence[Record], begin: int, most: int) -> list[Record]:
    """The records with no packets but `most` of them from the one numbered `begin` on."""
    kept = set(packet_places(records)[begin : begin + most])
    return [record for place, record in enumerate(records) if not record.is_packet or place in kept]


def _pcap_records(data: bytes, order: str) -> Iterator[Record]:
    yield Record(data[:PCAP_HEADER_LEN], order)
    at = PCAP_HEADER_LEN
    while at < len(data):
        if at + PCAP_RECORD_LEN > len(data):
            yield Record(data[at:], order)
            return
        (captured,) = struct.unpack_from(order + "I", data, at + 8)
        end = min(at + PCAP_RECORD_LEN + captured, len(data))
        yield Record(data[at:end], order, -1, PCAP_RECORD_LEN, end - at)
        at = end


def _blocks(data: bytes) -> Iterator[Record]:
    at, order = 0, "<"
    while at + 12 <= len(data):
        if data[at : at + 4] == PCAPNG_MAGIC:
            order = "<" if data[at + 8 : at + 12] == LITTLE else ">"
        kind, length = struct.unpack_from(order + "II", data, at)
        if length < 12 or length % 4 or at + length > len(data):
            break
        yield _block(data[at : at + length], kind, order)
        at += length
    if at < len(data):
        yield Record(data[at:], order)


def _block(data: bytes, kind: int, order: str) -> Record:
    if kind != ENHANCED_PACKET or len(data) < ENHANCED_BODY + 4:
        return Record(data, order)
    (captured,) = struct.unpack_from(order + "I", data, CAPTURED_AT)
    return Record(data, order, 12, ENHANCED_BODY, min(ENHANCED_BODY + captured, len(data) - 4))
