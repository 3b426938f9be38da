"""Computes where a root request's time went: its critical path, and a ledger whose entries sum up exactly.

A span is a sequence of stretches, bounded by timestamps:

    start ─ connect ─ connected ┄ (greeting ┄) sent ─ request network ─ arrived ─ queue ─ taken up ─ work ─ answered
          ─ response network ─ ended

`request network` lasts until the last byte of the request reaches the server, `response network` from the first byte of
the response until its last byte reaches the client, so the transfer of a body counts as network. `work` is the server's
time in between. Before the server takes the request up, as far as that can be determined (`collector.requests.waits`),
the request waits in the queue. If the client first asks whether the server wants the body (`Expect: 100-continue`), the
server also works between the head and its 100; so does a server that asks for another proof of who logs in. If the
server speaks first on a connection that was opened for the span (SQL, SMTP, FTP), it works from the handshake on until
it sends its greeting. While a connection is ready but no request is sent, and between the 100
and the body, the span waits for its own client, so that time is the parent's. A root has no parent: there the wait for
the body is `client`, and the pause before the request is not part of its duration (`collector.requests.openings`).
A span is therefore divided into up to four visits to its server (TLS's handshake is another), which are followed one by
one:

    connect: start … connected        greet: connected … greeted
    ask: sent … 100 received        main: sent, or the body … ended

The path is walked backwards from `answered`. The parent waited for the child visit that gave its first byte before
`answered` and ended last. The same rule then applies at the beginning of that visit, and so on back to `arrived`. While
no child's visit runs, the parent itself works. A child whose answer came after its parent had answered delayed nothing
(a quorum had been reached, or work was deferred): it has no part in the ledger. Both timestamps compared are of one
host (the parent's server is the child's client), so clock errors cannot affect the choice.

Each visit on the path gets a window of the root's time, and its stretches are clipped to it. So clock errors of a few
µs, or a child that overlaps its parent's own network time, cannot break the sum: over a trace, the stretches sum up to
the root's duration to the nanosecond.

**Silences.** A message whose bytes are not all sent at once has stretches in which none of them is in transit (table
`silences`). They do not count as network: `request_idle` and `response_idle` are time in which the sender had nothing
to send; `send_held` in which TCP held the data back (congestion window, small window, delayed acknowledgement);
`reader_wait` in which the receiving application did not read. If a parent had nothing to send while a child was still
answering, it waited for that child: the child's stretches take the place of the silence, and the child's own silences
are followed.

Two kinds of waits are separated from these stretches. If one parent asked several servers the same at once, the span
that decided keeps its stretches up to the first of the answers; the parent's further wait for it is the fan-out wait.
If bytes (or a SYN) were lost and retransmitted, the time until then is `stall` instead of connect or network.

Limits: a missing timestamp makes its stretch zero and lengthens `work` instead; so does a request that was given up
unanswered. A parent that forwards data while its child still sends it counts as response network from its own first
byte on. The walk is the core's (`collector/core/spans/src/ledger.rs`). Cost: a sort of each span's children.
"""

from msgspec import Struct
from msgspec.structs import fields

from collector import _core
from collector.capture_files.records import Columns
from collector.trace.time_columns import UNSEEN, Int64Array

__all__ = ["NONE", "UNSEEN", "Int64Array", "Ledger", "Nodes", "make_ledger"]

NONE = -1
"""No node."""


class Nodes(Struct, frozen=True):
    """Spans as a forest; arrays of one length, times in ns (`UNSEEN` where not seen)."""

    parent: Int64Array  # row of the parent, NONE for a root
    depth: Int64Array  # 0 for a root whose time is divided
    start: Int64Array  # this, `connected`, `greeted`, `tls_…`, `sent`, `ended`: `collector.requests.openings.Bounds`
    connected: Int64Array
    connected_received: Int64Array  # the handshake's end at the server, where that speaks first
    greeting_sent: Int64Array  # its first byte; UNSEEN if the client spoke first
    greeted: Int64Array
    tls_start: Int64Array
    tls_end: Int64Array
    sent: Int64Array
    last_sent: Int64Array  # last byte of the request
    head_arrived: Int64Array
    continue_sent: Int64Array  # the server asked for the body (100 Continue); UNSEEN if it did not
    continue_received: Int64Array  # that arrived at the client
    body_sent: Int64Array  # the client first sent a byte of the body after that
    arrived: Int64Array
    answered: Int64Array
    first_received: Int64Array  # first byte of the response at the client
    response_begin: Int64Array  # the same, or the nearest time that was seen
    ended: Int64Array
    service_start: Int64Array  # the server began to work on the request; UNSEEN if unknown
    first_answered: Int64Array  # of parallel calls to several servers, the first; UNSEEN for a single call
    connect_stall: Int64Array  # ns waited for a SYN to be sent again; 0 for none; this and the two below
    request_stall: Int64Array
    response_stall: Int64Array


class Ledger(Struct, frozen=True):
    """Stretches of each span on its root's critical path, and its first and last time there; all zero off the path.

    The times are empty if they were not requested.
    """

    client_ns: Int64Array  # the server had asked a root's client for the body, but the client had sent none yet
    connect_ns: Int64Array
    tls_ns: Int64Array
    request_network_ns: Int64Array
    queue_ns: Int64Array
    work_ns: Int64Array
    fan_out_wait_ns: Int64Array
    server_or_network_ns: Int64Array  # the timestamps of one end do not show which
    response_network_ns: Int64Array
    stall_ns: Int64Array
    request_idle_ns: Int64Array  # no byte of the request in transit, because its sender had nothing to send
    response_idle_ns: Int64Array
    send_held_ns: Int64Array  # no byte in transit, because TCP held the data back
    reader_wait_ns: Int64Array  # no byte in transit, because the receiver did not read
    critical_ns: Int64Array  # their sum: the span's contribution to its root's duration
    window_start: Int64Array
    window_end: Int64Array


def make_ledger(nodes: Nodes, silences: Columns, *, with_windows: bool = False) -> Ledger:
    """Divide each root's time among the spans on its critical path.

    Arguments: `silences` of the spans' messages, from `collector.requests.silences.silences_by_row`. A root without a
    beginning or an end has no duration: it and all spans below it get zeros.
    """
    columns = {field.name: getattr(nodes, field.name) for field in fields(Nodes)}
    return Ledger(**_core.make_ledger(columns, silences, with_windows))
