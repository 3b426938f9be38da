"""Mutations of captures, as accidents or attackers cause them. Each is a function of its random source.

A mutation takes the captures of several hosts and returns others; none of them keeps a file well formed on purpose.
"""

import gzip
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from benchmarks.fuzz.systems import Captures
from testkit.capture_records import Record, join, packet_places, split

Mutation = Callable[[Captures, Random], Captures]

SPITEFUL_BYTES = (0, 1, 0x0A, 0x0F, 0x1B, 0x45, 0x7F, 0x80, 0xFE, 0xFF)
SPITEFUL_WORDS = (0, 1, 2, 3, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
SPITEFUL_TEXTS = (
    b"caf\xe9",
    b"\x1b[31m\x1b]0;owned\x07",
    "\u202egpj.exe\u2066".encode(),
    b"nul\0inside",
    b"\xff\xfe\xed\xa0\x80",
    b"\r\nInjected: 1",
    b"a" * 5_000,
    b"<script>",
    b"..",
    b"a/b",
    b"a=b",
    b"",
    b"%n%s",
    "\U000e0001\ufeff".encode(),
    b"99999999999999999999999999",
    b"-1",
)
SPITEFUL_NUMBERS = (b"18446744073709551616", b"-9223372036854775809", b"9" * 40, b"1e999", b"0x10", b"", b"-1")
YEAR_S = 31_556_952
NRB_IPV4 = 1
HEADS = (b"HTTP/1.", b"User-Agent: ", b"X-Trans-Id: ", b"Content-Length: ", b"Host: ", b"GET ", b"PUT ", b"Transfer-")


def mutate(captures: Captures, random: Random) -> tuple[Captures, list[str]]:
    """The captures after one to three mutations, and what these are called."""
    names = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        mutation = random.choice(MUTATIONS)
        captures = mutation(captures, random)
        names.append(mutation.__name__)
    return captures, names


def flip(captures: Captures, random: Random) -> Captures:
    """Some bytes of a file are others."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(random.choice((1, 2, 8, 64))):
            at = random.randrange(len(changed))
            changed[at] = random.choice((changed[at] ^ 1 << random.randrange(8), random.choice(SPITEFUL_BYTES)))
        return bytes(changed)

    return _one_file(captures, random, change)


def cut(captures: Captures, random: Random) -> Captures:
    """A file ends too early, or begins too late."""

    def change(data: bytes) -> bytes:
        at = random.randrange(len(data) + 1)
        return data[at:] if random.random() < 0.2 else data[:at]

    return _one_file(captures, random, change)


def splice(captures: Captures, random: Random) -> Captures:
    """A stretch of one file stands in another, or twice, or is missing."""
    other = random.choice(list(captures.hosts.values()))

    def change(data: bytes) -> bytes:
        at, begin = random.randrange(len(data) + 1), random.randrange(len(other) + 1)
        stretch = other[begin : begin + random.choice((1, 4, 100, 5_000))]
        return data[:at] + stretch + data[at + random.choice((0, len(stretch))) :]

    return _one_file(captures, random, change)


def lengths(captures: Captures, random: Random) -> Captures:
    """A length of a record is wrong."""

    def change(record: Record) -> Record:
        at = random.choice((4, 8, 12, 20, 24, max(0, len(record.data) - 4)))
        return record.with_bytes(at, struct.pack(record.order + "I", random.choice(SPITEFUL_WORDS)))

    return _some_records(captures, random, change, packets_only=False)


def headers(captures: Captures, random: Random) -> Captures:
    """Fields of link, IP and TCP headers are wrong: lengths, ports, numbers, flags, options."""

    def change(record: Record) -> Record:
        packet = bytearray(record.packet)
        if not packet:
            return record
        for _ in range(random.choice((1, 1, 4))):
            at = random.randrange(min(len(packet), 80))
            width = random.choice((1, 2, 4))
            written = bytes(random.choice(SPITEFUL_BYTES) for _ in range(width))
            packet[at : at + width] = written[: len(packet[at : at + width])]
        return record.with_packet(bytes(packet))

    return _some_records(captures, random, change)


def texts(captures: Captures, random: Random) -> Captures:
    """Words of messages are no words: control characters, bytes that are no UTF-8, numbers beyond all bounds."""

    def change(record: Record) -> Record:
        packet = record.packet
        places = [packet.find(head) + len(head) for head in HEADS if head in packet]
        if not places:
            return record
        at = random.choice(places)
        text = random.choice((*SPITEFUL_TEXTS, *SPITEFUL_NUMBERS))[: len(packet) - at]
        return record.with_packet(packet[:at] + text + packet[at + len(text) :])

    return _some_records(captures, random, change, share=1.0)


def stamps(captures: Captures, random: Random) -> Captures:
    """Some packets' times are absurd: years off, at the ends of what a word holds."""
    shift = random.choice((YEAR_S, 60 * YEAR_S, -YEAR_S, -55 * YEAR_S))
    word = random.choice(SPITEFUL_WORDS)

    def change(record: Record) -> Record:
        first, second = record.stamp()
        if random.random() < 0.5:
            return record.with_stamp(word, second)
        return record.with_stamp(first + shift if record.stamp_at < 0 else first + (shift >> 2), second)

    return _some_records(captures, random, change)


def steps(captures: Captures, random: Random) -> Captures:
    """A clock is stepped, again and again."""
    period, size = random.choice((2, 5, 20, 100)), random.choice((1, 1_000, 5_000_000, YEAR_S * 30))
    count = 0

    def change(record: Record) -> Record:
        nonlocal count
        count += 1
        first, second = record.stamp()
        number = count // period if random.random() < 0.9 else random.randrange(100)
        return (
            record.with_stamp(first + size * number, second) if record.stamp_at < 0 else _ticks(record, size * number)
        )

    return _some_records(captures, random, change, share=1.0)


def jitter(captures: Captures, random: Random) -> Captures:
    """Each packet's time is another: all the same, reversed, or random."""
    kind = random.choice(("same", "random", "backwards"))
    width = random.choice((10, 1_000_000, 1 << 31))
    fixed = random.randrange(1 << 30)
    count = 0

    def change(record: Record) -> Record:
        nonlocal count
        count += 1
        first, _ = record.stamp()
        if kind == "same":
            return record.with_stamp(first, fixed)
        if kind == "random":
            return record.with_stamp(first, random.randrange(width))
        return record.with_stamp(first, 900_000_000 - 1_000 * count)

    return _some_records(captures, random, change, share=1.0)


def shuffle(captures: Captures, random: Random) -> Captures:
    """Packets stand in another order, or several times."""

    def change(records: list[Record]) -> list[Record]:
        places = packet_places(records)
        if not places:
            return records
        first = places[0]
        packets = [records[place] for place in places]
        if random.random() < 0.5:
            random.shuffle(packets)
        else:
            packets += random.choices(packets, k=random.choice((1, 10, 200)))
        return [*records[:first], *packets]

    return _one_files_records(captures, random, change)


def exchange_files(captures: Captures, random: Random) -> Captures:
    """A host has another host's capture, or an empty one, or one of other bytes."""
    hosts = dict(captures.hosts)
    other = random.choice((*hosts.values(), b"", b"\0" * 100, b"not a capture\n" * 9))
    hosts[random.choice(list(hosts))] = other
    return replace(captures, hosts=hosts)


def rename_hosts(captures: Captures, random: Random) -> Captures:
    """A host is called what no host should be."""
    names = ("caf\udce9", "live", "a b", "-x", "\x1b[31m", "\u202e", "ü" * 200, "x,y", "'", "ho\nst", "a:b", "..")
    old = random.choice(list(captures.hosts))
    new = random.choice(names)
    return replace(captures, hosts={new if host == old else host: data for host, data in captures.hosts.items()})


def options(captures: Captures, random: Random) -> Captures:
    """Options of blocks say what they should not: names, resolutions, offsets, comments; records of names are added."""

    def change(records: list[Record]) -> list[Record]:
        made = [_name_record(random), _interface(random), _comment(random)]
        at = random.randrange(1, len(records) + 1)
        if records[0].data[:4] == b"\n\r\r\n":
            return [*records[:at], random.choice(made), *records[at:]]
        return [_comment(random), _interface(random), *(_as_block(each) for each in records if each.is_packet), *made]

    return _one_files_records(captures, random, change)


def compress(captures: Captures, random: Random) -> Captures:
    """A file is compressed, and that damaged: cut, changed, followed by other bytes or a second member."""

    def change(data: bytes) -> bytes:
        packed = bytearray(gzip.compress(data, 1, mtime=0))
        kind = random.randrange(5)
        if kind == 0:
            packed = packed[: random.randrange(len(packed))]
        elif kind == 1:
            packed[random.randrange(len(packed))] ^= 1 << random.randrange(8)
        elif kind == 2:
            packed += random.randbytes(random.choice((1, 100)))
        elif kind == 3:
            packed += gzip.compress(data[len(data) // 2 :], 1, mtime=0)
        return bytes(packed)

    return _one_file(captures, random, change)


def side_files(captures: Captures, random: Random) -> Captures:
    """What stands beside the captures is damaged: the command that ran, the samples of hosts."""
    command = {"argv": ["x"], "host": "client", "begin_ns": 0, "end_ns": 1, "exit_status": 0}
    content = captures.beside.get("command.json") or json.dumps(command).encode()
    if random.random() < 0.5:
        content = content.replace(random.choice((b"0", b"1", b'"')), random.choice(SPITEFUL_NUMBERS), 1)
    else:
        content = content[: random.randrange(len(content))] + random.choice(SPITEFUL_TEXTS)
    return replace(captures, beside=captures.beside | {random.choice(("command.json", "samples.csv")): content})


MUTATIONS: Sequence[Mutation] = (
    flip, cut, splice, lengths, headers, texts, stamps, steps, jitter, shuffle, exchange_files, rename_hosts, options,
    compress, side_files,
)  # fmt: skip


def _ticks(record: Record, seconds: int) -> Record:
    first, second = record.stamp()
    ticks = ((first << 32 | second) + seconds * 1_000_000_000) & (1 << 64) - 1
    return record.with_stamp(ticks >> 32, ticks)


def _one_file(captures: Captures, random: Random, change: Callable[[bytes], bytes]) -> Captures:
    host = random.choice(list(captures.hosts))
    data = captures.hosts[host]
    return replace(captures, hosts=captures.hosts | {host: change(data)}) if data else captures


def _one_files_records(captures: Captures, random: Random, change: Callable[[list[Record]], list[Record]]) -> Captures:
    return _one_file(captures, random, lambda data: join(change(split(data))))


def _some_records(
    captures: Captures,
    random: Random,
    change: Callable[[Record], Record],
    share: float | None = None,
    *,
    packets_only: bool = True,
) -> Captures:
    chosen = random.choice((0.0, 0.01, 0.1, 1.0)) if share is None else share

    def of_file(records: list[Record]) -> list[Record]:
        places = packet_places(records) if packets_only else list(range(len(records)))
        some = {place for place in places if random.random() < chosen} or set(random.choices(places or [0], k=1))
        return [change(one) if place in some and (one.is_packet or not packets_only) else one
                for place, one in enumerate(records)]  # fmt: skip

    return _one_files_records(captures, random, of_file)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value) & 0xFFFF) + value + bytes(-len(value) % 4)


def _made_block(kind: int, body: bytes) -> Record:
    length = len(body) + 12
    return Record(struct.pack("<II", kind, length) + body + struct.pack("<I", length))


def _as_block(record: Record) -> Record:
    packet = record.packet
    first, second = record.stamp()
    ticks = first * 1_000_000_000 + second
    fixed = struct.pack("<IIIII", 0, ticks >> 32 & 0xFFFFFFFF, ticks & 0xFFFFFFFF, len(packet), len(packet))
    return _made_block(6, fixed + packet + bytes(-len(packet) % 4))


def _interface(random: Random) -> Record:
    text = random.choice(SPITEFUL_TEXTS)
    chosen = [
        (2, text),
        (3, text),
        (9, bytes([random.choice((0, 6, 9, 18, 19, 20, 63, 64, 0x80, 0x9F, 0xBF, 0xC0, 0xFF))])),
        (14, struct.pack("<q", random.choice((0, 1, 1 << 62, -(1 << 63), (1 << 63) - 1, -1_700_000_000)))),
        (8, random.choice((b"", b"\xff" * 8))),
        (1, text),
    ]
    parts = random.sample(chosen, random.randrange(len(chosen)))
    return _made_block(1, struct.pack("<HHI", random.choice((1, 1, 1, 101, 113, 0xFFFF)), 0, 0)
                       + b"".join(_option(*part) for part in parts))  # fmt: skip


def _comment(random: Random) -> Record:
    text = random.choice(SPITEFUL_TEXTS)
    said = random.choice((text, b"twintap.host=" + text, b"twintap.since=" + random.choice(SPITEFUL_NUMBERS)))
    body = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _option(1, said) + _option(4, text)
    return _made_block(0x0A0D0D0A, body)


def _name_record(random: Random) -> Record:
    address = bytes([10, random.randrange(256), 0, random.randrange(5)])
    value = address + random.choice(SPITEFUL_TEXTS) + b"\0"
    return _made_block(4, _option(NRB_IPV4, value) + _option(0, b"") + _option(2, random.choice(SPITEFUL_TEXTS)))
