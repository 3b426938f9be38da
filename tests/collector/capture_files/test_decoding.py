"""Decoded fields equal those of tshark, dpkt and scapy, on packets of every link type, network layer and option."""

import gzip
import os
import shutil
from functools import cache
from itertools import product, zip_longest
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, TCPerror, fragment
from scapy.layers.inet6 import (
    HBHOptUnknown,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    fragment6,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from collector.capture_files.readers import open_capture
from collector.capture_files.records import Direction
from testkit import capture_files as files
from tests.helpers.decoders import TSHARK_PREFERENCES, by_dpkt, by_scapy, by_tshark, differences, ours

BASE_NS = 1_700_000_000_123_456_000
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
"""With addresses, or scapy would ask the network for them."""

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed: apt install tshark")

OPTIONS = {
    "none": [],
    "timestamps": [("NOP", None), ("NOP", None), ("Timestamp", (123456, 654321))],
    "linux_syn": [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (1, 0)), ("NOP", None), ("WScale", 7)],
    "bsd_syn": [("MSS", 65495), ("NOP", None), ("WScale", 14), ("SAckOK", b""), ("EOL", None)],
    "sack": [("NOP", None), ("NOP", None), ("Timestamp", (9, 8)), ("NOP", None), ("NOP", None), ("SAck", (1, 2, 7, 9))],
    "sack_alone": [("SAck", (4000000000, 4000001448))],
    "unknown": [(254, b"\x01\x02\x03\x04\x05\x06"), ("Timestamp", (3, 4))],
}
PAYLOADS = {"empty": b"", "small": b"x" * 7, "full": bytes(range(256)) * 5 + b"z" * 168}
FLAGS = ("S", "SA", "A", "PA", "FA", "R", "SEC", "APU")


def segments() -> list[Packet]:
    """TCP of every kind of options and payload, each with other numbers."""
    made = []
    for number, (options, payload) in enumerate(product(OPTIONS.values(), PAYLOADS.values())):
        header = TCP(
            sport=30000 + number, dport=8080, seq=(number * 999_999_937) % 2**32, ack=(number * 77_777_777) % 2**32,
            flags=FLAGS[number % len(FLAGS)], window=number * 1000 % 65536, options=options,
        )  # fmt: skip
        made.append(header / Raw(payload) if payload else header)
    return made


def networks(segment: Packet, number: int) -> list[Packet]:
    """The segment in IPv4 and IPv6, plain and with whatever may stand between."""
    v4 = IP(src="10.1.2.3", dst="192.168.0.254", id=number * 997 % 65536, ttl=3)
    v6 = IPv6(src="fd00::1", dst="2001:db8::ffff")
    unknown = HBHOptUnknown(otype=0x1E, optdata=b"12")
    return [
        v4 / segment,
        IP(src="10.1.2.3", dst="10.0.0.9", id=0, options=[(b"\x94\x04\x00\x00")]) / segment,
        IP(src="10.0.0.9", dst="10.1.2.3", id=7, flags="DF") / segment,
        v6 / segment,
        v6 / IPv6ExtHdrHopByHop(options=[unknown]) / segment,
        v6 / IPv6ExtHdrDestOpt(options=[unknown]) / IPv6ExtHdrRouting(addresses=["::9"]) / segment,
        v6 / AH(nh=6, payloadlen=4, icv=b"0" * 12) / segment,
    ]


def others() -> list[Packet]:
    """What is no TCP, though some of it looks so: it takes a frame and gives no row."""
    quoted = IPerror(src="10.0.0.1", dst="10.0.0.2") / TCPerror(sport=1, dport=2)
    return [
        IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=80, dport=80) / b"GET / HTTP/1.1\r\n\r\n",
        IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(type=3, code=1) / quoted,
        IP(src="10.0.0.1", dst="10.0.0.2", proto=6, frag=185) / Raw(b"behind the first fragment...."),
        IPv6(src="fd00::1", dst="fd00::2") / IPv6ExtHdrFragment(nh=6, offset=90, m=0) / Raw(b"likewise" * 5),
        IPv6(src="fd00::1", dst="fd00::2", nh=59),
    ]


@cache
def everything() -> tuple[Packet, ...]:
    """All of the above."""
    with_tcp = [packet for number, segment in enumerate(segments()) for packet in networks(segment, number)]
    return (*with_tcp[:50], *others(), *with_tcp[50:])


def _ethertype(packet: Packet) -> int:
    return 0x0800 if isinstance(packet, IP) else 0x86DD


def _family(packet: Packet, six: int) -> int:
    return 2 if isinstance(packet, IP) else six


