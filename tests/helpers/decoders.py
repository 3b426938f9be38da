"""One capture file read by four decoders, ours and three that have nothing to do with us, as equal rows.

A row is a dict of the fields that a decoder gives for a TCP packet; the oracles leave out what they do not know.
"""

import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dpkt
from scapy.layers.inet import TCP
from scapy.layers.inet6 import IPv6
from scapy.utils import PcapReader

from collector.capture_files.readers import open_capture
from collector.capture_files.records import TcpOption

Row = dict[str, Any]

# Field of tshark, our name of it, how its text is read.
TSHARK_FIELDS = (
    ("frame.number", "frame", int),
    ("frame.interface_id", "interface", int),
    ("frame.packet_flags_direction", "direction", lambda text: int(text, 0)),
    ("frame.time_epoch", "host_ns", lambda text: int(text.replace(".", ""))),
    ("ip.src", "src_addr", str),
    ("ip.dst", "dst_addr", str),
    ("ipv6.src", "src_addr", str),
    ("ipv6.dst", "dst_addr", str),
    ("tcp.srcport", "src_port", int),
    ("tcp.dstport", "dst_port", int),
    ("tcp.seq_raw", "seq", int),
    ("tcp.ack_raw", "ack", int),
    ("tcp.flags", "flags", lambda text: int(text, 16)),
    ("tcp.window_size_value", "window", int),
    ("tcp.len", "payload_len", int),
    ("ip.id", "ip_id", lambda text: int(text, 16)),
    ("tcp.options.timestamp.tsval", "tsval", int),
    ("tcp.options.timestamp.tsecr", "tsecr", int),
    ("tcp.options.mss_val", "mss", int),
    ("tcp.options.wscale.shift", "window_scale", int),
    ("frame.cap_len", "captured_len", int),
    ("frame.len", "original_len", int),
    ("tcp.options.sack_perm", "is_sack_permitted", lambda text: True),
    ("tcp.options.sack_le", "has_sack", lambda text: True),
)
TSHARK_PREFERENCES = (
    "ip.defragment:FALSE",
    "ipv6.defragment:FALSE",
    "ipv6.tso_support:TRUE",
    "tcp.analyze_sequence_numbers:FALSE",
    "tcp.desegment_tcp_streams:FALSE",
    "tcp.try_heuristic_first:FALSE",
)
NOT_GIVEN: Row = {
    "ip_id": -1, "tsval": 0, "tsecr": 0, "mss": 0, "window_scale": 255, "is_sack_permitted": False, "has_sack": False,
}  # fmt: skip
"""What our columns hold where a field is not in the packet."""


def ours(path: Path) -> list[Row]:
    """Rows by our decoder."""
    rows = []
    with open_capture(path) as reader:
        for batch in reader.batches():
            columns = {name: column.tolist() for name, column in batch.events.items()}
            rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        for row in rows:
            row["src_addr"] = reader.addresses[row["src_addr"]]
            row["dst_addr"] = reader.addresses[row["dst_addr"]]
            row["is_sack_permitted"] = bool(row["options"] & TcpOption.SACK_PERMITTED)
            row["has_sack"] = bool(row["options"] & TcpOption.SACK)
            assert (row["sack_hash"] != 0) == row["has_sack"]
    return rows


def by_tshark(path: Path, preferences: Iterable[str] = TSHARK_PREFERENCES) -> list[Row]:
    """Rows by tshark: TCP that no ICMP error quotes."""
    argv = [shutil.which("tshark") or "tshark", "-n", "-r", str(path), "-T", "fields", "-E", "occurrence=f"]
    argv += ["-Y", "tcp and not icmp and not icmpv6"]
    for preference in preferences:
        argv += ["-o", preference]
    for field, _, _ in TSHARK_FIELDS:
        argv += ["-e", field]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    rows = []
    for line in done.stdout.splitlines():
        row = dict(NOT_GIVEN)
        for (_, name, convert), text in zip(TSHARK_FIELDS, line.split("\t"), strict=True):
            if text:
                row[name] = convert(text)
        rows.append(row)
    return rows


