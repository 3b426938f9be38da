"""A scan of many ports is one finding; services that are down are what they were."""

import polars as pl
import pytest

from collector.findings.scans import ScanThresholds, without_scans
from collector.hops.failed_connections import GROUP

LIMITS = ScanThresholds()


def rows(*tried: tuple[str, str, int, str, int]) -> pl.DataFrame:
    """Client, server, port, fate, how many connections."""
    every = [
        {
            **dict(zip(GROUP, (fate, "refused", client, server, "10.0.0.2", port), strict=True)),
            **{"count": count, "vain": count, "cost_ns": 5, "begin_ns": port, "end_ns": port + 9, "worst_ns": 5},
            **{"connection_id": port, "span_id": None, "from_trace_ns": port, "to_trace_ns": port + 5},
        }
        for client, server, port, fate, count in tried
    ]
    return pl.DataFrame(every, infer_schema_length=None)


def scan(ports: int, tries: int = 1, client: str = "a") -> list[tuple[str, str, int, str, int]]:
    return [(client, "b", 1000 + port, "unanswered" if port % 10 == 0 else "refused", tries) for port in range(ports)]


def test_a_scan_is_one_finding_of_few_words() -> None:
    found, rest = without_scans(rows(*scan(400)), LIMITS)
    assert rest.is_empty()
    (finding,) = found
    assert (finding.kind, finding.severity, finding.host, finding.count) == ("port_scan", "notice", "a", 400)
    assert finding.text == "a tried 400 ports of b within 408 ns (360 refused and 40 unanswered): probably a port scan"
    assert len(finding.text) < 3 * 80


@pytest.mark.parametrize(
    "tried",
    [scan(LIMITS.least_ports_count - 1), scan(1, tries=400), scan(30, tries=8), [("a", "b", 8080, "late", 400)]],
    ids=["few ports", "one port", "services that are asked for again and again", "late"],
)
def test_what_is_no_scan(tried: list) -> None:
    found, rest = without_scans(rows(*tried), LIMITS)
    assert not found
    assert len(rest) == len(tried)


def test_a_service_that_is_down_beside_a_scan_is_still_named() -> None:
    down = [("a", "b", 8080, "refused", 50), ("c", "b", 8080, "refused", 1)]
    found, rest = without_scans(rows(*scan(100), *down), LIMITS)
    assert [finding.count for finding in found] == [100]
    assert rest.select("client_host", "count").rows() == [("a", 50), ("c", 1)]