def _sll(packet: Packet, kind: int) -> bytes:
    return kind.to_bytes(2) + b"\0\1\0\6" + bytes(8) + _ethertype(packet).to_bytes(2) + bytes(packet)


def _sll2(packet: Packet, kind: int) -> bytes:
    return _ethertype(packet).to_bytes(2) + bytes(2) + b"\0\0\0\2\0\1" + bytes([kind, 6]) + bytes(8) + bytes(packet)


LINKS = {
    "ethernet": (1, lambda packet: bytes(ETHERNET / packet)),
    "802.1Q": (1, lambda packet: bytes(ETHERNET / Dot1Q(vlan=7) / packet)),
    "QinQ": (1, lambda packet: bytes(ETHERNET / Dot1AD(vlan=7) / Dot1Q(vlan=9) / packet)),
    "SLL": (113, lambda packet: _sll(packet, 0)),
    "SLL2": (276, lambda packet: _sll2(packet, 4)),
    "raw": (101, bytes),
    "raw of BSD": (12, bytes),
    "raw of OpenBSD": (14, bytes),
    "null": (0, lambda packet: _family(packet, 30).to_bytes(4, "little") + bytes(packet)),
    "null of the other order": (0, lambda packet: _family(packet, 28).to_bytes(4, "big") + bytes(packet)),
    "loop": (108, lambda packet: _family(packet, 24).to_bytes(4, "big") + bytes(packet)),
}


@pytest.fixture
def write(tmp_path: Path):
    def write_file(data: bytes) -> Path:
        path = tmp_path / "host.pcap"
        path.write_bytes(data)
        return path

    return write_file


def with_stamps(frames: list[bytes]) -> list[tuple[int, bytes]]:
    return [(BASE_NS + number * 1_001, frame) for number, frame in enumerate(frames)]


# Against the oracles


@needs_tshark
@pytest.mark.parametrize("link", LINKS)
def test_every_packet_on_every_link_is_as_tshark_reads_it(write, link):
    link_type, wrap = LINKS[link]
    frames = [wrap(packet) for packet in everything()]
    path = write(files.pcap(with_stamps(frames), link_type=link_type))
    rows = ours(path)
    assert len(rows) == len(frames) - len(others())
    if link_type == 14:
        path = write(files.pcap(with_stamps(frames), link_type=101))  # tshark does not know 14
    assert differences(rows, by_tshark(path)) == []


@pytest.mark.parametrize(("link_type", "is_six"), [(228, False), (229, True)])
def test_raw_links_of_one_version_are_as_of_either(write, link_type, is_six):
    frames = [bytes(packet) for packet in everything() if isinstance(packet, IPv6) == is_six]
    rows = ours(write(files.pcap(with_stamps(frames), link_type=link_type)))
    assert rows == ours(write(files.pcap(with_stamps(frames), link_type=101)))
    assert len(rows) > 40


@needs_tshark
@pytest.mark.parametrize("order", "<>")
def test_pcapng_is_as_tshark_reads_it(write, order):
    parts = [files.section(order)]
    parts += [files.interface(link_type, order) for link_type, _ in LINKS.values() if link_type != 14]
    links = [wrap for link_type, wrap in LINKS.values() if link_type != 14]
    for number, packet in enumerate(everything()):
        link = number % len(links)
        parts.append(files.enhanced_packet(BASE_NS + number, links[link](packet), interface_id=link, order=order))
    path = write(b"".join(parts))
    rows = ours(path)
    assert differences(rows, by_tshark(path)) == []
    assert {row["interface"] for row in rows} == set(range(len(links)))


def test_every_packet_on_ethernet_is_as_scapy_reads_it(write):
    path = write(files.pcap(with_stamps([LINKS["ethernet"][1](packet) for packet in everything()])))
    rows = {row["frame"]: row for row in ours(path)}
    # Scapy reads as TCP what an ICMP error quotes and what a later fragment holds, and does not look behind AH.
    oracle = [row for row in by_scapy(path) if row["frame"] in rows]
    assert len(oracle) == len(segments()) * (len(networks(TCP(), 0)) - 1)
    assert differences([rows[row["frame"]] for row in oracle], oracle) == []


def test_every_ipv4_packet_on_ethernet_is_as_dpkt_reads_it(write):
    path = write(files.pcap(with_stamps([LINKS["ethernet"][1](packet) for packet in everything()])))
    rows = [row for row in ours(path) if "." in row["src_addr"]]
    assert differences(rows, by_dpkt(path)) == []


