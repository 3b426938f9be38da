"""Summarises the streams of a trace for a report: each stream, and groups of one service with the same evidence."""

import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.reporting.peers import NO_PEERS, with_peers
from collector.services.ends import service_name
from collector.trace.durations import in_words, with_uncertainty
from collector.trace.schema import ERRORS, StreamReason

MOST_LINES = 200
"""At most so many streams are listed in a report; the others are counted."""
BY_SHAPE = {
    StreamReason.UNASKED: "its server speaks unasked",
    StreamReason.TRIGGERED: "its server speaks when others have spoken",
    StreamReason.CROSSED: "unknown protocol, both sides send at one time",
    StreamReason.SEVERAL: "unknown protocol, several requests at once",
}
"""Names of streams whose messages cannot be read."""


class StreamLine(Struct, frozen=True):
    """A stream; see the table `streams`."""

    connection_id: int
    client_host: str | None
    server_host: str | None
    service: str | None
    protocol: str
    reason: str
    evidence: str
    begin_trace_ns: int | None
    duration_ns: int | None
    to_client_count: int
    to_server_count: int
    to_client_bytes: int
    to_server_bytes: int
    delay_median_ns: int | None
    delay_p99_ns: int | None
    uncertainty_ns: int | None
    likely_error_ns: int | None
    longest_idle_ns: int | None
    control_count: int | None
    closing: str | None
    client_peer: str | None = None  # what the address of an end without a capture is called
    server_peer: str | None = None

    @property
    def client(self) -> str | None:
        """The name of its client; None if it has none."""
        return self.client_host or self.client_peer

    @property
    def server(self) -> str | None:
        """The name of its server; None if it has none."""
        return self.server_host or self.server_peer


class StreamGroup(Struct, frozen=True):
    """Streams of one service with the same evidence; delays are those of the stream with the most messages."""

    name: str
    service: str | None
    count: int
    messages_count: int
    bytes: int
    delay_median_ns: int | None
    delay_p99_ns: int | None
    uncertainty_ns: int | None
    likely_error_ns: int | None
    longest_idle_ns: int | None

    @property
    def delay_words(self) -> str:
        """`median 31.0 µs ± 0.3 µs (at most 2.0 µs), p99 80.1 µs`; "" if no message was captured at both ends."""
        if self.delay_median_ns is None or self.delay_p99_ns is None:
            return ""
        median = with_uncertainty(self.delay_median_ns, self.uncertainty_ns or 0, self.likely_error_ns)
        return f"delay median {median}, p99 {in_words(self.delay_p99_ns)}"


class StreamSummary(Struct, frozen=True):
    """All streams of a trace."""

    count: int
    messages_count: int
    bytes: int
    groups: tuple[StreamGroup, ...]  # with most messages first
    lines: tuple[StreamLine, ...]  # likewise, `MOST_LINES` of them at most


def summarise_streams(streams: pa.Table, peers: pl.DataFrame = NO_PEERS) -> StreamSummary:
    """The summary. Arguments: the table `streams`; `peers`, as from `peers_of_connections`."""
    rows = with_peers(pl.DataFrame(streams).with_columns(pl.col(pl.Categorical).cast(pl.String)), peers)
    rows = rows.with_columns(
        messages=pl.col("to_client_count") + pl.col("to_server_count"),
        bytes=pl.col("to_client_bytes") + pl.col("to_server_bytes"),
        duration_ns=pl.col("end_trace_ns") - pl.col("begin_trace_ns"),
        name=pl.col("reason").replace_strict(BY_SHAPE, default=pl.col("evidence"), return_dtype=pl.String),
    ).sort("messages", "connection_id", descending=[True, False])
    lines = rows.head(MOST_LINES).select(StreamLine.__struct_fields__)
    return StreamSummary(
        count=len(rows),
        messages_count=int(rows["messages"].sum()),
        bytes=int(rows["bytes"].sum()),
        groups=_groups(rows),
        lines=tuple(StreamLine(**row) for row in lines.iter_rows(named=True)),
    )


def streams_words(summary: StreamSummary) -> str:
    """`3, with 120 messages; in no figure of requests`."""
    return f"{summary.count:,}, with {summary.messages_count:,} messages; in no figure of requests"


def group_words(group: StreamGroup) -> tuple[str, str, str]:
    """Three texts: its name and service, its traffic, and its delays."""
    several = f"{group.count:,} streams, " if group.count > 1 else ""
    much = f"{several}{group.messages_count:,} message{'s' * (group.messages_count != 1)}"
    idle = f"longest idle {in_words(group.longest_idle_ns)}" if group.longest_idle_ns else ""
    quick = "; ".join(words for words in (group.delay_words, idle) if words)
    return f"{group.name}, {service_name(group.service)}", much, quick


def _groups(rows: pl.DataFrame) -> tuple[StreamGroup, ...]:
    found = rows.group_by("name", "service", maintain_order=True).agg(
        pl.len().alias("count"),
        pl.col("messages").sum().alias("messages_count"),
        pl.col("bytes").sum(),
        pl.col("delay_median_ns", "delay_p99_ns").first(),
        pl.col(*ERRORS).first(),
        pl.col("longest_idle_ns").max(),
    )
    ordered = found.sort("messages_count", descending=True, maintain_order=True)
    return tuple(StreamGroup(**row) for row in ordered.iter_rows(named=True))
