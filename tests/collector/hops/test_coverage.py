"""When hosts captured, and that nothing is lost where they did not.

The traffic is a keep-alive connection on which a client asks every 20 ms and is answered, beside it a short connection
every 100 ms; each packet is seen at both hosts. Captures are then made of what each host saw, without what it missed.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from collector.analysis import HostSource, analyse
from collector.decode.activity import DropSpan, FileSpan, HostActivity, PointActivity
from collector.findings.capture_gaps import Missed
from collector.findings.captures import with_doubts
from collector.findings.finding import Finding
from collector.hops.capture_drops import CaptureDrops
from collector.hops.coverage import MISSING_SCHEMA, HostCoverage, coverages, covers, subtract_spans, union
from collector.hops.quality_summary import read_pairing
from collector.queries import open_trace, uncovered_marks
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import CLOCKS
from testkit import capture_files as files

BASE_NS = 1_700_000_000_000_000_000
MS, SECOND = 1_000_000, 1_000_000_000
ONE_WAY_NS = 100_000
CLIENT, SERVER = "10.66.0.1", "10.66.0.2"
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


@dataclass(frozen=True)
class Sent:
    """A packet, when it was sent, and whether it was lost on the way."""

    at_ns: int
    from_client: bool
    data: bytes
    lost: bool = False


def packet(from_client: bool, flags: str, seq: int, ack: int, length: int = 0, port: int = 40_000) -> bytes:
    src, dst, sport, dport = (CLIENT, SERVER, port, 8_080) if from_client else (SERVER, CLIENT, 8_080, port)
    segment = TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, options=[("Timestamp", (seq, ack))])
    return bytes(ETHERNET / IP(src=src, dst=dst) / segment / Raw(b"x" * length))


@cache
def traffic(duration_ns: int, down: tuple[int, int] | None = None) -> tuple[Sent, ...]:
    """The packets of both connections, built once for all tests; while the link is `down` the client sends its request
    again and again."""
    sent: list[Sent] = []
    seq, ack, at = 1_000, 5_000, BASE_NS
    while at < BASE_NS + duration_ns:
        while down is not None and down[0] <= at - BASE_NS < down[1]:
            sent.append(Sent(at, True, packet(True, "PA", seq, ack, 100), lost=True))
            at += 200 * MS
        sent.append(Sent(at, True, packet(True, "PA", seq, ack, 100)))
        sent.append(Sent(at + MS, False, packet(False, "PA", ack, seq + 100, 500)))
        sent.append(Sent(at + 2 * MS, True, packet(True, "A", seq + 100, ack + 500)))
        seq, ack, at = seq + 100, ack + 500, at + 20 * MS
    for number in range(duration_ns // (100 * MS)):
        at, port, first = BASE_NS + number * 100 * MS + 7 * MS, 41_000 + number, 900_000 + number * 10_000
        if down is not None and down[0] - 10 * MS <= at - BASE_NS < down[1]:
            continue
        turns = [
            (True, "S", first, 0, 0), (False, "SA", 77, first + 1, 0), (True, "A", first + 1, 78, 0),
            (True, "PA", first + 1, 78, 50), (False, "PA", 78, first + 51, 60), (True, "FA", first + 51, 138, 0),
            (False, "FA", 138, first + 52, 0), (True, "A", first + 52, 139, 0),
        ]  # fmt: skip
        sent += [Sent(at + n * MS // 2, turn[0], packet(*turn, port=port)) for n, turn in enumerate(turns)]
    return tuple(sorted(sent, key=lambda each: each.at_ns))


def seen_at(
    client: bool, sent: Iterable[Sent], captures: Callable[[int], bool] = lambda _: True
) -> list[tuple[int, bytes]]:
    """(stamp, packet) of what one host's capture holds; `captures` says whether it ran, by the time since the start."""
    stamps = [
        (each.at_ns + (0 if each.from_client == client else ONE_WAY_NS), each.data)
        for each in sent
        if each.from_client == client or not each.lost
    ]
    return sorted((at, data) for at, data in stamps if captures(at - BASE_NS))


def write_capture(folder: Path, name: str, packets: list[tuple[int, bytes]]) -> Path:
    path = folder / name
    path.write_bytes(files.pcap(packets))
    return path


