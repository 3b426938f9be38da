"""Captures of two hosts whose every text tries to get out of the place where it is shown: markup, quotes, letters that
turn the order of reading, NUL, endless paths. Real packets, made with scapy, with a handshake and whole requests."""

from collections.abc import Iterator
from pathlib import Path

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import wrpcap

from collector.decode.host_capture import HostSource

SCRIPT = '<script>window.hacked=1</script><img/src=x/onerror="window.hacked=1">'
HOSTS = ('"><img src=x onerror="window.hacked=1">', "</title><svg onload=window.hacked=1>")
"""The client's and the server's, as an agent could write them into its captures."""
TARGETS = (
    f"/v1/{SCRIPT}",
    "/v1/'\"`${window.hacked=1}{{7*7}}",
    "/v1/\u202egpj.exe\u2066\u200b",
    "/v1/nul\0inside%00",
    "/v1/" + "long" * 8_000,
    "javascript:window.hacked=1",
    "/v1/\x1b[31m\r\ninjected",
)
CLIENT, SERVER = ("10.9.0.1", 40_000), ("10.9.0.2", 8080)
DELAY_S = 50e-6
MSS = 1_448


def write_hostile_captures(folder: Path) -> list[HostSource]:
    """Write both hosts' captures into the folder, as `one.pcap` and `two.pcap`."""
    sent = list(_conversation())
    for name, own in (("one", CLIENT), ("two", SERVER)):
        packets = []
        for packet, departure_s in sent:
            copy = packet.copy()
            outgoing = packet[IP].src == own[0]
            copy.time = 1_790_000_000 + departure_s + (0.0 if outgoing else DELAY_S)
            packets.append(copy)
        wrpcap(str(folder / f"{name}.pcap"), sorted(packets, key=lambda packet: packet.time), nano=True)
    files = (folder / "one.pcap", folder / "two.pcap")
    return [HostSource(host, (file,)) for host, file in zip(HOSTS, files, strict=True)]


def _conversation() -> Iterator[tuple[Packet, float]]:
    """Packets and when they leave: for each target a connection with a request and its response."""
    for number, target in enumerate(TARGETS):
        at_s = number * 0.01
        client, server = (CLIENT[0], CLIENT[1] + number), SERVER
        named = f"X-Trans-Id: tx{SCRIPT}{number}\r\nUser-Agent: {SCRIPT}\r\n"
        head = f"GET {target} HTTP/1.1\r\nHost: {SCRIPT}\r\n{named}\r\n"
        answer = f"HTTP/1.1 200 {SCRIPT}\r\nContent-Length: 0\r\nX-Trans-Id: tx{SCRIPT}{number}\r\n\r\n"
        lines = [(True, "S", b""), (False, "SA", b""), (True, "A", b"")]
        lines += [(True, "PA", part) for part in _parts(head.encode())]
        lines += [(False, "PA", part) for part in _parts(answer.encode())]
        lines += [(True, "FA", b""), (False, "FA", b""), (True, "A", b"")]
        yield from _packets(lines, client, server, at_s)


def _parts(text: bytes) -> list[bytes]:
    return [text[at : at + MSS] for at in range(0, len(text), MSS)]


def _packets(
    lines: list[tuple[bool, str, bytes]], client: tuple[str, int], server: tuple[str, int], at_s: float
) -> Iterator[tuple[Packet, float]]:
    seq = {True: 1_000, False: 9_000}
    for step, (from_client, flags, data) in enumerate(lines):
        (source, sport), (target, dport) = (client, server) if from_client else (server, client)
        ack = seq[not from_client] if "A" in flags else 0
        ethernet = Ether(src=f"02:00:00:00:00:0{2 - from_client}", dst=f"02:00:00:00:00:0{1 + from_client}")
        tcp = TCP(sport=sport, dport=dport, seq=seq[from_client], ack=ack, flags=flags, window=64_000)
        yield ethernet / IP(src=source, dst=target, id=(step + 1) * 7) / tcp / data, at_s + step * 120e-6
        seq[from_client] += len(data) + ("S" in flags) + ("F" in flags)
