"""A worker: runs operations over one connection, with retries; each attempt is recorded as a row. An operation of
several requests may use more connections (`storage_cluster.bench.run.parts`).

Retries are ssbench's: at once, except 10 ms after a connection that could not be made; never more than the work allows;
only where trying again may help. A new token is fetched when one has expired, retry or not.
"""

import asyncio
import dataclasses
import functools
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from storage_cluster.bench.engine.connection import Connection, Reply, Timeouts
from storage_cluster.bench.engine.limits import Allowance
from storage_cluster.bench.model import Kind, Operation, Work
from storage_cluster.bench.results.recorder import Recorder
from storage_cluster.bench.results.rows import Row
from storage_cluster.bench.run.orders import Draw, DrawFromPopulation, Place, Shared
from storage_cluster.bench.run.parts import RECONNECT_DELAY_S, PartsSender
from storage_cluster.bench.run.pause import Pause
from storage_cluster.bench.run.schedule import Plan
from storage_cluster.bench.storage import Order, StepError, Storage

_OPS = {
    Kind.READ: "GET",
    Kind.HEAD: "HEAD",
    Kind.LIST: "LIST",
    Kind.DELETE: "DELETE",
    Kind.CLEANUP: "DELETE",
    Kind.DISPOSE: "DELETE",
}


@dataclasses.dataclass
class Window:
    """The time in which a work's operations are counted, on the monotonic clock in ns."""

    begin: int = 0
    end: int | None = None  # None: no end
    by_due: bool = False  # open loop: what was due within, however late it was done
    pause: Pause = dataclasses.field(default_factory=Pause)  # which is no part of that time

    def measures(self, due: int, done: int) -> bool:
        """Whether an operation is counted."""
        due -= self.pause.before_ns(due)
        if due < self.begin:
            return False
        done -= self.pause.before_ns(done)
        return self.end is None or (due < self.end if self.by_due else done <= self.end)


@dataclasses.dataclass
class Bench:
    """State that the workers of a work share."""

    stage: str
    work: Work
    storage: Storage
    recorder: Recorder
    shared: Shared
    seed: int = 1
    timeouts: Timeouts = dataclasses.field(default_factory=Timeouts)
    window: Window = dataclasses.field(default_factory=Window)
    pause: Pause = dataclasses.field(default_factory=Pause)
    plan: Plan | None = None  # of a schedule
    stopping: bool = False  # called off: no new operations
    indices: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    allowance: Allowance = dataclasses.field(default_factory=lambda: Allowance(0))

    def connection(self) -> Connection:
        """A connection that will be made when it is needed."""
        return Connection(
            self.storage.endpoint, self.timeouts, keep_alive=self.work.keep_alive, allowance=self.allowance
        )


class Source(Protocol):
    """The source of a worker's orders for one operation."""

    def next(self) -> Order | None:
        """The next order; None if there is no object for it."""

    def note_outcome(self, order: Order, succeeded: bool) -> None:
        """Note the outcome of an order."""


