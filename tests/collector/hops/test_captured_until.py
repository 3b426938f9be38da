"""That a wait is judged only while one of its two hosts captured, whatever the others' captures go on to show."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from collector.analysis import HostSource, analyse
from collector.decode.activity import FileSpan, HostActivity, PointActivity
from collector.hops.captured_until import CapturedUntil, captured_until
from collector.hops.coverage import MISSING_SCHEMA, HostCoverage, coverages
from collector.trace.reading import Trace
from collector.trace.schema import CLOCKS
from testkit import capture_files as files

BASE_NS, MS, SECOND = 1_700_000_000_000_000_000, 1_000_000, 1_000_000_000
ONE_WAY_NS = 100_000
ADDRESSES = {"client": "10.66.0.1", "server": "10.66.0.2", "other": "10.66.0.3", "stranger": "10.66.0.4"}
CAPTURED = ("client", "server", "other")
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
Sent = tuple[int, str, str, bytes]  # when, from, to, the packet
REQUEST = b"GET /slow HTTP/1.1\r\nHost: server\r\n\r\n"


def packet(
    source: str, target: str, ports: tuple[int, int], flags: str, numbers: tuple[int, int], data: bytes
) -> bytes:
    segment = TCP(sport=ports[0], dport=ports[1], flags=flags, seq=numbers[0], ack=numbers[1])
    return bytes(ETHERNET / IP(src=ADDRESSES[source], dst=ADDRESSES[target]) / segment / Raw(data))


def request_packets(client: str, server: str, port: int, request: bytes) -> list[Sent]:
    """A connection from the start on, and one request, whose arrival the server's kernel acknowledges."""
    to, back = (port, 8080), (8080, port)
    turns = [
        (client, server, to, "S", (99, 0), b""), (server, client, back, "SA", (499, 100), b""),
        (client, server, to, "A", (100, 500), b""), (client, server, to, "PA", (100, 500), request),
        (server, client, back, "A", (500, 100 + len(request)), b""),
    ]  # fmt: skip
    return [(at * MS, turn[0], turn[1], packet(*turn)) for at, turn in enumerate(turns)]


def polling_packets(client: str, server: str, port: int, until_ns: int) -> list[Sent]:
    """A request each 50 ms, answered after 1 ms."""
    request, answer = b"GET /p HTTP/1.1\r\nHost: p\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    sent, seq, ack = request_packets(client, server, port, request)[:3], 100, 500
    for at in range(10 * MS, until_ns, 50 * MS):
        sent.append((at, client, server, packet(client, server, (port, 8080), "PA", (seq, ack), request)))
        seq += len(request)
        sent.append((at + MS, server, client, packet(server, client, (8080, port), "PA", (ack, seq), answer)))
        ack += len(answer)
    return sent


def findings(folder: Path, sent: list[Sent], ends_ns: dict[str, int]) -> list[dict[str, object]]:
    """What is found where each host's capture ends at `ends_ns`, if given."""
    sources = []
    for host in CAPTURED:
        stamps = [
            (at + (0 if source == host else ONE_WAY_NS), data) for at, source, to, data in sent if host in (source, to)
        ]
        kept = sorted((BASE_NS + at, data) for at, data in stamps if at <= ends_ns.get(host, at))
        path = folder / f"{host}.pcap"
        path.write_bytes(files.pcap(kept))
        sources.append(HostSource(host, (path,)))
    analyse(sources, str(folder / "trace"))
    return Trace(str(folder / "trace")).read("findings").to_pylist()


def waits(found: list[dict[str, object]]) -> list[tuple[object, int]]:
    kinds = ("unanswered_request", "server_silent")
    return [
        (row["kind"], round((row["to_trace_ns"] - row["from_trace_ns"]) / SECOND, 1))
        for row in found
        if row["kind"] in kinds
    ]  # type: ignore[operator]


ALONE = request_packets("client", "server", 40_000, REQUEST)
OTHERS = [
    *polling_packets("other", "client", 41_000, 6 * SECOND),
    *polling_packets("other", "server", 42_000, 6 * SECOND),
]


