"""All stages together, on captures that the simulator wrote."""

from functools import partial
from pathlib import Path
from socket import inet_aton

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from collector.analysis import AnalysisOptions, HostSource, analyse
from collector.capture_files.readers import open_capture
from collector.decode import host_capture
from collector.decode.partitions import Partitions
from collector.execution import partition_cache
from collector.execution.partition_cache import PartitionCache
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.helpers.live_segments import write_segments
from tracer.errors import InputError, ResourceError


def captures_of_two(folder: Path, *, late_ns: int = 0, offset_ns: int = 0) -> list[HostSource]:
    stations = [Station("client", "10.0.0.1"), Station("server", "10.0.0.2", Clock(offset_ns))]
    net = Network(stations, NetworkPath(), 3)
    for number in range(4):
        net.connect("client", "server", 40_000 + number, 500, 40_000, at_ns=number * 50_000_000)
    net.run()
    if late_ns:
        net.records["server"] = [record for record in net.records["server"] if record.at_ns >= late_ns]
        for frame, record in enumerate(net.records["server"], 1):
            record.frame = frame
    return [HostSource(None, (file,)) for file in net.write(folder)]


def one_connection(folder: Path, begins_ns: dict[str, int]) -> list[HostSource]:
    """Captures of two hosts that talk to each other only, over one connection, each from a time of its own on."""
    net = Network(
        [Station("client", "10.0.0.1"), Station("server", "10.0.0.2", Clock(3_000_000))], NetworkPath(loss=0.01), 5
    )
    net.connect("client", "server", 40_000, 300_000, 600_000)
    net.run()
    for name, begin_ns in begins_ns.items():
        net.records[name] = [record for record in net.records[name] if record.at_ns >= begin_ns]
    return [HostSource(None, (file,)) for file in net.write(folder)]


def table(trace: Path, name: str) -> pl.DataFrame:
    return pl.DataFrame(Trace(str(trace)).read(name)).with_columns(pl.col(pl.Categorical).cast(pl.String))


