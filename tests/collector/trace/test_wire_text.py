"""Bytes from the wire become text that is valid, safe to show, and as different as the bytes were."""

import io
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.reporting.report import build_report
from collector.reporting.text import show
from collector.trace.reading import Trace
from collector.trace.wire_text import string_array_from_wire, text_from_wire

ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
CASES = {
    "plain": (b"GET /a?b=%20c", "GET /a?b=%20c"),
    "a backslash by itself stays": (rb"a\b", r"a\b"),
    "UTF-8 is shown": ("/é/日本".encode(), "/é/日本"),
    "Latin-1": (b"caf\xe9", r"caf\xe9"),
    "what looks like an escape is another text": (rb"caf\xe9", r"caf\\xe9"),
    "an escape that was sent as text is another text": (rb"caf\xe9" + b"\xe9", r"caf\\xe9\xe9"),
    "terminal control": (b"\x1b[31mred\x07", r"\x1b[31mred\x07"),
    "NUL": (b"a\x00b", r"a\x00b"),
    "C1 control": ("a\x9bb".encode(), r"a\xc2\x9bb"),
    "right to left": ("a\u202eb".encode(), r"a\xe2\x80\xaeb"),
    "cut in a character": ("é".encode()[:1], r"\xc3"),
    "a lone surrogate": (b"\xed\xa0\x80", r"\xed\xa0\x80"),
}


@pytest.mark.parametrize(("data", "shown"), CASES.values(), ids=CASES)
def test_bytes_as_text(data: bytes, shown: str) -> None:
    assert text_from_wire(data) == shown


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_every_text_is_valid_and_different_bytes_stay_different(texts: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    array = string_array_from_wire(offsets, np.frombuffer(b"".join(texts), np.uint8))
    array.validate(full=True)
    assert len(set(array.to_pylist())) == len(set(texts))
    assert all(word.isprintable() for word in array.to_pylist())


def request(line: bytes, agent: bytes, trans_id: bytes) -> bytes:
    return b"GET %s HTTP/1.1\r\nHost: a\r\nUser-Agent: %s\r\nX-Trans-Id: %s\r\n\r\n" % (line, agent, trans_id)


@pytest.mark.parametrize(
    ("where", "end", "shown"),
    [
        ("target", b"\xe9", r"\xe9"),  # control characters in a target are no HTTP
        ("user_agent", b"\xe9\x1b[2J\xff", r"\xe9\x1b[2J\xff"),
        ("transaction_id", b"\xe9\x1b[2J\xff", r"\xe9\x1b[2J\xff"),
    ],
)
def test_a_byte_that_is_no_text_is_analysed_and_shown(where: str, end: bytes, shown: str, tmp_path: Path) -> None:
    words = {"target": b"/a", "user_agent": b"curl", "transaction_id": b"tx1"}
    words[where] += end
    captures = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    for late_s, capture in zip((0, 1e-5), captures, strict=True):
        write_capture(capture, request(*words.values()), late_s)
    url = str(tmp_path / "trace")
    analyse(host_sources([str(capture) for capture in captures]), url)
    for name in ("messages", "exchanges"):
        table = Trace(url).read(name)
        for column in (column for column in table.columns if pa.types.is_string(column.type)):
            column.validate(full=True)
    (exchange,) = pl.DataFrame(Trace(url).read("exchanges")).to_dicts()
    (message,) = {row[where] for row in Trace(url).read("messages").to_pylist() if row["method"]}
    assert message.endswith(shown)
    assert where == "user_agent" or exchange[where] == message
    screen = io.StringIO()
    show(build_report(url), Console(file=screen, width=100))
    assert "\x1b" not in screen.getvalue()


def write_capture(path: Path, asked: bytes, late_s: float) -> None:
    """One connection with one request and its answer: sends are seen so late, and receptions so early."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    there = {"src": "10.0.0.1", "dst": "10.0.0.2"}, {"sport": 40000, "dport": 8080}
    back = {"src": "10.0.0.2", "dst": "10.0.0.1"}, {"sport": 8080, "dport": 40000}
    steps = [
        (there, {"flags": "S", "seq": 0}, b""),
        (back, {"flags": "SA", "seq": 0, "ack": 1}, b""),
        (there, {"flags": "PA", "seq": 1, "ack": 1}, asked),
        (back, {"flags": "PA", "seq": 1, "ack": 1 + len(asked)}, answer),
        (there, {"flags": "A", "seq": 1 + len(asked), "ack": 1 + len(answer)}, b""),
    ]
    packets = []
    for number, ((addresses, ports), fields, payload) in enumerate(steps):
        packet = ETHERNET / IP(**addresses) / TCP(**ports, **fields) / payload
        packet.time = 1_700_000_000 + number / 1000 + (late_s if addresses is there[0] else -late_s)
        packets.append(packet)
    wrpcap(str(path), packets)
