"""What a report says of the captures, without what it says of the protocols in them."""

from collector.reporting.report import Report
from collector.requests.unread_connections import REMEDIES
from collector.trace.model import CounterInfo


def troubles_of_captures(report: Report) -> list[CounterInfo]:
    """The counters that a report shows, but for those of connections that are not read: scripts speak no protocol."""
    return [counter for counter in report.troubles if counter.name not in REMEDIES]
