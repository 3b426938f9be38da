"""Captures of a TLS connection between OpenSSL's client and server, which talk in memory; and the same in the clear."""

import ssl
import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from testkit import capture_files

CLIENT, SERVER = ("10.4.0.1", 40_000), ("10.4.0.2", 8443)
START_NS, STEP_NS, ONE_WAY_NS = 1_790_000_000 * 10**9, 200_000, 40_000
SEGMENT_LEN = 1_400
SECRETS_BLOCK, TLS_KEY_LOG = 10, 0x544C534B

Message = tuple[bool, bytes]
"""Whether the client sends it, and its bytes."""
Packet = tuple[int, bool, bytes]
"""When it is sent, whether by the client, and its bytes from Ethernet on."""


@dataclass(slots=True)
class Segments:
    """TCP segments of one connection, as they are sent."""

    port: int = CLIENT[1]
    packets: list[Packet] = field(default_factory=list)
    _seq: dict[bool, int] = field(default_factory=lambda: {True: 0xFFFF_FF00, False: 77_000})
    _steps: Iterator[int] = field(default_factory=count)

    def open(self) -> None:
        for from_client, flags in ((True, 0x02), (False, 0x12), (True, 0x10)):
            self._add(from_client, flags, b"")

    def send(self, from_client: bool, data: bytes) -> None:
        for at in range(0, len(data), SEGMENT_LEN):
            self._add(from_client, 0x18, data[at : at + SEGMENT_LEN])

    def close(self) -> None:
        for from_client in (True, False):
            self._add(from_client, 0x11, b"")

    def _add(self, from_client: bool, flags: int, data: bytes) -> None:
        step = next(self._steps)
        ends = ((CLIENT[0], self.port), SERVER) if from_client else (SERVER, (CLIENT[0], self.port))
        ack = self._seq[not from_client] if flags & 0x10 else 0
        ports = (ends[0][1], ends[1][1])
        tcp = struct.pack("!HHIIBBHHH", *ports, self._seq[from_client], ack, 0x50, flags, 64_000, 0, 0)
        addresses = b"".join(bytes(map(int, address.split("."))) for address, _ in ends)
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 40 + len(data), step + 1 & 0xFFFF, 0x4000, 64, 6, 0) + addresses
        self.packets.append((START_NS + step * STEP_NS, from_client, b"\2" * 12 + b"\x08\0" + ip + tcp + data))
        self._seq[from_client] = self._seq[from_client] + len(data) + bool(flags & 0x03) & 0xFFFF_FFFF


def certificate(folder: Path) -> Path:
    """A file with a new certificate and its key."""
    file = folder / "tls.pem"
    names = ("-keyout", str(file), "-out", str(folder / "tls.crt"), "-subj", "/CN=web")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    command = ["openssl", "req", "-x509", *kind, "-nodes", "-days", "2", *names]
    subprocess.run(command, check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + (folder / "tls.crt").read_bytes())
    return file


def in_the_clear(said: Sequence[Message]) -> list[Packet]:
    """The packets of a connection without TLS."""
    segments = Segments()
    segments.open()
    for from_client, data in said:
        segments.send(from_client, data)
    segments.close()
    return segments.packets


def encrypted_packets(
    said: Sequence[Message],
    pem: Path,
    key_log: Path,
    version: ssl.TLSVersion,
    ciphers: str | None = None,
    before: Sequence[Message] = (),
    port: int = CLIENT[1],
) -> list[Packet]:
    """The packets of a connection with TLS, whose secrets are appended to `key_log`.

    Arguments: `ciphers` of TLS 1.2, as OpenSSL names them; `before`, what is said in the clear ahead of TLS.
    """
    segments = Segments(port)
    segments.open()
    for from_client, data in before:
        segments.send(from_client, data)
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for context in contexts:
        context.minimum_version = context.maximum_version = version
        if ciphers:
            context.set_ciphers(ciphers)
    contexts[0].check_hostname, contexts[0].verify_mode = False, ssl.CERT_NONE
    contexts[0].keylog_filename = str(key_log)
    contexts[1].load_cert_chain(pem)
    sent, heard = ({side: ssl.MemoryBIO() for side in (True, False)} for _ in range(2))
    ends = {
        is_client: context.wrap_bio(heard[is_client], sent[is_client], server_side=not is_client)
        for is_client, context in zip((True, False), contexts, strict=True)
    }

    def carry(from_client: bool) -> None:
        data = sent[from_client].read()
        segments.send(from_client, data)
        heard[not from_client].write(data)

    shaken: set[bool] = set()
    for _ in range(4):
        for is_client, end in ends.items():
            try:
                end.do_handshake()
                shaken.add(is_client)
            except ssl.SSLWantReadError:
                pass
            carry(is_client)
    assert len(shaken) == len(ends)
    for from_client, data in said:
        for at in range(0, len(data), 1 << 14):
            ends[from_client].write(data[at : at + (1 << 14)])
            carry(from_client)
            _read_all(ends[not from_client])
    segments.close()
    return segments.packets


def _read_all(end: ssl.SSLObject) -> None:
    try:
        while end.read(1 << 14):
            pass
    except ssl.SSLWantReadError:
        pass


def write_pcaps(folder: Path, packets: Iterable[Packet], snaplen: int = 1 << 18) -> list[Path]:
    """Captures of both hosts."""
    sent, files = list(packets), []
    for name, is_client in (("client", True), ("server", False)):
        rows = sorted((at + (0 if by_client == is_client else ONE_WAY_NS), data) for at, by_client, data in sent)
        files.append(folder / f"{name}.pcap")
        files[-1].write_bytes(capture_files.pcap(rows, snaplen=snaplen))
    return files


def with_secrets(pcap: Path, key_log: bytes, first: bool) -> Path:
    """A pcap file as pcapng with a secrets block, which comes before the packets or after them."""
    data, packets, at = pcap.read_bytes(), [], 24
    while at < len(data):
        seconds, fraction, length, original_len = struct.unpack_from("<IIII", data, at)
        ticks = seconds * 10**9 + fraction
        packets.append(
            capture_files.enhanced_packet(ticks, data[at + 16 : at + 16 + length], original_len=original_len)
        )
        at += 16 + length
    body = struct.pack("<II", TLS_KEY_LOG, len(key_log)) + capture_files.pad(key_log)
    secrets = capture_files.block(SECRETS_BLOCK, body)
    blocks = [secrets, *packets] if first else [*packets, secrets]
    file = pcap.with_suffix(".pcapng")
    file.write_bytes(b"".join([capture_files.section(), capture_files.interface(), *blocks]))
    pcap.unlink()
    return file
