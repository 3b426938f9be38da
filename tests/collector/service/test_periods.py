"""Sessions are analysed hour by hour as they come: when, of what, in what order, and what stays of it."""

import os
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from collector.analysis import AnalysisOptions
from collector.commands import collect
from collector.decode.host_capture import HostSource
from collector.reporting.report import build_report
from collector.series.making import PeriodMaker
from collector.series.overview import build_overview
from collector.series.series import Entry, Period, Series
from collector.service import periods as periods_module
from collector.service.agents import AgentStatus
from collector.service.app import create_app
from collector.service.periods import (
    ATTEMPTS,
    GRACE_NS,
    LATE_NS,
    PATIENCE_NS,
    PERIOD_LACKS,
    Periods,
    PeriodSettings,
    PeriodState,
    TraceLimits,
    beyond_limits,
)
from collector.service.retention import RetentionLimits, delete_expired, numbers_beyond
from collector.service.settings import CollectorSettings
from collector.service.under_way import UnderWay
from collector.trace.reading import Trace
from testkit.netsim import EPOCH_NS, Network, NetworkPath, Station
from tests.collector.service.test_ingest import INCARNATION
from tests.collector.service.test_retention import segments_at
from tests.helpers.app_client import AppClient
from tracer.errors import InputError, ResourceError
from tracer.segments import incarnation_stem, segment_name

SECOND = 1_000_000_000
MINUTE, TEN = 60 * SECOND, 600 * SECOND
MARGIN = 60 * SECOND
PCAP_HEAD_LEN, RECORD_HEAD_LEN = 24, 16
MINUTES = 32


@dataclass
class Agent:
    """What `Periods` looks at of an agent."""

    session: str
    host: str
    state: str = "capturing"
    last_seen_ns: int = 0
    lag_ns: int = 0
    history: object = None


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 minutes of a client and a server, four requests a minute; none in minutes 12 to 24."""
    net = Network([Station("client", "10.0.0.1"), Station("server", "10.0.0.2")], NetworkPath(), 5)
    for number in range(MINUTES * 4):
        if not 12 <= number // 4 < 24:
            at_ns = number // 4 * MINUTE + number % 4 * 15 * SECOND
            net.connect("client", "server", 20_000 + number, 500, 2_000, at_ns=at_ns)
    net.run(10**15)
    folder = tmp_path_factory.mktemp("captures")
    net.write(folder)
    return folder


class Bench:
    """A collector whose clock is set by hand."""

    def __init__(self, data: Path, captures: Path, **more: Any) -> None:
        self.data, self.captures, self.now_ns = data, captures, EPOCH_NS
        self.agents = [Agent("s1", "client"), Agent("s1", "server")]
        self.delivered = Counter[str]()
        self.settings = PeriodSettings(TEN, **more)
        self.periods = self.collector()

    def collector(self) -> Periods:
        """The work of a collector that starts now."""
        found = cast("Sequence[AgentStatus]", self.agents)
        return Periods(
            self.data, self.settings, AnalysisOptions(), lambda: found, UnderWay(), clock=lambda: self.now_ns
        )

    @property
    def series(self) -> Series:
        return Series(self.data / "series" / "s1")

    def deliver(self, minutes: int, hosts: Sequence[str] = ("client", "server")) -> None:
        """Put all of a host's packets that are not there yet, until that minute, into a segment for each minute."""
        for host in hosts:
            content = (self.captures / f"{'client' if host == 'gone' else host}.pcap").read_bytes()
            folder = self.data / "sessions" / "s1" / host / INCARNATION
            folder.mkdir(parents=True, exist_ok=True)
            while self.delivered[host] < minutes:
                begin = EPOCH_NS + self.delivered[host] * MINUTE
                self.delivered[host] += 1
                if len(part := cut(content, begin, begin + MINUTE)) > PCAP_HEAD_LEN:
                    name = segment_name(incarnation_stem(host, INCARNATION), self.delivered[host])
                    (folder / name).write_bytes(part)
                    os.utime(folder / name, ns=(begin + MINUTE, begin + MINUTE))

    def at(self, minute: float) -> "Bench":
        """Let it be that minute, and let the collector work."""
        self.now_ns = EPOCH_NS + round(minute * MINUTE)
        self.periods.step()
        return self

    def begins(self) -> list[float]:
        """The minutes at which the periods of the series begin that have a trace."""
        return [(entry.from_ns - EPOCH_NS) / MINUTE for entry in self.series.entries() if entry.has_trace]


