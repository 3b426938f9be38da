"""Containers, as the proxy sees them."""

from collections.abc import Mapping

from aiohttp import web

from storage_cluster.servers.backend import BackendAnswer
from storage_cluster.servers.http import Refusal, Request
from storage_cluster.servers.proxy.accounts import Accounts, listing_query, passed_on, removals_applied
from storage_cluster.servers.proxy.replicas import Replicas
from storage_cluster.servers.storage import metadata_headers
from storage_cluster.servers.times import TimestampMaker
from storage_cluster.servers.updates import Parent

NAME_MAX_BYTES = 256
_METADATA_PREFIXES = ("x-container-meta-", "x-container-read", "x-container-write")


class Containers:
    """Reads and changes containers."""

    def __init__(self, replicas: Replicas, clock: TimestampMaker, accounts: Accounts) -> None:
        self._replicas = replicas
        self._clock = clock
        self._accounts = accounts

    async def handle(self, request: Request, names: tuple[str, str]) -> web.StreamResponse:
        """One request to a container."""
        if request.method in ("GET", "HEAD"):
            return await self._show(request, names)
        if request.method == "PUT":
            return await self._put(request, names)
        if request.method == "POST":
            return await self._post(request, names)
        if request.method == "DELETE":
            return await self._delete(request, names)
        raise Refusal(405)

    async def require(self, names: tuple[str, str], transaction_id: str) -> None:
        """Check that a container exists. Raises: Refusal (404, 503)."""
        found = await self._replicas.first(names, "HEAD", {"X-Trans-Id": transaction_id})
        if not found.succeeded:
            raise Refusal(found.status)

    async def _show(self, request: Request, names: tuple[str, str]) -> web.Response:
        await self._accounts.require(names[0], request.transaction_id)
        query = listing_query(request)
        headers = {"X-Trans-Id": request.transaction_id, "Accept": request.headers.get("Accept", "*/*")}
        return passed_on(await self._replicas.first(names, request.method, headers, query))

    async def _put(self, request: Request, names: tuple[str, str]) -> web.Response:
        if len(names[1].encode()) > NAME_MAX_BYTES:
            raise Refusal(400, f"Container name length of {len(names[1].encode())} longer than {NAME_MAX_BYTES}")
        await self._accounts.require(names[0], request.transaction_id, create=True)
        return passed_on(await self._change(request, names, _metadata(request.headers)))

    async def _post(self, request: Request, names: tuple[str, str]) -> web.Response:
        await self._accounts.require(names[0], request.transaction_id)
        return passed_on(await self._change(request, names, _metadata(request.headers)))

    async def _delete(self, request: Request, names: tuple[str, str]) -> web.Response:
        await self._accounts.require(names[0], request.transaction_id)
        return passed_on(await self._change(request, names, {}))

    async def _change(self, request: Request, names: tuple[str, str], metadata: Mapping[str, str]) -> BackendAnswer:
        _, partition, ring = self._replicas.placement(names[0])
        accounts = [
            Parent.on_device("Account", self._replicas.backend, device, partition)
            for device in ring.primaries(partition)
        ]
        headers = {**metadata, "X-Timestamp": self._clock.now(), "X-Trans-Id": request.transaction_id}
        return await self._replicas.change(names, request.method, lambda index: headers | accounts[index].headers)


def _metadata(headers: Mapping[str, str]) -> dict[str, str]:
    return removals_applied(headers, "Container") | metadata_headers(headers, _METADATA_PREFIXES)
