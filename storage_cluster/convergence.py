"""Checks whether the store has converged, by reading the devices directly rather than through the servers.

A store has converged when every object, container and account lies on all its primaries and nowhere else, the replicas
are equal (objects byte for byte, databases row for row; of fragments the versions, each primary with its own fragment),
and no container update is still to be delivered. Archives that are not durable do not count.
`disagreements` lists what differs from that; `losses` compares the devices with the writes that clients had confirmed.

Both work with the cluster up or down. While things change, `disagreements` may list what is only under way: repeat it
until it lists nothing, or a deadline has passed.
"""

import collections
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from storage_cluster.daemons.database_replicator import KINDS
from storage_cluster.ring import Ring, path_hash
from storage_cluster.servers.databases.container_db import ContainerDatabase
from storage_cluster.servers.databases.replicated_db import peek
from storage_cluster.servers.databases.updates import PendingUpdates
from storage_cluster.servers.disks import layout
from storage_cluster.servers.disks.diskfile import DamagedFileError, ObjectDir, check_file, newest_files
from storage_cluster.servers.disks.fragments import Archive, current_files, held_as, with_index
from storage_cluster.servers.object.replication import names_in, object_dir
from storage_cluster.topology import Device

Names = tuple[str, str, str]
_LOOK_AGAIN_S = 0.5


@dataclasses.dataclass(frozen=True)
class Expected:
    """An object's state as the store confirmed it to a client: its body's ETag, or None if it does not exist."""

    names: Names
    etag: str | None


def disagreements(data_dir: Path, rings: Mapping[str, Ring]) -> list[str]:
    """Replicas that are missing, that differ, or that lie on the wrong device; one line each."""
    devices = _devices(data_dir)
    found = list(_pending(devices))
    for ring in rings.values():
        found += _find_misplaced(ring, devices)
    return found


def await_agreement(
    data_dir: Path, rings: Mapping[str, Ring], patience_s: float, sleep: Callable[[float], None] = time.sleep
) -> list[str]:
    """Wait until there are no disagreements, or until the time limit; returns those that remain."""
    deadline = time.monotonic() + patience_s
    while (found := disagreements(data_dir, rings)) and time.monotonic() < deadline:
        sleep(_LOOK_AGAIN_S)
    return found


def losses(data_dir: Path, rings: Mapping[str, Ring], expected: Iterable[Expected]) -> list[str]:
    """Confirmed writes that a replica does not hold; a line for each."""
    found: list[str] = []
    listed: dict[tuple[str, str], dict[str, str]] = collections.defaultdict(dict)
    for one in expected:
        found += _object_losses(data_dir, rings["object"], one)
        rows = listed[one.names[:2]]
        if one.etag is not None:
            rows[one.names[2]] = one.etag
    for names, rows in listed.items():
        found += _listing_losses(data_dir, rings["container"], names, rows)
    return found


def _devices(data_dir: Path) -> dict[tuple[str, str], Path]:
    return {
        (host.name, device.name): device
        for host in sorted(data_dir.iterdir())
        if host.is_dir()
        for device in sorted(host.iterdir())
        if device.is_dir()
    }


def _pending(devices: Mapping[tuple[str, str], Path]) -> Iterator[str]:
    for (host, name), root in devices.items():
        count = sum(1 for _ in PendingUpdates(root).read())
        if count:
            yield f"{host}/{name} has {count} undelivered updates for containers"


