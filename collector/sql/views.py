"""The views of a trace for SQL: what each is, and of each column its name, how it is computed, and what it means.

Times are TIMESTAMP_NS on the trace's timescale (UTC, as the reference host's clock), durations DOUBLE in the unit that
ends the column's name. The stored tables (`collector.trace.schema`), from which the views are made, are in the schema
`tables`.
"""

from collections.abc import Sequence

from msgspec import Struct

STORED = "tables"
"""The schema of the stored tables, and of what `trace.json` holds: `hosts`, `counters`."""


class Column(Struct, frozen=True):
    """A column of a view: its name, the SQL expression that computes it, and what it means."""

    name: str
    expression: str
    meaning: str


class View(Struct, frozen=True):
    """A view: what one of its rows is, the SQL after FROM, and its columns."""

    name: str
    meaning: str
    source: str
    columns: Sequence[Column]

    @property
    def definition(self) -> str:
        """The SELECT that makes it."""
        columns = ", ".join(f'{column.expression} AS "{column.name}"' for column in self.columns)
        return f"SELECT {columns} FROM {self.source}"


def _same(name: str, meaning: str, stored: str = "") -> Column:
    return Column(name, stored or name, meaning)


def _time(name: str, stored_ns: str, meaning: str) -> Column:
    return Column(name, f"make_timestamp_ns({stored_ns})", meaning)


def _in_ms(name: str, stored_ns: str, meaning: str) -> Column:
    return Column(name, f"({stored_ns}) / 1e6", meaning)


def _in_us(name: str, stored_ns: str, meaning: str) -> Column:
    return Column(name, f"({stored_ns}) / 1e3", meaning)


def _part(name: str, stored_ns: str, meaning: str) -> Column:
    """A stretch of a span on its root's critical path."""
    return _in_ms(name, f"s.{stored_ns}", f"of critical_ms: {meaning}")


def _part_of_server(name: str, stored_ns: str, meaning: str) -> Column:
    """The same, where both ends of the server's time are known; else `server_or_network_ms` holds it."""
    known = f"CASE WHEN s.server_or_network_ns = 0 THEN s.{stored_ns} END"
    return _in_ms(name, known, f"of critical_ms: {meaning}; null if not known")