def test_a_trace_has_every_table_and_its_hosts(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    info = analyse(captures_of_two(tmp_path), str(trace))
    assert [host.host for host in info.hosts] == ["client", "server"]
    assert [host.addresses for host in info.hosts] == [("10.0.0.1",), ("10.0.0.2",)]
    assert {path.stem for path in trace.glob("*.parquet")} <= set(TABLES)
    assert len(table(trace, "events")) == sum(host.events_count for host in info.hosts)
    assert set(table(trace, "hops")["state"]) == {"matched"}
    assert len(table(trace, "exchanges")) == 4


def test_what_hosts_used_is_kept_of_those_that_were_captured(tmp_path: Path) -> None:
    names, stamps = ["server", "client", "elsewhere", "client"], [3, 2, 1, 1]
    given = pa.table({"host": names, "host_ns": stamps, "metric": ["cpu_percent"] * 4, "value": [0.5, 2.0, 9.0, 1.0]})
    analyse(captures_of_two(tmp_path), str(tmp_path / "trace"), samples=given)
    kept = table(tmp_path / "trace", "samples")
    assert kept.rows() == [
        ("client", 1, "cpu_percent", 1.0), ("client", 2, "cpu_percent", 2.0), ("server", 3, "cpu_percent", 0.5)
    ]  # fmt: skip


def test_captures_that_begin_apart_lose_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    analyse(captures_of_two(tmp_path, late_ns=40_000_000), str(trace))
    hops = table(trace, "hops")
    lone = hops.filter(pl.col("receive_frame").is_null() | pl.col("send_frame").is_null())
    assert len(lone) > 10
    assert set(lone["state"]) == {"outside_window"}
    assert set(lone["send_host"]) | set(lone["receive_host"]) == {"client", "server"}


@pytest.mark.parametrize("begins_ns", [{"server": 2_000_000}, {"client": 3_000_000, "server": 2_000_000}])
def test_two_hosts_alone_are_distinguished_without_their_handshake(tmp_path: Path, begins_ns: dict[str, int]) -> None:
    info = analyse(one_connection(tmp_path, begins_ns), str(tmp_path / "trace"))
    assert [host.addresses for host in info.hosts] == [("10.0.0.1",), ("10.0.0.2",)]
    hops = table(tmp_path / "trace", "hops")
    assert len(hops.filter(pl.col("state") == "matched")) > 300
    assert hops["one_way_delay_ns"].min() >= 0


def test_clock_correction_can_be_turned_off(tmp_path: Path) -> None:
    sources = captures_of_two(tmp_path, offset_ns=7_000_000)
    analyse(sources, str(tmp_path / "aligned"))
    analyse(sources, str(tmp_path / "raw"), options=AnalysisOptions(align_clocks=False))
    assert table(tmp_path / "aligned", "hops")["one_way_delay_ns"].min() >= 0
    assert table(tmp_path / "raw", "hops")["one_way_delay_ns"].min() < -6_000_000


def test_files_of_one_host_go_on_counting_frames(tmp_path: Path) -> None:
    (client, server) = captures_of_two(tmp_path)
    data = client.files[0].read_bytes()
    cut = 24
    for _ in range(5):
        cut += 16 + int.from_bytes(data[cut + 8 : cut + 12], "little")
    first, second = tmp_path / "a.pcap", tmp_path / "b.pcap"
    first.write_bytes(data[:cut])
    second.write_bytes(data[:24] + data[cut:])
    analyse([HostSource("client", (first, second)), server], str(tmp_path / "parts"))
    analyse([client, server], str(tmp_path / "whole"))
    columns = ["send_host", "send_frame", "receive_host", "receive_frame", "stream_start", "kind"]
    parts, whole = (table(tmp_path / name, "hops").select(columns).sort(columns) for name in ("parts", "whole"))
    assert parts.equals(whole)


def test_frames_that_cannot_be_counted_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (client, server) = captures_of_two(tmp_path)
    monkeypatch.setattr(host_capture, "LAST_FRAME", 100)
    twice = HostSource("client", (client.files[0], client.files[0]))
    with pytest.raises(InputError, match="host client hold more than 100 packets"):
        analyse([twice, server], str(tmp_path / "trace"))
    assert not (tmp_path / "trace").exists()


def test_a_packet_sent_again_in_the_next_segment_is_no_second_sight_of_the_first(tmp_path: Path) -> None:
    net = Network([Station("client", "10.0.0.1"), Station("server", "10.0.0.2")], NetworkPath(loss=0.02), 5)
    for number in range(20):
        net.connect("client", "server", 40_000 + number, 500, 80_000, at_ns=number * 50_000_000)
    net.run()
    for name, cuts in (("whole", []), ("segments", [n * 20_000_000 for n in range(1, 80)])):
        (tmp_path / name).mkdir()
        hosts = ("client", "server")
        sources = [HostSource(host, tuple(write_segments(net, tmp_path / name, host, cuts))) for host in hosts]
        info = analyse(sources, str(tmp_path / f"{name}.trace"))
        assert [[point.point for point in host.points] for host in info.hosts] == [["client/eth0"], ["server/eth0"]]
    whole, segments = (table(tmp_path / f"{name}.trace", "hops") for name in ("whole", "segments"))
    assert (whole["state"] == "lost").sum() > 20
    assert segments.equals(whole)


@pytest.mark.parametrize("in_memory_bytes", [1 << 30, 1], ids=["in memory", "on disk"])
def test_partitions_change_nothing_but_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory_bytes: int
) -> None:
    sources = captures_of_two(tmp_path, offset_ns=3_000_000)
    analyse(sources, str(tmp_path / "whole"), options=AnalysisOptions(partition_bits=0))
    monkeypatch.setattr(Partitions.__init__, "__defaults__", (in_memory_bytes,))
    monkeypatch.setattr(PartitionCache.__init__, "__defaults__", (None, in_memory_bytes))
    analyse(sources, str(tmp_path / "parts"), options=AnalysisOptions(partition_bits=3, workers=2))
    for name, ids in (("hops", ["connection_id", "exchange_id"]), ("exchanges", ["connection_id", "exchange_id"])):
        whole, parts = (table(tmp_path / trace, name).drop(ids) for trace in ("whole", "parts"))
        assert parts.sort(parts.columns).equals(whole.sort(whole.columns))
    assert table(tmp_path / "parts", "hops")["connection_id"].max() > 1 << 32, "it was in parts"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("twintap-")] == []


