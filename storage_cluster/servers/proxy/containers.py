"""Containers, as the proxy sees them."""

from collections.abc import Mapping

from storage_cluster.servers.backend import BackendAnswer
from storage_cluster.servers.messages import Call, Refusal, Reply
from storage_cluster.servers.proxy.accounts import listing_query, passed_on, removals_applied, require_account
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import required
from storage_cluster.servers.storage import metadata_headers
from storage_cluster.servers.updates import Parent

NAME_MAX_BYTES = 256
_METADATA_PREFIXES = ("x-container-meta-", "x-container-read", "x-container-write")


class Containers:
    """Reads and changes containers."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._replicas = context.replicas
        self._infos = context.infos

    async def handle(self, call: Call, names: tuple[str, str]) -> Reply:
        """One request to a container."""
        if call.method in ("GET", "HEAD"):
            return await self._show(call, names)
        if call.method == "PUT":
            return await self._put(call, names)
        if call.method == "POST":
            return await self._post(call, names)
        if call.method == "DELETE":
            return await self._delete(call, names)
        raise Refusal(405)

    async def _show(self, call: Call, names: tuple[str, str]) -> Reply:
        required(await self._infos.account(call, names[0]))
        query = listing_query(call)
        headers = {"X-Trans-Id": call.transaction_id, "Accept": call.headers.get("Accept", "*/*")}
        found = await self._replicas.first(names, call.method, headers, query)
        await call.check_access(found.headers.get("X-Container-Read"))
        return passed_on(found)

    async def _put(self, call: Call, names: tuple[str, str]) -> Reply:
        if len(names[1].encode()) > NAME_MAX_BYTES:
            raise Refusal(400, f"Container name length of {len(names[1].encode())} longer than {NAME_MAX_BYTES}")
        await require_account(self._context, call, names[0])
        return passed_on(await self._change(call, names, _metadata(call.headers)))

    async def _post(self, call: Call, names: tuple[str, str]) -> Reply:
        required(await self._infos.account(call, names[0]))
        return passed_on(await self._change(call, names, _metadata(call.headers)))

    async def _delete(self, call: Call, names: tuple[str, str]) -> Reply:
        required(await self._infos.account(call, names[0]))
        return passed_on(await self._change(call, names, {}))

    async def _change(self, call: Call, names: tuple[str, str], metadata: Mapping[str, str]) -> BackendAnswer:
        _, partition, ring = self._replicas.placement(names[0])
        accounts = [
            Parent.on_device("Account", self._replicas.backend, device, partition)
            for device in ring.primaries(partition)
        ]
        headers = {**metadata, "X-Timestamp": self._context.clock.now(), "X-Trans-Id": call.transaction_id}
        self._infos.forget(call, *names)
        return await self._replicas.change(names, call.method, lambda index: headers | accounts[index].headers)


def _metadata(headers: Mapping[str, str]) -> dict[str, str]:
    return removals_applied(headers, "Container") | metadata_headers(headers, _METADATA_PREFIXES)
