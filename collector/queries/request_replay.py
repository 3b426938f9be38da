"""Requests played again with something changed: when each would have ended.

A request is a tree of calls. Each event of it waits for what it waited for when it was captured, and then takes as long
as it took:

| event | waits for | then takes |
|---|---|---|
| a call begins | its caller's request arriving, and each call of it that had ended by then | the gap |
| it may send its body (100 Continue) | its beginning | connecting, sending, the way back |
| its body leaves | as its beginning, and each call that might send its body by then | the gap |
| it arrives | its body leaving; without 100 Continue its beginning | connecting, sending |
| the answer begins | the arrival, each call that had ended by then; of a fan-out, as many as a quorum wants | the gap |
| the answer is sent | its beginning; calls on the critical path that had ended by then: it streams through | the gap |
| the answer arrives | its being sent | the way |

So a call that becomes quicker uncovers the next slowest, and one that nobody waited for stays so. Without a change each
request ends exactly when it did. A change takes time out of these stretches (`Changes`), never below nothing.

Not known, and left as measured: what a caller would do with calls that it made before the whole request had
arrived (they begin as long after its first byte as they did); whether it waited for a call that had ended by chance
before it went on; what other requests do to servers and links when these are quicker.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, field


class CallFacts(Struct, frozen=True):
    """What a change may take out of a call."""

    lost_before_ns: int = 0  # until what was lost of the handshake, or of HTTP's 100, had been sent again
    lost_sending_ns: int = 0  # and of the request
    lost_within_ns: int = 0  # and of the answer
    handshakes_count: int = 0  # round trips before the request's last byte could leave
    round_trip_ns: int | None = None  # the fastest of its connection, where its server is not captured


NO_FACTS = CallFacts()


class Call(Struct, eq=False):
    """A request of a client, or a call made for one. Times are ns of one timescale; None where they were not seen."""

    begin_ns: int
    end_ns: int
    continue_ns: int | None = None  # its client may send the body (HTTP 100), and does so from `body_ns` on
    body_ns: int | None = None
    heard_ns: int | None = None  # its first byte at the server
    arrived_ns: int | None = None  # its last byte there
    answered_ns: int | None = None  # the answer's first byte leaves
    sent_ns: int | None = None  # and its last
    pause_ns: int = 0  # of its client, between handshake and first byte: no part of the duration
    kind: tuple[str, str, str] = ("", "", "")  # service, method, operation
    target: str = ""
    client_host: str | None = None
    server_host: str | None = None
    is_critical: bool = True
    before_ns: int = 0  # what a change takes out of connecting, and of asking whether to send the body
    sending_ns: int = 0  # out of sending it, or its body
    within_ns: int = 0  # out of the time in which its answer is sent
    after_ns: int = 0  # out of the answer's way
    work_ratio: float = 1.0  # of the server's own time, to what it was
    span_id: int = 0
    facts: CallFacts = NO_FACTS
    calls: list["Call"] = field(default_factory=list)  # by their beginning

    @property
    def duration_ns(self) -> int:
        """As its client sees it."""
        return self.end_ns - self.begin_ns - self.pause_ns

    @property
    def is_seen_at_server(self) -> bool:
        """Whether the stretches within it are known."""
        return self.arrived_ns is not None and self.answered_ns is not None

    @property
    def own_ns(self) -> int:
        """The server's time from the request's arrival to its answer in which none of its calls was under way."""
        if self.arrived_ns is None or self.answered_ns is None:
            return 0
        at_ns, own_ns = self.arrived_ns, 0
        for call in self.calls:
            if call.begin_ns >= self.answered_ns:
                break
            own_ns += max(0, call.begin_ns - at_ns)
            at_ns = max(at_ns, call.end_ns)
        return own_ns + max(0, self.answered_ns - at_ns)


def walk(call: Call) -> Iterator[Call]:
    """A call and all below it."""
    yield call
    for each in call.calls:
        yield from walk(each)


def duration_now_ns(root: Call, quorum: int | None = None) -> int:
    """How long a request would have taken.

    Arguments: `quorum`, after so many answers of a fan-out its caller goes on; None: after as many as it did.
    """
    body_ns = None
    if root.continue_ns is not None and root.body_ns is not None:
        continued_ns = _shorter(root.continue_ns - root.begin_ns, root.before_ns)
        body_ns = continued_ns + root.body_ns - root.continue_ns
    return _end(root, 0, quorum, body_ns) - root.pause_ns


def fan_outs(call: Call) -> list[list[Call]]:
    """The groups of calls that a request made at once to several servers with the same question: of one kind and the
    same last part of the target, each begun before any of them had ended, each at another host."""
    groups: list[list[Call]] = []
    open_groups: dict[tuple[object, str], list[list[Call]]] = {}
    for each in call.calls:
        key = each.kind, each.target.rpartition("/")[2]
        alike = [group for group in open_groups.get(key, ()) if each.begin_ns < min(other.end_ns for other in group)]
        group = next((group for group in alike if each.server_host not in {other.server_host for other in group}), None)
        if group is None:
            groups.append([each])
            alike.append(groups[-1])
        else:
            group.append(each)
        open_groups[key] = alike
    return [group for group in groups if len(group) > 1]


class _Server(Struct):
    """What a server knows at a time: what it waits for, each as it was and as it is now, from the beginning."""

    seen: list[tuple[int, int]]  # moments of the request itself
    ended: list[tuple[Call, int]] = field(default_factory=list)  # calls, with when they end now
    continued: list[tuple[int, int]] = field(default_factory=list)  # when calls might send their bodies
    groups: Mapping[int, list[Call]] = field(default_factory=dict)  # by the id of each call in a fan-out
    _latest: tuple[int, int] | None = None  # of the calls that ended, the latest end as it was, and now

    def end(self, call: Call, now_ns: int) -> None:
        """A call ends."""
        self.ended.append((call, now_ns))
        was, now = self._latest or (call.end_ns, now_ns)
        self._latest = max(was, call.end_ns), max(now, now_ns)

    def ready_amid(self, at_ns: int, quorum: int | None, ratio: float, *, with_continued: bool = False) -> int:
        """As `ready`, of an event before which all calls have ended that did so by then: without looking at each."""
        if self.groups:
            return self.ready(at_ns, quorum, ratio, with_continued=with_continued)
        moments = [*self.seen, *self.continued] if with_continued else self.seen
        waited = [(was, now) for was, now in moments if was <= at_ns] or self.seen[:1]  # clocks may be off
        waited += [self._latest] if self._latest else []
        return max(now for _, now in waited) + round((at_ns - max(was for was, _ in waited)) * ratio)

    def ready(self, at_ns: int, quorum: int | None, ratio: float, *, with_continued: bool = False) -> int:
        """When an event happens now that happened at `at_ns`."""
        moments = [*self.seen, *self.continued] if with_continued else self.seen
        waited = [(was, now) for was, now in moments if was <= at_ns] or self.seen[:1]  # clocks may be off
        calls = [(call, now) for call, now in self.ended if call.end_ns <= at_ns]
        latest_ns = max([was for was, _ in waited] + [call.end_ns for call, _ in calls])
        ready_ns = max([now for _, now in waited] + self._waited_for(calls, quorum))
        return ready_ns + round((at_ns - latest_ns) * ratio)

    def _waited_for(self, calls: Sequence[tuple[Call, int]], quorum: int | None) -> list[int]:
        if quorum is None:
            return [now for _, now in calls]
        ends, found = {id(call): now for call, now in self.ended}, list[int]()
        counts = Counter(id(self.groups.get(id(call))) for call, _ in calls)
        for call, now in calls:
            group = self.groups.get(id(call))
            if group is None:
                found.append(now)
            elif (waited_count := counts.pop(id(group), 0)) > 0:
                known = sorted(ends[id(each)] for each in group if id(each) in ends)
                found.append(known[min(quorum, waited_count) - 1])
        return found


def _end(call: Call, begin_ns: int, quorum: int | None, body_ns: int | None = None) -> int:
    """When a call ends now that begins at `begin_ns`, and whose body leaves at `body_ns` if it waited for that."""
    if not call.is_seen_at_server:
        taken_ns = call.before_ns + call.sending_ns + call.within_ns + call.after_ns
        return begin_ns + _shorter(call.end_ns - call.begin_ns, taken_ns)
    assert call.answered_ns is not None
    server = _Server(_moments(call, begin_ns, body_ns), groups=_groups(call) if quorum else {})
    _play_calls(call, server, quorum)
    return _send(call, server, server.ready(call.answered_ns, quorum, call.work_ratio))


def _moments(call: Call, begin_ns: int, body_ns: int | None) -> list[tuple[int, int]]:
    """When a request begins, is first heard of at its server, and has arrived there: as it was, and now."""
    assert call.arrived_ns is not None
    if body_ns is not None and call.body_ns is not None:
        arrived_ns = body_ns + _shorter(call.arrived_ns - call.body_ns, call.sending_ns)
    else:
        arrived_ns = begin_ns + _shorter(call.arrived_ns - call.begin_ns, call.before_ns + call.sending_ns)
    found = [(call.begin_ns, begin_ns), (call.arrived_ns, arrived_ns)]
    if call.heard_ns is not None:
        heard_ns = begin_ns + _shorter(call.heard_ns - call.begin_ns, call.before_ns)
        found.append((call.heard_ns, heard_ns if call.heard_ns > call.arrived_ns else min(heard_ns, arrived_ns)))
    return found


def _play_calls(call: Call, server: _Server, quorum: int | None) -> None:
    """Play the calls that a server made for a request, event by event in the order in which these were."""
    begins: dict[int, int] = {}
    bodies: dict[int, int] = {}
    for order, place, at_ns in _events(call.calls):
        each = call.calls[place]
        if order == 0:
            begins[place] = server.ready_amid(at_ns, quorum, call.work_ratio)
        elif order == 1:
            server.continued.append((at_ns, begins[place] + _shorter(at_ns - each.begin_ns, each.before_ns)))
        elif order == 2 and each.continue_ns is not None:
            bodies[place] = server.ready_amid(at_ns, quorum, call.work_ratio, with_continued=True)
        elif order == 3:
            server.end(each, _end(each, begins[place], quorum, bodies.get(place)))


def _events(calls: Sequence[Call]) -> list[tuple[int, int, int]]:
    """Which event of which call was when, by time; those of a call in their order, also if clocks are off."""
    found = []
    for place, call in enumerate(calls):
        after_ns = call.begin_ns
        for order, at_ns in enumerate((call.begin_ns, call.continue_ns, call.body_ns, call.end_ns)):
            if at_ns is not None:
                after_ns = max(after_ns, at_ns)
                found.append((after_ns, order, place, at_ns))
    return [event[1:] for event in sorted(found)]


def _groups(call: Call) -> dict[int, list[Call]]:
    return {id(each): group for group in fan_outs(call) for each in group}


def _send(call: Call, server: _Server, answered_ns: int) -> int:
    """When the last of an answer arrives whose first byte leaves at `answered_ns`. What a change takes out of sending
    and is more than that lasted lies on the way: the last packet was lost."""
    assert call.answered_ns is not None
    last_ns = call.answered_ns if call.sent_ns is None else max(call.sent_ns, call.answered_ns)
    streamed = [
        (each, now) for each, now in server.ended if each.is_critical and call.answered_ns < each.end_ns <= last_ns
    ]
    gap_ns = last_ns - max([call.answered_ns, *(each.end_ns for each, _ in streamed)])
    sent_ns = max([answered_ns, *(now for _, now in streamed)]) + _shorter(gap_ns, call.within_ns)
    rest_ns = max(0, call.within_ns - gap_ns)
    return sent_ns + _shorter(call.end_ns - last_ns, call.after_ns + rest_ns)


def _shorter(stretch_ns: int, taken_ns: int) -> int:
    """A stretch without what is taken out of it: not less than nothing, unless clocks that are off made it so."""
    return stretch_ns - min(taken_ns, max(stretch_ns, 0))


Ratio = Callable[[Call], float | None]
"""By what the server's own time of a call is multiplied; None where that cannot be said."""


def quantile_ratio(calls: Sequence[Call], slow: str, fast: str, fewest: int) -> Ratio:
    """Makes a server's own times those of another one: each becomes the one at the same rank among the other's calls
    of the same kind. None where that has answered fewer than `fewest` of the kind."""
    mine, other = (_own_times(calls, host) for host in (slow, fast))

    def ratio(call: Call) -> float | None:
        theirs = other.get(call.kind, [])
        if len(theirs) < fewest:
            return None
        ours = mine[call.kind]
        rank = bisect_left(ours, call.own_ns) / max(len(ours) - 1, 1)
        return theirs[round(rank * (len(theirs) - 1))] / call.own_ns if call.own_ns else 1.0

    return ratio


def _own_times(calls: Sequence[Call], host: str) -> dict[tuple[str, str, str], list[int]]:
    """The own times of a server by kind, ascending."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for call in calls:
        if call.server_host == host and call.is_seen_at_server:
            found.setdefault(call.kind, []).append(call.own_ns)
    return {kind: sorted(times) for kind, times in found.items()}
