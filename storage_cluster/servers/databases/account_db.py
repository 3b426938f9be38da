"""One account's database: its containers with their counts, and its metadata.

As in `container_db`, the newest statement about a name wins. A container's row carries the counts that its container
servers last reported; the account's own counts are their sums.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_cluster.servers.databases import database
from storage_cluster.servers.databases.replicated_db import COMMON_SCHEMA, STAT_COLUMNS, Lifetime, ReplicatedDatabase
from storage_cluster.servers.http.listings import Entry, Names
from storage_cluster.servers.http.metadata import merged_metadata
from storage_cluster.servers.http.times import iso_date

_LIVE = "put_timestamp > delete_timestamp"


@dataclasses.dataclass(frozen=True)
class ContainerRow:
    """An account's row about a container."""

    name: str
    put_timestamp: str
    delete_timestamp: str
    object_count: int
    bytes_used: int
    reported_timestamp: str = "0"  # when its server said so of the counts
    policy_index: int = 0


@dataclasses.dataclass(frozen=True)
class AccountStat(Lifetime):
    """An account's state and counts."""

    created_timestamp: str
    put_timestamp: str
    delete_timestamp: str
    container_count: int
    object_count: int
    bytes_used: int
    metadata: Mapping[str, tuple[str, str]]  # header: value, timestamp
    by_policy: Mapping[int, tuple[int, int, int]]
    """Containers, objects and bytes of each storage policy that a container has, or has had."""


class AccountDatabase(ReplicatedDatabase[ContainerRow]):
    """Reads and changes one account."""

    TABLE = "container"
    SCHEMA = f"""
    CREATE TABLE IF NOT EXISTS container (
        name TEXT PRIMARY KEY, put_timestamp TEXT NOT NULL, delete_timestamp TEXT NOT NULL,
        object_count INTEGER NOT NULL, bytes_used INTEGER NOT NULL, reported_timestamp TEXT NOT NULL,
        policy_index INTEGER NOT NULL, change INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS container_change ON container (change);
    CREATE TABLE IF NOT EXISTS stat ({STAT_COLUMNS});
    {COMMON_SCHEMA}
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        super().__init__(path, create=create)
        self._stat: AccountStat | None = None

    def stat(self) -> AccountStat:
        """State and counts."""
        if self._stat is None:
            row = self._sql.execute("SELECT * FROM stat").fetchone()
            found = self._sql.execute(
                f"SELECT policy_index, SUM({_LIVE}), SUM(object_count * ({_LIVE})), SUM(bytes_used * ({_LIVE}))"
                " FROM container GROUP BY policy_index ORDER BY policy_index"
            ).fetchall()
            by_policy = {policy: (containers, objects, size) for policy, containers, objects, size in map(tuple, found)}
            sums = [sum(counts) for counts in zip((0, 0, 0), *by_policy.values(), strict=True)]
            metadata = {name: (value, at) for name, (value, at) in json.loads(row["metadata"]).items()}
            self._stat = AccountStat(
                row["created_timestamp"],
                row["put_timestamp"],
                row["delete_timestamp"],
                container_count=sums[0],
                object_count=sums[1],
                bytes_used=sums[2],
                metadata=metadata,
                by_policy=by_policy,
            )
        return self._stat

    def put(self, timestamp: str, metadata: Mapping[str, str]) -> None:
        """Make the account or change it: these metadata headers are set (empty: removed).

        Raises: Refusal (400), and nothing is changed.
        """
        known = self.stat()
        merged = merged_metadata(known.metadata, timestamp, metadata, "account")
        created = min(known.created_timestamp or timestamp, timestamp)
        self.set_stat(
            created_timestamp=created,
            put_timestamp=max(timestamp, known.put_timestamp),
            metadata=json.dumps(merged),
        )

    def delete(self, timestamp: str) -> None:
        """Mark the account as deleted, with its contents."""
        self.set_stat(delete_timestamp=max(timestamp, self.stat().delete_timestamp), metadata="{}")

    def merge_container(self, row: ContainerRow) -> None:
        """Take in a container server's report; each part of it counts if it is not older than what is known."""
        self.merge([row])

    def newer(self, known: ContainerRow, stated: ContainerRow) -> ContainerRow:
        """The latest creation, with its policy, the latest deletion, and the counts that were reported last."""
        made = max(known, stated, key=lambda row: (row.put_timestamp, row.reported_timestamp, row.policy_index))
        counted = max(known, stated, key=lambda row: (row.reported_timestamp, row.object_count, row.bytes_used))
        return dataclasses.replace(
            counted,
            put_timestamp=made.put_timestamp,
            policy_index=made.policy_index,
            delete_timestamp=max(known.delete_timestamp, stated.delete_timestamp),
        )

    def row_of(self, columns: Sequence[Any]) -> ContainerRow:
        """A row from the table's columns."""
        return ContainerRow(*columns)

    def deleted_before(self, timestamp: str) -> tuple[str, tuple[object, ...]]:
        """Containers deleted before that moment."""
        return "delete_timestamp > put_timestamp AND delete_timestamp < ?", (timestamp,)

    def count_mismatch(self) -> str:
        """Always "": an account's counts are added up when they are read."""
        return ""

    def _count(self, known: ContainerRow | None, now: ContainerRow) -> None:
        pass

    def entries(self, names: Names, *, reserved: bool = False) -> list[Entry]:
        """A run of containers, for `listings.select`; the servers' own, whose names begin with NUL, if `reserved`."""
        where, values = database.names_condition(names)
        first = "" if reserved else "\1"
        rows = self._sql.execute(f"SELECT * FROM container WHERE {_LIVE} AND name >= ? AND {where}", (first, *values))
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

    def _forget(self) -> None:
        super()._forget()
        self._stat = None
