"""One account's database: its containers with their counts, and its metadata.

As in `container_db`, the newest statement about a name wins. A container's row carries the counts that its container
servers last reported; the account's own counts are their sums.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from storage_cluster.servers import database
from storage_cluster.servers.listings import Entry, Names
from storage_cluster.servers.metadata import merged_metadata
from storage_cluster.servers.times import iso_date

_SCHEMA = """
CREATE TABLE IF NOT EXISTS container (
    name TEXT PRIMARY KEY, put_timestamp TEXT NOT NULL, delete_timestamp TEXT NOT NULL,
    object_count INTEGER NOT NULL, bytes_used INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stat (
    one INTEGER PRIMARY KEY CHECK (one = 1), created_timestamp TEXT NOT NULL DEFAULT '',
    put_timestamp TEXT NOT NULL DEFAULT '0', delete_timestamp TEXT NOT NULL DEFAULT '0',
    metadata TEXT NOT NULL DEFAULT '{}'
);
INSERT OR IGNORE INTO stat (one) VALUES (1);
"""
_LIVE = "put_timestamp > delete_timestamp"


@dataclasses.dataclass(frozen=True)
class ContainerRow:
    """What an account knows about a container."""

    name: str
    put_timestamp: str
    delete_timestamp: str
    object_count: int
    bytes_used: int


@dataclasses.dataclass(frozen=True)
class AccountStat:
    """An account's state and counts."""

    created_timestamp: str
    put_timestamp: str
    delete_timestamp: str
    container_count: int
    object_count: int
    bytes_used: int
    metadata: Mapping[str, tuple[str, str]]  # header: value, timestamp

    @property
    def exists(self) -> bool:
        """Whether it was made, and not deleted since."""
        return self.put_timestamp > self.delete_timestamp

    @property
    def deleted(self) -> bool:
        """Whether it was deleted, and not made again since."""
        return self.delete_timestamp > self.put_timestamp


class AccountDatabase:
    """Reads and changes one account."""

    def __init__(self, path: Path) -> None:
        self._sql = database.connect(path, _SCHEMA)
        self._stat: AccountStat | None = None

    def close(self) -> None:
        """Let go of the file."""
        self._sql.close()

    def stat(self) -> AccountStat:
        """State and counts."""
        if self._stat is None:
            row = self._sql.execute("SELECT * FROM stat").fetchone()
            sums = self._sql.execute(
                "SELECT COUNT(*), COALESCE(SUM(object_count), 0), COALESCE(SUM(bytes_used), 0)"
                f" FROM container WHERE {_LIVE}"
            ).fetchone()
            metadata = {name: (value, at) for name, (value, at) in json.loads(row["metadata"]).items()}
            self._stat = AccountStat(
                row["created_timestamp"],
                row["put_timestamp"],
                row["delete_timestamp"],
                container_count=sums[0],
                object_count=sums[1],
                bytes_used=sums[2],
                metadata=metadata,
            )
        return self._stat

    def put(self, timestamp: str, metadata: Mapping[str, str]) -> None:
        """Make the account or change it: these metadata headers are set (empty: removed).

        Raises: Refusal (400), and nothing is changed.
        """
        known = self.stat()
        merged = merged_metadata(known.metadata, timestamp, metadata, "account")
        created = min(known.created_timestamp or timestamp, timestamp)
        self._sql.execute(
            "UPDATE stat SET created_timestamp = ?, put_timestamp = MAX(put_timestamp, ?), metadata = ?",
            (created, timestamp, json.dumps(merged)),
        )
        self._stat = None

    def delete(self, timestamp: str) -> None:
        """Mark it deleted, with whatever is in it."""
        self._sql.execute("UPDATE stat SET delete_timestamp = MAX(delete_timestamp, ?), metadata = '{}'", (timestamp,))
        self._stat = None

    def merge_container(self, row: ContainerRow) -> None:
        """Take in a container server's report; each part of it counts if it is not older than what is known."""
        self._sql.execute(
            "INSERT INTO container VALUES (:name, :put_timestamp, :delete_timestamp, :object_count, :bytes_used)"
            " ON CONFLICT (name) DO UPDATE SET put_timestamp = MAX(put_timestamp, excluded.put_timestamp),"
            " delete_timestamp = MAX(delete_timestamp, excluded.delete_timestamp),"
            " object_count = excluded.object_count, bytes_used = excluded.bytes_used",
            dataclasses.asdict(row),
        )
        self._stat = None

    def entries(self, names: Names) -> list[Entry]:
        """A run of containers, for `listings.select`."""
        where, values = database.names_condition(names)
        rows = self._sql.execute(f"SELECT * FROM container WHERE {_LIVE} AND {where}", values)
        return [
            Entry(
                row["name"],
                {
                    "name": row["name"],
                    "count": row["object_count"],
                    "bytes": row["bytes_used"],
                    "last_modified": iso_date(row["put_timestamp"]),
                },
            )
            for row in rows
        ]
