"""Write the captures that two hosts would make of many uploads, quickly enough for ten million packets.

Every upload is one PUT of `BODY_LEN` bytes. The sender's capture holds it as its card's TSO takes it, the
receiver's as GRO merged it, at other places: so pairing by (connection, seq) finds few of the transfers, as it is on
real hosts. Packets carry timestamps, IP IDs that count the MSS-sized pieces, and HTTP heads with a transaction id.

All connections follow one script, so a row of the script is one numpy array over the connections. Connections run in
groups of `GROUP` side by side, one group after the other; each file is in time order. Where fewer connections are asked
for, each carries as many uploads as it takes, one after the other.

Limits: no loss, no reordering, one clock, IPv4, ports recycled after 50,000 connections (with new ISNs).
"""

from collections.abc import Iterator, Sequence
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
IDS_EACH = 64
"""IP IDs that an upload takes, of either side."""

FLOOD_BATCH, FLOOD_NS = 16_384, 1_000
FORGED_NETWORK, FORGED_COUNT = 0x0B00_0000, 1 << 24
"""Addresses of a flood: 11.0.0.0/8."""

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


@dataclass(frozen=True)
class Shape:
    """`lanes` connections side by side, each of `uploads`; `bouts` times, with new connections, from `first_bout` on,
    `group_ns` one after the other."""

    lanes: int
    uploads: int
    bouts: int
    first_bout: int = 0
    group_ns: int = GROUP_NS


ANSWERED_SYN = (Row(0, CLIENT, SYN, 0, 0, 0, 0), Row(1, SERVER, SYN | ACK, 0, 1, 0, 0))
"""Never acknowledged: a SYN flood."""


def write(folder: Path, packets_count: int, connections_count: int | None = None) -> Captures:
    """Write `client.pcap` and `server.pcap` with about so many packets together.

    Arguments: `connections_count`, about how many share them; None: one for each upload.
    """
    views = {CLIENT: _script(TSO_CUTS, cut_at_end=False), SERVER: _script(GRO_CUTS, cut_at_end=True)}
    shape = _shape(views, packets_count, connections_count)
    paths, count = {}, 0
    for host, rows in views.items():
        paths[host] = folder / f"{host}.pcap"
        with paths[host].open("wb") as file:
            count += _write_view(file, host, rows, shape)
    return Captures(paths[CLIENT], paths[SERVER], count, shape.lanes * shape.bouts)


def write_part(folder: Path, first_bout: int, bouts: int, group_ns: int, name: str) -> Captures:
    """Write a part of longer captures, whose groups of `GROUP` uploads begin `group_ns` one after the other: those from
    `first_bout` on, as `client/NAME` and `server/NAME`."""
    views = {CLIENT: _script(TSO_CUTS, cut_at_end=False), SERVER: _script(GRO_CUTS, cut_at_end=True)}
    shape = Shape(GROUP, 1, bouts, first_bout, group_ns)
    paths, count = {}, 0
    for host, rows in views.items():
        paths[host] = folder / host / name
        paths[host].parent.mkdir(parents=True, exist_ok=True)
        with paths[host].open("wb") as file:
            count += _write_view(file, host, rows, shape)
    return Captures(paths[CLIENT], paths[SERVER], count, GROUP * bouts)


def write_flood(folder: Path, connections_count: int, rows: Sequence[Row] = ANSWERED_SYN) -> Path:
    """Write `server.pcap`: so many connections from as many forged addresses, one packet of each for each row."""
    path = folder / "server.pcap"
    with path.open("wb") as file:
        file.write(PCAP_NS_HEADER)
        for first in range(0, connections_count, FLOOD_BATCH):
            turns = np.arange(first, min(first + FLOOD_BATCH, connections_count))
            blocks = np.concatenate([_flood_records(row, turns) for row in rows], axis=1)
            blocks.tofile(file)
    return path