def cut(content: bytes, from_ns: int, to_ns: int) -> bytes:
    """The packets of a time of a pcap with nanoseconds."""
    found, at = [content[:PCAP_HEAD_LEN]], PCAP_HEAD_LEN
    while at < len(content):
        seconds, fraction, captured_len, _ = struct.unpack_from("<IIII", content, at)
        end = at + RECORD_HEAD_LEN + captured_len
        if from_ns <= seconds * SECOND + fraction < to_ns:
            found.append(content[at:end])
        at = end
    return b"".join(found)


@pytest.fixture
def bench(tmp_path: Path, captures: Path) -> Bench:
    return Bench(tmp_path, captures)


def test_a_period_is_made_when_its_packets_are_there(bench: Bench) -> None:
    bench.deliver(11)
    assert bench.at(11.1).begins() == [], "segments may still come"
    assert bench.periods.status("s1").behind_seconds == 0
    bench.deliver(12)
    assert bench.at(11.2).begins() == [0]
    assert build_report(bench.series.trace_place(bench.series.entries()[0].period)).requests.count == 40
    (made,) = bench.periods.status("s1").periods
    assert (made.name, made.state, made.problem) == ("20270115T080000Z", PeriodState.TRACE, "")
    assert bench.periods.status("s1").next_from_ns == EPOCH_NS + TEN


def test_each_request_is_counted_once_and_empty_periods_are_passed_over(bench: Bench) -> None:
    for minute in range(1, MINUTES + 14):
        bench.deliver(min(minute, MINUTES))
        bench.at(minute + 0.2)
    bench.at(MINUTES + 20)
    assert bench.begins() == [0, 10, 20, 30]
    overview = build_overview(bench.series)
    assert overview.requests_count == (MINUTES - 12) * 4
    assert [line.requests_count for line in overview.lines] == [40, 8, 24, 8]
    assert bench.at(MINUTES + 60).periods.status("s1").behind_seconds == 0, "nothing comes any more"


def test_a_longer_silence_is_no_period(tmp_path: Path, captures: Path) -> None:
    bench = Bench(tmp_path, captures)
    bench.settings = PeriodSettings(5 * MINUTE)
    bench.periods = bench.collector()
    bench.deliver(MINUTES)
    for _ in range(8):
        bench.at(60)
    assert bench.begins() == [0, 5, 10, 20, 25, 30]


def test_packets_of_the_margins_alone_make_no_period(tmp_path: Path, captures: Path) -> None:
    bench = Bench(tmp_path, captures)
    bench.settings = PeriodSettings(6 * MINUTE)  # packets end in minute 11, and begin again in minute 24
    bench.periods = bench.collector()
    bench.deliver(MINUTES)
    for _ in range(8):
        bench.at(60)
    assert bench.begins() == [0, 6, 24, 30]
    assert len(list((bench.data / "series" / "s1").glob("2*"))) == 4


def test_an_agent_that_is_behind_is_waited_for(bench: Bench) -> None:
    bench.deliver(12, ["client"])
    bench.deliver(5, ["server"])
    bench.agents[1].lag_ns = 7 * MINUTE
    assert bench.at(12).begins() == []
    assert bench.periods.status("s1").waits_for == ("server",)
    assert bench.periods.status("s1").behind_seconds == pytest.approx(50)
    bench.deliver(12, ["server"])
    bench.agents[1].lag_ns = 0
    assert bench.at(12.1).begins() == [0]
    assert bench.periods.status("s1").waits_for == ()
    place = bench.series.trace_place(bench.series.entries()[0].period)
    assert PERIOD_LACKS not in {counter.name for counter in Trace(place).info().counters}


@pytest.mark.parametrize("why", ["lag", "silence"])
def test_a_trace_that_lacks_packets_says_so_and_is_made_anew(why: str, bench: Bench) -> None:
    bench.deliver(12, ["client"])
    bench.deliver(5, ["server"])
    late = 11 + (GRACE_NS + PATIENCE_NS) / MINUTE
    bench.agents[1].lag_ns, bench.agents[1].last_seen_ns = (20 * MINUTE, 0) if why == "lag" else (0, 9 * MINUTE)
    bench.at(late - 0.1)
    assert bench.begins() == []
    bench.at(late + 0.1)
    (period,) = [entry.period for entry in bench.series.entries()]
    place = bench.series.trace_place(period)
    lacks = [counter for counter in Trace(place).info().counters if counter.name == PERIOD_LACKS]
    assert [(counter.host, counter.severity) for counter in lacks] == [("server", "data_loss")]
    expected = 20 * MINUTE - (late + 0.1 - 11) * MINUTE if why == "lag" else 0  # it is not known to lack more
    assert lacks[0].count == max(1, round(expected / SECOND))
    before = Trace(place).rows_count("events")
    bench.deliver(12, ["server"])
    bench.agents[1].lag_ns = bench.agents[1].last_seen_ns = 0
    bench.at(late + 0.2)
    assert Trace(place).rows_count("events") > before
    assert not [counter for counter in Trace(place).info().counters if counter.name == PERIOD_LACKS]
    made_ns = Trace(place).info().created_ns
    bench.at(late + 0.3)
    assert Trace(place).info().created_ns == made_ns, "once"


