"""What a report is about, where that is not all of what was captured."""

from collections.abc import Iterator
from datetime import UTC, datetime

from collector.reporting.report import Report


def scope_words(report: Report) -> Iterator[str]:
    """A sentence for each limit of what the report is about."""
    if report.info.period is not None:
        yield period_words(report.info.period)
    if report.search:
        yield f"only requests that {report.search!r} finds; packets, clocks and findings are those of the whole trace"


def period_words(period: tuple[int, int] | None) -> str:
    """`requests that began from 2026-11-27 14:00:00 to 15:00:00 UTC; …`; empty for a trace of all that was captured.

    Arguments: the period [from, to), ns since the epoch.
    """
    if period is None:
        return ""
    begin, end = (datetime.fromtimestamp(edge / 1e9, UTC) for edge in period)
    until = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    return (
        f"requests that began from {begin:%Y-%m-%d %H:%M:%S} to {until} UTC; "
        "packets of the minute before and of the minute after are here, too"
    )