def by_dpkt(path: Path) -> list[Row]:
    """Rows by dpkt: IPv4 over Ethernet in pcap or pcapng, whole headers only."""
    rows = []
    reader = dpkt.pcapng.Reader if path.suffix == ".pcapng" else dpkt.pcap.Reader
    with path.open("rb") as file:
        for frame, (_, data) in enumerate(reader(file), 1):
            try:
                ip = dpkt.ethernet.Ethernet(data).data
            except dpkt.UnpackError:
                continue
            if isinstance(ip, dpkt.ip.IP) and isinstance(ip.data, dpkt.tcp.TCP):
                rows.append(_dpkt_row(frame, data, ip))
    return rows


def _dpkt_row(frame: int, data: bytes, ip: dpkt.ip.IP) -> Row:
    tcp = ip.data
    payload_len = ip.len - ip.hl * 4 - tcp.off * 4
    row = NOT_GIVEN | {
        "frame": frame, "src_addr": socket.inet_ntoa(ip.src), "dst_addr": socket.inet_ntoa(ip.dst), "ip_id": ip.id,
        "src_port": tcp.sport, "dst_port": tcp.dport, "seq": tcp.seq, "ack": tcp.ack, "flags": tcp.flags,
        "window": tcp.win, "payload_len": payload_len, "captured_len": len(data),
    }  # fmt: skip
    for kind, value in dpkt.tcp.parse_opts(tcp.opts):
        row |= _option(kind, value)
    return row


def _option(kind: int, value: bytes) -> Row:
    number = int.from_bytes(value)
    match kind:
        case dpkt.tcp.TCP_OPT_TIMESTAMP:
            return {"tsval": number >> 32, "tsecr": number & 0xFFFFFFFF}
        case dpkt.tcp.TCP_OPT_MSS:
            return {"mss": number}
        case dpkt.tcp.TCP_OPT_WSCALE:
            return {"window_scale": number}
        case dpkt.tcp.TCP_OPT_SACKOK:
            return {"is_sack_permitted": True}
        case dpkt.tcp.TCP_OPT_SACK:
            return {"has_sack": True}
    return {}


def by_scapy(path: Path) -> list[Row]:
    """Rows by scapy, of any link type that it knows."""
    return list(_scapy_rows(path))


def _scapy_rows(path: Path) -> Iterator[Row]:
    with PcapReader(str(path)) as packets:
        for frame, packet in enumerate(packets, 1):
            if TCP not in packet:
                continue
            tcp, ip = packet[TCP], packet[TCP].underlayer
            while not hasattr(ip, "src"):
                ip = ip.underlayer
            options = dict(tcp.options)
            tsval, tsecr = options.get("Timestamp", (0, 0))
            yield {
                "frame": frame, "src_addr": ip.src, "dst_addr": ip.dst, "src_port": tcp.sport, "dst_port": tcp.dport,
                "seq": tcp.seq, "ack": tcp.ack, "flags": int(tcp.flags), "window": tcp.window,
                "ip_id": -1 if isinstance(ip, IPv6) else ip.id, "tsval": tsval, "tsecr": tsecr,
                "mss": options.get("MSS", 0), "window_scale": options.get("WScale", 255),
                "is_sack_permitted": "SAckOK" in options, "has_sack": "SAck" in options,
            }  # fmt: skip


def differences(rows: list[Row], oracle: list[Row]) -> list[tuple[int, str, Any, Any]]:
    """(frame, field, ours, the oracle's) for every field that the oracle gives and that is not equal."""
    by_frame = {row["frame"]: row for row in rows}
    found: list[tuple[int, str, Any, Any]] = []
    for expected in oracle:
        row = by_frame.pop(expected["frame"], {})
        found += [
            (expected["frame"], name, row.get(name), value)
            for name, value in expected.items()
            if row.get(name) != value
        ]
    return found + [(frame, "row", "given", "not given") for frame in by_frame]
