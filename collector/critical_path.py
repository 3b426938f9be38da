"""Where a root request's time went: its critical path, and a ledger that adds up exactly.

A span is a row of stretches, bounded by stamps:

    start ─ connect ─ connected ┄ sent ─ request network ─ arrived ─ queue ─ taken up ─ work ─ answered
          ─ response network ─ ended

`request network` lasts until the last byte of the request is at the server, `response network` from the first byte of
the response until its last is at the client, so the transfer of a body counts as network. `work` is the server's time
in between; until it was taken up, as far as that can be told (`collector.waits`), the request waited in its queue. A
server that is asked first whether it wants the body (`Expect: 100-continue`) works between the head and
its 100 as well. While a connection is ready but nothing is asked, and between the 100 and the body, the span waits for
its own client, so that time is the parent's; a root has no parent: there it is `client`.
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

Two kinds of waiting are taken out of these stretches. Where one parent asked several servers the same at once, the span
that decided keeps its stretches up to the first of the answers; what the parent waited on for it is `quorum`. And where
bytes (or a SYN) were lost and sent again, the time until then is `stall` rather than connect or network.

Limits: a stamp not seen makes its stretch zero and lengthens `work` instead; so does a request that was given up
unanswered. A parent that streams through what its child still sends is on its own response network from its first byte
on.
Cost: one sort of the visits, then one round for each level and each link of the longest chain; no loop over spans.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from collector.runs import largest_so_far

Longs = NDArray[np.int64]

NONE = -1
"""No node."""
UNSEEN = np.iinfo(np.int64).min
"""A time that was not seen."""
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Nodes:
    """Spans as a forest; arrays of one length, times in ns (`UNSEEN` where not seen)."""

    parent: Longs  # place of the parent, NONE for a root
    depth: Longs  # 0 for a root whose time is to be shared out
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
    taken_up: Longs  # by the server; UNSEEN where nothing tells
    first_answered: Longs  # of the servers asked the same at once, the first; UNSEEN for one asked alone
    connect_stall: Longs  # ns waited for a SYN to be sent again; 0 for none; this and the two below
    request_stall: Longs
    response_stall: Longs


@dataclass(frozen=True, slots=True)
class Ledger:
    """Stretches of each span on its root's critical path, and its first and last time there; off the path all zero."""

    client_ns: Longs  # a root's client was ready, but asked nothing yet, or sent no body yet
    connect_ns: Longs
    request_network_ns: Longs
    queue_ns: Longs
    work_ns: Longs
    quorum_ns: Longs
    response_network_ns: Longs
    stall_ns: Longs
    window_start: Longs
    window_end: Longs

    @property
    def critical_ns(self) -> Longs:
        """What a span contributes to its root's duration."""
        return np.sum(
            [getattr(self, stretch.name) for stretch in fields(self)[: len(_Stretch)]], axis=0, dtype=np.int64
        )


def make_ledger(nodes: Nodes) -> Ledger:
    """Share out each root's time among the spans on its critical path.

    A root without a beginning or an end has no duration: it and all below it get zeros.
    """
    count = len(nodes.parent)
    visits = _all_visits(nodes)
    stretches = np.zeros((len(_Stretch), count), dtype=np.int64)
    first, last = np.full(count, NEVER), np.full(count, UNSEEN)
    children = _Children(visits, nodes.parent)
    level = _root_windows(visits, nodes)
    while level.visit.size:
        span = visits.span[level.visit]
        np.minimum.at(first, span, level.begin)
        np.maximum.at(last, span, level.end)
        level = _share(level, visits, nodes, children, stretches)
    off_path = last == UNSEEN
    first[off_path] = last[off_path] = 0
    _take_out_stalls(nodes, stretches)
    client, connect, request, queue, work, quorum, response, stall = stretches
    return Ledger(client, connect, request, queue, work, quorum, response, stall, first, last)


class _Stretch(IntEnum):
    """Rows of the stretches, as in `Ledger`."""

    CLIENT = 0
    CONNECT = 1
    REQUEST = 2
    QUEUE = 3
    WORK = 4
    QUORUM = 5
    RESPONSE = 6
    STALL = 7


