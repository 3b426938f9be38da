"""Triggers: what their conditions say, when they fire, and for how long they hold off."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collector.capture_files.records import Severity
from collector.findings.captures import AGENT_SILENT
from collector.queries.measures import aggregate_ns
from collector.queries.trace_view import TraceView, open_trace
from collector.service.live import LiveStatus
from collector.service.trigger_rules import LEAST_COUNT, evaluate, parse_condition
from collector.service.trigger_settings import TriggerSettings
from collector.service.triggers import Triggers
from collector.trace.model import CounterInfo
from tests.collector.reporting.test_report import UPLOAD
from tests.collector.service.test_windows import START, Bench
from tests.helpers.script_traces import write_script_trace
from tracer.errors import InputError

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "words", "aggregate", "limit_ns", "finding"),
    [
        ("status:error", "status:error", "", 0, ""),
        ("PUT host:db1 >2s", "PUT host:db1 >2s", "", 0, ""),
        ("10.0.0.3:6200", "10.0.0.3:6200", "", 0, ""),
        ("p99 of PUT > 50ms", "PUT", "p99", 50_000_000, ""),
        ("p99.9 of status:error host:db1>1.5s", "status:error host:db1", "p99.9", 1_500_000_000, ""),
        ("max of requests > 3us", "", "max", 3_000, ""),
        ("mean of >1ms > 2ms", ">1ms", "mean", 2_000_000, ""),
        ("finding:server_silent", "", "", 0, "server_silent"),
    ],
)
def test_conditions(text: str, words: str, aggregate: str, limit_ns: int, finding: str) -> None:
    found = parse_condition(f" {text} ")
    assert (found.text, found.words, found.aggregate) == (text, words, aggregate)
    assert (found.limit_ns, found.finding) == (limit_ns, finding)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("p99 of PUT > 50", "character 13: '50' is no duration"),
        ("p99 of PUT", "character 11: a limit is missing"),
        ("p99 of > 1s", "character 8: which requests is not said"),
        ("p99 of sttus:error > 1s", "character 8: nothing is searched by 'sttus'"),
        ("p0 of PUT > 5ms", "character 1: 'p0' is no percentile"),
        ("median of PUT > 5ms", "character 1: 'median' is no percentile"),
        ("finding:nope", "character 9: 'nope' is no kind of finding"),
        ("PUT sttus:error", "character 5: nothing is searched by 'sttus'"),
        ("status:errr", "character 8: 'errr' is no status"),
        ("outcome:", "character 9: '' is no outcome"),
        ("PUT > 5ms", "character 5: '>' is no duration"),
        ("", "has 1 to 500 characters"),
        ("x" * 501, "has 1 to 500 characters"),
    ],
)
def test_what_is_no_condition_is_said_with_its_place(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition(text)
    assert what in caught.value.what
    assert caught.value.what.startswith(f"trigger {text!r}, ") or not 0 < len(text) <= 500


@pytest.mark.parametrize(
    ("name", "expected"), [("p50", 50), ("p99", 99), ("p99.9", 100), ("p1", 1), ("mean", 50), ("max", 100)]
)
def test_percentiles_are_at_the_nearest_rank(name: str, expected: int) -> None:
    assert aggregate_ns(name, np.arange(1, 101)) == expected


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    """A trace of one upload from the host `client`."""
    folder = tmp_path_factory.mktemp("trace")
    write_script_trace(str(folder), UPLOAD)
    return open_trace(str(folder))


def test_a_request_meets_a_condition_once_it_has_ended(trace: TraceView) -> None:
    found = evaluate(parse_condition("client"), trace, -1)
    assert found is not None
    assert found.at_ns is not None
    assert found.reason.startswith("client: ")
    assert evaluate(parse_condition("client"), trace, found.at_ns) is None, "it was seen before"
    assert evaluate(parse_condition("no-such-host"), trace, -1) is None
    assert evaluate(parse_condition("finding:disk_full"), trace, -1) is None


def test_a_finding_that_is_no_notice_meets_a_condition(tmp_path: Path) -> None:
    silent = CounterInfo("client", AGENT_SILENT, Severity.DATA_LOSS, 40, "it did not end")
    write_script_trace(str(tmp_path), UPLOAD, None, (silent,))
    found = evaluate(parse_condition("finding:agent_silent"), open_trace(str(tmp_path)), -1)
    assert found is not None
    assert found.reason.startswith("finding:agent_silent: the agent on client was silent for 40 s")


def test_few_requests_have_no_percentile(trace: TraceView) -> None:
    assert len(trace.request_durations_ns()) < LEAST_COUNT
    assert evaluate(parse_condition("max of requests > 0ns"), trace, -1) is None


def test_a_percentile_over_its_limit(trace: TraceView, monkeypatch: pytest.MonkeyPatch) -> None:
    durations = np.full(20, 60_000_000)
    monkeypatch.setattr(TraceView, "request_durations_ns", lambda _: durations)
    found = evaluate(parse_condition("p99 of requests > 50ms"), trace, -1)
    assert found is not None
    assert found.reason == "p99 of requests > 50ms: it was 60.0 ms of 20 requests"
    assert found.at_ns is None
    assert evaluate(parse_condition("p99 of requests > 60ms"), trace, -1) is None


class TriggerBench(Bench):
    """A collector with triggers, whose live traces are set by hand."""

    def __init__(self, data: Path, trace: TraceView, **settings: Any) -> None:
        super().__init__(data)
        conditions = (parse_condition("client"), parse_condition("finding:disk_full"))
        self.made_ns = 0
        live = SimpleNamespace(
            status=lambda session: LiveStatus(session, trace.url, 10.0, running=True, made_ns=self.made_ns)
        )
        self.triggers = Triggers(
            TriggerSettings(conditions, **settings),
            self.client.app.state.agents,
            self.windows,
            live,
            open_view=self.open,
            clock=lambda: self.now_ns,
        )
        self.client.app.state.triggers = self.triggers
        self.trace, self.opened_count = trace, 0
        self.report("web1")

    def open(self, _url: str) -> TraceView:
        self.opened_count += 1
        return self.trace

    def round(self, at_ns: int) -> list[str]:
        """A live round, after which the collector shows a time; the reasons of all windows."""
        self.made_ns += 1
        self.now_ns = at_ns
        self.report("web1")
        self.triggers.step()
        return [each.reason for each in self.windows.all()]


@pytest.fixture
def begin_ns(trace: TraceView) -> int:
    """When the trace's requests were, by the collector's clock: no agent's clock is known."""
    return trace.start_ns


