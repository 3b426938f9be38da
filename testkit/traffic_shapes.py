"""Write the captures that two hosts would make of traffic of several shapes, quickly enough for millions of packets.

    keep_alive   small requests one after the other on each of so many kept connections, interleaved packet by packet
    bulk         one upload, cut by its sender's card, and merged by the receiver's at other places
    lossy        one upload after the other; 1 % of the segments is lost and sent again, as many overtake others
    http2        64 streams at once on a connection, small requests

Uploads with a connection each and a SYN flood are in `upload_captures`. A shape is a table of packets in numpy: a
million take seconds. Of a body captures hold nothing (`tcpdump -s`). Limits: IPv4, one clock, one server port, no
SACK blocks.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testkit.upload_captures import MSS, PCAP_NS_HEADER, START_NS

Column = NDArray[np.int64]
SYN, ACK, PSH = 0x02, 0x10, 0x08
CLIENT, SERVER = 0, 1
DELAY_NS, WORK_NS, GAP_NS = 50_000, 200_000, 2_000
"""From host to host; of the server, for a request; between two packets of a host."""
SERVER_PORT, FIRST_PORT, PORTS_COUNT = 8080, 10_000, 50_000
HEADERS_LEN = 14 + 20 + 32
SENT_MSS, RECEIVED_MSS = 40, (17, 23)
"""Of a bulk stream: a super-segment, and what the receiver merges of it."""
UPLOAD_SEGMENTS = 512
LOST_SHARE = OVERTAKING_SHARE = 0.01
AGAIN_NS, OVERTAKING_NS = 400_000, 30_000
"""When a lost segment is sent again; how much later others of the overtaken kind arrive."""
STREAMS = 64
BATCH = 500_000
"""Packets that are written at once."""

_DIGITS = b"0" * 16
GET = b"GET /v1/orders/" + _DIGITS + b" HTTP/1.1\r\nHost: shop:8080\r\nX-Request-Id: r" + _DIGITS + b"\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\nX-Request-Id: r" + _DIGITS + b"\r\n\r\n" + _DIGITS
PUT = b"PUT /v1/files/" + _DIGITS + b" HTTP/1.1\r\nHost: shop:8080\r\nContent-Length: %d\r\n\r\n"
CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS
_STREAM = b"\0\0\0\0"
_ASKED = b"\x82\x86\x04\x1b/v1/orders/" + _DIGITS + b"\x01\x04shop"
_ANSWERED = b"\x88\x0f\x0d\x0216"
HTTP2_GET = len(_ASKED).to_bytes(3, "big") + b"\1\5" + _STREAM + _ASKED
HTTP2_OK = (
    len(_ANSWERED).to_bytes(3, "big") + b"\1\4" + _STREAM + _ANSWERED + b"\0\0\x10\0\1" + _STREAM + b"0123456789abcdef"
)
STREAM_PLACES = {HTTP2_GET: (5,), HTTP2_OK: (5, 9 + len(_ANSWERED) + 5)}
"""Where the stream's number stands."""


@dataclasses.dataclass
class Packets:
    """Packets of one end, or on the way, a row each."""

    time_ns: Column
    sender: Column
    connection: Column
    seq: Column  # relative to the sender's ISN
    ack: Column  # relative to the other's ISN
    flags: Column
    payload_len: Column
    text: Column  # what the payload begins with: a place in a list of texts; 0: nothing is captured of it
    number: Column  # of the request: its digits and its stream
    ip_id: Column
    sent_ns: Column  # what its timestamp option says, in ms

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, rows: NDArray[np.generic]) -> "Packets":
        """Some rows, in that order."""
        return Packets(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True)
class Written:
    """Two captures, and what an analysis of them must find."""

    files: tuple[Path, ...]
    packets_count: int  # of both
    requests_count: int
    lost_count: int = 0


