"""Runs a work: its workers, in a closed or an open loop, until its limit.

Closed loop: each worker does one operation after the other, so the load gives way when the store is slow. Open loop:
operations are due at times that do not depend on the store; one that finds all workers busy waits its turn, and its
response time counts from when it was due.

When time is up, operations under way have `GRACE_S` to end; they are not counted (closed loop) or counted as what they
were (open loop). What never began is a row, too: an error `cancelled`.
"""

import asyncio
import dataclasses
import itertools
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

from storage_cluster.bench.engine.timer import Timer
from storage_cluster.bench.model import Kind, OpenLoop, Work
from storage_cluster.bench.run.arrivals import Ramp, arrivals
from storage_cluster.bench.run.orders import Place, scan
from storage_cluster.bench.run.pause import Pause
from storage_cluster.bench.run.schedule import Plan
from storage_cluster.bench.run.worker import Bench, Window, Worker
from storage_cluster.bench.storage import Order

GRACE_S = 30.0
_RAMP_CHECK_S = 0.05
_PAUSE_CHECK_S = 0.05
_NS = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class Share:
    """The part of a work that this process runs: workers from `first` on.

    For a part taken over from another driver: it began `elapsed_s` ago, and so many operations and bytes remain.
    """

    first: int
    count: int
    total: int
    ops_left: int | None = None  # None: all that such a share has to do
    bytes_left: int | None = None
    elapsed_s: float = 0.0

    def ops(self, work: Work) -> int:
        """Operations to do, if the work is limited by their number."""
        return _part(work.total_ops, self) if self.ops_left is None else self.ops_left

    def bytes(self, work: Work) -> int:
        """Bytes to move, if the work is limited by bytes."""
        return _part(work.total_bytes, self) if self.bytes_left is None else self.bytes_left

    @property
    def fraction(self) -> float:
        """This part as a fraction of the whole work."""
        return self.count / self.total


def whole(work: Work) -> Share:
    """The whole work as one share."""
    return Share(0, work.workers_max, work.workers_max)


class Budget:
    """The operations and bytes that remain of a work for this process's workers."""

    def __init__(self, bench: Bench, share: Share, started: int) -> None:
        work = bench.work
        self._bench = bench
        self._ops, self._bytes = share.ops(work), share.bytes(work)
        self._limited = (work.total_ops > 0, work.total_bytes > 0)
        self.stop_at = (
            started + round((work.rampup_s + work.runtime_s + work.rampdown_s) * _NS) if work.runtime_s else 0
        )

    def take(self, due: int | None = None) -> bool:
        """Whether one more operation may begin; in an open loop, one that was due then, however late it is by now."""
        now = time.perf_counter_ns() if due is None else due
        if self._bench.stopping or (self.stop_at and now - self._bench.pause.before_ns(now) >= self.stop_at):
            return False
        if (self._limited[0] and self._ops <= 0) or (self._limited[1] and self._bytes <= 0):
            return False
        self._ops -= 1
        return True

    def left_s(self) -> float | None:
        """Seconds until the end of the run time, pauses left out; None if there is none."""
        now = time.perf_counter_ns()
        return (self.stop_at + self._bench.pause.before_ns(now) - now) / _NS if self.stop_at else None

    @property
    def pause(self) -> Pause:
        """The pauses of the work."""
        return self._bench.pause

    def spend(self, moved_bytes: int) -> None:
        """Subtract bytes that were moved."""
        self._bytes -= moved_bytes


async def run_work(bench: Bench, share: Share) -> None:
    """Run this process's share of a work."""
    work = bench.work
    started = time.perf_counter_ns() - round(share.elapsed_s * _NS)
    bench.window = _window(work, started, bench.pause)
    if work.schedule:
        bench.plan = Plan(work, share.first, share.count, share.total)
    workers = [Worker(bench, Place(share.first + n, share.total)) for n in range(share.count)]
    budget = Budget(bench, share, started)
    try:
        if work.is_scan:
            await _run_all(_scan(bench, worker) for worker in workers)
        elif bench.plan is not None:
            await _play(bench.plan, workers, budget, started)
        elif work.open_loop is not None:
            await _open(bench, work.open_loop, workers, budget, share, started)
        else:
            await _until(budget, _run_all(_run_closed_loop(bench, worker, budget, started) for worker in workers))
    finally:
        for worker in workers:
            worker.close()


def _window(work: Work, started: int, pause: Pause) -> Window:
    if work.is_scan or not work.runtime_s:
        return Window(started)
    begin = started + round(work.rampup_s * _NS)
    return Window(begin, begin + round(work.runtime_s * _NS), by_due=work.open_loop is not None, pause=pause)


async def _scan(bench: Bench, worker: Worker) -> None:
    for operation in bench.work.operations:
        present: dict[str, dict[str, int]] = {}
        for order in scan(operation, worker.place, random.Random(bench.seed + worker.place.index), bench.shared):
            await bench.pause.wait()
            if bench.stopping:
                return
            succeeded = operation.skip_present and await _is_present(bench, present, order)
            if not succeeded:
                succeeded, _ = await worker.do(order, operation.title, time.perf_counter_ns())
            if succeeded and operation.population and operation.sizes:
                bench.shared.population(operation.population).objects.append((order.container, order.object))


async def _is_present(bench: Bench, present: dict[str, dict[str, int]], order: Order) -> bool:
    """Whether an object exists already, with a size that its class allows."""
    if order.kind is not Kind.PREPARE:
        return False
    if order.container not in present:
        present[order.container] = await bench.storage.present(order.container)
    held = present[order.container].get(order.object)
    return held is not None and (order.size_bytes == held or bool(bench.work.operations[0].population))


