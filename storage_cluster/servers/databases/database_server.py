"""Shared by the account and the container server: finds or creates a call's database.

A target names an account or a container on one device; its database lies there under the hash of the path. One of the
cluster's own accounts (`.expiring_objects`) and their containers are made by their first entry.
"""

import abc
from pathlib import Path
from typing import Any, Generic, TypeVar

from storage_cluster.servers.databases import database
from storage_cluster.servers.databases.database_replication import METHOD, DatabaseReplication
from storage_cluster.servers.databases.replicated_db import ReplicatedDatabase
from storage_cluster.servers.disks import layout
from storage_cluster.servers.disks.devices import Devices, Target, disk_errors, timestamp_of
from storage_cluster.servers.http.messages import Call, Refusal, Reply

D = TypeVar("D", bound=ReplicatedDatabase[Any])


class DatabaseServer(abc.ABC, Generic[D]):
    """Answers for the databases of one kind ("accounts" or "containers") on this host's devices."""

    def __init__(self, kind: str, names_count: int, database_of: type[D], devices: Devices) -> None:
        """`names_count`: how many of the path's names identify the database; the rest identifies an entry in it."""
        self._kind = kind
        self._names_count = names_count
        self._devices = devices
        self._databases = database.OpenDatabases(database_of, database_of.close)
        self._replication = DatabaseReplication(kind, devices, self._databases)

    def close(self) -> None:
        """Close the databases."""
        self._databases.close()

    async def handle(self, call: Call) -> Reply:
        """One call."""
        with disk_errors():
            if call.method == METHOD:
                return await self._replication.handle(call)
            target = self._devices.target(call, self._names_count)
            with self._replication.quarantine_if_damaged(self._path(target)):
                return await self._handle(call, target)

    @abc.abstractmethod
    async def _handle(self, call: Call, target: Target) -> Reply:
        """One call from the proxy, or from a server that reports an entry."""

    def _open(self, target: Target, *, create: bool = False) -> D:
        found = self._database(target, create=create)
        if found is None or not (create or found.stat().exists):
            raise Refusal(404)
        return found

    def _open_or_make_own(self, call: Call, target: Target) -> D:
        """The target's database; one of the cluster's own is made by its first entry."""
        if not target.names[0].startswith("."):
            return self._open(target)
        found = self._open(target, create=True)
        if not found.stat().exists:
            found.put(timestamp_of(call), {})
        return found

    def _database(self, target: Target, *, create: bool = False) -> D | None:
        """The target's database, even of something deleted."""
        found = self._databases.get(self._path(target), create=create)
        if found is not None and not found.state().names:
            found.set_names(target.names[: self._names_count])
        return found

    def _path(self, target: Target) -> Path:
        directory = layout.hash_dir(target.device_dir, self._kind, target.partition, target.hash)
        return directory / f"{target.hash}.db"