def info_states_and_findings(
    folder: Path, client: list[Path], server: list[Path]
) -> tuple[TraceInfo, dict[str, int], set[str]]:
    """The trace's info, its hops by state, and the kinds of its findings."""
    info = analyse([HostSource("a", tuple(client)), HostSource("b", tuple(server))], str(folder / "trace"))
    states = pl.DataFrame(Trace(str(folder / "trace")).read("hops", ["state"]))["state"].cast(pl.String)
    counts = {str(state): count for state, count in states.value_counts().iter_rows()}
    return info, counts, set(Trace(str(folder / "trace")).read("findings")["kind"].to_pylist())


def coverage_s(info: TraceInfo, host: str = "b") -> list[tuple[float, float]]:
    """A host's coverage in seconds since the beginning, rounded."""
    (found,) = (each for each in info.hosts if each.host == host)
    return [(round((begin - BASE_NS) / SECOND, 1), round((end - BASE_NS) / SECOND, 1)) for begin, end in found.coverage]


def is_captured_in_parts(at: int) -> bool:
    return not 3 * SECOND <= at < 7 * SECOND


def test_between_a_tcpdump_and_the_next_nothing_is_lost(tmp_path: Path) -> None:
    sent = traffic(10 * SECOND)
    at_b = seen_at(False, sent, is_captured_in_parts)
    first = [one for one in at_b if one[0] < BASE_NS + 5 * SECOND]
    paths = [write_capture(tmp_path, "b-1.pcap", first), write_capture(tmp_path, "b-2.pcap", at_b[len(first) :])]
    info, states, kinds = info_states_and_findings(
        tmp_path, [write_capture(tmp_path, "a.pcap", seen_at(True, sent))], paths
    )
    assert coverage_s(info) == [(0.0, 3.0), (7.0, 10.0)]
    assert coverage_s(info, "a") == [(0.0, 10.0)]
    assert states.keys() == {"matched", "outside_window"}
    assert not kinds & {"packet_loss", "capture_drop", "link_down", "server_silent"}


def test_a_capture_that_stalls_within_a_file_has_a_hole(tmp_path: Path) -> None:
    sent = traffic(10 * SECOND)
    paths = [write_capture(tmp_path, "b.pcap", seen_at(False, sent, is_captured_in_parts))]
    info, states, kinds = info_states_and_findings(
        tmp_path, [write_capture(tmp_path, "a.pcap", seen_at(True, sent))], paths
    )
    assert coverage_s(info) == [(0.0, 3.0), (7.0, 10.0)]
    assert states.keys() == {"matched", "outside_window"}
    assert "link_down" not in kinds
    points = next(host.points for host in info.hosts if host.host == "b")
    assert [point.coverage for point in points] == [next(h.coverage for h in info.hosts if h.host == "b")]