def lacks(bench: Bench) -> list[str | None]:
    """The hosts whose packets the first trace lacks."""
    place = bench.series.trace_place(bench.series.entries()[0].period)
    return [counter.host for counter in Trace(place).info().counters if counter.name == PERIOD_LACKS]


@pytest.fixture
def half(bench: Bench) -> Bench:
    """Its first trace lacks the server's packets, whose agent has been silent for long; it was not waited for."""
    bench.deliver(12, ["client"])
    bench.deliver(5, ["server"])
    bench.agents[1].last_seen_ns = PATIENCE_NS
    assert bench.at(11.2).begins() == [0]
    assert lacks(bench) == ["server"]
    return bench


def come_back(bench: Bench) -> None:
    bench.deliver(12, ["server"])
    bench.agents[1].last_seen_ns = 0


def test_an_agent_that_is_gone_keeps_nothing_for_ever(half: Bench) -> None:
    half.deliver(MINUTES, ["client"])
    for minute in range(30, 40):
        half.at(minute)
    assert half.periods.needed_from_ns("s1") == EPOCH_NS - 2 * MARGIN, "it may come back"
    half.at(11.3 + LATE_NS / MINUTE)
    assert (half.periods.needed_from_ns("s1") or 0) > EPOCH_NS
    come_back(half)
    half.at(11.4 + LATE_NS / MINUTE)
    assert lacks(half) == ["server"], "too late"


def test_a_session_that_is_busy_has_its_trace_made_anew_later(half: Bench) -> None:
    come_back(half)
    assert half.periods._under_way.begin("s1")
    half.at(11.3)
    half.periods._under_way.end("s1")
    half.at(11.4)
    assert lacks(half) == ["server"], "tried again after a minute"
    half.at(12.4)
    assert lacks(half) == []


