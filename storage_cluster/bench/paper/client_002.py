"""A client of document 002: `python -m storage_cluster.bench.paper.client_002 < ORDER.json`, on a client's host.

Reserves what it is to reserve, waits for the common start, moves one object up or down over and over with so many
streams, and prints as JSON how long each took and how many bytes moved in each tenth of a second. The requests are
those of the load generator (`bench/storage/s3_transfers.py`), with an MD5 of each part.

A client that moves objects for a time has as many of them under way as it has streams, and leaves off at the end of the
time: so each stream has always a request to go on with, also while an object is begun or completed by a single one.
"""

import asyncio
import collections
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import uvloop

from storage_cluster import book_api
from storage_cluster.bench.engine import bodies
from storage_cluster.bench.engine.connection import Connection, Endpoint, Reply, Timeouts
from storage_cluster.bench.model import Kind
from storage_cluster.bench.storage.protocol import Order, Step, StepError
from storage_cluster.bench.storage.s3 import S3
from storage_cluster.bench.storage.s3_options import S3Options
from storage_cluster.s3.signatures import Credentials
from storage_cluster.servers.reservations.claims import format_time

BUCKET_S = 0.1
"""Bytes are counted by such spans."""
READ, WRITE = "read", "write"


@dataclasses.dataclass(frozen=True)
class Job:
    """What a client is to do."""

    name: str
    direction: str
    bucket: str
    key: str
    size_bytes: int
    gateway_url: str
    book_url: str = ""
    streams: int = 0  # 0: one request for the whole object
    part_bytes: int = 0
    reserve_mb_per_s: float = 0.0  # 0: without a reservation
    start_s: float = 0.0  # of the wall clock
    seconds: float = 0.0  # 0: `times`
    times: int = 1
    reserve_for_s: float = 600.0
    makes_bucket: bool = False
    goes_on: bool = False  # after a request that failed
    access_key: str = "test:tester"
    secret_key: str = "testing"


@dataclasses.dataclass
class Outcome:
    """What came of it."""

    name: str
    reserved_mb_per_s: float = 0.0
    access_id: str = ""
    rates: dict[str, int] = dataclasses.field(default_factory=dict)
    is_spread: bool = False
    began_s: float = 0.0
    ended_s: float = 0.0
    transfers_s: list[float] = dataclasses.field(default_factory=list)
    """Duration of each whole object."""
    moved: dict[int, int] = dataclasses.field(default_factory=dict)
    """Number of a tenth of a second since `began_s` to the bytes in it."""
    failures_count: int = 0
    error: str = ""


class CountedConnection(Connection):
    """A connection that counts bytes of bodies as they move."""

    def __init__(self, endpoint: Endpoint, count: "collections.Counter[int]", began_s: float) -> None:
        super().__init__(endpoint, Timeouts(10.0, 120.0))
        self._count = count
        self._began_s = began_s

    def on_body(self, body: bytes) -> None:
        """A part of the response's body."""
        super().on_body(body)
        self._note(len(body))

    def _consume(self, sent: int) -> None:
        super()._consume(sent)
        self._note(sent)

    def _note(self, moved_bytes: int) -> None:
        self._count[int((time.time() - self._began_s) / BUCKET_S)] += moved_bytes


