"""A seeded simulator of hosts, paths and TCP that writes what each host would have captured, and the exact truth.

It does not model TCP's performance. It produces the packet sequences that matching must handle: super-segments (TSO)
that the path splits, receives that GRO merged at other places, loss with fast retransmission and timeouts, reordering,
duplicates, loss behind the tap, capture drops, clocks with offset and skew.

A *record* is one packet in one host's capture; the truth pairs records. Times are true time in ns; a host's stamps are
its clock's reading of it.
"""

import heapq
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from socket import inet_aton

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
MSS = 1448
SUPER_SEGMENT_LEN = 16 * MSS
RTO_NS = 200_000_000
PROBE_NS = 5_000_000
EPOCH_NS = 1_800_000_000_000_000_000


@dataclass(frozen=True)
class Clock:
    """A host's clock: reading = true time + offset + skew."""

    offset_ns: int = 0
    skew_ppb: int = 0

    def read(self, at_ns: int) -> int:
        return EPOCH_NS + at_ns + self.offset_ns + round(at_ns * self.skew_ppb / 1e9)


@dataclass(frozen=True)
class Station:
    """One host and how it captures."""

    name: str
    address: str
    clock: Clock = Clock()
    tso: bool = True
    gro: bool = True
    capture_drop: float = 0.0
    behind_tap_loss: float = 0.0
    timestamps: bool = True
    ip_id: str = "counter"  # or "zero", "random"


@dataclass(frozen=True)
class NetworkPath:
    """One way between two hosts. Packets keep their order, except for the share `reorder`."""

    delay_ns: int = 50_000
    jitter_ns: int = 5_000
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


@dataclass
class Record:
    """One captured packet. `parts` are (send record, start, end, attempt) of what it carried; empty for a send."""

    host: str
    at_ns: int
    sent: bool
    src: str
    dst: str
    sport: int
    dport: int
    flags: int
    seq: int
    length: int
    ack: int
    tsval: int
    tsecr: int
    ip_id: int
    window: int
    sack: tuple[int, int] | None
    parts: list[tuple["Record", int, int, int]] = field(default_factory=list)
    frame: int = 0  # 0 = the capture dropped it


@dataclass(frozen=True)
class Transfer:
    """Truth: bytes `start..end` went from one record to another, or were `lost`, or one end was not captured."""

    send: tuple[str, int] | None
    receive: tuple[str, int] | None
    start: int
    end: int
    attempt: int


@dataclass
class _Wire:
    """A packet on the path."""

    record: Record
    start: int
    end: int
    attempt: int
    ip_id: int
    again: bool = False
    """A copy that the network made: it arrives, and is no transfer of its own."""


class Network:
    """The simulation. Add connections, `run`, then read `truth` and `write`."""

    def __init__(self, stations: list[Station], path: NetworkPath, seed: int, *, isn: int | None = None) -> None:
        self.random = random.Random(seed)
        self.path = path
        self.isn = isn
        self.stations = {station.name: station for station in stations}
        self.records: dict[str, list[Record]] = {station.name: [] for station in stations}
        self.lost: list[_Wire] = []
        self.now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._latest: dict[str, int] = {}

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (time_ns, self._order, action))

    def run(self, limit_ns: int = 600_000_000_000) -> None:
        while self._queue and self._queue[0][0] <= limit_ns:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        for name, records in self.records.items():
            records.sort(key=lambda record: record.at_ns)
            station, frame = self.stations[name], 0
            for record in records:
                if self.random.random() >= station.capture_drop:
                    frame += 1
                    record.frame = frame

    def connect(self, client: str, server: str, port: int, request: int, response: int, at_ns: int = 0) -> None:
        """One connection: handshake, a request, a response, close."""
        isn = [self.isn if self.isn is not None else self.random.randrange(1 << 32) for _ in range(2)]
        ends = [
            _End(self, self.stations[client], self.stations[server], port, 80, isn[0], request, True),
            _End(self, self.stations[server], self.stations[client], 80, port, isn[1], response, False),
        ]
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        self.at(at_ns, ends[0].open)

    def send(self, end: "_End", wires: list[_Wire]) -> None:
        """Put packets on the path: each is lost, delayed, late, or doubled on its own."""
        at = self.now
        for wire in wires:
            at += 12_000  # a full packet at 1 Gbit/s
            if self.random.random() < self.path.loss:
                self.lost.append(wire)
                continue
            arrival = at + self.path.delay_ns + self.random.randrange(self.path.jitter_ns + 1)
            if self.random.random() < self.path.reorder:
                arrival += self.random.randrange(200_000)  # others overtake it
            else:
                arrival = self._latest[end.own.name] = max(arrival, self._latest.get(end.own.name, 0) + 100)
            self.at(arrival, partial(end.peer.arrive, wire))
            if self.random.random() < self.path.duplicate:
                again = replace(wire, again=True)
                self.at(arrival + 3_000, partial(end.peer.arrive, again))

    def truth(self) -> Iterator[Transfer]:
        """Every transfer, and every loss. Both ends missing is left out."""
        key = lambda record: (record.host, record.frame) if record.frame else None  # noqa: E731
        for records in self.records.values():
            for receive in records:
                for send, start, end, attempt in receive.parts:
                    if key(send) or key(receive):
                        yield Transfer(key(send), key(receive), start, end, attempt)

    def write(self, folder: Path, snaplen: int = 128) -> list[Path]:
        """One nanosecond pcap a host; returns the files."""
        files = []
        for name, records in self.records.items():
            path = folder / f"{name}.pcap"
            body = b"".join(_packet(self.stations[name], record, snaplen) for record in records if record.frame)
            path.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snaplen, 1) + body)
            files.append(path)
        return files


