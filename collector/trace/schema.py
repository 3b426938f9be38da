"""The tables of a trace: names, column types and units. Other tools read them, so a change here changes an interface.

Times are int64 ns. `host_ns` is a host's own timestamp since the epoch; `trace_ns` is on the trace's timescale, that of
the reference host. Source: docs/architecture.md, which explains the purpose of each table.
"""

from collections.abc import Sequence
from enum import IntFlag, StrEnum

import pyarrow as pa

from collector.trace.arrow import null_array

FORMAT_VERSION = 3
"""Of the trace directory; written to `trace.json`. 2: `spans.quorum_ns` of format 1 is `fan_out_wait_ns`.
3: `exchanges` says who ended what was not answered (`ending`, outcome `abandoned`); what is no request (`is_stream`)
has no row in `spans`, but is part of a row of `streams`."""


ERRORS = ("uncertainty_ns", "likely_error_ns")
"""Of a time or a difference of times: by how much it is off at most, and by how much at most in 95 % of cases."""


class HopKind(StrEnum):
    """What a transfer carried."""

    SYN = "syn"
    SYN_ACK = "syn_ack"
    DATA = "data"
    ACK = "ack"
    FIN = "fin"
    RST = "rst"
    KEEPALIVE = "keepalive"
    WINDOW_PROBE = "window_probe"


class MessageKinds(IntFlag):
    """Messages of WebSocket, or further parts of one, that begin in a transfer: bits of the column `message_kinds`."""

    TEXT = 0x01
    BINARY = 0x02
    CONTINUATION = 0x04
    PING = 0x08
    PONG = 0x10
    CLOSE = 0x20


class HopState(StrEnum):
    """The fate of a transfer."""

    MATCHED = "matched"  # seen at both ends
    LOST = "lost"  # sent, never arrived, never acknowledged (by this attempt)
    CAPTURE_DROPPED = "capture_dropped"  # acknowledged, so it arrived, but the capture missed it
    OUTSIDE_WINDOW = "outside_window"  # the other host was not capturing at that time, or is not captured at all
    AMBIGUOUS = "ambiguous"  # more than one possible partner, which nothing distinguishes
    UNMATCHED = "unmatched"  # none of the above


class LinkReason(StrEnum):
    """The reason why an exchange is linked to another as its child."""

    TRANSACTION_ID = "transaction_id"
    CONNECTION = "connection"
    TIMING = "timing"


class SilenceCause(StrEnum):
    """Why no byte of a message was in transit."""

    IDLE = "idle"  # its sender had nothing to send
    HELD = "held"  # TCP held it: congestion window, a small window, a delayed acknowledgement
    UNREAD = "unread"  # the receiver's window was closed: its application did not read


class StreamReason(StrEnum):
    """The evidence that a connection, or a part of it, carries no requests (`collector.requests.streams`)."""

    UPGRADE = "upgrade"  # HTTP: 101 Switching Protocols
    TUNNEL = "tunnel"  # HTTP: CONNECT was accepted
    EVENT_STREAM = "event_stream"  # HTTP: the answer is of type text/event-stream
    WORD = "word"  # a word of another protocol (`tracer/core/protocols/src/marks.rs`)
    UNASKED = "unasked"  # its shape: the server sends again and again without being asked
    TRIGGERED = "triggered"  # the server sends when another of its clients has sent
    TWO_WAY = "two_way"  # HTTP/2: both sides go on at one time, or it was begun before the capture
    UNREAD = "unread"  # HTTP/2, of which frames are missing: it may be many requests at once
    HIDDEN = "hidden"  # HTTP/2 inside TLS: likewise
    CROSSED = "crossed"  # turns of a protocol that is not read are no requests: both sides sent at one time
    SEVERAL = "several"  # the same: both sides went on again and again without having received anything


def _text() -> pa.DataType:
    return pa.dictionary(pa.int32(), pa.string())


def _text_value(text: str | None) -> pa.Scalar:
    """One value of a column of texts."""
    return pa.array([text], pa.string()).cast(_text())[0]


def _fields(may_be_null: Sequence[str] | None = None, **types: pa.DataType) -> pa.Schema:
    """A schema; columns that are never null are cheaper to write and read, so the large tables list those that may
    be."""
    return pa.schema([pa.field(name, kind, may_be_null is None or name in may_be_null) for name, kind in types.items()])


