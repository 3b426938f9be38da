"""Sends the requests of one operation over a worker's connections, several at once; notes every attempt, and sums up.

The operation lasts from its first request's start to its last response's end. Its first byte is that of a read's first
data, or of a write's last answer, which says that the object is there. Its transaction id and port are those of the
request that took longest, or of the one that failed: where to look first.
"""

import asyncio
import itertools
from typing import Protocol

from storage_cluster.bench.engine.connection import Connection, Reply, Timeouts
from storage_cluster.bench.model import Work
from storage_cluster.bench.storage import Order, Step, StepError, Storage

RECONNECT_DELAY_S = 0.01
"""Source: ssbench 0.3.9, `ConnectionPool.create`."""


class Note(Protocol):
    """Writes the row of an attempt."""

    def __call__(self, attempt: int, reply: Reply, error: str, *, final: bool, moved_bytes: int, request: int) -> None:
        """Write it."""


class Context(Protocol):
    """What of a work's bench is needed here."""

    storage: Storage
    work: Work
    timeouts: Timeouts


class PartsSender:
    """The requests of one operation."""

    def __init__(self, bench: Context, order: Order, connections: list[Connection], note: Note) -> None:
        self._bench = bench
        self._order = order
        self._free = connections
        self._may_send = asyncio.Semaphore(len(connections))
        self._note = note
        self._numbers = itertools.count(1)
        self._replies: list[Reply] = []
        self._failed: Reply | None = None  # the first that did

    async def send(self, step: Step) -> Reply:
        """Send a request, with its retries, as soon as a connection is free. Raises: StepError."""
        async with self._may_send:
            connection = self._free.pop(0)
            try:
                return await self._send(step, connection, next(self._numbers))
            finally:
                self._free.append(connection)

    def summary(self, error: str, *, is_read: bool) -> Reply:
        """All of them as if they were one."""
        made = Reply()
        made.error = error
        if not self._replies:
            return made
        first = min(self._replies, key=lambda reply: reply.started)
        last = max(self._replies, key=_end_time)
        shown = self._failed or max(self._replies, key=lambda reply: reply.end_ns)
        made.start_ns, made.started, made.connect_ns = first.start_ns, first.started, first.connect_ns
        made.end_ns = _end_time(last) - first.started
        answer = first if is_read else last
        if answer.first_byte_ns >= 0:
            made.first_byte_ns = answer.started + answer.first_byte_ns - first.started
        made.status = (self._failed or last).status
        made.transaction_id, made.local_port = shown.transaction_id, shown.local_port
        return made

    async def _send(self, step: Step, connection: Connection, number: int) -> Reply:
        retries_max, storage = self._bench.work.retries_max, self._bench.storage
        for attempt in itertools.count(1):
            request = step.build()
            try:
                reply = await connection.exchange(
                    request.head, request.body, hashed=step.hashed, kept=step.kept, headers_kept=step.headers_kept
                )
            except asyncio.CancelledError:
                self._add(connection.reply, "cancelled", attempt, number, 0)
                raise
            error = step.fault(reply)
            self._add(reply, error, attempt, number, request.body_len or reply.body_len)
            if not error:
                return reply
            if attempt > retries_max or not storage.may_retry(self._order, reply):
                self._failed = self._failed or reply
                raise StepError(reply, error)
            if error.startswith("connect"):
                await asyncio.sleep(RECONNECT_DELAY_S)
        raise AssertionError("attempts never run out")

    def _add(self, reply: Reply, error: str, attempt: int, number: int, moved_bytes: int) -> None:
        self._replies.append(reply)
        self._note(attempt, reply, error, final=False, moved_bytes=moved_bytes, request=number)


def _end_time(reply: Reply) -> int:
    """When it ended, on the monotonic clock."""
    return reply.started + reply.end_ns
