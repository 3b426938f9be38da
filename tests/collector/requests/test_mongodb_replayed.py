"""A connection of MongoDB, made by the book, from captures to requests and streams."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from click.testing import CliRunner

from collector.commands import replay
from collector.trace.reading import Trace
from tests.helpers import tls_captures
from tests.helpers.mongodb_messages import COMPRESSED, EXHAUST_ALLOWED, MORE_TO_COME, Value, message, msg, query, reply

CLIENT, SERVER = True, False
OK: dict[str, Value] = {"ok": 1.0}
Said = tuple[bool, bytes]


def trace_of(folder: Path, said: Sequence[Said], snaplen: int = 1 << 18, from_packet: int = 0) -> Trace:
    packets = tls_captures.in_the_clear(said)[from_packet:]
    files = tls_captures.write_pcaps(folder, packets, snaplen)
    done = CliRunner().invoke(replay.command, ["-o", str(folder / "trace"), *map(str, files)])
    assert done.exit_code == 0, done.output
    return Trace(str(folder / "trace"))


def requests(trace: Trace) -> list[tuple[str | None, ...]]:
    """Names, targets, results and classes of requests, in their order; and that all are MongoDB's."""
    columns = ["method", "target", "result", "status_class", "protocol", "is_stream", "request_first_sent_trace_ns"]
    rows = pl.DataFrame(trace.read("exchanges", columns)).with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert rows["protocol"].unique().to_list() == ["mongodb"]
    rows = rows.filter(~pl.col("is_stream")).sort("request_first_sent_trace_ns")
    return rows.select("method", "target", "result", "status_class").rows()


def streams(trace: Trace) -> list[tuple[str, str, str]]:
    rows = pl.DataFrame(trace.read("streams", ["reason", "evidence", "protocol"]))
    return rows.with_columns(pl.all().cast(pl.String)).rows()


def find(number: int, collection: str = "orders", **more: Value) -> Said:
    return CLIENT, msg({"find": collection, "filter": {"a": "x" * 3_000}} | more | {"$db": "shop"}, number)


def get_more(number: int, cursor: int, **more: Value) -> Said:
    return CLIENT, msg({"getMore": cursor, "collection": "log"} | more | {"$db": "shop"}, number)


def batch(number: int, answers: int, name: str, cursor: int, *documents: Value) -> Said:
    return SERVER, msg({"cursor": {name: list(documents), "id": cursor, "ns": "shop.log"}} | OK, number, answers)