EVENTS = _fields(
    may_be_null=("ip_id", "tsval", "tsecr", "connection_id"),
    host=_text(),
    point=_text(),  # "host/interface"
    frame=pa.uint32(),  # from 1 within the host's capture, as in Wireshark; several files of a host go on counting
    host_ns=pa.int64(),
    direction=_text(),  # "send" | "receive"
    connection_id=pa.int64(),  # null where the host only forwarded the packet
    src_addr=_text(),
    src_port=pa.uint16(),
    dst_addr=_text(),
    dst_port=pa.uint16(),
    seq=pa.uint32(),
    ack=pa.uint32(),
    flags=pa.uint16(),
    payload_len=pa.uint32(),
    window=pa.uint16(),
    ip_id=pa.int32(),  # null where there is none
    tsval=pa.uint32(),  # null without the timestamps option
    tsecr=pa.uint32(),
    captured_len=pa.uint32(),
    original_len=pa.uint32(),
)
"""One row for each TCP packet at one capture point."""

OWNER_FIELDS = {
    "process": "process",
    "exe": "exe",
    "pid": "pid",
    "process_start_host_ns": "start_ns",
    "user": "user",
    "unit": "unit",
    "container": "container",
    "pod": "pod",
}
"""Columns of `connections` for each end's owner (`client_process` …), and what they are called there
(`collector.capture_files.owners.Owner`)."""


def _owner_types(side: str) -> dict[str, pa.DataType]:
    return {
        f"{side}_process": _text(),  # the name of its main thread, as `ps -o comm` shows it
        f"{side}_exe": _text(),  # the file of its program
        f"{side}_pid": pa.uint32(),  # as its host's agent sees it; null where several processes hold the socket
        f"{side}_process_start_host_ns": pa.int64(),  # when that process was started: a pid is used again
        f"{side}_user": _text(),  # the name, else the number
        f"{side}_unit": _text(),  # systemd's: "nginx.service"
        f"{side}_container": _text(),  # the first 12 digits of its id, or its name (LXC, nspawn)
        f"{side}_pod": _text(),  # its name, else its uid
        f"{side}_owner_evidence": _text(),  # "socket": holds the connection's; "listener": listens at the port
    }


CONNECTIONS = _fields(
    connection_id=pa.int64(),
    client_host=_text(),  # null if not captured
    server_host=_text(),
    client_addr=_text(),  # who sent the SYN; without one, whose peer answers SYNs elsewhere, else the higher port
    client_port=pa.uint16(),
    server_addr=_text(),
    server_port=pa.uint16(),
    client_isn=pa.uint32(),  # null if the handshake was not captured
    server_isn=pa.uint32(),
    first_host_ns=pa.int64(),
    last_host_ns=pa.int64(),
    events_count=pa.uint32(),
    protocol=_text(),  # what it speaks, by how its two directions begin: a name of the registry, "unknown"
    protocol_evidence=_text(),  # which of them show it: "both", "client", "server"; null if neither does
    changed_to=_text(),  # what it speaks later, behind an upgrade, CONNECT or STARTTLS; null where none was seen
    closing=_text(),  # who said how it would close: "client: close 1000", "server: GOAWAY NO_ERROR"; null if nobody did
    tls_opened=pa.bool_(),  # it is TLS, opened with keys; then `protocol` is what is inside
    # Where a NAT or a balancer rewrote it on the way: how the server's host knows its two ends; else null.
    translated_client_addr=_text(),
    translated_client_port=pa.uint16(),
    translated_server_addr=_text(),
    translated_server_port=pa.uint16(),
    # What the handshake of TLS on it says, wherever that began; null where there is none, or it does not say it.
    tls_server_name=_text(),  # the name that the client asks for (SNI); with `tls_ech_offered` it may be an outer one
    tls_alpn_offered=_text(),  # the protocols that the client offers, by preference: "h2, http/1.1"
    tls_alpn=_text(),  # the one that the server chose; in TLS 1.3 that is encrypted, so null
    tls_versions_offered=_text(),  # newest first: "1.3, 1.2"
    tls_version=_text(),  # which the server chose: "1.3"
    tls_cipher=_text(),  # IANA's name of the cipher suite
    tls_resumption=_text(),  # "full", "resumed", "psk" (TLS 1.3: by ticket, or a key that both ends were given before)
    tls_early_data_offered=pa.bool_(),  # whether the server took it is encrypted
    tls_ech_offered=pa.bool_(),  # the client sends an encrypted hello, or bytes that look like one (GREASE)
    tls_retried=pa.bool_(),  # the server asked for another hello (HelloRetryRequest)
    tls_alert=_text(),  # why the handshake failed ("unknown_ca"; "encrypted" for one that cannot be read)
    tls_alert_from=_text(),  # who sent it: "client" or "server"
    tls_evidence=_text(),  # which hellos were captured whole: "both", "client", "server"; null for neither
    # Who owns each end, as an agent on its host found; null where none did, or where it is not known.
    **_owner_types("client"),
    **_owner_types("server"),
)
"""One row for each connection incarnation (4-tuple and both ISNs)."""

