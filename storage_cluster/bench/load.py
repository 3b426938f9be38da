"""The load: workers that each do one operation after the other (closed loop) until all are done.

Objects are `object-000000`, `object-000001`, … with content drawn from their number, so that a later run knows what a
`get` must find. `put` writes them; `get` reads them, after putting those that the store does not have.
"""

import asyncio
import json
import random
import time
from collections.abc import Iterator

from storage_cluster.bench.client import Access, Credentials, Order, Worker, authenticate
from storage_cluster.bench.results import Plan, RequestRow, Summary, summarize
from storage_cluster.errors import NotRunningError

RETRY_DELAY_S = 0.05
_LISTING_LIMIT = 10_000


async def run(plan: Plan, credentials: Credentials) -> tuple[Summary, list[RequestRow]]:
    """Do what the plan says. Raises: NotRunningError if the store cannot be used at all."""
    access = await authenticate(credentials)
    orders = [_order(plan, index) for index in range(plan.count)]
    await _prepare(plan, access, orders)
    start = time.perf_counter_ns()
    rows = await _all(access, plan, orders)
    return summarize(plan, rows, time.perf_counter_ns() - start), rows


def content(index: int, size_bytes: int) -> bytes:
    """The bytes of the object with that number."""
    return random.Random(index).randbytes(size_bytes)


def _order(plan: Plan, index: int, operation: str | None = None) -> Order:
    body = content(index, plan.size_bytes)
    return Order(operation or plan.operation, index, plan.container, f"object-{index:06d}", body)


async def _prepare(plan: Plan, access: Access, orders: list[Order]) -> None:
    worker = Worker(access)
    try:
        status, _ = await worker.call("PUT", plan.container)
        if status // 100 != 2:
            raise NotRunningError(f"the container {plan.container} cannot be made (status {status})", "see its logs")
        if plan.operation != "get":
            return
        held = await _held(worker, plan.container)
    finally:
        await worker.close()
    missing = [_order(plan, o.index, "put") for o in orders if held.get(o.object) != plan.size_bytes]
    failed = [row for row in await _all(access, plan, missing) if row.error]
    if failed:
        raise NotRunningError(
            f"{len(failed)} of the objects to read could not be put ({failed[0].error})", "see the logs"
        )


async def _held(worker: Worker, container: str) -> dict[str, int]:
    """Name and size of each object in a container."""
    held: dict[str, int] = {}
    marker = ""
    while True:
        query = f"?format=json&limit={_LISTING_LIMIT}&marker={marker}"
        _, body = await worker.call("GET", container, query)
        page = json.loads(body or b"[]")
        held |= {entry["name"]: entry["bytes"] for entry in page}
        if len(page) < _LISTING_LIMIT:
            return held
        marker = page[-1]["name"]


async def _all(access: Access, plan: Plan, orders: list[Order]) -> list[RequestRow]:
    rows: list[RequestRow] = []
    waiting = iter(orders)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(plan.concurrency, len(orders))):
            group.create_task(_work(access, plan.retries_max, waiting, rows))
    return rows


async def _work(access: Access, retries_max: int, waiting: Iterator[Order], rows: list[RequestRow]) -> None:
    worker = Worker(access)
    try:
        for order in waiting:
            for attempt in range(1, retries_max + 2):
                row = await worker.attempt(order, attempt)
                rows.append(row)
                if not row.error:
                    break
                await asyncio.sleep(RETRY_DELAY_S)
    finally:
        await worker.close()
