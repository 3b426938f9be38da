"""The collector's core, written in Rust (`collector/core/python`). Each part lists its own; a test checks this file."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from collector.capture_files.records import Columns

# results: columns by name

class EventColumns(TypedDict):
    """Packets: `EVENT_COLUMNS` of `collector.capture_files.records`."""

    frame: NDArray[np.uint32]
    host_ns: NDArray[np.int64]
    interface: NDArray[np.uint16]
    direction: NDArray[np.uint8]
    src_addr: NDArray[np.uint32]
    dst_addr: NDArray[np.uint32]
    src_port: NDArray[np.uint16]
    dst_port: NDArray[np.uint16]
    seq: NDArray[np.uint32]
    ack: NDArray[np.uint32]
    flags: NDArray[np.uint16]
    window: NDArray[np.uint16]
    payload_len: NDArray[np.uint32]
    ip_id: NDArray[np.int32]
    tsval: NDArray[np.uint32]
    tsecr: NDArray[np.uint32]
    options: NDArray[np.uint8]
    mss: NDArray[np.uint16]
    window_scale: NDArray[np.uint8]
    sack_hash: NDArray[np.uint32]
    captured_len: NDArray[np.uint32]
    original_len: NDArray[np.uint32]

class ExcerptColumns(TypedDict):
    """What protocols keep of payloads: `EXCERPT_COLUMNS` of `collector.capture_files.records`, and the bytes."""

    frame: NDArray[np.uint32]
    payload_offset: NDArray[np.int32]
    protocol: NDArray[np.uint8]
    stream_len: NDArray[np.uint32]
    solid_len: NDArray[np.uint32]
    excerpt_offsets: NDArray[np.int64]
    excerpt_bytes: NDArray[np.uint8]

class TlsHandshakeColumns(TypedDict):
    """TLS handshakes; numbers of connections. Texts are empty where nothing is known."""

    connection: NDArray[np.int64]
    resumption: NDArray[np.int32]
    has_client_hello: NDArray[np.bool_]
    has_server_hello: NDArray[np.bool_]
    early_data_offered: NDArray[np.bool_]
    ech_offered: NDArray[np.bool_]
    retried: NDArray[np.bool_]
    alert_from_server: NDArray[np.bool_]
    server_name_offsets: NDArray[np.int32]
    server_name_bytes: NDArray[np.uint8]
    alpn_offered_offsets: NDArray[np.int32]
    alpn_offered_bytes: NDArray[np.uint8]
    alpn_offsets: NDArray[np.int32]
    alpn_bytes: NDArray[np.uint8]
    versions_offered_offsets: NDArray[np.int32]
    versions_offered_bytes: NDArray[np.uint8]
    version_offsets: NDArray[np.int32]
    version_bytes: NDArray[np.uint8]
    cipher_offsets: NDArray[np.int32]
    cipher_bytes: NDArray[np.uint8]
    alert_offsets: NDArray[np.int32]
    alert_bytes: NDArray[np.uint8]

class MessageColumns(TypedDict):
    """Heads of messages: `HEAD_COLUMNS` and `HEAD_STRINGS` of `collector.capture_files.records`; rows of excerpts.

    Of these columns, and of the offsets of texts, one is one value if that is the value of all heads."""

    payload_offset: NDArray[np.int64]
    head_kind: NDArray[np.uint8]
    head_flags: NDArray[np.uint8]
    status: NDArray[np.uint16]
    content_length: NDArray[np.int64]
    head_len: NDArray[np.uint32]
    range_first: NDArray[np.int64]
    range_last: NDArray[np.int64]
    result_code: NDArray[np.int32]
    frame_kind: NDArray[np.uint16]
    stream_id: NDArray[np.int64]
    method_offsets: NDArray[np.int32]
    method_bytes: NDArray[np.uint8]
    target_offsets: NDArray[np.int32]
    target_bytes: NDArray[np.uint8]
    transaction_id_offsets: NDArray[np.int32]
    transaction_id_bytes: NDArray[np.uint8]
    client_span_id_offsets: NDArray[np.int32]
    client_span_id_bytes: NDArray[np.uint8]
    user_agent_offsets: NDArray[np.int32]
    user_agent_bytes: NDArray[np.uint8]
    authority_offsets: NDArray[np.int32]
    authority_bytes: NDArray[np.uint8]
    excerpt_row: NDArray[np.uint32]

class PartitionEvents(EventColumns):
    """Packets of all hosts of a partition; codes as wide as the tables have them."""

    host: NDArray[np.uint16]
    src_end: NDArray[np.uint32]
    dst_end: NDArray[np.uint32]
    host_place: NDArray[np.int32]
    point_place: NDArray[np.int32]
    direction_place: NDArray[np.int32]
    ip_id_validity: NDArray[np.uint8]
    stamps_validity: NDArray[np.uint8]

class PartitionExcerpts(ExcerptColumns):
    """Excerpts of a partition, with the row of each one's packet."""

    event_row: NDArray[np.uint32]

