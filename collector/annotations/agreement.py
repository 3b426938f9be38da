"""What annotations say of a request, beside what packets show of it.

A server's duration is compared with the time between the request's first byte there and its answer's last, both by that
host's own capture, so no clock of another enters. They differ only by more than the record rounds; a server's clock may
begin later than the packets do (its accept queue, a busy thread), and end before they have left (the kernel's buffer).
A client's span is compared with the time from its request's first byte to the answer's last, at the client; it may be
longer (it waited for a connection, or read the answer later), and one that is shorter ended before all had arrived.
"""

from collections.abc import Container, Mapping, Sequence

import polars as pl
from msgspec import Struct

from collector.annotations.records import Kind, Phase, parse_phases
from collector.trace.durations import in_words
from collector.trace.reading import Trace

MOST_EXCHANGES = 200
"""Of one request, those whose times are read."""
_COLUMNS = ("annotation_id", "kind", "format", "host", "service", "start_trace_ns", "duration_ns", "uncertainty_ns")
COLUMNS = (
    *_COLUMNS,
    "duration_uncertainty_ns",
    "name",
    "exchange_id",
    "joined_by",
    "phases",
    "severity",
    "text",
    "side",
)
TIMES = ("exchange_id", "server_host", "request_first_received_trace_ns", "response_last_sent_trace_ns")
CLIENT_TIMES = ("client_host", "request_first_sent_trace_ns", "response_last_received_trace_ns")


class Said(Struct, frozen=True):
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
    is_client: bool = False  # it is the client's; then `seen_ns` is what packets show there
    is_inner: bool = False  # a span of something that the server did for the request

    @property
    def by(self) -> str:
        """Who says it: `nginx on web`."""
        return f"{self.service or self.format} on {self.host}" if self.host else self.service or self.format

    @property
    def comparison(self) -> str:
        """How its duration compares with what packets show; "" if one of them is not known, or it is of a part."""
        if not self.duration_ns or self.seen_ns is None or self.is_inner:
            return ""
        longer_ns = self.duration_ns - self.seen_ns
        if self.is_client:
            return self._comparison_at_client(longer_ns)
        if longer_ns > self.duration_uncertainty_ns and self.kind == Kind.SPAN:
            return f"{in_words(longer_ns)} longer than its packets: it ended after the last of them"
        if longer_ns > self.duration_uncertainty_ns:
            return f"{in_words(longer_ns)} longer than packets show: they disagree"
        if -longer_ns > self.duration_uncertainty_ns:
            return f"packets show {in_words(-longer_ns)} more, before its clock began or after it handed the answer on"
        return "as packets show"

    def _comparison_at_client(self, longer_ns: int) -> str:
        if longer_ns > self.duration_uncertainty_ns:
            return f"{in_words(longer_ns)} longer than its packets: before the first, or after the last"
        if -longer_ns > self.duration_uncertainty_ns:
            return f"packets show {in_words(-longer_ns)} more: it ended before the answer had arrived"
        return "as packets show"

    @property
    def words(self) -> str:
        """All of it in one line."""
        phases = ", ".join(f"{phase.name} {in_words(phase.duration_ns)}" for phase in self.phases)
        took = in_words(self.duration_ns) if self.duration_ns else ""
        return "; ".join(filter(None, (took, phases, self.comparison)))


def heading_of(said: Sequence[Said]) -> str:
    """Above what they say: whether they are lines of logs, spans, or both."""
    return f"As its {sources_words({each.kind for each in said})} say"


def sources_words(kinds: Container[str]) -> str:
    """What annotations of these kinds are from: `logs`, `spans`, `logs and spans`."""
    words = {Kind.LOG: "logs", Kind.SPAN: "spans"}
    return " and ".join(word for kind, word in words.items() if kind in kinds)


def said_of(trace: Trace, exchange_ids: Sequence[int]) -> tuple[Said, ...]:
    """What annotations say of some exchanges, by time. Cost: a pass over the table `annotations`, if it has rows."""
    if not trace.rows_count("annotations"):
        return ()
    wanted = list(exchange_ids)
    parts = (pl.DataFrame(part).cast({pl.Categorical: pl.String}) for part in trace.batches("annotations", COLUMNS))
    rows = [row for part in parts for row in part.filter(pl.col("exchange_id").is_in(wanted)).to_dicts()]
    seen = _seen_ns(trace, sorted({row["exchange_id"] for row in rows})[:MOST_EXCHANGES])
    return tuple(_said_row(row, seen) for row in sorted(rows, key=lambda row: int(row["start_trace_ns"])))


Seen = Mapping[tuple[int, str], tuple[str, int]]
"""By exchange and side, "client" or "server": the host there, and how long its packets were there (ns)."""


def _seen_ns(trace: Trace, exchange_ids: Sequence[int]) -> Seen:
    """Of those whose both ends were seen at the host."""
    found: dict[tuple[int, str], tuple[str, int]] = {}
    for exchange_id in exchange_ids:
        for row in trace.rows_matching("exchanges", TIMES + CLIENT_TIMES, {"exchange_id": exchange_id}).to_pylist():
            for names, side in ((CLIENT_TIMES, "client"), (TIMES[1:], "server")):
                host, begin, end = (row[name] for name in names)
                if host and begin is not None and end is not None:
                    found[exchange_id, side] = str(host), end - begin
    return found


def _said_row(row: Mapping[str, object], seen: Seen) -> Said:
    exchange_id, host = int(str(row["exchange_id"])), str(row["host"] or "")
    is_client = row["side"] == "client"
    seen_host, seen_ns = seen.get((exchange_id, "client" if is_client else "server"), ("", 0))
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
        seen_ns=seen_ns if seen_host and seen_host == host else None,
        is_client=is_client,
        is_inner=row["kind"] == Kind.SPAN and not row["side"],
    )
