"""HTTP heads in packets: those that tshark finds, with the same fields; and what is reported of a head that is cut.

Each is kept as an excerpt when its packet is decoded, and read from that."""

import shutil
import subprocess
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from collector import _core
from collector.capture_files.readers import open_capture
from collector.capture_files.records import HEAD_COLUMNS, HEAD_STRINGS, HeadFlag, HeadKind, by_name
from collector.decode.captures import decode
from collector.decode.host_capture import HostSource
from collector.hops.matching import match
from collector.trace.wire_text import head_batch
from testkit import capture_files as files

HEADERS = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2")

PUT = (
    b"PUT /v1/AUTH_test/c/na%20me?format=json HTTP/1.1\r\nHost: 10.0.0.2:8080\r\nUser-Agent: swift/4\r\n"
    b"X-Trans-Id: tx0001\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
)
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nX-Trans-Id: tx0001\r\nConnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
TLS = bytes([0x16, 3, 1, 0, 4, 1, 0, 0, 0])  # a record with the begin of a hello
PAYLOADS = [
    PUT,
    PUT + b"abc",
    GET,
    GET + GET,
    CONTINUE + CREATED,
    CREATED,
    CHUNKED,
    b"\x16\x03\x01 TLS",
    b"",
    b"GETTING",
]


def heads(path: Path, id_headers: list[str] | None = None) -> list[dict[str, object]]:
    """Every head of a capture as a dict, its strings as text."""
    rows: list[dict[str, object]] = []
    with open_capture(path, id_headers) as reader:
        for batch in reader.batches():
            found = _core.read_messages(batch.excerpts)
            frames = batch.excerpts["frame"][found["excerpt_row"]]
            named = head_batch(by_name(found)).select([*HEAD_COLUMNS, *HEAD_STRINGS]).to_pylist()
            rows += [{"frame": frame, **head} for frame, head in zip(frames.tolist(), named, strict=True)]
    return rows


@pytest.fixture
def write(tmp_path: Path):
    def write_file(payloads: list[bytes], snaplen: int = 262_144) -> Path:
        segments = [TCP(sport=40000 + n, dport=8080, flags="PA") / payload for n, payload in enumerate(payloads)]
        frames = [(0, bytes(HEADERS / segment)) for segment in segments]
        path = tmp_path / "host.pcap"
        path.write_bytes(files.pcap(frames, snaplen=snaplen))
        return path

    return write_file


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed: apt install tshark")
def test_heads_are_those_that_tshark_finds(write):
    path = write(PAYLOADS)
    fields = [
        "frame.number",
        "http.request.method",
        "http.request.uri",
        "http.response.code",
        "http.user_agent",
    ]
    argv = ["tshark", "-n", "-r", str(path), "-T", "fields", "-Y", "http", "-o", "tcp.desegment_tcp_streams:FALSE"]
    argv += [part for field in fields for part in ("-e", field)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for head in heads(path):
        if head["head_kind"] == HeadKind.TLS_RECORD:
            continue
        values = [head["method"], head["target"], head["status"] or "", head["user_agent"]]
        row = found.setdefault(str(head["frame"]), [""] * 4)
        for at, value in enumerate(values):
            row[at] = ",".join(text for text in (row[at], str(value)) if text)
    assert [[frame, *values] for frame, values in found.items()] == [
        line.split("\t") for line in done.stdout.rstrip("\n").split("\n")
    ]
    assert len(found) == 7


def test_fields_of_a_request(write):
    [head] = heads(write([PUT]))
    assert head == {
        "frame": 1, "payload_offset": 0, "head_kind": HeadKind.REQUEST, "head_flags": HeadFlag.EXPECT_CONTINUE,
        "status": 0, "content_length": 3, "head_len": len(PUT), "range_first": -1, "range_last": -1,
        "result_code": -1, "frame_kind": 0, "stream_id": -1, "method": "PUT",
        "target": "/v1/AUTH_test/c/na%20me?format=json", "transaction_id": "tx0001", "user_agent": "swift/4",
        "client_span_id": "", "authority": "",
    }  # fmt: skip


def test_the_trace_and_the_span_that_asks(write):
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    [head] = heads(write([f"GET /x HTTP/1.1\r\ntraceparent: 00-{trace}-{span}-01\r\n\r\n".encode()]))
    assert (head["transaction_id"], head["client_span_id"]) == (trace, span)


def test_several_heads_in_one_packet(write):
    found = heads(write([GET + GET, CONTINUE + CREATED]))
    assert [(head["frame"], head["payload_offset"], head["status"]) for head in found] == [
        (1, 0, 0), (1, len(GET), 0), (2, 0, 100), (2, len(CONTINUE), 201)
    ]  # fmt: skip
    assert [head["head_flags"] for head in found] == [0, 0, 0, HeadFlag.CONNECTION_CLOSE]


def test_a_cut_head_says_so_and_gives_whole_values_only(write):
    [head] = heads(write([PUT], snaplen=152))
    assert (head["head_flags"], head["head_len"]) == (HeadFlag.CUT, 0)
    assert (head["method"], head["target"]) == ("PUT", "/v1/AUTH_test/c/na%20me?format=json")
    assert (head["user_agent"], head["transaction_id"]) == ("swift/4", "")
    [head] = heads(write([PUT], snaplen=14 + 40 + 20))
    assert head["target"] == "/v1/AUTH_test/c/"


def test_chunked_is_reported(write):
    [head] = heads(write([CHUNKED]))
    assert (head["head_flags"], head["content_length"]) == (HeadFlag.CHUNKED, -1)


def test_padding_behind_the_ip_packet_is_no_payload(tmp_path):
    stamps = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]
    for options in ([], stamps):
        frame = bytes(HEADERS / TCP(dport=8080, flags="A", options=options)) + GET
        path = tmp_path / "host.pcap"
        path.write_bytes(files.pcap([(0, frame)]))
        assert heads(path) == []


def test_which_headers_hold_an_id_is_a_choice(write):
    path = write([b"GET / HTTP/1.1\r\nX-Trans-Id: tx1\r\nX-Correlation-Id: c1\r\n\r\n"])
    cases = (None, "tx1"), (["x-correlation-id", "x-trans-id"], "c1"), (["X-TRANS-ID"], "tx1"), ([], "")
    assert [heads(path, names)[0]["transaction_id"] for names, _ in cases] == [expected for _, expected in cases]


def test_heads_belong_to_the_connections_of_their_packets(write):
    matched = match(decode([HostSource("host", (write([TLS, GET + GET, b"GETTING", GET]),))]))
    connection = {event["frame"]: event["connection_id"] for event in matched.events.to_pylist()}
    rows = matched.messages.select(["frame", "connection_id", "stream_offset"]).to_pylist()
    assert [row["frame"] for row in rows] == [1, 2, 2, 4]
    assert [row["connection_id"] for row in rows] == [connection[row["frame"]] for row in rows]
    assert rows[2]["stream_offset"] - rows[1]["stream_offset"] == len(GET)