class PlacedEvents(TypedDict):
    """The connection of each event; whether another point of its host represents it, a bit for each."""

    connection_id: NDArray[np.int64]
    duplicate_bits: NDArray[np.uint8]

class EventPlaces(TypedDict):
    """Places of some events in the streams of their connections."""

    connection_id: NDArray[np.int64]
    from_client: NDArray[np.bool_]
    stream_offset: NDArray[np.int64]

class HopColumns(TypedDict):
    """Hops; codes as `HopKind` and `HopState` are ordered. A validity has a bit for each row, or is empty."""

    connection_id: NDArray[np.int64]
    kind: NDArray[np.int32]
    from_client: NDArray[np.bool_]
    stream_start: NDArray[np.int64]
    stream_end: NDArray[np.int64]
    attempt: NDArray[np.uint16]
    state: NDArray[np.int32]
    send_host: NDArray[np.int32]
    send_host_validity: NDArray[np.uint8]
    send_frame: NDArray[np.uint32]
    send_host_ns: NDArray[np.int64]
    send_validity: NDArray[np.uint8]
    receive_host: NDArray[np.int32]
    receive_host_validity: NDArray[np.uint8]
    receive_frame: NDArray[np.uint32]
    receive_host_ns: NDArray[np.int64]
    receive_validity: NDArray[np.uint8]

class ConnectionColumns(TypedDict):
    """Connections; rows of those that were rewritten on the way, with their ends at the server."""

    client_addr: NDArray[np.uint32]
    client_port: NDArray[np.uint16]
    server_addr: NDArray[np.uint32]
    server_port: NDArray[np.uint16]
    client_host: NDArray[np.uint16]
    server_host: NDArray[np.uint16]
    client_isn: NDArray[np.int64]
    server_isn: NDArray[np.int64]
    first_host_ns: NDArray[np.int64]
    last_host_ns: NDArray[np.int64]
    events_count: NDArray[np.uint32]
    translated_row: NDArray[np.uint32]
    translated_client_addr: NDArray[np.uint32]
    translated_client_port: NDArray[np.uint16]
    translated_server_addr: NDArray[np.uint32]
    translated_server_port: NDArray[np.uint16]

class PauseColumns(TypedDict):
    """Pauses of senders; -1 where a figure is not known."""

    connection_id: NDArray[np.int64]
    from_client: NDArray[np.bool_]
    host: NDArray[np.uint16]
    stream_offset: NDArray[np.int64]
    stopped_ns: NDArray[np.int64]
    full_ns: NDArray[np.int64]
    released_ns: NDArray[np.int64]
    resumed_ns: NDArray[np.int64]
    resumed_bytes: NDArray[np.int64]
    in_flight_bytes: NDArray[np.int64]
    waiting_bytes: NDArray[np.int64]
    room_bytes: NDArray[np.int64]
    window_closed: NDArray[np.bool_]
    mss_bytes: NDArray[np.int64]
    rtt_ns: NDArray[np.int64]
    idle_ns: NDArray[np.int64]
    in_flight_before_idle_bytes: NDArray[np.int64]
    resent: NDArray[np.bool_]

class CrossingColumns(TypedDict):
    """Packets with new data that left before data from the other side had arrived."""

    connection_id: NDArray[np.int64]
    from_client: NDArray[np.bool_]
    stream_offset: NDArray[np.int64]
    crossed_start: NDArray[np.int64]
    crossed_end: NDArray[np.int64]

