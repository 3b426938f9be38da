"""Shared by account and container databases: rows that replicas exchange until all hold the same.

A row is a statement about a name. Two statements about one name are merged to a third (`newer`), which is the same
whichever came first. Every change of a row gets the database's next change number. So a replica that has received all
changes up to one number (its *sync point*, kept by the receiver for each other replica's id) needs only what came
after. A digest over all rows (XOR of each row's hash, so that it can be updated with every change) shows two replicas
whether they agree, and an auditor whether the rows are those that were written. Counts, metadata and the times of
creation and deletion are the `stat` row.

Source: Swift, swift.common.db and db_replicator (ROWID as change number, `hash` and `incoming_sync` tables).
"""

import abc
import contextlib
import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from storage_cluster.servers.databases import database

STAT_COLUMNS = """
    one INTEGER PRIMARY KEY CHECK (one = 1), replica_id TEXT NOT NULL, names TEXT NOT NULL DEFAULT '[]',
    last_change INTEGER NOT NULL DEFAULT 0, digest TEXT NOT NULL DEFAULT '0000000000000000',
    created_timestamp TEXT NOT NULL DEFAULT '', put_timestamp TEXT NOT NULL DEFAULT '0',
    delete_timestamp TEXT NOT NULL DEFAULT '0', metadata TEXT NOT NULL DEFAULT '{}'
"""
COMMON_SCHEMA = """
INSERT OR IGNORE INTO stat (one, replica_id) VALUES (1, lower(hex(randomblob(16))));
CREATE TABLE IF NOT EXISTS sync_point (replica_id TEXT PRIMARY KEY, change INTEGER NOT NULL) WITHOUT ROWID;
"""


class Named(Protocol):
    """A row: a frozen dataclass whose fields are the table's columns, in order, with the name first."""

    @property
    def name(self) -> str:
        """The name that the statement is about."""


R = TypeVar("R", bound=Named)
T = TypeVar("T")
D = TypeVar("D", bound="ReplicatedDatabase[Any]")


class Lifetime:
    """The times of the last creation and the last deletion; the later one is in force."""

    put_timestamp: str
    delete_timestamp: str

    @property
    def exists(self) -> bool:
        """Whether it was made, and not deleted since."""
        return self.put_timestamp > self.delete_timestamp

    @property
    def is_deleted(self) -> bool:
        """Whether it was deleted, and not made again since."""
        return self.delete_timestamp > self.put_timestamp


@dataclasses.dataclass(frozen=True)
class ReplicaState(Lifetime):
    """The state of a replica; two with equal digests hold the same rows."""

    replica_id: str
    names: tuple[str, ...]  # account[, container]
    last_change: int
    digest: str
    created_timestamp: str
    put_timestamp: str
    delete_timestamp: str
    metadata: Mapping[str, tuple[str, str]]  # header: value, timestamp

    @property
    def comparable_state(self) -> tuple[object, ...]:
        """The fields that are equal in two replicas that agree."""
        stat = (self.created_timestamp, self.put_timestamp, self.delete_timestamp, dict(self.metadata))
        return self.digest, *stat


