r"""Names that captures, files and hosts have: bytes that are no text and control characters are escapes everywhere.

Interfaces, hosts and comments of pcapng, names of Name Resolution Blocks, names of files, words of commands. Held of
every string column of every table that is made of packets, of the terminal, the JSON report and of errors.
"""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from scapy.layers.inet import IP, TCP

from collector.commands.replay import command as replay
from collector.commands.report import command as report
from collector.decode.sources import write_command
from collector.trace.model import CommandInfo
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from testkit.capture_files import enhanced_packet, interface, names, section
from tests.collector.trace.test_wire_text import ETHERNET, request
from tracer.errors import InputError
from tracer.plain_text import plain

HOSTILE = {
    "no UTF-8": (b"caf\xe9", r"caf\xe9"),
    "terminal control": (b"a\x1b[31m\x07", r"a\x1b[31m\x07"),
    "right to left": ("a\u202egpj".encode(), r"a\xe2\x80\xaegpj"),
    "a line end": (b"a\r\nb: c", r"a\x0d\x0ab: c"),
    "a C1 control": ("a\x9b2J".encode(), r"a\xc2\x9b2J"),
    "a private character": ("a\U000f0000".encode(), r"a\xf3\xb0\x80\x80"),
}


def packets(late_ns: int) -> list[tuple[int, bytes]]:
    """A connection with a request, as (ns, bytes); sends are seen so late, and receptions so early."""
    ask, answer = request(b"/a", b"curl\xff", b"tx\x1b"), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    steps = [(True, "S", 0, 0, b""), (False, "SA", 0, 1, b""), (True, "PA", 1, 1, ask)]
    steps += [(False, "PA", 1, 1 + len(ask), answer), (True, "FA", 1 + len(ask), 1 + len(answer), b"")]
    made = []
    for number, (out, flags, seq, ack, payload) in enumerate(steps):
        ends = ("10.0.0.1", 40_000, "10.0.0.2", 8080) if out else ("10.0.0.2", 8080, "10.0.0.1", 40_000)
        segment = IP(src=ends[0], dst=ends[2]) / TCP(sport=ends[1], dport=ends[3], flags=flags, seq=seq, ack=ack)
        made.append(
            (
                1_790_000_000 * 10**9 + number * 10**6 + (late_ns if out else -late_ns),
                bytes(ETHERNET / segment / payload),
            )
        )
    return made


def capture(text: bytes, late_ns: int = 0) -> bytes:
    """A pcapng whose every text is this."""
    head = section(pairs=[(1, b"twintap.host=" + text), (1, text), (4, text)])
    described = interface(pairs=[(2, text), (3, text), (9, b"\x09")])
    named = names([(b"\x0a\x00\x00\x01", ["NAME"])]).replace(b"NAME", text[:4].ljust(4, b"\x1b"))
    return head + described + named + b"".join(enhanced_packet(ns, data) for ns, data in packets(late_ns))


def string_columns(trace: str) -> list[tuple[str, pa.ChunkedArray]]:
    found = []
    for name in TABLES:
        table = Trace(trace).read(name)
        table.validate(full=True)
        for column in table.column_names:
            kind = table[column].type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                found.append((f"{name}.{column}", table[column]))
    return found


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_escapes_wherever_they_come_out(text: bytes, shown: str, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "one.pcapng").write_bytes(capture(text))
    other = tmp_path / "captures" / os.fsdecode(text + b"2.pcapng")
    other.write_bytes(capture(text, 1_000).replace(b"twintap.host=", b"twintap.nost="))
    argv = (os.fsdecode(text), "-K")
    write_command(tmp_path / "captures", CommandInfo(argv, "x", 1_790_000_000 * 10**9, 1_790_000_001 * 10**9, 0))
    trace = str(tmp_path / "trace")
    said = CliRunner().invoke(replay, ["--quiet", "-o", trace, str(tmp_path / "captures")], catch_exceptions=False)
    assert said.exit_code == 0
    assert all(line.isprintable() for line in said.output.split("\n"))
    columns = string_columns(trace)
    texts = {value for _, column in columns for value in column.unique().to_pylist() if value is not None}
    assert all(value.isprintable() for value in texts)
    assert {shown, f"{shown}2", f"{shown}/{shown}"} <= texts
    assert len({name for name, column in columns if column.null_count < len(column)}) >= 25
    info = Trace(trace).info()
    assert info.command is not None
    assert info.command.argv == (shown, "-K")
    printed = CliRunner().invoke(report, ["--json", trace], catch_exceptions=False)
    json.loads(printed.output)
    assert all(line.isprintable() for line in printed.output.split("\n"))


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_an_error_names_a_file_on_one_line(text: bytes, shown: str) -> None:
    error = InputError(f"{os.fsdecode(text)} is empty", f"look at {os.fsdecode(text)}")
    assert str(error) == f"{shown} is empty; look at {shown}"


def test_what_is_plain_stays() -> None:
    for text in ("web-1", r"C:\captures\web.pcap", "Zürich/日本 (2)", ""):
        assert plain(text) == text
