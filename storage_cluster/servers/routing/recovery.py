"""After a start: what lies where is read from the stores, and what a kill left behind is removed.

1. A bucket that is in one store only is made in the other.
2. An object in one store only is noted there. That is so after a kill between write and note, too: nobody was answered,
   and the object is whole.
3. Of an object in both, the copy that was modified last stays. No write was answered while the older one was still
   there, so either would be right; the newer one never steps back behind what a reader has seen.

A memory knows nothing before this has ended, and a database may be behind, so requests wait for it.

Limits: objects of users whom the topology does not have are not found. Stores' clocks decide in step 3: see there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from storage_cluster.s3.signatures import Credentials
from storage_cluster.servers.routing.endpoint import Endpoint, Outgoing
from storage_cluster.servers.routing.listings import Page, all_entries, store_page
from storage_cluster.servers.routing.locations import STORES, Key
from storage_cluster.servers.routing.placement import Placement, other_store
from storage_cluster.servers.s3.documents import child_text, parse
from storage_cluster.servers.s3.errors import S3Error

RETRY_S = 1.0
LEFTOVERS_S = 5.0


class Recovery:
    """Reads the stores once, then removes leftovers as they come."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        placement: Placement,
        credentials: Sequence[Credentials],
        say: Callable[[str], None],
    ) -> None:
        self._endpoints = endpoints
        self._placement = placement
        self._credentials = credentials
        self._say = say
        self.owners: dict[str, Credentials] = {}
        """Who signs for a bucket."""
        self._done = asyncio.Event()
        self.failure = ""
        """Why the stores could not be read yet."""

    async def wait(self, patience_s: float) -> None:
        """Wait until the stores were read. Raises: S3Error if that takes too long."""
        if not self._done.is_set():
            try:
                await asyncio.wait_for(self._done.wait(), patience_s)
            except TimeoutError:
                message = f"What the stores hold is still being read. {self.failure}".strip()
                raise S3Error("ServiceUnavailable", message) from None

    async def run(self) -> None:
        """Read the stores, however often that takes, then look after leftovers for ever."""
        while not self._done.is_set():
            try:
                await self._read_stores()
                self._done.set()
            except S3Error as error:
                self.failure = error.text or error.code
                self._say(self.failure)
                await asyncio.sleep(RETRY_S)
        while True:
            await asyncio.sleep(LEFTOVERS_S)
            await self.remove_leftovers()

    async def remove_leftovers(self) -> None:
        """Remove the copies that could not be removed before."""
        for key in list(self._placement.leftovers):
            try:
                async with self._placement.turn(key):
                    await self._settle(key)
            except S3Error as error:
                self._say(f"{'/'.join(key)}: {error.text}")

    async def _read_stores(self) -> None:
        for credentials in self._credentials:
            buckets = {store: [name async for name in self._buckets(store, credentials)] for store in STORES}
            for bucket in dict.fromkeys(name for names in buckets.values() for name in names):
                self.owners[bucket] = credentials
                for store in STORES:
                    if bucket not in buckets[store]:
                        await self._send(Outgoing("PUT", bucket, credentials=credentials), store)
                await self._read_bucket(bucket, credentials)

    async def _buckets(self, store: str, credentials: Credentials) -> AsyncIterator[str]:
        reply = await self._endpoints[store].send(Outgoing("GET", "", credentials=credentials))
        document = await reply.read()
        if not reply.is_success:
            raise S3Error(
                "ServiceUnavailable", f"The buckets of the store for {store} objects cannot be read ({reply.status})."
            )
        for one in parse(document, "ListAllMyBucketsResult").iter("Bucket"):
            yield child_text(one, "Name") or ""

    async def _read_bucket(self, bucket: str, credentials: Credentials) -> None:
        seen: dict[str, str] = {}
        for store in STORES:
            async for entry in all_entries(self._endpoints[store], bucket, credentials):
                key = bucket, entry.name
                if entry.name in seen:
                    self._placement.leftovers[key] = set(STORES)
                elif self._placement.locations.find(key) != store:
                    await self._placement.locations.note(key, store)
                seen[entry.name] = store
        for name in [name for found, name in self._placement.leftovers if found == bucket]:
            await self._settle((bucket, name))

    async def _settle(self, key: Key) -> None:
        """Leave one copy of an object that may have two. Its turn is the caller's. Raises: S3Error."""
        locations = self._placement.locations
        times = {store: await self._written_at(key, store) for store in STORES}
        there = [store for store in STORES if times[store] is not None]
        known = locations.find(key)
        if not there:
            self._placement.leftovers.pop(key, None)
            return
        kept = known if known in there and self._done.is_set() else max(there, key=lambda store: times[store] or "")
        if known != kept:
            await locations.note(key, kept)
        await self._placement.await_listings(key[0])
        if other_store(kept) in there:
            await self._send(Outgoing("DELETE", *key, credentials=self.owners.get(key[0])), other_store(kept))
            self._say(f"{'/'.join(key)}: a copy was left with the {other_store(kept)} objects; removed")
        self._placement.leftovers.pop(key, None)

    async def _written_at(self, key: Key, store: str) -> str | None:
        """When a store's copy was written, as its listing says it; None if it has none. Raises: S3Error."""
        asked = {"prefix": key[1], "max-keys": "1"}
        page = await store_page(self._endpoints[store], key[0], asked, self.owners.get(key[0]))
        if not isinstance(page, Page):
            raise S3Error("ServiceUnavailable", f"The store for {store} objects cannot be listed ({page.status}).")
        first = page.entries[0] if page.entries and page.entries[0].name == key[1] else None
        return None if first is None else child_text(first.found, "LastModified")

    async def _send(self, request: Outgoing, store: str) -> None:
        """A request that must succeed. Raises: S3Error."""
        reply = await self._endpoints[store].send(request)
        await reply.read()
        if not reply.is_success and reply.status != 404:
            raise S3Error(
                "ServiceUnavailable", f"The store for {store} objects refuses {request.method} ({reply.status})."
            )
