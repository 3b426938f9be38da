"""The public reader: what it gives for files of every kind, and what it says of those that are none."""

import gzip
import os
import re
import socket
import struct
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import zstandard
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether

from collector._core import decode_counters
from collector.capture_files.readers import CaptureReader, NameRecord, open_capture
from collector.capture_files.records import EVENT_COLUMNS, EXCERPT_COLUMNS, Columns, Direction, Severity
from testkit import capture_files as files
from tracer.errors import InputError

BASE_NS = 1_700_000_000_123_456_789
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
"""With addresses, or scapy would ask the network for them."""
PACKET = bytes(
    ETHERNET
    / IP(src="10.0.0.1", dst="10.0.0.2", id=77)
    / TCP(sport=40000, dport=8080, seq=5, ack=6, flags="PA", window=512, options=[("Timestamp", (9, 7))])
    / b"GET /v1/a HTTP/1.1\r\nHost: h\r\nX-Trans-Id: tx1\r\n\r\n"
)
DATAGRAM = bytes(ETHERNET / IP(src="10.0.0.1", dst="10.0.0.3") / UDP(sport=1, dport=2))


def read(path: Path, packets: int = 131_072) -> tuple[Columns, Columns, CaptureReader]:
    """All events, all excerpts, and the reader, still open."""
    reader = open_capture(path)
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    excerpts: dict[str, list[np.ndarray]] = defaultdict(list)
    for batch in reader.batches(packets):
        for name, column in batch.events.items():
            parts[name].append(column)
        for name, column in batch.excerpts.items():
            excerpts[name].append(column)
    return _concatenate(parts), _concatenate(excerpts), reader


def _concatenate(parts: dict[str, list[np.ndarray]]) -> Columns:
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def counts(reader: CaptureReader) -> dict[str, int]:
    return {counter.name: counter.count for counter in reader.counters}


@pytest.fixture
def write(tmp_path: Path):
    def write_file(data: bytes, name: str = "host.pcap") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write_file


def pcapng_of(*packets: bytes) -> bytes:
    parts = [files.section(), files.interface()]
    parts += [files.enhanced_packet(BASE_NS + number, packet) for number, packet in enumerate(packets)]
    return b"".join(parts)


# What a batch holds


def test_columns_have_the_declared_names_types_and_values(write):
    batch = next(open_capture(write(files.pcap([(BASE_NS, PACKET)]))).batches())
    assert {name: column.dtype.str[1:] for name, column in batch.events.items()} == EVENT_COLUMNS
    numeric = {name: batch.excerpts[name].dtype.str[1:] for name in EXCERPT_COLUMNS}
    assert numeric == EXCERPT_COLUMNS
    assert batch.excerpts.keys() == EXCERPT_COLUMNS.keys() | {"excerpt_offsets", "excerpt_bytes"}
    expected = {
        "frame": 1, "host_ns": BASE_NS, "interface": 0, "direction": 0, "src_addr": 0, "dst_addr": 1,
        "src_port": 40000, "dst_port": 8080, "seq": 5, "ack": 6, "flags": 0x18, "window": 512,
        "payload_len": len(PACKET) - 66, "ip_id": 77, "tsval": 9, "tsecr": 7, "options": 1, "mss": 0,
        "window_scale": 255, "sack_hash": 0, "captured_len": len(PACKET), "original_len": len(PACKET),
    }  # fmt: skip
    assert {name: column[0] for name, column in batch.events.items()} == expected


def test_excerpts_hold_the_wanted_lines_of_heads_as_offsets_and_bytes(write):
    _, excerpts, _ = read(write(files.pcap([(BASE_NS, PACKET), (BASE_NS, PACKET)])))
    kept = b"GET /v1/a HTTP/1.1\r\nX-Trans-Id: tx1\r\n\r\n"
    assert excerpts["excerpt_offsets"][:2].tolist() == [0, len(kept)]
    assert excerpts["excerpt_bytes"].tobytes() == kept + kept
    assert excerpts["frame"].tolist() == [1, 2]
    assert excerpts["solid_len"].tolist() == [20, 20]  # the line with the host is left out behind them


def test_batches_are_of_the_size_asked_for_and_frames_go_on(write):
    path = write(files.pcap([(BASE_NS + n, DATAGRAM if n % 3 == 2 else PACKET) for n in range(10)]))
    with open_capture(path) as reader:
        batches = [batch.events["frame"].tolist() for batch in reader.batches(4)]
    assert batches == [[1, 2, 4], [5, 7, 8], [10]]