class _End:
    """One end of a connection: it sends `total` bytes as its window allows, acknowledges, retransmits and closes."""

    def __init__(
        self, net: Network, own: Station, other: Station, port: int, peer_port: int, isn: int, total: int, client: bool
    ) -> None:
        self.net, self.own, self.other, self.client = net, own, other, client
        self.port, self.peer_port, self.isn, self.total = port, peer_port, isn, total
        self.peer: _End = self
        self.una, self.nxt, self.limit = -1, -1, -1  # offsets: -1 is the SYN, `total` the FIN
        self.rcv, self.gaps = -1, set[tuple[int, int]]()
        self.repeated_acks, self.timer = 0, 0
        self.attempts: dict[int, int] = {}
        self.sent_ranges: list[tuple[int, int]] = []
        self.tsecr = 0
        self.last_ip_id = net.random.randrange(1 << 16)
        self.closing = False
        self.pending: tuple[Record, list[_Wire]] | None = None

    # sending

    def open(self) -> None:
        self.transmit(-1, 0, SYN)
        self.nxt = 0
        self.arm(RTO_NS)

    def transmit(self, start: int, length: int, flags: int, sack: tuple[int, int] | None = None) -> None:
        wires_count = max(1, -(-length // MSS))
        ip_id = self.next_ip_id(wires_count)
        stamp = (self.net.now // 1_000_000 + self.isn) & 0xFFFFFFFF
        own, other = self.own, self.other
        record = Record(
            own.name, self.net.now, True, own.address, other.address, self.port, self.peer_port, flags,
            (self.isn + 1 + start) & 0xFFFFFFFF, length,
            (self.peer.isn + 1 + self.rcv) & 0xFFFFFFFF if flags & ACK else 0,
            stamp if own.timestamps else 0, self.tsecr if own.timestamps else 0, ip_id, 500, sack,
        )  # fmt: skip
        self.net.records[own.name].append(record)
        attempt = 1 + sum(a < start + max(length, 1) and start < b for a, b in self.sent_ranges) if length else 1
        if length:
            self.sent_ranges.append((start, start + length))
        elif flags & (SYN | FIN):
            attempt = self.attempts[flags] = self.attempts.get(flags, 0) + 1
        step = MSS if length else 1
        wires = [
            _Wire(record, at, min(at + MSS, start + length), attempt, (ip_id + n) & 0xFFFF if ip_id else 0)
            for n, at in enumerate(range(start, start + max(length, 1), step))
        ]
        if not length:
            wires[0].end = start
        self.net.send(self, wires)

    def next_ip_id(self, count: int) -> int:
        """As Linux counts: by socket, one for each packet on the wire."""
        if self.own.ip_id == "random":
            return self.net.random.randrange(1, 1 << 16)
        self.last_ip_id += count
        return 0 if self.own.ip_id == "zero" else (self.last_ip_id - count) & 0xFFFF

    def pump(self) -> None:
        """Send what the window (16 full packets) allows, then FIN."""
        window = self.una + 16 * MSS
        while self.nxt < self.limit and self.nxt < window:
            most = min(self.limit - self.nxt, window - self.nxt)
            length = min(most, SUPER_SEGMENT_LEN if self.own.tso else MSS)
            self.transmit(self.nxt, length, ACK | PSH)
            self.nxt += length
        if self.closing and self.nxt == self.limit == self.total:
            self.transmit(self.total, 0, FIN | ACK)
            self.nxt = self.total + 1
        if self.nxt > self.una:
            self.arm(RTO_NS)

    def arm(self, after_ns: int) -> None:
        self.timer += 1
        self.net.at(self.net.now + after_ns, partial(self.timeout, self.timer, after_ns))

    def timeout(self, token: int, after_ns: int) -> None:
        if token != self.timer or self.una >= self.nxt or after_ns > 60_000_000_000:
            return
        self.retransmit()
        self.arm(2 * after_ns)

    def retransmit(self) -> None:
        if self.una == -1:
            self.transmit(-1, 0, SYN if self.client else SYN | ACK)
        elif self.una < self.limit:
            self.transmit(self.una, min(MSS, self.limit - self.una), ACK | PSH)
        elif self.closing:
            self.transmit(self.total, 0, FIN | ACK)

    # receiving

    def arrive(self, wire: _Wire) -> None:
        record = wire.record
        merges = self.own.gro and wire.end > wire.start and self.pending is not None
        if merges and self.pending is not None:
            first, wires = self.pending
            same = (first.tsval, first.ack, first.flags) == (record.tsval, record.ack, record.flags)
            same = same and wire.ip_id in (wires[-1].ip_id + 1, 0)  # as Linux's GRO asks
            if same and wires[-1].end == wire.start and len(wires) < 16:
                wires.append(wire)
                return
        self.flush()
        if self.own.gro and wire.end > wire.start:
            self.pending = (record, [wire])
            self.net.at(self.net.now + 30_000, partial(self.flush, self.pending))
        else:
            self.take(record, [wire])

    def flush(self, held: tuple[Record, list[_Wire]] | None = None) -> None:
        if self.pending is not None and (held is None or held is self.pending):
            (record, wires), self.pending = self.pending, None
            self.take(record, wires)

    def take(self, sent: Record, wires: list[_Wire]) -> None:
        start, end = wires[0].start, wires[-1].end
        seq = (self.peer.isn + 1 + start) & 0xFFFFFFFF
        received = Record(
            self.own.name, self.net.now, False, sent.src, sent.dst, sent.sport, sent.dport, sent.flags, seq,
            end - start, sent.ack, sent.tsval, sent.tsecr, wires[0].ip_id, sent.window, sent.sack,
            [(wire.record, wire.start, wire.end, wire.attempt) for wire in wires if not wire.again],
        )  # fmt: skip
        self.net.records[self.own.name].append(received)
        if self.net.random.random() >= self.own.behind_tap_loss:
            self.process(sent, start, end)

    def process(self, sent: Record, start: int, end: int) -> None:
        if self.own.timestamps:
            self.tsecr = sent.tsval
        takes = (start, end + bool(sent.flags & (SYN | FIN)))
        if sent.flags & ACK:
            self.note_acknowledgement(sent)
        if takes[1] > takes[0] or end > start:
            self.accept(*takes)
            self.answer(sent)

    def accept(self, start: int, end: int) -> None:
        self.gaps.add((start, end))
        for a, b in sorted(self.gaps):
            if a <= self.rcv < b:
                self.rcv = b
        self.gaps = {(a, b) for a, b in self.gaps if b > self.rcv}

    def answer(self, sent: Record) -> None:
        if sent.flags & SYN and not self.client:
            self.una, self.nxt = -1, 0
            self.transmit(-1, 0, SYN | ACK)
            self.arm(RTO_NS)
            return
        self.transmit(self.nxt, 0, ACK, min(self.gaps) if self.gaps else None)
        peer_total = self.peer.total
        if not self.client and self.rcv >= peer_total and self.limit < self.total:
            self.limit, self.closing = self.total, True
            self.net.at(self.net.now + 400_000, self.pump)
        if self.client and self.rcv >= peer_total and not self.closing:
            self.closing = True
            self.pump()

    def note_acknowledgement(self, sent: Record) -> None:
        ack = (sent.ack - self.isn - 1) & 0xFFFFFFFF
        offset = ack - (1 << 32) if ack >= 1 << 31 else ack
        if offset > self.una:
            opened = self.una == -1
            self.una, self.repeated_acks = offset, 0
            self.timer += 1
            if opened and self.client:
                self.rcv = max(self.rcv, 0)
                self.limit = self.total
            self.pump()
        elif offset == self.una < self.nxt and sent.length == 0 and not sent.flags & SYN:
            self.repeated_acks += 1
            if self.repeated_acks == 3:
                self.retransmit()


def _packet(station: Station, record: Record, snaplen: int) -> bytes:
    options = b""
    if record.flags & SYN:
        options += struct.pack("!BBH", 2, 4, MSS + 12 * station.timestamps)
    if station.timestamps:
        options += struct.pack("!BBBBII", 1, 1, 8, 10, record.tsval, record.tsecr)
    if record.sack:
        edges = [(edge) & 0xFFFFFFFF for edge in record.sack]
        options += struct.pack("!BBBBII", 1, 1, 5, 10, *edges)
    header = 20 + len(options)
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + header + record.length, record.ip_id, 0x4000, 64, 6, 0,
        inet_aton(record.src), inet_aton(record.dst),
    )  # fmt: skip
    tcp = struct.pack(
        "!HHIIBBHHH", record.sport, record.dport, record.seq, record.ack, header // 4 << 4, record.flags,
        record.window, 0, 0,
    )  # fmt: skip
    frame = b"\x02" * 12 + b"\x08\x00" + ip + tcp + options
    captured = (frame + bytes(min(record.length, snaplen)))[:snaplen]
    stamp = station.clock.read(record.at_ns)
    return struct.pack("<IIII", *divmod(stamp, 10**9), len(captured), len(frame) + record.length) + captured
