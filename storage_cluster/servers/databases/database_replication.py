"""The server's side of database replication: what an account or container server does for replicators and auditors.

    REPLICATE /device/partition/hash, JSON in and out, "op" says what:
      sync        another replica presents its state: take in its making, deletion and metadata (making the database if
                  there is none); answer with our state and with how far that replica's rows are known here
      rows        rows of another replica, and up to which of its changes they reach
      discard     our own host's replicator: all primaries have what this handoff had when it was read; remove it
                  if nothing has changed since
      reclaim     our own host's replicator: forget names that went before a moment
      quarantine  our own host's auditor: the file is damaged; put it aside

The server alone writes its databases; the daemons beside it only read them.

Source: Swift, swift.common.db_replicator (`ReplicatorRpc`: sync, merge_items); the wire is our own.
"""

import contextlib
import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from storage_cluster.servers.databases.database import OpenDatabases
from storage_cluster.servers.databases.replicated_db import ReplicatedDatabase, decode_state
from storage_cluster.servers.disks import layout
from storage_cluster.servers.disks.devices import Devices
from storage_cluster.servers.http.messages import Call, Refusal, Reply, reply

METHOD = "REPLICATE"
MESSAGE_MAX_BYTES = 16_777_216
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PRIMARY = 0xFF

D = TypeVar("D", bound=ReplicatedDatabase[Any])


class DatabaseReplication(Generic[D]):
    """Answers REPLICATE for one server's databases (`kind`: "accounts" or "containers")."""

    def __init__(self, kind: str, devices: Devices, databases: OpenDatabases[D]) -> None:
        self._kind = kind
        self._devices = devices
        self._databases = databases

    async def handle(self, call: Call) -> Reply:
        """One call. Raises: Refusal."""
        path = self._path(call)
        message = _decode(await call.body.read(MESSAGE_MAX_BYTES))
        operation = getattr(self, f"_{message.get('op')}", None)
        if message.get("op") not in ("sync", "rows", "discard", "reclaim", "quarantine") or operation is None:
            raise Refusal(400)
        with self.quarantine_if_damaged(path):
            try:
                return reply(200, {"Content-Type": "application/json"}, json.dumps(operation(path, message)).encode())
            except (KeyError, TypeError, ValueError) as error:
                raise Refusal(400, f"Malformed message: {error!r}") from None

    @contextlib.contextmanager
    def quarantine_if_damaged(self, path: Path) -> Iterator[None]:
        """Quarantine a database that SQLite finds damaged, and refuse the call; other errors are raised unchanged."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & _PRIMARY not in _DAMAGED:
                raise
            self._quarantine(path, {})
            raise Refusal(503, "The database was damaged and is put aside") from None

    def _path(self, call: Call) -> Path:
        if len(call.names) != 3 or not call.names[1].isdigit() or not layout.is_hash(call.names[2]):
            raise Refusal(400)
        device, partition, path_hash = call.names
        return layout.hash_dir(self._devices.dir(device), self._kind, partition, path_hash) / f"{path_hash}.db"

    def _existing(self, path: Path) -> D:
        found = self._databases.get(path, create=False)
        if found is None:
            raise Refusal(404)
        return found

    def _sync(self, path: Path, message: dict[str, Any]) -> dict[str, Any]:
        theirs = decode_state(message["state"])
        found = self._databases.get(path, create=True)
        assert found is not None
        found.merge_state(theirs)
        mine, point = found.state(), found.sync_point(theirs.replica_id)
        if mine.digest == theirs.digest and point != theirs.last_change:
            found.set_sync_point(theirs.replica_id, theirs.last_change)
        return {"state": dataclasses.asdict(mine), "point": point}

    def _rows(self, path: Path, message: dict[str, Any]) -> dict[str, Any]:
        found = self._existing(path)
        new_count = found.merge(found.row_of(columns) for columns in message["rows"])
        found.set_sync_point(str(message["replica_id"]), int(message["change"]))
        return {"new_count": new_count}

    def _discard(self, path: Path, message: dict[str, Any]) -> dict[str, Any]:
        found = self._existing(path)
        expected = decode_state(message["state"])
        if found.state() != expected:
            raise Refusal(409, "It has changed since")
        self._databases.discard(path)
        shutil.rmtree(path.parent, ignore_errors=True)
        layout.remove_if_empty(path.parent.parent, 2)
        return {}

    def _reclaim(self, path: Path, message: dict[str, Any]) -> dict[str, Any]:
        return {"reclaimable_count": self._existing(path).reclaim(str(message["before"]))}

    def _quarantine(self, path: Path, _: dict[str, Any]) -> dict[str, Any]:
        self._databases.discard(path)
        layout.quarantine(path.parents[4], self._kind, path.parent)
        return {}


def _decode(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except ValueError:
        raise Refusal(400) from None
    if not isinstance(message, dict):
        raise Refusal(400)
    return message