_OF_AN_END = [f"{end}_{what}" for end in ("send", "receive") for what in ("host", "frame", "host_ns", "trace_ns")]
HOPS = _fields(
    may_be_null=(*_OF_AN_END, "one_way_delay_ns", "uncertainty_ns", "likely_error_ns", "exchange_id", "message_kinds"),
    connection_id=pa.int64(),
    kind=_text(),  # HopKind
    from_client=pa.bool_(),  # sent by the connection's client
    send_host=_text(),
    send_frame=pa.uint32(),
    send_host_ns=pa.int64(),
    send_trace_ns=pa.int64(),
    receive_host=_text(),
    receive_frame=pa.uint32(),
    receive_host_ns=pa.int64(),
    receive_trace_ns=pa.int64(),
    stream_start=pa.int64(),  # bytes past ISN+1 (past the first byte seen, without SYN); zero length: start = end
    stream_end=pa.int64(),
    attempt=pa.uint16(),  # 1 = first transmission
    state=_text(),  # HopState
    one_way_delay_ns=pa.int64(),
    uncertainty_ns=pa.int64(),  # the delay is off by at most so much; of a lone event, its time
    likely_error_ns=pa.int64(),  # and in 95 % of cases by at most so much (collector.clocks.likely); null: not known
    exchange_id=pa.int64(),  # null if it belongs to none
    message_kinds=pa.uint8(),  # MessageKinds; 0 or null if none
)
"""One row for each transfer of bytes (or of a zero-length segment) from a send event to a receive event. A lone event
has nulls on its missing side and a state that says why; the missing side's host is given where it is known."""

QUALITY = _fields(
    may_be_null=("send_host", "receive_host"),
    connection_id=pa.int64(),
    send_host=_text(),
    receive_host=_text(),
    **{f"{state}_count": pa.int64() for state in HopState},  # hops in each state
    split_count=pa.int64(),  # matched data hops that share their send or their receive with another
    retransmitted_count=pa.int64(),  # hops of a second or later attempt
    early_count=pa.int64(),  # received before they were sent, on the trace's timescale
    bytes=pa.int64(),  # sent and not lost, while both hosts were capturing
    matched_bytes=pa.int64(),
)
"""How well one direction of one connection was paired: one row for each."""

CLOCKS = _fields(
    host=_text(),
    from_host_ns=pa.int64(),
    to_host_ns=pa.int64(),
    from_frame=pa.uint32(),  # a stepped clock's stamps may repeat, so the interval is also given in frames of the host
    to_frame=pa.uint32(),
    offset_ns=pa.int64(),  # host clock - reference, at from_host_ns
    skew_ppb=pa.int64(),
    uncertainty_ns=pa.int64(),  # offset_ns is off by at most so much
    likely_error_ns=pa.int64(),  # and in 95 % of cases by at most so much (collector.clocks.likely)
    reference=pa.bool_(),
    method=pa.string(),
)
"""One row for each host and validity interval.

trace_ns = host_ns - offset_ns - skew_ppb * (host_ns - from_host_ns) / 1e9."""