def keep_alive(folder: Path, packets_count: int, connections_count: int) -> Written:
    """Three packets for each request, in both captures."""
    rounds = max(packets_count // (6 * connections_count), 1)
    number = np.arange(rounds * connections_count, dtype=np.int64)
    turn, connection = np.divmod(number, connections_count)
    begin_ns = 4 * DELAY_NS + GAP_NS * connections_count
    asked_ns = begin_ns + turn * max(2 * WORK_NS, 2 * GAP_NS * connections_count) + connection * GAP_NS
    answered_ns = asked_ns + DELAY_NS + WORK_NS
    asked, answered = 1 + turn * len(GET), 1 + turn * len(OK)
    sent = _join(
        _handshakes(np.arange(connections_count, dtype=np.int64)),
        _rows(asked_ns, CLIENT, connection, asked, answered, ACK | PSH, len(GET), 1, number, 2 + 2 * turn),
        _rows(answered_ns, SERVER, connection, answered, asked + len(GET), ACK | PSH, len(OK), 2, number, 1 + turn),
        _rows(
            answered_ns + 2 * DELAY_NS,
            CLIENT,
            connection,
            asked + len(GET),
            answered + len(OK),
            ACK,
            ip_id=3 + 2 * turn,
        ),
    )
    return _write_both(folder, sent, sent.time_ns + DELAY_NS, (b"", GET, OK), len(number))


def http2(folder: Path, packets_count: int) -> Written:
    """64 requests under way at any time on one connection; two packets for each, in both captures."""
    number = np.arange(max(packets_count // 4, 1), dtype=np.int64)
    opened_ns = np.full(1, 4 * DELAY_NS, dtype=np.int64)
    asked_ns = 8 * DELAY_NS + number * ((2 * DELAY_NS + WORK_NS) // STREAMS)
    answered_ns = asked_ns + DELAY_NS + WORK_NS
    asked = 1 + len(PREFACE) + number * len(HTTP2_GET)
    answered = 1 + len(SETTINGS) + number * len(HTTP2_OK)
    heard = 1 + len(SETTINGS) + np.searchsorted(answered_ns + DELAY_NS, asked_ns) * len(HTTP2_OK)
    taken = 1 + len(PREFACE) + np.searchsorted(asked_ns + DELAY_NS, answered_ns) * len(HTTP2_GET)
    sent = _join(
        _handshakes(np.zeros(1, dtype=np.int64)),
        _rows(opened_ns, CLIENT, 0, 1, 1, ACK | PSH, len(PREFACE), 1, ip_id=2),
        _rows(opened_ns + DELAY_NS, SERVER, 0, 1, 1 + len(PREFACE), ACK | PSH, len(SETTINGS), 2, ip_id=1),
        _rows(asked_ns, CLIENT, 0, asked, heard, ACK | PSH, len(HTTP2_GET), 3, number, 3 + number),
        _rows(answered_ns, SERVER, 0, answered, taken, ACK | PSH, len(HTTP2_OK), 4, number, 2 + number),
    )
    return _write_both(
        folder, sent, sent.time_ns + DELAY_NS, (b"", PREFACE, SETTINGS, HTTP2_GET, HTTP2_OK), len(number)
    )


def bulk(folder: Path, packets_count: int) -> Written:
    """Of 40 segments one packet leaves, two arrive, and each of these is acknowledged."""
    runs = max(packets_count // 7, 1)
    put = PUT % (runs * SENT_MSS * MSS)
    asked, done = 1 + len(put), 1 + len(put) + runs * SENT_MSS * MSS
    start = np.arange(runs, dtype=np.int64) * SENT_MSS
    cut = np.stack([start, start + RECEIVED_MSS[0]], axis=1).reshape(-1)
    end = np.append(cut[1:], runs * SENT_MSS)
    begin_ns = np.full(1, 5 * DELAY_NS, dtype=np.int64)
    left_ns, arrived_ns = (begin_ns + GAP_NS + at * 12_000 for at in (start, end))  # 1 Gbit/s
    over_ns = arrived_ns[-1:] + DELAY_NS + WORK_NS
    last_id = 3 + runs * SENT_MSS
    both = _join(
        _handshakes(np.zeros(1, dtype=np.int64)),
        _rows(begin_ns, CLIENT, 0, 1, 1, ACK | PSH, len(put), 1, ip_id=2),
        _rows(arrived_ns + DELAY_NS + GAP_NS, SERVER, 0, 1, asked + end * MSS, ACK, ip_id=1 + np.arange(2 * runs)),
        _rows(over_ns, SERVER, 0, 1, done, ACK | PSH, len(CREATED), 2, ip_id=1 + 2 * runs),
        _rows(over_ns + 2 * DELAY_NS, CLIENT, 0, done, 1 + len(CREATED), ACK, ip_id=last_id),
    )
    leaving = _rows(left_ns, CLIENT, 0, asked + start * MSS, 1, ACK, SENT_MSS * MSS, ip_id=3 + start)
    arriving = _rows(
        arrived_ns + DELAY_NS,
        CLIENT,
        0,
        asked + cut * MSS,
        1,
        ACK,
        (end - cut) * MSS,
        ip_id=3 + cut,
        sent_ns=np.repeat(left_ns, 2),
    )
    views = [
        _join(_view_of(both, host, both.time_ns + DELAY_NS), own)
        for host, own in ((CLIENT, leaving), (SERVER, arriving))
    ]
    return _write_views(folder, views, (b"", put, CREATED), 1)


def lossy(folder: Path, packets_count: int, seed: int = 1) -> Written:
    """Uploads of 512 segments, each of which the receiver acknowledges as it arrives; captures miss nothing."""
    uploads = max(packets_count // (4 * UPLOAD_SEGMENTS), 1)
    chance = np.random.default_rng(seed)
    put = PUT % (UPLOAD_SEGMENTS * MSS)
    asked, done = 1 + len(put), 1 + len(put) + UPLOAD_SEGMENTS * MSS
    parts, arrivals, requests_ns, lost_count = [], [], 0, 0
    for number in range(uploads):
        made, arrives_ns, over_ns = _lossy_upload(chance, number, requests_ns, asked, done, len(put))
        parts.append(made)
        arrivals.append(arrives_ns)
        lost_count += int((arrives_ns < 0).sum())
        requests_ns = over_ns
    sent = _join(*parts)
    return _write_both(folder, sent, np.concatenate(arrivals), (b"", put, CREATED), uploads, lost_count)


def _lossy_upload(
    chance: np.random.Generator, connection: int, begin_ns: int, asked: int, done: int, put_len: int
) -> tuple[Packets, Column, int]:
    """An upload's packets, when each arrives (-1: never), and when it is over."""
    lane = np.full(1, connection, dtype=np.int64)
    segment = np.arange(UPLOAD_SEGMENTS, dtype=np.int64)
    data_ns = begin_ns + 6 * DELAY_NS + segment * 12_000
    lost = chance.random(UPLOAD_SEGMENTS) < LOST_SHARE
    overtaken = chance.random(UPLOAD_SEGMENTS) < OVERTAKING_SHARE
    again_ns = np.maximum(data_ns[lost] + AGAIN_NS, 0)
    arrives_ns = data_ns + DELAY_NS + np.where(overtaken, OVERTAKING_NS, 0)
    held_ns = np.maximum.accumulate(np.where(lost, data_ns + AGAIN_NS + DELAY_NS, arrives_ns))
    came_ns = np.sort(np.concatenate([arrives_ns[~lost], again_ns + DELAY_NS]))
    acked = asked + np.searchsorted(held_ns, came_ns, side="right") * MSS
    over_ns = came_ns[-1:] + WORK_NS
    ids = 3 + np.arange(UPLOAD_SEGMENTS + len(again_ns))
    again = segment[lost]
    made = [
        _handshakes(lane, begin_ns),
        _rows(lane * 0 + begin_ns + 5 * DELAY_NS, CLIENT, lane, 1, 1, ACK | PSH, put_len, 1, lane, 2),
        _rows(data_ns, CLIENT, lane, asked + segment * MSS, 1, ACK, MSS, ip_id=3 + segment),
        _rows(again_ns, CLIENT, lane, asked + again * MSS, 1, ACK, MSS, ip_id=ids[UPLOAD_SEGMENTS:]),
        _rows(came_ns + GAP_NS, SERVER, lane, 1, acked, ACK, ip_id=1 + np.arange(len(came_ns))),
        _rows(over_ns, SERVER, lane, 1, done, ACK | PSH, 66, 2, ip_id=1 + len(came_ns)),
        _rows(over_ns + 2 * DELAY_NS, CLIENT, lane, done, 67, ACK, ip_id=ids[-1:] + 1),
    ]
    joined = _join(*made)
    arrival = joined.time_ns + DELAY_NS
    first = 3 + 1
    arrival[first : first + UPLOAD_SEGMENTS] = np.where(lost, -1, arrives_ns)
    return joined, arrival, int(over_ns[0]) + 4 * DELAY_NS


def _handshakes(connection: Column, begin_ns: int = 0) -> Packets:
    at_ns = begin_ns + (connection - connection[0]) * GAP_NS
    return _join(
        _rows(at_ns, CLIENT, connection, 0, 0, SYN),
        _rows(at_ns + DELAY_NS, SERVER, connection, 0, 1, SYN | ACK),
        _rows(at_ns + 2 * DELAY_NS, CLIENT, connection, 1, 1, ACK, ip_id=1),
    )


def _rows(
    time_ns: Column,
    sender: int,
    connection: Column | int,
    seq: Column | int,
    ack: Column | int,
    flags: int,
    payload_len: Column | int = 0,
    text: int = 0,
    number: Column | int = 0,
    ip_id: Column | int = 0,
    sent_ns: Column | None = None,
) -> Packets:
    """Packets of one kind, one at each of these times; `sent_ns` where they were sent at others."""
    sent_ns = time_ns if sent_ns is None else sent_ns
    values = (time_ns, sender, connection, seq, ack, flags, payload_len, text, number, ip_id, sent_ns)
    return Packets(*(np.broadcast_to(np.asarray(each, dtype=np.int64), len(time_ns)) for each in values))


def _join(*parts: Packets) -> Packets:
    names = [field.name for field in dataclasses.fields(Packets)]
    return Packets(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _view_of(sent: Packets, host: int, arrives_ns: Column) -> Packets:
    """What one end holds of packets that were sent; -1: what never arrives."""
    at_ns = np.where(sent.sender == host, sent.time_ns, arrives_ns)
    return dataclasses.replace(sent, time_ns=at_ns).take(np.flatnonzero(at_ns >= 0))


def _write_both(
    folder: Path, sent: Packets, arrives_ns: Column, texts: Sequence[bytes], requests_count: int, lost_count: int = 0
) -> Written:
    views = [_view_of(sent, host, arrives_ns) for host in (CLIENT, SERVER)]
    return _write_views(folder, views, texts, requests_count, lost_count)


def _write_views(
    folder: Path, views: Sequence[Packets], texts: Sequence[bytes], requests_count: int, lost_count: int = 0
) -> Written:
    paths = folder / "client.pcap", folder / "server.pcap"
    for path, view in zip(paths, views, strict=True):
        ordered = view.take(np.argsort(view.time_ns, kind="stable"))
        with path.open("wb") as file:
            file.write(PCAP_NS_HEADER)
            for first in range(0, len(ordered), BATCH):
                _records(ordered.take(np.arange(first, min(first + BATCH, len(ordered)))), texts).tofile(file)
    return Written(paths, sum(map(len, views)), requests_count, lost_count)


def _records(packets: Packets, texts: Sequence[bytes]) -> NDArray[np.uint8]:
    """The packets as one piece of a pcap file."""
    sizes = 16 + HEADERS_LEN + np.array([len(text) for text in texts])[packets.text]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    made = np.zeros(offsets[-1], dtype=np.uint8)
    for place, text in enumerate(texts):
        rows = np.flatnonzero(packets.text == place)
        if len(rows):
            block = _headers(packets.take(rows), len(text))
            if text:
                _put_text(block[:, 16 + HEADERS_LEN :], text, packets.number[rows])
            made[offsets[rows][:, None] + np.arange(block.shape[1])] = block
    return made


def _headers(packets: Packets, text_len: int) -> NDArray[np.uint8]:
    """Record header, Ethernet, IPv4, TCP with timestamps; checksums stay 0, as under offload."""
    out = np.zeros((len(packets), 16 + HEADERS_LEN + text_len), dtype=np.uint8)
    at_ns = START_NS + packets.time_ns
    from_client = packets.sender == CLIENT
    client_port = FIRST_PORT + packets.connection % PORTS_COUNT
    client = 0x0A00_0100 + packets.connection // PORTS_COUNT
    ends = (client, np.full(len(packets), 0x0A00_0002))
    ports = (client_port, np.full(len(packets), SERVER_PORT))
    isns = [((packets.connection + salt * 7_919) * 2_654_435_761) & 0xFFFF_FFFF for salt in (1, 2)]
    mine, other = (np.where(from_client, *pair) for pair in (isns, isns[::-1]))
    fields = (
        (0, "<u4", at_ns // 10**9), (4, "<u4", at_ns % 10**9), (8, "<u4", HEADERS_LEN + text_len),
        (12, "<u4", HEADERS_LEN + packets.payload_len), (28, ">u2", 0x0800), (30, ">u2", 0x4500),
        (32, ">u2", 52 + packets.payload_len), (34, ">u2", packets.ip_id), (36, ">u2", 0x4000), (38, ">u2", 0x4006),
        (42, ">u4", np.where(from_client, *ends)), (46, ">u4", np.where(from_client, *ends[::-1])),
        (50, ">u2", np.where(from_client, *ports)), (52, ">u2", np.where(from_client, *ports[::-1])),
        (54, ">u4", mine + packets.seq), (58, ">u4", np.where(packets.flags & ACK, other + packets.ack, 0)),
        (62, ">u2", 0x8000 | packets.flags), (64, ">u2", 501), (70, ">u4", 0x0101_080A),
        (74, ">u4", packets.sent_ns // 10**6),
        (78, ">u4", np.where(packets.flags & ACK, packets.sent_ns // 10**6, 0)),
    )  # fmt: skip
    for at, kind, values in fields:
        _put(out, at, kind, values)
    return out


def _put_text(out: NDArray[np.uint8], text: bytes, number: Column) -> None:
    """The text, with the request's number as digits and as its stream."""
    out[...] = np.frombuffer(text, dtype=np.uint8)
    digits = (number[:, None] // 10 ** np.arange(15, -1, -1)) % 10 + ord("0")
    at = text.find(_DIGITS)
    while at >= 0:
        out[:, at : at + 16] = digits
        at = text.find(_DIGITS, at + 16)
    for at in STREAM_PLACES.get(text, ()):
        _put(out, at, ">u4", 1 + 2 * number)


def _put(out: NDArray[np.uint8], at: int, kind: str, values: Column | int) -> None:
    width = np.dtype(kind).itemsize
    whole = np.broadcast_to(np.asarray(values, dtype=np.int64) & ((1 << 8 * width) - 1), len(out))
    out[:, at : at + width] = whole.astype(kind)[:, None].view(np.uint8).reshape(len(out), width)
