"""Where it is noted which store has an object, and what sizes objects had so far.

`MemoryLocations` keeps it in memory: what it does not know after a start, `recovery` reads from the stores themselves,
so an object's location is kept beside the object. Only the sums of sizes are on disk, written a moment later.

`DatabaseLocations` keeps it in SQLite, as the paper's proxy does. A note is on disk before it returns: write-ahead log,
synchronous=FULL, one sync for each commit. The database lies on the proxy's first device, if it has one, whose medium
takes the time of the write and the sync.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from storage_cluster.servers.databases.database import connect, transaction
from storage_cluster.servers.disks.medium import Medium
from storage_cluster.servers.s3.errors import S3Error

SMALL, LARGE = "small", "large"
STORES = (SMALL, LARGE)
DATABASE_FILE, SIZES_FILE = "locations.sqlite", "sizes.json"
SIZES_DELAY_S = 1.0
PAGE_BYTES = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS location (bucket TEXT, key TEXT, store TEXT NOT NULL, PRIMARY KEY (bucket, key))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sizes (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER, total_bytes INTEGER);
"""

Key = tuple[str, str]
"""Bucket and key of an object."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How many objects were written so far, and their bytes."""

    count: int = 0
    total_bytes: int = 0

    def plus(self, size_bytes: int) -> "Sizes":
        """With one object more."""
        return Sizes(self.count + 1, self.total_bytes + size_bytes)


class Locations(Protocol):
    """Which store has an object."""

    sizes: Sizes

    def find(self, key: Key) -> str | None:
        """The store that has it; None if that is not known."""

    async def note(self, key: Key, store: str, size_bytes: int | None = None) -> None:
        """It is in that store from now on. `size_bytes`: of an object that was written. Raises: S3Error."""

    async def forget(self, key: Key) -> None:
        """It is in neither. Raises: S3Error."""

    def close(self) -> None:
        """Write what is not written yet."""


class MemoryLocations:
    """In memory."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / SIZES_FILE
        self._known: dict[Key, str] = {}
        self._writing: asyncio.TimerHandle | None = None
        self.sizes = Sizes()
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            self.sizes = Sizes(**json.loads(self._file.read_text("ascii")))

    def find(self, key: Key) -> str | None:
        """The store that has it; None if that is not known."""
        return self._known.get(key)

    async def note(self, key: Key, store: str, size_bytes: int | None = None) -> None:
        """It is in that store from now on."""
        self._known[key] = store
        if size_bytes is not None:
            self.sizes = self.sizes.plus(size_bytes)
            if self._writing is None:
                self._writing = asyncio.get_running_loop().call_later(SIZES_DELAY_S, self._write_sizes)

    async def forget(self, key: Key) -> None:
        """It is in neither."""
        self._known.pop(key, None)

    def close(self) -> None:
        """Write the sizes if they changed."""
        if self._writing is not None:
            self._writing.cancel()
            self._write_sizes()

    def _write_sizes(self) -> None:
        """A full disk costs no more than the mean after the next start."""
        self._writing = None
        draft = self._file.with_suffix(".draft")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(dataclasses.asdict(self.sizes)), "ascii")
            os.replace(draft, self._file)


class DatabaseLocations:
    """In SQLite, synced before a note is done."""

    def __init__(self, directory: Path, medium: Medium | None) -> None:
        self._medium = medium
        self._database = connect(directory / DATABASE_FILE, _SCHEMA)
        self._database.execute("PRAGMA synchronous=FULL")
        row = self._database.execute("SELECT count, total_bytes FROM sizes").fetchone()
        self.sizes = Sizes(*row) if row else Sizes()

    def find(self, key: Key) -> str | None:
        """The store that has it; None if that is not known."""
        row = self._database.execute("SELECT store FROM location WHERE bucket = ? AND key = ?", key).fetchone()
        return None if row is None else str(row[0])

    async def note(self, key: Key, store: str, size_bytes: int | None = None) -> None:
        """It is in that store from now on. Raises: S3Error."""
        sizes = self.sizes if size_bytes is None else self.sizes.plus(size_bytes)
        with _database_errors(), transaction(self._database):
            self._database.execute("REPLACE INTO location VALUES (?, ?, ?)", (*key, store))
            self._database.execute("REPLACE INTO sizes VALUES (1, ?, ?)", (sizes.count, sizes.total_bytes))
        self.sizes = sizes
        await self._sync()

    async def forget(self, key: Key) -> None:
        """It is in neither. Raises: S3Error."""
        with _database_errors(), transaction(self._database):
            self._database.execute("DELETE FROM location WHERE bucket = ? AND key = ?", key)
        await self._sync()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    async def _sync(self) -> None:
        """Take the time of the medium under the database. Raises: S3Error."""
        if self._medium is None or not self._medium.is_modelled:
            return
        try:
            self._medium.write(PAGE_BYTES, 0)
            await asyncio.sleep(self._medium.sync())  # which waits for the write before it
        except OSError as error:
            raise _no_note(os.strerror(error.errno or 0)) from None


@contextlib.contextmanager
def _database_errors() -> Iterator[None]:
    """Raises: S3Error for what the database refuses."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _no_note(str(error)) from None


def _no_note(reason: str) -> S3Error:
    return S3Error("ServiceUnavailable", f"The routing proxy cannot note where the object is ({reason}). Try again.")
