"""The server's side of object replication: what an object server does for replicators and reconstructors.

    REPLICATE /device, [partitions]        the digest of each suffix directory of these partitions, as JSON
    SSYNC /device/partition                which files of these objects are wanted ({hash: [names]} in and out)
    PUT /device/partition/hash/name        with X-Backend-Replication: one file as it lies on another replica, whole

    GET /device/partition/hash             likewise: the body of an object of which only the hash is known

The names of a replica's files contain their versions (`diskfile`), so two suffix directories with the same digest of
names hold the same versions. Each policy has directories of its own; requests say which they are about. Whether the
files are intact is checked by the auditor.

Of fragments each device has another, so there names omit the index (`fragments.held_as`), and a reconstructor says with
REPLICATE and SSYNC which one the device should have (`X-Backend-Ssync-Frag-Index`). An archive that is wanted, is there
and is only not durable yet becomes so: who offers it knows that it was confirmed. A tombstone older than
`reclaim_age_s` no longer counts, and the replicator removes it.

Source: Swift, swift.obj.replicator and ssync (`REPLICATE`, missing_check); pushing raw files is our own, as rsync does.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from storage_cluster.policies import directory_name
from storage_cluster.servers.disks import layout
from storage_cluster.servers.disks.devices import BY_HASH, Devices, policy_of
from storage_cluster.servers.disks.diskfile import DamagedFileError, ObjectDir, newest_files
from storage_cluster.servers.disks.fragments import Archive, FragmentDir, held_as, object_at, with_index
from storage_cluster.servers.http.messages import Call, Refusal, Reply, reply
from storage_cluster.servers.http.times import timestamp_before

METHODS = ("REPLICATE", "SSYNC")
MARK = BY_HASH
FRAGMENT = "X-Backend-Ssync-Frag-Index"
_MESSAGE_MAX_BYTES = 16_777_216
OBJECTS = directory_name(0)
_SUFFIXES = (".data", ".meta", ".ts")
_FILE_NAME = re.compile(r"\d+\.?\d*(#\d+)?(#d)?\.data|\d+\.?\d*\.(meta|ts)")

Files = dict[str, list[str]]
"""Object's hash: names of its files."""
Digests = dict[str, str]
"""Suffix directory: digest."""
Held = Callable[[Collection[str]], set[str]]
"""Of an object's files, what counts when two devices are compared."""
OnDisk = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs blocking work on a thread."""


class ObjectReplication:
    """Answers other hosts' replicators."""

    def __init__(self, devices: Devices, reclaim_age_s: float, on_disk: OnDisk) -> None:
        self._devices = devices
        self._reclaim_age_s = reclaim_age_s
        self._on_disk = on_disk

    @staticmethod
    def concerns(call: Call) -> bool:
        """Whether a call is a replicator's."""
        return call.method in METHODS or (call.method == "PUT" and MARK in call.headers)

    async def handle(self, call: Call) -> Reply:
        """One call. Raises: Refusal."""
        device_dir, kind = self._devices.dir(call.names[0]), directory_name(policy_of(call))
        index = _fragment_of(call)
        if call.method == "REPLICATE":
            partitions = _partitions(await call.body.read(_MESSAGE_MAX_BYTES))
            found = functools.partial(self._digests, device_dir, kind, partitions, held_by(index))
            return _json_reply(await self._on_disk(found))
        if len(call.names) < 2 or not call.names[1].isdigit():
            raise Refusal(400)
        partition = int(call.names[1])
        if call.method == "SSYNC":
            offered = _offer(await call.body.read(_MESSAGE_MAX_BYTES))
            missing = functools.partial(self._missing_files, device_dir, kind, partition, offered, index)
            return _json_reply(await self._on_disk(missing))
        return await self._take(call, device_dir, kind, partition)

    def _digests(self, device_dir: Path, kind: str, partitions: list[int], held: Held) -> dict[int, Digests]:
        before = timestamp_before(self._reclaim_age_s)
        return {partition: digests(snapshot(device_dir, partition, before, kind, held)) for partition in partitions}

    def _missing_files(self, device_dir: Path, kind: str, partition: int, offered: Files, index: int | None) -> Files:
        wanted, held = {}, held_by(index)
        for path_hash, names in offered.items():
            stored = self._object(device_dir, kind, partition, path_hash)
            here = held(names_in(stored.directory))
            missing = newest_files(here | set(names)) - here
            if isinstance(stored, FragmentDir) and index is not None:
                missing = {name for name in missing if not _make_durable(stored, name, index)}
            if missing:
                wanted[path_hash] = sorted(missing)
        return wanted

    def _object(self, device_dir: Path, kind: str, partition: int, path_hash: str) -> ObjectDir:
        return object_at(device_dir, layout.hash_dir(device_dir, kind, partition, path_hash), self._devices.policies)

    async def _take(self, call: Call, device_dir: Path, kind: str, partition: int) -> Reply:
        path_hash, name = (*call.names[2:], "", "")[:2]
        if not layout.is_hash(path_hash) or not _is_file_name(name):
            raise Refusal(400)
        stored = self._object(device_dir, kind, partition, path_hash)
        if name not in stored.current({name, *names_in(stored.directory)}):
            raise Refusal(409)
        self._devices.medium(call.names[0]).admit(call.body.length or 0)
        new = stored.new_file()
        try:
            async for chunk in call.body:
                new.write(chunk)
            await self._on_disk(functools.partial(stored.commit_copy, new, name))
        except DamagedFileError:
            raise Refusal(422) from None
        finally:
            new.close()
        return reply(201)


