"""The data that the core passes to Python: columns of fixed dtype, a batch at a time.

`EVENT_COLUMNS` is one row for each TCP packet, as decoded from one capture file, before hosts, clocks and connections
are known. `EXCERPT_COLUMNS` is one row for each message that begins in a packet's captured payload: the bytes that its
protocol needs. `HEAD_COLUMNS` is one row for each message that was read from excerpts.
"""

from enum import IntEnum, IntFlag, StrEnum
from typing import Any, cast

from msgspec import Struct
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""Column name to a 1-D array; all arrays of one `Columns` have the same length."""


def by_name(columns: object) -> Columns:
    """Columns that the core has a type for (`collector/_core.pyi`), for code that computes the names of columns."""
    return cast(Columns, columns)


class Direction(IntEnum):
    """Direction of a packet at the host that captured it; values as in pcapng `epb_flags` bits 0-1."""

    UNKNOWN = 0
    RECEIVE = 1
    SEND = 2


class TcpFlag(IntFlag):
    """TCP header flags (RFC 9293 §3.1)."""

    FIN = 0x01
    SYN = 0x02
    RST = 0x04
    PSH = 0x08
    ACK = 0x10
    URG = 0x20
    ECE = 0x40
    CWR = 0x80
    AE = 0x100


class TcpOption(IntFlag):
    """Which TCP options a segment carried (bits of the column `options`)."""

    TIMESTAMPS = 0x01
    MSS = 0x02
    WINDOW_SCALE = 0x04
    SACK_PERMITTED = 0x08
    SACK = 0x10


class HeadKind(IntEnum):
    """Kind of a row of message heads; of rows that are no HTTP message, columns have other meanings:

    - a TLS record: `status` is its content type;
    - a mark of a stream: `method` is the word, `target` the protocol, `status` the reach (`protocols/src/marks.rs`);
    - the header of an HTTP/2 frame: `status` is its type, `content_length` the stream, `head_len` the length of the
      whole frame; its place is after the header's 9 bytes (`protocols/src/http2.rs`);
    - a command of Redis or memcached and its answer: `head_len` is the whole message's length
      (`protocols/src/redis.rs`, `memcached.rs`);
    - a message of MongoDB: `frame_kind` is its opcode, `stream_id` the request, `content_length` the number of the
      cursor that it names, `head_len` the length of the whole message; its place is after the header's 16 bytes
      (`protocols/src/mongodb.rs`);
    - a message of Kafka or ZooKeeper: `frame_kind` is the kind of a request, 65535 of an answer, `stream_id` its
      number, `head_len` the length of the whole message (`protocols/src/numbered_messages.rs`);
    - the header of a WebSocket's frame: `frame_kind` is its opcode, `content_length` the length of its payload,
      `head_len` of the whole frame, `status` the code of a close (`protocols/src/websocket.rs`);
    - a TLS record that was opened with keys: `status` is the type of its content, `content_length` that content's
      length, `frame_kind` where it begins in the record, `head_len` the record's length
      (`protocols/src/tls/opened.rs`).
    """

    REQUEST = 1
    RESPONSE = 2
    TLS_RECORD = 3
    STREAM_MARK = 4
    HTTP2_FRAME = 5
    REDIS_COMMAND = 8
    MEMCACHED_COMMAND = 9
    REDIS_ANSWER = 13
    MEMCACHED_ANSWER = 14
    WEBSOCKET_FRAME = 20
    OPENED_RECORD = 24


class HeadFlag(IntFlag):
    """What a head states about its message (bits of the column `head_flags`)."""

    CHUNKED = 0x01
    EXPECT_CONTINUE = 0x02
    CONNECTION_CLOSE = 0x04
    CONNECTION_KEEP_ALIVE = 0x08
    CUT = 0x10  # the head continues after the captured bytes: later headers were not seen
    EVENT_STREAM = 0x20  # its body is an endless sequence of events (`Content-Type: text/event-stream`)
    S3 = 0x40  # it has a header that only S3 has (`tracer/core/protocols/src/http1/s3_evidence.rs`)
    S3_COPY = 0x80  # it names an object of S3 to copy from (`x-amz-copy-source`)


EVENT_COLUMNS: dict[str, str] = {
    "frame": "u4",  # from 1 within the file, counting every packet, TCP or not, as Wireshark does
    "host_ns": "i8",  # the host's own stamp, ns since the epoch
    "interface": "u2",  # index into the reader's interfaces
    "direction": "u1",  # Direction
    "src_addr": "u4",  # index into the reader's addresses
    "dst_addr": "u4",
    "src_port": "u2",
    "dst_port": "u2",
    "seq": "u4",
    "ack": "u4",
    "flags": "u2",  # TcpFlag
    "window": "u2",  # raw, unscaled
    "payload_len": "u4",  # TCP payload bytes on the wire, whatever was captured
    "ip_id": "i4",  # -1 where there is none (IPv6)
    "tsval": "u4",  # 0 without TIMESTAMPS in options
    "tsecr": "u4",
    "options": "u1",  # TcpOption
    "mss": "u2",  # 0 if not given
    "window_scale": "u1",  # 255 if not given
    "sack_hash": "u4",  # of the SACK blocks' bytes, 0 without
    "captured_len": "u4",
    "original_len": "u4",
}
"""Column to numpy dtype, in order. Source: `docs/architecture.md`, table `events`."""

EXCERPT_COLUMNS: dict[str, str] = {
    "frame": "u4",
    "payload_offset": "i4",  # offset of its beginning in the packet's TCP payload; below 0: in an earlier packet
    "protocol": "u1",  # the protocol that kept it: a place in the core's registry
    "stream_len": "u4",  # bytes of the stream that it stands for
    "solid_len": "u4",  # leading bytes that are contiguous in the stream; after them some are left out
}
"""Numeric columns of an excerpt: the bytes that a protocol keeps of a payload until its place in the stream is known.
Its bytes are `excerpt_offsets` (i8, n+1) and `excerpt_bytes` (u1), with secrets overwritten."""

HEAD_COLUMNS: dict[str, str] = {
    "payload_offset": "i8",  # where in the packet's TCP payload the head begins
    "head_kind": "u1",  # HeadKind
    "head_flags": "u1",  # HeadFlag
    "status": "u2",  # 0 for a request
    "content_length": "i8",  # -1 if not given or not seen
    "head_len": "u4",  # bytes of the head with its empty line; 0 if CUT
    "range_first": "i8",  # first byte of its byte range, -1 if not given; the last n bytes are (-1, n)
    "range_last": "i8",
    "result_code": "i4",  # what the protocol says beside the status (grpc-status); -1 nothing, -2 it comes later
    "frame_kind": "u2",  # as the protocol numbers its frames; 0 if it has none
    "stream_id": "i8",  # of the frame; -1 if it has none
}
"""Numeric columns of a head; its strings are `HEAD_STRINGS`."""

HEAD_STRINGS = ("method", "target", "transaction_id", "client_span_id", "user_agent", "authority")
"""String columns of a head, each as (`<name>_offsets` i4 of length n+1, `<name>_bytes` u1): Arrow's layout of strings.
Empty where not given."""


class Severity(StrEnum):
    """Severity of a counter. A count of `data_loss` or `error` shows on every view made from that data."""

    INFO = "info"
    NOTICE = "notice"
    DATA_LOSS = "data_loss"
    ERROR = "error"


class Counter(Struct, frozen=True):
    """A named count of something that happened to the input, with a remedy."""

    name: str
    severity: Severity
    count: int
    remedy: str