REQUESTS = View(
    "requests",
    "a request with its answer, of a client or made on behalf of one",
    f"{STORED}.exchanges e LEFT JOIN {STORED}.spans s ON s.span_id = e.exchange_id WHERE e.is_stream IS NOT TRUE",
    [
        _same("id", "its number in this trace", "e.exchange_id"),
        _same("root_id", "the request of a client for which it was made; its own id if it is one", "s.trace_id"),
        _same("parent_id", "the request for which its client made it; null for a root", "s.parent_span_id"),
        _same("depth", "how many requests are above it; 0 for a root", "s.depth"),
        Column("link", "s.link_reason", "why its parent is its parent: transaction_id, connection or timing"),
        _same("link_confidence", "how likely that is, 0 to 1", "s.confidence"),
        _same("client", "the host that asked; null if it is not captured", "e.client_host"),
        _same("server", "the host that answered; null if it is not captured", "e.server_host"),
        _same("service", "what the server is called", "e.service"),
        _same("protocol", "what the connection speaks", "e.protocol"),
        _same("method", "its method, command or verb", "e.method"),
        _same("target", "what it asks for: a path, a statement, a key", "e.target"),
        _same("authority", "the domain name that it asks for", "e.authority"),
        _same("operation", "the operation in S3's words; null for other requests", "e.operation"),
        _same("bucket", "S3's bucket", "e.bucket"),
        _same("object_key", "S3's key", "e.object_key"),
        _same("status", "the status of its answer; null without one", "e.status"),
        _same("result", "what the protocol says beside it: UNAVAILABLE, MOVED; null for success", "e.result"),
        _same("outcome", "ok, failed, abandoned, unknown", "e.outcome"),
        _time("begin", "s.start_trace_ns", "when its client began: with the SYN, if the connection was opened for it"),
        _time("finish", "s.end_trace_ns", "when the last byte of its answer arrived, or it was given up"),
        _in_ms(
            "duration_ms",
            "s.end_trace_ns - s.start_trace_ns - s.pause_ns",
            "from begin to finish, but for the time in which a new connection was ready and its client did not ask",
        ),
        _in_ms(
            "server_ms",
            "e.response_first_sent_trace_ns - e.request_last_received_trace_ns",
            "from its last byte arriving at its server to the first of the answer leaving",
        ),
        _in_ms("critical_ms", "s.critical_ns", "its part of its root's duration: the sum of the columns below"),
        _part("client_ms", "client_ns", "its client had been asked for the body, and sent none yet"),
        _part("connect_ms", "connect_ns", "TCP's handshake"),
        _part("tls_ms", "tls_ns", "TLS's handshake"),
        _part("request_network_ms", "request_network_ns", "the request on the way"),
        _part_of_server("queue_ms", "queue_ns", "until its server took it up"),
        _part_of_server("work_ms", "work_ns", "its server's own time"),
        _part("fan_out_wait_ms", "fan_out_wait_ns", "of several calls at once, beyond the first answer"),
        _part("server_or_network_ms", "server_or_network_ns", "server and ways, where only the sum is known"),
        _part("response_network_ms", "response_network_ns", "the answer on the way"),
        _part("stall_ms", "stall_ns", "until lost packets had been sent again"),
        _part("request_idle_ms", "request_idle_ns", "its client paused within the request"),
        _part("response_idle_ms", "response_idle_ns", "its server paused within the answer"),
        _part("send_held_ms", "send_held_ns", "TCP held the sender: a window, a delayed ACK"),
        _part("reader_wait_ms", "reader_wait_ns", "the receiver did not read: its window was closed"),
        _same("request_bytes", "length of the request on the wire", "e.request_bytes"),
        _same("response_bytes", "length of the answer on the wire", "e.response_bytes"),
        _same("background", "a daemon asked, not a client", "e.background"),
        _same("transaction_id", "the id that it carries (X-Trans-Id, X-Request-Id, traceparent)", "e.transaction_id"),
        _same("client_span_id", "the span that asked, of a traceparent", "e.client_span_id"),
        _same("connection_id", "its connection", "e.connection_id"),
        _in_us("error_us", "e.likely_error_ns", "times across hosts are off by at most so much in 95 % of cases"),
    ],
)

PACKETS = View(
    "packets",
    "a transfer of bytes from one host to another: sent here, received there",
    f"{STORED}.hops h",
    [
        _same("connection_id", "its connection"),
        _same("request_id", "the request that it is part of; null for none", "exchange_id"),
        _same("kind", "syn, syn_ack, data, ack, fin, rst, keepalive, window_probe"),
        _same("from_client", "the connection's client sent it"),
        _same("sender", "the host that sent it; null if not known", "send_host"),
        _same("receiver", "the host that received it; null if not known", "receive_host"),
        _time("sent", "send_trace_ns", "when it left; null if that was not captured"),
        _time("received", "receive_trace_ns", "when it arrived; null if that was not captured"),
        _in_us("delay_us", "one_way_delay_ns", "from sent to received"),
        _in_us("delay_error_us", "likely_error_ns", "the delay is off by at most so much in 95 % of cases"),
        _in_us("delay_bound_us", "uncertainty_ns", "the delay is off by at most so much"),
        Column("bytes", "stream_end - stream_start", "of payload"),
        _same("stream_start", "place of its first byte in the connection's stream, from 0"),
        _same("attempt", "1, or a higher number for a retransmission"),
        _same("state", "matched, lost, capture_dropped, outside_window, ambiguous, unmatched"),
        _same("send_frame", "its number in the sender's capture, as Wireshark counts"),
        _same("receive_frame", "its number in the receiver's capture"),
    ],
)