MESSAGES = _fields(
    connection_id=pa.int64(),
    from_client=pa.bool_(),
    host=_text(),  # where it was seen
    frame=pa.uint32(),
    stream_offset=pa.int64(),  # of the head's first byte, on the same scale as hops.stream_start
    head_kind=pa.uint8(),  # collector.capture_files.records.HeadKind
    head_flags=pa.uint8(),  # collector.capture_files.records.HeadFlag
    method=pa.string(),
    target=pa.string(),
    status=pa.uint16(),  # 0 for a request
    content_length=pa.int64(),  # -1 if not given
    head_len=pa.uint32(),
    range_first=pa.int64(),  # of the bytes that it is about, -1 if not given; (-1, n) are the last n
    range_last=pa.int64(),
    result_code=pa.int32(),  # what the protocol says beside the status (grpc-status); -1 nothing, -2 it comes later
    frame_kind=pa.uint16(),  # as the protocol numbers its frames; 0 if it has none
    stream_id=pa.int64(),  # of the frame; -1 if it has none
    transaction_id=pa.string(),  # "" if none
    client_span_id=pa.string(),  # the span that asks, where the id above is the trace of a traceparent; else ""
    user_agent=pa.string(),
    authority=pa.string(),  # the domain name that the request asks for (Host); "" for an address or one label
)
"""One row for each HTTP head seen at a capture point (so usually two for each message: at sender and receiver), and for
each TLS record: of that, `status` is the content type and `head_len` its whole length."""

EXCHANGES = _fields(
    exchange_id=pa.int64(),
    connection_id=pa.int64(),
    client_host=_text(),
    server_host=_text(),
    service=_text(),
    request_first_sent_trace_ns=pa.int64(),
    request_first_received_trace_ns=pa.int64(),
    request_last_sent_trace_ns=pa.int64(),
    request_last_received_trace_ns=pa.int64(),
    response_first_sent_trace_ns=pa.int64(),
    response_first_received_trace_ns=pa.int64(),
    response_last_sent_trace_ns=pa.int64(),
    response_last_received_trace_ns=pa.int64(),
    request_head_received_trace_ns=pa.int64(),  # when the last byte of an HTTP head arrived; the body comes after it
    response_head_received_trace_ns=pa.int64(),
    connect_start_trace_ns=pa.int64(),  # client's first SYN, for the first exchange of a connection; else null
    connected_trace_ns=pa.int64(),  # when the client acknowledged the SYN-ACK (or else had it), likewise
    connected_received_trace_ns=pa.int64(),  # when that was at the server, where it spoke first; else null
    greeting_sent_trace_ns=pa.int64(),  # the first byte that the server sent before its client sent any; else null
    greeting_received_trace_ns=pa.int64(),
    tls_start_trace_ns=pa.int64(),  # the client's first byte of TLS's handshake, for the first exchange behind it
    tls_end_trace_ns=pa.int64(),  # when the client had the last of it, or sent the last of it
    continue_sent_trace_ns=pa.int64(),  # when the server asked for the rest of it (HTTP 100); null if it did not
    continue_received_trace_ns=pa.int64(),
    body_sent_trace_ns=pa.int64(),  # when the client first sent something after that
    connect_stall_ns=pa.int64(),  # how long it waited for a lost SYN or its answer to be sent again; null for never
    request_stall_ns=pa.int64(),  # and for lost bytes of the request, of the response
    response_stall_ns=pa.int64(),
    request_silent_idle_ns=pa.int64(),  # how long none of the request was on the way, by `SilenceCause`; null for never
    request_silent_held_ns=pa.int64(),
    request_silent_unread_ns=pa.int64(),
    response_silent_idle_ns=pa.int64(),
    response_silent_held_ns=pa.int64(),
    response_silent_unread_ns=pa.int64(),
    given_up_trace_ns=pa.int64(),  # when the client closed the connection on a request without any answer; else null
    round_trip_ns=pa.int64(),  # fastest on its connection that the client saw; null where the server's end was seen
    uncertainty_ns=pa.int64(),  # the largest of its hops
    likely_error_ns=pa.int64(),  # likewise
    request_bytes=pa.int64(),
    response_bytes=pa.int64(),
    response_due_bytes=pa.int64(),  # as long as its head says it is, head included; null where it says no length
    until_close=pa.bool_(),  # it says no length, and ended with the server's FIN, which is its last then
    protocol=_text(),  # "http/1.1", "unknown"
    method=_text(),
    target=pa.string(),
    authority=_text(),  # the domain name that it asks for (Host); null for an address or one label
    operation=_text(),  # in S3's words ("UploadPart"; collector.requests.s3_names); null where it is no request of S3's
    bucket=_text(),  # this and the three below: of such an operation
    object_key=pa.string(),
    upload=_text(),  # the id of the multipart upload that it is part of
    part=pa.uint16(),  # the part's number
    range_first=pa.int64(),  # of the bytes that it is about (Range, Content-Range), null where its head gives none
    range_last=pa.int64(),  # without a first byte, how many of the last ones
    status=pa.uint16(),
    result_code=pa.int32(),  # what the protocol says beside the status (grpc-status); -2 if it was due and not seen
    result=_text(),  # the same in the protocol's words ("UNAVAILABLE"); null for success, and where it has none
    status_class=_text(),  # collector.requests.results.StatusClass; "unknown" where no answer shows it
    transaction_id=pa.string(),
    client_span_id=pa.string(),  # the span that asks, where the id above is the trace of a traceparent; else null
    response_transaction_id=pa.string(),  # where the response shows another than the request; else null
    client_service=_text(),  # which service or daemon asked, as its User-Agent says (services.toml); null if unknown
    background=pa.bool_(),  # asked by a daemon, as its User-Agent says (services.toml); null where none was seen
    complete=pa.bool_(),
    ending=_text(),  # who ended it before it was wholly answered (collector.requests.endings); null where nobody did
    closed_trace_ns=pa.int64(),  # when that was, by the clock of who did; null likewise
    outcome=_text(),  # "ok" | "failed" | "abandoned" | "unknown" (collector.requests.outcomes)
    is_stream=pa.bool_(),  # no request, but part of a stream (requests.streams): in no mean, percentile or span
)
"""One row for each request and its final response on a connection, whatever the protocol. Unknown times are null."""