def test_a_trace_that_could_not_be_made_anew_is_tried_again(half: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ResourceError("no room", "free some")

    come_back(half)
    with monkeypatch.context() as patch:
        patch.setattr("collector.series.making.analyse", refuse)
        half.at(11.3)
    assert half.begins() == [0]
    half.at(12.4)
    assert lacks(half) == []


def test_a_collector_that_starts_again_knows_what_traces_lack(half: Bench) -> None:
    half.periods = half.collector()
    half.at(11.3)
    come_back(half)
    half.at(11.4)
    assert lacks(half) == []


def test_packets_of_an_empty_period_may_come_late(tmp_path: Path, captures: Path) -> None:
    bench = Bench(tmp_path, captures)
    bench.settings = PeriodSettings(5 * MINUTE)
    bench.periods = bench.collector()
    bench.deliver(5)
    bench.delivered = {"client": 24, "server": 24}  # minutes 5 to 9 are nowhere yet, later ones are
    bench.deliver(27)
    bench.agents[1].last_seen_ns = PATIENCE_NS
    for _ in range(6):
        bench.at(31.5)
    assert bench.begins() == [0, 20, 25]
    bench.delivered = {"client": 5, "server": 5}
    bench.deliver(10)
    bench.agents[1].last_seen_ns = 0
    for _ in range(6):
        bench.at(32.5)
    assert bench.begins() == [0, 5, 20, 25]


def test_a_full_disk_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ResourceError("no room", "free some")

    bench.deliver(12)
    with monkeypatch.context() as patch:
        patch.setattr("collector.series.making.analyse", refuse)
        for minute in range(12, 80):
            bench.at(minute)
    assert bench.series.entries() == ()
    for minute in range(80, 90):
        bench.at(minute)
    assert bench.begins() == [0, 10]


def test_a_damaged_trace_does_not_stop_the_others(half: Bench) -> None:
    (Path(half.series.trace_place(half.series.entries()[0].period)) / "trace.json").write_bytes(b"{")
    half.periods = half.collector()
    half.deliver(MINUTES)
    half.agents[1].last_seen_ns = 0
    assert len(half.at(40).begins()) == 2


def test_a_trace_that_was_removed_is_not_made_anew(half: Bench) -> None:
    half.series.remove_trace(half.series.entries()[0].period)
    come_back(half)
    assert half.at(11.4).begins() == []


def test_a_clock_decades_behind_makes_no_million_periods(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.deliver(12)
    folder = bench.data / "sessions" / "s1" / "server" / INCARNATION
    first = min(folder.iterdir())
    content = first.read_bytes()
    head = content[PCAP_HEAD_LEN : PCAP_HEAD_LEN + RECORD_HEAD_LEN]
    packet = content[PCAP_HEAD_LEN + RECORD_HEAD_LEN :][: struct.unpack_from("<I", head, 8)[0]]
    first.write_bytes(content[:PCAP_HEAD_LEN] + struct.pack("<I", 3_600) + head[4:] + packet)
    os.utime(first, ns=(EPOCH_NS, EPOCH_NS))
    looked: list[object] = []
    make = periods_module.PeriodMaker.make
    monkeypatch.setattr(
        periods_module.PeriodMaker, "make", lambda *given, **more: looked.append(given) or make(*given, **more)
    )
    for minute in range(20, 26):
        bench.at(minute)
    assert len(looked) < 160, "a day of ten minutes each, and some"
    assert [entry.from_ns for entry in bench.series.entries()][1:] == [EPOCH_NS, EPOCH_NS + TEN]


def test_an_agent_that_has_ended_and_a_flight_recorder_are_not_waited_for(bench: Bench) -> None:
    bench.deliver(12)
    bench.agents[0].state, bench.agents[0].last_seen_ns = "ended", 20 * MINUTE
    bench.agents[1].history, bench.agents[1].lag_ns = object(), 20 * MINUTE
    assert bench.at(11.3).begins() == [0]


def test_a_collector_that_starts_again_goes_on(bench: Bench) -> None:
    bench.deliver(12)
    bench.at(11.2)
    bench.deliver(MINUTES)
    bench.periods = bench.collector()
    for _ in range(3):
        bench.at(50)
    assert bench.begins() == [0, 10, 20, 30][: len(bench.begins())]
    assert len(bench.begins()) == 4
    assert bench.series.servers() == [("10.0.0.2", 80)]


def test_a_collector_that_starts_again_reads_connections_from_their_beginning(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only of hosts that have something of the period, and only once."""
    made: list[tuple[int, dict[str | None, int]]] = []

    def make(maker: PeriodMaker, period: Period, sources: Sequence[HostSource], **more: Any) -> Entry | None:
        made.append((period.from_ns, {source.host: len(source.files) for source in sources}))
        return real_make(maker, period, sources, **more)

    real_make = PeriodMaker.make
    monkeypatch.setattr(PeriodMaker, "make", make)
    bench.deliver(1, ["gone"])
    bench.deliver(12)
    bench.agents.clear()
    bench.at(11.2)
    assert made == [(EPOCH_NS, {"client": 12, "server": 12, "gone": 1})]
    bench.periods = bench.collector()
    bench.deliver(30)
    bench.at(33).at(33)
    after_restart, later = made[1:]
    assert after_restart == (EPOCH_NS + TEN, {"client": 18, "server": 18})
    assert later[0] == EPOCH_NS + 2 * TEN
    assert later[1].keys() == {"client", "server"}
    assert all(count < 18 for count in later[1].values())


def test_what_cannot_be_made_is_tried_again_then_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(*_: object, **__: object) -> None:
        calls.append(bench.now_ns)
        raise ZeroDivisionError("planted")

    bench.deliver(MINUTES)
    with monkeypatch.context() as patch:
        patch.setattr("collector.series.making.analyse", fail)
        for minute in range(60, 80):
            bench.at(minute)
    assert len(calls) > ATTEMPTS, "the next period goes on"
    assert [calls[n + 1] - calls[n] for n in range(ATTEMPTS - 1)] == [MINUTE, 2 * MINUTE, 4 * MINUTE]
    first = bench.periods.status("s1").periods[0]
    assert first.state is PeriodState.FAILED
    assert "planted" in first.problem
    assert "\n" not in first.problem
    for minute in range(80, 110):
        bench.at(minute)
    assert bench.begins()[-1] == 30
    assert "planted" in build_overview(bench.series).lines[0].problems[0]


def test_a_full_disk_is_a_problem_of_that_session(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ResourceError("no room", "free some")

    bench.deliver(12)
    with monkeypatch.context() as patch:
        patch.setattr("collector.series.making.analyse", refuse)
        bench.at(11.2)
        assert bench.periods.status("s1").problem == "no room; free some"
    assert bench.at(13).begins() == [0]
    assert bench.periods.status("s1").problem == ""


def test_traces_are_removed_and_summaries_stay(tmp_path: Path, captures: Path) -> None:
    bench = Bench(tmp_path, captures, limits=TraceLimits(age_ns=25 * MINUTE))
    bench.deliver(MINUTES)
    for _ in range(5):
        bench.at(44)
    assert bench.begins() == [10, 20, 30]
    assert bench.periods.status("s1").periods[0].state is PeriodState.SUMMARY
    assert build_overview(bench.series).requests_count == (MINUTES - 12) * 4


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (TraceLimits(), []),
        (TraceLimits(age_ns=35), [0]),
        (TraceLimits(age_ns=1), [0, 10, 20]),
        (TraceLimits(size_bytes=250), [0]),
        (TraceLimits(size_bytes=1), [0, 10, 20]),
    ],
)
def test_the_oldest_traces_go_first_and_the_newest_stays(limits: TraceLimits, expected: list[int]) -> None:
    entries = [Entry(begin, begin + 10, 0) for begin in (0, 10, 20)] + [Entry(30, 40, 0)]
    sizes = [100, 50, 100, 100]
    assert [entry.from_ns for entry in beyond_limits(entries, sizes, limits, 50)] == expected


def test_segments_that_a_period_needs_are_not_too_old(bench: Bench) -> None:
    assert bench.periods.needed_from_ns("s1") == 0, "nothing is known yet"
    bench.deliver(12)
    bench.at(11.2)
    needed_ns = bench.periods.needed_from_ns("s1")
    assert needed_ns == EPOCH_NS + TEN - 2 * MARGIN
    some = segments_at((Path("one"), 1, 10), (Path("one"), 2, 20), (Path("one"), 3, 30))
    limits = RetentionLimits(age_ns=1)
    assert numbers_beyond(some, limits, 100, needed_from_ns=20) == {Path("one"): 1}
    assert numbers_beyond(some, limits, 100, needed_from_ns=0) == {}
    assert numbers_beyond(some, RetentionLimits(size_bytes=1), 100, needed_from_ns=0) == {Path("one"): 2}


def test_segments_that_are_deleted_for_their_size_are_said(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.deliver(5)
    delete_expired(bench.data / "sessions" / "s1", RetentionLimits(size_bytes=1), 10**18, needed_from_ns=0)
    assert "8 segments of session s1 were deleted for their size before the trace of their period" in caplog.text
    caplog.clear()
    delete_expired(bench.data / "sessions" / "s1", RetentionLimits(size_bytes=1), 10**18, needed_from_ns=10**19)
    assert not caplog.text


def test_only_the_collector_that_does_the_chores_makes_periods(bench: Bench) -> None:
    bench.deliver(12)
    bench.periods = Periods(
        bench.data, bench.settings, AnalysisOptions(), list, UnderWay(), lambda: bench.now_ns, may_work=lambda: False
    )
    bench.at(20)
    assert not (bench.data / "series").exists()


def test_a_session_that_is_deleted_takes_its_series_along(bench: Bench) -> None:
    bench.deliver(12)
    bench.at(11.2)
    client = AppClient(create_app(CollectorSettings(bench.data, periods=bench.settings)))
    found = client.get("/api/sessions/s1/periods").json()
    assert [each["state"] for each in found["periods"]] == ["trace"]
    assert found["series"].endswith("series/s1")
    (short,) = client.get("/api/series").json()
    assert (short["session"], short["traces_count"], short["summaries_count"]) == ("s1", 1, 0)
    assert short["newest_from_ns"] == EPOCH_NS
    assert client.get("/api/sessions/other/periods").json()["periods"] == []
    metrics = client.get("/metrics").text
    assert 'twintap_collector_periods_behind_seconds{session="s1"} 0.0' in metrics
    assert 'twintap_collector_periods{session="s1",state="trace"} 1.0' in metrics
    (bench.series.place / "series.json").write_bytes(b"{")
    assert "is damaged" in client.get("/api/series").json()[0]["problem"]
    assert client.get("/metrics").status_code == 200
    assert client.request("DELETE", "/api/sessions/s1").status_code == 204
    assert not (bench.data / "series" / "s1").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--period", "7m"], "does not divide a day"),
        (["--period", "soon"], "is no length of a period"),
        (["--keep-traces-hours", "3"], "give --period, too"),
    ],
)
def test_options_that_do_not_fit(options: list[str], words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(collect.command, ["--data", str(tmp_path), *options])
    assert isinstance(result.exception, InputError)
    assert words in f"{result.exception}; {result.exception.next_step}"


def test_margins_are_those_of_the_analysis() -> None:
    assert periods_module.MARGIN_NS == MARGIN
