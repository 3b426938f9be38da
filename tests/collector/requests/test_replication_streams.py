"""A replica of MySQL: what it asks before it reads the log of changes are requests; the log is a stream."""

from pathlib import Path

import polars as pl
import pytest

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from tests.helpers.tls_captures import Message, in_the_clear, write_pcaps

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


@pytest.mark.parametrize("dump", [0x12, 0x1E], ids=["by place", "by transaction"])
def test_what_a_replica_asks_before_the_log_are_requests(tmp_path: Path, dump: int) -> None:
    said = [*BEFORE, (True, packet(0, bytes([dump]) + b"\4\0\0\0\0\0\2\0\0\0")), *CHANGES]
    captures = write_pcaps(tmp_path, in_the_clear(said))
    analyse(host_sources([str(each) for each in captures]), str(tmp_path / "trace"))
    exchanges = pl.DataFrame(Trace(str(tmp_path / "trace")).read("exchanges"))
    shown = exchanges.select(pl.col("method").cast(pl.String), "is_stream").rows()
    assert shown == [
        ("LOGIN", False),
        ("SET", False),
        ("SET", False),
        ("REGISTER REPLICA", False),
        ("BINLOG DUMP", True),
    ]
    [stream] = Trace(str(tmp_path / "trace")).read("streams").to_pylist()
    assert (stream["reason"], stream["evidence"]) == ("word", "BINLOG DUMP (mysql)")
    assert stream["to_client_count"] == len(CHANGES) - 1  # the first packet begins the answer