class _Kind(IntEnum):
    CONNECT = 0
    ASK = 1
    MAIN = 2


@dataclass(frozen=True, slots=True)
class _Visits:
    """Visits of spans to their servers; `begin` … `ended` by the client, the rest as in `Nodes`."""

    span: Longs
    kind: Longs
    begin: Longs
    sent: Longs
    arrived: Longs
    answered: Longs
    returned: Longs
    ended: Longs


@dataclass(frozen=True, slots=True)
class _Windows:
    """Visits on the path with their windows of the root's time; a visit may have several."""

    visit: Longs
    begin: Longs
    end: Longs


def _all_visits(nodes: Nodes) -> _Visits:
    count = len(nodes.parent)
    connects = _rising(nodes.start, nodes.connected, nodes.sent)
    asked_for = np.where(nodes.asked_for == UNSEEN, nodes.continued, nodes.asked_for)
    body_sent = np.where(nodes.body_sent == UNSEEN, asked_for, nodes.body_sent)
    asks = _rising(nodes.sent, nodes.head_arrived, nodes.continued, asked_for, body_sent, nodes.arrived)
    asked_from = np.where(connects, nodes.sent, nodes.start)
    main_from = np.where(asks, body_sent, asked_from)
    spans, never = np.arange(count), np.full(count, NEVER)

    def visits(kind: _Kind, begin: Longs, *times: Longs) -> _Visits:
        return _Visits(spans, np.full(count, kind), begin, *times)

    connect = visits(_Kind.CONNECT, nodes.start, never, never, never, nodes.connected, nodes.connected)
    ask = visits(_Kind.ASK, asked_from, nodes.sent, nodes.head_arrived, nodes.continued, asked_for, asked_for)
    returned = np.where(nodes.first_returned == UNSEEN, nodes.ended, nodes.first_returned)
    main = visits(_Kind.MAIN, main_from, nodes.sent, nodes.arrived, nodes.answered, returned, nodes.ended)
    return _joined([(connect, connects), (ask, asks), (main, np.ones(count, dtype=np.bool_))])


def _rising(*times: Longs) -> NDArray[np.bool_]:
    """Where all of the times were seen, in this order."""
    rising = times[0] != UNSEEN
    for before, after in pairwise(times):
        rising &= (after != UNSEEN) & (after >= before)
    return rising


def _joined(groups: list[tuple[_Visits, NDArray[np.bool_]]]) -> _Visits:
    return _Visits(
        *(np.concatenate([getattr(visits, field.name)[kept] for visits, kept in groups]) for field in fields(_Visits))
    )


def _root_windows(visits: _Visits, nodes: Nodes) -> _Windows:
    """The roots' own visits: they tile each root's time, so one lasts until the next begins."""
    whole = (nodes.depth == 0) & (nodes.start != UNSEEN) & (nodes.ended != UNSEEN) & (nodes.ended > nodes.start)
    mine = np.flatnonzero(whole[visits.span])
    mine = mine[np.lexsort((visits.kind[mine], visits.span[mine]))]
    span = visits.span[mine]
    begin = np.minimum(visits.begin[mine], nodes.ended[span])
    ends_with_next = np.r_[span[1:] == span[:-1], False] if mine.size else np.zeros(0, dtype=np.bool_)
    return _Windows(mine, begin, np.where(ends_with_next, np.r_[begin[1:], 0][: mine.size], nodes.ended[span]))


class _Children:
    """Answers: of the visits of a span's children that had returned a first byte by a time, which ended last."""

    def __init__(self, visits: _Visits, parent: Longs) -> None:
        returned, parents = visits.returned, parent[visits.span]
        known = (parents != NONE) & (visits.begin != UNSEEN) & (visits.ended != UNSEEN)
        usable = np.flatnonzero(known & (returned > visits.begin) & (visits.ended >= returned))
        self.times = np.sort(returned[usable])
        order = usable[np.lexsort((returned[usable], parents[usable]))]
        self.parents = parents[order]
        self.keys = self._key(self.parents, np.searchsorted(self.times, returned[order]))
        self.latest = order[largest_so_far(visits.ended[order], self.parents)]

    def last_by(self, parents: Longs, by: Longs) -> Longs:
        """For each of `parents`, the visit that ended last among those that had returned a byte by `by`, or NONE."""
        if not len(self.keys):
            return np.full(len(parents), NONE)
        rank = np.searchsorted(self.times, by, side="right") - 1
        place = np.searchsorted(self.keys, self._key(parents, rank), side="right") - 1
        held = (rank >= 0) & (place >= 0) & (self.parents[place] == parents)
        return np.where(held, self.latest[place], NONE)

    def _key(self, parents: Longs, rank: Longs) -> Longs:
        return parents * (len(self.times) + 1) + rank


