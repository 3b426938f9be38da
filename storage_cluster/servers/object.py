"""The object server: objects' bodies and metadata on this host's devices.

`PUT|GET|HEAD|POST|DELETE /device/partition/account/container/object`, all from the proxy. A change is on disk, and the
container server has been told of it (or has not answered), before the proxy gets its 2xx.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, TypeVar

from multidict import CIMultiDict

from storage_cluster.servers import database
from storage_cluster.servers.backend import Backend
from storage_cluster.servers.diskfile import DamagedFileError, NewFile, ObjectDir, ObjectInfo
from storage_cluster.servers.messages import BrokenOff, Call, Refusal, Reply, reply
from storage_cluster.servers.storage import Devices, Target, metadata_headers, timestamp_of
from storage_cluster.servers.times import http_date
from storage_cluster.servers.updates import Parent, PendingUpdates, Update

PATH_SEGMENT_COUNT = 5
DISK_THREADS = 8
READ_CHUNK_BYTES = 262_144
METADATA_PREFIXES = ("x-object-meta-", "x-object-sysmeta-", "content-encoding", "content-disposition")

T = TypeVar("T")


class ObjectServer:
    """Answers for the objects on this host's devices."""

    def __init__(self, devices: Devices, backend: Backend) -> None:
        self._devices = devices
        self._backend = backend
        self._disk = ThreadPoolExecutor(DISK_THREADS, "disk")
        self._retrying = asyncio.create_task(self._retry_updates())

    async def close(self) -> None:
        """Wait for what the disk is doing."""
        self._retrying.cancel()
        await asyncio.gather(self._retrying, return_exceptions=True)
        self._disk.shutdown()

    async def handle(self, call: Call) -> Reply:
        """One call."""
        target = self._devices.target(call, 3)
        if len(target.names) != 3:
            raise Refusal(400)
        directory = database.hash_dir(target.device_dir, "objects", target.partition, target.hash)
        stored = ObjectDir(target.device_dir, directory)
        if call.method == "PUT":
            return await self._put(call, target, stored)
        if call.method in ("GET", "HEAD"):
            return await self._get(call, stored)
        if call.method == "POST":
            return await self._post(call, target, stored)
        if call.method == "DELETE":
            return await self._delete(call, target, stored)
        raise Refusal(405)

    async def _put(self, call: Call, target: Target, stored: ObjectDir) -> Reply:
        timestamp = timestamp_of(call)
        versions = stored.versions()
        if versions.newest >= timestamp:
            raise Refusal(409, headers={"X-Backend-Timestamp": versions.newest})
        if call.headers.get("If-None-Match") == "*" and versions.data > versions.tombstone:
            raise Refusal(412)
        content_type = call.headers.get("Content-Type", "application/octet-stream")
        new = stored.new_file()
        try:
            await call.body.proceed()
            async for chunk in call.body:
                new.write(chunk)
            _check_etag(call, new)
            metadata = metadata_headers(call.headers, METADATA_PREFIXES)
            await self._on_disk(functools.partial(stored.commit_data, new, timestamp, content_type, metadata))
        finally:
            new.close()
        update = {"X-Size": str(new.size), "X-Etag": new.etag, "X-Content-Type": content_type}
        await self._tell_container(call, "PUT", target, timestamp, update)
        return reply(201, {"Etag": new.etag, "Last-Modified": http_date(timestamp)})

    async def _get(self, call: Call, stored: ObjectDir) -> Reply:
        info = await self._info(stored)
        headers = CIMultiDict(_info_headers(info) | {"Content-Length": str(info.size)})
        if call.method == "HEAD":
            return Reply(200, headers)
        try:
            file = open(info.data_path, "rb")  # noqa: SIM115  closed with the reply's body
        except FileNotFoundError:
            raise Refusal(404) from None
        if info.size > READ_CHUNK_BYTES:
            return Reply(200, headers, self._read(file, info.size))
        with file:
            return Reply(200, headers, file.read(info.size))

    async def _read(self, file: BinaryIO, left: int) -> AsyncIterator[bytes]:
        with file:
            while left:
                chunk = await self._on_disk(functools.partial(file.read, min(left, READ_CHUNK_BYTES)))
                if not chunk:
                    raise BrokenOff
                left -= len(chunk)
                yield chunk

    async def _post(self, call: Call, target: Target, stored: ObjectDir) -> Reply:
        timestamp = timestamp_of(call)
        info = await self._info(stored)
        if info.timestamp >= timestamp:
            raise Refusal(409)
        content_type = call.headers.get("Content-Type", "")
        metadata = metadata_headers(call.headers, METADATA_PREFIXES)
        await self._on_disk(functools.partial(stored.write_meta, timestamp, content_type, metadata))
        if content_type:
            update = {"X-Size": str(info.size), "X-Etag": info.etag, "X-Content-Type": content_type}
            await self._tell_container(call, "PUT", target, timestamp, update)
        return reply(202)

    async def _delete(self, call: Call, target: Target, stored: ObjectDir) -> Reply:
        timestamp = timestamp_of(call)
        versions = stored.versions()
        if versions.newest >= timestamp:
            raise Refusal(409, headers={"X-Backend-Timestamp": versions.newest})
        existed = versions.data > versions.tombstone
        await self._on_disk(functools.partial(stored.write_tombstone, timestamp))
        await self._tell_container(call, "DELETE", target, timestamp, {})
        return reply(204 if existed else 404)

    async def _info(self, stored: ObjectDir) -> ObjectInfo:
        try:
            info = stored.read_info()
        except DamagedFileError:
            raise Refusal(404) from None
        if info is None:
            newest = stored.versions().newest
            raise Refusal(404, headers={"X-Backend-Timestamp": newest} if newest else None)
        return info

    async def _tell_container(
        self, call: Call, method: str, target: Target, timestamp: str, update: dict[str, str]
    ) -> None:
        parent = Parent.named_in(call.headers, "Container")
        word = Update(method, target.names, update | {"X-Timestamp": timestamp})
        if parent is not None and not await parent.tell(self._backend, word, call.transaction_id):
            await self._on_disk(functools.partial(PendingUpdates(target.device_dir).add, parent, word))

    async def _retry_updates(self) -> None:
        while True:
            await asyncio.sleep(self._backend.topology.intervals.update_retry_s)
            for device_dir in self._devices.dirs.values():
                await PendingUpdates(device_dir).retry(self._backend)

    async def _on_disk(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)


def _check_etag(call: Call, new: NewFile) -> None:
    wanted = call.headers.get("Etag", "").strip('"').lower()
    if wanted and wanted != new.etag:
        raise Refusal(422)


def _info_headers(info: ObjectInfo) -> dict[str, str]:
    return {
        "Content-Type": info.content_type,
        "Etag": info.etag,
        "Last-Modified": http_date(info.timestamp),
        "X-Timestamp": info.timestamp,
        "X-Backend-Timestamp": info.timestamp,
        **info.metadata,
    }
