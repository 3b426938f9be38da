"""Objects, as the proxy sees them.

The upload follows the paper's figure 1: is the account there (6, 7), is the container there (8, 9), then the object to
all its storage servers (10, 11), and the answer (12).
"""

import mimetypes
from collections.abc import AsyncIterator, Mapping

from multidict import CIMultiDict

from storage_cluster.servers.backend import BackendAnswer, BackendStream, device_path
from storage_cluster.servers.messages import Call, Refusal, Reply, reply
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import required
from storage_cluster.servers.proxy.replicas import best_answer
from storage_cluster.servers.proxy.upload import Upload
from storage_cluster.servers.storage import metadata_headers
from storage_cluster.servers.times import http_date
from storage_cluster.servers.updates import Parent

NAME_MAX_BYTES = 1024
MAX_OBJECT_BYTES = 5_368_709_122
_NOT_OFFERED = ("X-Object-Manifest", "X-Copy-From", "X-Symlink-Target", "X-Delete-At", "X-Delete-After")
"""Headers that ask for what this store does not do; better refused than silently dropped."""
METADATA_PREFIXES = ("x-object-meta-", "content-encoding", "content-disposition")
_SHOWN = (*METADATA_PREFIXES, "content-type", "content-length", "etag", "last-modified", "x-timestamp")


class Objects:
    """Reads and changes objects."""

    def __init__(self, context: ProxyContext) -> None:
        self._replicas = context.replicas
        self._clock = context.clock
        self._infos = context.infos

    async def handle(self, call: Call, names: tuple[str, str, str]) -> Reply:
        """One request to an object."""
        if call.method not in ("PUT", "GET", "HEAD", "POST", "DELETE"):
            raise Refusal(405)
        if call.method in ("PUT", "POST"):
            _check_offered(call)
        container = await self._infos.container(call, *names[:2])
        await call.check_access(container.read_acl if call.method in ("GET", "HEAD") else container.write_acl)
        required(container)
        if call.method == "PUT":
            return await self._put(call, names)
        if call.method in ("GET", "HEAD"):
            return await self._get(call, names)
        return await self._change(call, names)

    async def _put(self, call: Call, names: tuple[str, str, str]) -> Reply:
        _check_put(call, names[2])
        timestamp = self._clock.now()
        headers = metadata_headers(call.headers, METADATA_PREFIXES)
        headers["Content-Type"] = call.headers.get("Content-Type") or _guessed_type(names[2])
        for name in ("Content-Length", "Etag", "If-None-Match"):
            if name in call.headers:
                headers[name] = call.headers[name]
        upload = Upload(self._replicas, names, self._for_replicas(call, names, timestamp, headers))
        best = best_answer(await upload.run(call), self._replicas.quorum)
        if not best.succeeded:
            raise Refusal(best.status)
        shown = {"Etag": best.headers["Etag"], "Last-Modified": http_date(timestamp)}
        return reply(201, shown | {"Content-Type": "text/html; charset=UTF-8"})

    async def _change(self, call: Call, names: tuple[str, str, str]) -> Reply:
        headers = metadata_headers(call.headers, METADATA_PREFIXES) if call.method == "POST" else {}
        if call.method == "POST" and call.headers.get("Content-Type"):
            headers["Content-Type"] = call.headers["Content-Type"]
        per_replica = self._for_replicas(call, names, self._clock.now(), headers)
        best = await self._replicas.change(names, call.method, per_replica.__getitem__)
        if not best.succeeded:
            raise Refusal(best.status)
        return reply(best.status)

    async def _get(self, call: Call, names: tuple[str, str, str]) -> Reply:
        if call.method == "HEAD":
            found = await self._replicas.first(names, "HEAD", {"X-Trans-Id": call.transaction_id})
            return _shown(found)
        stream = await self._open(call, names)
        return Reply(200, _kept(stream.headers), _chunks(stream))

    async def _open(self, call: Call, names: tuple[str, str, str]) -> BackendStream:
        """The response of the first replica that has the object. Raises: Refusal (404, 503)."""
        _, partition, _ = self._replicas.placement(*names)
        backend, not_found = self._replicas.backend, False
        for device in self._replicas.readable(*names):
            path = device_path(device, partition, *names)
            headers = {"X-Trans-Id": call.transaction_id}
            response = await backend.open(backend.service("object", device), "GET", path, headers)
            if response is not None and response.status == 200:
                return response
            if response is not None:
                not_found = not_found or response.status == 404
                response.close()
        raise Refusal(404 if not_found else 503)

    def _for_replicas(
        self, call: Call, names: tuple[str, str, str], timestamp: str, headers: dict[str, str]
    ) -> list[dict[str, str]]:
        _, partition, ring = self._replicas.placement(*names[:2])
        common = headers | {"X-Timestamp": timestamp, "X-Trans-Id": call.transaction_id}
        return [
            common | Parent.on_device("Container", self._replicas.backend, device, partition).headers
            for device in ring.primaries(partition)
        ]


async def _chunks(found: BackendStream) -> AsyncIterator[bytes]:
    try:
        async for chunk in found.chunks():
            yield chunk
    finally:
        found.close()


def _check_offered(call: Call) -> None:
    asked = [name for name in _NOT_OFFERED if name in call.headers]
    asked += [name for name in call.query if name == "multipart-manifest"]
    if asked:
        raise Refusal(501, f"{asked[0]} is not supported")


def _check_put(call: Call, name: str) -> None:
    if len(name.encode()) > NAME_MAX_BYTES:
        raise Refusal(400, f"Object name length of {len(name.encode())} longer than {NAME_MAX_BYTES}")
    if not call.body.framed:
        raise Refusal(411)
    if call.body.length is not None and call.body.length > MAX_OBJECT_BYTES:
        raise Refusal(413)


def _guessed_type(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _shown(found: BackendAnswer) -> Reply:
    if not found.succeeded:
        raise Refusal(found.status)
    return Reply(200, _kept(found.headers))


def _kept(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict({name: value for name, value in headers.items() if name.lower().startswith(_SHOWN)})
