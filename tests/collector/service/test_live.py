"""Live analysis: the window, its edges, its rounds, and what it says of itself."""

import errno
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from collector.analysis import AnalysisOptions, analyse
from collector.decode.host_capture import HostSource
from collector.queries import live_error
from collector.service import live
from collector.service.app import create_app
from collector.service.boundary import AnalysisError, contain_failures
from collector.service.ingest import session_status
from collector.service.live import EDGE_NS, GOAL_NS, INTERVAL_NS, LEAST_NS, Counters, LiveAnalysis, choose
from collector.service.settings import CollectorSettings
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.helpers.app_client import AppClient
from tests.helpers.live_segments import keep_only, write_segments
from tracer.errors import InputError

SECOND = 1_000_000_000
HOSTS = ("client", "server")
INCARNATION, LATER = "20261125T225248-0a1b2c", "20261125T225300-ffffff"


def network(loss: float = 0.0) -> Network:
    """Three seconds of requests, some of which last long, on a path whose delay varies; one clock is an hour ahead."""
    stations = [Station("client", "10.0.0.1"), Station("server", "10.0.0.2", Clock(3600 * SECOND))]
    net = Network(stations, NetworkPath(delay_ns=1_000_000, jitter_ns=8_000_000, loss=loss), 7)
    for number in range(40):
        size = 3_000_000 if number < 6 else 60_000
        net.connect("client", "server", 40_000 + number, 2_000, size, at_ns=max(0, number - 6) * 3 * SECOND // 34)
    net.run()
    return net


def window(net: Network, folder: Path) -> list[HostSource]:
    """The middle of the traffic in three segments a host, which are not cut at the same packets."""
    sources = []
    for host, shift in zip(HOSTS, (0, 12_000_000), strict=True):
        first = SECOND // 2 + shift
        keep_only(net, host, first, first + 2 * SECOND)
        files = write_segments(net, folder, host, [first + SECOND // 2, first + 3 * SECOND // 2])
        sources.append(HostSource(host, tuple(files)))
    return sources


def hops_of(trace: Path) -> pl.DataFrame:
    return pl.DataFrame(Trace(str(trace)).read("hops")).with_columns(pl.col(pl.Categorical).cast(pl.String))


def lone(hops: pl.DataFrame) -> pl.DataFrame:
    return hops.filter(pl.col("send_frame").is_null() | pl.col("receive_frame").is_null())


def live_trace(sources: Sequence[HostSource], trace: Path, edge_ns: int = EDGE_NS) -> pl.DataFrame:
    analyse(sources, str(trace), options=AnalysisOptions(workers=1, edge_ns=edge_ns))
    return hops_of(trace)


def test_at_the_windows_edges_nothing_is_lost(tmp_path: Path) -> None:
    sources = window(network(), tmp_path)
    hops = live_trace(sources, tmp_path / "trace")
    assert len(lone(hops)) > 20
    assert set(lone(hops)["state"]) == {"outside_window"}
    connections = Trace(str(tmp_path / "trace")).read("connections", ["client_isn"])
    assert 0 < connections["client_isn"].null_count < len(connections)


def test_without_a_margin_the_edges_would_look_like_trouble(tmp_path: Path) -> None:
    hops = live_trace(window(network(), tmp_path), tmp_path / "trace", edge_ns=0)
    assert {"lost", "capture_dropped"} & set(lone(hops)["state"])


def test_real_loss_is_reported_once_it_is_older_than_the_margin(tmp_path: Path) -> None:
    net = network(loss=0.01)
    sources = window(net, tmp_path)
    hops = live_trace(sources, tmp_path / "trace")
    sent = {(record.host, record.frame): record for host in HOSTS for record in net.records[host] if record.frame}
    lost = {(wire.record.host, wire.record.frame) for wire in net.lost if wire.record.frame}
    first, last = SECOND // 2 + 12_000_000, SECOND // 2 + 2 * SECOND
    old = {key for key in lost if first + 2 * EDGE_NS < sent[key].at_ns < last - 2 * EDGE_NS}
    found = set(hops.filter(pl.col("state") == "lost").select("send_host", "send_frame").rows())
    assert len(old) > 50
    assert old <= found <= lost


@dataclass
class Bench:
    """A collector's live analysis with a clock that moves on request; a round takes `round_ns`."""

    folder: Path
    window_seconds: float = 10
    most_bytes: int = 1 << 30
    now_ns: int = 0
    round_ns: int = 100_000_000
    round_sources: tuple[HostSource, ...] = ()
    once: bool = False
    """Only the first round is a real one."""
    broken: bool = False
    """A stage raises."""
    info: TraceInfo | None = None

    def __post_init__(self) -> None:
        (self.folder / "sessions" / "s").mkdir(parents=True)
        self.live = LiveAnalysis(
            self.folder,
            self.window_seconds,
            self.most_bytes,
            analysis=self.round,
            clock=lambda: self.now_ns,
            wall_clock=lambda: self.now_ns,
        )

    def round(self, sources: Sequence[HostSource], trace: str, _counters: Counters) -> TraceInfo:
        self.now_ns += self.round_ns
        self.round_sources = tuple(sources)
        assert not self.broken, "a stage"
        if self.info is None or not self.once:
            self.info = analyse(sources, trace, options=AnalysisOptions(workers=1, edge_ns=EDGE_NS))
        return self.info

    def numbers(self) -> dict[str, list[int]]:
        """Of the segments in the last round."""
        return {
            source.host or "": [int(path.stem.rsplit("-", 1)[1]) for path in source.files]
            for source in self.round_sources
        }


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Of both hosts, six each, half a second long."""
    net, folder = network(), tmp_path_factory.mktemp("segments")
    return {host: write_segments(net, folder, host, [n * SECOND // 2 for n in range(1, 6)]) for host in HOSTS}


def arrive(bench: Bench, segments: dict[str, list[Path]], *numbers: int, hosts: Sequence[str] = HOSTS) -> None:
    for number in numbers:
        for host in hosts:
            bench.live.note_segment("s", host, INCARNATION, number, segments[host][number - 1])


def test_what_arrives_during_a_round_waits_for_one_next_round(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path)
    assert bench.live.step() is None
    arrive(bench, segments, 1)
    assert bench.live.step() == 0
    arrive(bench, segments, 2, 3)
    assert bench.live.status("s").waiting_count == 4
    assert bench.live.step() == INTERVAL_NS - bench.round_ns, "not before its time"
    bench.now_ns += INTERVAL_NS
    assert bench.live.status("s").behind_seconds == INTERVAL_NS / 1e9
    assert bench.live.step() == 0
    assert bench.live.step() is None
    assert bench.numbers() == {"client": [1, 2, 3], "server": [1, 2, 3]}
    status = bench.live.status("s")
    assert (status.rounds_count, status.slow_rounds_count, status.waiting_count) == (2, 0, 0)
    assert status.last_round_ns == bench.round_ns
    assert status.arrival_lag_ns == INTERVAL_NS + bench.round_ns
    assert status.behind_seconds == 0


def test_a_slow_round_is_counted_and_the_next_takes_everything(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path, round_ns=3 * INTERVAL_NS)
    arrive(bench, segments, 1)
    bench.live.step()
    arrive(bench, segments, 2, 3, 4)
    assert bench.live.step() == 0, "at once"
    status = bench.live.status("s")
    assert (status.rounds_count, status.slow_rounds_count) == (2, 2)
    assert bench.numbers()["client"] == [1, 2, 3, 4]


def test_the_status_says_what_the_window_holds(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path, now_ns=10 * SECOND)
    arrive(bench, segments, 3, 4)
    bench.live.step()
    status = bench.live.status("s")
    trace = tmp_path / "sessions" / "s" / "live"
    assert status.trace == str(trace)
    hops = hops_of(trace)
    counted = dict(hops.group_by("state").len().iter_rows())
    assert {state: count for state, count in status.hop_counts.items() if count} == counted
    assert status.hop_counts["lost"] == 0 < status.hop_counts["outside_window"]
    assert 0 < status.begun_before_count < status.connections_count
    info = Trace(str(trace)).info()
    assert status.packets_count == sum(host.packets_count for host in info.hosts)
    assert status.lag_ns == 10 * SECOND + bench.round_ns - max(host.last_host_ns or 0 for host in info.hosts)
    assert 0.8 * SECOND < status.covered_ns <= SECOND
    assert status.error == ""


def test_the_window_holds_the_newest_seconds(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path, window_seconds=2)
    for number in range(1, 7):
        arrive(bench, segments, number)
        bench.now_ns += SECOND
    bench.live.step()
    assert bench.numbers() == {"client": [4, 5, 6], "server": [4, 5, 6]}


def test_a_window_without_room_is_shorter_and_says_so(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    room = sum(segments[host][number].stat().st_size for host in HOSTS for number in (3, 4, 5))
    bench = Bench(tmp_path, most_bytes=room)
    for number in range(1, 7):
        arrive(bench, segments, number)
        bench.now_ns += SECOND // 10
    bench.live.step()
    assert bench.numbers() == {"client": [4, 5, 6], "server": [4, 5, 6]}
    status = bench.live.status("s")
    assert status.cut_count == 6
    assert status.bytes_count == room


def test_slow_rounds_make_the_window_shorter_and_quick_ones_long_again(
    tmp_path: Path, segments: dict[str, list[Path]]
) -> None:
    bench = Bench(tmp_path, window_seconds=60, round_ns=2 * GOAL_NS, once=True)
    sizes = []
    for number in range(1, 25):
        for host in HOSTS:
            bench.live.note_segment("s", host, INCARNATION, number, segments[host][2])
        bench.now_ns += SECOND
        bench.live.step()
        sizes.append(bench.live.status("s").segments_count)
        if number == 12:
            bench.round_ns = GOAL_NS // 10
    assert max(sizes[4:12]) <= 2 * LEAST_NS // SECOND + 2, "no more than the newest, while rounds are slow"
    assert sizes[-1] > 4 * max(sizes[4:12])


def test_a_cut_window_is_reported_in_its_trace(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    room = segments["client"][4].stat().st_size + segments["server"][4].stat().st_size
    tried = LiveAnalysis(tmp_path, 10, room)
    for number in (4, 5):
        for host in HOSTS:
            tried.note_segment("s", host, INCARNATION, number, segments[host][number - 1])
    assert tried.step() == 0
    counters = Trace(tried.status("s").trace).info().counters
    found = {one.name: (one.severity, one.count) for one in counters}
    assert found["live_window_cut"] == ("data_loss", 2)
    assert found.keys() == {"live_window_cut", "connections_begun_before", "connections_unknown"}


def test_a_hosts_window_begins_anew_after_a_missing_segment(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path)
    arrive(bench, segments, 1, 2, 4, 5, hosts=["server"])
    arrive(bench, segments, 1, 2, 3, 4, 5, hosts=["client"])
    bench.live.step()
    assert bench.numbers() == {"client": [1, 2, 3, 4, 5], "server": [4, 5]}
    status = bench.live.status("s")
    assert status.cut_count == 2
    assert status.hop_counts["lost"] == 0 < status.hop_counts["outside_window"]


@pytest.mark.parametrize(
    ("second_numbers", "expected"), [((1, 2), [1, 2, 3, 1, 2]), ((2, 3), [2, 3])], ids=["whole", "with a hole"]
)
def test_a_restarted_agent_continues_the_window_if_it_is_there_from_its_first_segment(
    second_numbers: Sequence[int], expected: list[int]
) -> None:
    names = [(INCARNATION, number) for number in (1, 2, 3)] + [(LATER, number) for number in second_numbers]
    paths = [Path(f"{name}-{number:06d}.pcapng") for name, number in names]
    arrived = [
        live._Segment("a", name, number, path, 100, at_ns)
        for at_ns, ((name, number), path) in enumerate(zip(names, paths, strict=True))
    ]
    (sequence,) = choose(arrived, 1 << 20)
    assert [int(path.stem[-6:]) for each in sequence for path in each.files] == expected


def test_the_newest_segment_is_taken_however_large(segments: dict[str, list[Path]]) -> None:
    chosen = choose([live._Segment("a", INCARNATION, 1, segments["client"][0], 100, 0)], 10)
    assert [each.files for sequence in chosen for each in sequence] == [(segments["client"][0],)]


def test_a_round_that_fails_says_why_and_the_next_goes_on(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path)
    damaged = tmp_path / "damaged.pcapng"
    damaged.write_bytes(b"no capture at all, but long enough to be one")
    bench.live.note_segment("s", "client", INCARNATION, 9, damaged)
    assert bench.live.step() == 0
    assert str(damaged) in bench.live.status("s").error
    assert not (tmp_path / "sessions" / "s" / "live").exists()
    arrive(bench, segments, 1, 2, hosts=["server"])
    bench.live.note_segment("s", "client", INCARNATION, 11, segments["client"][0])
    bench.now_ns += SECOND
    assert bench.live.step() == 0
    assert bench.live.status("s").error == ""


def test_a_round_that_failed_is_run_again_though_nothing_arrives(
    tmp_path: Path, segments: dict[str, list[Path]]
) -> None:
    bench = Bench(tmp_path, broken=True)
    arrive(bench, segments, 1, 2)
    began_ns, due_in_ns = [], 0
    for _ in range(9):
        bench.now_ns += due_in_ns
        began_ns.append(bench.now_ns)
        assert bench.live.step() == 0
        due_in_ns = bench.live.step() or 0
    pauses = [after - before - bench.round_ns for before, after in pairwise(began_ns)]
    assert pauses == [seconds * SECOND for seconds in (1, 2, 4, 8, 16, 32, 60, 60)]
    bench.broken = False
    bench.now_ns += due_in_ns
    assert bench.live.step() == 0
    status = bench.live.status("s")
    assert (status.error, status.rounds_count, status.failed_rounds_count) == ("", 10, 9)
    assert status.arrival_lag_ns == bench.now_ns, "since the first segment that is in no trace arrived"
    assert bench.live.step() is None, "nothing waits"


def test_what_arrives_after_a_round_that_failed_does_not_wait_for_its_turn(
    tmp_path: Path, segments: dict[str, list[Path]]
) -> None:
    bench = Bench(tmp_path, broken=True)
    arrive(bench, segments, 1)
    assert bench.live.step() == 0
    bench.broken = False
    arrive(bench, segments, 2)
    assert bench.live.step() == INTERVAL_NS - bench.round_ns
    bench.now_ns += INTERVAL_NS - bench.round_ns
    assert bench.live.step() == 0
    assert bench.live.status("s").error == ""
    assert bench.live.step() is None


class CorePanic(BaseException):
    """As a panic of the core comes out of PyO3: no `Exception`."""


@pytest.mark.parametrize(
    "raised", [AssertionError("a stage"), IndexError("\x1b[31m\u202e\nhere"), CorePanic("at a.rs:1")]
)
def test_a_stage_that_raises_ends_neither_the_thread_nor_another_session(
    tmp_path: Path, segments: dict[str, list[Path]], raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ["bad"]

    def analysis(sources: Sequence[HostSource], trace: str, cut_count: int) -> TraceInfo:
        if Path(trace).parent.name in broken:
            raise raised
        return analyse(sources, trace, options=AnalysisOptions(workers=1, edge_ns=EDGE_NS))

    def one_round(number: int) -> dict[str, str]:
        for session in ("bad", "good"):
            (tmp_path / "sessions" / session).mkdir(parents=True, exist_ok=True)
            for host in HOSTS:
                tried.note_segment(session, host, INCARNATION, number, segments[host][number - 1])
        now_ns[0] += SECOND
        while tried.step() == 0:
            pass
        return {session: tried.status(session).error for session in ("bad", "good")}

    now_ns = [0]
    tried = LiveAnalysis(tmp_path, 10, 1 << 30, analysis=analysis, clock=lambda: now_ns[0])
    for number in (1, 2):
        errors = one_round(number)
        assert (errors["good"], tried.status("good").rounds_count) == ("", number)
        assert errors["bad"].startswith(f"the analysis of session bad failed: {type(raised).__name__}")
    broken.clear()
    assert one_round(3) == {"bad": "", "good": ""}
    (message,) = {record.getMessage() for record in caplog.records if record.name == "twintap.collector"}
    assert f"session bad failed: {type(raised).__name__}" in message
    assert message.isprintable()


def test_what_the_system_is_short_of_is_no_defect_of_ours() -> None:
    def without_descriptors() -> None:
        raise OSError(errno.EMFILE, "Failed to open local file 'x'")

    with pytest.raises(AnalysisError) as raised:
        contain_failures("s", without_descriptors)
    assert str(raised.value).startswith("the analysis of session s failed: Too many open files; the captures are kept")
    assert "report this" not in str(raised.value)


def test_a_slow_session_does_not_delay_a_quick_one(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    began, go_on = threading.Event(), threading.Event()
    quick_rounds = threading.Semaphore(0)

    def analysis(sources: Sequence[HostSource], trace: str, cut_count: int) -> TraceInfo:
        if Path(trace).parent.name == "slow":
            began.set()
            assert go_on.wait(60)
        else:
            quick_rounds.release()
        raise InputError("not this time", "none")

    tried = LiveAnalysis(tmp_path, 10, 1 << 30, analysis=analysis)
    tried.start()
    try:
        tried.note_segment("slow", "client", INCARNATION, 1, segments["client"][0])
        assert began.wait(60)
        for number in (1, 2):
            tried.note_segment("quick", "client", INCARNATION, number, segments["client"][number - 1])
            assert quick_rounds.acquire(timeout=60)
        tried.note_segment("slow", "client", INCARNATION, 2, segments["client"][1])
        assert tried.status("slow").rounds_count == 0, "a session is never in two rounds"
    finally:
        go_on.set()
        tried.stop()
    assert tried.status("quick").rounds_count == 2


def test_one_thread_is_left_to_quick_sessions(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path, round_ns=GOAL_NS + 1)
    arrive(bench, segments, 1)
    assert bench.live.step(only_quick=True) == 0, "nothing is known of it yet"
    arrive(bench, segments, 2)
    bench.now_ns += SECOND
    assert bench.live.step(only_quick=True) is None
    bench.round_ns = GOAL_NS
    assert bench.live.step() == 0
    arrive(bench, segments, 3)
    bench.now_ns += SECOND
    assert bench.live.step(only_quick=True) == 0


def test_a_session_that_fails_again_and_again_has_few_lines_in_the_log(
    tmp_path: Path, segments: dict[str, list[Path]], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, broken=True)
    for _ in range(23):
        arrive(bench, segments, 1)
        bench.now_ns += SECOND
        bench.live.step()
    assert bench.live.status("s").failed_rounds_count == 23
    lines = [record.getMessage() for record in caplog.records if record.name == "twintap.collector"]
    assert len(lines) == 2
    assert "a stage" in lines[0]
    assert "times" not in lines[0]
    assert lines[1].endswith("(10 times)")


def test_what_a_stage_raised_is_in_status_and_page(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path)
    arrive(bench, segments, 1, 2)
    bench.live.step()
    trace = bench.live.status("s").trace
    assert live_error(Trace(trace)) == ""
    bench.broken = True
    arrive(bench, segments, 3)
    bench.now_ns += SECOND
    assert bench.live.step() == 0
    assert "session s failed: AssertionError: a stage" in bench.live.status("s").error
    assert live_error(Trace(trace)) == bench.live.status("s").error
    assert Trace(trace).info(), "the trace before it stays"
    bench.broken = False
    arrive(bench, segments, 4)
    bench.now_ns += SECOND
    bench.live.step()
    assert (bench.live.status("s").error, live_error(Trace(trace))) == ("", "")


def test_quiet_sessions_are_forgotten(
    tmp_path: Path, segments: dict[str, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_SESSIONS", 2)
    bench = Bench(tmp_path)
    for session in ("one", "two", "one", "three"):
        bench.live.note_segment(session, "client", INCARNATION, 1, segments["client"][0])
    assert [bench.live.status(name).waiting_count for name in ("one", "two", "three")] == [2, 0, 1]


def test_a_window_of_0_turns_it_off(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    bench = Bench(tmp_path, window_seconds=0)
    bench.live.start()
    arrive(bench, segments, 1)
    status = bench.live.status("s")
    assert (status.running, status.waiting_count, status.window_seconds) == (False, 0, 0)
    bench.live.stop()


def test_segments_are_taken_while_a_round_runs(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait_and_refuse(sources: Sequence[HostSource], trace: str, cut_count: int) -> TraceInfo:
        began.set()
        assert go_on.wait(60)
        raise InputError("not this time", "none")

    tried = LiveAnalysis(tmp_path, 10, 1 << 30, analysis=wait_and_refuse)
    tried.start()
    try:
        tried.note_segment("s", "client", INCARNATION, 1, segments["client"][0])
        assert began.wait(60)
        tried.note_segment("s", "client", INCARNATION, 2, segments["client"][1])
        status = tried.status("s")
        assert (status.running, status.waiting_count, status.rounds_count) == (True, 1, 0)
    finally:
        go_on.set()
        tried.stop()
    assert not tried.status("s").running
    assert "not this time" in tried.status("s").error


def test_what_a_killed_collector_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "sessions" / "s" / ".live.0123abcd.partial"
    left.mkdir(parents=True)
    (left / "hops.parquet").write_bytes(b"half")
    host = tmp_path / "sessions" / "s" / "client"
    host.mkdir()
    assert [found.host for found in session_status(tmp_path, "s").hosts] == ["client"]
    live.clean(tmp_path)
    assert list((tmp_path / "sessions" / "s").iterdir()) == [host]


def put(client: AppClient, host: str, number: int, content: bytes) -> int:
    place = f"/api/sessions/s/hosts/{host}/incarnations/{INCARNATION}/segments/{number}"
    return client.put(
        place, content=content, headers={"X-Content-SHA256": hashlib.sha256(content).hexdigest()}
    ).status_code


def test_the_service_analyses_what_it_takes_in(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    app = create_app(CollectorSettings(tmp_path, live_window_seconds=10))
    client = AppClient(app)
    for host in HOSTS:
        for number in (1, 1, 2):
            put(client, host, number, segments[host][number - 1].read_bytes())
    assert client.get("/api/sessions/s/live").json()["waiting_count"] == 4, "a segment sent again is not new"
    assert app.state.live.step() == 0
    status = client.get("/api/sessions/s/live").json()
    assert status["rounds_count"] == 1
    assert status["hop_counts"]["matched"] > 100
    assert hops_of(Path(status["trace"])).height == sum(status["hop_counts"].values())
    assert [host["host"] for host in client.get("/api/sessions/s").json()["hosts"]] == list(HOSTS)
    assert "/api/sessions/{session}/live" in client.get("/openapi.json").json()["paths"]


def test_no_host_can_take_the_live_traces_place(tmp_path: Path, segments: dict[str, list[Path]]) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path)))
    assert put(client, "live", 1, segments["client"][0].read_bytes()) == 400
    assert (
        client.post(f"/api/sessions/s/hosts/live/incarnations/{INCARNATION}/close", json={"last_number": 1}).status_code
        == 400
    )
    assert not list(tmp_path.rglob("*.pcapng"))
