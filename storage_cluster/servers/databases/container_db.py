"""One container's database: its objects' names, its counts, its metadata.

Rows are merged by timestamp: the newest statement about a name wins, whatever order statements arrive in, so that
replicas that received the same statements hold the same rows.
"""

import dataclasses
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.policies import POLICY_INDEX
from storage_cluster.servers.databases import database
from storage_cluster.servers.databases.replicated_db import COMMON_SCHEMA, STAT_COLUMNS, Lifetime, ReplicatedDatabase
from storage_cluster.servers.http.content_type import split_swift_bytes
from storage_cluster.servers.http.listings import Entry, Names
from storage_cluster.servers.http.metadata import merged_metadata
from storage_cluster.servers.http.times import iso_date


@dataclasses.dataclass(frozen=True)
class ObjectRow:
    """A container's row about an object."""

    name: str
    timestamp: str
    size: int = 0
    content_type: str = ""
    etag: str = ""
    deleted: bool = False


@dataclasses.dataclass(frozen=True)
class ContainerStat(Lifetime):
    """A container's state and counts."""

    created_timestamp: str  # of the first statement that made it; kept when it is deleted and made again
    put_timestamp: str
    delete_timestamp: str
    object_count: int
    bytes_used: int
    metadata: Mapping[str, tuple[str, str]]  # header: value, timestamp

    @property
    def policy_index(self) -> int:
        """The storage policy of its objects."""
        return int(self.metadata.get(POLICY_INDEX, ("0", ""))[0])


class ContainerDatabase(ReplicatedDatabase[ObjectRow]):
    """Reads and changes one container."""

    TABLE = "object"
    FIRST_WINS = frozenset({POLICY_INDEX})
    SCHEMA = f"""
    CREATE TABLE IF NOT EXISTS object (
        name TEXT PRIMARY KEY, timestamp TEXT NOT NULL, size INTEGER NOT NULL,
        content_type TEXT NOT NULL, etag TEXT NOT NULL, deleted INTEGER NOT NULL, change INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS object_change ON object (change);
    CREATE TABLE IF NOT EXISTS stat (
        {STAT_COLUMNS}, object_count INTEGER NOT NULL DEFAULT 0, bytes_used INTEGER NOT NULL DEFAULT 0
    );
    {COMMON_SCHEMA}
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        super().__init__(path, create=create)
        self._stat: ContainerStat | None = None

    def stat(self) -> ContainerStat:
        """State and counts."""
        if self._stat is None:
            row = self._sql.execute("SELECT * FROM stat").fetchone()
            self._stat = ContainerStat(
                row["created_timestamp"],
                row["put_timestamp"],
                row["delete_timestamp"],
                row["object_count"],
                row["bytes_used"],
                {name: (value, at) for name, (value, at) in json.loads(row["metadata"]).items()},
            )
        return self._stat

    def put(self, timestamp: str, metadata: Mapping[str, str], policy_index: int | None = None) -> None:
        """Make the container, make it again or change it: these metadata headers are set (empty: removed).

        The newest statement about a header wins. `policy_index` is that of a container that has none yet: it stays, and
        of two replicas that were made with different ones the older statement counts. Raises: Refusal (400), and
        nothing is changed.
        """
        known = self.stat()
        merged = merged_metadata(known.metadata, timestamp, metadata, "container")
        if policy_index is not None:
            merged.setdefault(POLICY_INDEX, (str(policy_index), timestamp))
        self.set_stat(
            created_timestamp=min(known.created_timestamp or timestamp, timestamp),
            put_timestamp=max(timestamp, known.put_timestamp),
            metadata=json.dumps(merged),
        )

    def delete(self, timestamp: str) -> None:
        """Mark the container as deleted."""
        self.set_stat(delete_timestamp=max(timestamp, self.stat().delete_timestamp), metadata="{}")

    def merge_object(self, row: ObjectRow) -> bool:
        """Merge a statement about an object; False if a newer one is known."""
        return self.merge([row]) > 0

    def newer(self, known: ObjectRow, stated: ObjectRow) -> ObjectRow:
        """The later statement; of two at the same moment one that all replicas choose alike."""
        return max(known, stated, key=lambda row: (row.timestamp, row.deleted, row.etag, row.size, row.content_type))

    def row_of(self, columns: Sequence[Any]) -> ObjectRow:
        """A row from the table's columns."""
        name, timestamp, size, content_type, etag, deleted = columns
        return ObjectRow(name, timestamp, size, content_type, etag, bool(deleted))

    def deleted_before(self, timestamp: str) -> tuple[str, tuple[object, ...]]:
        """Objects deleted before that moment."""
        return "deleted = 1 AND timestamp < ?", (timestamp,)

    def count_mismatch(self) -> str:
        """How the counts in `stat` differ from the rows; "" if they agree."""
        there = self._sql.execute("SELECT COUNT(*), COALESCE(SUM(size), 0) FROM object WHERE deleted = 0").fetchone()
        noted = self._sql.execute("SELECT object_count, bytes_used FROM stat").fetchone()
        return "" if tuple(there) == tuple(noted) else "the counts are not those of the rows"

    def _count(self, known: ObjectRow | None, now: ObjectRow) -> None:
        was_count, was_bytes = (0, 0) if known is None or known.deleted else (1, known.size)
        now_count, now_bytes = (0, 0) if now.deleted else (1, now.size)
        self._sql.execute(
            "UPDATE stat SET object_count = object_count + ?, bytes_used = bytes_used + ?",
            (now_count - was_count, now_bytes - was_bytes),
        )

    def entries(self, names: Names) -> list[Entry]:
        """A run of objects, for `listings.select`."""
        where, values = database.names_condition(names)
        rows = self._sql.execute(f"SELECT * FROM object WHERE deleted = 0 AND {where}", values)
        return [Entry(row["name"], _listing_entry(row)) for row in rows]

    def _forget(self) -> None:
        super()._forget()
        self._stat = None


def _parameter_value(name: str, value: str) -> str | int | bool:
    """What JSON shows of a parameter of a row's ETag."""
    if name == "slo_etag":
        return f'"{value}"'
    if name == "symlink_bytes":
        return int(value)
    return True if name == "version_symlink" else value


def _listing_entry(row: sqlite3.Row) -> dict[str, object]:
    content_type, size = split_swift_bytes(row["content_type"])
    etag, *parameters = row["etag"].split("; ")
    listed = {
        "bytes": row["size"] if size is None else size,
        "hash": etag,
        "name": row["name"],
        "content_type": ";".join(part.strip() for part in content_type.split(";")),
        "last_modified": iso_date(row["timestamp"]),
    }
    for name, _, value in (parameter.partition("=") for parameter in parameters):
        listed[name] = _parameter_value(name, value)
    return listed
