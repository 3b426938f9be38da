"""What is taken in is limited: by what a file expands to, and by the packets of one connection."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import zstandard
from click.testing import CliRunner
from msgspec.structs import replace

from collector.analysis import AnalysisOptions, analyse
from collector.commands.replay import command as replay
from collector.decode.captures import scan
from collector.decode.host_capture import HostSource
from collector.decode.input_limits import LIMITED, InputLimits, limits_here
from collector.execution import memory
from collector.trace.reading import Trace
from testkit.capture_files import pcap
from tracer.errors import InputError

BEGIN_NS = 1_790_000_000 * 10**9
STEP_NS, WAY_NS = 10_000, 50_000
COUNT = 70_000
"""Packets at each host: captures are read 32,768 at a time."""
LIMIT = 40_000
CAPTURES = Path(__file__).parents[3] / "captures" / "swift-upload-1B"


def packet(port: int, seq: int, ident: int, payload: bytes = b"x") -> bytes:
    """From 10.0.0.1 to 10.0.0.2:80, over Ethernet."""
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), ident, 0, 64, 6, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    tcp = struct.pack(">HHIIBBHHH", port, 80, seq, 1, 0x50, 0x18, 1_000, 0, 0)
    return b"\2" * 12 + b"\x08\0" + ip + tcp + payload


EQUAL = pcap([(BEGIN_NS, packet(40_000, 1, 1))] * 50_000)
SMALL = InputLimits(ratio=10, expanded_bytes=100_000)


def write_captures(folder: Path, connections: int) -> list[HostSource]:
    """Packets from one host to the other, each connection's in turn, captured at both ends."""
    for host, late_ns in (("one", 0), ("two", WAY_NS)):
        packets = []
        for number in range(COUNT):
            port, turn = 10_000 + number % connections, number // connections
            packets.append((BEGIN_NS + number * STEP_NS + late_ns, packet(port, 1 + turn, number & 0xFFFF)))
        (folder / f"{host}.pcap").write_bytes(pcap(packets))
    return [HostSource(host, (folder / f"{host}.pcap",)) for host in ("one", "two")]


def test_one_connection_is_cut_by_time_and_nothing_is_lost_for_it(tmp_path: Path) -> None:
    options = AnalysisOptions(limits=InputLimits(in_partition=LIMIT))
    info = analyse(write_captures(tmp_path, 1), str(tmp_path / "trace"), options=options)
    cut = {counter.host: counter for counter in info.counters if counter.name == "connection_cut"}
    assert set(cut) == {"one", "two"}
    assert "one.pcap was read up to frame 65,536" in cut["one"].remedy
    assert {counter.severity for counter in cut.values()} == {"data_loss"}
    assert [host.packets_count for host in info.hosts] == [65_536, 65_536]
    states = pl.DataFrame(Trace(str(tmp_path / "trace")).read("hops", ["state"]))["state"].cast(pl.String)
    assert set(states) <= {"matched", "outside_window"}
    kinds = Trace(str(tmp_path / "trace")).read("findings", ["kind"])["kind"].to_pylist()
    assert kinds == ["unaligned_clock"]  # nothing goes back


def test_many_connections_are_more_partitions_and_none_is_cut(tmp_path: Path) -> None:
    with scan(write_captures(tmp_path, 100), limits=InputLimits(in_partition=LIMIT)) as captures:
        assert len(captures) > 1
        assert [host.packets_count for host in captures.hosts] == [COUNT, COUNT]
        assert captures.largest < 2 * LIMIT
        assert not [counter for counter in captures.counters if counter.name == "connection_cut"]


@pytest.mark.parametrize(("compress", "suffix"), [(gzip.compress, "gz"), (zstandard.compress, "zst")])
def test_a_file_that_expands_too_far_is_refused(
    tmp_path: Path, compress: Callable[[bytes], bytes], suffix: str
) -> None:
    name = f"a.pcap.{suffix}"
    (tmp_path / name).write_bytes(compress(EQUAL))
    sources = [HostSource("a", (tmp_path / name,))]
    with pytest.raises(InputError, match=r"a\.pcap\.\w+ expands to \d+ times its size .* --no-limits"):
        analyse(sources, str(tmp_path / "trace"), options=AnalysisOptions(limits=SMALL))
    assert not (tmp_path / "trace").exists()
    (tmp_path / "a.pcap").write_bytes(EQUAL)  # no compression, no limit
    analyse([HostSource("a", (tmp_path / "a.pcap",))], str(tmp_path / "trace"), options=AnalysisOptions(limits=SMALL))


def test_more_connections_than_memory_holds_are_refused(tmp_path: Path) -> None:
    assert_refused_and_taken_with_room(
        write_captures(tmp_path, 100), tmp_path, InputLimits(connections=99), "99 connections"
    )


def test_more_requests_than_memory_holds_are_refused(tmp_path: Path) -> None:
    sources = [HostSource(file.stem, (file,)) for file in sorted(CAPTURES.glob("*.pcapng"))]
    assert_refused_and_taken_with_room(sources, tmp_path, InputLimits(exchanges=5), "5 requests")


def assert_refused_and_taken_with_room(sources: list[HostSource], folder: Path, limits: InputLimits, what: str) -> None:
    with pytest.raises(InputError, match=rf"hold more than {what}, .* --no-limits"):
        analyse(sources, str(folder / "trace"), options=AnalysisOptions(limits=limits))
    assert not (folder / "trace").exists()
    enough = replace(limits, connections=100, exchanges=1_000)
    analyse(sources, str(folder / "trace"), options=AnalysisOptions(limits=enough))


def test_an_option_of_replay_lifts_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.decode.input_limits.LIMITED", SMALL)
    (tmp_path / "a.pcap.gz").write_bytes(gzip.compress(EQUAL))
    given = ["--quiet", "-o", str(tmp_path / "trace"), str(tmp_path / "a.pcap.gz")]
    assert isinstance(CliRunner().invoke(replay, given).exception, InputError)
    assert CliRunner().invoke(replay, ["--no-limits", *given]).exit_code == 0
    assert Trace(str(tmp_path / "trace")).info().hosts[0].packets_count == 50_000


GIB = 1 << 30


@pytest.mark.parametrize(("available", "times"), [(0, 1), (3 * GIB, 1), (4 * GIB, 1), (10 * GIB, 2.5), (64 * GIB, 16)])
def test_where_more_memory_is_available_more_is_taken(available: int, times: float) -> None:
    found = LIMITED.of_memory(available)
    assert (found.connections, found.exchanges) == (3_000_000 * times, 4_500_000 * times)
    assert found.in_partition == 1_500_000 * times
    assert found.memory_bytes == 2 * GIB * times
    assert found.expansion == LIMITED.expansion


def test_a_workers_partition_is_as_large_as_ever() -> None:
    found = LIMITED.of_memory(64 * GIB, in_workers=True)
    assert (found.in_partition, found.exchanges) == (LIMITED.in_partition, 16 * LIMITED.exchanges)


def test_a_refusal_names_the_memory_that_was_free() -> None:
    with pytest.raises(InputError, match=r"more than 7,500,000 connections.* than 5 GiB of memory, half of what was"):
        LIMITED.of_memory(10 * GIB).check_connections(7_500_001)
    with pytest.raises(InputError, match=r"more than 4,500,000 requests.* than 2 GiB of memory; .*about 400 bytes"):
        LIMITED.check_exchanges(4_500_001)


def test_limits_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 8 * GIB)
    assert limits_here() == LIMITED.of_memory(8 * GIB)
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    assert limits_here() == LIMITED
