"""Nothing is called lost, silent or missed that a host with a CPU budget had left out, and what was lost still is.

Thirty-two connections, on each of which a client asks every 200 ms and is answered, each packet seen at both hosts. The
captures are then made of what an agent keeps that goes down and up: segments that state it, without the packets of
connections of less depth.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from collector.analysis import HostSource, analyse
from collector.capture_files.kept import Keeping, Kept
from collector.hops.captured_until import CapturedUntil
from collector.hops.sampling import EDGE_NS, EVER_NS, Sampling, sampling_of
from collector.queries import open_trace, uncovered_marks
from collector.trace.reading import Trace
from collector.trace.schema import CLOCKS
from testkit import capture_files as files
from tracer import _capture

BASE_NS = 1_700_000_000_000_000_000
MS, SECOND = 1_000_000, 1_000_000_000
ONE_WAY_NS, DURATION_NS, CONNECTIONS_COUNT = 300_000, 12 * SECOND, 32
CLIENT, SERVER = "10.66.0.1", "10.66.0.2"
REQUEST = b"GET /object HTTP/1.1\r\nHost: store\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"
LOST_PORT_DEPTH = 2
FULL: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Sent:
    """A packet, when it was sent, and whether it was lost on the way."""

    at_ns: int
    port: int
    from_client: bool
    data: bytes
    lost: bool = False


def packet(port: int, from_client: bool, flags: int, seq: int, ack: int, payload: bytes = b"") -> bytes:
    ends = [(CLIENT, port), (SERVER, 80)]
    (src, sport), (dst, dport) = ends if from_client else reversed(ends)
    addresses = ip_address(src).packed + ip_address(dst).packed
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40 + len(payload), seq & 0xFFFF, 0x4000, 64, 6, 0) + addresses
    return (
        b"\x02" * 12
        + b"\x08\x00"
        + ip
        + struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 0x50, flags, 9999, 0, 0)
        + payload
    )


def depth(port: int) -> int:
    return _capture.sampling_depths([(CLIENT, port, SERVER, 80)])[0]


@cache
def traffic() -> tuple[Sent, ...]:
    """In the order of sending. Of the first connection that 1/4 keeps a request is lost and sent again."""
    sent: list[Sent] = []
    lossy = next(port for port in range(40_000, 41_000) if depth(port) == LOST_PORT_DEPTH)
    assert lossy < 40_000 + CONNECTIONS_COUNT
    for port in range(40_000, 40_000 + CONNECTIONS_COUNT):
        at, seq, ack = BASE_NS + (port - 40_000) * 3 * MS, 1_000, 7_000

        def say(
            at_ns: int,
            from_client: bool,
            flags: int,
            numbers: tuple[int, int],
            payload: bytes = b"",
            lost: bool = False,
        ) -> None:
            sent.append(Sent(at_ns, port, from_client, packet(port, from_client, flags, *numbers, payload), lost))  # noqa: B023

        say(at, True, 0x02, (seq - 1, 0))
        say(at + MS, False, 0x12, (ack - 1, seq))
        say(at + 2 * MS, True, 0x10, (seq, ack))
        while at < BASE_NS + DURATION_NS - 300 * MS:
            at += 200 * MS
            is_lost = port == lossy and at - BASE_NS > 6 * SECOND
            if is_lost:
                lossy = 0
                say(at - 40 * MS, True, 0x18, (seq, ack), REQUEST, lost=True)
            say(at, True, 0x18, (seq, ack), REQUEST)
            seq += len(REQUEST)
            say(at + 5 * MS, False, 0x18, (ack, seq), ANSWER)
            ack += len(ANSWER)
            say(at + 6 * MS, True, 0x10, (seq, ack))
    return tuple(sorted(sent, key=lambda each: each.at_ns))


def segments(folder: Path, host: str, changes: Sequence[tuple[int, int]], states: bool = True) -> HostSource:
    """What an agent writes, a segment each second. Arguments: `changes`, (since, depth), times from the beginning."""
    folder.mkdir()
    address = SERVER if host == "server" else CLIENT
    kept_ns = [(BASE_NS + since_ns, depth) for since_ns, depth in [(-SECOND, 0), *changes]]
    blocks: dict[int, list[bytes]] = {}
    left_out = Counter[int]()
    for each in traffic():
        sends = each.from_client == (host == "client")
        if not sends and each.lost:
            continue
        at_ns = each.at_ns + (0 if sends else ONE_WAY_NS)
        number = (at_ns - BASE_NS) // SECOND
        least = [depth for since_ns, depth in kept_ns if since_ns <= at_ns][-1]
        if depth(each.port) < least:
            left_out[number] += 1
            continue
        flags = [(2, struct.pack("<I", 2 if sends else 1))]
        blocks.setdefault(number, []).append(files.enhanced_packet(at_ns, each.data, pairs=flags))
    for since_ns, _ in changes:  # each is stated, also where nothing is kept from then on
        blocks.setdefault(since_ns // SECOND, [])
    for number, packets in blocks.items():
        begin, end = BASE_NS + number * SECOND, BASE_NS + (number + 1) * SECOND
        known = [change for change in kept_ns if change[0] <= begin][-1:]
        stated = [*known, *(change for change in kept_ns if begin < change[0] < end)]
        comments = [f"twintap.kept since={since_ns} connections=1/{1 << depth}" for since_ns, depth in stated]
        comments.append(f"twintap.left_out packets={left_out[number]} shortened=0")
        name = f"{host}-20261126T100000-00000a-{number + 1:06d}.pcapng"
        (folder / name).write_bytes(
            files.section(
                pairs=[(1, f"twintap.host={host}".encode()), (1, f"twintap.since={BASE_NS - SECOND}".encode())]
            )
            + files.names([(ip_address(address).packed, [host])])
            + files.interface(pairs=[(2, b"eth0"), (9, b"\x09")])
            + (b"".join(statement(comment) for comment in comments) if states else b"")
            + b"".join(packets)
        )
    return HostSource(host, tuple(sorted(folder.iterdir())))


def statement(comment: str) -> bytes:
    """A Name Resolution Block without a name, with a comment."""
    return files.block(files.NAMES, struct.pack("<HH", 0, 0) + files.options("<", [(1, comment.encode())]))


def analyse_pair(
    folder: Path, client: Iterable[tuple[int, int]], server: Iterable[tuple[int, int]], states: bool = True
) -> Trace:
    sources = [
        segments(folder / name, name, tuple(changes), states)
        for name, changes in (("client", client), ("server", server))
    ]
    analyse(sources, str(folder / "trace"))
    return Trace(str(folder / "trace"))


def states(trace: Trace) -> Counter[str]:
    return Counter(trace.read("hops", ["state"])["state"].to_pylist())


def left_out_count(server: Iterable[tuple[int, int]]) -> int:
    changes = [(0, 0), *server]
    found = 0
    for each in traffic():
        if each.lost:
            continue
        at_ns = each.at_ns - BASE_NS + (0 if not each.from_client else ONE_WAY_NS)
        found += depth(each.port) < [depth for since_ns, depth in changes if since_ns <= at_ns][-1]
    return found


DOWN_AND_UP = ((3 * SECOND, 1), (5 * SECOND, 2), (8 * SECOND, 1), (10 * SECOND, 0))


@pytest.mark.parametrize(
    ("client", "server"),
    [
        pytest.param(FULL, ((4 * SECOND, 2),), id="server"),
        pytest.param(FULL, DOWN_AND_UP, id="server, up again"),
        pytest.param(((4 * SECOND, 6),), ((4 * SECOND, 6),), id="both, to the end"),
        pytest.param(((4 * SECOND, 1),), DOWN_AND_UP, id="both, nested"),
        pytest.param(DOWN_AND_UP, DOWN_AND_UP, id="both, up again"),
    ],
)
def test_what_was_left_out_is_not_lost_and_no_wait(
    client: tuple[tuple[int, int], ...], server: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    trace = analyse_pair(tmp_path, client, server)
    found = states(trace)
    kept_to_the_end = not any(depth > LOST_PORT_DEPTH for _, depth in (*client, *server))
    assert found["lost"] == (1 if kept_to_the_end else 0), found
    assert set(found) <= {"matched", "outside_window", "lost"}, found
    if not client:
        assert found["outside_window"] == left_out_count(server)
    findings = {row["kind"]: row["count"] for row in trace.read("findings", ["kind", "count"]).to_pylist()}
    assert findings == ({"packet_loss": 1, "tail_loss": 1} if kept_to_the_end else {}), "only what was really lost"
    info = trace.info()
    assert all(len(host.coverage) == 1 for host in info.hosts), "no holes"
    counted = {counter.host: counter for counter in info.counters if counter.name == "connections_sampled"}
    assert set(counted) == {name for name, changes in (("client", client), ("server", server)) if changes}
    assert counted["server"].severity == "data_loss"
    assert counted["server"].count > 100
    assert f"all, 1/{1 << server[0][1]} from 2023-11-14 22:13:2" in counted["server"].remedy


def test_the_timeline_shows_when_only_some_connections_were_kept(tmp_path: Path) -> None:
    marks = uncovered_marks(open_trace(analyse_pair(tmp_path, FULL, DOWN_AND_UP).url))
    text = "captured in part: its agent's CPU budget allowed one connection in "
    said = [(mark.from_ns, mark.to_ns, mark.text) for mark in marks if mark.kind == "in part"]
    assert [(round(begin / SECOND), round(end / SECOND), words) for begin, end, words in said] == [
        (3, 5, f"{text}2 here"),
        (5, 8, f"{text}4 here"),
        (8, 10, f"{text}2 here"),
    ]


def test_without_the_statements_they_look_lost(tmp_path: Path) -> None:
    found = states(analyse_pair(tmp_path, FULL, DOWN_AND_UP, states=False))
    assert found["capture_dropped"] > 100, found


def clocks(*hosts: str) -> pa.Table:
    row = dict.fromkeys(CLOCKS.names, 0) | {"method": "reference", "reference": True}
    return pa.Table.from_pylist([row | {"host": host} for host in hosts], CLOCKS)


def test_a_host_left_out_what_is_less_deep_while_it_kept_less() -> None:
    kept = Kept()
    kept.add(["twintap.kept since=1000000000000 connections=1/2", "twintap.left_out packets=7 shortened=2"], 1)
    kept.add(["twintap.kept since=2000000000000 connections=1/8 head_bytes=256", "twintap.kept since=no"], 1)
    kept.add([], 3_000_000_000_000)
    kept.add([], 4_000_000_000_000)
    assert kept.changes == [
        Keeping(1_000_000_000_000, 1),
        Keeping(2_000_000_000_000, 3, 256),
        Keeping(3_000_000_000_000),
    ]
    assert (kept.left_out_count, kept.shortened_count, kept.most_depth) == (7, 2, 3)
    sampling = sampling_of({"db": kept, "web": Kept([Keeping(5)])}, clocks("db", "web"))
    assert sampling.most_depths == {"db": 3}
    assert sampling.left_out("db", 0) == ((-EVER_NS - EDGE_NS, 3_000_000_000_000 + EDGE_NS),)
    assert sampling.left_out("db", 2) == ((2_000_000_000_000 - EDGE_NS, 3_000_000_000_000 + EDGE_NS),)
    assert sampling.left_out("db", 3) == sampling.left_out("web", 0) == ()


def test_a_wait_is_judged_until_neither_host_kept_the_connection() -> None:
    sampling = Sampling({"a": [(40 * SECOND, 50 * SECOND, 2)], "b": [(20 * SECOND, 60 * SECOND, 1)]}, {"a": 2, "b": 1})
    depths = pl.DataFrame(
        {"connection_id": [1, 2, 3], "client_host": "a", "client_depth": [0, 1, 2], "server_depth": [0, 1, 2]}
    )
    spans = {"a": ((0, 100 * SECOND),), "b": ((0, 100 * SECOND),)}
    captured = CapturedUntil(200 * SECOND, spans, sampling, depths)
    rows = pl.DataFrame(
        {
            "connection_id": [1, 2, 3, 1],
            "client_host": "a",
            "server_host": "b",
            "since": [10 * SECOND] * 3 + [45 * SECOND],
        }
    )
    until = captured.of(rows, "since").to_list()
    assert until == [40 * SECOND - EDGE_NS, 100 * SECOND, 100 * SECOND, 45 * SECOND]
