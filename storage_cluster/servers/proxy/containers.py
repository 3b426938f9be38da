"""Containers, as the proxy sees them."""

from collections.abc import Mapping

from storage_cluster.policies import POLICY_DEFAULT, POLICY_INDEX
from storage_cluster.servers.databases.container import METADATA_PREFIXES
from storage_cluster.servers.databases.updates import Parent
from storage_cluster.servers.http import limits
from storage_cluster.servers.http.backend import BackendAnswer
from storage_cluster.servers.http.messages import Call, Refusal, Reply
from storage_cluster.servers.http.metadata import metadata_in
from storage_cluster.servers.proxy import acl
from storage_cluster.servers.proxy.accounts import (
    ALLOWED,
    listing_query,
    reply_to_client,
    require_account,
    without_owner_headers,
)
from storage_cluster.servers.proxy.container_sync import SYNC_TO, clean_sync_to
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import require
from storage_cluster.servers.proxy.version_names import as_clients_know


class Containers:
    """Reads and changes containers."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._replicas = context.replicas
        self._infos = context.infos
        self._policies = context.backend.topology.policies

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
        raise Refusal(405, headers=ALLOWED)

    async def _show(self, call: Call, names: tuple[str, str]) -> Reply:
        account = await self._infos.account(call, names[0])
        if not account.exists:
            await call.check_access(None)
            require(account)
        query = listing_query(call)
        found = await self._replicas.first(names, call.method, {"X-Trans-Id": call.transaction_id}, query)
        await call.check_access(found.headers.get("X-Container-Read"))
        shown = reply_to_client(call, found)
        policy = self._policies.at(int(found.headers.get(POLICY_INDEX, "0")))
        if policy is not None:
            shown.headers["X-Storage-Policy"] = policy.name
        return shown

    async def _put(self, call: Call, names: tuple[str, str]) -> Reply:
        metadata = _metadata(call)
        metadata |= self._policy_headers(call.headers.get("X-Storage-Policy", ""))
        limits.check_name("Container", as_clients_know(names[1]), limits.CONTAINER_NAME_MAX_LEN)
        await require_account(self._context, call, names[0])
        return reply_to_client(call, await self._change(call, names, metadata))

    def _policy_headers(self, name: str) -> dict[str, str]:
        """The policy that is asked for, or that of a container for which none is. Raises: Refusal (400)."""
        if not name:
            return {POLICY_DEFAULT: str(self._policies.default.index)}
        policy = self._policies.by_name(name)
        if policy is None:
            raise Refusal(400, f"Invalid X-Storage-Policy {name!r}", {"Content-Type": "text/plain"})
        if policy.deprecated:
            raise Refusal(400, f"Storage Policy {policy.name!r} is deprecated")
        return {POLICY_INDEX: str(policy.index)}

    async def _post(self, call: Call, names: tuple[str, str]) -> Reply:
        metadata = _metadata(call)
        require(await self._infos.account(call, names[0]))
        return reply_to_client(call, await self._change(call, names, metadata))

    async def _delete(self, call: Call, names: tuple[str, str]) -> Reply:
        require(await self._infos.account(call, names[0]))
        return reply_to_client(call, await self._change(call, names, {}))

    async def _change(self, call: Call, names: tuple[str, str], metadata: Mapping[str, str]) -> BackendAnswer:
        _, partition, ring = self._replicas.placement(names[0])
        accounts = [
            Parent.on_device("Account", self._replicas.backend, device, partition)
            for device in ring.primaries(partition)
        ]
        headers = {**metadata, "X-Timestamp": self._context.clock.now(), "X-Trans-Id": call.transaction_id}
        try:
            return await self._replicas.change(names, call.method, lambda index: headers | accounts[index].headers)
        finally:
            self._infos.forget(call, *names)


def _metadata(call: Call) -> dict[str, str]:
    """The container's metadata in a request. Raises: Refusal (400)."""
    said = metadata_in(without_owner_headers(call), "Container", METADATA_PREFIXES)
    for name in ("Read", "Write"):
        text = said.get(f"X-Container-{name}")
        if text:
            said[f"X-Container-{name}"] = acl.clean(text, writing=name == "Write")
    if said.get(SYNC_TO):
        said[SYNC_TO] = clean_sync_to(said[SYNC_TO])
    limits.check_metadata(call.headers, "Container")
    return said
