"""Perfetto traces, read by Perfetto's own schema; and by its trace_processor, where there is one."""

import csv
import io
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from collector.analysis import analyse
from collector.commands.export import command
from collector.decode.sources import host_sources
from collector.export import perfetto
from collector.trace.reading import Trace
from testkit.tables import BASE_NS
from tests.helpers.script_traces import write_script_trace

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
SCRIPT = """
    client:40000 > proxy:8080
      0 > 0:200 PUT /v1/a/c/o tx=tx1
      5000 < 0:100 201 tx=tx1
    client:40001 > proxy:8080
      1000 > 0:200 GET /v1/a/c/o tx=tx2
      4000 < 0:100 200 tx=tx2
    proxy:50000 > storage1:6200
      1500 > 0:200 PUT /d1/7/a/c/o tx=tx1 lost
      2000 > 0:200 #2 PUT /d1/7/a/c/o tx=tx1
      3000 < 0:100 201 tx=tx1 late=0
      3010 > ack late=-5
"""
FIELDS = ("int_value", "double_value", "string_value", "string_value_iid")


@dataclass
class Event:
    """A slice, or an instant, or a value of a counter."""

    track: str  # "HOST/NAME"; its lane does not matter
    lane: int
    name: str
    start: int
    end: int
    arguments: dict[str, object]
    flows: list[int]
    last_of: list[int]
    value: int = 0


@dataclass
class Picture:
    """What a trace of Perfetto shows."""

    processes: dict[int, str] = field(default_factory=dict)
    slices: list[Event] = field(default_factory=list)
    instants: list[Event] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def slices_by_id(self) -> dict[int, Event]:
        return {int(str(each.arguments["exchange_id"])): each for each in self.slices}

    def packets(self, end: str) -> dict[int, Event]:
        return {int(str(e.arguments["packet"])): e for e in self.instants if e.name.startswith(f"{end} ")}