def _share(level: _Windows, visits: _Visits, nodes: Nodes, children: _Children, stretches: Longs) -> _Windows:
    """Fill in the stretches of the visits in `level`; returns their critical children's visits with their windows."""
    begin, span, kind = level.begin, visits.span[level.visit], visits.kind[level.visit]
    connecting, asking = kind == _Kind.CONNECT, kind == _Kind.ASK
    end = np.where(kind == _Kind.MAIN, _inside(nodes.first_answered[span], level.end, begin, level.end), level.end)
    sent = _inside(visits.sent[level.visit], begin, begin, end)
    answered = _inside(visits.answered[level.visit], end, np.where(connecting, begin, sent), end)
    arrived = _inside(visits.arrived[level.visit], sent, np.minimum(sent, answered), answered)
    returned = _inside(visits.returned[level.visit], end, answered, end)
    queued = np.where(connecting, 0, _inside(nodes.taken_up[span], arrived, arrived, answered) - arrived)

    def add(stretch: _Stretch, amount: Longs) -> None:
        np.add.at(stretches[stretch], span, amount)

    add(_Stretch.CONNECT, np.where(connecting, answered, sent) - begin)
    add(_Stretch.REQUEST, np.where(connecting, 0, arrived - sent + np.where(asking, returned - answered, 0)))
    add(_Stretch.QUEUE, queued)
    add(_Stretch.WORK, np.where(connecting, 0, answered - arrived - queued))
    add(_Stretch.RESPONSE, np.where(connecting | asking, 0, end - answered))
    add(_Stretch.CLIENT, np.where(connecting, end - answered, np.where(asking, end - returned, 0)))
    add(_Stretch.QUORUM, level.end - end)
    return _follow(span, arrived, answered, visits, children, stretches)


def _take_out_stalls(nodes: Nodes, stretches: Longs) -> None:
    """What was waited for bytes to be sent again, no more than the stretch has."""
    stalls = (
        (_Stretch.CONNECT, nodes.connect_stall),
        (_Stretch.REQUEST, nodes.request_stall),
        (_Stretch.RESPONSE, nodes.response_stall),
    )
    for stretch, stall in stalls:
        waited = np.minimum(stretches[stretch], stall)
        stretches[stretch] -= waited
        stretches[_Stretch.STALL] += waited


def _follow(
    span: Longs, floor: Longs, cursor: Longs, visits: _Visits, children: _Children, stretches: Longs
) -> _Windows:
    """The children's visits that fill the time from `cursor` back to `floor`; taken out of the parents' work."""
    found: list[_Windows] = []
    while span.size:
        child = children.last_by(span, cursor)
        upto = np.minimum(visits.ended[child], cursor)
        going = (child != NONE) & (upto > floor)
        span, floor, child, upto = span[going], floor[going], child[going], upto[going]
        cursor = np.maximum(visits.begin[child], floor)
        np.subtract.at(stretches[_Stretch.WORK], span, upto - cursor)
        found.append(_Windows(child, cursor, upto))
    none = np.empty(0, dtype=np.int64)
    return _Windows(
        *(np.concatenate([none, *(getattr(one, field.name) for one in found)]) for field in fields(_Windows))
    )


def _inside(times: Longs, unseen: Longs, low: Longs, high: Longs) -> Longs:
    """`times`, or `unseen` where not seen, held between `low` and `high`."""
    return np.clip(np.where(times == UNSEEN, unseen, times), low, high)
