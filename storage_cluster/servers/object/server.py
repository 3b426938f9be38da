"""The object server: objects' bodies and metadata on this host's devices.

`PUT|GET|HEAD|POST|DELETE /device/partition/account/container/object`, all from the proxy or from daemons. Where the
policy is erasure coding, what is put and got is an archive of fragments, and a PUT has two phases (`multiphase`). A
change is on disk, and the container server has been informed of it (or has not answered), before the caller gets its
2xx.

Metadata comes and goes as headers: the user's (X-Object-Meta-), those that a client wants to see again
(Content-Encoding, …), and what the proxy's features keep (sysmeta). A POST replaces all but sysmeta.

Source: Swift, swift.obj.server.
"""

import asyncio
import functools
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from multidict import CIMultiDict

from storage_cluster.policies import directory_name
from storage_cluster.servers.databases.updates import PendingUpdates
from storage_cluster.servers.disks import fragments, layout
from storage_cluster.servers.disks.accesses import parse_access
from storage_cluster.servers.disks.devices import (
    Devices,
    Target,
    disk_errors,
    metadata_headers,
    policy_of,
    timestamp_of,
)
from storage_cluster.servers.disks.diskfile import DamagedFileError, NewFile, ObjectDir, ObjectInfo
from storage_cluster.servers.disks.fragments import FragmentDir, Preference, object_at
from storage_cluster.servers.disks.transfers import Scheduler, Transfers, TurnsLog
from storage_cluster.servers.http import conditions, ranges
from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.content_type import with_swift_bytes_of
from storage_cluster.servers.http.messages import ACCESS, BrokenOff, Call, Refusal, Reply, reply
from storage_cluster.servers.http.multiphase import ARCHIVE_LEN, BOUNDARY, Documents
from storage_cluster.servers.http.times import http_date
from storage_cluster.servers.object import expiry
from storage_cluster.servers.object.replication import ObjectReplication
from storage_cluster.servers.object.updates import ObjectUpdates

PATH_SEGMENT_COUNT = 5
DISK_THREADS = 32
"""As many syncs may wait for the disk: the file system's journal and the disk's flushes serve all of them at once. One
thread that syncs 32 files in turn takes ten times as long, at the same cost in processor time."""
READ_CHUNK_BYTES = 262_144
SMALL_SHARE = 0.5
"""Of what cannot be reserved, the share that small transfers without a reservation are sure to get."""
CLIENT_METADATA = (
    "x-object-meta-",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "x-delete-at",
    "x-object-manifest",
    "x-robots-tag",
)
"""Headers that are kept, by their beginnings: those that a client may set …"""
METADATA = (*CLIENT_METADATA, "x-static-large-object", "x-object-sysmeta-", "x-object-transient-sysmeta-")
"""… and those that the proxy's features set."""

PREFERENCES = "X-Backend-Fragment-Preferences"
"""With a GET of fragments: which are wanted (`disks.fragments`); without it only what is durable is given."""
FRAGMENTS = "X-Backend-Fragments"
"""With its answer: the indexes of the fragments that the device has, by their moments."""
DURABLE = "X-Backend-Durable-Timestamp"
"""With its answer: the moment of those that are durable."""

IF_TIMESTAMP = "X-Backend-If-Timestamp"
"""With a PUT: refuse it unless the newest change of what is stored is of this moment."""
UPLOAD = "X-Object-Sysmeta-S3-Upload"
"""Of an object that a multipart upload made: which one, whose parts its manifest names."""
REPLACED_UPLOAD = "X-Backend-Replaced-Upload"
"""With the answer to a PUT or DELETE: the upload that made the object which was there before."""

T = TypeVar("T")


