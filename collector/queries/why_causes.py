"""What a request's own packets, silences and spans show of the cause of a stage's extra time.

A packet that was lost, or that was on its way for longer than is usual between its hosts; a silence that TCP caused; an
unusual number of requests at a server at that time; the server that answered last of several; a finding about that
server at that time. Nothing is said where the evidence holds less than `LEAST_SHARE` of the extra time.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector.queries.answers import Arrows
from collector.queries.span_trees import Span
from collector.queries.timeline.columns import KINDS, MISSING_NS, NO_LANE, ArrowClass
from collector.queries.trace_view import TraceView
from collector.services.ends import end_name
from collector.trace.durations import in_words
from collector.trace.schema import HopKind, SilenceCause

LEAST_SHARE = 0.3
MOST_SPANS, MOST_PACKETS, MOST_ATTEMPTS, MOST_OF_REQUEST = 2, 3, 32, 1 << 16
"""Of a stage so many spans are looked at, of a span so many lost packets are named; of a request so many packets are
read."""
BUSY_RATIO, BUSY_LEAST = 2, 3
"""A server is busier than usual with so many times as many requests under way, and at least so many more."""
ACK = KINDS.index(HopKind.ACK)
SILENCES = {
    "send_held_ns": (SilenceCause.HELD, "TCP held the sender (its window, or a delayed acknowledgement)"),
    "reader_wait_ns": (SilenceCause.UNREAD, "the receiver did not read: its window was closed"),
    "response_idle_ns": (SilenceCause.IDLE, "the server had nothing to send"),
    "request_idle_ns": (SilenceCause.IDLE, "the client had nothing to send"),
}
AT_SERVER = ("work_ns", "queue_ns", "server_or_network_ns")
ON_THE_WAY = ("request_network_ns", "response_network_ns", "stall_ns", "connect_ns", "tls_ns", "server_or_network_ns")


class Cause(Struct, frozen=True):
    """Evidence of a cause: in words, and where it is."""

    text: str
    from_ns: int
    to_ns: int
    hop: int | None = None  # the number of the packet, if it is one


Part = tuple[Span, str, int]
"""A span, a column of its ledger, and what that holds (ns)."""


def causes_of(
    trace: TraceView, number: int, spans: Sequence[Span], parts: Sequence[Part], extra_ns: int
) -> tuple[Cause, ...]:
    """The causes of a stage's extra time that the evidence of a request shows.

    Arguments: `number` and `spans` of the request; `parts` of the stage, the largest first.
    """
    least_ns, found = LEAST_SHARE * extra_ns, list[Cause]()
    arrows = _Packets(trace, number)
    for span, column, duration_ns in parts[:MOST_SPANS]:
        if duration_ns < least_ns:
            break
        if column in ON_THE_WAY:
            found += arrows.losses(span)
            found += arrows.latest(span, least_ns)
        if column in SILENCES:
            found += _silences(span, column, least_ns)
        if column == "fan_out_wait_ns":
            found += _last_of(span, spans)
        if column in AT_SERVER:
            found += _busier(trace, span)
            found += _findings(trace, span)
    return tuple(dict.fromkeys(found))


class _Packets:
    """The packets of a request, and what is usual between their hosts."""

    def __init__(self, trace: TraceView, number: int) -> None:
        self._trace, self._number = trace, number

    @cached_property
    def arrows(self) -> Arrows:
        """The first of them."""
        return self._trace.request_packets(self._number, 0, MOST_OF_REQUEST)

    @cached_property
    def spans(self) -> NDArray[np.int32]:
        """The span of each of these."""
        return self._trace.packet_spans(self._number, 0, MOST_OF_REQUEST)

    def losses(self, span: Span) -> Iterator[Cause]:
        """Packets of a span that were lost, each with when the same was sent again; without ACKs, for which nobody
        waits."""
        arrows, mine = self.arrows, self._of(span)
        lost = mine[(arrows.arrow_class[mine] == ArrowClass.LOST) & (arrows.kind[mine] != ACK)]
        for at in lost[:MOST_PACKETS]:
            sent_ns, number = int(arrows.sent_ns[at]), int(arrows.number[at])
            until_ns = self._sent_again_ns(at, mine)
            if until_ns is None:
                yield Cause(f"{self._words(at)} was lost", sent_ns, sent_ns, number)
            else:
                after = f"{self._words(at)} was lost, and sent again after {in_words(until_ns - sent_ns)}"
                yield Cause(after, sent_ns, until_ns, number)

    def _sent_again_ns(self, at: int, mine: NDArray[np.intp]) -> int | None:
        """When the bytes of a lost packet were sent the next time; that may have been lost, too."""
        arrows = self.arrows
        lost = self._trace.hop(int(arrows.number[at]))
        again = np.isin(arrows.arrow_class[mine], (ArrowClass.LOST, ArrowClass.RETRANSMISSION))
        later = mine[again & (arrows.sent_ns[mine] > arrows.sent_ns[at]) & (arrows.pair[mine] == arrows.pair[at])]
        for each in later[:MOST_ATTEMPTS]:
            hop = self._trace.hop(int(arrows.number[each]))
            if lost and hop and (hop.connection_id, hop.stream_start) == (lost.connection_id, lost.stream_start):
                return int(arrows.sent_ns[each])
        return None

    def latest(self, span: Span, least_ns: float) -> Iterator[Cause]:
        """The packet of a span that was longest on its way beyond what is usual, if that is long."""
        arrows, mine = self.arrows, self._of(span)
        both = (arrows.sent_ns[mine] != MISSING_NS) & (arrows.received_ns[mine] != MISSING_NS)
        mine = mine[both]
        if not len(mine):
            return
        usual_ns = self._trace.typical_delay_ns[arrows.pair[mine]]
        delay_ns = arrows.received_ns[mine] - arrows.sent_ns[mine]
        worst = int(np.argmax(delay_ns - usual_ns))
        if delay_ns[worst] - usual_ns[worst] < least_ns:
            return
        at = mine[worst]
        words = (
            f"{self._words(at)} took {in_words(int(delay_ns[worst]))} on its way, "
            f"usually {in_words(int(usual_ns[worst]))}"
        )
        yield Cause(words, int(arrows.sent_ns[at]), int(arrows.received_ns[at]), int(arrows.number[at]))

    def _of(self, span: Span) -> NDArray[np.intp]:
        return np.flatnonzero(self.spans == span.number)

    def _words(self, at: int) -> str:
        arrows, lanes = self.arrows, self._trace.lanes
        ends = (int(arrows.source[at]), int(arrows.target[at]))
        names = [end_name(lanes[lane].host if lane != NO_LANE else None) for lane in ends]
        size = f" of {int(arrows.size_bytes[at]):,} bytes" if arrows.size_bytes[at] else ""
        kind = str(KINDS[arrows.kind[at]]).replace("_", "-").upper()
        return f"the {kind if kind != 'DATA' else 'data'} packet{size} from {names[0]} to {names[1]}"


def _silences(span: Span, column: str, least_ns: float) -> Iterator[Cause]:
    """The silences of a span that the column counts, if they are long."""
    kind, words = SILENCES[column]
    for silence in span.silences:
        lasted_ns = silence.to_ns - silence.from_ns
        if silence.cause == kind and lasted_ns >= least_ns:
            yield Cause(f"nothing was on the way for {in_words(lasted_ns)}: {words}", silence.from_ns, silence.to_ns)


def _last_of(span: Span, spans: Sequence[Span]) -> Iterator[Cause]:
    """Which of several calls at once was answered last, and how long after the first."""
    place = next(at for at, each in enumerate(spans) if each.number == span.number)
    beside = _siblings(spans, place)
    calls = [each for each in beside if each.service == span.service and each.ended and _overlap(each, span)]
    first = min((each for each in calls if each.end_ns < span.end_ns), key=lambda each: each.end_ns, default=None)
    if first is None or span.server_host is None:
        return
    words = (
        f"{span.server_host} answered last of {len(calls)} calls, {in_words(span.end_ns - first.end_ns)} after "
        f"{end_name(first.server)}"
    )
    yield Cause(words, first.end_ns, span.end_ns)


def _overlap(one: Span, other: Span) -> bool:
    return one.start_ns < other.end_ns and other.start_ns < one.end_ns


def _siblings(spans: Sequence[Span], place: int) -> list[Span]:
    """The spans with the parent of the one at `place`, itself included; `spans` are depth-first."""
    depth = spans[place].depth
    first = next((at for at in range(place, -1, -1) if spans[at].depth < depth), -1) + 1
    found = []
    for each in spans[first:]:
        if each.depth < depth:
            break
        if each.depth == depth:
            found.append(each)
    return found


def _busier(trace: TraceView, span: Span) -> Iterator[Cause]:
    """Whether more requests than usual were under way at a span's server when it arrived there."""
    if span.server_host is None:
        return
    at_ns = span.start_ns if span.request_received_ns is None else span.request_received_ns
    count = int(trace.load.under_way(span.server_host, span.service, np.array([at_ns]))[0])
    usual = trace.load.usually_under_way(span.server_host, span.service)
    if count >= BUSY_RATIO * usual and count >= usual + BUSY_LEAST:
        words = f"{count} requests were under way at {span.service} on {span.server_host}, usually {usual:g}"
        yield Cause(words, at_ns, at_ns)


def _findings(trace: TraceView, span: Span) -> Iterator[Cause]:
    """The findings about a span's server at that time."""
    if span.server_host is not None:
        for text, from_ns, to_ns in trace.findings_at(span.server_host, span.start_ns, span.end_ns):
            yield Cause(f"finding: {text}", from_ns, to_ns)
