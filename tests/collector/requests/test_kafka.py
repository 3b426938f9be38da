"""Kafka: requests by their numbers, however many are under way; what waits for news is a stream."""

import struct
from pathlib import Path

import polars as pl

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from tests.helpers.tls_captures import Packet, Segments, write_pcaps

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18


def with_length(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def request(kind: int, version: int, number: int, body: bytes = b"") -> bytes:
    client = b"producer-1"
    return with_length(struct.pack("!HHIH", kind, version, number, len(client)) + client + body)


def produce(number: int, acks: int = 0xFFFF, topic: bytes = b"orders") -> bytes:
    """Of version 9: no tagged fields, no transaction; a topic."""
    body = b"\0\0" + struct.pack("!HI", acks, 30_000) + b"\2" + bytes([len(topic) + 1]) + topic + b"record " * 20
    return request(PRODUCE, 9, number, body)


def answer(number: int, size: int = 40) -> bytes:
    return with_length(struct.pack("!I", number) + bytes(size))


SESSION = [
    (True, request(API_VERSIONS, 4, 0, b"\0\x0capache-kafka-java\x064.0.0\0")),
    (False, answer(0, 400)),
    (True, request(METADATA, 12, 1, b"\0\0")),
    (False, answer(1, 200)),
    (True, produce(2)),
    (True, produce(3, topic=b"payments")),
    (True, produce(4)),
    (False, answer(2)),
    (False, answer(3)),
    (True, request(FETCH, 12, 5, bytes(60))),
    (False, answer(4)),
    (False, answer(5, 9000)),
    (True, produce(6, acks=0)),
    (True, request(METADATA, 12, 7, b"\0\0")),
    (False, answer(7, 200)),
]


def packets_of(said: list[tuple[bool, bytes]], is_whole: bool = True) -> list[Packet]:
    segments = Segments()
    if is_whole:
        segments.open()
    for from_client, data in said:
        segments.send(from_client, data)
    segments.close()
    return segments.packets


def trace_of(folder: Path, packets: list[Packet]) -> Trace:
    captures = write_pcaps(folder, packets)
    analyse(host_sources([str(each) for each in captures]), str(folder / "trace"))
    return Trace(str(folder / "trace"))


def exchanges_of(trace: Trace, is_stream: bool) -> list[tuple[str, str, bool]]:
    """Method, target, and whether it is complete, of each exchange that is a stream's or is none."""
    exchanges = pl.DataFrame(trace.read("exchanges")).filter(pl.col("is_stream") == is_stream)
    return exchanges.select(pl.col("method", "target").cast(pl.String), "complete").rows()


def protocol_of_connection(trace: Trace) -> str:
    [connection] = trace.read("connections", ["protocol"]).to_pylist()
    return connection["protocol"]


REQUESTS = [
    ("ApiVersions", "", True),
    ("Metadata", "", True),
    ("Produce", "orders", True),
    ("Produce", "payments", True),
    ("Produce", "orders", True),
    ("Metadata", "", True),
]


def test_each_request_has_its_own_answer_and_name(tmp_path: Path) -> None:
    packets = packets_of(SESSION)
    trace = trace_of(tmp_path, packets)
    assert protocol_of_connection(trace) == "kafka"
    assert exchanges_of(trace, is_stream=False) == REQUESTS
    exchanges = pl.DataFrame(trace.read("exchanges")).filter(~pl.col("is_stream"))
    assert exchanges["protocol"].cast(pl.String).unique().to_list() == ["kafka"]
    assert exchanges["service"].cast(pl.String).unique().to_list() == ["kafka"]
    produced = exchanges.filter(pl.col("method").cast(pl.String) == "Produce")
    lasted = produced.select(pl.col("response_last_sent_trace_ns") - pl.col("request_first_sent_trace_ns")).to_series()
    step_ns = packets[1][0] - packets[0][0]
    assert [round(each / step_ns) for each in lasted] == [3, 3, 4], "the third is answered behind a Fetch"


def test_what_waits_for_news_and_what_is_not_answered_are_streams(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, packets_of(SESSION))
    assert [method for method, _, _ in exchanges_of(trace, is_stream=True)] == ["Fetch", "Produce"]
    [stream] = trace.read("streams").to_pylist()
    assert (stream["reason"], stream["protocol"], stream["evidence"]) == ("word", "kafka", "Fetch (kafka)")


def test_a_capture_that_begins_amid_a_pipeline_pairs_no_answer_with_another_request(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, packets_of(SESSION[6:], is_whole=False))
    assert protocol_of_connection(trace) == "kafka"
    assert exchanges_of(trace, is_stream=False) == [("Produce", "orders", True), ("Metadata", "", True)]


def test_one_capture_alone_shows_the_same(tmp_path: Path) -> None:
    captures = write_pcaps(tmp_path, packets_of(SESSION))
    analyse(host_sources([str(captures[0])]), str(tmp_path / "alone"))
    assert exchanges_of(Trace(str(tmp_path / "alone")), is_stream=False) == REQUESTS
