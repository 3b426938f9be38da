"""Windows at the collector: gathered from recorders and from what arrived, kept, and honest about who gave nothing."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.decode.host_capture import HostSource
from collector.service.app import create_app
from collector.service.joining import Joining
from collector.service.live import Counters
from collector.service.retention import Retention, RetentionLimits
from collector.service.settings import CollectorSettings
from collector.service.under_way import UnderWay
from collector.service.windows import (
    FIRST_NS,
    LATE_NS,
    LOOK_AT_AGENT,
    NOT_OVER,
    ONLY,
    PART_MISSING,
    RAISE_KEEP,
    SILENT_NS,
    WAIT,
    PartState,
    WindowState,
)
from collector.trace.model import TraceInfo
from tests.collector.service.test_agents import report
from tests.collector.service.test_ingest import INCARNATION, LATER, put
from tests.helpers.app_client import AppClient
from tests.tracer.test_connection_choice import SERVER, ethernet, frames_of, segment_of, tcp

SECOND = 1_000_000_000
START = 1_795_647_180 * SECOND
HISTORY = {"to_ns": START, "segments_count": 1, "size_bytes": 1, "limit_bytes": 1}

NO_TIME = "a window must end after its beginning, and be a day at most; give other times"


class Bench:
    """A collector whose clock is set by hand, and whose analyses are noted."""

    def __init__(self, data: Path) -> None:
        self.data, self.now_ns = data, START
        self.made: list[tuple[list[str], Counters]] = []
        self.client = AppClient(create_app(CollectorSettings(data), self.analyse))
        state = self.client.app.state
        state.clock = state.windows._clock = state.agents._clock = lambda: self.now_ns
        self.windows = state.windows

    def analyse(self, sources: Sequence[HostSource], trace: str, counters: Counters) -> TraceInfo:
        self.made.append(([file.name for source in sources for file in source.files], counters))
        return TraceInfo(1, "test", ())

    def report(self, host: str, history: bool = True, limit_bytes: int = 1, **changes: Any) -> list[dict[str, Any]]:
        """An agent's report; the windows that the answer asks for."""
        kept = HISTORY | {"from_ns": START - 3600 * SECOND, "limit_bytes": limit_bytes} if history else None
        body = report(history=kept, **changes).model_dump(mode="json")
        place = f"/api/sessions/s1/hosts/{host}/incarnations/{INCARNATION}/report"
        found: list[dict[str, Any]] = self.client.post(place, json=body).json()["windows"]
        return found

    def ask(self, **wish: Any) -> Any:
        return self.client.post("/api/sessions/s1/windows", json=wish).json()

    def part(self, host: str) -> tuple[str, str]:
        part = self.client.get("/api/windows").json()[0]["parts"][host]
        return part["state"], part["detail"]

    def next_step(self, host: str) -> str:
        """What is said to do about a host's part of the last window."""
        step: str = self.client.get("/api/windows").json()[0]["parts"][host]["next_step"]
        return step

    def send(self, window: str, host: str, number: int = 5) -> None:
        put(self.client, number, session=window, host=host)
        closing = {"last_number": number}
        self.client.post(f"/api/sessions/{window}/hosts/{host}/incarnations/{INCARNATION}/close", json=closing)


def answer(window: str, has_from_ns: int = START - 3600 * SECOND, count: int = 1) -> dict[str, Any]:
    incarnations = (INCARNATION,) if count else ()
    return {
        "window": window,
        "complete": True,
        "has_from_ns": has_from_ns,
        "segments_count": count,
        "bytes_count": 1,
        "incarnations": incarnations,
    }


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_recorders_are_asked_in_the_answers_to_their_reports_until_they_have_answered(bench: Bench) -> None:
    assert bench.report("web1") == []
    made = bench.ask(last_seconds=60)
    expected = [{"window": made["window"], "from_ns": START - 60 * SECOND, "to_ns": START, "only": ""}]
    assert bench.report("web1") == expected
    assert bench.report("other") == [], "it was not there when the window was opened"
    bench.send(made["window"], "web1")
    assert bench.report("web1", windows=(answer(made["window"]),)) == expected
    bench.windows.step()
    assert bench.part("web1") == ("here", "1 segments")
    assert bench.report("web1") == []
    (files, counters), *others = bench.made
    assert (len(files), counters, others) == (1, (), [])
    assert bench.client.get(f"/api/windows/{made['window']}").json()["state"] == "ready"