class Matched(TypedDict):
    """The result of matching."""

    events: PlacedEvents
    places: EventPlaces
    hops: HopColumns
    connections: ConnectionColumns
    pauses: PauseColumns
    crossings: CrossingColumns

class ExchangeColumns(TypedDict):
    """Exchanges by time, silences (`silence_*`), streams (`stream_*`, `late_*`, `said_*`), the exchange of each hop.

    None where a column holds only nulls."""

    request_first_sent_trace_ns: NDArray[np.int64] | None
    request_first_sent_trace_ns_validity: NDArray[np.uint8]
    request_first_received_trace_ns: NDArray[np.int64] | None
    request_first_received_trace_ns_validity: NDArray[np.uint8]
    request_last_sent_trace_ns: NDArray[np.int64] | None
    request_last_sent_trace_ns_validity: NDArray[np.uint8]
    request_last_received_trace_ns: NDArray[np.int64] | None
    request_last_received_trace_ns_validity: NDArray[np.uint8]
    request_head_received_trace_ns: NDArray[np.int64] | None
    request_head_received_trace_ns_validity: NDArray[np.uint8]
    response_first_sent_trace_ns: NDArray[np.int64] | None
    response_first_sent_trace_ns_validity: NDArray[np.uint8]
    response_first_received_trace_ns: NDArray[np.int64] | None
    response_first_received_trace_ns_validity: NDArray[np.uint8]
    response_last_sent_trace_ns: NDArray[np.int64] | None
    response_last_sent_trace_ns_validity: NDArray[np.uint8]
    response_last_received_trace_ns: NDArray[np.int64] | None
    response_last_received_trace_ns_validity: NDArray[np.uint8]
    response_head_received_trace_ns: NDArray[np.int64] | None
    response_head_received_trace_ns_validity: NDArray[np.uint8]
    connect_start_trace_ns: NDArray[np.int64] | None
    connect_start_trace_ns_validity: NDArray[np.uint8]
    connected_trace_ns: NDArray[np.int64] | None
    connected_trace_ns_validity: NDArray[np.uint8]
    connected_received_trace_ns: NDArray[np.int64] | None
    connected_received_trace_ns_validity: NDArray[np.uint8]
    greeting_sent_trace_ns: NDArray[np.int64] | None
    greeting_sent_trace_ns_validity: NDArray[np.uint8]
    greeting_received_trace_ns: NDArray[np.int64] | None
    greeting_received_trace_ns_validity: NDArray[np.uint8]
    tls_start_trace_ns: NDArray[np.int64] | None
    tls_start_trace_ns_validity: NDArray[np.uint8]
    tls_end_trace_ns: NDArray[np.int64] | None
    tls_end_trace_ns_validity: NDArray[np.uint8]
    continue_sent_trace_ns: NDArray[np.int64] | None
    continue_sent_trace_ns_validity: NDArray[np.uint8]
    continue_received_trace_ns: NDArray[np.int64] | None
    continue_received_trace_ns_validity: NDArray[np.uint8]
    body_sent_trace_ns: NDArray[np.int64] | None
    body_sent_trace_ns_validity: NDArray[np.uint8]
    given_up_trace_ns: NDArray[np.int64] | None
    given_up_trace_ns_validity: NDArray[np.uint8]
    round_trip_ns: NDArray[np.int64] | None
    round_trip_ns_validity: NDArray[np.uint8]
    uncertainty_ns: NDArray[np.int64] | None
    uncertainty_ns_validity: NDArray[np.uint8]
    likely_error_ns: NDArray[np.int64] | None
    likely_error_ns_validity: NDArray[np.uint8]
    request_bytes: NDArray[np.int64] | None
    request_bytes_validity: NDArray[np.uint8]
    response_bytes: NDArray[np.int64] | None
    response_bytes_validity: NDArray[np.uint8]
    request_silent_idle_ns: NDArray[np.int64] | None
    request_silent_idle_ns_validity: NDArray[np.uint8]
    request_silent_held_ns: NDArray[np.int64] | None
    request_silent_held_ns_validity: NDArray[np.uint8]
    request_silent_unread_ns: NDArray[np.int64] | None
    request_silent_unread_ns_validity: NDArray[np.uint8]
    response_silent_idle_ns: NDArray[np.int64] | None
    response_silent_idle_ns_validity: NDArray[np.uint8]
    response_silent_held_ns: NDArray[np.int64] | None
    response_silent_held_ns_validity: NDArray[np.uint8]
    response_silent_unread_ns: NDArray[np.int64] | None
    response_silent_unread_ns_validity: NDArray[np.uint8]
    request_row: NDArray[np.int64] | None
    request_row_validity: NDArray[np.uint8]
    response_row: NDArray[np.int64] | None
    response_row_validity: NDArray[np.uint8]
    id_row: NDArray[np.int64] | None
    id_row_validity: NDArray[np.uint8]
    other_id_row: NDArray[np.int64] | None
    other_id_row_validity: NDArray[np.uint8]
    result_row: NDArray[np.int64] | None
    result_row_validity: NDArray[np.uint8]
    target_offsets: NDArray[np.int32] | None
    target_bytes: NDArray[np.uint8] | None
    transaction_id_offsets: NDArray[np.int32] | None
    transaction_id_bytes: NDArray[np.uint8] | None
    response_transaction_id_offsets: NDArray[np.int32] | None
    response_transaction_id_bytes: NDArray[np.uint8] | None
    client_host: NDArray[np.int32]
    server_host: NDArray[np.int32]
    status: NDArray[np.uint16]
    connection_id: NDArray[np.int64]
    service: NDArray[np.int32]
    protocol: NDArray[np.int32]
    is_stream: NDArray[np.bool_]
    until_close: NDArray[np.bool_]
    broken_by: NDArray[np.int32]
    complete: NDArray[np.bool_]
    silence_exchange: NDArray[np.int64]
    silence_from_ns: NDArray[np.int64]
    silence_to_ns: NDArray[np.int64]
    silence_in_response: NDArray[np.bool_]
    silence_cause: NDArray[np.int32]
    stream_connection_id: NDArray[np.int64]
    stream_why: NDArray[np.int64]
    stream_row: NDArray[np.int64]
    stream_pieces: NDArray[np.int64]
    stream_turns: NDArray[np.int64]
    stream_to_client_count: NDArray[np.int64]
    stream_to_server_count: NDArray[np.int64]
    stream_to_client_bytes: NDArray[np.int64]
    stream_to_server_bytes: NDArray[np.int64]
    stream_begin_trace_ns: NDArray[np.int64]
    stream_end_trace_ns: NDArray[np.int64]
    stream_longest_idle_ns: NDArray[np.int64]
    stream_delay_median_ns: NDArray[np.int64]
    stream_delay_p99_ns: NDArray[np.int64]
    stream_uncertainty_ns: NDArray[np.int64]
    stream_likely_error_ns: NDArray[np.int64]
    late_connection_id: NDArray[np.int64]
    late_ns: NDArray[np.int64]
    late_asked: NDArray[np.int64]
    said_connection: NDArray[np.int64]
    said_ns: NDArray[np.int64]
    hop_exchange: NDArray[np.int64] | None
    hop_exchange_validity: NDArray[np.uint8]

