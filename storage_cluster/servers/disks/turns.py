"""Whose turn it is: shares a device's time among the accesses that wait for it.

    reserved accesses ─▶ a queue each ─┐   due: what was reserved and not given yet comes first
    all other requests ─▶ one queue ───┴─▶ the rest of the time is shared, each queue alike

Theory. As in mClock, each reserved access has a tag, the moment at which its next transfer is due: a transfer that is
given because it was due moves the tag on by its bytes over the reserved rate. Among those that are due the earliest
goes first (earliest deadline first), so as long as the reserved rates fit into the device, each is late by one transfer
of another at most. Only if none is due the rest is shared: by start-time fair queueing with equal weights, and what an
access gets then does not count against what it reserved. So each gets at least its rate, and no time is left unused.

An access that had nothing to ask for owes nothing and is owed nothing, but for `CREDIT_S`: a client needs a moment
between one transfer and the next. A turn goes on with the same access while no other one is due, for a slice at most,
and unless it is a slice ahead of the others with the rest: a disk need not seek then.

Invariants: a transfer is given once, or removed; of one access they are given in order; while any waits, one is given.

Source: Gulati, Merchant, Varman, "mClock: Handling Throughput Variability for Hypervisor IO Scheduling", OSDI 2010;
Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996. Departures: tags belong to accesses, not to single
requests; there are no limits.
"""

import collections
import dataclasses
from typing import Generic, TypeVar

CREDIT_S = 0.25
"""For so much of its rate an access that paused may catch up."""
SHARED = ""
"""The queue of all requests without a reservation …"""
SMALL = "small"
"""… but for their small transfers: whether a bucket is there, say, which those with a reservation wait for, too."""

T = TypeVar("T")


@dataclasses.dataclass
class Waiting(Generic[T]):
    """A transfer that waits for its turn."""

    work: T
    size_bytes: int
    since_s: float


@dataclasses.dataclass
class _Queue(Generic[T]):
    """The transfers of one access that wait."""

    key: str
    rate: float = 0.0  # bytes per second; 0: nothing is reserved
    due_s: float = 0.0
    served: float = 0.0  # of the rest of the time, on the scale of `Turns._virtual`
    waiting: collections.deque[Waiting[T]] = dataclasses.field(default_factory=collections.deque)

    def is_due(self, now_s: float) -> bool:
        return self.rate > 0 and self.due_s <= now_s


class Turns(Generic[T]):
    """The queues of one device. Times are in seconds of any clock that does not step back."""

    def __init__(self, slice_bytes: int) -> None:
        self._slice_bytes = slice_bytes
        self._queues: dict[str, _Queue[T]] = {}
        self._current: _Queue[T] | None = None
        self._turn_bytes = 0
        self._virtual = 0.0

    def __bool__(self) -> bool:
        """Whether a transfer waits."""
        return any(queue.waiting for queue in self._queues.values())

    def add(self, key: str, rate: float, work: T, size_bytes: int, now_s: float) -> Waiting[T]:
        """Queue a transfer of an access (or `SHARED`) whose rate is reserved."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key, due_s=now_s, served=self._virtual)
        queue.rate = rate
        if not queue.waiting:
            queue.due_s = max(queue.due_s, now_s - CREDIT_S)
            queue.served = max(queue.served, self._virtual)
        waiting = Waiting(work, size_bytes, now_s)
        queue.waiting.append(waiting)
        return waiting

    def remove(self, key: str, waiting: Waiting[T]) -> None:
        """Forget a transfer that nobody waits for any more."""
        queue = self._queues.get(key)
        if queue is not None and waiting in queue.waiting:
            queue.waiting.remove(waiting)

    def take(self, now_s: float) -> tuple[str, Waiting[T]] | None:
        """The access and the transfer whose turn it is; None if none waits."""
        queue = self._choose(now_s)
        if queue is None:
            return None
        given = queue.waiting.popleft()
        self._charge(queue, given.size_bytes, now_s)
        return queue.key, given

    def forget_idle(self, now_s: float) -> None:
        """Forget the accesses that have asked for nothing in a while."""
        for key in [key for key, queue in self._queues.items() if not queue.waiting and queue.due_s < now_s - CREDIT_S]:
            del self._queues[key]

    def _choose(self, now_s: float) -> _Queue[T] | None:
        asking = [queue for queue in self._queues.values() if queue.waiting]
        if not asking:
            return None
        due = [queue for queue in asking if queue.is_due(now_s)]
        current = self._current
        last = min(asking, key=lambda queue: queue.served)
        if current is not None and current.waiting and all(queue is current for queue in due):
            is_ahead = current.served - last.served >= self._slice_bytes
            if self._turn_bytes < self._slice_bytes and not is_ahead:
                return current
        return min(due, key=lambda queue: queue.due_s) if due else last

    def _charge(self, queue: _Queue[T], size_bytes: int, now_s: float) -> None:
        if queue is not self._current:
            self._current, self._turn_bytes = queue, 0
        self._turn_bytes += size_bytes
        if queue.is_due(now_s):
            queue.due_s += size_bytes / queue.rate
        else:
            self._virtual = max(self._virtual, queue.served)
            queue.served += size_bytes
