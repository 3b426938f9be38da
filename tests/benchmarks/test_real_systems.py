"""The judge of real systems: what is wrong is judged wrong, from synthetic rows; and logs are read right."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.real_systems import judge, logs, systems  # noqa: F401  registers all scenarios
from benchmarks.real_systems.run import Judged
from benchmarks.real_systems.scenario import REGISTER, Scenario, missing
from benchmarks.real_systems.systems import postgresql, redis, swift
from benchmarks.real_systems.table import page
from benchmarks.real_systems.truth import Call, Fault, Truth, read_truth
from benchmarks.real_systems.verdict import Verdict, within

WEB = "10.68.0.20:80"
MS = 1_000_000


def _call(number: int = 0, **more: Any) -> Call:
    return Call(
        **{"id": f"c{number}", "server": WEB, "target": f"/?n={number}", "started_ns": number, "parent": ""} | more
    )


def _row(number: int = 0, took_ns: int = 10 * MS, **more: Any) -> dict[str, Any]:
    began = 1_000 * MS * (number + 1)
    row: dict[str, Any] = {
        "exchange_id": number, "server": WEB, "asked": WEB, "client_port": 40_000, "target": f"/?n={number}",
        "request_first_sent_trace_ns": began, "request_first_received_trace_ns": began,
        "response_first_sent_trace_ns": began + took_ns // 2, "response_last_sent_trace_ns": began + took_ns,
        "response_last_received_trace_ns": began + took_ns, "trace_id": number, "critical_ns": took_ns,
        "parent_span_id": None, "confidence": None, "service": "nginx", "outcome": "ok", "method": "GET",
    }  # fmt: skip
    return row | more


def _right(verdicts: Any) -> list[bool]:
    return [verdict.right for verdict in verdicts]


@pytest.mark.parametrize(
    ("said_ns", "bounds_ns", "resolution_ns", "right"),
    [
        (10 * MS, (10 * MS, 10 * MS), 0, True),
        (10_900_000, (10 * MS, 10 * MS), 0, True),
        (12 * MS, (10 * MS, 10 * MS), 0, False),
        (8 * MS, (10 * MS, 10 * MS), 0, False),
        (12 * MS, (10 * MS, 10 * MS), MS, True),
        (104 * MS, (100 * MS, 100 * MS), 0, True),
        (106 * MS, (100 * MS, 100 * MS), 0, False),
        (12 * MS, (10 * MS, 13 * MS), 0, True),
        (15 * MS, (10 * MS, 13 * MS), 0, False),
        (None, (10 * MS, 10 * MS), 0, False),
    ],
)
def test_a_duration_is_right_within_1_ms_or_5_percent(
    said_ns: int | None, bounds_ns: tuple[int, int], resolution_ns: int, right: bool
) -> None:
    assert within(said_ns, bounds_ns, resolution_ns) is right


def test_one_duration_off_by_2_ms_makes_the_verdict_wrong() -> None:
    pairs = [(_call(n, server_ns=10 * MS), _row(n, 10 * MS + (2 * MS if n == 1 else 0))) for n in range(3)]
    (verdict,) = judge.server_durations(pairs, to_first_byte=False)
    assert not verdict.right
    assert verdict.said == "2 of 3; 1 not, worst 12.00 ms for 10.00 ms"
    assert _right(judge.server_durations(pairs[:1], to_first_byte=False)) == [True]


def test_a_duration_between_the_logs_of_both_ends_is_right_and_counted_apart() -> None:
    late = _call(server_ns=10 * MS, client_ns=20 * MS)
    (verdict,) = judge.server_durations([(late, _row(took_ns=15 * MS))], to_first_byte=False)
    assert (verdict.right, verdict.said) == (True, "0 of 1, 1 between both ends' logs")
    assert _right(judge.server_durations([(late, _row(took_ns=25 * MS))], to_first_byte=False)) == [False]
    assert _right(judge.client_durations([(late, _row(took_ns=5 * MS))])) == [False]


def test_the_pause_of_a_connection_is_no_part_of_a_request() -> None:
    call = _call(client_ns=10 * MS, connect_ns=MS)
    assert _right(judge.whole_durations([(call, _row())], [_row()])) == [True]
    waited = _row(critical_ns=4_010 * MS)
    assert _right(judge.whole_durations([(call, waited)], [waited])) == [False]


def test_means_are_held_against_the_clients_logs() -> None:
    calls = [_call(n, client_ns=10 * MS) for n in range(4)]
    assert _right(judge.headline(calls, {"mean_ns": 10 * MS, "median_ns": 12 * MS})) == [True, False]
    assert _right(judge.headline(calls, {"mean_ns": None, "median_ns": 10 * MS})) == [False, True]


def test_a_number_of_requests_is_exact_or_wrong() -> None:
    calls = [_call(n) for n in range(3)]
    assert _right(judge.counts(calls, [_row(n) for n in range(3)])) == [True]
    assert _right(judge.counts(calls, [_row(n) for n in range(4)])) == [False]


def test_calls_are_found_by_target_else_by_port_and_order() -> None:
    calls = [_call(1), _call(0)]
    assert [row["exchange_id"] for _, row in judge.pair_calls(calls, [_row(0), _row(1)])] == [0, 1]
    rows = [_row(n, target=None, client_port=port) for n, port in enumerate((7, 8, 7))]
    calls = [_call(n, target="", client_port=port) for n, port in enumerate((8, 7, 7))]
    assert [row["exchange_id"] for _, row in judge.pair_calls(calls, rows)] == [1, 0, 2]
    assert judge.pair_calls([_call(5)], [_row(0)]) == []


@pytest.mark.parametrize(
    ("name", "right"), [("nginx", True), ("web:80", True), ("swift-proxy", False), ("nginx2", False), (None, False)]
)
def test_a_service_has_the_name_that_is_true(name: str | None, right: bool) -> None:
    truth = Truth(names={WEB: "nginx|web:80"})
    assert _right(judge.names(truth, [_row(service=name)])) == [right]
    assert _right(judge.names(truth, [])) == [False]


@pytest.mark.parametrize(
    ("status", "outcome", "right"),
    [(200, "ok", True), (404, "ok", True), (404, "failed", False), (503, "failed", True), (503, "ok", False),
     (0, "failed", True), (0, "unknown", False), (429, "failed", True), (200, "unknown", True)],
)  # fmt: skip
def test_failed_is_what_failed(status: int, outcome: str, right: bool) -> None:
    failed, abandoned = judge.failures([(_call(status=status), _row(outcome=outcome))])
    assert (failed.right, abandoned.right) == (right, True)


@pytest.mark.parametrize(("outcome", "right"), [("abandoned", True), ("failed", False), ("ok", False)])
def test_abandoned_is_what_its_client_did_not_wait_for(outcome: str, right: bool) -> None:
    failed, abandoned = judge.failures([(_call(status=0, abandoned=True), _row(outcome=outcome))])
    assert (failed.right, abandoned.right) == (outcome != "failed", right)


def test_links_are_right_often_enough_and_as_often_as_promised() -> None:
    def verdict(right: int, confidence: float, least: float = 0.95) -> bool:
        roots = [(_call(n), _row(n)) for n in range(100)]
        calls = [(_call(100 + n, server="app", parent=f"c{n}"), n if n < right else (n + 1) % 100) for n in range(100)]
        rows = [(call, _row(200 + n, parent_span_id=of, confidence=confidence)) for n, (call, of) in enumerate(calls)]
        (found,) = (one for one in judge.links([*roots, *rows], least) if "app" in one.statement)
        return found.right

    assert verdict(100, 1.0)
    assert verdict(96, 0.97)
    assert not verdict(96, 1.0)  # promised more
    assert not verdict(90, 0.9)
    assert verdict(90, 0.9, least=0.8)
    (own,) = judge.links([(_call(), _row(parent_span_id=7))], 0.95)
    assert not own.right


FAULT = Fault("server_silent on app2", ("server_silent",), ("app2",))


@pytest.mark.parametrize(
    ("fault", "found", "right"),
    [
        (None, [], [True]),
        (None, [("notice", "handoffs", "a")], [True]),
        (None, [("warning", "slow_link", "a")], [False]),
        (FAULT, [("warning", "server_silent", "app2"), ("notice", "slow_link", "a")], [True, True]),
        (FAULT, [("warning", "server_silent", "app2"), ("warning", "slow_link", "a")], [True, False]),
        (FAULT, [("warning", "slow_link", "a"), ("warning", "server_silent", "app2")], [False, True]),
        (FAULT, [("warning", "server_silent", "app1")], [False, True]),
        (FAULT, [("warning", "server_silent", None)], [False, True]),
        (FAULT, [("notice", "server_silent", "app2")], [False, True]),
        (FAULT, [], [False, True]),
    ],
)
def test_the_fault_is_the_first_finding_and_a_clean_run_has_none(
    fault: Fault | None, found: list[tuple[str, str, str | None]], right: list[bool]
) -> None:
    rows = [{"severity": severity, "kind": kind, "host": host, "peer_host": None} for severity, kind, host in found]
    assert _right(judge.findings(Truth(fault=fault), rows)) == right


class _Said:
    """As `said.Said`, with given words."""

    def __init__(self, text: str, states: dict[str, int] | None = None) -> None:
        self.text, self.findings, self.report = text, [], {"hop_states": states or {}}


@pytest.mark.parametrize(
    ("text", "products", "right"),
    [
        ("in nginx 3 ms", (), [True, True]),
        ("port 8000 on None", (), [False, True]),
        ("waiting for the quorum of swift-object", (), [True, False]),
        ("waiting for the quorum of swift-object", ("swift", "quorum"), [True, True]),
    ],
)
def test_texts_name_nothing_that_is_not_there(text: str, products: tuple[str, ...], right: list[bool]) -> None:
    assert _right(judge.texts(Truth(products=products), _Said(text))) == right  # type: ignore[arg-type]


def test_losses_are_exact() -> None:
    assert _right(judge.losses(Truth(lost=2), _Said("", {"lost": 2}))) == [True, True]  # type: ignore[arg-type]
    assert _right(judge.losses(Truth(), _Said("", {"lost": 1, "capture_dropped": 1}))) == [False, False]  # type: ignore[arg-type]
    assert _right(judge.losses(Truth(lost=None), _Said("", {"lost": 1}))) == []  # type: ignore[arg-type]


def test_the_logs_of_postgresql_redis_and_swift_are_read() -> None:
    text = (
        "17.440\t10.68.0.10(5)\tLOG:  connection received: host=10.68.0.10 port=5\n"
        "17.441\t10.68.0.10(5)\tLOG:  connection authorized: user=postgres\n"
        "17.446\t10.68.0.10(5)\tLOG:  duration: 2.070 ms  statement: select 1\n"
        "17.447\t[local]\tLOG:  duration: 2.070 ms  statement: select 1\n"
    )
    found = postgresql.statements(text, "db:5432")
    assert [(call.client_port, call.server_ns) for call in found] == [(5, None), (5, 2_070_000)]
    entries = '[[12, 1795, 34, ["get"], "10.68.0.10:51", ""], [13, 1795, 9, ["slowlog"], "127.0.0.1:52", ""]]'
    assert [(call.client_port, call.server_ns) for call in redis.commands(entries, "cache:6379")] == [(51, 34_000)]
    line = (
        "<134>proxy-server: 10.77.0.10 10.77.0.10 22/Nov/2026/22/22/57 PUT /v1/A/c/o HTTP/1.0 201 - agent AUTH_tk... 3"
        " - - tx16-00 - 0.2463 - - 17.5 17.75 0"
    )
    root = swift.root_call(swift.PROXY.search(line), "proxy:8080")  # type: ignore[arg-type]
    assert (root.id, root.target, root.server_ns, root.status) == ("tx16-00", "/v1/A/c/o", 250 * MS, 201)
    inner = (
        '<134>object-server: 10.77.0.20 - - [22/Nov] "PUT /d2/0/A/c/o" 201 - "PUT http://x/v1/A/c/o" "tx16-00"'
        ' "proxy-server 1" 0.1558 "-" 2 0'
    )
    (call,) = swift.inner_calls([(swift.STORAGE.search(inner), "s1:6200")], {"tx16-00": 250 * MS})  # type: ignore[list-item]
    assert (call.parent, call.server_ns, call.most_ns) == ("tx16-00", 155_800_000, 250 * MS)


def test_a_client_s_own_log_is_read() -> None:
    line = '{"n": 3, "target": "/item?n=3", "port": 9, "began_ns": 5, "ended_ns": 9, "status": 200, "connect_ns": 2}\n'
    (call,) = logs.client_calls(line, WEB)
    assert (call.id, call.client_ns, call.connect_ns, call.parent) == ("client 3", 4, 2, "")
    assert logs.number_of("/item?n=17") == 17


def test_the_truth_is_kept_as_it_was(tmp_path: Path) -> None:
    truth = Truth(
        calls=[_call(client_ns=3)], names={WEB: "nginx"}, fault=FAULT, only=("requests",), more={"dropped": 2}
    )
    truth.write(tmp_path)
    assert read_truth(tmp_path) == truth


def test_a_missing_package_is_named_with_its_command() -> None:
    class Unusual(Scenario):
        name = "unusual"
        needs = (("no-such-program-here", "no-such-package"),)

    assert "no-such-program-here (apt-get install no-such-package)" in missing(Unusual())


def test_scenarios_have_words_and_hosts() -> None:
    assert len(REGISTER) >= 19
    assert all(wanted.words and wanted.hosts for wanted in REGISTER.values())


def test_the_page_shows_wrong_as_wrong() -> None:
    found = [
        Judged("redis", "Redis", "agent", (Verdict("service", "`a|b`", "c", right=False),)),
        Judged("x", "X", "", problem="no"),
    ]
    text = page(found, commit="abc")
    assert "| redis | agent | service | `a\\|b` | c | **wrong** |" in text
    assert "x: no" in text
