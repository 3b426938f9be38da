"""A request's transfers on a device: at once while nothing is reserved there, else when it is their turn.

    request ─▶ Transfers ─▶ medium                        nothing reserved: its own queue, first come first served
                        └─▶ Scheduler ─▶ turns ─▶ medium  else: stripe by stripe, one after the other

The medium is modelled (`medium.py`), and its queue has no order but arrival. So while something is reserved, transfers
wait here instead, and the medium gets the next one when it is about to be free. A body is read and written in stripes
then: what is given in one turn is at most one stripe, and a request waits for its next turn before each.

`logs/HOST/object.turns.jsonl` has a line for each transfer that was given a turn: device, access ("" for requests
without one), transaction id, kind, bytes, the moment at which the medium began (wall clock, ns), how long it was busy,
how long the request waited, and whose turns these were: access to ms. That is the truth with which a reconstruction can
be compared.

Cost: while nothing is reserved a test of a flag, for each piece of a body.
"""

import asyncio
import collections
import dataclasses
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from storage_cluster.servers.disks.accesses import Access
from storage_cluster.servers.disks.medium import METADATA_BYTES, Medium, Writing
from storage_cluster.servers.disks.turns import SHARED, SMALL, Turns, Waiting
from storage_cluster.topology import ReservationOptions

LINGER_S = 10.0
"""So long after the last request with a reservation, transfers are given turns."""
LOOKAHEAD_S = 0.005
"""So long before the medium is free it gets the next transfer: this process may be late, the medium is not."""
STALL_MIN_S = 0.005
"""Shorter waits are not worth saying whose turn it was."""
SMALL_MAX_BYTES = 16_384
"""Transfers without a reservation are small up to here. They have a queue of their own, and a little of each device is
reserved for it: they must not wait behind large ones that have nothing reserved."""
_GRANTS_KEPT_S = 30.0


@dataclasses.dataclass
class _Work:
    """A transfer: what it costs, for whom, and who waits for it."""

    kind: str
    transaction_id: str
    charge: Callable[[], float]
    """Queues it at the medium; returns the seconds until it is done. Raises: OSError."""
    given: "asyncio.Future[float]"


@dataclasses.dataclass(frozen=True)
class _Grant:
    """A turn that was given, in seconds of the loop's clock."""

    access: str
    begin_s: float
    end_s: float


