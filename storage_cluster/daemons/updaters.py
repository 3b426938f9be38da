"""The updaters: they deliver updates to containers and accounts that were not, or could not be, delivered at once.

The container updater reports a container's counts to its account if they have changed since the last report. It keeps
what it has reported in memory, so a new process reports everything once. Only primaries report, because a handoff knows
only a part of the rows.

The object updater delivers the container updates that object servers could not deliver (`async_pending`) to all
primaries of the container. An update is done when each of them has accepted it or has no such container.

Source: Swift, swift.container.updater, swift.obj.updater.
"""

from collections import Counter
from http import HTTPStatus
from pathlib import Path

from storage_cluster.daemons.daemon import DaemonContext, counts_text
from storage_cluster.daemons.database_replicator import places
from storage_cluster.servers.databases.container_db import ContainerDatabase, ContainerStat
from storage_cluster.servers.databases.replicated_db import peek
from storage_cluster.servers.databases.updates import PendingUpdates, UndeliveredUpdate, report_headers
from storage_cluster.servers.http.backend import device_path
from storage_cluster.servers.http.times import TimestampMaker, new_transaction_id
from storage_cluster.topology import Device

Reported = tuple[str, str, int, int]
"""Times of creation and deletion, object count, bytes."""


class ContainerUpdater:
    """Reports the containers on this host's devices."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._clock = TimestampMaker()
        self._reported: dict[Path, Reported] = {}

    async def run_once(self) -> str:
        """One pass over all containers."""
        counts: Counter[str] = Counter()
        ring = self._context.backend.rings["container"]
        for place in places(self._context, "container"):
            if place.partition >= ring.partition_count:
                continue
            if self._context.local_device(place.device, ring.primaries(place.partition)) is None:
                continue
            found = peek(ContainerDatabase, place.file, _read)
            if found is None:
                continue
            names, stat = found
            counts_now = (stat.put_timestamp, stat.delete_timestamp, stat.object_count, stat.bytes_used)
            if names and counts_now != self._reported.get(place.file) and await self._report(names, stat):
                self._reported[place.file] = counts_now
                counts["containers reported"] += 1
        return counts_text(counts)

    async def _report(self, names: tuple[str, ...], stat: ContainerStat) -> bool:
        backend = self._context.backend
        ring = backend.rings["account"]
        partition = ring.partition(names[0])
        headers = report_headers(stat, self._clock.now()) | {"X-Trans-Id": new_transaction_id()}
        statuses = []
        for device in ring.primaries(partition):
            path = device_path(device, partition, *names)
            answer = await backend.request(backend.service("account", device), "PUT", path, headers)
            statuses.append(answer.status)
        return _all_accepted(statuses)


class ObjectUpdater:
    """Delivers the updates that are stored on this host's devices."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._accepted_by: dict[Path, set[Device]] = {}

    async def run_once(self) -> str:
        """One pass over all stored updates."""
        counts: Counter[str] = Counter()
        seen = set()
        for root in self._context.devices.dirs.values():
            for kept in PendingUpdates(root).read():
                seen.add(kept.file)
                if await self._deliver(kept):
                    kept.file.unlink(missing_ok=True)
                    counts["updates delivered"] += 1
        self._accepted_by = {
            file: accepted for file, accepted in self._accepted_by.items() if file in seen and file.exists()
        }
        return counts_text(counts)

    async def _deliver(self, kept: UndeliveredUpdate) -> bool:
        backend = self._context.backend
        ring = backend.rings["container"]
        partition = ring.partition(*kept.update.names[:2])
        accepted = self._accepted_by.setdefault(kept.file, set())
        for device in ring.primaries(partition):
            if device in accepted:
                continue
            path = device_path(device, partition, *kept.update.names)
            headers = {**kept.update.headers, "X-Trans-Id": kept.transaction_id}
            answer = await backend.request(backend.service("container", device), kept.update.method, path, headers)
            if _all_accepted([answer.status]):
                accepted.add(device)
        return accepted.issuperset(ring.primaries(partition))


def _all_accepted(statuses: list[int]) -> bool:
    """Whether each server accepted the update, or has no such container or account."""
    return all(200 <= status < 300 or status == HTTPStatus.NOT_FOUND for status in statuses)


def _read(database: ContainerDatabase) -> tuple[tuple[str, ...], ContainerStat]:
    return database.state().names, database.stat()