def test_a_trigger_keeps_the_time_before_and_after(tmp_path: Path, trace: TraceView, begin_ns: int) -> None:
    bench = TriggerBench(tmp_path, trace)
    bench.triggers._started_ns = begin_ns - 1
    bench.triggers.step()
    assert bench.opened_count == 0, "there is no live trace yet"
    (reason,) = bench.round(begin_ns + 5 * SECOND)
    assert reason.startswith("client: ")
    (window,) = bench.windows.all()
    assert window.trigger == "client"
    assert begin_ns - 30 * SECOND <= window.from_ns < begin_ns - 25 * SECOND
    assert window.to_ns == begin_ns + 15 * SECOND
    found = {each["trigger"]: each for each in bench.client.get("/api/triggers").json()}
    assert (found["client"]["windows_count"], found["client"]["fired_ns"]) == (1, begin_ns + 5 * SECOND)
    assert found["finding:disk_full"]["evaluated_ns"] == begin_ns + 5 * SECOND
    bench.triggers.step()
    assert bench.opened_count == 1, "a trace is looked at once"


def test_what_ended_before_the_collector_was_started_fires_nothing(
    tmp_path: Path, trace: TraceView, begin_ns: int
) -> None:
    bench = TriggerBench(tmp_path, trace)
    bench.triggers._started_ns = begin_ns + 3600 * SECOND
    assert bench.round(begin_ns + 3601 * SECOND) == []


def test_a_trigger_holds_off_and_has_a_most_of_windows(
    tmp_path: Path, trace: TraceView, begin_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = TriggerBench(tmp_path, trace, hold_off_ns=60 * SECOND, most_windows=2)
    bench.triggers._started_ns = begin_ns - 1
    ended_ns = [begin_ns]
    monkeypatch.setattr(
        "collector.service.triggers.evaluate",
        lambda condition, _trace, after_ns: (
            SimpleNamespace(reason="met", at_ns=ended_ns[0] - begin_ns)
            if condition.words and ended_ns[0] - begin_ns > after_ns
            else None
        ),
    )
    counts = []
    for at in (1, 20, 61, 62, 130, 200):
        ended_ns[0] = begin_ns + at * SECOND
        counts.append(len(bench.round(begin_ns + at * SECOND)))
    assert counts == [1, 1, 1, 2, 2, 2], "held off until 61 s; after the second it has its most"
    problem = bench.client.get("/api/triggers").json()[0]["problem"]
    assert problem.startswith("2 of its windows are kept, so it does not fire")
    bench.client.request("DELETE", f"/api/sessions/{bench.windows.all()[0].window}")
    ended_ns[0] = begin_ns + 300 * SECOND
    assert len(bench.round(begin_ns + 300 * SECOND)) == 2


def test_a_call_from_outside_opens_a_window_of_each_session(tmp_path: Path, trace: TraceView) -> None:
    bench = TriggerBench(tmp_path, trace)
    (window,) = bench.client.post("/api/triggers/pager?reason=disk", content=b"anything").json()
    assert (window["trigger"], window["reason"]) == ("pager", "disk")
    assert (window["from_ns"], window["to_ns"]) == (START - 30 * SECOND, START + 10 * SECOND)
    assert bench.client.post("/api/triggers/pager").json() == [], "it holds off"
    bench.now_ns += 60 * SECOND
    bench.report("web1")
    assert len(bench.client.post("/api/triggers/pager?session=s1").json()) == 1
    assert bench.client.post("/api/triggers/pager?session=other").status_code == 400
    assert bench.client.post("/api/triggers/..pager").status_code == 400
    assert bench.client.post("/api/triggers/client").json()["detail"] == (
        "client is a condition of --trigger; give another name"
    )