def test_troubles_of_many_partitions_add_up_as_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network([Station("client", "10.0.0.1"), Station("server", "10.0.0.2")], NetworkPath(loss=0.02), 5)
    for number in range(20):
        net.connect("client", "server", 40_000 + number, 500, 80_000, at_ns=number * 50_000_000)
    net.run()
    sources = [HostSource(host, tuple(write_segments(net, tmp_path, host, []))) for host in ("client", "server")]
    analyse(sources, str(tmp_path / "whole"), options=AnalysisOptions(partition_bits=0))
    monkeypatch.setattr("collector.analysis.rebuild_stage.SYMPTOMS_AT_ONCE", 2)
    analyse(sources, str(tmp_path / "parts"), options=AnalysisOptions(partition_bits=4))
    ids = ["connection_id", "span_id"]
    whole, parts = (table(tmp_path / trace, "findings").drop(ids) for trace in ("whole", "parts"))
    assert {"packet_loss", "fast_retransmission"} <= set(whole["kind"])
    assert parts.equals(whole)


def test_memory_of_tables_that_were_taken_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    table = pa.table({"a": range(1_000)})
    monkeypatch.setattr(partition_cache, "GIVEN_BACK_BYTES", 2 * table.nbytes)
    with PartitionCache(most_in_memory_bytes=5 * table.nbytes) as cache:
        for number in range(9):
            cache.put(number, table)
        for number in range(9):
            note = partial(given_back.append, number)
            monkeypatch.setattr(partition_cache.memory, "give_back_if_much", note)
            assert cache.take(number)[0].equals(table)
    assert given_back == [1, 3], "those in files take no memory"


def test_a_disk_too_full_for_intermediate_data_is_the_operators(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(ResourceError, match=r"no room for intermediate data in .*absent.*TMPDIR"):
        PartitionCache(absent, 0).put(0, pa.table({"a": [1]}))
    (client, _) = captures_of_two(tmp_path)
    with open_capture(client.files[0]) as reader, pytest.raises(ResourceError, match="no room for intermediate data"):
        Partitions(0, 1, absent, 0).add(0, reader, next(reader.rows()), 0, np.zeros(1, np.uint16))


def test_a_translated_connection_is_one_in_any_partition(tmp_path: Path) -> None:
    client, server = captures_of_two(tmp_path)
    rewritten = server.files[0].read_bytes()
    for address, inner in (("10.0.0.1", "10.9.9.9"),):
        rewritten = rewritten.replace(inet_aton(address), inet_aton(inner))
    server.files[0].write_bytes(rewritten)
    analyse([client, server], str(tmp_path / "trace"), options=AnalysisOptions(partition_bits=4))
    assert set(table(tmp_path / "trace", "hops")["state"]) == {"matched"}
    connections = table(tmp_path / "trace", "connections")
    assert len(connections) == 4
    assert set(connections["translated_client_addr"]) == {"10.9.9.9"}


def test_rotated_files_are_one_point_and_files_of_the_same_time_are_several(tmp_path: Path) -> None:
    client, server = captures_of_two(tmp_path)
    data = client.files[0].read_bytes()
    cut = 24
    for _ in range(9):
        cut += 16 + int.from_bytes(data[cut + 8 : cut + 12], "little")
    first, second = tmp_path / "a.pcap", tmp_path / "b.pcap"
    first.write_bytes(data[:cut])
    second.write_bytes(data[:24] + data[cut:])
    analyse([HostSource("client", (first, second)), server], str(tmp_path / "rotated"))
    analyse([HostSource("client", (client.files[0], first)), server], str(tmp_path / "beside"))
    assert not table(tmp_path / "rotated", "events")["duplicate"].any()
    assert table(tmp_path / "beside", "events")["duplicate"].sum() == 9


def test_captures_without_tcp_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "host.pcap"
    empty.write_bytes(captures_of_two(tmp_path)[0].files[0].read_bytes()[:24])
    with pytest.raises(InputError, match="no TCP packet"):
        analyse([HostSource(None, (empty,))], str(tmp_path / "trace"))
    assert not (tmp_path / "trace").exists()