class InferredLinks(TypedDict):
    """Parents by order and timing: rows, -1 for none."""

    parent: NDArray[np.int64]
    confidence: NDArray[np.float64]
    alternative: NDArray[np.int64]
    alternative_confidence: NDArray[np.float64]
    judged: NDArray[np.bool_]

class IdLinks(TypedDict):
    """Parents by transaction id: rows, -1 for none."""

    parent: NDArray[np.int64]
    confidence: NDArray[np.float64]
    shows_id: NDArray[np.bool_]

class Forest(TypedDict):
    """The root of each row, and its depth."""

    root: NDArray[np.int64]
    depth: NDArray[np.int64]

class Waits(TypedDict):
    """When a server began to work on a request, and when the first of parallel calls was answered."""

    service_start: NDArray[np.int64]
    first_answered: NDArray[np.int64]

class LedgerColumns(TypedDict):
    """Stretches of each span on its root's critical path, in ns."""

    client_ns: NDArray[np.int64]
    connect_ns: NDArray[np.int64]
    tls_ns: NDArray[np.int64]
    request_network_ns: NDArray[np.int64]
    queue_ns: NDArray[np.int64]
    work_ns: NDArray[np.int64]
    fan_out_wait_ns: NDArray[np.int64]
    server_or_network_ns: NDArray[np.int64]
    response_network_ns: NDArray[np.int64]
    stall_ns: NDArray[np.int64]
    request_idle_ns: NDArray[np.int64]
    response_idle_ns: NDArray[np.int64]
    send_held_ns: NDArray[np.int64]
    reader_wait_ns: NDArray[np.int64]
    critical_ns: NDArray[np.int64]
    window_start: NDArray[np.int64]
    window_end: NDArray[np.int64]