SILENCES = _fields(
    exchange_id=pa.int64(),
    in_response=pa.bool_(),  # else in the request
    from_trace_ns=pa.int64(),  # when the bytes before had all arrived
    to_trace_ns=pa.int64(),  # when the next left
    cause=_text(),  # SilenceCause
)
"""One row for each stretch of a message, of a millisecond or more, in which none of its bytes was on the way."""

STREAMS = _fields(
    connection_id=pa.int64(),
    client_host=_text(),
    server_host=_text(),
    service=_text(),
    protocol=_text(),  # "http/1.1", "http/2", "redis", "mqtt", "postgresql", "ssh", "unknown"
    reason=_text(),  # StreamReason
    evidence=pa.string(),  # the same in words
    begin_trace_ns=pa.int64(),  # its first message left, or arrived, as far as was seen
    end_trace_ns=pa.int64(),  # its last one arrived, or left
    to_client_count=pa.int64(),  # messages: what one side sends at once; several in a segment are one, but WebSocket's
    to_server_count=pa.int64(),
    to_client_bytes=pa.int64(),
    to_server_bytes=pa.int64(),
    delay_median_ns=pa.int64(),  # of all messages seen at both ends, first byte sent to last byte received; else null
    delay_p99_ns=pa.int64(),
    uncertainty_ns=pa.int64(),  # of these two
    likely_error_ns=pa.int64(),  # likewise, at 95 %
    longest_idle_ns=pa.int64(),  # between two messages
    control_count=pa.int64(),  # of WebSocket, both ways: pings, pongs, closes, which are not counted above; else null
    closing=_text(),  # as in `connections`
)
"""One row for each stream: a stretch of a connection, or all of it, on which nobody waits for an answer."""

SPANS = _fields(
    trace_id=pa.int64(),  # exchange_id of the root
    span_id=pa.int64(),  # = exchange_id
    parent_span_id=pa.int64(),  # null for a root
    link_reason=_text(),  # null for a root
    confidence=pa.float64(),
    alternative_parent_span_id=pa.int64(),  # of an inferred link the next likeliest parent; null where there is none
    alternative_confidence=pa.float64(),  # how likely that one is
    depth=pa.uint16(),
    start_trace_ns=pa.int64(),  # SYN, if the connection was opened for it (requests.openings), else its first byte
    end_trace_ns=pa.int64(),  # last byte of its answer, or when it was given up; null if neither was seen
    pause_ns=pa.int64(),  # from handshake or greeting to first byte: no part of its duration, end - start - pause
    critical_ns=pa.int64(),  # of the root's duration, how much this span's own columns below hold; their sum
    client_ns=pa.int64(),  # a root's client had been asked for the body (HTTP 100), but sent none yet
    connect_ns=pa.int64(),  # from the first SYN until the client acknowledged the server's
    tls_ns=pa.int64(),  # the handshake of TLS
    request_network_ns=pa.int64(),
    queue_ns=pa.int64(),  # until the server took it up, as far as that can be determined (collector.requests.waits)
    work_ns=pa.int64(),  # the server's own time, outside any child on the critical path
    fan_out_wait_ns=pa.int64(),  # of several servers asked at once, beyond the first one's answer
    server_or_network_ns=pa.int64(),  # the server's work and the ways there and back, of which one end shows the sum
    response_network_ns=pa.int64(),
    stall_ns=pa.int64(),  # until what was lost had been sent again
    request_idle_ns=pa.int64(),  # none of the request was on the way: its sender had nothing to send
    response_idle_ns=pa.int64(),  # none of the response was: the server had nothing to send
    send_held_ns=pa.int64(),  # none of either was: TCP held the sender (congestion or small window, delayed ACK)
    reader_wait_ns=pa.int64(),  # none of either was: the receiver's window was closed, its application did not read
)
"""One row for each exchange that is no stream, as part of one root request. Over the spans of a trace_id the ledger
columns (`*_ns` after `critical_ns`) add up exactly to the root's duration."""

