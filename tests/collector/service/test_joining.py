"""Segments are joined as they age: nothing is lost, doubled or counted otherwise, whatever happens meanwhile."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import polars as pl
import pytest
import zstandard

from collector.analysis import AnalysisOptions, analyse
from collector.capture_files.joined import file_runs, find_joined, parse_name
from collector.capture_files.readers import open_capture
from collector.capture_files.stored import StoredFile, stored_files
from collector.decode.host_capture import HostSource
from collector.decode.incarnations import host_sources, sequences, stored_incarnations
from collector.service.app import create_app
from collector.service.joining import (
    MOST_BYTES,
    SPAN_NS,
    Joining,
    copy_segments,
    groups_to_join,
    join_segments,
)
from collector.service.live import Counters
from collector.service.retention import Retention, RetentionLimits
from collector.service.settings import CollectorSettings
from collector.service.under_way import UnderWay
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from testkit import capture_files
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.collector.service.test_ingest import INCARNATION, SEGMENT, file_of, files, put
from tests.helpers.app_client import AppClient
from tests.helpers.live_segments import write_segments
from tracer.errors import InputError
from tracer.segments import segment_name

SECOND = 1_000_000_000
OLD = 10**18


def segment_at(number: int, arrived_ns: int, size_bytes: int = 1, *, is_joined: bool = False) -> StoredFile:
    return StoredFile(Path(str(number)), size_bytes, ((number, number),), arrived_ns, arrived_ns, is_joined)


@pytest.mark.parametrize(
    ("found", "before_ns", "expected"),
    [
        ([], OLD, []),
        ([segment_at(1, 0)], OLD, []),
        ([segment_at(1, 0), segment_at(2, 1)], SPAN_NS, []),
        ([segment_at(1, 0), segment_at(2, 1)], SPAN_NS + 1, [[1, 2]]),
        ([segment_at(1, 0), segment_at(2, SPAN_NS), segment_at(3, SPAN_NS + 1)], SPAN_NS + 1, [[1, 2]]),
        ([segment_at(1, 0), segment_at(2, 1, MOST_BYTES - 1), segment_at(3, 2)], 2, [[1, 2]]),
        ([segment_at(1, 0), segment_at(2, 1, MOST_BYTES)], 2, []),
        ([segment_at(1, 0), segment_at(5, 1), segment_at(9, OLD)], SPAN_NS + 1, [[1, 5]]),
        (
            [segment_at(1, 0), segment_at(2, 0), segment_at(3, 0, is_joined=True), segment_at(4, 0), segment_at(5, 0)],
            OLD,
            [[1, 2], [4, 5]],
        ),
        ([segment_at(1, 0), segment_at(2, 0, is_joined=True), segment_at(3, 0)], OLD, []),
    ],
)
def test_a_group_is_joined_when_nothing_can_be_added(
    found: list[StoredFile], before_ns: int, expected: list[list[int]]
) -> None:
    assert [[each.last for each in group] for group in groups_to_join(found, before_ns)] == expected


class Bench:
    """A collector whose segments arrived long ago, at the times of their numbers."""

    def __init__(self, data: Path) -> None:
        self.data, self.analysing = data, UnderWay()
        self.client = AppClient(create_app(CollectorSettings(data)))
        self.folder = data / "sessions" / "s1" / "proxy" / INCARNATION
        self.joining = Joining(data / "sessions", 10, self.analysing.keep_out, lambda: OLD)

    def send(self, *numbers: int, content: bytes = SEGMENT) -> None:
        for number in numbers:
            put(self.client, number, content + b"%d" % number)
            os.utime(self.data / file_of(number), ns=(number * SECOND, number * SECOND))

    def status(self) -> dict[str, object]:
        (host,) = self.client.get("/api/sessions/s1").json()["hosts"]
        return {key: value for key, value in host["incarnations"][0].items() if key != "bytes_count"}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def joined_names(bench: Bench) -> list[str]:
    return [path.name.removeprefix(f"proxy-{INCARNATION}-") for path in sorted(bench.folder.iterdir())]


def test_old_segments_become_one_file_and_count_as_before(bench: Bench) -> None:
    bench.send(1, 2, 3, 5)
    before = bench.status()
    assert bench.joining.step() == 4
    assert joined_names(bench) == ["000001-000005.pcapng.zst"]
    assert bench.status() == before
    assert (before["segments_count"], before["missing"]) == (4, [4])
    assert bench.joining.step() == 0


def test_other_programs_read_a_joined_file(bench: Bench) -> None:
    bench.send(1, 2)
    bench.joining.step()
    (path,) = bench.folder.iterdir()
    with path.open("rb") as file:
        content = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    assert content == SEGMENT + b"1" + SEGMENT + b"2"
    assert path.stat().st_mtime_ns == 2 * SECOND


def test_the_newest_are_left_alone(bench: Bench) -> None:
    bench.send(1, 2)
    joining = Joining(bench.data / "sessions", 10, bench.analysing.keep_out, lambda: SPAN_NS + 131 * SECOND)
    assert joining.step() == 0


def test_a_killed_collector_counts_nothing_twice(bench: Bench) -> None:
    bench.send(1, 2, 3)
    before, sizes = bench.status(), len(files(bench.data))
    copies = [(path, path.read_bytes()) for path in bench.folder.iterdir()]
    bench.joining.step()
    for path, content in copies:
        path.write_bytes(content)
    assert len(files(bench.data)) == sizes + 1
    assert bench.status() == before
    assert [each.count for each in stored_files(bench.folder)] == [3]
    bench.joining.step()
    assert joined_names(bench) == ["000001-000003.pcapng.zst"]


def test_a_session_that_is_being_analysed_keeps_its_files_until_then(bench: Bench) -> None:
    bench.send(1, 2)
    bench.analysing.begin("s1")
    bench.joining.step()
    assert len(joined_names(bench)) == 3
    bench.analysing.end("s1")
    bench.joining.step()
    assert joined_names(bench) == ["000001-000002.pcapng.zst"]


def test_a_segment_sent_again_is_known_though_it_was_joined(bench: Bench) -> None:
    bench.send(1, 2, 4)
    bench.joining.step()
    assert put(bench.client, 2, SEGMENT + b"2").json()["outcome"] == "known"
    assert put(bench.client, 2, SEGMENT + b"other").json()["outcome"] == "conflict"
    assert put(bench.client, 3, SEGMENT + b"3").json()["outcome"] == "stored"
    assert bench.status()["missing_count"] == 0


def test_a_full_disk_delays_joining(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.send(1, 2)
    before = bench.status(), joined_names(bench)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        assert bench.joining.step() == 0
    assert (bench.status(), joined_names(bench)) == before
    with monkeypatch.context() as patch:
        patch.setattr("collector.service.joining.ROOM_BYTES", 1 << 62)
        assert bench.joining.step() == 0
    assert bench.joining.step() == 2


def test_captures_that_were_begun_anew_are_not_joined_with_those_before(bench: Bench) -> None:
    for number, since in ((1, 5), (2, 5), (3, 7), (4, 7)):
        comment = (1, b"twintap.since=%d" % since)
        bench.send(number, content=capture_files.section(pairs=(comment,)))
    bench.joining.step()
    assert joined_names(bench) == ["000001-000002.pcapng.zst", "000003-000004.pcapng.zst"]


def test_a_joined_file_expires_with_its_last_segment(bench: Bench) -> None:
    bench.send(1, 2)
    bench.joining.step()
    bench.send(3, 4)
    limits = RetentionLimits(age_ns=10 * SECOND)
    for now_s, expected in ((12, 0), (13, 2)):
        retention = Retention(bench.data / "sessions", limits, UnderWay().keep_out, lambda at=now_s: at * SECOND)
        assert retention.step() == expected
    assert joined_names(bench)[1:] == ["000003.pcapng", "000004.pcapng"]
    assert (bench.status()["expired_count"], bench.status()["missing_count"]) == (2, 0)


def test_a_damaged_joined_file_is_missing_and_stops_nothing(bench: Bench) -> None:
    bench.send(1, 2)
    bench.joining.step()
    (path,) = bench.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    bench.send(3)
    assert bench.status()["missing"] == [1, 2]
    with pytest.raises(InputError, match="has no index"):
        file_runs(path)


def test_a_part_of_a_joined_file_is_copied(bench: Bench) -> None:
    bench.send(1, 2, 3, 5, 6)
    bench.joining.step()
    bench.send(7)
    target = bench.data / "sessions" / "w1" / "proxy" / INCARNATION
    assert copy_segments(bench.folder, target, 2 * SECOND, 5 * SECOND) == (5, 3)
    (part,) = stored_files(target)
    assert (part.runs, part.first_ns, part.last_ns) == (((2, 3), (5, 5)), 2 * SECOND, 5 * SECOND)
    assert copy_segments(bench.folder, target, 0, OLD) == (7, 6)
    assert copy_segments(bench.folder, target, 8 * SECOND, OLD) == (0, 0)


def test_names() -> None:
    name = f"a-b-{INCARNATION}-000007.pcapng"
    for text, expected in (
        (name, (7, 7, False)),
        (name.replace(".pcapng", "-000012.pcapng.zst"), (7, 12, True)),
        (name.replace(".pcapng", "-000012.pcapng.zst#8-9"), (8, 9, True)),
    ):
        found = parse_name(text)
        assert found is not None
        assert (found.stem, found.first, found.last, found.is_joined) == (f"a-b-{INCARNATION}", *expected)
    assert parse_name(name + ".zst") is None
    assert parse_name("a-000001.pcapng") is None


def traffic(folder: Path) -> Path:
    """The folder of a session: two hosts, each in eight segments of which the fourth is not there at the server."""
    stations = [Station("client", "10.0.0.1"), Station("server", "10.0.0.2", Clock(3600 * SECOND))]
    net = Network(stations, NetworkPath(delay_ns=1_000_000, jitter_ns=100_000, loss=0.01), 7)
    for number in range(40):
        net.connect("client", "server", 40_000 + number, 2_000, 20_000, at_ns=number * SECOND // 10)
    net.run()
    for host in stations:
        place = folder / "s1" / host.name / INCARNATION
        place.mkdir(parents=True)
        for number, path in enumerate(
            write_segments(net, folder, host.name, [n * SECOND // 2 for n in range(1, 8)]), 1
        ):
            target = place / segment_name(f"{host.name}-{INCARNATION}", number)
            path.rename(target)
            os.utime(target, ns=(number * SECOND, number * SECOND))
    (place / segment_name(f"server-{INCARNATION}", 4)).unlink()
    return folder / "s1"


def hops_of(session: Path, trace: Path, from_ns: int = 0, to_ns: int = OLD) -> pl.DataFrame:
    sources = host_sources(sequences(stored_incarnations(session, from_ns=from_ns, to_ns=to_ns)))
    analyse(sources, str(trace), options=AnalysisOptions(workers=1))
    return pl.DataFrame(Trace(str(trace)).read("hops")).with_columns(pl.col(pl.Categorical).cast(pl.String))


def test_a_trace_of_joined_segments_is_the_same_also_around_a_missing_one(tmp_path: Path) -> None:
    session = traffic(tmp_path)
    expected = hops_of(session, tmp_path / "before")
    late = hops_of(session, tmp_path / "late", 5 * SECOND, 7 * SECOND)
    assert {"matched", "lost", "outside_window"} <= set(expected["state"])
    for host in ("client", "server"):
        assert join_segments(session / host / INCARNATION, OLD, nullcontext(True)) == (8 if host == "client" else 7)
    names = [path.name.rpartition("-2")[2] for each in stored_incarnations(session) for path in each.files]
    assert [name.partition("pcapng.zst")[2] for name in names] == ["", "#1-3", "#5-8"]
    assert hops_of(session, tmp_path / "after").equals(expected)
    assert hops_of(session, tmp_path / "late-after", 5 * SECOND, 7 * SECOND).equals(late)
    assert 0 < len(late) < len(expected)


def test_only_the_run_of_a_joined_file_is_read_and_a_joined_segment_is_found(tmp_path: Path) -> None:
    folder = traffic(tmp_path) / "client" / INCARNATION
    alone = sorted(folder.iterdir())[4]
    with open_capture(alone) as reader:
        expected = [batch.events["host_ns"].tolist() for batch in reader.batches()]
    join_segments(folder, OLD, nullcontext(True))
    assert not alone.exists()
    found = find_joined(alone)
    assert found is not None
    with open_capture(found) as reader:
        assert [batch.events["host_ns"].tolist() for batch in reader.batches()] == expected
        assert 0 < reader.bytes_read < found.with_name(found.name.partition("#")[0]).stat().st_size / 4
    with pytest.raises(InputError, match="does not hold the segments 91-92"):
        open_capture(found.with_name(found.name.replace("#5-5", "#91-92")))


@contextmanager
def busy() -> Iterator[bool]:
    yield False


def test_what_is_there_twice_is_read_once(tmp_path: Path) -> None:
    session = traffic(tmp_path)
    expected = hops_of(session, tmp_path / "before")
    for host in ("client", "server"):
        join_segments(session / host / INCARNATION, OLD, busy())
    assert hops_of(session, tmp_path / "after").equals(expected)


def test_a_time_of_a_session_is_analysed_from_the_segments_that_arrived_then(bench: Bench) -> None:
    bench.send(1, 2, 3, 5)
    bench.joining.step()
    made = []

    def note(sources: Sequence[HostSource], trace: str, counters: Counters) -> TraceInfo:
        made.append([file.name.partition("zst")[2] for source in sources for file in source.files])
        return TraceInfo(1, "test", ())

    client = AppClient(create_app(CollectorSettings(bench.data), note))
    place = "/api/sessions/s1/analyse"
    assert client.post(f"{place}?from_ns={2 * SECOND}&to_ns={5 * SECOND}").status_code == 200
    assert client.post(place).status_code == 200
    assert made == [["#2-3", "#5-5"], ["#1-3", "#5-5"]]
    assert client.post(f"{place}?from_ns={6 * SECOND}").status_code == 404