class ServerTime(TypedDict):
    """How each server spent its time until it answered."""

    asking_ns: NDArray[np.int64]
    own_ns: NDArray[np.int64]

class Bins(TypedDict):
    """Bins of a histogram by group."""

    group: NDArray[np.int32]
    bin: NDArray[np.int32]
    count: NDArray[np.int64]

class Late(TypedDict):
    """Late requests by pool."""

    late_count: NDArray[np.int64]
    moments: NDArray[np.int64]
    late_moments: NDArray[np.int64]
    took: NDArray[np.float64]
    usual: NDArray[np.float64]
    cost_ns: NDArray[np.float64]
    from_trace_ns: NDArray[np.int64]
    to_trace_ns: NDArray[np.int64]
    slowest: NDArray[np.int64]

class AlignedHops(TypedDict):
    """Trace times, delays and uncertainties; -1 where nothing bounds a delay."""

    send_trace_ns: NDArray[np.int64]
    receive_trace_ns: NDArray[np.int64]
    one_way_delay_ns: NDArray[np.int64]
    uncertainty_ns: NDArray[np.int64]
    likely_error_ns: NDArray[np.int64]

class FlowCounts(TypedDict):
    """Counts of hops by flow; `state_N` in the order of `HopState`."""

    start: NDArray[np.int64]
    split: NDArray[np.int64]
    retransmitted: NDArray[np.int64]
    early: NDArray[np.int64]
    bytes: NDArray[np.int64]
    matched_bytes: NDArray[np.int64]
    state_0: NDArray[np.int64]
    state_1: NDArray[np.int64]
    state_2: NDArray[np.int64]
    state_3: NDArray[np.int64]
    state_4: NDArray[np.int64]
    state_5: NDArray[np.int64]

class SentCounts(TypedDict):
    """Data hops by sender and receiver."""

    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    sent: NDArray[np.int64]

class TrafficCounts(TypedDict):
    """Hops by sender, receiver, slice of time and size of delay."""

    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    slice: NDArray[np.int64]
    bin: NDArray[np.int64]
    hops: NDArray[np.int64]
    bytes: NDArray[np.int64]
    lost: NDArray[np.int64]
    overtaken: NDArray[np.int64]
    data: NDArray[np.int64]

class RateCounts(TypedDict):
    """Late hops by sender, receiver and rate."""

    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    bin: NDArray[np.int64]
    hops: NDArray[np.int64]

class HopCounts(TypedDict):
    """All counts of hops; `notable_rows`, rows of connections in which anything but plain success happened."""

    flows: FlowCounts
    notable_rows: NDArray[np.int64]
    sent: SentCounts
    traffic: TrafficCounts
    rates: RateCounts

# decode

def protocols() -> list[list[str]]: ...
def protocols_with_own_ids() -> list[str]: ...
def answer_meaning(protocol: int, status: int, result_code: int) -> tuple[str, str | None]: ...
def decode_counters() -> list[tuple[str, str, str]]: ...

class TlsKeys:
    def __new__(cls) -> TlsKeys: ...
    def add_file(self, path: str | PathLike[str]) -> tuple[int, int]: ...
    def connections_count(self) -> int: ...

class Following: ...

