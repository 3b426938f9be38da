"""Where an object goes, where it is, and that it is nowhere else.

    write ─▶ the chosen store has it ─▶ noted ─▶ the other store's copy removed ─▶ answered
                                          └─ from here on it is read from the chosen store

1. Writers of one key take turns, from before the store is chosen until the answer.
2. Readers and listings take no turns. The other copy is removed only after the listings of its bucket that began before
   the note; a reader that finds nothing where it looked looks where the object is noted now.
3. A copy that could not be removed, or a write whose fate is not known, is a leftover: it is removed later, and before
   the next write of its key is answered.

Invariants: when a write has been answered with success, the other store has no copy. So two copies are there only while
a write is under way, or after one that was not answered with success, and whichever survives a kill is right.

Limits: all writes go through this one process. A store that carries out a write after it had been silent for so long
that it was given up (`endpoint.PATIENCE_S`) may bring a copy back.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from storage_cluster.servers.routing.locations import LARGE, SMALL, STORES, Key, Locations
from storage_cluster.topology import RoutingOptions


def other_store(store: str) -> str:
    """The one of the two that this is not."""
    return LARGE if store == SMALL else SMALL


class Placement:
    """What is known of all objects; one for the process."""

    def __init__(self, options: RoutingOptions, locations: Locations) -> None:
        self._options = options
        self._turns: dict[Key, tuple[asyncio.Lock, int]] = {}
        self._listings: dict[str, set[asyncio.Future[None]]] = {}
        self.locations = locations
        self.leftovers: dict[Key, set[str]] = {}
        """Keys to stores that may have a copy that nobody should see."""

    @property
    def threshold_bytes(self) -> float:
        """The size of the largest small object."""
        sizes = self.locations.sizes
        if self._options.rule == "mean" and sizes.count:
            return sizes.total_bytes / sizes.count
        return self._options.threshold_bytes

    def choose(self, size_bytes: int | None) -> str:
        """The store for an object of that size; None if the size is not known before all of it is there."""
        return SMALL if size_bytes is not None and size_bytes <= self.threshold_bytes else LARGE

    def order(self, key: Key) -> tuple[str, str]:
        """The stores to ask for an object, the likelier first."""
        first = self.locations.find(key) or SMALL
        return first, other_store(first)

    @contextlib.asynccontextmanager
    async def turn(self, key: Key) -> AsyncIterator[None]:
        """Only one writer of a key is here at a time."""
        lock, count = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = lock, count + 1
        try:
            async with lock:
                yield
        finally:
            lock, count = self._turns.pop(key)
            if count > 1:
                self._turns[key] = lock, count - 1

    @contextlib.contextmanager
    def listing(self, bucket: str) -> Iterator[None]:
        """A listing of the bucket is under way."""
        ended = asyncio.get_running_loop().create_future()
        self._listings.setdefault(bucket, set()).add(ended)
        try:
            yield
        finally:
            ended.set_result(None)
            self._listings[bucket].discard(ended)

    async def await_listings(self, bucket: str) -> None:
        """Wait for the listings of the bucket that are under way now."""
        under_way = list(self._listings.get(bucket, ()))
        if under_way:
            await asyncio.wait(under_way)

    def suspect(self, key: Key, store: str) -> None:
        """A write to that store may have been carried out, although it was not answered."""
        if self.locations.find(key) != store:
            self.leftovers.setdefault(key, set()).add(store)

    async def note_write(self, key: Key, store: str, size_bytes: int | None = None) -> list[str]:
        """Note that a write was carried out. The stores whose copies must be removed now. Raises: S3Error."""
        stale = self.leftovers.get(key, set()) | {self.locations.find(key) or store}
        await self.locations.note(key, store, size_bytes)
        stale.discard(store)
        self.leftovers.get(key, set()).discard(store)
        for each in stale:
            self.leftovers.setdefault(key, set()).add(each)
        if stale:
            await self.await_listings(key[0])
        return [each for each in STORES if each in stale]

    def note_removal(self, key: Key, store: str) -> None:
        """That store has no copy any more."""
        left = self.leftovers.get(key, set())
        left.discard(store)
        if not left:
            self.leftovers.pop(key, None)
