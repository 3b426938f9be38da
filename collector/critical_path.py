"""Where a root request's time went: its critical path, and a ledger that adds up exactly.

A span is four stretches in a row, bounded by stamps:

    start ── connect ── connected ┄┄ sent ── request network ── arrived ── work ── answered ── response network ── ended

Between a connection's readiness and its first request, and between the server's 100 and the body, the time is the
asking host's own, so it counts as the parent's work (a root has no parent: there it stays with connect and network).

`request network` lasts until the last byte of the request is at the server, `response network` from the first byte of
the response until its last is at the client, so the transfer of a body counts as network. `work` is the server's time
in between, except where it waits for a child on the critical path: there the child's own stretches count. A server that
is asked first whether it wants the body (`Expect: 100-continue`) also works between the head and its 100; that time
is taken out of the request network.

The path is walked backwards from `answered`. What held the answer up is the child that gave its first byte before
then and whose response was in last; before that child began, the same question is asked at its beginning, and so on
to `arrived`. A child whose answer came after its parent had answered held nothing up (a quorum had been reached; work
put off until later): it has no part in the ledger. Both stamps compared are of one host (the parent's server is the
child's client), so clocks play no part in the choice.

Each span on the path gets a window of the root's time, and its stretches are clipped to it. So clocks that are off by
a few µs, or a child that overlaps its parent's own network time, cannot break the sum: over a trace, the stretches
add up to the root's duration to the nanosecond.

Limits: a stamp not seen makes its stretch zero and lengthens `work` instead. A parent that streams through what its
child still sends is on its own response network from its first byte on. What children did before a server's 100 counts
as the server's own work.
Cost: one sort of the children, then one round for each level and each link of the longest chain; no loop over spans.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]

NONE = -1
"""No node."""
UNSEEN = np.iinfo(np.int64).min
"""A time that was not seen."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Spans as a forest; arrays of one length, times in ns (`UNSEEN` where not seen)."""

    parent: Longs  # place of the parent, NONE for a root
    depth: Longs  # 0 for a root
    start: Longs
    connected: Longs
    sent: Longs
    head_arrived: Longs
    continued: Longs  # the server asked for the body; UNSEEN if it did not
    asked_for: Longs  # the client heard that
    body_sent: Longs  # and first sent something then
    arrived: Longs
    answered: Longs
    first_returned: Longs  # first byte of the response at the client
    ended: Longs


@dataclass(frozen=True, slots=True)
class Ledger:
    """Stretches of each span on its root's critical path, and its window there; a span off the path has zeros."""

    connect_ns: Longs
    request_network_ns: Longs
    work_ns: Longs
    response_network_ns: Longs
    window_start: Longs
    window_end: Longs

    @property
    def critical_ns(self) -> Longs:
        """What a span contributes to its root's duration."""
        return self.connect_ns + self.request_network_ns + self.work_ns + self.response_network_ns


def make_ledger(nodes: Nodes) -> Ledger:
    """Share out each root's time among the spans on its critical path.

    A root without a beginning or an end has no duration: it and all below it get zeros.
    """
    count = len(nodes.parent)
    windows = np.zeros((2, count), dtype=np.int64)
    stretches = np.zeros((4, count), dtype=np.int64)
    whole = (nodes.depth == 0) & (nodes.start != UNSEEN) & (nodes.ended != UNSEEN) & (nodes.ended > nodes.start)
    windows[0, whole], windows[1, whole] = nodes.start[whole], nodes.ended[whole]
    children = _Children(nodes)
    level = np.flatnonzero(whole)
    while level.size:
        level = _share(level, nodes, children, windows, stretches)
    return Ledger(*stretches, *windows)


