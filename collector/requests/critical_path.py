"""Where a root request's time went: its critical path, and a ledger that adds up exactly.

A span is a row of stretches, bounded by stamps:

    start ─ connect ─ connected ┄ sent ─ request network ─ arrived ─ queue ─ taken up ─ work ─ answered
          ─ response network ─ ended

`request network` lasts until the last byte of the request is at the server, `response network` from the first byte of
the response until its last is at the client, so the transfer of a body counts as network. `work` is the server's time
in between; until it was taken up, as far as that can be told (`collector.requests.waits`), the request waited in its
queue. A server that is asked first whether it wants the body (`Expect: 100-continue`) works between the head and
its 100 as well. While a connection is ready but nothing is asked, and between the 100 and the body, the span waits for
its own client, so that time is the parent's. A root has no parent: there the wait for the body is `client`, and the
pause before the request is no part of its duration (`collector.requests.openings`).
A span is therefore taken apart into up to three visits to its server, which are followed one by one:

    connect: start … connected        ask: sent … 100 received        main: sent, or the body … ended

The path is walked backwards from `answered`. What held the answer up is the visit of a child that gave its first byte
before then and ended last; before that visit began, the same question is asked at its beginning, and so on to
`arrived`. Where no child's visit runs, the parent itself works. A child whose answer came after its parent had answered
held nothing up (a quorum had been reached; work put off until later): it has no part in the ledger. Both stamps
compared are of one host (the parent's server is the child's client), so clocks play no part in the choice.

Each visit on the path gets a window of the root's time, and its stretches are clipped to it. So clocks that are off by
a few µs, or a child that overlaps its parent's own network time, cannot break the sum: over a trace, the stretches
add up to the root's duration to the nanosecond.

**Silences.** A message whose bytes do not all leave at once has stretches in which none of them is on the way
(table `silences`). They are no network's time: `request_idle` and `response_idle` are the sender's, who had nothing to
send; `send_held` is TCP's (congestion window, small window, delayed acknowledgement); `reader_wait` the receiver's,
whose application did not read. While a parent had nothing to send of its answer, what held it up was a child that was
still answering, if there was one: that child's stretches of the time take its place, and its own silences are followed.

Two kinds of waiting are taken out of these stretches. Where one parent asked several servers the same at once, the span
that decided keeps its stretches up to the first of the answers; what the parent waited on for it is `quorum`. And where
bytes (or a SYN) were lost and sent again, the time until then is `stall` rather than connect or network.

Limits: a stamp not seen makes its stretch zero and lengthens `work` instead; so does a request that was given up
unanswered. A parent that streams through what its child still sends is on its own response network from its first byte
on.
The walk is the core's (`tracer/core/spans/src/ledger.rs`). Cost: a sort of each span's children.
"""

from dataclasses import dataclass, fields

from collector.trace.time_columns import UNSEEN, Int64Array
from tracer import _core
from tracer.records import Columns

__all__ = ["NONE", "UNSEEN", "Int64Array", "Ledger", "Nodes", "make_ledger"]

NONE = -1
"""No node."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Spans as a forest; arrays of one length, times in ns (`UNSEEN` where not seen)."""

    parent: Int64Array  # place of the parent, NONE for a root
    depth: Int64Array  # 0 for a root whose time is to be shared out
    start: Int64Array  # these five and `ended`: `collector.requests.openings.Bounds`
    connected: Int64Array
    tls_start: Int64Array
    tls_end: Int64Array
    sent: Int64Array
    last_sent: Int64Array  # last byte of the request
    head_arrived: Int64Array
    continued: Int64Array  # the server asked for the body; UNSEEN if it did not
    asked_for: Int64Array  # the client heard that
    body_sent: Int64Array  # and first sent something then
    arrived: Int64Array
    answered: Int64Array
    first_received: Int64Array  # first byte of the response at the client
    first_returned: Int64Array  # the same, or what is nearest to it
    ended: Int64Array
    taken_up: Int64Array  # by the server; UNSEEN where nothing tells
    first_answered: Int64Array  # of the servers asked the same at once, the first; UNSEEN for one asked alone
    connect_stall: Int64Array  # ns waited for a SYN to be sent again; 0 for none; this and the two below
    request_stall: Int64Array
    response_stall: Int64Array


@dataclass(frozen=True, slots=True)
class Ledger:
    """Stretches of each span on its root's critical path, and its first and last time there; off the path all zero.

    The times are empty where they were not asked for.
    """

    client_ns: Int64Array  # a root's client had been asked for the body, but sent none yet
    connect_ns: Int64Array
    tls_ns: Int64Array
    request_network_ns: Int64Array
    queue_ns: Int64Array
    work_ns: Int64Array
    fan_out_wait_ns: Int64Array
    server_or_network_ns: Int64Array  # one end's stamps do not show which
    response_network_ns: Int64Array
    stall_ns: Int64Array
    request_idle_ns: Int64Array  # none of the request was on the way, since its sender had nothing to send
    response_idle_ns: Int64Array
    send_held_ns: Int64Array  # since TCP held it
    reader_wait_ns: Int64Array  # since the receiver did not read
    critical_ns: Int64Array  # their sum: what a span contributes to its root's duration
    window_start: Int64Array
    window_end: Int64Array


def make_ledger(nodes: Nodes, silences: Columns, *, with_windows: bool = False) -> Ledger:
    """Share out each root's time among the spans on its critical path.

    Arguments: `silences` of their messages by the row of their span (`collector.requests.silences.silences_by_row`). A
    root without a beginning or an end has no duration: it and all below it get zeros.
    """
    columns = {field.name: getattr(nodes, field.name) for field in fields(Nodes)}
    return Ledger(**_core.make_ledger(columns, silences, with_windows))