def _flood_records(row: Row, turns: NDArray[np.int64]) -> NDArray[np.uint8]:
    """One record of each connection: shape (connections, record bytes)."""
    out = _records(SERVER, row, turns, Shape(lanes=1, uploads=1, bouts=len(turns)))[:, 0]
    stamp_ns = START_NS + turns * FLOOD_NS + row.step * DELAY_NS // 100
    _put(out, 0, "<u4", stamp_ns // 10**9)
    _put(out, 4, "<u4", stamp_ns % 10**9)
    source = 16 + (26 if row.sender == CLIENT else 30)
    _put(out, source, ">u4", FORGED_NETWORK + _hash(turns, 5) % FORGED_COUNT)
    return out


def _shape(views: dict[str, list[Row]], packets_count: int, connections_count: int | None) -> Shape:
    per_upload = sum(map(len, views.values()))
    if connections_count is None:
        return Shape(GROUP, 1, -(-packets_count // (GROUP * per_upload)))
    lanes = min(GROUP, connections_count)
    bouts = max(1, connections_count // lanes)
    kept = sum(not row.flags & (SYN | FIN) and row.step > 2 for rows in views.values() for row in rows)
    return Shape(lanes, max(1, packets_count // (lanes * bouts * kept)), bouts)


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


def _write_view(file: BinaryIO, host: str, rows: list[Row], shape: Shape) -> int:
    """Write what one host captured; returns how many packets that is."""
    file.write(PCAP_NS_HEADER)
    count = 0
    for turns in _turns(shape):
        upload = int(turns[0]) % shape.uploads
        own = [row for row in rows if _belongs(row, upload, shape.uploads)]
        blocks = [_records(host, row, turns, shape) for row in own]
        np.concatenate([block.reshape(len(turns), -1) for block in blocks], axis=1).tofile(file)
        count += len(own) * shape.lanes * len(turns)
    return count


def _turns(shape: Shape) -> Iterator[NDArray[np.int64]]:
    """Groups of uploads that have the same rows, by time: the first of a connection, those between, the last."""
    everything = np.arange(shape.uploads * shape.first_bout, shape.uploads * (shape.first_bout + shape.bouts))
    upload = everything % shape.uploads
    kind = (upload == 0) * 1 + (upload == shape.uploads - 1) * 2
    for run in np.split(everything, np.flatnonzero(np.diff(kind)) + 1):
        for first in range(0, len(run), BATCH_GROUPS):
            yield run[first : first + BATCH_GROUPS]


def _belongs(row: Row, upload: int, uploads: int) -> bool:
    """Whether a row is part of this upload: the handshake only of the first, the end only of the last."""
    opens, closes = row.step <= 2, row.step > BODY_STEP + 5 + 4 * TSO_CUTS[-1]
    return (not opens or upload == 0) and (not closes or upload == uploads - 1)


def _records(host: str, row: Row, turns: NDArray[np.int64], shape: Shape) -> NDArray[np.uint8]:
    """Records of one row for all connections of these groups: shape (groups, lanes, record bytes)."""
    number = turns[:, None] * shape.lanes + np.arange(shape.lanes)
    connection = turns[:, None] // shape.uploads * shape.lanes + np.arange(shape.lanes)
    earlier = np.broadcast_to(turns[:, None] % shape.uploads, number.shape)
    captured_len = HEADERS_LEN + len(row.head)
    out = np.zeros((*number.shape, 16 + captured_len), dtype=np.uint8)
    start_ns = turns[:, None] * shape.group_ns + np.arange(shape.lanes) * SPREAD_NS
    stamp_ns = START_NS + start_ns + row.step * STEP_NS + (DELAY_NS if host != row.sender else 0)
    _put(out, 0, "<u4", stamp_ns // 10**9)
    _put(out, 4, "<u4", stamp_ns % 10**9)
    _put(out, 8, "<u4", captured_len)
    _put(out, 12, "<u4", HEADERS_LEN + row.payload_len)
    sent_ns = start_ns + (row.step if row.tsval_step is None else row.tsval_step) * STEP_NS
    _put_headers(out[..., 16:], row, connection, earlier, sent_ns // 10**6)
    if row.head:
        _put_head(out[..., 16 + HEADERS_LEN :], row.head, number)
    return out


def _put_headers(
    out: NDArray[np.uint8],
    row: Row,
    connection: NDArray[np.int64],
    earlier: NDArray[np.int64],
    sent_ms: NDArray[np.int64],
) -> None:
    """Ethernet, IPv4, TCP with the timestamps option. Checksums stay 0, as under offload.

    Arguments: `earlier`, how many uploads the connection has carried before.
    """
    hosts = [b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"]
    ports: list[int | NDArray[np.int64]] = [10_000 + connection % PORTS_COUNT, 8080]
    isns = [
        _hash(connection, 1) + earlier * (len(REQUEST) + BODY_LEN),
        _hash(connection, 2) + earlier * len(RESPONSE),
    ]
    if row.sender == SERVER:
        hosts, ports, isns = hosts[::-1], ports[::-1], isns[::-1]
    out[..., 12:16] = list(b"\x08\x00\x45\x00")
    _put(out, 16, ">u2", 52 + row.payload_len)
    _put(out, 18, ">u2", _hash(connection, 3 + (row.sender == SERVER)) + row.ip_id + earlier * IDS_EACH)
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