def object_dir(device_dir: Path, partition: int, path_hash: str, kind: str = OBJECTS) -> ObjectDir:
    """An object known by its hash; `kind` is the directory of its policy."""
    return ObjectDir(device_dir, layout.hash_dir(device_dir, kind, partition, path_hash))


def names_in(directory: Path) -> list[str]:
    """The files of an object; none if there is no such directory."""
    try:
        return [name for name in os.listdir(directory) if name.endswith(_SUFFIXES)]
    except FileNotFoundError:
        return []


def held_by(index: int | None) -> Held:
    """What counts for a device that should have the fragment of that index; None: a replica."""
    return newest_files if index is None else functools.partial(held_as, index=index)


def files_of(
    device_dir: Path, partition: int, suffix: str, reclaim_before: str, kind: str = OBJECTS, held: Held = newest_files
) -> Files:
    """The current files of each object in a suffix directory, by hash; omits tombstones older than that moment."""
    suffix_dir = device_dir / kind / str(partition) / suffix
    found = {}
    for path_hash in _list_hashes(suffix_dir):
        names = sorted(held(names_in(suffix_dir / path_hash)))
        if not is_reclaimable(names, reclaim_before):
            found[path_hash] = names
    return {path_hash: names for path_hash, names in found.items() if names}


def is_reclaimable(names: list[str], reclaim_before: str) -> bool:
    """Whether an object has only a tombstone older than that moment."""
    return len(names) == 1 and names[0].endswith(".ts") and names[0] < reclaim_before


def snapshot(
    device_dir: Path, partition: int, reclaim_before: str, kind: str = OBJECTS, held: Held = newest_files
) -> dict[str, Files]:
    """The current files of a partition, by suffix directory; `held` chooses among an object's."""
    found = {
        suffix: files_of(device_dir, partition, suffix, reclaim_before, kind, held)
        for suffix in layout.suffixes(device_dir, kind, partition)
    }
    return {suffix: files for suffix, files in found.items() if files}


def digests(found: Mapping[str, Files]) -> Digests:
    """The digest of each suffix directory of a partition."""
    return {suffix: digest_of(files) for suffix, files in found.items()}


def digest_of(files: Files) -> str:
    """One hash for the files of a suffix directory."""
    md5 = hashlib.md5(usedforsecurity=False)
    for path_hash in sorted(files):
        md5.update(f"{path_hash}:{','.join(files[path_hash])}\n".encode())
    return md5.hexdigest()


def _make_durable(stored: FragmentDir, name: str, index: int) -> bool:
    """Make an archive durable that is here already (`name` without its index); False if it is not here."""
    archive = Archive.of(with_index(name, index))
    if archive is None or dataclasses.replace(archive, durable=False) not in stored.archives():
        return False
    stored.make_durable(archive.timestamp, index)
    return True


def _fragment_of(call: Call) -> int | None:
    """Which fragment the asked device should have; None of replicas. Raises: Refusal (400)."""
    text = call.headers.get(FRAGMENT)
    if text is not None and not text.isdigit():
        raise Refusal(400, f"Invalid {FRAGMENT}")
    return None if text is None else int(text)


def _partitions(body: bytes) -> list[int]:
    try:
        return [int(partition) for partition in json.loads(body)]
    except (ValueError, TypeError):
        raise Refusal(400) from None


def _offer(body: bytes) -> Files:
    try:
        offered = json.loads(body)
        sound = all(
            layout.is_hash(path_hash) and all(map(_is_file_name, names)) for path_hash, names in offered.items()
        )
    except (ValueError, TypeError, AttributeError):
        raise Refusal(400) from None
    if not sound:
        raise Refusal(400)
    return offered


def _list_hashes(directory: Path) -> Iterable[str]:
    try:
        return [name for name in os.listdir(directory) if layout.is_hash(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_file_name(text: str) -> bool:
    return _FILE_NAME.fullmatch(text) is not None


def _json_reply(document: object) -> Reply:
    return reply(200, {"Content-Type": "application/json"}, json.dumps(document).encode())
