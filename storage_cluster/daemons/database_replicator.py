"""The account replicator and the container replicator: they make all primaries of a database hold the same rows.

For each database on each device of this host, a replicator sends its state to the other primaries. Where the digests of
the rows differ, it sends the rows that changed since it last sent rows to that replica, or all rows if that is not
enough. Rows that only the other replica has are sent by the other host's replicator. A database on a handoff is removed
when all primaries have its rows; a deleted database is removed when its deletion is long enough ago.

As with objects, a database that has not changed since all replicas agreed is not compared again for `recheck_s`.

Source: Swift, swift.common.db_replicator (`_repl_to_node`, `_usync_db`, `_replicate_object`).
"""

import dataclasses
import json
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

from storage_cluster.daemons.daemon import DaemonContext, counts_text
from storage_cluster.servers.databases.account_db import AccountDatabase
from storage_cluster.servers.databases.container_db import ContainerDatabase
from storage_cluster.servers.databases.database_replication import METHOD
from storage_cluster.servers.databases.replicated_db import ReplicaState, ReplicatedDatabase, decode_state
from storage_cluster.servers.disks import layout
from storage_cluster.servers.http.backend import BackendAnswer
from storage_cluster.servers.http.times import timestamp_before
from storage_cluster.topology import Device

ROWS_MAX = 1000
"""Rows in one message."""
KINDS: dict[str, type[ReplicatedDatabase[Any]]] = {"account": AccountDatabase, "container": ContainerDatabase}


@dataclasses.dataclass(frozen=True)
class Place:
    """One database on this host."""

    device: str
    partition: int
    path_hash: str
    file: Path


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The state of a database when all other primaries agreed with it."""

    state: tuple[object, ...]
    primaries: tuple[Device, ...]
    at_s: float


def places(context: DaemonContext, kind: str) -> list[Place]:
    """The databases on this host's devices."""
    return [
        Place(name, partition, path_hash, directory / f"{path_hash}.db")
        for name, root in context.devices.dirs.items()
        for partition, path_hash, directory in layout.hash_dirs(root, f"{kind}s")
    ]


async def ask(
    context: DaemonContext, kind: str, device: Device, place: Place, message: dict[str, object]
) -> BackendAnswer:
    """Send a message about a database to the server of a device."""
    backend = context.backend
    path = f"/{device.name}/{place.partition}/{place.path_hash}"
    return await backend.request(backend.service(kind, device), METHOD, path, {}, json.dumps(message).encode())


class DatabaseReplicator:
    """Replicates the databases of one kind ("account" or "container") on this host's devices."""

    def __init__(self, context: DaemonContext, kind: str) -> None:
        self._context = context
        self._kind = kind
        self._agreements: dict[Path, Agreement] = {}
        self._counts: Counter[str] = Counter()

    async def run_once(self) -> str:
        """One pass over all databases."""
        self._counts = Counter()
        for place in places(self._context, self._kind):
            try:
                database = KINDS[self._kind](place.file, create=False)
            except sqlite3.Error:  # gone meanwhile, or damaged: the auditor sees to that
                continue
            try:
                await self._replicate(place, database)
            except sqlite3.Error as error:
                self._context.say(f"{place.file} cannot be read: {error}")
            finally:
                database.close()
        return counts_text(self._counts)

    async def _replicate(self, place: Place, database: ReplicatedDatabase[Any]) -> None:
        ring = self._context.backend.rings[self._kind]
        if place.partition >= ring.partition_count:
            return
        state, primaries = database.state(), ring.primaries(place.partition)
        here = self._context.local_device(place.device, primaries)
        known = self._agreements.get(place.file)
        same = known is not None and (known.state, known.primaries) == (state.comparable_state, primaries)
        if same and known is not None and time.monotonic() - known.at_s < self._context.intervals.recheck_s:
            return
        state = await self._reclaim(place, database)
        others = [device for device in primaries if device != here]
        if not all([await self._push(place, database, state, device) for device in others]):
            return
        if here is None or (state.is_deleted and state.delete_timestamp < self._reclaim_before()):
            await self._discard(place, state)
        else:
            self._agreements[place.file] = Agreement(state.comparable_state, primaries, time.monotonic())

    async def _push(self, place: Place, database: ReplicatedDatabase[Any], state: ReplicaState, device: Device) -> bool:
        """Send a device the rows that it lacks; returns whether it has all of them now."""
        message: dict[str, object] = {"op": "sync", "state": dataclasses.asdict(state)}
        answer = await ask(self._context, self._kind, device, place, message)
        if not answer.is_success:
            return False
        found = json.loads(answer.body)
        theirs, point = decode_state(found["state"]), int(found["point"])
        if theirs.digest == state.digest:
            return True
        start = point if point < state.last_change else 0  # it has received all changes and still differs: send all
        return await self._send_rows(place, database, state, device, start)

    async def _send_rows(
        self, place: Place, database: ReplicatedDatabase[Any], state: ReplicaState, device: Device, start: int
    ) -> bool:
        while start < state.last_change:
            rows, start = database.changes_after(start, ROWS_MAX)
            if not rows:
                return True
            columns = [list(vars(row).values()) for row in rows]
            message = {"op": "rows", "replica_id": state.replica_id, "rows": columns, "change": start}
            answer = await ask(self._context, self._kind, device, place, message)
            if not answer.is_success:
                return False
            self._counts["rows pushed"] += json.loads(answer.body)["new_count"]
        return True

    async def _discard(self, place: Place, state: ReplicaState) -> None:
        message: dict[str, object] = {"op": "discard", "state": dataclasses.asdict(state)}
        own = self._context.own(place.device)
        if (await ask(self._context, self._kind, own, place, message)).is_success:
            self._agreements.pop(place.file, None)
            self._counts["databases removed"] += 1

    async def _reclaim(self, place: Place, database: ReplicatedDatabase[Any]) -> ReplicaState:
        """Remove names deleted long ago; returns the database's state after that."""
        before = self._reclaim_before()
        if database.reclaimable_count(before):
            message: dict[str, object] = {"op": "reclaim", "before": before}
            await ask(self._context, self._kind, self._context.own(place.device), place, message)
            database.refresh()
        return database.state()

    def _reclaim_before(self) -> str:
        return timestamp_before(self._context.intervals.reclaim_age_s)
