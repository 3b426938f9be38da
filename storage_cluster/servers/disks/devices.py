"""Shared by account, container and object servers: finds the device, partition and names of a request."""

import contextlib
import dataclasses
import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from storage_cluster.policies import POLICY_INDEX, Policies
from storage_cluster.ring import path_hash
from storage_cluster.servers.disks import layout, medium
from storage_cluster.servers.disks.medium import Medium
from storage_cluster.servers.disks.page_cache import PageCache
from storage_cluster.servers.http.messages import Call, Refusal
from storage_cluster.topology import Topology

MIB = 1024**2
BY_HASH = "X-Backend-Replication"
"""Of a daemon's request: it knows an object by the hash of its path only, which stands for the names."""

_DISK_ERRORS = {errno.ENOSPC: 507, errno.EDQUOT: 507, errno.EIO: 500, errno.EROFS: 500}
_DATABASE_ERRORS = {sqlite3.SQLITE_FULL: 507, sqlite3.SQLITE_IOERR: 500, sqlite3.SQLITE_READONLY: 500}
_SQLITE_PRIMARY = 0xFF


@dataclasses.dataclass(frozen=True)
class Target:
    """What a backend request names: a place on this host and the path stored there."""

    device_dir: Path
    partition: str
    names: tuple[str, ...]  # account[, container[, object]]
    hash: str
    medium: Medium


class Devices:
    """The devices of one host: those of the topology, and what was added since (`tracer cluster ring add`)."""

    def __init__(self, topology: Topology, host: str, data_dir: Path) -> None:
        self.host = host
        self._data_dir = data_dir
        self._first_names = [device.name for device in topology.host(host).devices]
        self._suffix = topology.ring.hash_suffix
        self._topology = topology
        self._medium_dir = medium.directory(data_dir.parent.parent, host)
        self._media: dict[str, Medium] = {}
        self._directories: dict[str, Path] = {}

    @property
    def policies(self) -> Policies:
        """The storage policies of the cluster."""
        return self._topology.policies

    @property
    def root(self) -> Path:
        """The directory that holds those of the devices."""
        return self._data_dir

    @property
    def dirs(self) -> Mapping[str, Path]:
        """Device name to its directory, of all that are there now."""
        return {entry.name: entry for entry in sorted(self._data_dir.iterdir()) if entry.is_dir()}

    def make(self) -> None:
        """Create the directories that a new device has."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._medium_dir.mkdir(parents=True, exist_ok=True)
        for name in self._first_names:
            (self._data_dir / name / "tmp").mkdir(parents=True, exist_ok=True)

    def medium(self, device: str) -> Medium:
        """The model of the medium under a device."""
        if device not in self._media:
            disk = self._topology.host(self.host).disk(device)
            profile = medium.profile_of(disk.media, disk.read_bytes_per_s, disk.write_bytes_per_s)
            cache = PageCache(disk.cache_mib * MIB) if disk.cache_mib else None
            self._media[device] = Medium(
                self._data_dir / device, self._medium_dir, profile, cache=cache, synced=disk.synced
            )
        return self._media[device]

    def remove_drafts(self) -> None:
        """Remove unfinished files of processes that have ended. Only the object server writes such files."""
        for directory in self.dirs.values():
            for draft in (directory / "tmp").glob("*"):
                draft.unlink(missing_ok=True)

    def dir(self, device: str) -> Path:
        """A device's directory. Raises: Refusal (507) if it is not there."""
        directory = self._directories.get(device)
        if directory is None:
            directory = self._directories[device] = self._data_dir / device
        if device in ("", ".", "..") or not os.path.isdir(directory):
            raise Refusal(507)
        return directory

    def target(self, call: Call, names_count: int) -> Target:
        """The target of a request; it must have this many names or one more. Raises: Refusal (400, 507)."""
        device, partition, *names = (*call.names, "", "")[: max(2, len(call.names))]
        if BY_HASH in call.headers and len(names) == 1 and layout.is_hash(names[0]):
            return Target(self.dir(device), partition, (), names[0], self.medium(device))
        if not partition.isdigit() or not names_count <= len(names) <= names_count + 1 or not all(names):
            raise Refusal(400, f"Invalid path: {call.path}")
        return Target(
            self.dir(device), partition, tuple(names), path_hash(names[:names_count], self._suffix), self.medium(device)
        )


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Convert disk errors inside the block to answers: 507 if there is no room, 500 otherwise, as Swift does."""
    try:
        yield
    except OSError as error:
        status = _DISK_ERRORS.get(error.errno or 0)
        if status is None:
            raise
        raise Refusal(status) from error
    except sqlite3.OperationalError as error:
        status = _DATABASE_ERRORS.get(error.sqlite_errorcode & _SQLITE_PRIMARY)
        if status is None:
            raise
        raise Refusal(status) from error


def policy_of(call: Call) -> int:
    """The storage policy that a request to an object server is about. Raises: Refusal (400)."""
    text = call.headers.get(POLICY_INDEX, "0")
    if not text.isdigit():
        raise Refusal(400, f"Invalid {POLICY_INDEX}")
    return int(text)


def timestamp_of(call: Call) -> str:
    """The time from which a change counts. Raises: Refusal (400) if the proxy gave none."""
    text = call.headers.get("X-Timestamp", "")
    if not text.replace(".", "", 1).isdigit():
        raise Refusal(400, "Missing or invalid X-Timestamp")
    return text


def metadata_headers(headers: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    """The headers to store, in their usual spelling; for accounts and containers, "" removes a header."""
    return {
        name.title().replace("_", "-"): value for name, value in headers.items() if name.lower().startswith(prefixes)
    }


def metadata_as_headers(metadata: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Stored metadata as response headers, without those that were removed."""
    return {name: value for name, (value, _) in metadata.items() if value}