FINDINGS = _fields(
    severity=_text(),  # "info" | "notice" | "warning" | "error"
    kind=_text(),
    host=_text(),
    peer_host=_text(),  # the other end, where a link between two hosts is meant
    service=_text(),  # where one is meant
    connection_id=pa.int64(),  # this and the four below: the worst case
    span_id=pa.int64(),
    from_trace_ns=pa.int64(),
    to_trace_ns=pa.int64(),
    count=pa.int64(),  # of packets, connections or requests, as the text says
    cost_ns=pa.int64(),  # request time that was waited
    failed_count=pa.int64(),  # of what is counted, clients' own attempts that failed or were given up
    cause=pa.string(),  # "KIND on HOST" of the finding that this one follows from; null for one that stands for itself
    text=pa.string(),
    remedy=pa.string(),
)
"""One row for each thing that is wrong or remarkable."""

SAMPLES = _fields(host=_text(), host_ns=pa.int64(), metric=_text(), value=pa.float64())
"""What a host used in the interval that ends at its own stamp `host_ns` and began at the metric's sample before.
Metrics of the bundled cluster, `.NAME` where a host may have several:
    cpu_percent (100 is one core), cpu_wait_percent (some process had no processor), disk_busy_percent.DEVICE,
    disk_read_bytes_per_s.DEVICE, disk_written_bytes_per_s.DEVICE, read_bytes_per_s, written_bytes_per_s,
    received_bytes_per_s.INTERFACE, sent_bytes_per_s.INTERFACE,
    listen_overflows_per_s, listen_drops_per_s, syn_retransmits_per_s, retransmits_per_s, resets_sent_per_s."""

ANNOTATIONS = _fields(
    annotation_id=pa.int64(),  # its place in this table, from 0: by time
    kind=_text(),  # "log" | "span"
    format=_text(),  # "nginx", "haproxy", "swift", "postgresql", "json", "otlp", "jaeger"
    source=_text(),  # the file that it is from
    host=_text(),  # whose clock stamped it; null if not known
    service=_text(),  # what it says wrote it; null if it says nothing
    start_trace_ns=pa.int64(),  # by its host's clock; without a known host as stamped
    duration_ns=pa.int64(),  # 0 for an instant
    uncertainty_ns=pa.int64(),  # both ends are off by at most so much, ±; null where its host's clock is not known
    duration_uncertainty_ns=pa.int64(),  # of duration_ns alone: as its record rounds it
    name=_text(),  # what it is, in a few words
    text=pa.string(),  # the line, or the span's attributes; secrets overwritten
    severity=_text(),  # as in `findings`; null where it says none
    transaction_id=pa.string(),  # of the request, as a log has it; "" if none
    trace_id=pa.string(),  # of W3C's trace context, as this and the two below are written there; "" if none
    span_id=pa.string(),
    parent_span_id=pa.string(),
    exchange_id=pa.int64(),  # the request that it is about; null if none was found
    joined_by=_text(),  # "id" | "connection" | "time"; null if it is of no request
    side=_text(),  # of a span: "client" or "server" of its request; null for another span, and for a line
    phases=pa.string(),  # durations that the record itself gives: "queue:0 connect:3000000" (ns); "" if none
)
"""One row for each line of a log, or span of another tracer, that was placed in the trace."""

