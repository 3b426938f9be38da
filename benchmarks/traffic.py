"""Write the captures that two hosts would make of many uploads, quickly enough for ten million packets.

Every connection is one PUT of `BODY_LEN` bytes. The sender's capture holds it as its card's TSO takes it, the
receiver's as GRO merged it, at other places: so pairing by (connection, seq) finds few of the transfers, as it is on
real hosts. Packets carry timestamps, IP IDs that count the MSS-sized pieces, and HTTP heads with a transaction id.

All connections follow one script, so a row of the script is one numpy array over the connections. Connections run in
groups of `GROUP` side by side, one group after the other; each file is in time order.

Limits: no loss, no reordering, one clock, IPv4, ports recycled after 50,000 connections (with new ISNs).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

MSS = 1448
BODY_LEN = 44 * MSS
GROUP = 64
BODY_STEP = 5
BATCH_GROUPS = 64
HEADERS_LEN = 14 + 20 + 32
GROUP_NS = 20_000_000
STEP_NS = 100_000
SPREAD_NS = 600
DELAY_NS = 50_000
"""Between two steps of the script, between two connections of a group, from host to host. A row, with its delay, is
over before the next step begins, which keeps each file in time order: GROUP * SPREAD_NS + DELAY_NS < STEP_NS."""
START_NS = 1_700_000_000 * 10**9
PORTS_COUNT = 50_000

CLIENT, SERVER = "client", "server"
SYN, ACK, PSH, FIN = 0x02, 0x10, 0x08, 0x01

TSO_CUTS = (0, 10, 32, 44)
GRO_CUTS = (0, 3, 12, 17, 25, 32, 36, 44)
"""Where sender and receiver cut the body, in MSS."""

PCAP_NS_HEADER = np.array([0xA1B23C4D, 0x0004_0002, 0, 0, 262_144, 1], dtype="<u4").tobytes()
TRANSACTION_ID = b"tx" + b"0" * 16
REQUEST = (
    b"PUT /v1/AUTH_bench/container/object-" + b"0" * 16 + b" HTTP/1.1\r\nHost: 10.0.0.2:8080\r\n"
    b"Content-Length: %d\r\nX-Trans-Id: %b\r\nUser-Agent: bench\r\n\r\n" % (BODY_LEN, TRANSACTION_ID)
)
RESPONSE = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nX-Trans-Id: %b\r\n\r\n" % TRANSACTION_ID


@dataclass(frozen=True)
class Row:
    """One packet of the script, as one of the two captures holds it; sent or (in the other) received at `step`."""

    step: int
    sender: str
    flags: int
    seq: int  # relative to the sender's ISN
    ack: int  # relative to the other's ISN
    payload_len: int
    ip_id: int
    head: bytes = b""
    tsval_step: int | None = None  # when its timestamp was taken, if not at `step`


@dataclass(frozen=True)
class Captures:
    """What `write` made. `packets_count` is the sum over both files."""

    client: Path
    server: Path
    packets_count: int
    connections_count: int


def write(folder: Path, packets_count: int) -> Captures:
    """Write `client.pcap` and `server.pcap` with at least so many packets together."""
    views = {CLIENT: _script(TSO_CUTS, cut_at_end=False), SERVER: _script(GRO_CUTS, cut_at_end=True)}
    per_group = GROUP * sum(map(len, views.values()))
    groups_count = -(-packets_count // per_group)
    paths = {}
    for host, rows in views.items():
        paths[host] = folder / f"{host}.pcap"
        with paths[host].open("wb") as file:
            _write_view(file, host, rows, groups_count)
    return Captures(paths[CLIENT], paths[SERVER], groups_count * per_group, groups_count * GROUP)


def _script(cuts: tuple[int, ...], cut_at_end: bool) -> list[Row]:
    """The rows of one connection with the body cut at these places; all else looks the same at both ends.

    A super-segment leaves when its first byte is there, a merged one is seen when its last byte is.
    """
    asked, done = 1 + len(REQUEST), 1 + len(REQUEST) + BODY_LEN
    answered = 1 + len(RESPONSE)
    rows = [
        Row(0, CLIENT, SYN, 0, 0, 0, 0),
        Row(1, SERVER, SYN | ACK, 0, 1, 0, 0),
        Row(2, CLIENT, ACK, 1, 1, 0, 1),
        Row(3, CLIENT, ACK | PSH, 1, 1, len(REQUEST), 2, REQUEST),
        Row(4, SERVER, ACK, 1, asked, 0, 1),
    ]
    rows += [
        Row(
            BODY_STEP + 4 * (end if cut_at_end else start),
            CLIENT,
            ACK,
            asked + start * MSS,
            1,
            (end - start) * MSS,
            3 + start,
            tsval_step=BODY_STEP,
        )
        for start, end in pairwise(cuts)
    ]
    rows += [
        Row(BODY_STEP + 2 + 4 * end, SERVER, ACK, 1, asked + end * MSS, 0, 2 + number)
        for number, end in enumerate(GRO_CUTS[1:])
    ]
    last = BODY_STEP + 4 + 4 * cuts[-1]
    rows += [
        Row(last, SERVER, ACK | PSH, 1, done, len(RESPONSE), 20, RESPONSE),
        Row(last + 1, CLIENT, ACK, done, answered, 0, 60),
        Row(last + 2, CLIENT, ACK | FIN, done, answered, 0, 61),
        Row(last + 3, SERVER, ACK | FIN, answered, done + 1, 0, 21),
        Row(last + 4, CLIENT, ACK, done + 1, answered + 1, 0, 62),
    ]
    return sorted(rows, key=lambda row: row.step)


def _write_view(file: BinaryIO, host: str, rows: list[Row], groups_count: int) -> None:
    file.write(PCAP_NS_HEADER)
    for first in range(0, groups_count, BATCH_GROUPS):
        groups = np.arange(first, min(first + BATCH_GROUPS, groups_count))
        blocks = [_records(host, row, groups) for row in rows]
        np.concatenate([block.reshape(len(groups), -1) for block in blocks], axis=1).tofile(file)


def _records(host: str, row: Row, groups: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Records of one row for all connections of these groups: shape (groups, GROUP, record bytes)."""
    connection = groups[:, None] * GROUP + np.arange(GROUP)
    captured_len = HEADERS_LEN + len(row.head)
    out = np.zeros((*connection.shape, 16 + captured_len), dtype=np.uint8)
    start_ns = groups[:, None] * GROUP_NS + np.arange(GROUP) * SPREAD_NS
    stamp_ns = START_NS + start_ns + row.step * STEP_NS + (DELAY_NS if host != row.sender else 0)
    _put(out, 0, "<u4", stamp_ns // 10**9)
    _put(out, 4, "<u4", stamp_ns % 10**9)
    _put(out, 8, "<u4", captured_len)
    _put(out, 12, "<u4", HEADERS_LEN + row.payload_len)
    sent_ns = start_ns + (row.step if row.tsval_step is None else row.tsval_step) * STEP_NS
    _put_headers(out[..., 16:], row, connection, sent_ns // 10**6)
    if row.head:
        _put_head(out[..., 16 + HEADERS_LEN :], row.head, connection)
    return out


def _put_headers(out: NDArray[np.uint8], row: Row, connection: NDArray[np.int64], sent_ms: NDArray[np.int64]) -> None:
    """Ethernet, IPv4, TCP with the timestamps option. Checksums stay 0, as under offload."""
    hosts = [b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"]
    ports: list[int | NDArray[np.int64]] = [10_000 + connection % PORTS_COUNT, 8080]
    isns = [_hash(connection, 1), _hash(connection, 2)]
    if row.sender == SERVER:
        hosts, ports, isns = hosts[::-1], ports[::-1], isns[::-1]
    out[..., 12:16] = list(b"\x08\x00\x45\x00")
    _put(out, 16, ">u2", 52 + row.payload_len)
    _put(out, 18, ">u2", _hash(connection, 3 + (row.sender == SERVER)) + row.ip_id)
    out[..., 20:24] = list(b"\x40\x00\x40\x06")
    out[..., 26:34] = list(b"".join(hosts))
    _put(out, 34, ">u2", ports[0])
    _put(out, 36, ">u2", ports[1])
    _put(out, 38, ">u4", isns[0] + row.seq)
    _put(out, 42, ">u4", isns[1] + row.ack if row.flags & ACK else 0)
    out[..., 46:48] = [0x80, row.flags]
    _put(out, 48, ">u2", 501)
    out[..., 54:58] = [1, 1, 8, 10]
    _put(out, 58, ">u4", sent_ms)
    _put(out, 62, ">u4", sent_ms if row.flags & ACK else 0)


def _put_head(out: NDArray[np.uint8], head: bytes, connection: NDArray[np.int64]) -> None:
    """The message head, with the connection's number as decimal digits wherever the script has sixteen zeros."""
    out[...] = np.frombuffer(head, dtype=np.uint8)
    digits = (connection[..., None] // 10 ** np.arange(15, -1, -1)) % 10 + ord("0")
    for at in _positions(head, b"0" * 16):
        out[..., at : at + 16] = digits


def _positions(text: bytes, part: bytes) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def _hash(connection: NDArray[np.int64], salt: int) -> NDArray[np.int64]:
    """A number below 2³² that looks random, the same at every call (Knuth's multiplicative hash)."""
    return ((connection + salt * 7_919) * 2_654_435_761) & 0xFFFF_FFFF


def _put(out: NDArray[np.uint8], at: int, dtype: str, values: NDArray[np.int64] | int) -> None:
    kind = np.dtype(dtype)
    whole = np.broadcast_to(np.asarray(values, dtype=np.int64) & ((1 << 8 * kind.itemsize) - 1), out.shape[:-1])
    out[..., at : at + kind.itemsize] = whole.astype(kind)[..., None].view(np.uint8)