class Client:
    """Does a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._outcome = Outcome(job.name, job.reserve_mb_per_s)
        self._count: collections.Counter[int] = collections.Counter()
        self._idle: asyncio.LifoQueue[CountedConnection] = asyncio.LifoQueue()
        self._begun_count = 0

    async def run(self) -> Outcome:
        """Do it; what went wrong is in the outcome."""
        outcome, job = self._outcome, self._job
        try:
            if job.makes_bucket:
                await self._make_bucket()
            if job.reserve_mb_per_s:
                self._reserve()
            await asyncio.sleep(max(0.0, job.start_s - time.time()))
            outcome.began_s = time.time()
            await self._move_all()
        except StepError as error:
            outcome.error = f"{error}: {error.reply.status} {error.reply.body[:300].decode('utf-8', 'replace')}"
        except book_api.BookError as error:
            outcome.error = error.what
        outcome.ended_s = time.time()
        while not self._idle.empty():
            self._idle.get_nowait().close()
        if outcome.access_id:
            path = f"/v1/accesses/{outcome.access_id}"
            book_api.ask(job.book_url, Credentials(job.access_key, job.secret_key), "DELETE", path)
        outcome.moved = dict(self._count)
        return outcome

    async def _make_bucket(self) -> None:
        store = S3(S3Options(self._job.gateway_url, Credentials(self._job.access_key, self._job.secret_key)))
        self._idle.put_nowait(CountedConnection(store.endpoint, collections.Counter(), 0.0))
        order = Order(Kind.INIT, self._job.bucket)
        await self._send(Step(lambda: store.request(order), lambda reply: store.fault(order, reply)))
        (await self._idle.get()).close()

    def _reserve(self) -> None:
        job, now_s = self._job, time.time()
        fields = {"bucket": job.bucket, "direction": job.direction, "mb_per_s": job.reserve_mb_per_s}
        fields |= {"key": job.key} if job.direction == READ else {}
        fields |= {"end": format_time(max(now_s, job.start_s) + job.reserve_for_s)}
        made = book_api.ask(job.book_url, Credentials(job.access_key, job.secret_key), "POST", "/v1/accesses", fields)
        outcome = self._outcome
        outcome.access_id, outcome.rates, outcome.is_spread = made["id"], made["rates"], made["is_spread"]

    async def _move_all(self) -> None:
        job, outcome = self._job, self._outcome
        credentials = Credentials(job.access_key, job.secret_key)
        part_bytes = job.part_bytes if job.streams else 0
        options = S3Options(
            job.gateway_url, credentials, part_size_bytes=part_bytes, parallel_parts=max(1, job.streams),
            access_id=outcome.access_id,
        )  # fmt: skip
        store = S3(options)
        for _ in range(max(1, job.streams)):
            self._idle.put_nowait(CountedConnection(store.endpoint, self._count, outcome.began_s))
        if job.seconds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(job.seconds):
                    await asyncio.gather(*(self._move_on(store) for _ in range(max(1, job.streams))))
        for _ in range(0 if job.seconds else job.times):
            await self._move_one(store)

    async def _move_on(self, store: S3) -> None:
        """Move one object after the other."""
        while True:
            try:
                await self._move_one(store)
            except StepError:
                if not self._job.goes_on:
                    raise
                self._outcome.failures_count += 1

    async def _move_one(self, store: S3) -> None:
        begun_s, number = time.time(), self._begun_count
        self._begun_count += 1
        await self._transfer(store, number)
        self._outcome.transfers_s.append(time.time() - begun_s)

    async def _transfer(self, store: S3, number: int) -> None:
        job = self._job
        if job.direction == READ:
            order = Order(Kind.READ, job.bucket, job.key, job.size_bytes, hash_check=True)
        else:  # a new object each time: nothing is replaced, so nothing else is to be removed
            key = f"{job.key}-{number}" if job.times != 1 or job.seconds else job.key
            order = Order(Kind.WRITE, job.bucket, key, job.size_bytes, hash_check=True)
        if store.has_parts(order):
            await store.transfer(order, self._send, keep_alive=True)
            return

        def fault(reply: Reply) -> str:
            return store.fault(order, reply)

        await self._send(Step(lambda: store.request(order), fault, hashed=job.direction == READ))

    async def _send(self, step: Step) -> Reply:
        connection = await self._idle.get()
        try:
            request = step.build()
            reply = await connection.exchange(
                request.head, request.body, hashed=step.hashed, kept=step.kept, headers_kept=step.headers_kept
            )
        finally:
            self._idle.put_nowait(connection)
        error = step.fault(reply)
        if error:
            raise StepError(reply, error)
        return reply


def outcome_of(fields: Mapping[str, Any]) -> Outcome:
    """An outcome that a client printed."""
    moved = {int(number): count for number, count in fields["moved"].items()}
    return Outcome(**{**fields, "moved": moved})


async def _main() -> None:
    bodies.body("", 1)  # makes the pool now, not when the clock runs
    outcome = await Client(Job(**json.loads(sys.stdin.read()))).run()
    print(json.dumps(dataclasses.asdict(outcome)))


if __name__ == "__main__":
    uvloop.run(_main())