class ReplicatedDatabase(abc.ABC, Generic[R]):
    """Reads and changes one account or container."""

    TABLE: ClassVar[str]
    SCHEMA: ClassVar[str]
    FIRST_WINS: ClassVar[frozenset[str]] = frozenset()
    """Headers of which the oldest statement since the last deletion counts, not the newest."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Raises: sqlite3.OperationalError if the file does not exist and `create` is False."""
        self._sql = database.connect(path, self.SCHEMA if create else None)
        self._state: ReplicaState | None = None

    def close(self) -> None:
        """Close the file."""
        self._sql.close()

    @abc.abstractmethod
    def stat(self) -> Lifetime:
        """Its state and counts."""

    @abc.abstractmethod
    def put(self, timestamp: str, metadata: Mapping[str, str]) -> None:
        """Create it, or create it again, with these metadata headers; an empty one removes that header."""

    @abc.abstractmethod
    def newer(self, known: R, stated: R) -> R:
        """Merge two statements about one name; the result must not depend on which came first."""

    @abc.abstractmethod
    def row_of(self, columns: Sequence[object]) -> R:
        """A row from the table's columns."""

    @abc.abstractmethod
    def _count(self, known: R | None, now: R) -> None:
        """Keep the counts in `stat` up with a row's change; called inside its transaction."""

    @abc.abstractmethod
    def count_mismatch(self) -> str:
        """What is wrong with the counts in `stat`; "" if nothing."""

    @abc.abstractmethod
    def deleted_before(self, timestamp: str) -> tuple[str, tuple[object, ...]]:
        """An SQL condition, with its values, on rows that were deleted before that moment and not written since."""

    def state(self) -> ReplicaState:
        """The state of this replica."""
        if self._state is None:
            row = self._sql.execute("SELECT * FROM stat").fetchone()
            self._state = ReplicaState(
                row["replica_id"],
                tuple(json.loads(row["names"])),
                row["last_change"],
                row["digest"],
                row["created_timestamp"],
                row["put_timestamp"],
                row["delete_timestamp"],
                {name: (value, at) for name, (value, at) in json.loads(row["metadata"]).items()},
            )
        return self._state

    def set_names(self, names: Sequence[str]) -> None:
        """Store the names of the account and container."""
        self.set_stat(names=json.dumps(names))

    def set_stat(self, **columns: object) -> None:
        """Change columns of `stat`."""
        assignments = ", ".join(f"{name} = ?" for name in columns)
        self._sql.execute(f"UPDATE stat SET {assignments}", tuple(columns.values()))
        self._forget()

    def merge(self, rows: Iterable[R]) -> int:
        """Merge rows, all or none. Returns how many of them changed something."""
        state, new_count = self.state(), 0
        change, digest = state.last_change, int(state.digest, 16)
        with database.transaction(self._sql):
            for stated in rows:
                known = self._find_row(stated.name)
                now = stated if known is None else self.newer(known, stated)
                if now == known:
                    continue
                new_count, change = new_count + 1, change + 1
                digest ^= row_hash(now) ^ (0 if known is None else row_hash(known))
                self._write(now, change)
                self._count(known, now)
            if new_count:
                self._sql.execute("UPDATE stat SET last_change = ?, digest = ?", (change, f"{digest:016x}"))
        if new_count:
            self._forget()
            self._state = dataclasses.replace(state, last_change=change, digest=f"{digest:016x}")
        return new_count

    def merge_state(self, other: ReplicaState) -> None:
        """Merge another replica's times of creation and deletion and its metadata."""
        mine = self.state()
        deleted = max(mine.delete_timestamp, other.delete_timestamp)
        metadata = dict(mine.metadata)
        for name, (value, at) in other.metadata.items():
            known = metadata.get(name, ("", ""))
            first = min if name in self.FIRST_WINS and min(known[1], at) > deleted else max
            metadata[name] = first(known, (value, at), key=lambda stated: (stated[1], stated[0]))
        kept = {name: known for name, known in metadata.items() if known[1] > deleted}
        created = [at for at in (mine.created_timestamp, other.created_timestamp) if at]
        put = max(mine.put_timestamp, other.put_timestamp)
        merged = dataclasses.replace(
            mine,
            names=mine.names or other.names,
            created_timestamp=min(created, default=""),
            put_timestamp=put,
            delete_timestamp=deleted,
            metadata=kept,
        )
        if merged != mine:
            self.set_stat(
                names=json.dumps(merged.names),
                created_timestamp=merged.created_timestamp,
                put_timestamp=put,
                delete_timestamp=deleted,
                metadata=json.dumps(kept),
            )

    def changes_after(self, change: int, limit: int) -> tuple[list[R], int]:
        """Rows that changed after that change number, oldest first, at most `limit`, and the last one's number."""
        found = self._sql.execute(
            f"SELECT * FROM {self.TABLE} WHERE change > ? ORDER BY change LIMIT ?", (change, limit)
        ).fetchall()
        return [self.row_of(tuple(row)[:-1]) for row in found], found[-1]["change"] if found else change

    def sync_point(self, replica_id: str) -> int:
        """The change number of another replica up to which this one has received its rows."""
        found = self._sql.execute("SELECT change FROM sync_point WHERE replica_id = ?", (replica_id,)).fetchone()
        return found["change"] if found else 0

    def set_sync_point(self, replica_id: str, change: int) -> None:
        """Note up to which change another replica has sent its rows."""
        self._sql.execute("INSERT OR REPLACE INTO sync_point VALUES (?, ?)", (replica_id, change))

    def reclaimable_count(self, timestamp: str) -> int:
        """How many rows `reclaim` would remove."""
        condition, values = self.deleted_before(timestamp)
        found = self._sql.execute(f"SELECT COUNT(*) FROM {self.TABLE} WHERE {condition}", values).fetchone()
        return int(found[0])

    def refresh(self) -> None:
        """Drop all cached state, since another process may have changed the file."""
        self._forget()

    def reclaim(self, timestamp: str) -> int:
        """Remove rows that were deleted before that moment. Returns how many."""
        condition, values = self.deleted_before(timestamp)
        digest = int(self.state().digest, 16)
        with database.transaction(self._sql):
            gone = self._sql.execute(f"SELECT * FROM {self.TABLE} WHERE {condition}", values).fetchall()
            if gone:
                for row in gone:
                    digest ^= row_hash(self.row_of(tuple(row)[:-1]))
                self._sql.execute(f"DELETE FROM {self.TABLE} WHERE {condition}", values)
                self._sql.execute("UPDATE stat SET digest = ?", (f"{digest:016x}",))
        self._forget()
        return len(gone)

    def trouble(self) -> str:
        """How the file differs from what was written; "" if it does not. Cost: reads the whole file."""
        self._sql.execute("BEGIN")  # one view of the file, whatever its server does meanwhile
        try:
            said = self._sql.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if said != "ok":
                return str(said)
            self._forget()
            digest = 0
            for row in self._sql.execute(f"SELECT * FROM {self.TABLE}"):
                digest ^= row_hash(self.row_of(tuple(row)[:-1]))
            return (
                "the rows are not those that were written"
                if digest != int(self.state().digest, 16)
                else (self.count_mismatch())
            )
        finally:
            self._sql.execute("COMMIT")

    def _find_row(self, name: str) -> R | None:
        row = self._sql.execute(f"SELECT * FROM {self.TABLE} WHERE name = ?", (name,)).fetchone()
        return None if row is None else self.row_of(tuple(row)[:-1])

    def _write(self, row: R, change: int) -> None:
        values = (*vars(row).values(), change)
        self._sql.execute(f"INSERT OR REPLACE INTO {self.TABLE} VALUES ({', '.join('?' * len(values))})", values)

    def _forget(self) -> None:
        """Drop cached state."""
        self._state = None


def peek(kind: type[D], file: Path, look: Callable[[D], T]) -> T | None:
    """What `look` reads from a database that its server may be using; None if it cannot be read."""
    try:
        with contextlib.closing(kind(file, create=False)) as database:
            return look(database)
    except sqlite3.Error:
        return None


def row_hash(row: Named) -> int:
    """A 64-bit hash of all columns of a row."""
    text = json.dumps(list(vars(row).values()))
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:8], "big")


def decode_state(document: Mapping[str, object]) -> ReplicaState:
    """A state as another replica sent it. Raises: KeyError, TypeError, ValueError for what is none."""
    fields = {field.name: document[field.name] for field in dataclasses.fields(ReplicaState)}
    metadata = {str(name): (str(value), str(at)) for name, (value, at) in dict(fields.pop("metadata")).items()}  # type: ignore[call-overload]
    names = tuple(str(name) for name in fields.pop("names"))  # type: ignore[attr-defined]
    last_change = int(fields.pop("last_change"))  # type: ignore[call-overload]
    texts = {name: str(value) for name, value in fields.items()}
    return ReplicaState(names=names, last_change=last_change, metadata=metadata, **texts)
