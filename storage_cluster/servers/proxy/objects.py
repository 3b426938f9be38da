"""Objects, as the proxy sees them.

The upload follows the paper's figure 1: is the account there (6, 7), is the container there (8, 9), then the object to
all its storage servers (10, 11), and the answer (12).
"""

import mimetypes
from collections.abc import Mapping

import aiohttp
from aiohttp import web

from storage_cluster.servers.backend import BackendAnswer, device_path, next_chunk
from storage_cluster.servers.http import READ_CHUNK_BYTES, Refusal, Request, answer
from storage_cluster.servers.proxy.accounts import Accounts
from storage_cluster.servers.proxy.containers import Containers
from storage_cluster.servers.proxy.replicas import Replicas, best_answer
from storage_cluster.servers.proxy.upload import Upload
from storage_cluster.servers.storage import metadata_headers
from storage_cluster.servers.times import TimestampMaker, http_date
from storage_cluster.servers.updates import Parent

NAME_MAX_BYTES = 1024
MAX_OBJECT_BYTES = 5_368_709_122
_NOT_OFFERED = ("X-Object-Manifest", "X-Copy-From", "X-Symlink-Target", "X-Delete-At", "X-Delete-After")
"""Headers that ask for what this store does not do; better refused than silently dropped."""
METADATA_PREFIXES = ("x-object-meta-", "content-encoding", "content-disposition")
_SHOWN = (*METADATA_PREFIXES, "content-type", "content-length", "etag", "last-modified", "x-timestamp")


class Objects:
    """Reads and changes objects."""

    def __init__(self, replicas: Replicas, clock: TimestampMaker, accounts: Accounts, containers: Containers) -> None:
        self._replicas = replicas
        self._clock = clock
        self._accounts = accounts
        self._containers = containers

    async def handle(self, request: Request, names: tuple[str, str, str]) -> web.StreamResponse:
        """One request to an object."""
        if request.method not in ("PUT", "GET", "HEAD", "POST", "DELETE"):
            raise Refusal(405)
        if request.method in ("PUT", "POST"):
            _check_offered(request)
        await self._accounts.require(names[0], request.transaction_id)
        await self._containers.require(names[:2], request.transaction_id)
        if request.method == "PUT":
            return await self._put(request, names)
        if request.method in ("GET", "HEAD"):
            return await self._get(request, names)
        return await self._change(request, names)

    async def _put(self, request: Request, names: tuple[str, str, str]) -> web.Response:
        _check_put(request, names[2])
        timestamp = self._clock.now()
        headers = metadata_headers(request.headers, METADATA_PREFIXES)
        headers["Content-Type"] = request.headers.get("Content-Type") or _guessed_type(names[2])
        for name in ("Content-Length", "Etag", "If-None-Match"):
            if name in request.headers:
                headers[name] = request.headers[name]
        upload = Upload(self._replicas, names, self._for_replicas(request, names, timestamp, headers))
        best = best_answer(await upload.run(request), self._replicas.quorum)
        if not best.succeeded:
            raise Refusal(best.status)
        shown = {"Etag": best.headers["Etag"], "Last-Modified": http_date(timestamp)}
        return answer(201, shown | {"Content-Type": "text/html; charset=UTF-8"})

    async def _change(self, request: Request, names: tuple[str, str, str]) -> web.Response:
        headers = metadata_headers(request.headers, METADATA_PREFIXES) if request.method == "POST" else {}
        if request.method == "POST" and request.headers.get("Content-Type"):
            headers["Content-Type"] = request.headers["Content-Type"]
        per_replica = self._for_replicas(request, names, self._clock.now(), headers)
        best = await self._replicas.change(names, request.method, per_replica.__getitem__)
        if not best.succeeded:
            raise Refusal(best.status)
        return answer(best.status)

    async def _get(self, request: Request, names: tuple[str, str, str]) -> web.StreamResponse:
        if request.method == "HEAD":
            found = await self._replicas.first(names, "HEAD", {"X-Trans-Id": request.transaction_id})
            return _shown(found)
        backend_response = await self._open(request, names)
        async with backend_response:
            response = web.StreamResponse(headers=_kept(backend_response.headers))
            response.headers["X-Trans-Id"] = response.headers["X-Openstack-Request-Id"] = request.transaction_id
            await response.prepare(request.raw)
            while chunk := await next_chunk(backend_response, READ_CHUNK_BYTES):
                await response.write(chunk)
            if chunk is None:  # the server failed half way: the client must see that the body is not whole
                _abort(request)
            return response

    async def _open(self, request: Request, names: tuple[str, str, str]) -> aiohttp.ClientResponse:
        """The response of the first replica that has the object. Raises: Refusal (404, 503)."""
        _, partition, _ = self._replicas.placement(*names)
        backend, not_found = self._replicas.backend, False
        for device in self._replicas.readable(*names):
            path = device_path(device, partition, *names)
            headers = {"X-Trans-Id": request.transaction_id}
            response = await backend.open(backend.service("object", device), "GET", path, headers)
            if response is not None and response.status == 200:
                return response
            if response is not None:
                not_found = not_found or response.status == 404
                response.close()
        raise Refusal(404 if not_found else 503)

    def _for_replicas(
        self, request: Request, names: tuple[str, str, str], timestamp: str, headers: dict[str, str]
    ) -> list[dict[str, str]]:
        _, partition, ring = self._replicas.placement(*names[:2])
        common = headers | {"X-Timestamp": timestamp, "X-Trans-Id": request.transaction_id}
        return [
            common | Parent.on_device("Container", self._replicas.backend, device, partition).headers
            for device in ring.primaries(partition)
        ]


def _abort(request: Request) -> None:
    if request.raw.transport is not None:
        request.raw.transport.abort()


def _check_offered(request: Request) -> None:
    asked = [name for name in _NOT_OFFERED if name in request.headers]
    asked += [name for name in request.query if name == "multipart-manifest"]
    if asked:
        raise Refusal(501, f"{asked[0]} is not supported")


def _check_put(request: Request, name: str) -> None:
    if len(name.encode()) > NAME_MAX_BYTES:
        raise Refusal(400, f"Object name length of {len(name.encode())} longer than {NAME_MAX_BYTES}")
    length = request.content_length
    if length is None and "chunked" not in request.headers.get("Transfer-Encoding", "").lower():
        raise Refusal(411)
    if length is not None and length > MAX_OBJECT_BYTES:
        raise Refusal(413)


def _guessed_type(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _shown(found: BackendAnswer) -> web.Response:
    if not found.succeeded:
        raise Refusal(found.status)
    return web.Response(headers=_kept(found.headers))


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower().startswith(_SHOWN)}