class _Children:
    """Answers: of a parent's children that had returned a first byte by a time, which ended last."""

    def __init__(self, nodes: Nodes) -> None:
        returned = np.where(nodes.first_returned == UNSEEN, nodes.ended, nodes.first_returned)
        known = (nodes.parent != NONE) & (nodes.start != UNSEEN) & (nodes.ended != UNSEEN)
        usable = np.flatnonzero(known & (returned > nodes.start) & (nodes.ended >= returned))
        self.times = np.unique(returned[usable])
        order = usable[np.lexsort((returned[usable], nodes.parent[usable]))]
        self.parents = nodes.parent[order]
        self.keys = self._key(self.parents, np.searchsorted(self.times, returned[order]))
        self.latest = _running_argmax(nodes.ended[order], self.parents, order)

    def last_by(self, parents: Longs, by: Longs) -> Longs:
        """For each of `parents`, the child that ended last among those that had returned a byte by `by`, or NONE."""
        if not len(self.keys):
            return np.full(len(parents), NONE)
        rank = np.searchsorted(self.times, by, side="right") - 1
        place = np.searchsorted(self.keys, self._key(parents, rank), side="right") - 1
        held = (rank >= 0) & (place >= 0) & (self.parents[place] == parents)
        return np.where(held, self.latest[place], NONE)

    def _key(self, parents: Longs, rank: Longs) -> Longs:
        return parents * (len(self.times) + 1) + rank


def _running_argmax(values: Longs, groups: Longs, labels: Longs) -> Longs:
    """Within each run of equal `groups`, the label of the largest value so far."""
    if not len(values):
        return labels
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.argsort(values, kind="stable")] = np.arange(len(values))
    run = np.cumsum(np.r_[False, groups[1:] != groups[:-1]])
    largest = np.maximum.accumulate(run * len(values) + rank) - run * len(values)
    by_rank = np.empty(len(values), dtype=np.int64)
    by_rank[rank] = labels
    return by_rank[largest]


def _share(level: Longs, nodes: Nodes, children: _Children, windows: Longs, stretches: Longs) -> Longs:
    """Fill the stretches of the spans in `level` and the windows of their critical children; returns these."""
    begin, end = windows[0, level], windows[1, level]
    sent = _inside(nodes.sent[level], begin, begin, end)
    answered = _inside(nodes.answered[level], end, sent, end)
    arrived = _inside(nodes.arrived[level], sent, sent, answered)
    head_arrived = _inside(nodes.head_arrived[level], arrived, sent, arrived)
    continued = _inside(nodes.continued[level], head_arrived, head_arrived, arrived)
    asked_for = _inside(nodes.asked_for[level], arrived, continued, arrived)
    body_sent = _inside(nodes.body_sent[level], asked_for, asked_for, arrived)
    waited = sent - _inside(nodes.connected[level], sent, begin, sent), body_sent - asked_for
    idle = [np.where(nodes.parent[level] == NONE, 0, wait) for wait in waited]
    stretches[0, level] = sent - begin - idle[0]
    stretches[1, level] = arrived - sent - (continued - head_arrived) - idle[1]
    stretches[2, level], stretches[3, level] = answered - arrived + continued - head_arrived, end - answered
    asking = nodes.parent[level] != NONE
    np.add.at(stretches[2], nodes.parent[level][asking], (idle[0] + idle[1])[asking])
    parents, floor, cursor, found = level, arrived, answered, []
    while parents.size:
        child = children.last_by(parents, cursor)
        upto = np.minimum(nodes.ended[child], cursor)
        going = (child != NONE) & (upto > floor)
        parents, floor, child, upto = parents[going], floor[going], child[going], upto[going]
        cursor = np.maximum(nodes.start[child], floor)
        windows[0, child], windows[1, child] = cursor, upto
        stretches[2, parents] -= upto - cursor
        found.append(child)
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _inside(times: Longs, unseen: Longs, low: Longs, high: Longs) -> Longs:
    """`times`, or `unseen` where not seen, held between `low` and `high`."""
    return np.clip(np.where(times == UNSEEN, unseen, times), low, high)
