"""What became of the clients' attempts, in the headline, and which finding weighs most."""

import pyarrow as pa
import pytest
from msgspec.structs import replace

from collector.findings.causes import with_causes
from collector.findings.finding import Finding, SeverityThresholds, as_table
from collector.reporting.failures import attempts_of
from collector.reporting.request_rows import RequestRows
from collector.reporting.root_requests import RootRequests, read_roots
from collector.reporting.story import act_first
from collector.requests.spans import link
from collector.services.ends import service_at
from tests.helpers.exchange_lines import exchanges_of

S = 1_000_000_000
SEVERITY = SeverityThresholds()
REFUSED = Finding("warning", "connection_refused", "", "", host="web", cost_ns=37_400, services=frozenset({"web:81"}))
SILENT = Finding("warning", "server_silent", "", "", host="web", service="web:80", cost_ns=2 * S)


def lead(lines: str, *findings: Finding) -> str:
    return attempts_of(roots_of(lines), as_table(findings, SEVERITY)).lead


def roots_of(lines: str) -> RootRequests:
    exchanges = exchanges_of(lines)
    return read_roots(RequestRows.of_tables(link(exchanges), exchanges))


def test_where_all_went_well_nothing_is_said() -> None:
    assert lead("client > web 0 10 90 100\nclient > web 200 210 290 300 outcome=ok") == ""


def test_connections_that_never_came_up_are_attempts() -> None:
    refused = replace(REFUSED, count=25, failed_count=20)
    unanswered = Finding("warning", "listen_queue_full", "", "", host="web", count=9, failed_count=1)
    lines = "client > web 0 10 90 100 outcome=ok\nclient > web 200 210 290 300 status=503 outcome=failed"
    assert lead(lines, refused, unanswered) == (
        "22 of 23 attempts failed: 20 connections were refused, 1 connection was not answered, 1 request was "
        "answered 503"
    )


def test_what_servers_asked_is_no_attempt_of_a_client() -> None:
    lines = "client > web 0 10 90 100 tx=a outcome=ok\nweb > db 20 30 80 90 tx=a status=500 outcome=failed"
    assert lead(lines) == ""


def test_all_and_the_only_one() -> None:
    failed = "client > web 0 10 90 100 status=500 outcome=failed\n"
    assert lead(failed) == "The only request failed: 1 request was answered 500"
    assert lead(failed * 2) == "All 2 requests failed: 2 requests were answered 500"


def test_failures_and_what_was_given_up() -> None:
    lines = (
        "client > web 0 10 90 100 status=500 outcome=failed\nclient > web 0 10 - - up=300000 outcome=abandoned cut\n"
    )
    assert lead(lines + "client > web 0 10 90 100 outcome=ok") == (
        "1 of 3 requests failed: 1 request was answered 500; 1 more was given up by its client after 300.0 ms"
    )


def kinds(*findings: Finding) -> list[str]:
    return as_table(findings, SEVERITY)["kind"].to_pylist()


def test_a_long_wait_comes_before_a_refusal_that_cost_nothing() -> None:
    assert kinds(REFUSED, SILENT) == ["server_silent", "connection_refused"]
    once = replace(REFUSED, failed_count=1)
    assert kinds(once, SILENT) == ["server_silent", "connection_refused"]


def test_failures_weigh_as_much_as_waiting() -> None:
    many = replace(REFUSED, failed_count=1 + SILENT.cost_ns // SEVERITY.failure_weight_ns)
    assert kinds(SILENT, many) == ["connection_refused", "server_silent"]


def test_what_follows_from_a_finding_weighs_with_it() -> None:
    slow = Finding("warning", "slow_link", "", "", host="lb", cost_ns=S)
    follows = Finding("notice", "unanswered_request", "", "", host="web", cost_ns=3 * S, cause=REFUSED.name)
    assert kinds(slow, REFUSED, follows) == ["connection_refused", "slow_link", "unanswered_request"]
    assert kinds(slow, REFUSED) == ["slow_link", "connection_refused"]


def test_a_refusal_on_one_port_does_not_explain_the_slowness_of_another() -> None:
    slow = replace(SILENT, kind="slow_replica")
    found = with_causes([REFUSED, slow], {})
    assert [finding.cause for finding in found] == [None, None]
    same = replace(REFUSED, services=frozenset({"web:80"}))
    assert [finding.cause for finding in with_causes([same, slow], {})] == [None, "connection_refused on web"]
    asking = {("web", "web:81"): frozenset({("web", "web:80")})}
    assert [finding.cause for finding in with_causes([REFUSED, slow], {}, asking)] == [None, REFUSED.name]


def test_what_to_act_on_says_what_it_weighs() -> None:
    def words(*findings: Finding) -> str:
        return act_first(as_table(findings, SEVERITY), little_ns=S // 25)

    assert words(SILENT) == " To act on first: server silent on web, 2.000 s of request time."
    assert words(REFUSED) == " Besides, at little cost: connection refused on web, 37.4 µs of request time."
    failed = replace(REFUSED, failed_count=3)
    follows = Finding("notice", "server_error", "", "", host="lb", cost_ns=S, failed_count=2, cause=REFUSED.name)
    said = " To act on first: connection refused on web, 5 failed or given up, 37.4 µs of request time."
    assert words(failed, follows) == said
    assert words(Finding("notice", "handoffs", "", "")) == ""
    clock = Finding("warning", "clock_offset", "", "", host="db")
    assert words(clock) == " To act on first: clock offset on db."


def test_an_older_trace_has_no_counts_of_failures() -> None:
    table = as_table([REFUSED], SEVERITY)
    place = table.schema.get_field_index("failed_count")
    none = table.set_column(place, "failed_count", pa.nulls(table.num_rows, pa.int64()))
    assert attempts_of(roots_of(""), none).count == 0


UNTAKEN = Finding("warning", "connection_unanswered", "", "", host="web", count=40)
DROPPED = Finding("warning", "listen_drops", "", "", host="web", count=40)


@pytest.mark.parametrize(
    ("dropped", "expected"),
    [(40, ["listen_drops", ""]), (20, ["listen_drops", ""]), (19, ["connection_unanswered", "listen_drops"])],
)
def test_what_the_kernel_counts_as_turned_away_explains_who_got_no_answer(dropped: int, expected: list[str]) -> None:
    """A queue that is full all the time looks like a firewall in the packets; the host counts it."""
    both = with_causes([UNTAKEN, replace(DROPPED, count=dropped)], {})
    urgent = [finding.kind for finding in both if finding.urgent]
    assert urgent == [kind for kind in expected if kind]


@pytest.mark.parametrize(
    ("service", "host", "said"),
    [
        ("app:8000", "app", "app:8000"),
        ("nginx", "app", "nginx on app"),
        ("app:8000", "app2", "app:8000 on app2"),
        (None, "app", "app"),
    ],
)
def test_a_service_that_is_named_by_its_host_names_it_once(service: str | None, host: str, said: str) -> None:
    assert service_at(service, host) == said


@pytest.mark.parametrize(("unanswered", "severity"), [(True, "notice"), (False, "warning")])
def test_only_what_looks_slow_by_what_was_given_up_follows_from_giving_up(unanswered: bool, severity: str) -> None:
    left = replace(SILENT, kind="client_gave_up")
    slow = replace(SILENT, kind="slow_replica", unanswered=unanswered)
    assert [finding.severity for finding in with_causes([left, slow], {})] == ["warning", severity]
