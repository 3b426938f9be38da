"""The book: a database of what was promised. A promise is on the disk before anybody hears of it.

Admission and entry are one transaction, so two that ask at once cannot both be given the last of a device.
"""

import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from storage_cluster.servers.reservations.admission import Admission, Claim
from storage_cluster.servers.reservations.claims import AccessReservation, SpaceReservation

KEPT_S = 3600.0
"""So long after its end a reservation can still be looked up, so that who uses it hears that it has ended."""
SPACE, ACCESS = "space", "access"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS reservation
    (id TEXT PRIMARY KEY, kind TEXT NOT NULL, owner TEXT NOT NULL, end_s REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS claim
    (id TEXT NOT NULL, place TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL NOT NULL, busy REAL NOT NULL,
     bytes REAL NOT NULL);
CREATE INDEX IF NOT EXISTS claim_id ON claim (id);
"""

Reservation = SpaceReservation | AccessReservation
R = TypeVar("R", SpaceReservation, AccessReservation)
Admit = Callable[[Admission], tuple[R, Sequence[Claim]]]


class Book:
    """What was promised to whom."""

    def __init__(self, file: Path, admission: Callable[[list[Claim]], Admission]) -> None:
        """`admission`: the rules, given the claims of what was promised."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._admission = admission
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def enter(self, kind: str, owner: str, admit: Admit[R]) -> R:
        """Promise what `admit` gives, once it fits. Raises: NotAdmittedError."""
        now_s = time.time()
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._forget(now_s)
            admitted, claims = admit(self._admission(self._claims(now_s)))
            body = admitted.to_json()
            body |= {"id": uuid.uuid4().hex, "owner": owner}
            row = (body["id"], kind, owner, admitted.end_s, json.dumps(body))
            self._database.execute("INSERT INTO reservation VALUES (?, ?, ?, ?, ?)", row)
            rows = [(body["id"], each.place, each.start_s, each.end_s, each.busy, each.bytes) for each in claims]
            self._database.executemany("INSERT INTO claim VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        return type(admitted).from_json(body, now_s)

    def find(self, kind: str, reservation_id: str, owner: str) -> dict[str, Any] | None:
        """A reservation of that owner, as JSON; None if there is none."""
        found = self._database.execute(
            "SELECT body FROM reservation WHERE id = ? AND kind = ? AND owner = ?", (reservation_id, kind, owner)
        ).fetchone()
        return None if found is None else json.loads(found[0])

    def list_open(self, kind: str, owner: str) -> list[dict[str, Any]]:
        """All reservations of an owner that have not ended, as JSON, the first to end first."""
        rows = self._database.execute(
            "SELECT body FROM reservation WHERE kind = ? AND owner = ? AND end_s > ? ORDER BY end_s, id",
            (kind, owner, time.time()),
        )
        return [json.loads(row[0]) for row in rows]

    def open_spaces(self) -> list[SpaceReservation]:
        """All space reservations that have not ended, of all owners."""
        now_s = time.time()
        rows = self._database.execute("SELECT body FROM reservation WHERE kind = ? AND end_s > ?", (SPACE, now_s))
        return [SpaceReservation.from_json(json.loads(row[0]), now_s) for row in rows]

    def unreserved_bytes(self) -> int | None:
        """What buckets without reserved space may hold altogether; None if no space is reserved."""
        now_s = time.time()
        return self._admission(self._claims(now_s)).unreserved_bytes(now_s)

    def cancel(self, kind: str, reservation_id: str, owner: str) -> bool:
        """Give back what a reservation holds; whether there was one."""
        self._database.execute("BEGIN IMMEDIATE")
        gone = self._database.execute(
            "DELETE FROM reservation WHERE id = ? AND kind = ? AND owner = ?", (reservation_id, kind, owner)
        ).rowcount
        if gone:
            self._database.execute("DELETE FROM claim WHERE id = ?", (reservation_id,))
        self._database.execute("COMMIT")
        return bool(gone)

    def _claims(self, now_s: float) -> list[Claim]:
        rows = self._database.execute("SELECT place, start_s, end_s, busy, bytes FROM claim WHERE end_s > ?", (now_s,))
        return [Claim(*row) for row in rows]

    def _forget(self, now_s: float) -> None:
        self._database.execute("DELETE FROM claim WHERE end_s <= ?", (now_s,))
        self._database.execute("DELETE FROM reservation WHERE end_s <= ?", (now_s - KEPT_S,))
