"""A simulated system of services that call each other, as exchanges with their true parents.

Clients ask the first service, each again as soon as it was answered (a closed loop). A service is a `loop` (one thing
at a time, in order of arrival, as an asynchronous server does), or takes what waits at random (one thing at a time too,
as threads do that share a processor), or has threads (all at once, each for its own random time), which may `stall`:
nothing goes on for a while, and then all that was due. Handling a request is steps of work, each followed by calls made
at once; when all are answered, or `quorum` of them, it goes on. Each call has a connection of its own, or, if these are
`kept`, one of its service's that is free. A service that joins answers each call at once, and does its steps when the
last call of one client's request has come. Every draw comes from one seed. Times in ns; the network takes a fixed time.
"""

import heapq
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from testkit.tables import BASE_NS, table

NETWORK_NS = 50_000
CONNECT_NS = 2 * NETWORK_NS
ACCEPT_NS = 20_000
"""How long it takes to answer a call whose work is done later."""
WAKING_NS = 100_000
"""What is due goes on so long after a stall, on average."""


@dataclass(frozen=True)
class Step:
    """Work of a mean time, then calls: one of each of `calls`, `share` of the times, until `quorum` are answered."""

    work_ns: int
    calls: tuple[str, ...] = ()
    share: float = 1.0
    quorum: int = 0
    again_share: float = 0.0  # how often one of the calls is made again, as a retry


@dataclass(frozen=True)
class Service:
    """`hosts` serve by turns. A body of the request's size is handed down if `passes_body`."""

    hosts: tuple[str, ...]
    steps: tuple[Step, ...]
    loop: bool = True
    at_random: bool = False
    stalls: tuple[int, int] | None = None  # of threads: how long they run, and how long they do not, on average
    passes_body: bool = False
    joins: int = 0  # so many calls of one client's request; 0: each call is served by itself
    answers_last: bool = False  # of those that it joins it answers the last when its steps are done


@dataclass
class Made:
    """A simulated exchange; its times are filled in as the simulation proceeds."""

    number: int
    parent: int | None
    client_host: str
    server_host: str
    service: str
    connection: int
    request_bytes: int
    response_bytes: int
    connect_ns: int = 0
    sent_ns: int = 0
    received_ns: int = 0
    answered_ns: int = 0
    done_ns: int = 0


@dataclass
class _Loop:
    """One thread of a service on a host: work waits for what came before it."""

    free_ns: int = 0
    is_busy: bool = False
    waiting: list[tuple[int, Callable[[], None]]] = field(default_factory=list)