def _find_misplaced(ring: Ring, devices: Mapping[tuple[str, str], Path]) -> Iterator[str]:
    where: dict[tuple[int, str], dict[tuple[str, str], Path]] = collections.defaultdict(dict)
    for place, root in devices.items():
        for partition, digest, directory in layout.hash_dirs(root, ring.directory):
            where[partition, digest][place] = directory
    for (partition, digest), directories in sorted(where.items()):
        primaries = [(device.host, device.name) for device in ring.primaries(partition)]
        if ring.kind == "object" and any(Archive.of(name) for each in directories.values() for name in names_in(each)):
            contents = {
                place: _fragments(each, primaries.index(place) if place in primaries else None)
                for place, each in directories.items()
            }
        else:
            contents = {place: _content(ring.kind, each) for place, each in directories.items()}
        holders = {place: content for place, content in contents.items() if content}
        what = f"{ring.name} {digest} (partition {partition})"
        if not holders:
            continue
        if missing := sorted(set(primaries) - holders.keys()):
            yield f"{what} is not on {_texts(missing)}"
        if astray := sorted(holders.keys() - set(primaries)):
            yield f"{what} is on {_texts(astray)}, which is a handoff"
        if len(set(holders.values())) > 1:
            yield f"{what} differs between {_texts(sorted(holders))}"


def _content(kind: str, directory: Path) -> object:
    """A value that two replicas share exactly if they are equal; falsy if the replica is empty."""
    if kind == "object":
        names = sorted(newest_files(names_in(directory)))
        try:
            return tuple((name, hashlib.md5((directory / name).read_bytes()).hexdigest()) for name in names)
        except FileNotFoundError:
            return "changes while it is read"
    return peek(
        KINDS[kind], directory / f"{directory.name}.db", lambda database: repr(database.state().comparable_state)
    )


def _fragments(directory: Path, index: int | None) -> object:
    """A value that two devices with fragments share if each has its own of the same versions; falsy if it has none.

    `index`: which fragment the device should have; None on a handoff, which should have none.
    """
    names = names_in(directory)
    archives = [archive for archive in map(Archive.of, current_files(names)) if archive is not None]
    strays = sorted(str(archive) for archive in archives if archive.durable and archive.index != index)
    held = sorted(held_as(names, -1 if index is None else index))
    try:
        for name in held:
            if index is not None:
                check_file(directory / with_index(name, index), name)
    except (DamagedFileError, FileNotFoundError):
        return "damaged, or changes while it is read"
    return tuple(strays + held)


def _object_losses(data_dir: Path, ring: Ring, one: Expected) -> Iterator[str]:
    partition, digest = ring.partition(*one.names), path_hash(one.names, ring.shape.hash_suffix)
    for device in ring.primaries(partition):
        stored = object_dir(data_dir / device.host / device.name, partition, digest)
        etag = _etag(stored)
        if etag != one.etag:
            yield f"{'/'.join(one.names)} on {_text(device)}: {etag or 'nothing'} instead of {one.etag or 'nothing'}"


def _etag(stored: ObjectDir) -> str | None:
    try:
        stored.check()
        info = stored.read_info()
    except FileNotFoundError:
        return None
    except DamagedFileError:
        return "a damaged file"
    return None if info is None else info.etag


def _listing_losses(data_dir: Path, ring: Ring, names: tuple[str, str], rows: Mapping[str, str]) -> Iterator[str]:
    partition, digest = ring.partition(*names), path_hash(names, ring.shape.hash_suffix)
    for device in ring.primaries(partition):
        directory = layout.hash_dir(data_dir / device.host / device.name, "containers", partition, digest)
        listed = peek(ContainerDatabase, directory / f"{digest}.db", _rows) or {}
        missing = sorted(name for name, etag in rows.items() if listed.get(name) != etag)
        extra = sorted(listed.keys() - rows.keys())
        for what, wrong in (("does not list", missing), ("still lists", extra)):
            if wrong:
                more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
                yield f"{'/'.join(names)} on {_text(device)} {what} {', '.join(wrong[:3])}{more}"


def _rows(database: ContainerDatabase) -> dict[str, str]:
    """Name and ETag of each object that a container's replica lists."""
    rows, _ = database.changes_after(0, -1)
    return {row.name: row.etag for row in rows if not row.deleted}


def _text(device: Device) -> str:
    return f"{device.host}/{device.name}"


def _texts(places: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{host}/{name}" for host, name in places)
