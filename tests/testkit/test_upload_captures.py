"""The benchmark's captures are what two hosts would have seen: read back with dpkt, not with our own decoder."""

from collections import defaultdict
from pathlib import Path

import dpkt
import pytest

from testkit import upload_captures

Flow = tuple[bytes, int, bytes, int]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> upload_captures.Captures:
    return upload_captures.write(tmp_path_factory.mktemp("traffic"), 10_000)


def _packets(path: Path) -> list[tuple[float, Flow, dpkt.tcp.TCP, int]]:
    """(stamp, flow, TCP header, payload length on the wire) of every packet of a file."""
    packets = []
    with path.open("rb") as file:
        for stamp, data in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(data).data
            tcp = ip.data
            packets.append((stamp, (ip.src, tcp.sport, ip.dst, tcp.dport), tcp, ip.len - 20 - tcp.off * 4))
    return packets


def _streams(path: Path) -> dict[Flow, list[tuple[int, int, float]]]:
    """For each flow its data as (start, end, stamp), relative to the ISN, in file order."""
    isns: dict[Flow, int] = {}
    data: dict[Flow, list[tuple[int, int, float]]] = defaultdict(list)
    for stamp, flow, tcp, payload_len in _packets(path):
        if tcp.flags & dpkt.tcp.TH_SYN:
            isns[flow] = tcp.seq
        if payload_len:
            start = (tcp.seq - isns[flow]) & 0xFFFF_FFFF
            data[flow].append((start, start + payload_len, stamp))
    return data


def test_counts_and_time_order(captures: upload_captures.Captures) -> None:
    files = [_packets(captures.client), _packets(captures.server)]
    assert sum(map(len, files)) == captures.packets_count >= 10_000
    for packets in files:
        stamps = [stamp for stamp, *_ in packets]
        assert stamps == sorted(stamps)


def test_both_hosts_hold_the_same_bytes_cut_at_different_places(captures: upload_captures.Captures) -> None:
    at_client, at_server = _streams(captures.client), _streams(captures.server)
    assert at_client.keys() == at_server.keys()
    assert len(at_client) == 2 * captures.connections_count
    for flow, sent in at_client.items():
        received = at_server[flow]
        for parts in (sent, received):
            ends = [end for _, end, _ in parts]
            assert [start for start, _, _ in parts] == [1, *ends[:-1]], "every byte once, in order"
        assert sent[-1][1] == received[-1][1]
    uploads = [flow for flow in at_client if flow[3] == 8080]
    assert all(len(at_client[flow]) != len(at_server[flow]) for flow in uploads)


def test_nothing_is_received_before_it_was_sent(captures: upload_captures.Captures) -> None:
    at_client, at_server = _streams(captures.client), _streams(captures.server)
    for flow, sent in at_client.items():
        senders, receivers = (sent, at_server[flow]) if flow[3] == 8080 else (at_server[flow], sent)
        for _, end, received in receivers:
            last_byte_sent = next(stamp for start, stop, stamp in senders if start < end <= stop)
            assert last_byte_sent < received


def test_every_request_carries_its_own_transaction_id(captures: upload_captures.Captures) -> None:
    ids = {tcp.data.split(b"X-Trans-Id: ")[1][:18] for _, _, tcp, _ in _packets(captures.client) if b"PUT" in tcp.data}
    assert len(ids) == captures.connections_count
