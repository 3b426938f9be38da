"""Reports an object's changes to the container that lists it, and to the expiry queue.

The object's features can override what the container's row shows: `X-Object-Sysmeta-Container-Update-Override-Etag`
(and -Size, -Content-Type) replace the body's own. An update that cannot be delivered now is kept on the device, and the
object updater delivers it later.

Source: Swift, swift.obj.server (`container_update`, `delete_at_update`), "Container Update Override".
"""

import asyncio
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

from storage_cluster.policies import ring_name
from storage_cluster.ring import path_hash
from storage_cluster.servers.databases.updates import Parent, PendingUpdates, Update
from storage_cluster.servers.disks.devices import Devices, Target, policy_of
from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import Call
from storage_cluster.servers.http.values import etag_of
from storage_cluster.servers.object import expiry

OVERRIDE = "X-Object-Sysmeta-Container-Update-Override-"

Described = tuple[int, str, str]
"""Size, ETag, Content-Type."""


class ObjectUpdates:
    """Delivers updates, and keeps those that were not accepted."""

    def __init__(self, devices: Devices, backend: Backend, disk: Executor) -> None:
        self._devices = devices
        self._backend = backend
        self._disk = disk

    async def container_put(
        self, call: Call, target: Target, timestamp: str, described: Described, metadata: Mapping[str, str]
    ) -> None:
        """Report to the container that the object exists, with these properties."""
        size, etag, content_type = described
        update = {
            "X-Timestamp": timestamp,
            "X-Size": metadata.get(f"{OVERRIDE}Size", str(size)),
            "X-Etag": metadata.get(f"{OVERRIDE}Etag", etag),
            "X-Content-Type": metadata.get(f"{OVERRIDE}Content-Type", content_type),
        }
        await self._deliver(call, target, self._containers(call), Update("PUT", target.names, update))

    async def container_delete(self, call: Call, target: Target, timestamp: str) -> None:
        """Report to the container that the object was deleted."""
        update = Update("DELETE", target.names, {"X-Timestamp": timestamp})
        await self._deliver(call, target, self._containers(call), update)

    def _containers(self, call: Call) -> list[Parent]:
        return Parent.all_named_in(call.headers, "Container")

    async def expiry(
        self, call: Call, target: Target, timestamp: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        """Add the object to the expiry queue, and remove its earlier entry."""
        was, is_now = expiry.delete_at(before), expiry.delete_at(after)
        if was is not None and was != is_now:
            await self._queue(call, target, "DELETE", was, {"X-Timestamp": timestamp})
        if is_now is not None:
            row = {"X-Size": "0", "X-Etag": etag_of(), "X-Content-Type": "text/plain", "X-Timestamp": timestamp}
            await self._queue(call, target, "PUT", is_now, row)

    async def _queue(self, call: Call, target: Target, method: str, due_s: int, headers: Mapping[str, str]) -> None:
        entry = expiry.queue_entry(due_s, target.names, path_hash(target.names, ""))
        ring = self._backend.rings["container"]
        partition = ring.partition(*entry.names[:2])
        devices = ring.primaries(partition)
        device = devices[self._replica_index(call, target) % len(devices)]
        parent = Parent.on_device("Container", self._backend, device, partition)
        await self._deliver(call, target, [parent], Update(method, entry.names, headers))

    def _replica_index(self, call: Call, target: Target) -> int:
        """Which of the object's replicas this device holds, so that each updates another replica of the queue."""
        primaries = self._backend.rings[ring_name(policy_of(call))].primaries(int(target.partition))
        here = [(self._devices.host, target.device_dir.name) == (device.host, device.name) for device in primaries]
        return here.index(True) if True in here else 0

    async def _deliver(self, call: Call, target: Target, parents: Sequence[Parent], update: Update) -> None:
        sent = [parent.send(self._backend, update, call.transaction_id) for parent in parents]
        if not all(await asyncio.gather(*sent)):
            keep = functools.partial(PendingUpdates(target.device_dir).add, update, call.transaction_id)
            await asyncio.get_running_loop().run_in_executor(self._disk, keep)
