"""A host that captures on all its interfaces at once (`-i any`) sees each packet of its containers several times.

The pattern of the copies is the kernel's, as seen on a bridge with a container (veth) behind a routed card: what the
container sends comes in at its veth (4), comes in at the bridge (2), goes out at the card (6); what it gets comes in at
the card, goes out at the bridge, goes out at the veth.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from collector.decode.captures import decode, scan
from collector.decode.host_capture import HostSource
from collector.hops.matching import match
from testkit import capture_files as files

BASE_NS = 1_700_000_000_000_000_000
COPY_NS = 1_000
PACKET_NS = 100_000
NETWORK_NS = 30_000
CONTAINER, NEIGHBOUR, SERVER = "172.17.0.2", "172.17.0.3", "10.0.0.9"
CARD, BRIDGE, VETH, OTHER_VETH, LOOPBACK = 6, 2, 4, 8, 1
CAME_IN, FOR_ANOTHER, WENT_OUT = 0, 3, 4
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


class Copy(NamedTuple):
    """Where the kernel shows a packet, and as what."""

    interface: int
    packet_type: int


FROM_CONTAINER = (Copy(VETH, CAME_IN), Copy(BRIDGE, CAME_IN), Copy(CARD, WENT_OUT))
TO_CONTAINER = (Copy(CARD, CAME_IN), Copy(BRIDGE, WENT_OUT), Copy(VETH, WENT_OUT))


def conversation(client: str, server: str) -> list[Packet]:
    """A request of 100 bytes and a response of 3,000."""

    def packet(from_client: bool, flags: str, seq: int, ack: int, payload_len: int = 0) -> Packet:
        src, dst = (client, server) if from_client else (server, client)
        ports = {"sport": 40_000, "dport": 8_080} if from_client else {"sport": 8_080, "dport": 40_000}
        segment = TCP(**ports, flags=flags, seq=seq, ack=ack, options=[("Timestamp", (seq, ack))])
        return IP(src=src, dst=dst) / segment / Raw(b"x" * payload_len)

    return [
        packet(True, "S", 99, 0), packet(False, "SA", 499, 100), packet(True, "A", 100, 500),
        packet(True, "PA", 100, 500, 100), packet(False, "A", 500, 200), packet(False, "PA", 500, 200, 3_000),
        packet(True, "A", 200, 3_500), packet(False, "FA", 3_500, 200), packet(True, "FA", 200, 3_501),
        packet(False, "A", 3_501, 201),
    ]  # fmt: skip


def cooked_frame(packet: Packet, copy: Copy) -> bytes:
    """With the header of a Linux cooked capture, version 2."""
    header = b"\x08\0\0\0" + copy.interface.to_bytes(4) + b"\0\1" + bytes([copy.packet_type, 6]) + bytes(8)
    return header + bytes(packet)


def on_all_interfaces(packets: list[Packet], client: str, out: tuple[Copy, ...], back: tuple[Copy, ...]) -> bytes:
    """The host's capture: each packet as often as the kernel shows it."""

    def copies() -> Iterator[tuple[int, bytes]]:
        for number, packet in enumerate(packets):
            for place, copy in enumerate(out if packet.src == client else back):
                yield BASE_NS + number * PACKET_NS + place * COPY_NS, cooked_frame(packet, copy)

    return files.pcap(copies(), link_type=276)


def at_the_server(packets: list[Packet]) -> list[tuple[int, bytes]]:
    """The server's own plain capture of the same packets."""
    late = [NETWORK_NS if packet.dst == SERVER else -NETWORK_NS for packet in packets]
    return [
        (BASE_NS + number * PACKET_NS + late[number], bytes(ETHERNET / packet)) for number, packet in enumerate(packets)
    ]


def sources(folder: Path, **captures: bytes) -> list[HostSource]:
    given = []
    for host, data in captures.items():
        path = folder / f"{host}.pcap"
        path.write_bytes(data)
        given.append(HostSource(host, (path,)))
    return given


def plain(table: object) -> pl.DataFrame:
    return pl.DataFrame(table).with_columns(pl.col(pl.Categorical).cast(pl.String))


