"""The object replicator: sends what this host has of a partition to every primary, and removes handoffs not needed.

It asks the other devices for the digests of the suffix directories of the partitions that it shares with them (many
partitions at once, so that a comparison is one request), offers them the files of those that differ, and sends the
files that they request. Files that this host lacks are sent by the other hosts' replicators. A device that is not among
a partition's primaries (it was a handoff, or a primary of an older ring) is emptied of it as soon as all primaries have
it. Fragments are the reconstructor's (`reconstructor`).

A partition that has not changed since all others last agreed is not compared for `recheck_s`, so that an idle
store causes little traffic; then it is compared again, since the other replicas may have lost something.

Source: Swift, swift.obj.replicator (`update`, `update_deleted`) and ssync_sender.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from storage_cluster.daemons.daemon import DaemonContext, counts_text
from storage_cluster.erasure import Code, code_of
from storage_cluster.policies import POLICY_INDEX, policy_index
from storage_cluster.ring import Ring
from storage_cluster.servers.disks import layout
from storage_cluster.servers.disks.diskfile import ObjectDir, newest_files
from storage_cluster.servers.disks.fragments import is_undecided
from storage_cluster.servers.http.backend import NO_ANSWER, BackendAnswer, BackendUpload
from storage_cluster.servers.http.times import timestamp_before
from storage_cluster.servers.object.replication import (
    FRAGMENT,
    MARK,
    Digests,
    Files,
    Held,
    digests,
    is_reclaimable,
    names_in,
    object_dir,
    snapshot,
)
from storage_cluster.topology import Device

AT_ONCE = 4
"""Partitions under way at the same time."""
COMPARED_MAX = 256
"""Partitions in one comparison."""
OFFER_MAX = 200
"""Objects in one SSYNC."""
_READ_BYTES = 262_144
TAKEN = (201, 409)  # 409: it has something newer by now
_DAMAGED_HERE = 422


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The state of a partition when all other primaries had all of it."""

    digests: Digests
    primaries: tuple[Device, ...]
    at_s: float


