"""ZooKeeper: operations with their paths and errors; pings and notifications are no requests."""

import struct
from pathlib import Path

import polars as pl

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from tests.helpers.tls_captures import Segments, write_pcaps

NODE_EXISTS, NO_NODE = -110, -101
CREATE, GET_DATA, PING, CLOSE = 1, 4, 11, -11


def with_length(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def request(number: int, kind: int, body: bytes = b"") -> bytes:
    return with_length(struct.pack("!ii", number, kind) + body)


def answer(number: int, error: int = 0, body: bytes = b"") -> bytes:
    return with_length(struct.pack("!iqi", number, 1 << 32, error) + body)


KEY = with_length(b"k" * 16)
SESSION = [
    (True, with_length(struct.pack("!iqiq", 0, 0, 10_000, 0) + KEY + b"\0")),
    (False, with_length(struct.pack("!iiq", 0, 10_000, 7) + KEY + b"\0")),
    (True, request(1, CREATE, with_length(b"/app") + with_length(b"data"))),
    (True, request(2, GET_DATA, with_length(b"/app/config") + b"\1")),
    (False, answer(-1, 0, b"\0\0\0\3\0\0\0\3" + with_length(b"/app"))),
    (False, answer(1, NODE_EXISTS)),
    (False, answer(2, NO_NODE)),
    (True, request(-2, PING)),
    (False, answer(-2)),
    (False, answer(-1, 0, b"\0\0\0\3\0\0\0\3" + with_length(b"/app"))),
    (True, request(3, CLOSE)),
    (False, answer(3)),
]


def test_operations_have_their_answers_and_nothing_else_is_a_request(tmp_path: Path) -> None:
    segments = Segments()
    segments.open()
    for from_client, data in SESSION:
        segments.send(from_client, data)
    segments.close()
    captures = write_pcaps(tmp_path, segments.packets)
    analyse(host_sources([str(each) for each in captures]), str(tmp_path / "trace"))
    trace = Trace(str(tmp_path / "trace"))
    exchanges = pl.DataFrame(trace.read("exchanges"))
    texts = ("method", "target", "result", "protocol", "service")
    assert exchanges.select(pl.col(texts).cast(pl.String)).rows() == [
        ("connect", "", None, "zookeeper", "zookeeper"),
        ("create", "/app", "NODEEXISTS", "zookeeper", "zookeeper"),
        ("getData", "/app/config", "NONODE", "zookeeper", "zookeeper"),
        ("closeSession", "", None, "zookeeper", "zookeeper"),
    ]
    assert not exchanges["is_stream"].any()
    assert trace.read("connections", ["protocol"])["protocol"].to_pylist() == ["zookeeper"]
    lasted = exchanges.select(pl.col("response_last_sent_trace_ns") - pl.col("request_first_sent_trace_ns")).to_series()
    step_ns = segments.packets[1][0] - segments.packets[0][0]
    assert [round(each / step_ns) for each in lasted] == [1, 3, 3, 1]
    assert trace.read("streams").num_rows == 0