def of_container(folder: Path) -> list[HostSource]:
    """Everything at the container's host, and the server's own plain capture."""
    packets = conversation(CONTAINER, SERVER)
    seen = on_all_interfaces(packets, CONTAINER, FROM_CONTAINER, TO_CONTAINER)
    return sources(folder, docker=seen, server=files.pcap(at_the_server(packets)))


def test_each_packet_of_a_container_is_sent_once_and_received_once(tmp_path: Path) -> None:
    matched = match(decode(of_container(tmp_path)))
    hops = plain(matched.hops)
    assert len(hops) == len(conversation(CONTAINER, SERVER))
    assert set(hops["state"]) == {"matched"}
    ways = hops.select("from_client", "send_host", "receive_host").unique().sort("from_client")
    assert ways.rows() == [(False, "server", "docker"), (True, "docker", "server")]
    events = plain(matched.events).filter(pl.col("host") == "docker")
    assert events.filter(~pl.col("duplicate"))["point"].unique().to_list() == ["docker/any:6"], "the card speaks"
    assert events["duplicate"].sum() == 2 * len(hops)


def test_the_host_has_its_container_and_a_point_for_each_interface(tmp_path: Path) -> None:
    with scan(of_container(tmp_path)) as captures:
        docker = captures.hosts[0]
        assert captures.counters == ()
    assert docker.addresses == (CONTAINER,)
    assert [point.interface for point in docker.points] == ["any:4", "any:2", "any:6"]


def test_on_loopback_each_packet_is_one_arrow_within_the_host(tmp_path: Path) -> None:
    packets = conversation("127.0.0.1", "127.0.0.1")
    once = (Copy(LOOPBACK, CAME_IN),)
    inside = on_all_interfaces(packets, "127.0.0.1", once, once)
    matched = match(decode(beside_the_server(tmp_path, inside)))
    hops = plain(matched.hops)
    within = hops.filter((pl.col("send_host") == "docker") & (pl.col("receive_host") == "docker"))
    assert len(within) == len(packets)
    assert set(hops["state"]) == {"matched"}
    assert len(hops) == 3 * len(packets)


def test_two_containers_that_talk_with_each_other_are_lanes_of_their_own(tmp_path: Path) -> None:
    packets = conversation(CONTAINER, NEIGHBOUR)
    out = (Copy(VETH, FOR_ANOTHER), Copy(OTHER_VETH, WENT_OUT))
    back = (Copy(OTHER_VETH, FOR_ANOTHER), Copy(VETH, WENT_OUT))
    inside = on_all_interfaces(packets, CONTAINER, out, back)
    with scan(beside_the_server(tmp_path, inside)) as captures:
        assert [host.host for host in captures.hosts] == ["server", CONTAINER, NEIGHBOUR]
        assert captures.counters == ()
        assert set(captures.clock_of.values()) == {"docker"}
    hops = plain(match(decode(beside_the_server(tmp_path, inside))).hops)
    assert set(hops["state"]) == {"matched"}
    ways = hops.group_by("send_host", "receive_host").len().rows()
    of_each = {(CONTAINER, NEIGHBOUR): 5, (NEIGHBOUR, CONTAINER): 5}
    of_each |= {pair: 5 for end in (CONTAINER, NEIGHBOUR) for pair in ((end, "server"), ("server", end))}
    assert {(send, receive): count for send, receive, count in ways} == of_each


def beside_the_server(folder: Path, inside: bytes) -> list[HostSource]:
    """The node's capture with what passes inside it, and both containers' conversations with a captured server."""
    outside = on_all_interfaces(conversation(CONTAINER, SERVER), CONTAINER, FROM_CONTAINER, TO_CONTAINER)
    from_other = tuple(
        copy._replace(interface=OTHER_VETH) if copy.interface == VETH else copy for copy in FROM_CONTAINER
    )
    to_other = tuple(copy._replace(interface=OTHER_VETH) if copy.interface == VETH else copy for copy in TO_CONTAINER)
    more = on_all_interfaces(conversation(NEIGHBOUR, SERVER), NEIGHBOUR, from_other, to_other)
    header_len = len(files.pcap([]))
    at_server = [seen for end in (CONTAINER, NEIGHBOUR) for seen in at_the_server(conversation(end, SERVER))]
    everything = inside + outside[header_len:] + more[header_len:]
    return sources(folder, docker=everything, server=files.pcap(at_server))