@needs_tshark
@pytest.mark.parametrize("snaplen", [50, 54, 60, 66, 74, 96, 128])
def test_cut_packets_keep_what_tshark_keeps(write, snaplen):
    frames = [LINKS["ethernet"][1](packet) for packet in everything()]
    path = write(files.pcap(with_stamps(frames), snaplen=snaplen))
    # tshark also gives what it finds of a header that is cut before the window; we need the window.
    oracle = [row for row in by_tshark(path) if "window" in row]
    found = differences(ours(path), oracle)
    optional = {"tsval", "tsecr", "mss", "window_scale", "has_sack", "is_sack_permitted"}
    assert [difference for difference in found if difference[1] not in optional] == []
    assert all(difference[2] in (0, 255, False) for difference in found), "what was cut is not made up"


OUTER = IP(src="172.16.0.1", dst="172.16.0.2", id=9)
OUTER6 = IPv6(src="fd01::1", dst="fd01::2")
GENEVE_OPTION = b"\x01\x02\x80\x01abcd"
TUNNELS = {
    "VXLAN": lambda packet: OUTER / UDP(sport=50000, dport=4789) / VXLAN(vni=7) / ETHERNET / packet,
    "VXLAN with a tag": lambda packet: (
        OUTER / UDP(sport=50000, dport=8472) / VXLAN(vni=7) / ETHERNET / Dot1Q(vlan=3) / packet
    ),
    "VXLAN over IPv6": lambda packet: OUTER6 / UDP(sport=50000, dport=4789) / VXLAN(vni=7) / ETHERNET / packet,
    "Geneve": lambda packet: (
        OUTER / UDP(sport=50000, dport=6081) / Raw(b"\x02\0\x65\x58\0\0\1\0" + GENEVE_OPTION) / ETHERNET / packet
    ),
    "GRE": lambda packet: OUTER / GRE(proto=_ethertype(packet)) / packet,
    "GRE with everything": lambda packet: (
        OUTER / GRE(proto=0x6558, chksum_present=1, key_present=1, key=5, seqnum_present=1) / ETHERNET / packet
    ),
    "IP in IP": lambda packet: OUTER / packet,
    "GRE in VXLAN": lambda packet: (
        OUTER / UDP(sport=50000, dport=4789) / VXLAN() / ETHERNET / OUTER / GRE(proto=_ethertype(packet)) / packet
    ),
}


@needs_tshark
@pytest.mark.parametrize("tunnel", TUNNELS)
def test_the_connection_within_a_tunnel_is_decoded(write, tunnel):
    packets = [packet for packet in everything() if TCP in packet][::3]
    plain = ours(write(files.pcap(with_stamps([bytes(ETHERNET / packet) for packet in packets]))))
    path = write(files.pcap(with_stamps([bytes(ETHERNET / TUNNELS[tunnel](packet)) for packet in packets])))
    rows = ours(path)
    lengths = {"captured_len", "original_len"}
    assert [{k: row[k] for k in row.keys() - lengths} for row in rows] == [
        {k: row[k] for k in row.keys() - lengths} for row in plain
    ]
    if tunnel != "VXLAN with a tag":  # a port that tshark does not know
        of_ip = {"src_addr", "dst_addr", "ip_id"}  # of the outer header
        oracle = [{k: row[k] for k in row.keys() - of_ip} for row in by_tshark(path)]
        assert differences(rows, oracle) == []


def test_tunnels_in_tunnels_without_end_are_no_connection(write):
    packet = IP() / TCP()
    for _ in range(6):
        packet = OUTER / packet
    path = write(files.pcap(with_stamps([bytes(ETHERNET / packet)])))
    assert ours(path) == []
    with open_capture(path) as reader:
        list(reader.batches())
        assert [counter.name for counter in reader.counters] == ["too_many_layers"]


# Datagrams that were split on the way

REASSEMBLE = [preference.replace("defragment:FALSE", "defragment:TRUE") for preference in TSHARK_PREFERENCES]
BEHIND = IPv6ExtHdrDestOpt(options=[HBHOptUnknown(otype=0x1E, optdata=b"12")])
DATAGRAMS = {
    "IPv4": lambda number: fragment(IP(src="10.0.0.1", dst="10.0.0.2", id=number) / segment_of(number), 1_400),
    "IPv4 with options": lambda number: fragment(
        IP(src="10.0.0.1", dst="10.0.0.2", id=number, options=[b"\x94\x04\0\0"]) / segment_of(number), 576
    ),
    "IPv6": lambda number: fragment6(
        IPv6(src="fd00::1", dst="fd00::2") / IPv6ExtHdrFragment(id=number) / segment_of(number), 1_280
    ),
    "IPv6 with an extension in it": lambda number: fragment6(
        IPv6(src="fd00::1", dst="fd00::2") / IPv6ExtHdrFragment(id=number) / BEHIND / segment_of(number), 1_280
    ),
}
ORDERS = {
    "in order": lambda pieces: pieces,
    "backwards": lambda pieces: pieces[::-1],
    "last piece first": lambda pieces: pieces[-1:] + pieces[:-1],
    "one twice": lambda pieces: pieces[:2] + pieces[1:],
}


