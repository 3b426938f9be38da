"""One capture of a node whose containers talk with each other: each is a lane, and each packet one arrow.

Where a packet is seen is the kernel's order, captured on a bridge with three containers and an uplink that masquerades:
at the sender's veth, at the receiver's veth, and then on the bridge, if that is captured; what goes outside is seen on
the bridge after the veth, and as another 4-tuple at the uplink.
"""

from pathlib import Path

import polars as pl
import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from collector.analysis import HostSource, analyse
from collector.decode.containers import Container, containers
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from testkit import capture_files as files

BASE_NS, STEP_NS, COPY_NS = 1_700_000_000_000_000_000, 100_000, 2_000
ONE, TWO, THREE = ENDS = ("10.66.4.1", "10.66.4.2", "10.66.4.3")
OUTSIDE, NODE = "10.66.5.2", "10.66.5.1"
VETH = {ONE: 1, TWO: 2, THREE: 3}
BRIDGE, UPLINK = 4, 5
HOST, OTHER_HOST, OUTGOING = 0, 3, 4
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
Seen = tuple[int, int, int, Packet]
"""Stamp, interface, packet type, packet."""


def conversation(client: str, server: str, start: int) -> list[Packet]:
    def packet(from_client: bool, flags: str, seq: int, ack: int, length: int = 0) -> Packet:
        src, dst = (client, server) if from_client else (server, client)
        sport, dport = (40_000, 8_080) if from_client else (8_080, 40_000)
        return IP(src=src, dst=dst) / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack) / Raw(b"x" * length)

    first = [
        packet(True, "S", start, 0),
        packet(False, "SA", 2 * start, start + 1),
        packet(True, "A", start + 1, 2 * start + 1),
    ]
    seq, ack = start + 1, 2 * start + 1
    for _ in range(5):
        first += [packet(True, "PA", seq, ack, 100), packet(False, "PA", ack, seq + 100, 900)]
        seq, ack = seq + 100, ack + 900
    return first


def packet_at_uplink(packet: Packet) -> Packet:
    """As the uplink shows it."""
    copy = packet.copy()
    if copy.src in VETH:
        copy.src = NODE
    else:
        copy.dst = NODE
    return copy


def on_the_node(bridge: bool = True) -> list[Seen]:
    """Everything that the node's interfaces see."""
    talks = [conversation(ONE, TWO, 1_000), conversation(TWO, THREE, 50_000), conversation(ONE, OUTSIDE, 900_000)]
    seen: list[Seen] = []
    for number, packet in enumerate(each for talk in talks for each in talk):
        at = BASE_NS + number * STEP_NS
        if OUTSIDE not in (packet.src, packet.dst):
            ways = [
                (VETH[packet.src], OTHER_HOST, packet),
                (VETH[packet.dst], OUTGOING, packet),
                (BRIDGE, OTHER_HOST, packet),
            ]
        elif packet.src == OUTSIDE:
            ways = [
                (UPLINK, HOST, packet_at_uplink(packet)),
                (BRIDGE, OUTGOING, packet),
                (VETH[packet.dst], OUTGOING, packet),
            ]
        else:
            ways = [
                (VETH[packet.src], HOST, packet),
                (BRIDGE, HOST, packet),
                (UPLINK, OUTGOING, packet_at_uplink(packet)),
            ]
        seen += [(at + place * COPY_NS, *way) for place, way in enumerate(ways) if bridge or way[0] != BRIDGE]
    return seen


def cooked_capture(seen: list[Seen]) -> bytes:
    def frame(interface: int, kind: int, packet: Packet) -> bytes:
        return b"\x08\0\0\0" + interface.to_bytes(4) + b"\0\1" + bytes([kind, 6]) + bytes(8) + bytes(packet)

    return files.pcap([(at, frame(interface, kind, packet)) for at, interface, kind, packet in seen], link_type=276)


def one_each(folder: Path, seen: list[Seen], interfaces: list[int]) -> list[Path]:
    """A plain tcpdump for each of some interfaces."""
    paths = []
    for number in interfaces:
        path = folder / f"veth{number}.pcap"
        path.write_bytes(
            files.pcap([(at, bytes(ETHERNET / packet)) for at, interface, _, packet in seen if interface == number])
        )
        paths.append(path)
    return paths


def info_and_hops(folder: Path, paths: list[Path]) -> tuple[TraceInfo, pl.DataFrame]:
    info = analyse([HostSource("node", tuple(paths))], str(folder / "trace"))
    return info, pl.DataFrame(Trace(str(folder / "trace")).read("hops")).with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )


@pytest.mark.parametrize("how", ["any", "any with the bridge", "a tcpdump for each veth", "and one for the bridge"])
def test_each_packet_between_containers_is_one_arrow(tmp_path: Path, how: str) -> None:
    seen = on_the_node("bridge" in how)
    if how.startswith("any"):
        paths = [tmp_path / "any.pcap"]
        paths[0].write_bytes(cooked_capture(seen))
    else:
        paths = one_each(tmp_path, seen, [1, 2, 3, BRIDGE] if "bridge" in how else [1, 2, 3])
    info, hops = info_and_hops(tmp_path, paths)
    assert [host.host for host in info.hosts if host.host != "node"] == list(ENDS)
    inside = hops.filter(pl.col("send_host").is_in(ENDS) & pl.col("receive_host").is_in(ENDS))
    assert set(inside["state"]) == {"matched"}
    ways = inside.group_by("send_host", "receive_host").len()
    assert {row[:2]: row[2] for row in ways.rows()} == {(ONE, TWO): 7, (TWO, ONE): 6, (TWO, THREE): 7, (THREE, TWO): 6}
    assert set(inside["one_way_delay_ns"]) == {COPY_NS}
    assert set(inside["uncertainty_ns"]) == {0}, "by one clock"
    assert not set(hops["state"]) & {"lost", "capture_dropped"}
    lone = hops.filter((pl.col("send_host") == ONE) & pl.col("receive_host").is_null())
    assert len(lone) == 7, "to the outside, which was not captured"


def test_a_node_that_is_called_by_the_address_of_a_container_stays_another_host(tmp_path: Path) -> None:
    (tmp_path / "any.pcap").write_bytes(cooked_capture(on_the_node()))
    info = analyse([HostSource(ONE, (tmp_path / "any.pcap",))], str(tmp_path / "trace"))
    names = [host.host for host in info.hosts]
    assert len(set(names)) == len(names) == 4
    assert {ONE, TWO, THREE} <= set(names)
    assert [name for name in names if name.startswith(f"{ONE}-")]


# --- the decision itself

TEXTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2")
PASSED = [(0, 1, 10, 50), (1, 0, 10, 50), (0, 1, 11, 50), (1, 0, 11, 50)]


def passages(src: int, dst: int, *sights: tuple[int, int]) -> list[tuple[int, int, list[tuple[int, int, int]]]]:
    """Five packets seen at (interface, direction), one nanosecond after the other."""
    return [(src, dst, [(at, *sight) for at, sight in enumerate(sights)])] * 5


BOTH_WAYS = passages(0, 1, (10, 0), (11, 0)) + passages(1, 0, (11, 0), (10, 0))


def test_where_a_packet_is_first_seen_its_sender_is() -> None:
    assert containers(BOTH_WAYS, PASSED, TEXTS, ()) == [Container((0,), 10), Container((1,), 11)]


def test_an_address_that_has_its_own_capture_is_no_container() -> None:
    assert containers(BOTH_WAYS, PASSED, TEXTS, {1}) == []


def test_stamps_that_are_equal_show_no_order() -> None:
    same = [(src, dst, [(0, interface, way) for _, interface, way in sights]) for src, dst, sights in BOTH_WAYS]
    assert containers(same, PASSED, TEXTS, ()) == []


def test_what_the_host_sends_first_is_its_own_or_routed() -> None:
    sent = passages(0, 1, (10, 2), (11, 2)) + passages(1, 0, (11, 1), (10, 1))
    assert containers(sent, PASSED, TEXTS, ()) == []


def test_an_interface_that_others_pass_is_no_container_s() -> None:
    assert containers(BOTH_WAYS, [*PASSED, (2, 1, 10, 50)], TEXTS, ()) == []
    flooded = [*PASSED, (2, 1, 10, 1)]
    assert len(containers(BOTH_WAYS, flooded, TEXTS, ())) == 2


def test_both_addresses_of_a_container_are_one_lane() -> None:
    other = passages(3, 4, (10, 0), (11, 0)) + passages(4, 3, (11, 0), (10, 0))
    passed = [*PASSED, *((src + 3, dst + 3, interface, count) for src, dst, interface, count in PASSED)]
    assert containers(BOTH_WAYS + other, passed, TEXTS, ()) == [Container((0, 3), 10), Container((1, 4), 11)]