def test_files_of_one_rotation_are_one_span(tmp_path: Path) -> None:
    sent = traffic(4 * SECOND)
    at_b = seen_at(False, sent)
    parts = [[one for one in at_b if (one[0] - BASE_NS) // SECOND == second] for second in range(5)]
    paths = [write_capture(tmp_path, f"b-{number}.pcap", part) for number, part in enumerate(parts) if part]
    info, states, _ = info_states_and_findings(
        tmp_path, [write_capture(tmp_path, "a.pcap", seen_at(True, sent))], paths
    )
    assert len(paths) > 3
    assert coverage_s(info) == [(0.0, 4.0)]
    assert states.keys() == {"matched"}


@pytest.mark.parametrize("rotated", [False, True], ids=["one file", "a rotation meanwhile"])
def test_a_link_that_is_down_is_no_hole(tmp_path: Path, rotated: bool) -> None:
    sent = traffic(10 * SECOND, down=(3 * SECOND, 7 * SECOND))
    at_b = seen_at(False, sent)
    cut = sum(at < BASE_NS + 5 * SECOND for at, _ in at_b) if rotated else len(at_b)
    paths = [write_capture(tmp_path, "b-1.pcap", at_b[:cut])] + (
        [write_capture(tmp_path, "b-2.pcap", at_b[cut:])] if rotated else []
    )
    info, states, kinds = info_states_and_findings(
        tmp_path, [write_capture(tmp_path, "a.pcap", seen_at(True, sent))], paths
    )
    assert coverage_s(info) == [(0.0, 10.0)]
    assert states["lost"] == sum(each.lost for each in sent)
    assert "link_down" in kinds


def test_a_few_packets_that_a_capture_drops_are_no_hole(tmp_path: Path) -> None:
    sent = traffic(4 * SECOND)
    kept = seen_at(False, sent)
    kept = [one for number, one in enumerate(kept) if number % 10 or number < 100]
    info, states, _ = info_states_and_findings(
        tmp_path, [write_capture(tmp_path, "a.pcap", seen_at(True, sent))], [write_capture(tmp_path, "b.pcap", kept)]
    )
    assert coverage_s(info) == [(0.0, 4.0)]
    assert states["capture_dropped"] > 20


def section(since_ns: int, packets: list[tuple[int, bytes]]) -> bytes:
    """A segment of an agent's capture that began at a time, with a drop count."""
    comments = [(1, b"twintap.host=b"), (1, f"twintap.since={since_ns}".encode())]
    described = files.interface(pairs=((2, b"eth0"), (9, b"\x09")))
    return files.section(pairs=comments) + described + b"".join(files.enhanced_packet(at, data) for at, data in packets)


def test_an_agent_says_since_when_it_captures_so_two_runs_leave_a_hole_that_no_one_else_saw(tmp_path: Path) -> None:
    sent = [each for each in traffic(10 * SECOND) if is_captured_in_parts(each.at_ns - BASE_NS)]
    at_b = seen_at(False, sent)
    first = [one for one in at_b if one[0] < BASE_NS + 5 * SECOND]
    half = len(first) // 2
    segments = [
        (BASE_NS - SECOND, first[:half]),
        (BASE_NS - SECOND, first[half:]),
        (BASE_NS + 6 * SECOND, at_b[len(first) :]),
    ]
    paths = [tmp_path / f"b-{number:06}.pcapng" for number in range(3)]
    for path, segment in zip(paths, segments, strict=True):
        path.write_bytes(section(*segment))
    info, _, _ = info_states_and_findings(tmp_path, [write_capture(tmp_path, "a.pcap", seen_at(True, sent))], paths)
    assert coverage_s(info) == [(-1.0, 3.0), (6.0, 10.0)]


def test_segments_that_a_recorder_did_not_send_leave_holes_that_no_one_else_saw(tmp_path: Path) -> None:
    at_b = seen_at(False, traffic(10 * SECOND))
    paths = []
    for number in (3, 4, 8):  # each of a second
        path = tmp_path / f"b-20261125T225248-0a1b2c-{number:06}.pcapng"
        inside = [one for one in at_b if number * SECOND <= one[0] - BASE_NS < (number + 1) * SECOND]
        path.write_bytes(section(BASE_NS, inside))
        paths.append(path)
    sent = [each for each in traffic(10 * SECOND) if int((each.at_ns - BASE_NS) // SECOND) in (3, 4, 8)]
    info, states, _ = info_states_and_findings(
        tmp_path, [write_capture(tmp_path, "a.pcap", seen_at(True, sent))], paths
    )
    assert coverage_s(info) == [(3.0, 5.0), (8.0, 9.0)], "not from the agent's start on, and not between them"
    assert not states.get("lost")


# --- the decisions themselves

ONE_CLOCK = [
    {
        "host": host,
        "from_host_ns": 0,
        "to_host_ns": 10**12,
        "from_frame": 1,
        "to_frame": 10**6,
        "reference": host == "a",
    }
    | {"offset_ns": 0, "skew_ppb": 0, "uncertainty_ns": 0, "method": "raw"}
    for host in ("a", "b")
]


def missing(stamps_ms: Iterable[int], pair: tuple[str, str] = (CLIENT, SERVER), sent: bool = True) -> pl.DataFrame:
    rows = [("b", "a", *pair, sent, at * MS, 1) for at in stamps_ms]
    return pl.DataFrame(rows, schema=MISSING_SCHEMA, orient="row")


def spans_and_coverage(
    points: tuple[PointActivity, ...],
    lacking: pl.DataFrame,
    passed: dict[tuple[str, str], frozenset[int]] | None = None,
) -> tuple[list[list[tuple[int, int]]], HostCoverage]:
    """Each point's spans in ms, and the coverage."""
    clocks = pa.Table.from_pylist(ONE_CLOCK, CLOCKS)
    spans = coverages({"b": HostActivity(points, passed or {})}, lacking, clocks)["b"]
    return [[(begin // MS, end // MS) for begin, end in point] for point in spans.points], spans


def test_one_interface_of_two_may_have_a_hole_of_its_own() -> None:
    file = FileSpan(0, 10_000 * MS)
    silent = PointActivity((file,), ((2_000 * MS, 6_000 * MS),), (0, 10_000 * MS))
    busy = PointActivity((file,), (), (0, 10_000 * MS))
    other = ("10.67.0.1", "10.67.0.2")
    passed = {(CLIENT, SERVER): frozenset({0}), other: frozenset({1})}
    both_ways = [missing(range(2_100, 5_900, 50), other, sent) for sent in (True, False)]
    points, coverage = spans_and_coverage((busy, silent), pl.concat(both_ways), passed)
    assert points == [[(0, 10_000)], [(0, 2_000), (6_000, 10_000)]]
    assert coverage.whole == ((0, 10_000 * MS),)
    points, _ = spans_and_coverage((busy, silent), both_ways[0], passed)
    assert points[1] == [(0, 10_000)], "nothing that it was sent was acknowledged: its link may be down"


def test_an_interface_whose_packets_begin_late_in_the_file_of_all() -> None:
    late = PointActivity((FileSpan(0, 9_000 * MS),), (), (4_000 * MS, 9_000 * MS))
    lacking = pl.concat([missing(range(100, 3_900, 50), sent=sent) for sent in (True, False)])
    assert spans_and_coverage((late,), lacking)[0] == [[(4_000, 9_000)]]
    assert spans_and_coverage((late,), missing([]))[0] == [[(0, 9_000)]], (
        "nothing says that there was anything to capture"
    )


def test_spans_are_joined_and_cut() -> None:
    assert union([(5, 9), (0, 3), (3, 4)]) == ((0, 4), (5, 9))
    assert subtract_spans([(0, 10)], [(3, 5), (8, 12)]) == ((0, 3), (5, 8))
    assert subtract_spans([(0, 10)], [(0, 10)]) == ()


def test_what_is_near_a_hole_is_in_it_and_what_is_at_the_capture_s_end_is_not() -> None:
    spans = ((0, 100), (200, 300))
    at = np.array([-1, 0, 95, 100, 150, 205, 206, 300, 301])
    inside = covers(spans, at, hole_edge_ns=6)
    assert inside.tolist() == [False, True, False, False, False, False, True, True, False]
    assert covers(spans, np.array([0, 5, 300]), edge_ns=5, hole_edge_ns=0).tolist() == [False, True, False]
    assert covers((), at).sum() == 0


PART_NS = (3 * SECOND, 6 * SECOND)
LONE_ACK_LEN = len(packet(True, "A", 0, 0))


def is_every_other_lone_ack(data: bytes) -> bool:
    """A packet of the client's long connection without data, such as nothing acknowledges."""
    port, seq = struct.unpack_from("!HxxI", data, 34)
    return port == 40_000 and len(data) == LONE_ACK_LEN and seq // 100 % 2 == 0


def in_part(folder: Path, counts: list[tuple[int, int]], microseconds: bool = False) -> Path:
    """What b captured but for the lone ACKs between 3 and 6 s that it dropped, and statistics at some times (ns since
    the start), each with how many were dropped until then."""
    sent = traffic(10 * SECOND)
    kept = [
        one
        for one in seen_at(False, sent)
        if not (PART_NS[0] <= one[0] - BASE_NS < PART_NS[1] and is_every_other_lone_ack(one[1]))
    ]
    unit = 1_000 if microseconds else 1

    def statistics(at: int, count: int) -> bytes:
        begun, now = (stamp(ns // unit) for ns in (BASE_NS, BASE_NS + at))
        return files.statistics(0, [(2, begun), (3, now), (5, struct.pack("<Q", count))])

    blocks = [files.section(), files.interface(pairs=((2, b"eth0"), (9, b"\x09")))]
    for begin, (at, count) in zip([0, *(at for at, _ in counts)], counts, strict=False):
        blocks += [files.enhanced_packet(*one) for one in kept if begin <= one[0] - BASE_NS < at]
        blocks.append(statistics(at, count))
    path = folder / "b.pcapng"
    path.write_bytes(b"".join(blocks))
    return path


def stamp(ns: int) -> bytes:
    return struct.pack("<II", ns >> 32, ns & 0xFFFFFFFF)


def dropped_s(info: TraceInfo) -> list[tuple[float, float, int]]:
    (host,) = (each for each in info.hosts if each.host == "b")
    assert [point.dropped for point in host.points] == [host.dropped]
    return [(round((a - BASE_NS) / SECOND, 1), round((b - BASE_NS) / SECOND, 1), n) for a, b, n in host.dropped]


@pytest.mark.parametrize("microseconds", [False, True], ids=["as in the draft", "µs as dumpcap"])
@pytest.mark.parametrize(
    ("counts", "dropped"),
    [
        ([(3 * SECOND, 0), (6 * SECOND, 75), (11 * SECOND, 75)], [(3.0, 6.0, 75)]),
        ([(11 * SECOND, 75)], [(0.0, 11.0, 75)]),
    ],
    ids=["between two statistics", "over the whole section"],
)
def test_nothing_is_lost_while_a_capture_drops_as_many_itself(
    tmp_path: Path, counts: list[tuple[int, int]], dropped: list[tuple[float, float, int]], microseconds: bool
) -> None:
    client = write_capture(tmp_path, "a.pcap", seen_at(True, traffic(10 * SECOND)))
    info, states, kinds = info_states_and_findings(tmp_path, [client], [in_part(tmp_path, counts, microseconds)])
    assert states.keys() == {"matched", "unmatched"}
    assert states["unmatched"] == 75
    assert dropped_s(info) == dropped
    assert coverage_s(info)[0][1] == 10.0
    assert "capture_drop" in kinds and not kinds & {"packet_loss", "link_down", "server_silent"}


@pytest.mark.parametrize(
    ("counts", "unmatched"),
    [([(3 * SECOND, 75), (11 * SECOND, 75)], 0), ([(3 * SECOND, 0), (6 * SECOND, 74), (11 * SECOND, 74)], 0), ([], 0)],
    ids=["it dropped at another time", "it dropped fewer", "it says nothing"],
)
def test_what_a_capture_did_not_drop_is_lost_as_ever(
    tmp_path: Path, counts: list[tuple[int, int]], unmatched: int
) -> None:
    client = write_capture(tmp_path, "a.pcap", seen_at(True, traffic(10 * SECOND)))
    server = in_part(tmp_path, counts or [(11 * SECOND, 0)])
    _, states, _ = info_states_and_findings(tmp_path, [client], [server])
    assert (states["lost"], states.get("unmatched", 0)) == (75, unmatched)


def test_the_timeline_and_the_report_say_when_a_capture_dropped_packets(tmp_path: Path) -> None:
    client = write_capture(tmp_path, "a.pcap", seen_at(True, traffic(10 * SECOND)))
    counts = [(3 * SECOND, 0), (6 * SECOND, 75), (11 * SECOND, 75)]
    info_states_and_findings(tmp_path, [client], [in_part(tmp_path, counts)])
    url = str(tmp_path / "trace")
    said = "the capture on b dropped 75 of "
    notes = read_pairing(Trace(url)).notes
    assert [note for note in notes if note.startswith(said) and "between +3.000 s and +6.000 s" in note]
    texts = [row for row in Trace(url).read("findings").to_pylist() if row["kind"] == "capture_drop"]
    assert [row["text"].startswith(said) for row in texts] == [True]
    assert round((texts[0]["to_trace_ns"] - texts[0]["from_trace_ns"]) / SECOND, 1) == 3.0
    marks = [mark for mark in uncovered_marks(open_trace(url)) if mark.kind == "in part"]
    assert [(round(mark.from_ns / SECOND), round(mark.to_ns / SECOND), mark.text) for mark in marks] == [
        (3, 6, "captured in part: the capture itself dropped 75 packets here")
    ]


def test_what_lies_beside_a_time_of_drops_is_not_doubted() -> None:
    drops = CaptureDrops("b", (DropSpan(10, 20, 5), DropSpan(30, 40, 7)), 0, 100)
    cases = {(0, 9): 0, (0, 10): 5, (20, 30): 12, (21, 29): 0, (50, None): 0, (None, None): 12}
    assert {span: drops.count_within(*span) for span in cases} == cases
    missed = Missed(12, 100, None, drops)
    (beside, within) = (
        Finding("warning", "server_silent", "b was silent", "", host="b", from_trace_ns=at, to_trace_ns=at + 2, count=1)
        for at in (22, 12)
    )
    found = with_doubts([beside, within], {"b": missed}, TraceInfo(0, "", (), ()))
    assert [each.severity for each in found] == ["warning", "notice"]
    assert found[0] == beside and "missed 5 packets" in found[1].text