ID_STRIDE_BITS = 32
ID_STRIDE = 1 << ID_STRIDE_BITS
"""Ids of connections and exchanges of a partition begin so far after those of the one before."""

TABLES: dict[str, pa.Schema] = {
    "events": EVENTS,
    "connections": CONNECTIONS,
    "hops": HOPS,
    "quality": QUALITY,
    "clocks": CLOCKS,
    "messages": MESSAGES,
    "exchanges": EXCHANGES,
    "silences": SILENCES,
    "streams": STREAMS,
    "spans": SPANS,
    "findings": FINDINGS,
    "samples": SAMPLES,
    "annotations": ANNOTATIONS,
}
"""Table name (file `<name>.parquet` in the trace directory) to its schema."""

ADDED_TABLES = frozenset({"annotations"})
"""Tables that traces of this format may lack, since they were added later; such a trace reads as with an empty one."""

_TLS_TEXTS = (
    *("server_name", "alpn_offered", "alpn", "versions_offered", "version", "cipher", "resumption"),
    *("alert", "alert_from", "evidence"),
)
_GREETING = ("connected_received", "greeting_sent", "greeting_received")
ADDED: dict[str, dict[str, pa.Scalar]] = {
    "connections": {
        "protocol": _text_value("unknown"),
        "protocol_evidence": _text_value(None),
        **{f"tls_{name}": _text_value(None) for name in _TLS_TEXTS},
        **{f"tls_{name}": pa.scalar(None, pa.bool_()) for name in ("early_data_offered", "ech_offered", "retried")},
        "changed_to": _text_value(None),
        "closing": _text_value(None),
        "tls_opened": pa.scalar(False),
        **{
            name: _text_value(None) if pa.types.is_dictionary(kind) else pa.scalar(None, kind)
            for side in ("client", "server")
            for name, kind in _owner_types(side).items()
        },
    },
    "hops": {
        "message_kinds": pa.scalar(0, pa.uint8()),
        "likely_error_ns": pa.scalar(None, pa.int64()),
    },
    "clocks": {
        "likely_error_ns": pa.scalar(None, pa.int64()),
    },
    "streams": {
        "control_count": pa.scalar(None, pa.int64()),
        "likely_error_ns": pa.scalar(None, pa.int64()),
        "closing": _text_value(None),
    },
    "messages": {
        "range_first": pa.scalar(-1, pa.int64()),
        "range_last": pa.scalar(-1, pa.int64()),
        "result_code": pa.scalar(-1, pa.int32()),
        "frame_kind": pa.scalar(0, pa.uint16()),
        "stream_id": pa.scalar(-1, pa.int64()),
        "authority": pa.scalar("", pa.string()),
        "client_span_id": pa.scalar("", pa.string()),
    },
    "exchanges": {
        "until_close": pa.scalar(False),
        "likely_error_ns": pa.scalar(None, pa.int64()),
        "range_first": pa.scalar(None, pa.int64()),
        "range_last": pa.scalar(None, pa.int64()),
        "result_code": pa.scalar(None, pa.int32()),
        "result": _text_value(None),
        "status_class": _text_value(None),
        "authority": _text_value(None),
        "operation": _text_value(None),
        "bucket": _text_value(None),
        "object_key": pa.scalar(None, pa.string()),
        "upload": _text_value(None),
        "part": pa.scalar(None, pa.uint16()),
        **{f"{name}_trace_ns": pa.scalar(None, pa.int64()) for name in _GREETING},
        "client_span_id": pa.scalar(None, pa.string()),
    },
}
"""Columns of each table that traces of this format may lack, since they were added later, and what stands for them.
docs/trace-format.md has the policy."""


def conform(name: str, table: pa.Table) -> pa.Table:
    """`table` with the columns and types of the schema `name`; missing columns are null, extra columns come last."""
    given = dict(zip(table.column_names, table.columns, strict=True))
    columns = {column.name: _column(given.get(column.name), column.type, table.num_rows) for column in TABLES[name]}
    extra = {name: column for name, column in given.items() if name not in columns}
    return pa.table(columns | extra)


def _column(column: pa.ChunkedArray | None, kind: pa.DataType, rows_count: int) -> pa.ChunkedArray:
    if column is None:
        return pa.chunked_array([null_array(rows_count, kind)])
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type).dictionary_encode().cast(kind)
    return column.cast(kind)