HANDSHAKE = [
    (CLIENT, query({"isMaster": 1, "client": {"driver": {"name": "x"}}}, 7)),
    (SERVER, reply({"ismaster": True, "maxWireVersion": 21} | OK, 101, 7)),
]
AT_ONCE = [
    find(8),
    (CLIENT, msg({"insert": "orders", "$db": "shop"}, 9, documents=[{"_id": 1, "text": "y" * 5_000}])),
    (CLIENT, message(COMPRESSED, b"\xdd\7\0\0\x90\0\0\0\1" + b"packed", 10)),
    (SERVER, message(COMPRESSED, b"\xdd\7\0\0\x90\0\0\0\1" + b"packed", 102, 10)),
    (SERVER, msg({"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "x"}]} | OK, 103, 9)),
    (SERVER, msg({"ok": 0.0, "errmsg": "x", "code": 50, "codeName": "MaxTimeMSExpired"}, 104, 8)),
]


def test_requests_are_paired_by_their_numbers_and_named(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, [*HANDSHAKE, *AT_ONCE])
    assert requests(trace) == [
        ("isMaster", "admin", None, "ok"),
        ("find", "shop.orders", "50 MaxTimeMSExpired", "refused"),
        ("insert", "shop.orders", "11000 DuplicateKey", "client_error"),
        ("compressed", "", None, "unknown"),
    ]
    assert streams(trace) == []
    exchanges = pl.DataFrame(trace.read("exchanges", ["complete", "request_bytes", "response_bytes"]))
    assert exchanges["complete"].all()
    said = [len(data) for _, data in (*HANDSHAKE, *AT_ONCE)]
    assert exchanges["request_bytes"].to_list() == [said[0], said[2], said[3], said[4]]
    assert exchanges["response_bytes"].to_list() == [said[1], said[7], said[6], said[5]]


def test_a_capture_that_begins_within_a_connection_goes_on_at_a_message(tmp_path: Path) -> None:
    # Behind the handshake of TCP, that of MongoDB, and the first packet of the command with a long filter.
    trace = trace_of(tmp_path, [*HANDSHAKE, *AT_ONCE, find(11), (SERVER, msg({"n": 1} | OK, 105, 11))], from_packet=6)
    assert requests(trace)[-1] == ("find", "shop.orders", None, "ok")
    assert {row[0] for row in requests(trace)} <= {"find", "insert", "compressed"}


def test_packets_that_are_cut_show_as_much_as_there_is(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, [*HANDSHAKE, find(8), (SERVER, msg({"n": 1} | OK, 102, 8))], snaplen=54 + 60)
    assert requests(trace)[1:] == [("find", "orders", None, "ok")]


def test_what_waits_for_news_or_wants_no_answer_is_a_stream(tmp_path: Path) -> None:
    watch = {"aggregate": "log", "pipeline": [{"$changeStream": {}}], "cursor": {}, "$db": "shop"}
    said = [
        *HANDSHAKE,
        find(8, "log", tailable=True, awaitData=True),
        batch(102, 8, "firstBatch", 5 << 40, {"a": 1}),
        get_more(9, 5 << 40),  # its cursor waits
        batch(103, 9, "nextBatch", 5 << 40, {"a": 2}),
        find(10, "log"),
        batch(104, 10, "firstBatch", 6, {"a": 1}),
        get_more(11, 6),  # a usual cursor
        batch(105, 11, "nextBatch", 0, {"a": 2}),
        (CLIENT, msg(watch, 12)),
        batch(106, 12, "firstBatch", 7),
        get_more(13, 7),  # a change stream
        batch(107, 13, "nextBatch", 7),
        get_more(14, 8, maxTimeMS=500),  # only cursors that wait may have it
        batch(108, 14, "nextBatch", 8, {"a": 3}),
        (CLIENT, msg({"insert": "log", "$db": "shop"}, 15, flags=MORE_TO_COME, documents=[{"a": 1}])),
        (CLIENT, msg({"ping": 1, "$db": "shop"}, 16)),
        (SERVER, msg(OK, 109, 16)),
    ]
    trace = trace_of(tmp_path, said)
    assert [row[:2] for row in requests(trace)[1:]] == [
        ("find", "shop.log"),
        ("find", "shop.log"),
        ("getMore", "shop.log"),
        ("aggregate", "shop.log"),
        ("ping", "shop"),
    ]
    assert streams(trace) == [("word", "getMore (mongodb)", "mongodb")]
    exchanges = pl.DataFrame(trace.read("exchanges", ["method", "is_stream"])).filter("is_stream")
    assert exchanges["method"].cast(pl.String).to_list() == ["getMore", "getMore", "getMore", "insert"]


def test_a_compressed_command_that_wants_no_answer_is_not_given_up(tmp_path: Path) -> None:
    packed = b"\xdd\7\0\0\x90\0\0\0\1packed"
    said = [
        *HANDSHAKE,
        (CLIENT, message(COMPRESSED, packed, 8)),
        (CLIENT, message(COMPRESSED, packed, 9)),
        (SERVER, message(COMPRESSED, packed, 102, 9)),
    ]
    trace = trace_of(tmp_path, said)
    assert [row[0] for row in requests(trace)] == ["isMaster", "compressed"]
    assert streams(trace) == [("word", "compressed (mongodb)", "mongodb")]


def test_a_hello_that_is_answered_again_and_again_is_a_stream(tmp_path: Path) -> None:
    asked = {"hello": 1, "topologyVersion": {"counter": 1 << 40}, "maxAwaitTimeMS": 10_000, "$db": "admin"}
    said = [
        *HANDSHAKE,
        (CLIENT, msg(asked, 8, flags=EXHAUST_ALLOWED)),
        *((SERVER, msg(OK, 102 + n, 101 + n if n else 8, MORE_TO_COME)) for n in range(6)),
    ]
    trace = trace_of(tmp_path, said)
    assert [row[0] for row in requests(trace)] == ["isMaster"]
    assert streams(trace) == [("word", "hello (mongodb)", "mongodb")]
    row = pl.DataFrame(trace.read("streams", ["to_client_count", "to_server_count"])).row(0)
    assert row == (6, 1)