def segment_of(number: int) -> Packet:
    options = [("NOP", None), ("NOP", None), ("Timestamp", (number, 1))]
    return TCP(sport=number, dport=80, seq=number, flags="A", options=options) / Raw(b"y" * (2_000 + 777 * number))


def interleave(datagrams: list[list[Packet]]) -> list[Packet]:
    """A piece of each in turn."""
    return [piece for pieces in zip_longest(*datagrams) for piece in pieces if piece is not None]


@needs_tshark
@pytest.mark.parametrize("kind", DATAGRAMS)
def test_the_row_of_a_split_datagram_is_as_long_as_tshark_puts_it_together(write, kind):
    """In every order of its pieces, all in one capture: tshark takes a third of a second to start."""
    pieces = []
    for first, order in enumerate(ORDERS.values()):
        numbers = range(1 + 5 * first, 6 + 5 * first)
        pieces += interleave([order(list(DATAGRAMS[kind](number))) for number in numbers])
    path = write(files.pcap(with_stamps([bytes(ETHERNET / piece) for piece in pieces])))
    rows, oracle = ours(path), by_tshark(path, REASSEMBLE)
    assert {row["seq"]: row["payload_len"] for row in rows} == {
        number: 2_000 + 777 * number for number in range(1, 1 + 5 * len(ORDERS))
    }
    # tshark shows it at the piece that came last; we at the one that holds the TCP header.
    of_piece = {"frame", "host_ns", "captured_len", "original_len"}
    by_seq = {row["seq"]: {name: row[name] for name in row.keys() - of_piece} for row in oracle}
    assert len(by_seq) == len(rows)
    assert (
        differences(
            [row | {"frame": row["seq"]} for row in rows], [row | {"frame": seq} for seq, row in by_seq.items()]
        )
        == []
    )
    firsts = {row["frame"]: row for row in by_tshark(path)}
    assert {row["frame"] for row in rows} == firsts.keys()


@pytest.mark.parametrize("kind", DATAGRAMS)
@pytest.mark.parametrize("missing", [1, -1], ids=["a middle piece", "the last piece"])
def test_a_datagram_with_a_missing_piece_stands_with_its_first(write, kind, missing):
    pieces = list(DATAGRAMS[kind](5))
    del pieces[missing]
    path = write(files.pcap(with_stamps([bytes(ETHERNET / piece) for piece in pieces])))
    with open_capture(path) as reader:
        lens = [batch.events["payload_len"].tolist() for batch in reader.batches()]
        found = {counter.name: counter.count for counter in reader.counters}
    first = bytes(pieces[0])
    assert lens == [[len(first) - first.index(b"yyyy")]]
    assert found == {"ip_fragments": len(pieces) - 1, "ip_datagrams_incomplete": 1}


def test_rows_do_not_depend_on_where_a_batch_ends(write):
    whole = [bytes(ETHERNET / IP(src="10.0.0.3", dst="10.0.0.2") / segment_of(number)) for number in range(6, 12)]
    pieces = [bytes(ETHERNET / piece) for number in (1, 2) for piece in DATAGRAMS["IPv4"](number)]
    alone = [bytes(ETHERNET / next(iter(DATAGRAMS["IPv4"](3))))]
    frames = whole[:2] + pieces[:1] + whole[2:4] + pieces[1:] + alone + whole[4:]
    path = write(files.pcap(with_stamps(frames)))

    def read(packets: int) -> tuple[list[list[int]], list[int]]:
        with open_capture(path) as reader:
            batches = [batch.events for batch in reader.batches(packets)]
        names = ("frame", "payload_len")
        return [[value for events in batches for value in events[name].tolist()] for name in names], [
            len(events["frame"]) for events in batches
        ]

    rows, counts = read(1_000)
    assert counts == [len(rows[0])]
    assert rows[0] == sorted(rows[0])
    for packets in (1, 2, 3, 5):
        again, counts = read(packets)
        assert again == rows
    assert counts == [2, 4, 3], "held back behind the first datagram, until it is whole"


# What the oracles do not show


