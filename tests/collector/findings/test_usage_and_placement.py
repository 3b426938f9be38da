"""What hosts used beside what is said of them; requests that went to one server more than to others."""

import polars as pl
import pytest
from msgspec.structs import replace

from collector.findings.finding import Finding
from collector.findings.placement import placement_findings
from collector.findings.requests import requests_of
from collector.findings.thresholds import DEFAULTS
from collector.findings.usage import Usage
from collector.requests.spans import link
from collector.services.replicas import FAILED
from testkit.tables import BASE_NS, table
from tests.helpers.exchange_lines import exchanges_of

S = 1_000_000_000
HOSTS = ("storage1", "storage2", "storage3")


def requests(text: str) -> pl.DataFrame:
    exchanges = exchanges_of(text)
    return requests_of([exchanges], [link(exchanges)])


def usage(values: dict[str, list[float]], metric: str = "cpu_wait_percent", offset_ns: int = 0) -> Usage:
    """A value a second of each host, from `BASE_NS` on; storage3's clock is ahead."""
    span = {"from_host_ns": 0, "to_host_ns": 2 * 10**18, "skew_ppb": 0, "uncertainty_ns": 0, "method": "m"}
    ahead = {host: offset_ns if host == "storage3" else 0 for host in values}
    clocks = table("clocks", [span | {"host": host, "offset_ns": ahead[host], "from_frame": 1} for host in values])
    rows = [
        {"host": host, "host_ns": BASE_NS + number * S + ahead[host], "metric": metric, "value": value}
        for host, of_host in values.items()
        for number, value in enumerate(of_host)
    ]
    return Usage(table("samples", rows), clocks, DEFAULTS.usage)


def slow(kind: str = "host_starved", until_s: int = 3) -> Finding:
    return Finding(
        "warning", kind, "slow", "look", "storage3", from_trace_ns=BASE_NS + S, to_trace_ns=BASE_NS + until_s * S
    )


def test_what_a_slow_host_used_meanwhile_stands_beside_it() -> None:
    values = {"storage1": [0, 10, 10, 10], "storage2": [0, 20, 20, 20], "storage3": [0, 90, 92, 94]}
    (shown,) = usage(values, offset_ns=500 * S).with_usage([slow()])
    assert shown.text == ("slow; its processes waited for a processor 92 % of the time (other hosts 15 %)")
    (reader,) = usage(values).with_usage([slow("zero_window")])
    assert reader.text == shown.text, "a reader that is slow: its processor may be why"
    assert [finding.text for finding in usage(values).with_usage([slow("packet_loss")])] == ["slow"]
    assert [finding.text for finding in Usage(None, table("clocks", []), DEFAULTS.usage).with_usage([slow()])] == [
        "slow"
    ]


def test_of_a_host_that_was_not_captured_nothing_is_known() -> None:
    values = {"storage1": [0.0, 1, 1, 1], "storage3": [0.0, 90, 92, 94]}
    assert [finding.text for finding in usage(values).with_usage([replace(slow(), host=None)])] == ["slow"]


def test_what_all_hosts_used_alike_is_not_said() -> None:
    """It explains nothing, and made findings five lines long."""
    values = {host: [float(one)] * 6 for host, one in zip(HOSTS, (42, 44, 46), strict=True)}
    assert [finding.text for finding in usage(values).with_usage([slow()])] == ["slow"]


@pytest.mark.parametrize(("length", "clauses"), [(40, 3), (190, 2), (250, 1), (340, 0)])
def test_beside_a_long_text_stands_what_three_lines_hold(length: int, clauses: int) -> None:
    values = {"storage1": [0.0, 10, 10, 10], "storage3": [0.0, 90, 92, 94]}
    metrics = ("cpu_wait_percent", "cpu_percent", "disk_busy_percent.d1")
    samples = [usage(values, metric) for metric in metrics]
    every = Usage(None, table("clocks", []), DEFAULTS.usage)
    every.rows = pl.concat([each.rows for each in samples])
    remedy = "its processors or memory are short: see what else runs there, and quotas (vmstat, top, cpu.stat, PSI)"
    finding = replace(slow(), text=("word " * length)[:length].strip(), remedy=remedy, cost_ns=5_228_000_000_000)
    (found,) = every.with_usage([finding])
    assert found.text.count("; ") == clauses
    assert found.lines_count <= 3
    assert clauses == 0 or "waited for a processor" in found.text, "what explains most"