def test_numbers_that_a_recorder_kept_are_not_missing(bench: Bench) -> None:
    bench.report("web1")
    window = bench.ask(last_seconds=60)["window"]
    bench.send(window, "web1", 4711)
    put(bench.client, 12, host="web1")
    sessions = bench.client.get("/api/sessions").json()
    assert [(each["session"], each["hosts"][0]["missing_count"]) for each in sessions] == [("s1", 0), (window, 0)]


def test_each_host_that_gives_less_than_its_part_is_said(bench: Bench) -> None:
    for host in ("short", "empty", "dead", "quiet"):
        bench.report(host)
    window = bench.ask(from_ns=START - 60 * SECOND, to_ns=START)["window"]
    bench.send(window, "short")
    bench.now_ns += SILENT_NS + SECOND
    bench.report("short", windows=(answer(window, START - 20 * SECOND),))
    bench.report("empty", windows=(answer(window, START + 5 * SECOND, 0),))
    bench.report("quiet", windows=(answer(window, count=0),))
    bench.windows.step()
    assert bench.part("short") == ("partial", "its history is too short: it has packets from 22:52:40 UTC")
    assert bench.part("empty") == ("missing", "its history is too short: it has packets from 22:53:05 UTC")
    assert bench.part("dead") == ("missing", "silent for 11 s")
    assert bench.part("quiet") == ("here", "no packets in that time")
    (_, counters), *_ = bench.made
    found = {(each.host, each.name, each.count) for each in counters}
    assert found == {(host, PART_MISSING, count) for host, count in (("short", 40), ("empty", 60), ("dead", 60))}
    steps = {host: bench.next_step(host) for host in ("short", "dead", "quiet")}
    assert steps == {"short": RAISE_KEEP, "dead": LOOK_AT_AGENT, "quiet": ""}
    assert {each.remedy.rpartition("; ")[2] for each in counters} == {RAISE_KEEP, LOOK_AT_AGENT}


def test_a_history_that_began_later_is_not_too_short(bench: Bench) -> None:
    bench.report("new", limit_bytes=10)
    window = bench.ask(from_ns=START - 60 * SECOND, to_ns=START)["window"]
    bench.send(window, "new")
    bench.report("new", windows=(answer(window, START - 20 * SECOND),), limit_bytes=10)
    bench.windows.step()
    assert bench.part("new") == ("partial", "its history begins with packets from 22:52:40 UTC")
    assert bench.next_step("new") == WAIT


def test_a_host_that_comes_back_gives_its_part_late(bench: Bench) -> None:
    bench.report("dead")
    window = bench.ask(last_seconds=5)["window"]
    bench.now_ns += SILENT_NS + SECOND
    bench.windows.step()
    assert bench.part("dead")[0] == "missing"
    assert len(bench.report("dead")) == 1
    bench.send(window, "dead")
    bench.report("dead", windows=(answer(window),))
    bench.windows.step()
    bench.windows.step()
    assert bench.part("dead")[0] == "here"
    assert [len(files) for files, _ in bench.made] == [1]
    found = bench.windows.get(window)
    assert (found.state, found.problem) == (WindowState.READY, "")


def test_a_host_that_stays_away_is_asked_for_an_hour(bench: Bench) -> None:
    bench.report("dead")
    bench.ask(last_seconds=5)
    bench.now_ns += LATE_NS - 1
    assert len(bench.report("dead")) == 1
    bench.now_ns += 1
    assert bench.report("dead") == []


def test_of_a_host_that_sends_all_the_time_is_linked(bench: Bench, tmp_path: Path) -> None:
    bench.report("db1", history=False)
    for number, at in enumerate((-30, -9, -1, 2, 9), 1):
        put(bench.client, number, host="db1")
        path = tmp_path / f"sessions/s1/db1/{INCARNATION}/db1-{INCARNATION}-{number:06d}.pcapng"
        os.utime(path, ns=(START + at * SECOND,) * 2)
    window = bench.ask(last_seconds=10)["window"]
    assert bench.report("db1", history=False) == [], "it is not asked: it sends all"
    bench.windows.step()
    assert bench.part("db1")[0] == "waiting", "what was sent in that time may still be on its way"
    bench.now_ns += 4 * SECOND
    bench.windows.step()
    assert bench.part("db1") == ("here", "3 segments")
    ((files, _),) = bench.made
    assert [name[-13:-7] for name in files] == ["000002", "000003", "000004"]
    assert bench.client.get(f"/api/sessions/{window}").json()["hosts"][0]["missing_count"] == 0