class TurnsLog:
    """The file with a line for each turn; it exists once there was one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream: TextIO | None = None

    def write(self, line: dict[str, object]) -> None:
        """Add a line."""
        if self._stream is None:
            self._stream = open(self._file, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  closed below
        self._stream.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()


class Scheduler:
    """Gives out one device's time."""

    def __init__(self, place: tuple[str, str], options: ReservationOptions, small_rate: int, log: TurnsLog) -> None:
        """`small_rate`: bytes per second that small transfers without a reservation are sure to get."""
        self.host, self.device = place
        self.small_rate = small_rate
        self.stripe_bytes = options.stripe_bytes
        self._margin = options.margin_bytes_per_s
        self.is_active = False
        """Whether transfers are given turns; else they go to the medium as they come."""
        self._turns: Turns[_Work] = Turns(options.slice_bytes)
        self._log = log
        self._grants: collections.deque[_Grant] = collections.deque()
        self._touched_s = 0.0
        self._free_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """A request came for which something is reserved."""
        loop = asyncio.get_running_loop()
        self._touched_s = loop.time()
        if not self.is_active:
            self.is_active = True
            loop.call_later(LINGER_S, self._look)

    async def transfer(
        self, key: str, rate: int, size_bytes: int, kind: str, transaction_id: str, charge: Callable[[], float]
    ) -> float:
        """Wait for a turn and for the medium; the seconds for which others had their turns. Raises: OSError."""
        loop = asyncio.get_running_loop()
        work = _Work(kind, transaction_id, charge, loop.create_future())
        begun_s = loop.time()
        margin = self._margin if rate and key != SMALL else 0
        waiting = self._turns.add(key, rate + margin, work, size_bytes, begun_s)
        if self._timer is None:
            self._give()
        try:
            busy_s = await work.given
        except BaseException:
            self._turns.remove(key, waiting)
            raise
        waited_s = loop.time() - begun_s
        if busy_s:
            await asyncio.sleep(busy_s)
        return waited_s

    def _give(self) -> None:
        """Give turns until the medium has enough to do."""
        loop = asyncio.get_running_loop()
        self._timer = None
        now_s = loop.time()
        while self._free_s - now_s <= LOOKAHEAD_S:
            taken = self._turns.take(now_s)
            if taken is None:
                return
            self._give_one(*taken, now_s)
        self._timer = loop.call_later(self._free_s - now_s - LOOKAHEAD_S, self._give)

    def _give_one(self, key: str, waiting: Waiting[_Work], now_s: float) -> None:
        work = waiting.work
        if work.given.done():  # who waited for it has gone
            return
        try:
            busy_s = work.charge()
        except OSError as error:
            work.given.set_exception(error)
            return
        begin_s = max(now_s, self._free_s)
        self._free_s = max(begin_s, now_s + busy_s)
        self._write_line(key, waiting, now_s, begin_s)
        self._grants.append(_Grant(_shown_key(key), begin_s, self._free_s))
        while self._grants[0].end_s < now_s - _GRANTS_KEPT_S:
            self._grants.popleft()
        work.given.set_result(busy_s)

    def _write_line(self, key: str, waiting: Waiting[_Work], now_s: float, begin_s: float) -> None:
        waited_s = begin_s - waiting.since_s
        self._log.write(
            {
                "device": self.device,
                "access": _shown_key(key),
                "transaction_id": waiting.work.transaction_id,
                "kind": waiting.work.kind,
                "bytes": waiting.size_bytes,
                "begin_ns": time.time_ns() + round((begin_s - now_s) * 1e9),
                "busy_ns": round((self._free_s - begin_s) * 1e9),
                "waited_ns": round(max(0.0, waited_s) * 1e9),
                "turns": self._turns_since(waiting.since_s) if waited_s >= STALL_MIN_S else {},
            }
        )

    def _turns_since(self, since_s: float) -> dict[str, float]:
        """Whose turns the medium's time was since then: access to ms."""
        shares: dict[str, float] = {}
        for grant in reversed(self._grants):
            if grant.end_s <= since_s:
                break
            ms = 1e3 * (grant.end_s - max(grant.begin_s, since_s))
            shares[grant.access] = round(shares.get(grant.access, 0.0) + ms, 3)
        return shares

    def _look(self) -> None:
        """Stop giving turns if nothing was reserved for any request in a while."""
        loop = asyncio.get_running_loop()
        left_s = self._touched_s + LINGER_S - loop.time()
        self._turns.forget_idle(loop.time())
        if left_s > 0 or self._turns:
            loop.call_later(max(left_s, LOOKAHEAD_S), self._look)
        else:
            self.is_active = False