CONNECTIONS = View(
    "connections",
    "a TCP connection",
    f"{STORED}.connections",
    [
        _same("id", "its number in this trace", "connection_id"),
        _same("client", "the host that opened it; null if it is not captured", "client_host"),
        _same("server", "the host that it was opened to; null if it is not captured", "server_host"),
        _same("client_address", "its address", "client_addr"),
        _same("client_port", "its port"),
        _same("server_address", "its address", "server_addr"),
        _same("server_port", "its port"),
        _same("protocol", "what it speaks, by how it begins"),
        _same("changed_to", "what it speaks later (an upgrade, STARTTLS)"),
        _same("packets", "at all capture points together", "events_count"),
        Column("handshake_captured", "client_isn IS NOT NULL AND server_isn IS NOT NULL", "both SYNs were captured"),
        _time("first_seen", "first_host_ns", "its first packet, by the clock of the host that saw it: not aligned"),
        _time("last_seen", "last_host_ns", "its last packet, likewise"),
        _same("closing", "who said how it would close"),
        _same("tls_version", "of TLS, as the server chose it", "tls_version"),
        _same("tls_server_name", "the name that the client asked for (SNI)"),
        _same("tls_alert", "why the handshake failed"),
        _same("client_process", "who opened it, as the agent found"),
        _same("client_unit", "systemd's unit of that"),
        _same("client_container", "container of that"),
        _same("client_pod", "pod of that"),
        _same("server_process", "who accepted it"),
        _same("server_unit", "systemd's unit of that"),
        _same("server_container", "container of that"),
        _same("server_pod", "pod of that"),
    ],
)

FINDINGS = View(
    "findings",
    "something that is wrong or remarkable",
    f"{STORED}.findings",
    [
        _same("severity", "error, warning, notice, info"),
        _same("kind", "which finding it is (docs/diagnosis.md)"),
        _same("host", "where"),
        _same("peer", "the other end, where a link is meant", "peer_host"),
        _same("service", "the service that is meant"),
        _same("text", "the finding in words", '"text"'),
        _same("remedy", "what to do"),
        _same("cause", "the finding that this one follows from; null for one that stands for itself"),
        _same("count", "of packets, connections or requests, as the text says", '"count"'),
        _in_ms("cost_ms", "cost_ns", "request time that was waited"),
        _same("failed_count", "clients' own attempts that failed or were given up"),
        _time("begin", "from_trace_ns", "of the worst case"),
        _time("finish", "to_trace_ns", "of the worst case"),
        _same("request_id", "the worst case", "span_id"),
        _same("connection_id", "the worst case"),
    ],
)

STREAMS = View(
    "streams",
    "a stretch of a connection on which nobody waits for an answer",
    f"{STORED}.streams",
    [
        _same("connection_id", "its connection"),
        _same("client", "the host that opened it", "client_host"),
        _same("server", "the host that it was opened to", "server_host"),
        _same("service", "what the server is called"),
        _same("protocol", "what it speaks"),
        _same("evidence", "why it is a stream"),
        _time("begin", "begin_trace_ns", "its first message"),
        _time("finish", "end_trace_ns", "its last one"),
        _same("to_client_count", "messages to the client"),
        _same("to_server_count", "messages to the server"),
        _same("to_client_bytes", "bytes to the client"),
        _same("to_server_bytes", "bytes to the server"),
        _in_us("delay_median_us", "delay_median_ns", "of a message, first byte sent to last byte received"),
        _in_us("delay_p99_us", "delay_p99_ns", "likewise, at 99 %"),
        _in_ms("longest_idle_ms", "longest_idle_ns", "between two messages"),
    ],
)

SILENCES = View(
    "silences",
    "a millisecond or more in which none of a message was on the way",
    f"{STORED}.silences",
    [
        _same("request_id", "the request", "exchange_id"),
        _same("in_response", "in its answer; else in the request itself"),
        _same("cause", "idle, held, unread"),
        _time("begin", "from_trace_ns", "when the bytes before had all arrived"),
        _time("finish", "to_trace_ns", "when the next ones left"),
        _in_ms("duration_ms", "to_trace_ns - from_trace_ns", "how long it lasted"),
    ],
)

PAIRING = View(
    "pairing",
    "one direction of one connection, and how well its packets were paired",
    f"{STORED}.quality",
    [
        _same("connection_id", "its connection"),
        _same("sender", "the host that sends", "send_host"),
        _same("receiver", "the host that receives", "receive_host"),
        _same("matched", "packets seen at both ends", "matched_count"),
        _same("lost", "sent, never arrived", "lost_count"),
        _same("capture_dropped", "arrived, but the capture missed them", "capture_dropped_count"),
        _same("outside_window", "the other end was not captured then", "outside_window_count"),
        _same("ambiguous", "of several possible partners", "ambiguous_count"),
        _same("unmatched", "none of these", "unmatched_count"),
        _same("retransmitted", "packets of a second or later attempt", "retransmitted_count"),
        _same("early", "received before they were sent: a clock is wrong", "early_count"),
        _same("bytes", "sent and not lost, while both hosts were capturing", '"bytes"'),
    ],
)

