"""Finds the request that each span is about.

A trace keeps of a `traceparent` the id of the trace, not which span asked. So:

- A client's span is about the request that its host made with this id, within the time of the span; of several, the one
  with its method, target and status. A server's span is found as a line of a log is
  (`collector.annotations.joining`): by id and time, or by what it says.
- Any other span is about the request of the nearest server's span above it.

Where several requests are left, or the span is of no captured host, it is not joined: a server behind a proxy that was
not captured has the id, the path and the time of the request to the proxy.

Cost: 10 µs a span, and a pass over the table `exchanges`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from collector.annotations.joining import id_keys
from collector.annotations.records import Kind, Record
from collector.annotations.table import Join, place_records

COLUMNS = (
    *("exchange_id", "client_host", "transaction_id", "method", "target", "status"),
    *("request_first_sent_trace_ns", "response_last_received_trace_ns"),
)
SLACK_NS = 1_000_000
"""A client may stamp the end of its span so long before the last packet came, and a busy host's capture be so late."""
MOST_ABOVE = 64
"""Spans above one that are looked at."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request with an id."""

    exchange_id: int
    client_host: str | None
    transaction_id: str
    method: str | None
    target: str | None
    status: int | None
    begin_ns: int | None
    end_ns: int | None

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


def join_clients_spans(records: Sequence[Record], clocks: pa.Table, exchanges: Iterable[pa.Table]) -> dict[int, Join]:
    """The requests of clients' spans, by their places in `records`.

    Arguments: `clocks`, the table; `exchanges`, tables with `COLUMNS`, a part at a time.
    """
    wanted = {
        place: record
        for place, record in enumerate(records)
        if record.kind == Kind.SPAN and record.side == "client" and record.host
    }
    if not wanted:
        return {}
    asked = _by_id(exchanges, {record.trace_id for record in wanted.values()})
    starts, uncertain = place_records(list(wanted.values()), clocks)
    joins = {}
    for (place, record), start_ns, error_ns in zip(wanted.items(), starts, uncertain, strict=True):
        slack_ns = SLACK_NS + (record.uncertainty_ns if error_ns is None else error_ns)
        within = start_ns - slack_ns, start_ns + record.duration_ns + slack_ns
        own = [each for each in asked.get(record.trace_id, ()) if each.client_host == record.host]
        fitting = [each for each in own if each.is_within(*within) and each.fits(record)]
        if len(fitting) == 1:
            joins[place] = Join(fitting[0].exchange_id, "id")
    return joins


def join_inner_spans(records: Sequence[Record], joins: Mapping[int, Join]) -> dict[int, Join]:
    """The requests of spans that are neither a client's nor a server's: those of the servers' spans above them."""
    by_key = {
        (record.trace_id, record.span_id): place for place, record in enumerate(records) if record.kind == Kind.SPAN
    }
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
