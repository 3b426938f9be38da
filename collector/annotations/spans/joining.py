"""Finds the request that each span is about.

- A `traceparent` says which span asked. So a client's span is about the request of its host that names it, and a
  server's span about the request to its host that names the span's parent. Of several (one that was tried again), a
  client's is about the one within its time, with its method, target and status.
- Where a request's head has another id than a trace's, or its `traceparent` names a span that was not recorded, a
  client's span is about the request that its host made with the id of the trace, within the time of the span; of
  several, the one with its method, target and status. A request that names another span is none of these, unless that
  one is below it. A server's span is found as a line of a log is (`collector.annotations.joining`): by id and time, or
  by what it says.
- Any other span is about the request of the nearest server's span above it.

Where several requests are left, or the span is of no captured host, it is not joined: a server behind a proxy that was
not captured has the id, the path and the time of the request to the proxy.

Cost: 10 µs a span, and a pass over the table `exchanges`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from collector.annotations.joining import id_keys
from collector.annotations.records import Kind, Record
from collector.annotations.table import Join, place_records

COLUMNS = (
    *("exchange_id", "client_host", "server_host", "transaction_id", "client_span_id", "method", "target", "status"),
    *("request_first_sent_trace_ns", "response_last_received_trace_ns"),
)
SLACK_NS = 1_000_000
"""A client may stamp the end of its span so long before the last packet came, and a busy host's capture be so late."""
MOST_ABOVE = 64
"""Spans above one that are looked at."""


class _Asked(Struct, frozen=True):
    """A request with an id."""

    exchange_id: int
    client_host: str | None
    server_host: str | None
    transaction_id: str
    client_span_id: str | None
    method: str | None
    target: str | None
    status: int | None
    begin_ns: int | None
    end_ns: int | None

    def names(self, record: Record) -> bool:
        """Whether its head names a client's span, or the parent of a server's, and its host is the span's."""
        of_client = record.side == "client"
        host, span = (self.client_host, record.span_id) if of_client else (self.server_host, record.parent_span_id)
        return host == record.host and bool(span) and self.client_span_id == span

    def fits(self, record: Record) -> bool:
        """Whether a span says nothing that the request is not, as far as both are known."""
        path = (self.target or "").partition("?")[0]
        return (
            record.method in ("", (self.method or record.method).upper())
            and record.status in (0, self.status or record.status)
            and (not record.target or not path or record.target.partition("?")[0] == path)
        )

    def is_within(self, from_ns: int, to_ns: int) -> bool:
        """Whether its packets were all at the client in that time."""
        return self.begin_ns is not None and from_ns <= self.begin_ns and (self.end_ns or self.begin_ns) <= to_ns


def join_sided_spans(records: Sequence[Record], clocks: pa.Table, exchanges: Iterable[pa.Table]) -> dict[int, Join]:
    """The requests of clients' spans, and of servers' whose request names the span that asked, by their places in
    `records`.

    Arguments: `clocks`, the table; `exchanges`, tables with `COLUMNS`, a part at a time.
    """
    wanted = {
        place: record
        for place, record in enumerate(records)
        if record.kind == Kind.SPAN and record.side and record.host
    }
    if not wanted:
        return {}
    asked = _by_id(exchanges, {record.trace_id for record in wanted.values()})
    by_key = _places_of_spans(records)
    starts, uncertain = place_records(list(wanted.values()), clocks)
    joins = {}
    for (place, record), start_ns, error_ns in zip(wanted.items(), starts, uncertain, strict=True):
        slack_ns = SLACK_NS + (record.uncertainty_ns if error_ns is None else error_ns)
        within = start_ns - slack_ns, start_ns + record.duration_ns + slack_ns
        of_trace = asked.get(record.trace_id, ())
        named = [each for each in of_trace if each.names(record)]
        if len(named) != 1 and record.side == "client":
            own = named or _of_host(of_trace, record, records, by_key)
            named = [each for each in own if each.is_within(*within) and each.fits(record)]
        if len(named) == 1:
            joins[place] = Join(named[0].exchange_id, "id")
    return joins


def _of_host(
    asked: Sequence[_Asked], record: Record, records: Sequence[Record], by_key: Mapping[tuple[str, str], int]
) -> list[_Asked]:
    """Requests of a client's host, but for those that name another recorded span that is not below the client's."""
    return [
        each
        for each in asked
        if each.client_host == record.host and _may_be_below(each.client_span_id, record, records, by_key)
    ]


def _may_be_below(
    span_id: str | None, record: Record, records: Sequence[Record], by_key: Mapping[tuple[str, str], int]
) -> bool:
    place = by_key.get((record.trace_id, span_id)) if span_id else None
    for _ in range(MOST_ABOVE):
        if place is None or records[place] is record:
            return True
        parent = records[place].parent_span_id
        if not parent:
            return False
        place = by_key.get((record.trace_id, parent))
    return True


def join_inner_spans(records: Sequence[Record], joins: Mapping[int, Join]) -> dict[int, Join]:
    """The requests of spans that are neither a client's nor a server's: those of the servers' spans above them."""
    by_key = _places_of_spans(records)
    found = {}
    for place, record in enumerate(records):
        if record.kind == Kind.SPAN and not record.side:
            server = _server_above(record, records, by_key)
            if server is not None and server in joins:
                found[place] = Join(joins[server].exchange_id, "id")
    return found


def _by_id(exchanges: Iterable[pa.Table], traces: set[str]) -> Mapping[str, Sequence[_Asked]]:
    found: dict[str, list[_Asked]] = defaultdict(list)
    for part in exchanges:
        for row in zip(*(part[name].to_pylist() for name in COLUMNS), strict=True):
            asked = _Asked(*row)
            for key in set(id_keys(asked.transaction_id)) & traces if asked.transaction_id else ():
                found[key].append(asked)
    return found


def _server_above(record: Record, records: Sequence[Record], by_key: Mapping[tuple[str, str], int]) -> int | None:
    """The place of the nearest server's span above one."""
    for _ in range(MOST_ABOVE):
        place = by_key.get((record.trace_id, record.parent_span_id))
        if place is None:
            return None
        record = records[place]
        if record.side:
            return place if record.side == "server" else None
    return None


def _places_of_spans(records: Sequence[Record]) -> dict[tuple[str, str], int]:
    """By the ids of trace and span."""
    spans = ((place, record) for place, record in enumerate(records) if record.kind == Kind.SPAN)
    return {(record.trace_id, record.span_id): place for place, record in spans}
