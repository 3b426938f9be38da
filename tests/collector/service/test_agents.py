"""What a collector says of its agents: on its page, as JSON, to Prometheus, and in traces."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec import to_builtins
from prometheus_client.parser import text_string_to_metric_families

from collector.service.agents import (
    CLOCK_NS,
    FORGOTTEN_NS,
    LAG_NS,
    SILENT_NS,
    Agents,
    Received,
    Report,
    agent_status,
)
from collector.service.app import COOKIE, create_app
from collector.service.handshakes import LATE, MOST_KEPT, Handshakes
from collector.service.settings import CollectorSettings
from collector.trace.reading import Trace
from tests.collector.service.test_ingest import INCARNATION, LATER, path_of, put
from tests.collector.service.test_live import network, segments  # noqa: F401  a fixture, and what it is made of
from tests.helpers.app_client import AppClient
from tracer.agent import CaptureOptions
from tracer.reports import Delivery, Reporting

SECOND = 1_000_000_000
KEY = ("s1", "proxy", INCARNATION)


def report(**changes: Any) -> Report:
    """A report of an agent with which nothing is wrong."""
    made = Reporting(CaptureOptions(("eth0",), "proxy"), [], 1000, lambda: 100 * SECOND)
    plain = to_builtins(made.report(Delivery(4, 0, "")))
    return Report(**plain | {"version": "1", "packets_count": 500} | changes)


def problems_of(now_ns: int = 0, before: Report | None = None, **changes: Any) -> list[str]:
    received = Received(report=report(**changes), received_ns=0, before=before)
    return [problem.what for problem in agent_status(KEY, received, now_ns, "1").problems]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"now_ns": SILENT_NS}, []),
        ({"now_ns": SILENT_NS + 1}, ["silent for 30 s"]),
        ({"now_ns": 90 * SECOND, "problem": "401"}, ["silent for 90 s"]),
        ({"now_ns": 90 * SECOND, "ended": True}, []),
        ({"problem": "the collector refuses", "waiting_ns": 99 * SECOND}, ["segments are not delivered"]),
        (
            {"tls_failures_count": 1_200, "tls_failed_ns": 40 * SECOND, "tls_failure": "it has expired; renew it"},
            ["TLS ended 1,200 of its attempts to reach this collector, the last 60 s before its last report"],
        ),
        ({"tls_failures_count": 3, "tls_failed_ns": 40 * SECOND, "sent_ns": 640 * SECOND}, []),
        ({"waiting_ns": LAG_NS}, []),
        ({"waiting_ns": LAG_NS + SECOND}, ["6 s behind"]),
        ({"dropped_count": 7}, ["7 packets dropped, some just now"]),
        ({"dropped_count": 7, "before": report(dropped_count=7)}, []),
        ({"waiting_bytes": 500}, []),
        ({"waiting_bytes": 650}, ["its spool is 65% full"]),
        ({"lost_count": 3}, ["3 segments lost"]),
        ({"clock_ahead_ns": (CLOCK_NS, CLOCK_NS + 1)}, []),
        ({"clock_ahead_ns": (2 * CLOCK_NS, 3 * CLOCK_NS)}, ["its clock is 2.000 s ahead of this collector's"]),
        ({"clock_ahead_ns": (-3 * CLOCK_NS, -2 * CLOCK_NS)}, ["its clock is 2.000 s behind this collector's"]),
        ({"clock_ahead_ns": (-9 * CLOCK_NS, 9 * CLOCK_NS)}, []),
        ({"version": "2"}, ["version 2, this collector has 1"]),
        ({"cpu_percent": 5}, []),
        ({"cpu_percent": 5, "head_bytes": 256}, ["keeps 256 bytes of heads"]),
        ({"cpu_percent": 5, "head_bytes": 0}, ["keeps no heads"]),
        ({"cpu_percent": 5, "head_bytes": 0, "one_in": 4}, ["keeps 1/4 of connections"]),
    ],
)
def test_what_is_wrong_with_an_agent(changes: dict[str, Any], expected: list[str]) -> None:
    assert problems_of(**changes) == expected


def test_rates_are_of_the_time_between_two_reports() -> None:
    one, two = report(), report(sent_ns=105 * SECOND, packets_count=1500, cpu_ns=report().cpu_ns + SECOND)
    first = agent_status(KEY, Received(report=one, received_ns=0), 0, "1")
    assert (first.packets_per_s, first.cpu_share) == (None, None)
    then = agent_status(KEY, Received(report=two, received_ns=0, before=one), 0, "1")
    assert (then.packets_per_s, then.cpu_share) == (200.0, pytest.approx(0.2, abs=0.01))
    stepped = agent_status(KEY, Received(report=one, received_ns=0, before=two), 0, "1")
    assert stepped.packets_per_s is None, "its clock was set back"


def test_an_agents_clock_lies_between_its_times_before_and_after_the_answer() -> None:
    clock = iter([0, 1_000, 1_700])
    reporting = Reporting(CaptureOptions(("eth0",), "proxy"), [], 1000, lambda: next(clock))
    sent: list[dict[str, object]] = []

    def send(message: dict[str, object]) -> dict[str, int]:
        sent.append(message)
        return {"received_ns": 400}

    reporting.send(send, Delivery(0, 0, ""))
    assert sent[0]["clock_ahead_ns"] is None
    clock = iter([2_000, 2_500])
    reporting.send(send, Delivery(0, 0, ""))
    assert sent[1]["clock_ahead_ns"] == (600, 1_300)


def test_reports_survive_a_restart_of_the_collector(tmp_path: Path) -> None:
    now = [10 * SECOND]
    agents = Agents(tmp_path, "1", lambda: now[0])
    agents.note(*KEY, report())
    agents.note("s1", "client", LATER, report(ended=True))
    now[0] += 60 * SECOND
    again = Agents(tmp_path, "1", lambda: now[0])
    assert [(each.host, each.state, each.last_seen_ns) for each in again.status()] == [
        ("client", "ended", 60 * SECOND),
        ("proxy", "silent", 60 * SECOND),
    ]
    now[0] += FORGOTTEN_NS
    assert [each.host for each in again.status()] == ["proxy"]


def test_of_a_host_the_newest_agent_is_listed_and_those_that_are_missing(tmp_path: Path) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path)))
    body = report().model_dump(mode="json")
    for incarnation in (INCARNATION, LATER):
        put(client, 1, incarnation=incarnation)
        assert client.post(f"{path_of(incarnation=incarnation)}/report", json=body).json()["received_ns"] > 0
    listed = [each["incarnation"] for each in client.get("/api/agents").json()]
    assert listed == [INCARNATION, LATER], "the first did not end"
    client.post(f"{path_of()}/close", json={"last_number": 1})
    assert [each["incarnation"] for each in client.get("/api/agents").json()] == [LATER]
    assert len(client.app.state.agents._received) == 1, "a month of restarts needs no memory"


@pytest.mark.parametrize("changes", [{"packets_count": -1}, {"version": "x" * 5000}, {"clock_ahead_ns": [1]}])
def test_what_is_no_report_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path)))
    body = report().model_dump(mode="json") | changes
    assert client.post(f"{path_of()}/report", json=body).status_code == 422
    assert client.get("/api/agents").json() == []


def test_metrics_are_read_by_prometheus(tmp_path: Path) -> None:
    handshakes = Handshakes(lambda: 7 * SECOND)
    client = AppClient(create_app(CollectorSettings(tmp_path), handshakes=handshakes))
    for _ in range(2):
        handshakes.count(LATE, "10.0.0.9")
    budget = {"cpu_percent": 5, "one_in": 4, "head_bytes": 0, "left_out_count": 7}
    body = report(clock_ahead_ns=(-1000, 3000), tls_failures_count=4, **budget).model_dump(mode="json")
    client.post(f"{path_of(host='db1')}/report", json=body)
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    samples = [sample for family in families for sample in family.samples]
    assert [each.value for each in samples if each.labels.get("reason") == "late" and each.value] == [2, 7]
    values = {sample.name: sample.value for sample in samples}
    assert values["twintap_agent_packets_total"] == 500
    assert values["twintap_agent_up"] == 1
    assert values["twintap_agent_cpu_budget_cores"] == 0.05
    assert values["twintap_agent_kept_connections_share"] == 0.25
    assert values["twintap_agent_kept_head_bytes"] == 0
    assert values["twintap_agent_left_out_packets_total"] == 7
    assert values["twintap_agent_tls_failures_total"] == 4
    assert values["twintap_agent_clock_ahead_most_seconds"] == 3e-6
    assert "twintap_agent_cpu_cores" not in values, "not known with one report"
    labels = families[0].samples[0].labels
    assert labels == {"session": "s1", "host": "db1", "incarnation": INCARNATION}


def test_of_refused_connections_the_newest_are_kept(tmp_path: Path) -> None:
    now_ns = [0]
    handshakes = Handshakes(lambda: now_ns[0])
    for now_ns[0] in range(MOST_KEPT + 20):
        handshakes.count(LATE, f"10.0.0.{now_ns[0]}")
    handshakes.count(LATE, "10.0.0.50")
    client = AppClient(create_app(CollectorSettings(tmp_path), handshakes=handshakes))
    found = client.get("/api/refusals").json()
    assert len(found) == MOST_KEPT
    assert [(each["address"], each["count"], each["first_ns"]) for each in found[:2]] == [
        ("10.0.0.50", 2, 50),
        ("10.0.0.119", 1, 119),
    ]
    assert found[-1]["address"] == "10.0.0.20"
    assert found[0]["what"] == "no TLS handshake was completed in time"
    assert handshakes.counts()[LATE] == MOST_KEPT + 21


def test_the_page_wants_the_token_once(tmp_path: Path) -> None:
    client = AppClient(create_app(CollectorSettings(tmp_path, token="right")))
    for path in ("/", "/metrics", "/api/agents", "/api/refusals", "/api/storage"):
        assert client.get(path).status_code == 401
    assert "<form" in client.get("/").text
    assert client.post("/token", content=b"token=wrong").status_code == 401
    answer = client.post("/token", content=b"token=right")
    assert answer.status_code == 303
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    client.headers = {"Cookie": f"{COOKIE}=right"}
    assert "<table" in client.get("/").text
    assert "://" not in client.get("/").text, "nothing foreign"
    assert client.get("/api/storage").json()["free_bytes"] > 0


def test_a_silent_agent_is_a_finding_in_the_trace(tmp_path: Path, segments: dict[str, list[Path]]) -> None:  # noqa: F811
    app = create_app(CollectorSettings(tmp_path))
    client = AppClient(app)
    for host in ("client", "server"):
        put(client, 1, segments[host][0].read_bytes(), host=host)
    app.state.agents = Agents(tmp_path, "1", iter([0, 42 * SECOND]).__next__)
    app.state.agents.note("s1", "server", INCARNATION, report())
    trace = client.post("/api/sessions/s1/analyse").json()["trace"]
    found = pl.DataFrame(Trace(trace).read("findings")).filter(pl.col("kind") == "agent_silent")
    (row,) = found.rows(named=True)
    assert (row["host"], row["severity"]) == ("server", "warning")
    assert "the agent on server was silent for 42 s when this trace was made" in row["text"]