class CaptureFile:
    def __new__(
        cls,
        path: str | PathLike[str],
        id_headers: Sequence[str] | None = None,
        clues: Sequence[
            tuple[bool, Sequence[str], Sequence[str], tuple[str, str] | None, Sequence[Sequence[int]], str | None]
        ] = ...,
        secrets: tuple[str, bool] | None = None,
        believed: Sequence[tuple[int, int]] = ...,
        limit: tuple[int, int, int] | None = None,
        keys: TlsKeys | None = None,
        part: tuple[int, int] | None = None,
        wanted: tuple[int, int] | None = None,
    ) -> CaptureFile: ...
    def add_keys_to(self, keys: TlsKeys) -> None: ...
    def next_batch(self, packets: int) -> tuple[EventColumns, ExcerptColumns] | None: ...
    def copy_packets(self, frames: Sequence[int]) -> list[tuple[int, int, int, int, int, bytes]]: ...
    def next_rows(self, packets: int) -> Rows | None: ...
    def interfaces(
        self,
    ) -> list[tuple[str, int, int, int, int, int | None, int | None, str, int, list[tuple[int | None, int, int]]]]: ...
    def address_lines(self, from_: int) -> str: ...
    def clues(self) -> list[tuple[str, int, list[int], int, int, bool, list[str]]]: ...
    def names(self) -> list[tuple[str, str]]: ...
    def comments(self) -> list[str]: ...
    def kept_statements(self) -> list[str]: ...
    def owners(self) -> list[str]: ...
    def stamps(self) -> list[str]: ...
    def applications(self) -> list[str]: ...
    def host(self) -> str | None: ...
    def go_on_from(self, before: CaptureFile) -> None: ...
    def follow(self, before: Following) -> None: ...
    def copy_following_at(self, host_ns: int) -> None: ...
    def copied_following(self) -> Following | None: ...
    def take_following(self) -> Following: ...
    def bytes_read(self) -> int: ...
    def expanded_bytes(self) -> int: ...
    def packets_count(self) -> int: ...
    def absurd_frames(self) -> NDArray[np.uint32]: ...
    def damaged_frames(self) -> NDArray[np.uint32]: ...
    def counters(self) -> list[tuple[str, str, int, str]]: ...

class Rows:
    def first_ns(self) -> int | None: ...

# partitions

class Partitions:
    def __new__(cls, bits: int, hosts_count: int, folder: str | PathLike[str], most_bytes: int) -> Partitions: ...
    def add(
        self, host: int, file: CaptureFile, rows: Rows, frames_before: int, interfaces: NDArray[np.uint16]
    ) -> list[NDArray[np.uint64]]: ...
    def notes(
        self, host: int
    ) -> tuple[
        int,
        int,
        int | None,
        int | None,
        list[tuple[int, int, int]],
        list[int],
        list[int],
        list[tuple[int, int, int, int, int]],
        list[tuple[int, int]],
    ]: ...
    def last_file(self, host: int) -> tuple[int, int, int] | None: ...
    def activity(
        self, host: int
    ) -> tuple[
        list[tuple[int, int, int, int]],
        list[tuple[int, int, int]],
        list[tuple[int, int, int, int]],
        list[tuple[int, int, list[tuple[int, int, int]]]],
    ]: ...
    def largest(self, host: int) -> int: ...
    def sights(self, host: int) -> list[tuple[int, int, int, list[tuple[int, int, int]]]]: ...
    def address_number(self, text: str) -> int: ...
    def addresses(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]: ...
    def finish(self, keys: NDArray[np.uint64], to: NDArray[np.uint64]) -> None: ...
    def save(self, host: int, path: str | PathLike[str]) -> list[tuple[int, int, int, int]]: ...
    def load(self, number: int, host: int, path: str | PathLike[str], saved: tuple[int, int, int, int]) -> None: ...
    def take(
        self,
        number: int,
        hosts: Sequence[
            tuple[
                NDArray[np.bool_],
                NDArray[np.uint32],
                int,
                Sequence[tuple[int, int, int]],
                Sequence[tuple[int, int, int, int, int]],
            ]
        ],
        is_loopback: NDArray[np.bool_],
    ) -> tuple[PartitionEvents, PartitionExcerpts, NDArray[np.uint32], NDArray[np.uint32]] | None: ...

def order_of_texts(offsets: NDArray[np.int32], bytes: NDArray[np.uint8]) -> NDArray[np.uint32]: ...
def handshake_pairs(
    fingerprints: NDArray[np.uint64], keys: NDArray[np.uint64], hosts: NDArray[np.uint16]
) -> list[NDArray[np.uint64]]: ...

# matching

def read_messages(excerpts: Columns) -> MessageColumns: ...
def recognise_connections(
    excerpts: Columns, excerpt_row: NDArray[np.uint32], places: Columns, first_id: int, count: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]: ...
