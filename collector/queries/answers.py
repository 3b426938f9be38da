"""The results of `TraceView`'s queries: typed rows and columns. Times are int64 ns since the trace's start."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector.queries.timeline.columns import ArrowClass
from collector.requests.results import answer_text
from collector.trace.model import CounterInfo
from collector.trace.packets import PacketFields
from collector.trace.schema import HopKind, HopState


class Lane(Struct, frozen=True):
    """A host as a lane of the timeline."""

    host: str
    addresses: tuple[str, ...]
    services: tuple[str, ...]
    packets_count: int
    clock: str  # how its clock was aligned to the trace's timescale, in words
    clock_offset_ns: int | None
    clock_uncertainty_ns: int | None
    clock_likely_error_ns: int | None


class Command(Struct, frozen=True):
    """The command that was recorded."""

    argv: tuple[str, ...]
    lane: int  # NO_LANE if its host was not captured
    from_ns: int
    to_ns: int
    exit_status: int


class Summary(Struct, frozen=True):
    """Counts over the whole trace."""

    name: str
    packets_count: int  # at all capture points
    hops_count: int
    requests_count: int  # clients' requests (`collector.services.client_requests`)
    roots_count: int  # those and daemons' own requests; requests are numbered from 0 to less than this
    connections_count: int
    duration_ns: int
    first_hop_ns: int | None  # when the first packet was seen
    last_hop_ns: int | None
    delay_p50_ns: int | None  # over hops between hosts that were seen at both ends
    delay_p99_ns: int | None
    class_counts: tuple[int, ...]  # hops by ArrowClass
    state_counts: tuple[int, ...]  # hops by STATES
    warnings: tuple[CounterInfo, ...]  # counters of severity data_loss or error


class Arrows(Struct, frozen=True):
    """Some hops as columns of equal length; `number`, the rank by time within the trace, names them."""

    number: NDArray[np.uint32]
    sent_ns: NDArray[np.int64]  # MISSING_NS if not seen
    received_ns: NDArray[np.int64]
    pair: NDArray[np.uint32]  # row of `TraceView.pairs`
    source: NDArray[np.uint16]
    target: NDArray[np.uint16]
    arrow_class: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    state: NDArray[np.uint8]
    size_bytes: NDArray[np.uint32]
    request: NDArray[np.int32]  # -1 if it belongs to none
    uncertain: NDArray[np.uint8]  # 1 where the parent of its exchange is uncertain (`collector.requests.link_doubt`)
    carried: Mapping[str, NDArray[Any]]  # columns of `hops`, by name (`collector.queries.timeline.columns.CARRIED`)


class Hop(Struct, frozen=True):
    """One hop with all its fields, and the packet captured at each of its ends."""

    number: int
    kind: HopKind
    state: HopState
    arrow_class: ArrowClass
    attempt: int
    source_host: str | None
    target_host: str | None
    sent_ns: int | None
    received_ns: int | None
    delay_ns: int | None
    uncertainty_ns: int | None
    likely_error_ns: int | None
    stream_start: int | None
    stream_end: int | None
    connection_id: int | None
    request: int | None
    span: int | None
    doubt: str  # as `Span.doubt`
    tls: str  # what the handshake of TLS on its connection says, in words; "" if there is none
    owners: tuple[tuple[str, str], ...]  # which end of its connection, and who owns it, in words; those that are known
    sent_packet: PacketFields | None
    received_packet: PacketFields | None

    @property
    def source(self) -> str | None:
        """The host that sent it, or what its address is called; None if neither is known."""
        seen = self.sent_packet or self.received_packet
        return self.source_host or (seen.src_name or None if seen else None)

    @property
    def target(self) -> str | None:
        """The same of the host that it was sent to."""
        seen = self.received_packet or self.sent_packet
        return self.target_host or (seen.dst_name or None if seen else None)


class Request(Struct, frozen=True):
    """A root request as a row of a list."""

    number: int
    title: str
    service: str
    client: str | None  # as `Span.client`
    server: str | None
    status: int
    result: str  # as `Span.result`
    complete: bool
    outcome: str  # as `collector.requests.outcomes` has them
    start_ns: int
    end_ns: int
    duration_ns: int  # without its client's pause (`collector.requests.openings`)
    ended: bool  # otherwise its end was not seen, and its duration is at least so long
    spans_count: int
    hops_count: int
    problems_count: int

    @property
    def answer(self) -> str:
        """What the answer says of its result; "" if nothing is visible."""
        return answer_text(self.status, self.result)


class Problem(Struct, frozen=True):
    """A place where something went wrong; `hop` is the number of the hop, if it is one."""

    from_ns: int
    to_ns: int
    hop: int | None
    text: str
