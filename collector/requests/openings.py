"""Determines when each span begins and ends, and which connections were opened for their first request.

A request lasts from its first byte sent until the last byte of its answer arrives (`collector.trace.request_times` has
the definition). If its connection was opened for it,
the handshake belongs to it, too, from the first SYN until the client acknowledges the server's SYN. The time between
handshake and request is the client's pause, and not part of the request:

    SYN ─ handshake ─ ACK ┄┄ pause ┄┄ first byte ─ request, work, response ─ last byte
    start                                                                    end          duration = end − start − pause

If the server speaks first, as those of MySQL, SMTP and FTP do, the client waits for its greeting, and only then pauses:
the wait for the greeting is part of the request.

A connection with TLS has a second handshake, with the client's pauses before and after it; the first byte is then that
of the first application record.

A connection is not always opened for its first request: pools and browsers open some in advance. This is recognised

- for a request that a server makes on behalf of another (a child): if the SYN was sent before that other request had
  arrived (both timestamps are of one host);
- for any other request: if the connection was idle for `IDLE_NS`, and meanwhile the same client sent the same server
  another request.

Such a handshake delayed nothing, so it is not part of any request.

Limits: if a client opens a connection, waits, and then sends a request, the connection counts as opened for that
request. If the handshake's end was not captured, a request begins with its first byte.
"""

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.trace.arrow import indices, shared_constant
from collector.trace.request_times import BEGIN, END
from collector.trace.time_columns import UNSEEN, Int64Array, first_times

IDLE_NS = 100_000_000
"""A connection that is idle for so long was not opened for its first request, if the client made others meanwhile."""
NONE = -1


class Bounds(Struct, frozen=True):
    """When spans begin and end; arrays of one length, trace times in ns, `UNSEEN` if unknown."""

    start: Int64Array
    connected: Int64Array  # when the handshake that belongs to the span had ended; UNSEEN without one
    greeted: Int64Array  # when the client then had the greeting of a server that speaks first; UNSEEN without one
    tls_start: Int64Array  # the handshake of TLS, likewise
    tls_end: Int64Array
    sent: Int64Array  # its first byte
    end: Int64Array

    @property
    def pause(self) -> Int64Array:
        """How long (ns) the client waited between opening a connection for the span and sending the request; else 0."""
        opened, secured = self.connected != UNSEEN, self.tls_start != UNSEEN
        ready = np.maximum(self.connected, self.greeted)  # UNSEEN is less than any time
        until = np.where(self.end == UNSEEN, self.sent, np.minimum(self.sent, self.end))

        def before(at: Int64Array, known: NDArray[np.bool_]) -> Int64Array:
            return np.where(known, np.minimum(at, until), until)

        tls = before(self.tls_end, secured) - before(self.tls_start, secured)
        return np.where(opened, until - before(ready, opened) - tls, 0)


def find_bounds(exchanges: pa.Table, parent: Int64Array) -> Bounds:
    """When the spans of `exchanges` begin and end.

    Arguments: the table `exchanges`; for each its parent's row, `NONE` for a root. Cost: passes over the rows, and a
    sort if any connection was idle for long.
    """
    begun, up, sent = (first_times(exchanges, name) for name in ("connect_start", "connected", "request_first_sent"))
    opened = (begun != UNSEEN) & (up >= begun) & (sent >= up)
    if opened.any():
        opened &= ~_before_their_parent(exchanges, parent, begun)
        ready = np.maximum(up, _greeting_times(exchanges, up, sent))
        opened &= ~_idle_beside_others(exchanges, parent, opened, ready, sent)
    return bounds_of(exchanges, opened)


def bounds_of(exchanges: pa.Table, opened: NDArray[np.bool_]) -> Bounds:
    """The result of `find_bounds`, given which connections were `opened` for their first request."""
    first_byte = BEGIN.times(exchanges)
    connected, tls_start, tls_end = (first_times(exchanges, name) for name in ("connected", "tls_start", "tls_end"))
    sent = first_times(exchanges, "request_first_sent")
    in_order = (tls_start >= connected) & (tls_end >= tls_start) & (sent >= tls_end)
    secured = opened & (tls_start != UNSEEN) & in_order
    return Bounds(
        start=np.where(opened, first_times(exchanges, "connect_start"), first_byte),
        connected=_times_where(opened, connected),
        greeted=_times_where(opened, _greeting_times(exchanges, connected, sent)),
        tls_start=_times_where(secured, tls_start),
        tls_end=_times_where(secured, tls_end),
        sent=sent,
        end=END.times(exchanges),
    )


def _times_where(known: NDArray[np.bool_], times: Int64Array) -> Int64Array:
    """`UNSEEN` where a time is not known; where none is, that takes no memory."""
    return np.where(known, times, UNSEEN) if known.any() else shared_constant(UNSEEN, len(known))


def _greeting_times(exchanges: pa.Table, connected: Int64Array, sent: Int64Array) -> Int64Array:
    """When the client of each exchange had the server's greeting, between the handshake and the request."""
    greeted = first_times(exchanges, "greeting_received")
    return _times_where((greeted >= connected) & (greeted <= sent) & (connected != UNSEEN), greeted)


def _before_their_parent(exchanges: pa.Table, parent: Int64Array, begun: Int64Array) -> NDArray[np.bool_]:
    """Whether each SYN was sent before the parent request had arrived."""
    arrived = first_times(exchanges, "request_first_received")[parent]
    return (parent != NONE) & (arrived != UNSEEN) & (begun < arrived)


def _idle_beside_others(
    exchanges: pa.Table, parent: Int64Array, opened: NDArray[np.bool_], up: Int64Array, sent: Int64Array
) -> NDArray[np.bool_]:
    """Whether each root's connection was idle for long while its client sent the same server another request."""
    idle = np.zeros(len(opened), np.bool_)
    rows = np.flatnonzero(opened & (parent == NONE))
    rows = rows[sent[rows] - up[rows] >= IDLE_NS]
    if not rows.size:
        return idle
    pair = np.zeros(len(opened), np.int64)
    for name in ("client_host", "server_host", "service"):
        codes, texts = indices(exchanges[name])
        pair = pair * (len(texts) + 1) + codes + 1
    order = np.lexsort((sent, pair))
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    for row in rows.tolist():
        before = order[places[row] - 1]
        # The last request before it from the same client to the same server.
        idle[row] = places[row] > 0 and pair[before] == pair[row] and sent[before] > up[row]
    return idle