class Transfers:
    """What one request reads and writes of a device, in order. Methods wait; they raise OSError as the medium does."""

    def __init__(
        self, medium: Medium, scheduler: Scheduler, stream: int, access: Access | None, transaction_id: str
    ) -> None:
        self._medium = medium
        self._scheduler = scheduler
        self._stream = stream
        self._access = access
        self._transaction_id = transaction_id
        self._writing = Writing(medium, stream)
        self._read_ahead_bytes = 0
        self._uncut_bytes = 0
        self._pending: asyncio.Future[None] | None = None
        self._pending_bytes = 0
        self.waited_s = 0.0
        """How long it waited while others had their turns."""
        if access is not None and access.rate(scheduler.host, scheduler.device) and access.end_s > time.time():
            scheduler.touch()

    def close(self) -> None:
        """Ask for no more turns."""
        if self._pending is not None:
            self._pending.cancel()

    async def read(self, size_bytes: int, start: int) -> None:
        """Read so many bytes of a file from `start` on."""
        stop = start + size_bytes
        while start < stop:
            start += await self.read_some(stop - start, start, stop)

    async def read_some(self, size_bytes: int, start: int, stop: int) -> int:
        """Read bytes of a file from `start` on, `size_bytes` at most; how many: those of a stripe, once it is there.

        More may be wanted up to `stop`, so the next stripe waits for its turn meanwhile.
        """
        if not self._read_ahead_bytes and self._pending is None:
            if not self._scheduler.is_active:
                await _spend(self._medium.read(size_bytes, self._stream, start))
                return size_bytes
            self._begin_read(start, stop)
        if not self._read_ahead_bytes:
            self._read_ahead_bytes = await self._end_pending()
            if start + self._read_ahead_bytes < stop:
                self._begin_read(start + self._read_ahead_bytes, stop)
        read_bytes = min(size_bytes, self._read_ahead_bytes)
        self._read_ahead_bytes -= read_bytes
        return read_bytes

    async def read_metadata(self) -> None:
        """Read what the file system knows of a file."""
        if self._scheduler.is_active:
            charge = functools.partial(self._medium.read, METADATA_BYTES, self._stream)
            await self._take_turn("read", METADATA_BYTES, charge)
        else:
            await _spend(self._medium.read(METADATA_BYTES, self._stream))

    async def write(self, size_bytes: int) -> None:
        """Note bytes written to memory; waits for the medium once there are many. One stripe is written behind."""
        if not self._scheduler.is_active:
            await self._end_pending()
            self._uncut_bytes = 0
            await _spend(self._writing.add(size_bytes))
            return
        self._writing.dirty_bytes += size_bytes
        self._uncut_bytes += size_bytes
        stripe = self._scheduler.stripe_bytes
        while self._uncut_bytes >= stripe:
            await self._end_pending()
            self._uncut_bytes -= stripe
            self._begin("write", stripe, functools.partial(self._writing.write, stripe))

    async def sync(self) -> None:
        """Write all bytes and the file's name to the medium."""
        await self._end_pending()
        if self._scheduler.is_active:
            await self._take_turn("sync", max(self._writing.dirty_bytes, METADATA_BYTES), self._writing.sync)
        else:
            await _spend(self._writing.sync())

    def _begin_read(self, begin: int, stop: int) -> None:
        stripe = min(self._scheduler.stripe_bytes, stop - begin)
        self._begin("read", stripe, functools.partial(self._medium.read, stripe, self._stream, begin))

    def _begin(self, kind: str, size_bytes: int, charge: Callable[[], float]) -> None:
        """Wait for a turn while the stripe before it is sent or received."""
        self._pending_bytes = size_bytes
        self._pending = asyncio.ensure_future(self._take_turn(kind, size_bytes, charge))
        self._pending.add_done_callback(_note_failure)

    async def _end_pending(self) -> int:
        """Wait for the stripe that was begun; its bytes, 0 if there is none. Raises: OSError."""
        pending, self._pending = self._pending, None
        if pending is None:
            return 0
        try:
            await pending
        finally:
            pending.cancel()
        return self._pending_bytes

    async def _take_turn(self, kind: str, size_bytes: int, charge: Callable[[], float]) -> None:
        is_small = size_bytes <= SMALL_MAX_BYTES
        key, rate = (SMALL, self._scheduler.small_rate) if is_small else (SHARED, 0)
        if self._access is not None and self._access.end_s > time.time():
            reserved = self._access.rate(self._scheduler.host, self._scheduler.device)
            key, rate = (self._access.id, reserved) if reserved else (key, rate)
        self.waited_s += await self._scheduler.transfer(key, rate, size_bytes, kind, self._transaction_id, charge)


def _note_failure(done: "asyncio.Future[None]") -> None:
    """Nobody may wait any more for a stripe that failed: that is no mistake."""
    if not done.cancelled():
        done.exception()


def _shown_key(key: str) -> str:
    """A queue as the log names it."""
    return SHARED if key == SMALL else key


async def _spend(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)