@dataclass
class Simulation:
    """`run` gives the exchanges' table and, by `exchange_id`, the true parent."""

    services: dict[str, Service]
    seed: int = 1
    body_bytes: tuple[int, int] = (1000, 1000)
    kept: bool = False
    made: list[Made] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._loops: dict[tuple[str, str], _Loop] = {}
        self._free: dict[tuple[str, ...], list[int]] = {}
        self._joined: dict[tuple[str, int], int] = {}
        self._stalls: dict[tuple[str, str], list[int]] = {}

    def run(self, first: str, clients: int, count: int) -> tuple[pa.Table, dict[int, int]]:
        """Requests of so many clients at once until `count` were made."""
        left = count

        def again(connection: int) -> None:
            nonlocal left
            if left > 0:
                left -= 1
                self._call("client", first, None, connection, lambda: again(connection), self._body())

        for client in range(clients):
            self._at(self._random.randrange(1_000_000), partial(again, client + 1))
        while self._queue:
            self._now, _, action = heapq.heappop(self._queue)
            action()
        truth = {made.number: made.parent for made in self.made if made.parent is not None}
        return table("exchanges", [_row(made) for made in self.made]), truth

    def _body(self) -> int:
        return self._random.randint(*self.body_bytes)

    def _at(self, time_ns: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (time_ns, self._order, action))

    def _call(
        self,
        host: str,
        service: str,
        parent: int | None,
        connection: int | None,
        done: Callable[[], None],
        body: int,
        caller: str = "",
    ) -> None:
        number = len(self.made) + 1
        server = self._random.choice(self.services[service].hosts)
        if self.kept and connection is None:
            free = self._free.setdefault((host, caller, server, service), [])
            connection, answered = free.pop() if free else None, done

            def return_connection() -> None:
                free.append(made.connection)
                answered()

            done = return_connection

        fresh = connection is None
        made = Made(number, parent, host, server, service, connection or 1_000_000 + number, 200 + body, 300)
        self.made.append(made)
        made.connect_ns = self._now if fresh else 0
        made.sent_ns = self._now + (CONNECT_NS if fresh else 0)
        made.received_ns = made.sent_ns + NETWORK_NS
        self._at(made.received_ns, lambda: self._serve(made, done, body))

    def _serve(self, made: Made, done: Callable[[], None], body: int) -> None:
        service = self.services[made.service]
        steps = iter(service.steps)

        def answer() -> None:
            made.answered_ns = self._now
            made.done_ns = self._now + NETWORK_NS
            self._at(made.done_ns, done)

        if service.joins:
            key = made.service, self._root(made)
            self._joined[key] = self._joined.get(key, 0) + 1
            is_last = self._joined[key] == service.joins
            if not (is_last and service.answers_last):
                self._at(self._now + ACCEPT_NS, answer)
            if not is_last:
                return

        def go_on() -> None:
            step = next(steps, None)
            if step is None:
                if not service.joins or service.answers_last:
                    answer()
            else:
                self._work(made, service, step.work_ns, lambda: self._calls(made, step, go_on, body))

        go_on()

    def _root(self, made: Made) -> int:
        while made.parent is not None:
            made = self.made[made.parent - 1]
        return made.number

    def _work(self, made: Made, service: Service, mean_ns: int, then: Callable[[], None]) -> None:
        takes = round(self._random.expovariate(1 / mean_ns)) + mean_ns // 4
        if service.at_random:
            loop = self._loops.setdefault((made.server_host, made.service), _Loop())
            loop.waiting.append((takes, then))
            if not loop.is_busy:
                self._take_any(loop)
            return
        begins = self._now
        if service.loop:
            loop = self._loops.setdefault((made.server_host, made.service), _Loop())
            begins = max(begins, loop.free_ns)
            loop.free_ns = begins + takes
        ends = begins + takes
        if service.stalls:
            ends = self._resumed_ns(made, service.stalls, self._resumed_ns(made, service.stalls, begins) + takes)
        self._at(ends, then)

    def _resumed_ns(self, made: Made, stalls: tuple[int, int], due_ns: int) -> int:
        """When what is due then goes on: at once, or a little after the end of a stall."""
        turns = self._stalls.setdefault((made.server_host, made.service), [0])
        while turns[-1] <= due_ns:  # ends of running, stalled, running …
            turns.append(turns[-1] + round(self._random.expovariate(1 / stalls[(len(turns) - 1) % 2])))
        after = bisect_right(turns, due_ns)
        is_stalled = after % 2 == 0
        return turns[after] + round(self._random.expovariate(1 / WAKING_NS)) if is_stalled else due_ns

    def _take_any(self, loop: _Loop) -> None:
        loop.is_busy = bool(loop.waiting)
        if loop.waiting:
            takes, then = loop.waiting.pop(self._random.randrange(len(loop.waiting)))

            def end() -> None:
                then()
                self._take_any(loop)

            self._at(self._now + takes, end)

    def _calls(self, made: Made, step: Step, go_on: Callable[[], None], body: int) -> None:
        calls = list(step.calls) if self._random.random() < step.share else []
        if calls and self._random.random() < step.again_share:
            calls.append(calls[-1])
        wanted = min(step.quorum or len(calls), len(calls))
        answered = 0

        def one() -> None:
            nonlocal answered
            answered += 1
            if answered == wanted:
                go_on()

        if not calls:
            go_on()
        for call in calls:
            handed = body if self.services[made.service].passes_body else 0
            self._call(made.server_host, call, made.number, None, one, handed, caller=made.service)


def _row(made: Made) -> dict[str, object]:
    return {
        "exchange_id": made.number,
        "connection_id": made.connection,
        "client_host": made.client_host,
        "server_host": made.server_host,
        "service": made.service,
        "request_bytes": made.request_bytes,
        "response_bytes": made.response_bytes,
        "protocol": "unknown",
        "complete": True,
        "connect_start_trace_ns": BASE_NS + made.connect_ns if made.connect_ns else None,
        **dict(_times(made)),
    }


def _times(made: Made) -> Iterator[tuple[str, int]]:
    for part in ("first", "last"):
        yield f"request_{part}_sent_trace_ns", BASE_NS + made.sent_ns
        yield f"request_{part}_received_trace_ns", BASE_NS + made.received_ns
        yield f"response_{part}_sent_trace_ns", BASE_NS + made.answered_ns
        yield f"response_{part}_received_trace_ns", BASE_NS + made.done_ns