def test_a_full_disk_delays_a_window_and_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.report("db1", history=False)
    put(bench.client, 1, host="db1")
    path = next(bench.data.glob("sessions/s1/db1/*/*.pcapng"))
    os.utime(path, ns=(START - SECOND,) * 2)
    bench.ask(last_seconds=10)
    bench.now_ns += 4 * SECOND

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("collector.service.joining.link_file", refuse)
        bench.windows.step()
    (window,) = bench.client.get("/api/windows").json()
    assert window["state"] == "gathering" and "No space left" in window["problem"]
    bench.windows.step()
    (window,) = bench.client.get("/api/windows").json()
    assert (window["state"], window["problem"]) == ("ready", "")


def test_a_window_is_not_deleted_by_retention_and_survives_a_restart(bench: Bench, tmp_path: Path) -> None:
    bench.report("web1")
    window = bench.ask(last_seconds=60)["window"]
    for number in (1, 2, 3):
        put(bench.client, number, session=window, host="web1")
        put(bench.client, number, host="web1")
    retention = Retention(tmp_path / "sessions", RetentionLimits(size_bytes=0), UnderWay().keep_out)
    assert retention.step() == 2, "of the session itself all but the newest"
    again = Bench(tmp_path)
    assert again.report("web1")[0]["window"] == window
    assert again.client.request("DELETE", f"/api/sessions/{window}").status_code == 204
    assert again.client.get("/api/windows").json() == []
    assert again.report("web1") == []


@pytest.mark.parametrize(
    ("wish", "detail"),
    [
        ({}, "which time is not said; give from_ns and to_ns, last_seconds, or request"),
        ({"from_ns": 5, "to_ns": 5}, NO_TIME),
        ({"from_ns": 5, "to_ns": START}, NO_TIME),
        ({"request": "tx1"}, "no request tx1 is in the traces of session s1; recorders send a sample only: give the "
         "time instead, from the client's log"),
    ],
)  # fmt: skip
def test_what_is_no_window_is_refused(bench: Bench, wish: dict[str, Any], detail: str) -> None:
    bench.report("web1")
    assert bench.ask(**wish) == {"detail": detail}
    assert bench.windows.all() == []


def test_a_session_of_which_nothing_is_known_has_no_windows(bench: Bench) -> None:
    assert bench.ask(last_seconds=5)["detail"] == "no agent reports for session s1; GET /api/agents lists them"


def test_windows_want_the_token(tmp_path: Path) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path, token="right")))
    assert client.post("/api/sessions/s1/windows", json={"last_seconds": 5}).status_code == 401
    assert client.get("/api/windows").status_code == 401


def test_the_second_window_of_a_second_has_a_name_of_its_own(bench: Bench) -> None:
    bench.report("web1")
    names = [bench.ask(last_seconds=5)["window"] for _ in range(3)]
    assert names == [f"s1-20261125T225300{end}" for end in ("", "-2", "-3")]
    assert PartState.WAITING in {part.state for part in bench.windows.get(names[0]).parts.values()}


def test_an_incarnation_in_an_answer_is_one(bench: Bench) -> None:
    body = report(windows=()).model_dump(mode="json") | {"windows": [answer("w") | {"incarnations": ["../.."]}]}
    place = f"/api/sessions/s1/hosts/h/incarnations/{LATER}/report"
    assert bench.client.post(place, json=body).status_code == 422