def read_tls_handshakes(
    excerpts: Columns, excerpt_row: NDArray[np.uint32], places: Columns, first_id: int, count: int
) -> TlsHandshakeColumns: ...
def match_events(
    columns: Columns, first_connection_id: int, asked: NDArray[np.uint32], servers: list[tuple[int, int]]
) -> Matched: ...

# exchanges

def build_exchanges(
    hops: Columns, heads: Columns, connections: Columns, pauses: Columns, crossings: Columns, first_id: int
) -> ExchangeColumns: ...
def rows_behind(
    connection_id: NDArray[np.int64], came_ns: NDArray[np.int64], free_ns: NDArray[np.int64], least_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...

# links

def linking_words(targets: Columns) -> NDArray[np.uint32]: ...
def link_exchanges(exchanges: Columns) -> InferredLinks: ...

# tables: of each column its name, its kind, whether it may be null, whether row groups hold its extremes

class TableFile:
    def __new__(cls, columns: Sequence[tuple[str, str, bool, bool]]) -> TableFile: ...
    def encode(
        self,
        fields: Sequence[
            tuple[
                NDArray[Any],
                NDArray[np.uint8] | None,
                NDArray[np.uint8] | tuple[NDArray[np.int32], NDArray[np.uint8]] | None,
            ]
        ],
        rows: int,
    ) -> tuple[NDArray[np.uint8], RowGroup]: ...
    def add(self, group: RowGroup) -> None: ...
    def footer(self, properties: Sequence[tuple[str, str]]) -> NDArray[np.uint8]: ...

class RowGroup:
    @staticmethod
    def from_bytes(bytes: bytes) -> RowGroup: ...
    def to_bytes(self) -> bytes: ...

# spans

def link_by_id(exchanges: Columns, most_with_one_id: int) -> IdLinks: ...
def trace_forest(parent: NDArray[np.int64]) -> Forest: ...
def coalesce(
    columns: Sequence[Sequence[tuple[NDArray[np.int64], NDArray[np.uint8], int]]], missing: int
) -> NDArray[np.int64]: ...
def text_numbers(texts: Columns) -> NDArray[np.uint64]: ...
def path_numbers(texts: Columns) -> NDArray[np.uint64]: ...
def waits(exchanges: Columns, unhurried: float, fewest: int) -> Waits: ...
def make_ledger(nodes: Columns, silences: Columns, with_windows: bool) -> LedgerColumns: ...
def places(
    ids: NDArray[np.int64], wanted: Sequence[NDArray[np.int64]], stride_bits: int
) -> list[NDArray[np.int64]]: ...
def target_words(
    targets: Sequence[tuple[NDArray[np.int32], NDArray[np.uint8]]],
    services: NDArray[np.int32],
    shapes: Sequence[tuple[int, str, int]],
) -> tuple[NDArray[np.int32], list[str]]: ...

# requests

def server_time(requests: Columns) -> ServerTime: ...
def row_groups(codes: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def sum_groups(
    keys: Sequence[NDArray[np.int64]], columns: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]: ...
def distinct_texts(texts: Columns, rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def count_bins(group: NDArray[np.int32], own_ns: NDArray[np.int64], bins_per_octave: float) -> Bins: ...
def count_late(timed: Columns, limit_ns: NDArray[np.float64], pool: NDArray[np.int32], moment_ns: int) -> Late: ...

# segments as agents send them

def unpack(packed: bytes, limit: int) -> bytes: ...

# hops

def align_hops(send: Columns, receive: Columns, lines: Columns, knots: Columns) -> AlignedHops: ...
def count_hops(
    hops: Columns, different_hosts: NDArray[np.bool_], receivers_count: int, slice_ns: int, late_ns: int, by_flow: bool
) -> HopCounts: ...
def gapped_rows(hops: Columns, least_bytes: int) -> NDArray[np.int64]: ...
def quantile_bins(
    group: NDArray[np.int32], bin: NDArray[np.int64], hops: NDArray[np.int64], share: float
) -> NDArray[np.int64]: ...
def stamps_by_pair(
    send: Columns,
    receive: Columns,
    state: NDArray[np.int32],
    matched: int,
    different_hosts: NDArray[np.bool_],
    receivers_count: int,
) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]: ...
def lower_hull(times_s: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]: ...
def delay_hulls(stamps: Columns, frames_count: int, spans: int) -> NDArray[np.int64]: ...