CLOCKS = View(
    "clocks",
    "a host's clock, against the reference host's, for a stretch of time",
    f"{STORED}.clocks",
    [
        _same("host", "the host"),
        _same("is_reference", "whether the trace's times are its own", '"reference"'),
        _time("from_time", "from_host_ns", "from when, by the host's own clock"),
        _time("to_time", "to_host_ns", "until when, by the host's own clock"),
        _in_us("ahead_us", "offset_ns", "how far it is ahead of the reference's at from_time"),
        Column("gains_ppm", "skew_ppb / 1e3", "how much it gains, in parts per million"),
        _in_us("error_us", "likely_error_ns", "ahead_us is off by at most so much in 95 % of cases"),
        _in_us("bound_us", "uncertainty_ns", "ahead_us is off by at most so much"),
        _same("method", "how it was found"),
    ],
)

USAGE = View(
    "usage",
    "what a host used of something until a time",
    f"{STORED}.samples",
    [
        _same("host", "the host"),
        _time("time", "host_ns", "the interval's end, by the host's own clock: not aligned"),
        _same("metric", "what, with its unit: cpu_percent, disk_busy_percent.sda"),
        _same("value", "how much"),
    ],
)

ANNOTATIONS = View(
    "annotations",
    "a line of a log, or a span of another tracer, placed in the trace",
    f"{STORED}.annotations",
    [
        _same("id", "its number in this trace", "annotation_id"),
        _same("kind", "log or span"),
        _same("format", "what wrote it: nginx, haproxy, swift, postgresql, json, otlp, jaeger"),
        _same("host", "the host whose clock stamped it"),
        _same("service", "what it says wrote it"),
        _time("begin", "start_trace_ns", "when it begins"),
        _time("finish", "start_trace_ns + duration_ns", "when it ends"),
        _in_ms("duration_ms", "duration_ns", "how long it says that it took; 0 for an instant"),
        _in_ms("error_ms", "uncertainty_ns", "begin and finish are off by at most so much"),
        _same("name", "what it is, in a few words"),
        _same("text", "the line, or the span's attributes", '"text"'),
        _same("severity", "error, warning, notice, info; null where it says none"),
        _same("transaction_id", "the request's id, as a log has it"),
        _same("trace_id", "the id of the trace in the record itself"),
        _same("request_id", "the request that it is about; null if none was found", "exchange_id"),
        _same("joined_by", "what shows that: id, connection, time"),
        _same("side", "of a span: client or server; null for another span, and for a line"),
        _same("phases", "durations that the record gives, in ns: queue:0 connect:3000000"),
        _same("source", "the file that it is from"),
    ],
)

HOSTS = View(
    "hosts",
    "a captured host",
    f"{STORED}.hosts",
    [
        _same("host", "its name"),
        _same("addresses", "its addresses"),
        _same("files", "its captures"),
        _same("packets", "TCP packets in its captures"),
        _time("first_seen", "first_host_ns", "its first packet, by its own clock"),
        _time("last_seen", "last_host_ns", "its last packet, by its own clock"),
        _same("is_on_path", "it forwards packets of others, as a router does"),
    ],
)

NAMES = View(
    "names",
    "what an address in the packets is called, by a hosts file or a capture",
    f"{STORED}.names",
    [
        _same("address", "the address"),
        _same("name", "what it is called; null if captures disagree"),
        _same("others", "further names, in whichever file"),
        _same("file", "the hosts file, or the capture, that has the name"),
    ],
)

COUNTERS = View(
    "counters",
    "a named count of a problem with the captures",
    f"{STORED}.counters",
    [
        _same("host", "of which host's capture; null if of all"),
        _same("name", "which problem (docs/decoding.md)"),
        _same("severity", "info, notice, data_loss, error"),
        _same("count", "how often", '"count"'),
        _same("remedy", "what to do"),
    ],
)

VIEWS = (
    REQUESTS,
    PACKETS,
    CONNECTIONS,
    FINDINGS,
    HOSTS,
    NAMES,
    CLOCKS,
    PAIRING,
    COUNTERS,
    STREAMS,
    SILENCES,
    USAGE,
    ANNOTATIONS,
)
