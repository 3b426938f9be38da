"""What the captures themselves missed."""

from collections.abc import Iterable

from collector.findings.finding import Finding, times
from collector.troubles import Troubles


def capture_findings(troubles: Troubles) -> Iterable[Finding]:
    """Packets that went by and are not in a host's capture."""
    for row in troubles.missed.iter_rows(named=True):
        yield Finding(
            severity="notice",
            kind="capture_drop",
            host=row["host"],
            connection_id=row["connection_id"],
            from_trace_ns=row["from_trace_ns"],
            to_trace_ns=row["to_trace_ns"],
            count=row["count"],
            text=f"the capture on {row['host']} missed {times(row['count'], 'packet')} that did go by (they were "
            "acknowledged); their times there are unknown",
            remedy="capture with a larger buffer or a narrower filter on that host",
        )