def picture_of(content: bytes) -> Picture:
    """The trace, as its schema reads it; tracks are announced before their events, and what is open is closed."""
    picture, names, lists = Picture(), dict[int, str](), dict[str, dict[int, str]]()
    timed = []
    for packet in PerfettoTrace.FromString(content).packet:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("interned_data"):
            said = packet.interned_data
            lists = {
                "names": {each.iid: each.name for each in said.event_names},
                "arguments": {each.iid: each.name for each in said.debug_annotation_names},
                "texts": {each.iid: each.str.decode() for each in said.debug_annotation_string_values},
            }
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in names
            if track.HasField("process"):
                picture.processes[track.uuid] = names[track.uuid] = track.process.process_name
            else:
                parent = f"{names[track.parent_uuid]}/" if track.parent_uuid else ""
                names[track.uuid] = f"{parent}{track.name}"
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in names
            timed.append(packet)
    open_slices: dict[int, list[Event]] = defaultdict(list)
    for packet in sorted(timed, key=lambda packet: packet.timestamp):
        event = packet.track_event
        track = names[event.track_uuid]
        if event.type == TrackEvent.TYPE_COUNTER:
            picture.counters[track].append((packet.timestamp, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            open_slices[event.track_uuid].pop().end = packet.timestamp
        else:
            read = _event(packet, track, lists)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append(read)
                picture.slices.append(read)
            else:
                picture.instants.append(read)
    assert not any(open_slices.values())
    return picture


def _event(packet, track: str, lists: dict[str, dict[int, str]]) -> Event:
    event, arguments = packet.track_event, {}
    for each in event.debug_annotations:
        (value,) = (getattr(each, name) for name in FIELDS if each.HasField(name))
        name = each.name or lists["arguments"][each.name_iid]
        arguments[name] = lists["texts"][value] if each.HasField("string_value_iid") else value
    flows, last = list(event.flow_ids), list(event.terminating_flow_ids)
    name = event.name or lists["names"][event.name_iid]
    return Event(track, event.track_uuid, name, packet.timestamp, packet.timestamp, arguments, flows, last)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    write_script_trace(str(tmp_path / "trace"), SCRIPT)
    return str(tmp_path / "trace")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("traces") / "bench")
    analyse(host_sources([str(BUNDLED)]), place)
    return place


def export(trace: str, place: Path, *more: str) -> str:
    result = CliRunner().invoke(command, [trace, "--to", "perfetto", "-o", str(place), *more])
    if result.exception is not None:
        raise result.exception
    return result.output


def read_export(trace: str, tmp_path: Path, *more: str) -> Picture:
    assert export(trace, tmp_path / "out.pftrace", *more) == f"wrote {tmp_path / 'out.pftrace'}\n"
    return picture_of((tmp_path / "out.pftrace").read_bytes())


def test_hosts_are_processes_and_spans_their_slices(trace: str, tmp_path: Path) -> None:
    picture = read_export(trace, tmp_path)
    assert list(picture.processes.values()) == ["client", "proxy", "storage1"]
    slices = picture.slices_by_id()
    assert {n: (e.track, e.name, e.start - BASE_NS, e.end - e.start) for n, e in slices.items()} == {
        1: ("proxy/swift-proxy", "PUT /v1/a/c/o", 0, 5_020_000),
        2: ("proxy/swift-proxy", "GET /v1/a/c/o", 1_000_000, 3_020_000),
        3: ("storage1/swift-object", "PUT /d1/7/a/c/o", 1_500_000, 1_500_000),
    }
    assert slices[3].arguments["parent_span_id"] == 1
    assert slices[3].arguments["link_reason"] == "transaction_id"
    assert slices[1].flows == slices[3].last_of != []
    assert slices[3].flows == slices[1].last_of == slices[2].flows == []


def test_slices_of_a_lane_do_not_overlap_and_lanes_are_used_again(tmp_path: Path) -> None:
    lines = []
    for number, (at, until) in enumerate([(0, 900), (100, 800), (1000, 1200), (1100, 1300)]):
        lines += [f"client:4000{number} > proxy:8080", f"{at} > 0:10 GET /{number}", f"{until} < 0:10 200"]
    write_script_trace(str(tmp_path / "trace"), "\n".join(lines))
    lanes = defaultdict(list)
    for each in read_export(str(tmp_path / "trace"), tmp_path).slices:
        lanes[each.lane].append((each.start, each.end))
    assert [len(spans) for spans in lanes.values()] == [2, 2]
    for spans in lanes.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


def test_packets_are_at_both_ends_as_the_table_has_them(bench: str, tmp_path: Path) -> None:
    picture, hops = (
        read_export(bench, tmp_path),
        pl.DataFrame(Trace(bench).read("hops")).cast({pl.Categorical: pl.String}),
    )
    for end, other in (("send", "receive"), ("receive", "send")):
        packets = picture.packets(end)
        assert len(packets) == hops[f"{end}_trace_ns"].count() > 100
        for number, event in packets.items():
            row = hops.row(number - 1, named=True)
            assert event.track == f"{row[f'{end}_host']}/packets with {row[f'{other}_host']}"
            assert event.name == f"{end} {row['kind']}"
            assert event.start == row[f"{end}_trace_ns"]
            expected = {
                "packet": number,
                "bytes": row["stream_end"] - row["stream_start"],
                "frame": row[f"{end}_frame"],
                "other_frame": row[f"{other}_frame"],
                **{name: row[name] for name in ("connection_id", "attempt", "state", "exchange_id")},
                **{name: row[name] for name in ("one_way_delay_ns", "uncertainty_ns", "likely_error_ns")},
            }
            assert event.arguments == {name: value for name, value in expected.items() if value is not None}
    sent, received = picture.packets("send"), picture.packets("receive")
    matched = hops.with_row_index("number", 1).filter(pl.col("state") == "matched")["number"].to_list()
    assert all(sent[number].flows == received[number].last_of == [number] for number in matched)


def test_a_flow_never_leads_back_in_time(trace: str, tmp_path: Path) -> None:
    picture = read_export(trace, tmp_path)
    sent, received = picture.packets("send"), picture.packets("receive")
    kinds = {e.name: (number, received.get(number)) for number, e in sent.items() if "PUT" not in e.name}
    number, early = kinds["send ack"]
    assert early is not None
    assert early.arguments["one_way_delay_ns"] == early.start - sent[number].start == -5_000
    assert (sent[number].flows, early.last_of) == ([], [])
    (lost,) = (e for e in sent.values() if e.arguments["state"] == "lost")
    assert lost.flows == []
    at_once = [number for number, e in received.items() if e.start == sent[number].start]
    assert [(sent[number].flows, received[number].last_of) for number in at_once] == [([at_once[0]], [at_once[0]])]


def test_counters_say_what_was_open_and_on_the_way(bench: str, trace: str, tmp_path: Path) -> None:
    counters = read_export(trace, tmp_path).counters
    assert [(at - BASE_NS, value) for at, value in counters["proxy/requests in progress"]] == [
        (0, 1),
        (1_000_000, 2),
        (4_020_000, 1),
        (5_020_000, 0),
    ]
    assert [(at - BASE_NS, value) for at, value in counters["proxy/bytes on the way from here"]] == [
        (2_000_000, 200),
        (2_020_000, 0),
        (4_000_000, 100),
        (4_020_000, 0),
        (5_000_000, 100),
        (5_020_000, 0),
    ]
    for values in read_export(bench, tmp_path).counters.values():
        assert values[-1][1] == 0
        assert all(value >= 0 for _, value in values)


def test_findings_are_instants_of_their_hosts(trace: str, tmp_path: Path) -> None:
    instants = [e for e in read_export(trace, tmp_path).instants if " " not in e.name]
    assert [(e.track, e.name, e.start - BASE_NS) for e in instants][:2] == [
        ("storage1", "packet_loss", 1_500_000),
        ("proxy", "tail_loss", 1_500_000),
    ]


def test_only_some_requests_with_their_packets(bench: str, tmp_path: Path) -> None:
    whole, some = read_export(bench, tmp_path), read_export(bench, tmp_path, "--search", "GET /auth")
    exchanges = {int(str(each.arguments["exchange_id"])) for each in some.slices}
    assert 0 < len(exchanges) < len(whole.slices)
    expected = [n for n, e in whole.packets("send").items() if e.arguments.get("exchange_id") in exchanges]
    assert sorted(some.packets("send")) == sorted(expected)


def test_too_many_packets_are_left_out_and_that_is_said(
    bench: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto, "MOST_PACKETS", 100)
    place = tmp_path / "out.pftrace"
    output = export(bench, place)
    assert "without its 375 packets: at most 100 are written; choose some requests with --search" in output
    picture = picture_of(place.read_bytes())
    assert (picture.packets("send"), len(picture.slices)) == ({}, 37)
    (said,) = (e for e in picture.instants if e.name == "packets are left out")
    assert said.track.startswith("without its 375 packets")
    assert export(bench, place, "--request", "#1") == f"wrote {place}\n"
    assert picture_of(place.read_bytes()).packets("send")


def test_an_empty_trace_is_exported(tmp_path: Path) -> None:
    write_script_trace(str(tmp_path / "trace"), "")
    assert read_export(str(tmp_path / "trace"), tmp_path) == Picture()


TRACE_PROCESSOR = shutil.which("trace_processor_shell") or shutil.which("trace_processor")


@pytest.mark.skipif(TRACE_PROCESSOR is None, reason="Perfetto's trace_processor is not installed")
def test_trace_processor_opens_it_without_errors(bench: str, tmp_path: Path) -> None:
    export(bench, tmp_path / "out.pftrace")
    sql = """
        select name from stats where severity in ('error', 'data_loss') and value > 0;
        select count(*) from slice join process_track on track_id = process_track.id where category = 'request';
        select count(*) from flow join slice a on a.id = slice_out join slice b on b.id = slice_in
            where a.category = 'packet,send' and b.category = 'packet,receive' and b.ts >= a.ts;
        select count(distinct t.id) from counter join process_counter_track t on t.id = track_id;
    """
    (tmp_path / "questions.sql").write_text(sql)
    done = subprocess.run(
        [str(TRACE_PROCESSOR), "-q", str(tmp_path / "questions.sql"), str(tmp_path / "out.pftrace")],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    answers = [list(csv.reader(io.StringIO(each)))[1:] for each in done.stdout.strip().split("\n\n")]
    assert answers == [[], [["37"]], [["375"]], [["9"]]]
