"""Opens the SQLite files of accounts and containers, and limits how many stay open.

One file for each account or container on each device that holds a replica of it, as in Swift:
`<device>/containers/<partition>/<last 3 of hash>/<hash>/<hash>.db`.

Durability: write-ahead log, synchronous=NORMAL. A commit survives the process and a kill; a power cut may take the last
of them, never the file's consistency. Objects themselves are synced before they are acknowledged (`diskfile`).
"""

import collections
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from storage_cluster.servers.http.listings import Names

OPEN_MAX = 64
_PRAGMAS = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=5000;"

T = TypeVar("T")


def connect(path: Path, schema: str | None) -> sqlite3.Connection:
    """Open a database; autocommit, rows by name. With a schema it is made now if it does not exist.

    Raises: sqlite3.Error; nothing stays open then.
    """
    if schema is None:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
        script = "PRAGMA busy_timeout=5000;"
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, isolation_level=None)
        script = f"{_PRAGMAS} BEGIN; {schema} COMMIT;"  # one commit, not one for each statement
    connection.row_factory = sqlite3.Row
    try:
        connection.executescript(script)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Apply all statements inside, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def names_condition(names: Names) -> tuple[str, tuple[str | int, ...]]:
    """A run of names as the end of a SELECT: its last condition, order and limit, and the values for it."""
    low = ">=" if names.low_included else ">"
    order = "DESC" if names.descending else "ASC"
    return (
        f"name {low} ? AND (? = '' OR name < ?) ORDER BY name {order} LIMIT ?",
        (names.low, names.high, names.high, names.limit),
    )


class OpenDatabases(Generic[T]):
    """The databases in use; above the limit, the least recently used one is closed."""

    def __init__(self, make: Callable[[Path], T], close: Callable[[T], None]) -> None:
        self._make = make
        self._close = close
        self._held: collections.OrderedDict[Path, T] = collections.OrderedDict()

    def get(self, path: Path, *, create: bool) -> T | None:
        """The database in that file; None if it does not exist and `create` is False."""
        held = self._held.get(path)
        if held is None:
            if not create and not path.exists():
                return None
            held = self._held[path] = self._make(path)
            if len(self._held) > OPEN_MAX:
                self._close(self._held.popitem(last=False)[1])
        self._held.move_to_end(path)
        return held

    def discard(self, path: Path) -> None:
        """Close the database in that file, if it is open, before the file is removed."""
        held = self._held.pop(path, None)
        if held is not None:
            self._close(held)

    def close(self) -> None:
        """Close all."""
        while self._held:
            self._close(self._held.popitem()[1])