def test_a_capture_without_packets_is_a_capture(write):
    events, _, reader = read(write(files.pcap([])))
    assert (events, reader.packets_count, reader.counters) == ({}, 0, [])


def test_addresses_grow_and_stay(write):
    other = bytes(ETHERNET / IP(src="10.0.0.3", dst="10.0.0.1") / TCP())
    with open_capture(write(files.pcap([(0, PACKET), (0, other)]))) as reader:
        stages = [list(reader.addresses) for _ in reader.batches(1)]
    assert stages == [["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2", "10.0.0.3"]]


# File formats


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nanoseconds", [True, False])
def test_pcap_in_both_orders_and_resolutions(write, order, nanoseconds):
    data = files.pcap([(BASE_NS, PACKET), (BASE_NS + 5_000, PACKET)], order=order, nanoseconds=nanoseconds)
    events, _, reader = read(write(data))
    tick = 1 if nanoseconds else 1_000
    assert events["host_ns"].tolist() == [BASE_NS // tick * tick, (BASE_NS + 5_000) // tick * tick]
    assert events["seq"].tolist() == [5, 5]
    assert reader.interfaces[0].resolution_ns == tick


@pytest.mark.parametrize("order", "<>")
def test_pcapng_in_both_orders(write, order):
    parts = [files.section(order), files.interface(order=order), files.enhanced_packet(BASE_NS, PACKET, order=order)]
    parts += [files.obsolete(BASE_NS + 1, PACKET, order=order, drops=3), files.simple(PACKET, order)]
    events, _, reader = read(write(b"".join(parts)))
    assert events["host_ns"].tolist() == [BASE_NS, BASE_NS + 1]
    assert reader.packets_count == 3
    expected = {"packets_without_time": 1, "capture_dropped": 3}
    assert {name: count for name, count in counts(reader).items() if name in expected} == expected


def test_sections_of_different_order_and_interfaces_of_different_clocks(write):
    binary = files.interface(pairs=[(9, b"\x8a"), (14, struct.pack("<q", 5))])
    named = files.interface(101, ">", 96, [(9, b"\x00"), (2, b"tun0"), (3, b"A"), (8, struct.pack(">Q", 5))])
    parts = [
        files.section("<"), files.interface(pairs=[]), binary,
        files.enhanced_packet(1_500_000, PACKET), files.enhanced_packet(1024, PACKET, interface_id=1),
        files.section(">"), named, files.enhanced_packet(7, PACKET[14:], order=">"),
    ]  # fmt: skip
    events, _, reader = read(write(b"".join(parts)))
    assert events["host_ns"].tolist() == [1_500_000_000, 6_000_000_000, 7_000_000_000]
    assert events["interface"].tolist() == [0, 1, 2]
    assert [(i.index, i.name, i.link_type, i.packets_count) for i in reader.interfaces] == [
        (0, "", 1, 1), (1, "", 1, 1), (2, "tun0", 101, 1)
    ]  # fmt: skip
    assert [i.resolution_ns for i in reader.interfaces] == [1_000, 976_562, 1_000_000_000]
    last = reader.interfaces[2]
    assert (last.snaplen, last.description, last.speed_bps, last.received_count) == (96, "A", 5, None)


def test_segments_of_our_agent_one_behind_the_other(write):
    def segment(number: int, host: str = "proxy") -> bytes:
        return b"".join(
            [
                files.section(pairs=[(1, f"twintap.host={host}".encode()), (4, b"twintap-agent 0.1.0")]),
                files.interface(pairs=[(2, b"eth0"), (9, b"\x09")]),
                files.names([(socket.inet_aton("10.0.0.1"), [host])]),
                files.enhanced_packet(BASE_NS + number, PACKET, pairs=[(2, struct.pack("<I", 2 - number % 2))]),
                files.statistics(0, [(4, struct.pack("<Q", 100)), (5, struct.pack("<Q", number))]),
            ]
        )

    events, _, reader = read(write(segment(1) + segment(2) + segment(3)))
    assert events["direction"].tolist() == [Direction.RECEIVE, Direction.SEND, Direction.RECEIVE]
    assert events["interface"].tolist() == [0, 0, 0], "the same interface, described again"
    assert (reader.host, reader.applications) == ("proxy", ("twintap-agent 0.1.0",))
    assert reader.comments == ("twintap.host=proxy",)
    assert reader.names == [NameRecord("10.0.0.1", "proxy")]
    only = reader.interfaces[0]
    assert (only.name, only.received_count, only.dropped_count) == ("eth0", 300, 6)
    dropped = next(counter for counter in reader.counters if counter.name == "capture_dropped")
    assert (dropped.count, dropped.severity) == (6, Severity.DATA_LOSS)
    _, _, two_hosts = read(write(segment(1) + segment(1, "storage1")))
    assert len(two_hosts.interfaces) == 2, "eth0 of another host is another interface"


@pytest.mark.parametrize(
    ("starts", "expected"),
    [((1, 1), (9, 2)), ((1, 2), (14, 3)), ((None, None), (14, 3))],
    ids=["from the same start", "from another start", "start not stated"],
)
def test_statistics_of_sections_add_up_unless_they_count_from_the_same_start(write, starts, expected):
    def part(start: int | None, *counts: tuple[int, int]) -> bytes:
        begun = [] if start is None else [(2, struct.pack("<II", 0, start))]
        pairs = [[*begun, (4, struct.pack("<Q", got)), (5, struct.pack("<Q", lost))] for got, lost in counts]
        blocks = [files.statistics(0, of_block) for of_block in pairs]
        return files.section() + files.interface() + b"".join(blocks)

    _, _, reader = read(write(part(starts[0], (2, 0), (5, 1)) + part(starts[1], (9, 2))))
    assert [(i.received_count, i.dropped_count) for i in reader.interfaces] == [expected]


def test_statistics_say_between_which_times_packets_were_dropped(write):
    def statistics(at: int, lost: int, start: int = BASE_NS) -> bytes:
        times = [(code, struct.pack("<II", ns >> 32, ns & 0xFFFFFFFF)) for code, ns in ((2, start), (3, BASE_NS + at))]
        return files.statistics(0, [*times, (5, struct.pack("<Q", lost))])

    described = files.section() + files.interface()
    parts = [described, statistics(10, 0), statistics(20, 0), statistics(30, 4), statistics(50, 9)]
    another = [described, statistics(70, 2, BASE_NS + 60)]
    _, _, reader = read(write(b"".join((*parts, *another))))
    (interface,) = reader.interfaces
    spans = [(drops.from_ns - BASE_NS, drops.to_ns - BASE_NS, drops.count) for drops in interface.drops]
    assert spans == [(0, 20, 0), (20, 30, 4), (30, 50, 5), (50, 70, 2)]
    assert interface.dropped_count == 11


def test_packets_that_an_agent_marked_as_damaged_are_known_by_their_frames(write):
    mark, other = b"twintap.tcp_checksum=wrong", b"twintap.tcp_checksum=right"
    packets = [
        files.enhanced_packet(BASE_NS, PACKET, pairs=pairs) for pairs in ([(1, mark)], [], [(1, other)], [(1, mark)])
    ]
    _, _, reader = read(write(b"".join((files.section(), files.interface(), *packets))))
    assert reader.damaged_frames.tolist() == [1, 4]


def test_names_of_both_families_once_each(write):
    six = socket.inet_pton(socket.AF_INET6, "fd00::1")
    block = files.names([(socket.inet_aton("10.0.0.1"), ["a", "b"]), (six, ["c"]), (six, ["c"])])
    _, _, reader = read(write(files.section() + block))
    assert reader.names == [NameRecord("10.0.0.1", "a"), NameRecord("10.0.0.1", "b"), NameRecord("fd00::1", "c")]


def test_unknown_blocks_are_skipped(write):
    secrets = files.block(0x0A, b"\0" * 300_000)
    events, _, reader = read(write(files.section() + secrets + pcapng_of(PACKET)[len(files.section()) :]))
    assert events["frame"].tolist() == [1]
    assert counts(reader)["blocks_skipped"] == 1


@pytest.mark.parametrize(("compress", "suffix"), [(gzip.compress, "gz"), (zstandard.compress, "zst")])
def test_compression_is_undone_even_of_several_members(write, compress, suffix):
    whole = files.pcap([(BASE_NS, PACKET), (BASE_NS, PACKET)])
    data = compress(whole[:50]) + compress(whole[50:])
    events, _, _ = read(write(data, f"host.pcap.{suffix}"))
    assert events["frame"].tolist() == [1, 2]


# Damage


@pytest.mark.parametrize("whole", [files.pcap([(BASE_NS, PACKET)] * 3), pcapng_of(PACKET, PACKET, PACKET)])
def test_a_file_cut_anywhere_keeps_what_came_before(write, whole):
    sizes = []
    for length in range(28, len(whole)):
        events, _, reader = read(write(whole[:length]))
        kept = len(events.get("frame", ()))
        sizes.append(kept)
        is_cut = counts(reader).get("capture_truncated", 0) == 1
        assert is_cut == (length not in _ends(whole)), length
    assert sizes == sorted(sizes)
    assert (min(sizes), max(sizes)) == (0, 2)


def _ends(whole: bytes) -> set[int]:
    """Lengths at which a cut falls between records."""
    if whole.startswith(b"\x0a\x0d\x0d\x0a"):
        ends, at = set(), 0
        while at < len(whole):
            at += struct.unpack_from("<I", whole, at + 4)[0]
            ends.add(at)
        return ends
    record = 16 + len(PACKET)
    return {24 + n * record for n in range(4)}


@pytest.mark.parametrize("whole", [files.pcap([(BASE_NS, PACKET)]), pcapng_of(PACKET)], ids=["pcap", "pcapng"])
def test_a_file_cut_within_its_own_header_is_empty_cut_or_no_capture(write, whole):
    for length in range(28):
        path = write(whole[:length])
        try:
            events, _, reader = read(path)
        except InputError:
            continue
        assert len(events.get("frame", ())) == 0
        assert counts(reader).get("capture_truncated", 0) == (length not in _ends(whole)), length


def test_a_gzip_cut_anywhere_keeps_what_came_before(write):
    whole = gzip.compress(files.pcap([(BASE_NS + n, PACKET + os.urandom(20)) for n in range(3)]))
    kept = []
    for length in range(len(whole)):
        try:
            events, _, reader = read(write(whole[:length], "host.pcap.gz"))
        except InputError:
            continue
        kept.append(len(events.get("frame", ())))
        assert counts(reader)["capture_truncated"] == 1, length
    assert kept == sorted(kept)
    assert kept[-1] > 0


@pytest.mark.parametrize(("compress", "suffix"), [(gzip.compress, "gz"), (zstandard.compress, "zst")])
def test_a_cut_file_keeps_what_came_before_and_says_so(write, compress, suffix):
    whole = compress(files.pcap([(BASE_NS + n, PACKET + os.urandom(200)) for n in range(2_000)]))
    events, _, reader = read(write(whole[: len(whole) // 2], f"host.pcap.{suffix}"))
    assert 0 < len(events["frame"]) < 2_000
    assert counts(reader)["capture_truncated"] == 1


@pytest.mark.parametrize(
    ("tail", "counter"),
    [
        (struct.pack("<IIII", 1, 1, 0xFFFFFFFF, 0xFFFFFFFF), "capture_corrupt"),
        (struct.pack("<IIII", 1, 1, 0x00FFFF00, 0xFFFFFFFF), "capture_truncated"),
    ],
    ids=["4 GiB", "16 MiB"],
)
def test_a_record_that_claims_too_much(write, tail, counter):
    events, _, reader = read(write(files.pcap([(BASE_NS, PACKET)]) + tail))
    assert events["frame"].tolist() == [1]
    assert counts(reader)[counter] == 1


@pytest.mark.parametrize(
    ("tail", "counter"),
    [
        (struct.pack("<III", 6, 0, 0), "capture_corrupt"),
        (struct.pack("<III", 6, 33, 0), "capture_corrupt"),
        (struct.pack("<III", 6, 0xFFFFFFFC, 0), "capture_truncated"),
        (files.block(6, b""), "blocks_malformed"),
        (files.enhanced_packet(1, PACKET, interface_id=0xFFFFFFFF), "interface_unknown"),
        (files.enhanced_packet(1 << 63, PACKET), "time_out_of_range"),
        (files.block(6, struct.pack("<IIIII", 0, 0, 0, 5000, 5000)), "blocks_malformed"),
        (files.block(6, struct.pack("<IIIII", 0, 0, 0, 5, 5) + b"abcd"), "blocks_malformed"),
        (files.block(1, b""), "blocks_malformed"),
        (files.block(5, b""), "blocks_malformed"),
        (files.block(files.SECTION, b"\x00" * 16), "capture_corrupt"),
        (files.block(files.SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 9, 0, -1)), "capture_corrupt"),
    ],
    ids=str,
)
def test_blocks_that_cannot_be(write, tail, counter):
    events, _, reader = read(write(pcapng_of(PACKET) + tail))
    assert events["frame"].tolist() == [1]
    assert counts(reader)[counter] == 1


def test_more_interfaces_than_there_can_be(write):
    many = b"".join(files.interface(pairs=[(2, b"%d" % number)]) for number in range(65_600))
    last = files.enhanced_packet(BASE_NS, PACKET, interface_id=65_590)
    _, _, reader = read(write(files.section() + many + last))
    assert len(reader.interfaces) == 65_535
    assert counts(reader)["too_many_interfaces"] == 65
    assert counts(reader)["interface_unknown"] == 1


def test_interfaces_of_a_cooked_capture_are_distinguished_in_every_section(write):
    def cooked_frame(number: int) -> bytes:
        return b"\x08\0\0\0" + struct.pack(">I", number) + b"\0\1\0\6" + bytes(8) + PACKET[14:]

    def segment(*numbers: int) -> bytes:
        described = files.interface(276, pairs=[(2, b"any"), (9, b"\x09")]) + files.interface(
            pairs=[(2, b"eth9"), (9, b"\x09")]
        )
        packets = b"".join(files.enhanced_packet(BASE_NS, cooked_frame(number)) for number in numbers)
        losses = files.statistics(0, [(5, struct.pack("<Q", 3))])
        return files.section() + described + packets + files.enhanced_packet(BASE_NS, PACKET, interface_id=1) + losses

    late = (
        files.section() + files.interface(pairs=[(2, b"late"), (9, b"\x09")]) + files.enhanced_packet(BASE_NS, PACKET)
    )
    events, _, reader = read(write(segment(7, 3, 7) + segment(3, 9) + late))
    assert events["interface"].tolist() == [0, 2, 0, 1, 2, 3, 1, 4]
    assert [(i.name, i.packets_count, i.dropped_count) for i in reader.interfaces] == [
        ("any:7", 2, 6), ("eth9", 2, None), ("any:3", 2, None), ("any:9", 1, None), ("late", 1, None)
    ]  # fmt: skip


# What is no capture


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\xd4", "only 1 byte"),
        (b"No. Time Source\n1 0.0 10.0.0.1\n", "is a text file"),
        (files.pcap([])[:20], "cut off within its header"),
        (b"\x34\xcd\xb2\xa1" + bytes(20), "Kuznetzov"),
        (b"\x7fELF" + bytes(60), "is a program"),
        (gzip.compress(b"just a text, and nothing else\n"), "is a text file"),
        (gzip.compress(gzip.compress(files.pcap([]))), "compressed more than once"),
        (gzip.compress(b""), "is empty"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 3, 0, 0, 0, 0, 1), "version 3.0"),
    ],
    ids=range(10),
)
def test_files_that_are_no_capture(write, data, said):
    path = write(data)
    with pytest.raises(InputError) as caught:
        open_capture(path)
    assert said in str(caught.value)
    assert str(path) in caught.value.what
    assert caught.value.next_step


def test_paths_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        open_capture(tmp_path / "none.pcap")
    with pytest.raises(InputError, match="is a directory"):
        open_capture(tmp_path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="cannot be read"):
        open_capture(loop)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(write):
    path = write(files.pcap([]))
    path.chmod(0)
    with pytest.raises(InputError, match="may not be read by this user"):
        open_capture(path)


# Documentation


def test_every_counter_is_documented_with_its_severity():
    page = (Path(__file__).parents[3] / "docs" / "decoding.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    decoders = {name: severity for name, severity, _ in decode_counters()}
    assert decoders.items() <= documented.items()
    collector = "".join(path.read_text() for path in (Path(__file__).parents[3] / "collector").rglob("*.py"))
    assert all(f'"{name}"' in collector for name in documented.keys() - decoders.keys())


def test_every_counter_that_loses_data_has_a_remedy():
    severe = {Severity.DATA_LOSS, Severity.ERROR}
    assert [name for name, severity, remedy in decode_counters() if severity in severe and not remedy] == []