@dataclasses.dataclass(frozen=True)
class Asked:
    """A device that is compared, and which fragment it should have; None: a replica."""

    device: Device
    fragment: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What a request to it says of that."""
        return {} if self.fragment is None else {FRAGMENT: str(self.fragment)}


@dataclasses.dataclass(frozen=True)
class Work:
    """A partition on a device of this host that is to be compared."""

    ring: Ring
    device: str
    root: Path
    partition: int
    primaries: tuple[Device, ...]
    here: Device | None  # this device, if it is a primary
    found: Mapping[str, Files]
    digests: Digests

    def object_dir(self, path_hash: str) -> ObjectDir:
        """One of its objects."""
        return object_dir(self.root, self.partition, path_hash, self.ring.directory)

    @property
    def directory(self) -> Path:
        """Where its objects are."""
        return self.root / self.ring.directory / str(self.partition)

    @property
    def others(self) -> list[Device]:
        """The primaries on other devices."""
        return [device for device in self.primaries if device != self.here]


class ObjectReplicator:
    """Replicates the objects on this host's devices."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._agreements: dict[tuple[str, str, int], Agreement] = {}
        self._counts: Counter[str] = Counter()

    async def run_once(self) -> str:
        """One pass over all partitions, handoffs first."""
        self._counts = Counter()
        for ring in self._rings():
            for name, root in self._context.devices.dirs.items():
                partitions = self._partitions(ring, name, root)
                for start in range(0, len(partitions), COMPARED_MAX):
                    chosen = partitions[start : start + COMPARED_MAX]
                    due = await asyncio.to_thread(self._due, ring, name, root, chosen)
                    await self._replicate(ring, due)
        return counts_text(self._counts)

    def _rings(self) -> list[Ring]:
        """Those of the policies that this daemon cares for."""
        found = self._context.backend.rings
        return [found[name] for name in found if found[name].kind == "object" and self._is_ours(found[name])]

    def _is_ours(self, ring: Ring) -> bool:
        return self._code(ring) is None

    def _code(self, ring: Ring) -> Code | None:
        return code_of(self._context.devices.policies, policy_index(ring.name))

    def _partitions(self, ring: Ring, name: str, root: Path) -> list[int]:
        found = [part for part in layout.partitions(root, ring.directory) if part < ring.partition_count]
        return sorted(found, key=lambda part: self._context.local_device(name, ring.primaries(part)) is not None)

    def _due(self, ring: Ring, name: str, root: Path, partitions: Sequence[int]) -> list[Work]:
        """Those of these partitions that have changed or were not compared for long. Removes what is obsolete."""
        before = timestamp_before(self._context.intervals.reclaim_age_s)
        works = []
        for partition in partitions:
            self._counts["tombstones reclaimed"] += _tidy(root / ring.directory / str(partition), before)
            primaries = ring.primaries(partition)
            here = self._context.local_device(name, primaries)
            found = snapshot(root, partition, before, ring.directory, self._compared_files(primaries, here))
            work = Work(ring, name, root, partition, primaries, here, found, digests(found))
            if self._is_due(work):
                works.append(work)
        return works

    def _compared_files(self, _: tuple[Device, ...], __: Device | None) -> Held:
        """Which files of an object a device compares with the primaries, given these and itself if it is one."""
        return newest_files

    async def _replicate(self, ring: Ring, works: list[Work]) -> None:
        asked: dict[Asked, list[int]] = {}
        for work in works:
            for device in work.others:
                asked.setdefault(self._device_of(work, device), []).append(work.partition)
        answers = await asyncio.gather(*[self._digests(ring, one, partitions) for one, partitions in asked.items()])
        theirs = dict(zip(asked, answers, strict=True))
        limit = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*[self._settle(limit, work, theirs) for work in works])

    def _device_of(self, _: Work, device: Device) -> "Asked":
        return Asked(device)

    async def _settle(
        self, limit: asyncio.Semaphore, work: Work, theirs: "Mapping[Asked, Mapping[int, Digests] | None]"
    ) -> None:
        async with limit:
            asked = [self._device_of(work, device) for device in work.others]
            if not all([await self._push(work, one, theirs[one]) for one in asked]):
                return
            if work.here is None:
                await asyncio.to_thread(_empty, work)
                self._counts["handoff partitions emptied"] += 1
            else:
                agreement = Agreement(work.digests, work.primaries, time.monotonic())
                self._agreements[work.ring.name, work.device, work.partition] = agreement

    def _is_due(self, work: Work) -> bool:
        """Whether a partition has something, and has changed or was not compared for long."""
        return bool(work.found) and not self._is_agreed(work)

    def _is_agreed(self, work: Work) -> bool:
        known = self._agreements.get((work.ring.name, work.device, work.partition))
        if known is None or (known.digests, known.primaries) != (work.digests, work.primaries):
            return False
        return time.monotonic() - known.at_s < self._context.intervals.recheck_s

    async def _digests(self, ring: Ring, asked: "Asked", partitions: list[int]) -> dict[int, Digests] | None:
        """The digests of these partitions on a device; None if it does not answer."""
        answer = await self._ask(ring, "REPLICATE", asked, f"/{asked.device.name}", partitions)
        if not answer.is_success:
            return None
        return {int(partition): found for partition, found in json.loads(answer.body).items()}

    async def _push(self, work: Work, asked: "Asked", theirs: Mapping[int, Digests] | None) -> bool:
        """Send a device what it lacks of a partition; returns whether it has all of it now."""
        if theirs is None:
            return False
        known = theirs.get(work.partition, {})
        differing = [work.found[suffix] for suffix in work.found if known.get(suffix) != work.digests[suffix]]
        return await self._offer(work, asked, [item for files in differing for item in files.items()])

    async def _offer(self, work: Work, asked: "Asked", offered: Sequence[tuple[str, list[str]]]) -> bool:
        """Offer a device these files of objects, and send what it wants; returns whether it has all of them now."""
        complete = True
        for start in range(0, len(offered), OFFER_MAX):
            path, batch = f"/{asked.device.name}/{work.partition}", dict(offered[start : start + OFFER_MAX])
            answer = await self._ask(work.ring, "SSYNC", asked, path, batch)
            if not answer.is_success:
                return False
            wanted: Files = json.loads(answer.body)
            sent = [await self._send(work, asked, *one) for one in _each(wanted)]
            complete = complete and all(sent)
        return complete

    async def _ask(self, ring: Ring, method: str, asked: "Asked", path: str, document: object) -> BackendAnswer:
        backend, body = self._context.backend, json.dumps(document).encode()
        headers = policy_headers(ring) | asked.headers
        return await backend.request(backend.service("object", asked.device), method, path, headers, body)

    async def _send(self, work: Work, asked: "Asked", path_hash: str, name: str) -> bool:
        """Send a device a file as it lies here; returns whether it has it, or something newer, now."""
        device = asked.device
        backend, stored = self._context.backend, work.object_dir(path_hash)
        file_path = stored.directory / name
        try:
            file = open(file_path, "rb")  # noqa: SIM115  closed below
        except FileNotFoundError:  # replaced by a newer version: the next pass sends that
            return False
        with file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            headers = {MARK: "True", "Content-Length": str(size), **policy_headers(work.ring)}
            path = f"/{device.name}/{work.partition}/{path_hash}/{quote(name)}"
            upload = await backend.upload(backend.service("object", device), path, headers)
            status = NO_ANSWER if upload is None else await _pass_on(upload, file)
        if status == _DAMAGED_HERE:
            await asyncio.to_thread(stored.quarantine)
            self._counts["damaged objects quarantined"] += 1
        self._counts["files pushed"] += status == TAKEN[0]
        return status in TAKEN


def _each(files: Files) -> Iterator[tuple[str, str]]:
    """The hash and name of each file."""
    return ((path_hash, name) for path_hash, names in files.items() for name in names)


async def _pass_on(upload: BackendUpload, file: BinaryIO) -> int:
    """Send a whole file; returns the server's status."""
    chunk = None
    while chunk != b"" and not upload.is_answered:
        chunk = await asyncio.to_thread(file.read, _READ_BYTES)
        upload.send(chunk)
        if upload.is_blocked and not await upload.wait_for_room():
            break
    return (await upload.answer()).status


def policy_headers(ring: Ring) -> dict[str, str]:
    """Which policy's objects a request is about."""
    index = ring.name.partition("-")[2]
    return {POLICY_INDEX: index} if index else {}


def _tidy(partition_dir: Path, before: str) -> int:
    """Remove old tombstones, archives that never became durable, and empty directories; the number of tombstones."""
    count = 0
    for suffix in layout.suffixes(partition_dir.parent.parent, partition_dir.parent.name, int(partition_dir.name)):
        for directory in sorted((partition_dir / suffix).iterdir()):
            names = names_in(directory)
            for name in [name for name in names if is_undecided(name, before)]:
                (directory / name).unlink(missing_ok=True)
                names.remove(name)
            if is_reclaimable(names, before):
                (directory / names[0]).unlink(missing_ok=True)
                count += 1
            if not names or is_reclaimable(names, before):
                layout.remove_if_empty(directory)
    return count


def _empty(work: Work) -> None:
    """Remove exactly the files that were listed before; files written since stay."""
    for files in work.found.values():
        for path_hash, names in files.items():
            directory = work.object_dir(path_hash).directory
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    (directory / name).unlink()
            layout.remove_if_empty(directory)