@pytest.mark.parametrize(
    ("ends_ns", "expected"),
    [
        ({}, 6.0),
        ({"server": SECOND // 2}, 6.0),
        ({"client": 3 * SECOND, "server": 2 * SECOND}, 3.0),
        ({"client": SECOND // 2, "server": SECOND // 2}, None),
    ],
    ids=["all go on", "the client's goes on", "both end, the later one after 3 s", "both end at once"],
)
def test_a_request_is_unanswered_for_as_long_as_one_of_its_hosts_captured(
    tmp_path: Path, ends_ns: dict[str, int], expected: float | None
) -> None:
    """Captures that ended early (`tcpdump -c`) beside one that went on: it was 6 s of "not answered" in each case."""
    found = waits(findings(tmp_path, [*ALONE, *OTHERS], ends_ns))
    assert found == ([] if expected is None else [("unanswered_request", expected)])


def test_silence_after_the_last_packet_is_captured_where_nobody_saw_more(tmp_path: Path) -> None:
    talk = [
        *ALONE,
        *polling_packets("other", "client", 41_000, SECOND // 2),
        *polling_packets("other", "server", 42_000, SECOND // 2),
    ]
    elsewhere = polling_packets("other", "stranger", 43_000, 6 * SECOND)
    assert waits(findings(tmp_path, [*talk, *elsewhere], {})) == [("unanswered_request", 6.0)]


def test_spans_of_both_hosts_count_together() -> None:
    captured = CapturedUntil(
        900, {"a": [(0, 100)], "b": [(50, 300), (10**9, 2 * 10**9)], "c": [(5 * 10**9, 6 * 10**9)]}
    )
    rows = pl.DataFrame(
        {
            "client_host": ["a", "a", "a", None, "x", None, "c"],
            "server_host": ["b", None, "b", "b", None, None, "a"],
            "at": [10, 10, 10**9 + 5, 10**9 - 500_000, 7, 7, 4 * 10**9],
        }
    )
    assert captured.of(rows, "at").to_list() == [300, 100, 2 * 10**9, 2 * 10**9, 900, 900, 4 * 10**9]


@pytest.mark.parametrize(
    ("at_ms", "sent", "expected"),
    [(50, True, False), (100.5, True, False), (150, True, True), (150, False, False)],
    ids=["before the last packet", "with it", "after it", "to the host"],
)
def test_a_capture_has_ended_where_others_received_what_the_host_sent_later(
    at_ms: float, sent: bool, expected: bool
) -> None:
    """What was sent to the host and is not in its capture may have been lost on the way."""
    row = ("a", "b", "10.66.0.1", "10.66.0.2", sent, int(at_ms * MS), 1)
    missing = pl.DataFrame([row], schema=MISSING_SCHEMA, orient="row")
    line = {"reference": True, "offset_ns": 0, "skew_ppb": 0, "uncertainty_ns": 0, "method": "hull"}
    ends = {"from_host_ns": 0, "to_host_ns": 100 * MS}
    clocks = pa.Table.from_pylist([line | ends | {"host": host} for host in "ab"], CLOCKS)
    point = PointActivity((FileSpan(0, 100 * MS),), (), (0, 100 * MS))
    assert coverages({"a": HostActivity((point,))}, missing, clocks)["a"].has_ended is expected


@pytest.mark.parametrize(
    ("has_ended", "method", "expected"), [(False, "hull", 900), (True, "hull", 500), (False, "none", 500)]
)
def test_a_capture_runs_on_unless_it_is_seen_to_have_ended(has_ended: bool, method: str, expected: int) -> None:
    line = {"host": "a", "reference": True, "offset_ns": 0, "skew_ppb": 0, "uncertainty_ns": 0, "method": method}
    clocks = pa.Table.from_pylist([line | {"from_host_ns": 0, "to_host_ns": 500}], CLOCKS)
    found = captured_until({"a": HostCoverage((((0, 200), (300, 500)),), has_ended=has_ended)}, clocks, 900)
    assert found == CapturedUntil(900, {"a": ((0, 200), (300, expected))})