def test_a_window_that_goes_on_gets_a_first_trace_of_what_was_there(bench: Bench) -> None:
    for host in ("web1", "web2"):
        bench.report(host)
    window = bench.ask(from_ns=START - 30 * SECOND, to_ns=START + 10 * SECOND)["window"]
    bench.now_ns += 2 * SECOND
    not_over = answer(window) | {"complete": False}
    for host in ("web1", "web2"):
        bench.windows.step()
        assert bench.made == []
        put(bench.client, 5, session=window, host=host)
        bench.report(host, windows=(not_over,))
    bench.windows.step()
    bench.windows.step()
    (files, counters), *others = bench.made
    assert (len(files), others) == (2, [])
    assert [(each.name, each.count) for each in counters] == [(NOT_OVER, 8)]
    found = bench.client.get(f"/api/windows/{window}").json()
    assert (found["state"], found["first_ns"]) == ("gathering", START + 2 * SECOND)
    assert Bench(bench.data).windows.get(window).first_ns == START + 2 * SECOND
    bench.now_ns += 12 * SECOND
    for host in ("web1", "web2"):
        bench.send(window, host, 6)
        bench.report(host, windows=(answer(window, count=2),))
    bench.windows.step()
    assert [(len(files), counters) for files, counters in bench.made[1:]] == [(4, ())]
    assert bench.client.get(f"/api/windows/{window}").json()["state"] == "ready"


@pytest.mark.parametrize(("sent", "made_count"), [(("web1",), 1), ((), 0)])
def test_a_first_trace_does_not_wait_for_a_host_that_says_nothing(
    bench: Bench, sent: Sequence[str], made_count: int
) -> None:
    for host in ("web1", "web2"):
        bench.report(host)
    window = bench.ask(from_ns=START - 30 * SECOND, to_ns=START + 10 * SECOND)["window"]
    for host in sent:
        put(bench.client, 5, session=window, host=host)
    for after_ns, expected in ((FIRST_NS - 1, 0), (FIRST_NS, made_count), (FIRST_NS + SECOND, made_count)):
        bench.now_ns = START + after_ns
        bench.windows.step()
        assert len(bench.made) == expected


def test_of_hosts_that_send_all_a_first_trace_has_what_arrived(bench: Bench) -> None:
    bench.report("db1", history=False)
    put(bench.client, 1, host="db1")
    path = next(bench.data.glob("sessions/s1/db1/*/*.pcapng"))
    os.utime(path, ns=(START - SECOND,) * 2)
    bench.ask(from_ns=START - 30 * SECOND, to_ns=START + 10 * SECOND)
    bench.now_ns += FIRST_NS
    bench.windows.step()
    assert [len(files) for files, _ in bench.made] == [1]
    bench.now_ns += 9 * SECOND
    bench.windows.step()
    assert [len(files) for files, _ in bench.made] == [1, 1]


@pytest.mark.parametrize("are_joined", [False, True])
def test_of_a_host_that_sends_all_a_window_of_connections_has_their_packets(bench: Bench, are_joined: bool) -> None:
    bench.report("db1", history=False)
    chosen, other = ((ethernet(tcp((f"10.0.0.{n}", 5), SERVER, b"id: req-000828" * (n == 1)))) for n in (1, 2))
    contents = (segment_of(other, chosen), segment_of(other), segment_of(other, ethernet(tcp(SERVER, ("10.0.0.1", 5)))))
    for number, content in enumerate(contents, 1):
        put(bench.client, number, content, host="db1")
        path = next(bench.data.glob(f"sessions/s1/db1/*/*{number}.pcapng"))
        os.utime(path, ns=(START + number - 5 * SECOND,) * 2)
    if are_joined:
        joining = Joining(bench.data / "sessions", 0, UnderWay().keep_out, lambda: START + 3600 * SECOND)
        assert joining.step() == 3
    window = bench.ask(last_seconds=10, only="req-000828")
    assert window["reason"] == "the last 10 s, connections of req-000828"
    bench.now_ns += 4 * SECOND
    bench.windows.step()
    assert bench.part("db1") == ("here", "2 segments")
    ((files, counters),) = bench.made
    assert [name[-9:-7] for name in files] == ["01", "03"]
    assert [each.name for each in counters] == [ONLY]
    sent = sorted(bench.data.glob(f"sessions/{window['window']}/db1/*/*.pcapng"))
    assert [frames_of(path.read_bytes()) for path in sent] == [[2], [2]]
    assert sent[0].stat().st_mtime_ns == START + 1 - 5 * SECOND


def test_recorders_are_asked_for_connections(bench: Bench) -> None:
    bench.report("web1")
    bench.ask(last_seconds=10, only="10.0.0.1:5")
    assert [each["only"] for each in bench.report("web1")] == ["10.0.0.1:5"]
    assert "has 4 to 200 bytes" in bench.ask(last_seconds=10, only="x")["detail"]
