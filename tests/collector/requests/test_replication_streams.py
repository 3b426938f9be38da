"""Replicas of MySQL and PostgreSQL: what they ask before the log of changes are requests; the log is a stream."""

from pathlib import Path

import polars as pl
import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from tests.helpers.tls_captures import Message, Packet, Segments, in_the_clear, write_pcaps

OK = b"\0\0\0\2\0\0\0"
CAPABILITIES = b"\x05\xa2\x3f\0"  # as of version 4.1, no compression, no TLS


def packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


def request_and_answer(body: bytes) -> list[Message]:
    return [(True, packet(0, body)), (False, packet(1, OK))]


GREETING = packet(0, b"\x0a10.11.19-MariaDB\0\7\0\0\0abcdefgh\0\xfe\xf7-\2\0\xff\x81\x15" + b"\0" * 40)
LOGIN = packet(1, CAPABILITIES + b"\0\0\0\1\x2d" + b"\0" * 23 + b"replica\0\0")
BEFORE: list[Message] = [
    (False, GREETING),
    (True, LOGIN),
    (False, packet(2, OK)),
    *request_and_answer(b"\3SET @master_heartbeat_period= 1"),
    *request_and_answer(b"\3SET @slave_gtid_strict_mode=0"),
    *request_and_answer(b"\x15\2\0\0\0"),
]
CHANGES: list[Message] = [(False, packet(1 + number, b"\0" + b"change " * 20)) for number in range(12)]


def trace_of(folder: Path, packets: list[Packet]) -> Trace:
    captures = write_pcaps(folder, packets)
    analyse(host_sources([str(each) for each in captures]), str(folder / "trace"))
    return Trace(str(folder / "trace"))


def requests_shown(trace: Trace) -> list[tuple[str, bool]]:
    """Method of each exchange, and whether it is part of a stream."""
    exchanges = pl.DataFrame(trace.read("exchanges"))
    return exchanges.select(pl.col("method").cast(pl.String), "is_stream").rows()


@pytest.mark.parametrize("dump", [0x12, 0x1E], ids=["by place", "by transaction"])
def test_what_a_replica_asks_before_the_log_are_requests(tmp_path: Path, dump: int) -> None:
    said = [*BEFORE, (True, packet(0, bytes([dump]) + b"\4\0\0\0\0\0\2\0\0\0")), *CHANGES]
    trace = trace_of(tmp_path, in_the_clear(said))
    shown = requests_shown(trace)
    assert shown == [
        ("LOGIN", False),
        ("SET", False),
        ("SET", False),
        ("REGISTER REPLICA", False),
        ("BINLOG DUMP", True),
    ]
    [stream] = trace.read("streams").to_pylist()
    assert (stream["reason"], stream["evidence"]) == ("word", "BINLOG DUMP (mysql)")
    assert stream["to_client_count"] == len(CHANGES) - 1  # the first packet begins the answer


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


READY = message(b"Z", b"I")
PARAMETERS = b"\0\3\0\0user\0standby\0replication\0true\0\0"
STANDBY: list[Message] = [
    (True, (len(PARAMETERS) + 4).to_bytes(4, "big") + PARAMETERS),
    (False, message(b"R", bytes(4)) + READY),
    (True, message(b"Q", b"IDENTIFY_SYSTEM\0")),
    (False, message(b"C", b"IDENTIFY_SYSTEM\0") + READY),
]
LOG = message(b"d", b"w" + bytes([0, 0, 1, 0, 0, 0, 0, 0] * 2) + bytes([0, 2] + [9] * 6) + b"change" * 9)
REPORT = message(b"d", b"r" + bytes(24) + bytes([0, 2] + [9] * 6) + b"\0")
FOLLOWED: list[Message] = [(False, LOG), (True, REPORT), (False, LOG), (False, LOG), (True, REPORT), (True, REPORT)] * 3


@pytest.mark.parametrize("word", ["START_REPLICATION SLOT standby 0/3000000 TIMELINE 1", "LISTEN jobs"])
def test_a_statement_after_which_a_server_sends_when_it_wants(tmp_path: Path, word: str) -> None:
    goes_on: list[Message] = [(False, message(b"W", b"\0\0\0")), *FOLLOWED]
    notified: list[Message] = [(False, message(b"C", b"LISTEN\0") + READY), *[(False, message(b"A", b"jobs"))] * 9]
    said = [*STANDBY, (True, message(b"Q", word.encode() + b"\0")), *(notified if "LISTEN" in word else goes_on)]
    trace = trace_of(tmp_path, in_the_clear(said))
    verb = word.split(maxsplit=1)[0]
    requests = [method for method, is_stream in requests_shown(trace) if not is_stream]
    assert requests == ["STARTUP", "IDENTIFY_SYSTEM"]
    [stream] = trace.read("streams").to_pylist()
    assert (stream["reason"], stream["evidence"]) == ("word", f"{verb} (postgresql)")


def test_replication_that_was_begun_before_the_capture_is_no_requests(tmp_path: Path) -> None:
    segments = Segments()
    for from_client, data in FOLLOWED:
        segments.send(from_client, data)
    trace = trace_of(tmp_path, segments.packets)
    assert all(is_stream for _, is_stream in requests_shown(trace))
    [stream] = trace.read("streams").to_pylist()
    assert stream["evidence"] == "replication (postgresql)"
