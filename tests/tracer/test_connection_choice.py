"""Packets of some connections are chosen from segments: by a text in them, or by the ends."""

import socket
import struct

import pytest

from testkit import capture_files
from tracer.connection_choice import copy_chosen, parse_choice
from tracer.errors import InputError

ID = b"req-000828"
HEAD = b"GET /x HTTP/1.1\r\nX-Request-Id: req-000828\r\n\r\n"


def tcp(source: tuple[str, int], target: tuple[str, int], payload: bytes = b"") -> bytes:
    """An IP packet."""
    segment = struct.pack("!HHIIBBHHH", source[1], target[1], 1, 2, 5 << 4, 24, 500, 0, 0) + payload
    if ":" in source[0]:
        ends = [socket.inet_pton(socket.AF_INET6, end[0]) for end in (source, target)]
        return struct.pack("!IHBB", 6 << 28, len(segment), 6, 64) + b"".join(ends) + segment
    ends = [socket.inet_aton(end[0]) for end in (source, target)]
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 1, 0, 64, 6, 0) + b"".join(ends) + segment


def ethernet(packet: bytes, tags: bytes = b"") -> bytes:
    return bytes(12) + tags + (b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet


def segment_of(*frames: bytes, link_type: int = 1) -> bytes:
    """As an agent writes it."""
    blocks = [capture_files.enhanced_packet(number, frame) for number, frame in enumerate(frames, 1)]
    return capture_files.section() + capture_files.interface(link_type) + b"".join(blocks)


def frames_of(segment: bytes | None) -> list[int]:
    """The stamps of the packets that are left."""
    found, at = [], 0
    while segment and at < len(segment):
        kind, length = struct.unpack_from("<II", segment, at)
        if kind == 6:
            high, low = struct.unpack_from("<II", segment, at + 12)
            found.append(high << 32 | low)
        at += length
    return found


CLIENT, SERVER, OTHER = ("10.0.0.1", 40_000), ("10.0.0.2", 80), ("10.0.0.1", 40_001)
CLIENT_6, SERVER_6 = ("fd00::1", 40_000), ("fd00::2", 80)


@pytest.mark.parametrize("choice", ["req-000828", "10.0.0.1:40000", "10.0.0.2:80 10.0.0.1:40000"])
def test_all_packets_of_a_connection_are_chosen_in_both_directions(choice: str) -> None:
    segment = segment_of(
        ethernet(tcp(CLIENT, SERVER, HEAD)),
        ethernet(tcp(OTHER, SERVER, b"GET /y")),
        ethernet(tcp(SERVER, CLIENT, b"HTTP/1.1 200 OK")),
        ethernet(tcp(SERVER, OTHER)),
    )
    connections = parse_choice(choice).find(segment)
    assert len(connections) == 1
    assert frames_of(copy_chosen(segment, connections)) == [1, 3]


def test_they_are_found_again_where_nothing_shows_why() -> None:
    connections = parse_choice("req-000828").find(segment_of(ethernet(tcp(CLIENT, SERVER, HEAD))))
    later = segment_of(ethernet(tcp(OTHER, SERVER)), ethernet(tcp(SERVER, CLIENT)))
    assert frames_of(copy_chosen(later, connections)) == [2]
    assert copy_chosen(segment_of(ethernet(tcp(OTHER, SERVER))), connections) is None
    assert copy_chosen(segment_of(ethernet(tcp(("10.9.9.9", 1), SERVER))), connections) is None


@pytest.mark.parametrize(
    ("frame", "link_type"),
    [
        (ethernet(tcp(CLIENT, SERVER, HEAD), b"\x81\x00\x00\x05"), 1),
        (ethernet(tcp(CLIENT, SERVER, HEAD), b"\x88\xa8\x00\x05\x81\x00\x00\x06"), 1),
        (tcp(CLIENT, SERVER, HEAD), 101),
        (ethernet(tcp(CLIENT_6, SERVER_6, HEAD)), 1),
        (tcp(CLIENT_6, SERVER_6, HEAD), 101),
    ],
)
def test_what_agents_write_is_read(frame: bytes, link_type: int) -> None:
    segment = segment_of(frame, link_type=link_type)
    connections = parse_choice("req-000828").find(segment)
    assert copy_chosen(segment, connections) == segment
    assert parse_choice("[fd00::1]:40000" if b"\xfd\x00" in frame else "10.0.0.1:40000").find(segment) == connections


def test_a_segment_cut_anywhere_is_no_trouble() -> None:
    segment = segment_of(ethernet(tcp(CLIENT, SERVER, HEAD)))
    connections = parse_choice("req-000828").find(segment)
    for end in range(len(segment)):
        assert copy_chosen(segment[:end], connections) is None
        assert parse_choice("req-000828").find(segment[:end]) == set()
    for size in range(80):
        assert parse_choice("req-000828").find(segment_of(ethernet(tcp(CLIENT, SERVER))[:size])) == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("abc", "has 4 to 200 bytes"),
        ("x" * 201, "has 4 to 200 bytes"),
        ("10.0.0.1:1 10.0.0.2:2 10.0.0.3:3", "more than two ends"),
        ("10.0.0:1", "is no end"),
        ("10.0.0.1:70000", "is no end"),
    ],
)
def test_what_is_no_choice(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_choice(text)
