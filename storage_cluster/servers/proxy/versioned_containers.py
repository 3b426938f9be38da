"""Containers whose objects have versions: switching that on and off, counting, listing, deleting.

Source: Swift, "Object Versioning"; answers as observed in Swift 2.30.
"""

import json

from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.proxy.container_sync import SYNC_TO
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.object_names import quote_path
from storage_cluster.servers.proxy.version_copies import SOURCE, check_reply
from storage_cluster.servers.proxy.version_listing import listed_versions
from storage_cluster.servers.proxy.version_names import ARCHIVE, ENABLED, archive_container

_HEADER = "X-Versions-Enabled"
_SYSMETA = f"X-Container-Sysmeta-{ENABLED}"
_LEGACY = "Cannot enable object versioning on a container that is already using the legacy versioned writes feature."
_SYNC = "Cannot enable object versioning on a container configured as source of container syncing."
_SYNC_LATER = "Cannot configure container sync on a container with object versioning configured."


class VersionedContainers:
    """Answers for containers."""

    def __init__(self, context: ProxyContext) -> None:
        self._infos = context.infos
        self._policies = context.backend.topology.policies

    async def handle(self, call: Call, inner: Handler) -> Reply:
        """One call about a container. Raises: Refusal (400, 409)."""
        if call.method in ("PUT", "POST") and call.headers.get(SYNC_TO):
            info = await self._infos.container(call, *call.names)
            if info.sysmeta("Container", ARCHIVE) is not None:
                raise Refusal(400, _SYNC_LATER)
        if call.method in ("PUT", "POST") and _HEADER in call.headers:
            await self._switch(call, inner)
        if call.method == "DELETE":
            return await self._delete(call, inner)
        listing = call.method == "GET" and "versions" in call.query
        reply = await (listed_versions(call, inner) if listing else inner(call))
        enabled = reply.headers.get(_SYSMETA)
        if reply.is_success and enabled and call.method in ("GET", "HEAD"):
            reply.headers[_HEADER] = enabled
            if f"X-Container-Sysmeta-{ARCHIVE}" in reply.headers:
                await self._add_bytes(call, reply)
        return reply

    async def _switch(self, call: Call, inner: Handler) -> None:
        info = await self._infos.container(call, *call.names)
        enabled = is_true(call.headers[_HEADER])
        if info.sysmeta("Container", "Versions-Location"):
            raise Refusal(400, _LEGACY)
        if info.headers.get(SYNC_TO):
            raise Refusal(400, _SYNC)
        await call.check_access(None)
        call.headers[_SYSMETA] = str(enabled)
        if enabled and info.sysmeta("Container", ARCHIVE) is None:
            names = (call.names[0], archive_container(call.names[1]))
            call.headers[f"X-Container-Sysmeta-{ARCHIVE}"] = quote_path(names[1])
            policy = self._policies.at(info.policy_index) if info.exists else None
            name = policy.name if policy else call.headers.get("X-Storage-Policy", "")
            headers = {"X-Storage-Policy": name} if name else {}
            put = call.derive(method="PUT", names=names, headers=headers, source=SOURCE, privileged=True)
            check_reply(await inner(put))

    async def _add_bytes(self, call: Call, reply: Reply) -> None:
        """Count the versions in, which take the container's room."""
        archive = await self._infos.container(call, call.names[0], archive_container(call.names[1]), fresh=True)
        own = int(reply.headers.get("X-Container-Bytes-Used", "0"))
        reply.headers["X-Container-Bytes-Used"] = str(own + archive.bytes_used)

    async def _delete(self, call: Call, inner: Handler) -> Reply:
        info = await self._infos.container(call, *call.names)
        if info.sysmeta("Container", ARCHIVE) is None:
            return await inner(call)
        await call.check_access(None)
        archive = (call.names[0], archive_container(call.names[1]))
        query = {"limit": "1"}
        versions = await inner(call.derive(method="GET", names=archive, query=query, source=SOURCE, privileged=True))
        if versions.is_success and json.loads(await versions.read() or b"[]"):
            raise Refusal(409, "Delete all versions before deleting container.")
        reply = await inner(call)
        if reply.is_success:
            await inner(call.derive(method="DELETE", names=archive, source=SOURCE, privileged=True))
        return reply