def test_of_a_host_that_serves_nothing_no_count_of_requests_is_said() -> None:
    """It was "0 requests were there"."""
    values = {"storage1": [10] * 4, "storage2": [10] * 4, "storage3": [95] * 4}
    (found,) = usage(values).findings(requests("proxy > storage1/app 0 10 90 100"))
    assert found.text == (
        "storage3 was saturated for 4 s: its processes waited for a processor 95 % of the time (other hosts 10 %)"
    )


@pytest.mark.parametrize(
    ("of_host", "count"),
    [([95] * 4, 4), ([95, 95, 10, 95, 95], 0), ([70] * 5, 0), ([10, 90, 91, 92, 10], 3)],
    ids=["all the time", "not three in a row", "not all of it", "for a while"],
)
def test_a_host_that_lacks_a_processor_while_others_do_not(of_host: list[float], count: int) -> None:
    asked = requests("client > storage3/app 1000000 1000010 2500010 2500020")
    found = list(usage({"storage1": [10] * len(of_host), "storage3": of_host}).findings(asked))
    assert [(each.kind, each.severity, each.host, each.count) for each in found] == (
        [("host_saturated", "notice", "storage3", count)] if count else []
    )
    assert [(each.cost_ns, each.span_id) for each in found] == ([(1_500_000_000, 1)] if count else [])


def test_where_all_lack_processors_no_host_is_named() -> None:
    values = {"storage1": [90.0] * 5, "storage3": [95.0] * 5}
    assert not list(usage(values).findings(requests("client > storage3/app 0 10 20 30")))


def test_a_busy_disk_is_named() -> None:
    values = {"storage1": [3.0] * 5, "storage3": [99.0] * 5}
    asked = requests("client > storage3/swift-object 0 10 2000010 2000020 target=/d1/7/a/c/o")
    (found,) = usage(values, "disk_busy_percent.d1").findings(asked)
    assert (found.kind, found.host, found.cost_ns) == ("disk_saturated", "storage3", 2_000_000_000)
    assert "its disk d1 was busy 99 % of the time (other disks 3 %)" in found.text


@pytest.mark.parametrize(("often", "named"), [(3, True), (1, False)], ids=["three times as many", "even"])
def test_a_server_that_gets_more_than_its_peers(often: int, named: bool) -> None:
    text = ""
    for number in range(300):
        host = HOSTS[number % 3] if number % (2 * often) == 0 or often == 1 else "storage2"
        at = number * 1000
        text += f"client > {host}/app {at} {at + 10} {at + 90} {at + 100} target=/popular\n"
    found = list(placement_findings(requests(text), pl.DataFrame(schema=FAILED), DEFAULTS.placement))
    assert [(each.kind, each.severity, each.host) for each in found] == (
        [("uneven_load", "notice", "storage2")] if named else []
    )
    assert all("of the requests were for /popular" in each.text and each.cost_ns > 0 for each in found)
    assert not any("ring" in each.remedy for each in found), "none is seen"


@pytest.mark.parametrize(("service", "expected"), [("swift-object", True), ("app", False)])
def test_a_ring_is_spoken_of_where_there_is_one(service: str, expected: bool) -> None:
    lines = (f"client > storage{1 + (n % 9 == 0)}/{service} {n}000 {n}010 {n}090 {n}100" for n in range(300))
    (found,) = placement_findings(requests("\n".join(lines)), pl.DataFrame(schema=FAILED), DEFAULTS.placement)
    assert ("the ring's weights" in found.remedy) is expected