class Worker:
    """One of a work's workers."""

    def __init__(self, bench: Bench, place: Place) -> None:
        self._bench = bench
        self._place = place
        self._rng = random.Random(f"{bench.seed}/{bench.stage}/{bench.work.name}/{place.index}")
        self._connection = bench.connection()
        self._more: list[Connection] = []
        self._mix = bench.plan or _Mix(bench.work.operations, place, self._rng, bench.shared)

    @property
    def place(self) -> Place:
        """The worker's index."""
        return self._place

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._connection, *self._more):
            connection.close()

    async def draw(self, due: int) -> tuple[bool, int]:
        """Do one operation of the mix, due at that time (monotonic, ns): whether it went well, and bytes moved."""
        operation, source, order = self._mix.next()
        succeeded, moved_bytes = await self.do(order, operation.title, due)
        source.note_outcome(order, succeeded)
        return succeeded, moved_bytes

    async def do(self, order: Order, title: str, due: int) -> tuple[bool, int]:
        """Do one order with all its retries: whether it went well in the end, and bytes moved."""
        bench = self._bench
        if bench.storage.has_parts(order):
            return await self._transfer(order, title, due)
        index = next(bench.indices)
        request = bench.storage.request(order, keep_alive=bench.work.keep_alive)
        hashed = order.hash_check and order.kind is Kind.READ
        unconnected = 0
        for attempt in itertools.count(1):
            try:
                reply = await self._connection.exchange(request.head, request.body, hashed=hashed)
            except asyncio.CancelledError:
                self._record(order, title, index, attempt, self._connection.reply, "cancelled", due, final=True)
                raise
            error = bench.storage.fault(order, reply)
            unconnected = unconnected + 1 if error.startswith("connect") else 0
            given_up = attempt > bench.work.retries_max or (0 < bench.work.connects_max <= unconnected)
            final = not error or given_up or not bench.storage.may_retry(order, reply)
            moved_bytes = request.body_len or reply.body_len
            self._record(order, title, index, attempt, reply, error, due, final=final, moved_bytes=moved_bytes)
            if reply.status == 401:
                await bench.storage.renew(request)
            if final:
                return not error, moved_bytes
            request = bench.storage.request(order, keep_alive=bench.work.keep_alive)
            if error.startswith("connect"):
                await asyncio.sleep(RECONNECT_DELAY_S)
        raise AssertionError("attempts never run out")

    async def _transfer(self, order: Order, title: str, due: int) -> tuple[bool, int]:
        """The same of an order of several requests: a row for each attempt at each of them, and one for all."""
        bench = self._bench
        index = next(bench.indices)
        note = functools.partial(self._record, order, title, index, due=due)
        sender = PartsSender(bench, order, self._connections(), note)
        error, moved_bytes = "cancelled", 0
        try:
            moved_bytes = await bench.storage.transfer(order, sender.send, keep_alive=bench.work.keep_alive)
            error = ""
        except StepError as failure:
            error = failure.error
        finally:
            reply = sender.summary(error, is_read=order.kind is Kind.READ)
            note(1, reply, error, final=True, moved_bytes=moved_bytes)
        return not error, moved_bytes

    def _connections(self) -> list[Connection]:
        """The worker's own connection, and as many more as an order may need."""
        while len(self._more) < self._bench.storage.connections_max - 1:
            self._more.append(self._bench.connection())
        return [self._connection, *self._more]

    def give_up(self, due: int) -> None:
        """Note an operation that was due and never begun."""
        operation, _, order = self._mix.next()
        reply = Reply()
        reply.start_ns, reply.started = time.time_ns(), time.perf_counter_ns()
        reply.end_ns = -1
        self._record(order, operation.title, next(self._bench.indices), 1, reply, "cancelled", due, final=True)

    def _record(
        self,
        order: Order,
        title: str,
        index: int,
        attempt: int,
        reply: Reply,
        error: str,
        due: int,
        *,
        final: bool,
        moved_bytes: int = 0,
        request: int = 0,
    ) -> None:
        bench = self._bench
        bench.recorder.add(
            Row(
                index,
                self._place.index,
                _OPS.get(order.kind, "PUT"),
                bench.recorder.client_id,
                moved_bytes,
                bench.storage.endpoint.text,
                order.path,
                error,
                reply.start_ns,
                reply.first_byte_ns,
                reply.end_ns,
                bench.stage,
                bench.work.name,
                title if order.kind is not Kind.INIT else str(Kind.INIT),
                reply.status,
                attempt,
                final,
                not request and bench.window.measures(due, reply.started + max(reply.end_ns, 0)),
                max(reply.started - due, 0),
                reply.connect_ns,
                reply.transaction_id,
                reply.local_port,
                request,
            ),
            bench.work.interval_s,
        )


class _Mix:
    """Operations by their ratios."""

    def __init__(self, operations: Sequence[Operation], place: Place, rng: random.Random, shared: Shared) -> None:
        self._rng = rng
        self._sources: list[tuple[Operation, Source]] = [
            (operation, (DrawFromPopulation if operation.population else Draw)(operation, place, rng, shared))
            for operation in operations
            if operation.kind in (Kind.READ, Kind.WRITE, Kind.DELETE, Kind.LIST)
        ]
        self._weights = list(itertools.accumulate(operation.ratio for operation, _ in self._sources))

    def next(self) -> tuple[Operation, Source, Order]:
        """The next order; if an operation finds no object, another is chosen, preferably one that creates objects."""
        operation, source = self._choose()
        order = source.next()
        if order is not None:
            return operation, source, order
        for operation, source in sorted(self._sources, key=lambda pair: pair[0].kind is not Kind.WRITE):
            order = source.next()
            if order is not None:
                return operation, source, order
        raise AssertionError("parsers see to it that a mix that only reads has objects to read")

    def _choose(self) -> tuple[Operation, Source]:
        if len(self._sources) == 1:
            return self._sources[0]
        return self._rng.choices(self._sources, cum_weights=self._weights)[0]
