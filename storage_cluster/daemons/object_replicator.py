"""The object replicator: every primary gets what this host has of a partition; a handoff that is no longer needed goes.

For each partition on each device of this host it asks the other primaries for the digests of their suffix directories,
offers them the files of those that differ, and sends what they want. What they have and this host lacks, their own
replicators send. A device that is not among a partition's primaries (a handoff of a bad hour, or a primary of an older
ring) is emptied of it as soon as all primaries have it.

A partition that has not changed since all others last agreed is left alone for `recheck_s`, so that a store at rest is
quiet; then it is compared anew, since the others may have lost something.

Source: Swift, swift.obj.replicator (`update`, `update_deleted`) and ssync_sender.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from storage_cluster.daemons.daemon import Surroundings, counted
from storage_cluster.servers import layout
from storage_cluster.servers.backend import NO_ANSWER, BackendAnswer, BackendUpload
from storage_cluster.servers.object_replication import (
    MARK,
    Files,
    digests,
    is_reclaimable,
    names_in,
    object_dir,
    snapshot,
)
from storage_cluster.servers.times import timestamp_before
from storage_cluster.topology import Device

AT_ONCE = 4
"""Partitions under way at the same time."""
OFFER_MAX = 200
"""Objects in one SSYNC."""
_READ_BYTES = 262_144
_TAKEN = (201, 409)  # 409: it has something newer by now
_DAMAGED_HERE = 422


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What a partition was like when all other primaries had it all."""

    digests: dict[str, str]
    primaries: tuple[Device, ...]
    at_s: float


class ObjectReplicator:
    """Replicates the objects on this host's devices."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._agreements: dict[tuple[str, int], Agreement] = {}
        self._counts: Counter[str] = Counter()

    async def run_once(self) -> str:
        """One pass over all partitions, handoffs first."""
        self._counts = Counter()
        limit = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*[self._limited(limit, name, root, part) for name, root, part in self._partitions()])
        return counted(self._counts)

    def _partitions(self) -> list[tuple[str, Path, int]]:
        ring = self._around.backend.rings["object"]
        found = [
            (name, root, partition)
            for name, root in self._around.devices.dirs.items()
            for partition in layout.partitions(root, "objects")
            if partition < ring.partition_count
        ]
        return sorted(found, key=lambda one: self._around.local_device(one[0], ring.primaries(one[2])) is not None)

    async def _limited(self, limit: asyncio.Semaphore, name: str, root: Path, partition: int) -> None:
        async with limit:
            await self._replicate(name, root, partition)

    async def _replicate(self, name: str, root: Path, partition: int) -> None:
        primaries = self._around.backend.rings["object"].primaries(partition)
        here = self._around.local_device(name, primaries)
        before = timestamp_before(self._around.intervals.reclaim_age_s)
        self._counts["tombstones reclaimed"] += await asyncio.to_thread(_tidy, root, partition, before)
        found = await asyncio.to_thread(snapshot, root, partition, before)
        if not found or self._agreed(name, partition, digests(found), primaries):
            return
        others = [device for device in primaries if device != here]
        if not all([await self._push(root, partition, device, found) for device in others]):
            return
        if here is None:
            await asyncio.to_thread(_empty, root, partition, found)
            self._counts["handoff partitions emptied"] += 1
        else:
            self._agreements[name, partition] = Agreement(digests(found), primaries, time.monotonic())

    def _agreed(self, name: str, partition: int, local: dict[str, str], primaries: tuple[Device, ...]) -> bool:
        known = self._agreements.get((name, partition))
        if known is None or (known.digests, known.primaries) != (local, primaries):
            return False
        return time.monotonic() - known.at_s < self._around.intervals.recheck_s

    async def _push(self, root: Path, partition: int, device: Device, found: Mapping[str, Files]) -> bool:
        """Give a device what it lacks of a partition; whether it has all now."""
        answer = await self._ask("REPLICATE", device, partition)
        if not answer.succeeded:
            return False
        theirs, ours = json.loads(answer.body), digests(found)
        offered = [item for suffix in found if theirs.get(suffix) != ours[suffix] for item in found[suffix].items()]
        for start in range(0, len(offered), OFFER_MAX):
            batch = dict(offered[start : start + OFFER_MAX])
            answer = await self._ask("SSYNC", device, partition, json.dumps(batch).encode())
            if not answer.succeeded:
                return False
            for path_hash, names in json.loads(answer.body).items():
                for name in names:
                    if not await self._send(root, partition, device, path_hash, name):
                        return False
        return True

    async def _ask(self, method: str, device: Device, partition: int, body: bytes = b"") -> BackendAnswer:
        backend = self._around.backend
        path = f"/{device.name}/{partition}"
        return await backend.request(backend.service("object", device), method, path, {}, body)

    async def _send(self, root: Path, partition: int, device: Device, path_hash: str, name: str) -> bool:
        backend = self._around.backend
        file_path = object_dir(root, partition, path_hash).directory / name
        try:
            file = open(file_path, "rb")  # noqa: SIM115  closed below
        except FileNotFoundError:  # replaced by a newer version: the next pass sends that
            return False
        with file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            headers = {MARK: "True", "Content-Length": str(size)}
            path = f"/{device.name}/{partition}/{path_hash}/{name}"
            upload = await backend.upload(backend.service("object", device), path, headers)
            status = NO_ANSWER if upload is None else await _pass_on(upload, file)
        if status == _DAMAGED_HERE:
            await asyncio.to_thread(object_dir(root, partition, path_hash).quarantine)
            self._counts["damaged objects quarantined"] += 1
        self._counts["files pushed"] += status == _TAKEN[0]
        return status in _TAKEN


async def _pass_on(upload: BackendUpload, file: BinaryIO) -> int:
    """Send a whole file; the server's status."""
    chunk = None
    while chunk != b"" and not upload.answered:
        chunk = await asyncio.to_thread(file.read, _READ_BYTES)
        upload.send(chunk)
        if upload.blocked and not await upload.paced():
            break
    return (await upload.answer()).status


def _tidy(root: Path, partition: int, before: str) -> int:
    """Remove old tombstones and what is empty; how many tombstones."""
    count = 0
    for suffix in layout.suffixes(root, "objects", partition):
        for directory in sorted((root / "objects" / str(partition) / suffix).iterdir()):
            names = names_in(directory)
            if is_reclaimable(names, before):
                (directory / names[0]).unlink(missing_ok=True)
                count += 1
            if not names or is_reclaimable(names, before):
                layout.remove_if_empty(directory)
    return count


def _empty(root: Path, partition: int, found: Mapping[str, Files]) -> None:
    """Remove these very files; what came since stays."""
    for files in found.values():
        for path_hash, names in files.items():
            directory = object_dir(root, partition, path_hash).directory
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    (directory / name).unlink()
            layout.remove_if_empty(directory)