class ObjectServer:
    """Handles requests for the objects on this host's devices."""

    def __init__(self, devices: Devices, backend: Backend, turns_file: Path) -> None:
        """`turns_file`: where each turn that a reservation made necessary is noted."""
        self._devices = devices
        self._options = backend.topology.reservations
        self._turns_log = TurnsLog(turns_file)
        self._schedulers: dict[str, Scheduler] = {}
        self._disk = ThreadPoolExecutor(DISK_THREADS, "disk")
        self._updates = ObjectUpdates(devices, backend, self._disk)
        self._replication = ObjectReplication(devices, backend.topology.intervals.reclaim_age_s, self._on_disk)
        devices.remove_drafts()
        for directory in devices.dirs.values():
            PendingUpdates(directory).remove_drafts()

    def close(self) -> None:
        """Wait for disk operations in progress."""
        self._disk.shutdown()
        self._turns_log.close()

    async def handle(self, call: Call) -> Reply:
        """One call."""
        with disk_errors():
            if self._replication.concerns(call):
                return await self._replication.handle(call)
            target = self._devices.target(call, 3)
            is_by_hash = call.method == "GET" and not target.names
            if len(target.names) != 3 and not is_by_hash:
                raise Refusal(400)
            return await self._handle(call, target)

    async def _handle(self, call: Call, target: Target) -> Reply:
        directory = layout.hash_dir(target.device_dir, directory_name(policy_of(call)), target.partition, target.hash)
        stored = object_at(target.device_dir, directory, self._devices.policies)
        if call.method == "PUT":
            return await self._put(call, target, stored)
        if call.method in ("GET", "HEAD"):
            return await self._get(call, target, stored)
        if call.method == "POST":
            return await self._post(call, target, stored)
        if call.method == "DELETE":
            return await self._delete(call, target, stored)
        raise Refusal(405)

    async def _put(self, call: Call, target: Target, stored: ObjectDir) -> Reply:
        timestamp = timestamp_of(call)
        before = _info_or_quarantine(stored)
        _check_newest(stored, timestamp)
        if IF_TIMESTAMP in call.headers and call.headers[IF_TIMESTAMP] != stored.versions().newest:
            raise Refusal(412)
        if call.headers.get("If-None-Match") == "*" and before is not None and not expiry.has_expired(before.metadata):
            raise Refusal(412)
        content_type = call.headers.get("Content-Type", "application/octet-stream")
        documents = Documents(call.body, call.headers[BOUNDARY]) if BOUNDARY in call.headers else None
        if isinstance(stored, FragmentDir) is (documents is None):
            raise Refusal(400, "An upload in two phases is for fragments, and another one for replicas")
        target.medium.admit(int(call.headers.get(ARCHIVE_LEN, call.body.length or 0)))
        new = stored.new_file()
        transfers = self._transfers(call, target)
        try:
            async for chunk in call.body if documents is None else documents.chunks():
                new.write(chunk)
                await transfers.write(len(chunk))
            footers: Mapping[str, str] = call.body.trailers if documents is None else await documents.footers()
            _check_etag(footers.get("Etag", call.headers.get("Etag", "")), new)
            metadata = metadata_headers(call.headers, METADATA) | metadata_headers(footers, METADATA)
            if documents is not None and not metadata.get(fragments.INDEX, "").isdigit():
                raise Refusal(400, f"Missing {fragments.INDEX}")
            await transfers.sync()
            await self._on_disk(functools.partial(stored.commit_data, new, timestamp, content_type, metadata))
            if documents is not None:
                await documents.await_confirmation()
                await transfers.sync()
                await self._make_durable(stored, timestamp, metadata)
        finally:
            new.close()
            transfers.close()
        row = _row(new.size, new.etag, content_type, metadata)
        await self._updates.container_put(call, target, timestamp, row, metadata)
        await self._updates.expiry(call, target, timestamp, before.metadata if before else {}, metadata)
        replaced = _replaced_upload(before, metadata)
        return reply(201, {"Etag": new.etag, "Last-Modified": http_date(timestamp), **replaced})

    async def _make_durable(self, stored: ObjectDir, timestamp: str, metadata: Mapping[str, str]) -> None:
        """Raises: Refusal (503) if the archive is not there any more."""
        assert isinstance(stored, FragmentDir)
        try:
            await self._on_disk(functools.partial(stored.make_durable, timestamp, int(metadata[fragments.INDEX])))
        except FileNotFoundError:
            raise Refusal(503) from None

    async def _get(self, call: Call, target: Target, stored: ObjectDir) -> Reply:
        transfers = self._transfers(call, target)
        await transfers.read_metadata()
        info = self._info(call, stored)
        headers = CIMultiDict(_info_headers(info))
        if isinstance(stored, FragmentDir):
            headers.update(_fragment_headers(stored))
        unwanted = conditions.check_conditions(call.headers, headers)
        if unwanted is not None:
            return unwanted
        if call.method == "HEAD":
            headers["Content-Length"] = str(info.size)
            return Reply(200, headers)
        try:
            opened = os.open(info.data_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Refusal(404) from None
        asked = call.headers.get("Range")
        if asked is None and info.size <= READ_CHUNK_BYTES:
            headers["Content-Length"] = str(info.size)
            await transfers.read(info.size, 0)
            return Reply(200, headers, _verify_body(_read_all(opened, info.size), stored, info))
        reader = functools.partial(self._read, transfers, opened)
        if asked is None:
            reader = functools.partial(self._read_whole, transfers, opened, stored, info)
        found = ranges.reply_with_ranges(200, headers, info.size, asked, reader)
        found.on_close = functools.partial(_close, opened, transfers)
        return found

    async def _read(self, transfers: Transfers, opened: int, start: int, stop: int) -> AsyncIterator[bytes]:
        while start < stop:
            wanted = min(stop - start, READ_CHUNK_BYTES)
            try:
                wanted = await transfers.read_some(wanted, start, stop)
                chunk = await self._on_disk(functools.partial(os.pread, opened, wanted, start))
            except OSError as error:
                raise BrokenOff from error
            if not chunk:
                raise BrokenOff
            start += len(chunk)
            yield chunk

    async def _read_whole(
        self, transfers: Transfers, opened: int, stored: ObjectDir, info: ObjectInfo, start: int, stop: int
    ) -> AsyncIterator[bytes]:
        """The body; its last piece is sent only if the whole body is intact, the others as they are read."""
        md5 = hashlib.md5(usedforsecurity=False)
        async for chunk in self._read(transfers, opened, start, stop):
            md5.update(chunk)
            start += len(chunk)
            if start == stop and md5.hexdigest() != info.etag:
                stored.quarantine()
                raise BrokenOff
            yield chunk

    async def _post(self, call: Call, target: Target, stored: ObjectDir) -> Reply:
        timestamp = timestamp_of(call)
        info = self._info(call, stored)
        _check_newest(stored, timestamp)
        content_type = with_swift_bytes_of(call.headers.get("Content-Type") or info.content_type, info.content_type)
        metadata = metadata_headers(call.headers, METADATA)
        await self._transfers(call, target).sync()
        await self._on_disk(functools.partial(stored.write_meta, timestamp, content_type, metadata))
        row = _row(info.size, info.etag, content_type, info.metadata)
        await self._updates.container_put(call, target, timestamp, row, info.metadata)
        await self._updates.expiry(call, target, timestamp, info.metadata, metadata)
        return reply(202, {k: v for k, v in info.metadata.items() if k.startswith("X-Object-Sysmeta-")})

    async def _delete(self, call: Call, target: Target, stored: ObjectDir) -> Reply:
        timestamp = timestamp_of(call)
        before = _info_or_quarantine(stored)
        due = expiry.moment_meant(call.headers)
        if due is not None and before is None:
            raise Refusal(404)
        if due is not None and before is not None and int(before.metadata.get("X-Delete-At", "0")) != due:
            raise Refusal(412, "X-If-Delete-At and X-Delete-At do not match")
        _check_newest(stored, timestamp)
        existed = before is not None and (due is not None or not expiry.has_expired(before.metadata))
        await self._transfers(call, target).sync()
        await self._on_disk(functools.partial(stored.write_tombstone, timestamp))
        await self._updates.container_delete(call, target, timestamp)
        await self._updates.expiry(call, target, timestamp, before.metadata if before else {}, {})
        return reply(204 if existed else 404, _replaced_upload(before, {}))

    def _info(self, call: Call, stored: ObjectDir) -> ObjectInfo:
        """The stored object. Raises: Refusal (404 with the time of the newest change; 412 on If-Match)."""
        info = _info_or_quarantine(stored, _preferences(call))
        if info is not None and not expiry.has_expired(info.metadata):
            return info
        versions = stored.versions()
        is_unwanted = info is None and versions.data > versions.tombstone
        newest = "" if is_unwanted else versions.newest
        refused = conditions.absent(call.headers) if call.method in ("GET", "HEAD") else None
        text = None if refused is None else ""
        raise Refusal(refused.status if refused else 404, text, {"X-Backend-Timestamp": newest} if newest else None)

    def _transfers(self, call: Call, target: Target) -> Transfers:
        device = target.device_dir.name
        scheduler = self._schedulers.get(device)
        if scheduler is None:
            options, place = self._options, (self._devices.host, device)
            small_rate = round(SMALL_SHARE * (1 - options.reservable) * target.medium.bytes_per_s)
            scheduler = Scheduler(place, options, small_rate, self._turns_log)
            self._schedulers[device] = scheduler
        text = call.headers.get(ACCESS)
        access = None if text is None else parse_access(text)
        return Transfers(target.medium, scheduler, _stream(target), access, call.transaction_id)

    async def _on_disk(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)


def _stream(target: Target) -> int:
    """The object's number on the medium."""
    return int(target.hash[:15], 16)


def _close(opened: int, transfers: Transfers) -> None:
    transfers.close()
    os.close(opened)


def _info_or_quarantine(stored: ObjectDir, preferences: Sequence[Preference] | None = None) -> ObjectInfo | None:
    try:
        return stored.read_info(preferences) if isinstance(stored, FragmentDir) else stored.read_info()
    except DamagedFileError:
        stored.quarantine()
        return None


def _replaced_upload(before: ObjectInfo | None, metadata: Mapping[str, str]) -> dict[str, str]:
    upload_id = before.metadata.get(UPLOAD) if before is not None else None
    return {REPLACED_UPLOAD: upload_id} if upload_id and upload_id != metadata.get(UPLOAD) else {}


def _check_newest(stored: ObjectDir, timestamp: str) -> None:
    newest = stored.versions().newest
    if newest >= timestamp:
        raise Refusal(409, headers={"X-Backend-Timestamp": newest})


def _check_etag(wanted: str, new: NewFile) -> None:
    wanted = wanted.strip('"')
    if wanted and wanted != new.etag:
        raise Refusal(422)


def _preferences(call: Call) -> list[Preference] | None:
    """Which fragments a reader wants. Raises: Refusal (400)."""
    text = call.headers.get(PREFERENCES)
    try:
        return None if text is None else fragments.parse_preferences(text)
    except ValueError:
        raise Refusal(400, f"Invalid {PREFERENCES}") from None


def _row(size: int, etag: str, content_type: str, metadata: Mapping[str, str]) -> tuple[int, str, str]:
    """What the container lists: of a fragment the size and ETag of the whole object."""
    return int(metadata.get(fragments.SIZE, size)), metadata.get(fragments.ETAG, etag), content_type


def _fragment_headers(stored: FragmentDir) -> dict[str, str]:
    """Which fragments of an object are here, by moment, and which moment is durable."""
    held: dict[str, list[int]] = {}
    for archive in stored.archives():
        held.setdefault(archive.timestamp, []).append(archive.index)
    durable = stored.versions().data
    return {FRAGMENTS: json.dumps(held)} | ({DURABLE: durable} if durable in held else {})


def _read_all(opened: int, size: int) -> bytes:
    try:
        return os.pread(opened, size, 0)
    finally:
        os.close(opened)


def _verify_body(body: bytes, stored: ObjectDir, info: ObjectInfo) -> bytes:
    """The body, if intact. Raises: Refusal (404) after quarantining a damaged object."""
    if hashlib.md5(body, usedforsecurity=False).hexdigest() != info.etag:
        stored.quarantine()
        raise Refusal(404)
    return body


def _info_headers(info: ObjectInfo) -> dict[str, str]:
    return {
        "Content-Type": info.content_type,
        **info.metadata,
        "Etag": info.etag,
        "Last-Modified": http_date(info.timestamp),
        "X-Timestamp": info.timestamp,
        "X-Backend-Timestamp": info.timestamp,
        "X-Backend-Data-Timestamp": info.data_timestamp,
        "Accept-Ranges": "bytes",
    }
