"""What annotations say of a request, beside what packets show of it.

A server's duration is compared with the time between the request's first byte there and its answer's last, both by that
host's own capture, so no clock of another enters. They differ only by more than the record rounds; a server's clock may
begin later than the packets do (its accept queue, a busy thread), and end before they have left (the kernel's buffer).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from collector.annotations.records import Phase, parse_phases
from collector.trace.durations import in_words
from collector.trace.reading import Trace

MOST_EXCHANGES = 200
"""Of one request, those whose times are read."""
_COLUMNS = ("annotation_id", "kind", "format", "host", "service", "start_trace_ns", "duration_ns", "uncertainty_ns")
COLUMNS = (*_COLUMNS, "duration_uncertainty_ns", "name", "exchange_id", "joined_by", "phases", "severity", "text")
TIMES = ("exchange_id", "server_host", "request_first_received_trace_ns", "response_last_sent_trace_ns")


@dataclass(frozen=True, slots=True)
class Said:
    """What one annotation says of an exchange, and how long packets show that its server had it; None if not seen."""

    annotation_id: int
    kind: str
    format: str
    host: str
    service: str
    name: str
    text: str
    exchange_id: int
    joined_by: str
    duration_ns: int
    duration_uncertainty_ns: int
    phases: tuple[Phase, ...]
    seen_ns: int | None

    @property
    def by(self) -> str:
        """Who says it: `nginx on web`."""
        return f"{self.service or self.format} on {self.host}" if self.host else self.service or self.format

    @property
    def comparison(self) -> str:
        """How its duration compares with what packets show; "" if one of them is not known."""
        if not self.duration_ns or self.seen_ns is None:
            return ""
        longer_ns = self.duration_ns - self.seen_ns
        if longer_ns > self.duration_uncertainty_ns:
            return f"{in_words(longer_ns)} longer than packets show: they disagree"
        if -longer_ns > self.duration_uncertainty_ns:
            return f"packets show {in_words(-longer_ns)} more, before its clock began or after it handed the answer on"
        return "as packets show"

    @property
    def words(self) -> str:
        """All of it in one line."""
        phases = ", ".join(f"{phase.name} {in_words(phase.duration_ns)}" for phase in self.phases)
        took = in_words(self.duration_ns) if self.duration_ns else ""
        return "; ".join(filter(None, (took, phases, self.comparison)))


def said_of(trace: Trace, exchange_ids: Sequence[int]) -> tuple[Said, ...]:
    """What annotations say of some exchanges, by time. Cost: a pass over the table `annotations`, if it has rows."""
    if not trace.rows_count("annotations"):
        return ()
    wanted = list(exchange_ids)
    parts = (pl.DataFrame(part).cast({pl.Categorical: pl.String}) for part in trace.batches("annotations", COLUMNS))
    rows = [row for part in parts for row in part.filter(pl.col("exchange_id").is_in(wanted)).to_dicts()]
    seen = _seen_ns(trace, sorted({row["exchange_id"] for row in rows})[:MOST_EXCHANGES])
    return tuple(_said_row(row, seen) for row in sorted(rows, key=lambda row: int(row["start_trace_ns"])))


def _seen_ns(trace: Trace, exchange_ids: Sequence[int]) -> dict[tuple[int, str], int]:
    """How long each exchange was at its server, by its host; those whose both ends were seen there."""
    found = {}
    for exchange_id in exchange_ids:
        for row in trace.rows_matching("exchanges", TIMES, {"exchange_id": exchange_id}).to_pylist():
            _, host, begin, end = (row[name] for name in TIMES)
            if host and begin is not None and end is not None:
                found[exchange_id, str(host)] = end - begin
    return found


def _said_row(row: Mapping[str, object], seen: Mapping[tuple[int, str], int]) -> Said:
    exchange_id, host = int(str(row["exchange_id"])), str(row["host"] or "")
    return Said(
        annotation_id=int(str(row["annotation_id"])),
        kind=str(row["kind"]),
        format=str(row["format"]),
        host=host,
        service=str(row["service"] or ""),
        name=str(row["name"] or ""),
        text=str(row["text"] or ""),
        exchange_id=exchange_id,
        joined_by=str(row["joined_by"] or ""),
        duration_ns=int(str(row["duration_ns"] or 0)),
        duration_uncertainty_ns=int(str(row["duration_uncertainty_ns"] or 0)),
        phases=parse_phases(str(row["phases"] or "")),
        seen_ns=seen.get((exchange_id, host)),
    )