async def _run_closed_loop(bench: Bench, worker: Worker, budget: Budget, started: int) -> None:
    ramp = Ramp(bench.work.workers, bench.work.ramp) if bench.work.ramp else None
    while True:
        await bench.pause.wait()
        if ramp is not None:
            await _my_turn(ramp, worker.place.index, budget, started)
        if not budget.take():
            return
        _, moved_bytes = await worker.draw(time.perf_counter_ns())
        budget.spend(moved_bytes)


async def _my_turn(ramp: Ramp, index: int, budget: Budget, started: int) -> None:
    """Wait until the ramp includes this worker; forever if it never does again."""
    while True:
        now = time.perf_counter_ns()
        now_s = (now - budget.pause.before_ns(now) - started) / _NS
        due_s = ramp.next_at_least(index + 1, now_s)
        if due_s <= now_s or (due_s == math.inf and not budget.stop_at):
            return
        stop_s = (budget.stop_at - started) / _NS if budget.stop_at else math.inf
        if min(due_s, stop_s) <= now_s:
            return
        await asyncio.sleep(max(min(due_s, stop_s) - now_s, _RAMP_CHECK_S))


async def _play(plan: Plan, workers: list[Worker], budget: Budget, started: int) -> None:
    dispatch = Dispatch(workers, budget)
    with Timer() as timer:
        try:
            await dispatch.run(plan.due_times(started), timer.wait_until)
            await dispatch.drain()
        finally:
            await dispatch.cancel()


async def _open(
    bench: Bench, load: OpenLoop, workers: list[Worker], budget: Budget, share: Share, started: int
) -> None:
    rng = random.Random(f"{bench.seed}/{bench.stage}/{bench.work.name}/{share.first}")
    stop_at = budget.stop_at or math.inf
    offsets = arrivals(load, bench.work.ramp, rng, share.fraction)
    times = itertools.takewhile(lambda due: due < stop_at, (started + round(offset * _NS) for offset in offsets))
    now = time.perf_counter_ns() if share.elapsed_s else started  # what was due before is another's
    due_times = itertools.dropwhile(lambda due: due < now, times)
    dispatch = Dispatch(workers, budget)
    with Timer() as timer:
        try:
            await dispatch.run(due_times, timer.wait_until)
            await _until(budget, dispatch.drain())
        finally:
            await dispatch.cancel()


class Dispatch:
    """Assigns due operations to idle workers, and queues the others."""

    def __init__(self, workers: list[Worker], budget: Budget) -> None:
        self._idle = list(reversed(workers))
        self._spare = workers[0]
        self._budget = budget
        self._waiting: deque[int] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []

    async def run(self, due_times: Iterator[int], wait_until: Callable[[int], Awaitable[None]]) -> None:
        """Begin each operation when it is due and a worker is idle."""
        for planned in due_times:
            due = await self._until_due(planned, wait_until)
            if self._failures or not self._budget.take(due):
                return
            if self._idle:
                task = asyncio.create_task(self._serve(self._idle.pop(), due))
                self._tasks.add(task)
                task.add_done_callback(self._on_task_end)
            else:
                self._waiting.append(due)

    async def _until_due(self, planned: int, wait_until: Callable[[int], Awaitable[None]]) -> int:
        """Wait until an operation is due; when it was: later than planned by the pauses."""
        pause = self._budget.pause
        while True:
            await pause.wait()
            due = planned + pause.before_ns(time.perf_counter_ns())
            await wait_until(due)
            if not pause.is_held and planned + pause.before_ns(time.perf_counter_ns()) == due:
                return due

    async def drain(self) -> None:
        """Wait until all operations that began or are queued have ended; raises errors of the generator itself."""
        while self._tasks and not self._failures:
            await asyncio.wait(list(self._tasks), return_when=asyncio.FIRST_COMPLETED)
        for failure in self._failures:
            raise failure

    async def cancel(self) -> None:
        """Cancel operations under way; record those that never began."""
        tasks = list(self._tasks)
        for due in self._waiting:
            self._spare.give_up(due)
        self._waiting.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._failures.append(failure)

    async def _serve(self, worker: Worker, due: int) -> None:
        try:
            while True:
                _, moved_bytes = await worker.draw(due)
                self._budget.spend(moved_bytes)
                if not self._waiting:
                    return
                due = self._waiting.popleft()
                if self._budget.pause.is_held:
                    held = time.perf_counter_ns()
                    await self._budget.pause.wait()
                    due += time.perf_counter_ns() - held
        finally:
            self._idle.append(worker)


async def _run_all(parts: Iterator[Awaitable[None]]) -> None:
    """Run all coroutines; the first failure cancels the others and is raised unchanged."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until(budget: Budget, doing: Awaitable[None]) -> None:
    """Await `doing`, at most until the work's run time and the grace period `GRACE_S` have passed."""
    task = asyncio.ensure_future(doing)
    try:
        while not task.done():
            left_s = budget.left_s()
            if left_s is not None and left_s + GRACE_S <= 0 and not budget.pause.is_held:
                break
            timeout_s = None if left_s is None else max(left_s + GRACE_S, _PAUSE_CHECK_S)
            await asyncio.wait((task,), timeout=timeout_s)
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _part(total: int, share: Share) -> int:
    """One part of a count; all parts add up to the count."""
    return total * (share.first + share.count) // share.total - total * share.first // share.total