@pytest.mark.parametrize(
    ("kind", "direction"),
    [
        (0, Direction.RECEIVE),
        (1, Direction.RECEIVE),
        (2, Direction.RECEIVE),
        (3, Direction.UNKNOWN),
        (4, Direction.SEND),
    ],
)
def test_cooked_captures_show_the_direction(write, kind, direction):
    packet = IP(src="10.0.0.1", dst="10.0.0.2") / TCP()
    for link_type, wrap in ((113, _sll), (276, _sll2)):
        rows = ours(write(files.pcap(with_stamps([wrap(packet, kind)]), link_type=link_type)))
        assert [row["direction"] for row in rows] == [direction]


def test_a_length_of_zero_is_the_frames_length(write):
    segment = TCP(flags="A", options=OPTIONS["timestamps"]) / Raw(b"x" * 3000)
    four = bytes(ETHERNET / IP(len=0) / segment)
    six = bytes(ETHERNET / IPv6(plen=0) / segment)
    path = write(
        files.pcap(
            with_stamps([four, six, four, six]), snaplen=128, original_lens=[len(four), len(six), 200_066, 300_086]
        )
    )
    assert [row["payload_len"] for row in ours(path)] == [3000, 3000, 200_000, 300_000]
    with open_capture(path) as reader:
        list(reader.batches())
        assert [(counter.name, counter.count) for counter in reader.counters] == [("ip_length_zero", 4)]


def test_the_payload_is_the_ip_headers_not_the_frames(write):
    padded = bytes(ETHERNET / IP() / TCP(flags="A")) + bytes(6)
    assert [row["payload_len"] for row in ours(write(files.pcap(with_stamps([padded]))))] == [0]


def test_a_sack_hash_distinguishes_blocks(write):
    def ack(*blocks: int) -> bytes:
        return bytes(ETHERNET / IP() / TCP(flags="A", options=[("SAck", blocks)]))

    rows = ours(write(files.pcap(with_stamps([ack(1, 2), ack(1, 2), ack(1, 3), ack(1, 2, 5, 6)]))))
    hashes = [row["sack_hash"] for row in rows]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_packets_without_a_row_say_why(write):
    bad_offset = bytearray(bytes(ETHERNET / IP() / TCP()))
    bad_offset[46] = 0x10
    short_total = bytearray(bytes(ETHERNET / IP() / TCP()))
    short_total[16:18] = b"\0\x0a"
    frames = [bytes(ETHERNET / packet) for packet in [*others(), ARP()]]
    frames += [bytes(bad_offset), bytes(short_total), bytes(ETHERNET / IP() / TCP())[:45]]
    path = write(files.pcap(with_stamps(frames)))
    assert ours(path) == []
    with open_capture(path) as reader:
        list(reader.batches())
        found = {counter.name: counter.count for counter in reader.counters}
        assert reader.packets_count == len(frames)
    assert found == {
        "packets_not_tcp": 4, "ip_fragments": 2, "tcp_malformed": 1, "ip_malformed": 1, "packets_cut_too_short": 1
    }  # fmt: skip


# On whole captures

BUNDLED = sorted((Path(__file__).parents[3] / "captures").rglob("*.pcapng"))


@needs_tshark
@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_bundled_captures_are_as_tshark_dpkt_and_scapy_read_them(path):
    rows = ours(path)
    assert differences(rows, by_tshark(path)) == []
    assert differences([row for row in rows if "." in row["src_addr"]], by_dpkt(path)) == []
    assert differences(rows, by_scapy(path)) == []
    assert {row["direction"] for row in rows} <= {Direction.RECEIVE, Direction.SEND}
    assert len(rows) > 30


REFERENCE = os.environ.get("TWINTAP_REFERENCE_CAPTURES")


@needs_tshark
@pytest.mark.skipif(REFERENCE is None, reason="TWINTAP_REFERENCE_CAPTURES names no folder of captures to compare on")
def test_reference_captures_are_as_tshark_dpkt_and_scapy_read_them(tmp_path):
    paths = sorted(Path(REFERENCE or "").rglob("*.pcap.gz"))
    assert paths, f"no *.pcap.gz under {REFERENCE}"
    compared = 0
    for path in paths:
        plain = tmp_path / "plain.pcap"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        rows = ours(path)
        assert differences(rows, by_tshark(plain)) == [], path
        assert differences([row for row in rows if "." in row["src_addr"]], by_dpkt(plain)) == [], path
        assert differences(rows, by_scapy(plain)) == [], path
        compared += len(rows)
    print(f"{compared} packets of {len(paths)} files")
