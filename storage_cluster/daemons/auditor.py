"""The auditors: they read all stored data, and quarantine what differs from what was written.

The object auditor reads every file to its end (body against ETag, footer against its MD5, each fragment of an archive
against its checksum) at a limited rate. The account and container auditors let SQLite check a database and compare its
rows with their digest and its counts. What is damaged goes to `quarantined/` on its device, and the other devices'
replicators or reconstructors bring a sound copy back.

A database's metadata (the `stat` row) has no checksum: a bit that flips there and leaves SQLite's structure whole is
not found.

Source: Swift, swift.obj.auditor, swift.container.auditor, swift.common.db_auditor.
"""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path

from storage_cluster.daemons.daemon import DaemonContext, counts_text
from storage_cluster.daemons.database_replicator import KINDS, ask, places
from storage_cluster.servers.disks import layout
from storage_cluster.servers.disks.diskfile import DamagedFileError, ObjectDir
from storage_cluster.servers.disks.fragments import object_at


class ObjectAuditor:
    """Reads the objects on this host's devices."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context

    async def run_once(self) -> str:
        """One pass over all objects."""
        counts: Counter[str] = Counter()
        for name, root in self._context.devices.dirs.items():
            found = (each for kind in layout.object_kinds(root) for each in layout.hash_dirs(root, kind))
            for _, path_hash, directory in found:
                stored = object_at(root, directory, self._context.devices.policies)
                read_bytes = await asyncio.to_thread(_check, stored)
                if read_bytes is None:
                    counts["damaged objects quarantined"] += 1
                    self._context.say(f"quarantined {name}/{path_hash}")
                else:
                    await asyncio.sleep(read_bytes / self._context.intervals.audit_bytes_per_s)
        return counts_text(counts)


class DatabaseAuditor:
    """Checks the databases of one kind ("account" or "container") on this host's devices."""

    def __init__(self, context: DaemonContext, kind: str) -> None:
        self._context = context
        self._kind = kind

    async def run_once(self) -> str:
        """One pass over all databases."""
        counts: Counter[str] = Counter()
        for place in places(self._context, self._kind):
            trouble = await asyncio.to_thread(self._trouble, place.file)
            if trouble:
                self._context.say(f"{place.file}: {trouble}")
                own = self._context.own(place.device)
                answer = await ask(self._context, self._kind, own, place, {"op": "quarantine"})
                counts["damaged databases quarantined"] += answer.is_success
        return counts_text(counts)

    def _trouble(self, file: Path) -> str:
        try:
            database = KINDS[self._kind](file, create=False)
        except sqlite3.OperationalError:  # gone meanwhile, or another process holds it: not for the auditor
            return ""
        except sqlite3.DatabaseError as error:
            return str(error)
        try:
            return database.trouble()
        except sqlite3.OperationalError:
            return ""
        except (sqlite3.DatabaseError, ValueError) as error:
            return str(error)
        finally:
            database.close()


def _check(stored: ObjectDir) -> int | None:
    """Read an object's files; returns their bytes, or None if they were damaged and quarantined."""
    try:
        return stored.check()
    except FileNotFoundError:  # replaced meanwhile
        return 0
    except DamagedFileError:
        stored.quarantine()
        return None
