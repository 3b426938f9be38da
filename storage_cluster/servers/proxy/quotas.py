"""Enforces quotas, which are set as metadata of a container or an account: an upload that exceeds one is refused (413).

`X-Container-Meta-Quota-Bytes` and `-Quota-Count` are the owner's, `X-Account-Meta-Quota-Bytes` is a reseller admin's,
who is not bound by it. What is counted is what the container or account server reports at that moment, so uploads at
the same time can pass a limit together, as in Swift.

Source: Swift, "Container Quotas", "Account Quotas".
"""

from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.proxy.auth import ADMIN_GROUP
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import ContainerInfo
from storage_cluster.servers.proxy.version_names import ARCHIVE, archive_container

_TEXT = "Upload exceeds quota."
_ACCOUNT_QUOTA = "X-Account-Meta-Quota-Bytes"


class ContainerQuotas:
    """Enforces the quotas of containers."""

    def __init__(self, context: ProxyContext) -> None:
        self._infos = context.infos

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Check, and pass on. Raises: Refusal (400, 413)."""
        if len(call.names) == 2 and call.method in ("PUT", "POST"):
            _check_number(call.headers.get("X-Container-Meta-Quota-Bytes"), "bytes")
            _check_number(call.headers.get("X-Container-Meta-Quota-Count"), "count")
        if len(call.names) == 3 and call.method == "PUT":
            await self._check_room(call)
        return await inner(call)

    async def _check_room(self, call: Call) -> None:
        info = await self._infos.container(call, *call.names[:2])
        quota_bytes, quota_count = (_number(info.meta("Container", name)) for name in ("Quota-Bytes", "Quota-Count"))
        if quota_bytes is not None or quota_count is not None:
            info = await self._infos.container(call, *call.names[:2], fresh=True)
        if quota_bytes is not None:
            used = info.bytes_used + await self._versions_len(call, info)
            if used + (call.body.length or 0) > quota_bytes:
                raise Refusal(413, _TEXT)
        if quota_count is not None and info.object_count + 1 > quota_count:
            raise Refusal(413, _TEXT)

    async def _versions_len(self, call: Call, info: ContainerInfo) -> int:
        """Bytes of the container's versions, which take its room as well."""
        if info.sysmeta("Container", ARCHIVE) is None:
            return 0
        names = (call.names[0], archive_container(call.names[1]))
        return (await self._infos.container(call, *names, fresh=True)).bytes_used


class AccountQuotas:
    """Enforces the quotas of accounts."""

    def __init__(self, context: ProxyContext) -> None:
        self._infos = context.infos

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Check, and pass on. Raises: Refusal (400, 403, 413)."""
        reseller = call.identity is not None and ADMIN_GROUP in call.identity.groups
        if len(call.names) == 1 and call.method in ("PUT", "POST"):
            _check_account_change(call, reseller=reseller)
        if len(call.names) == 3 and call.method == "PUT" and not reseller:
            info = await self._infos.account(call, call.names[0])
            quota_bytes = _number(info.meta("Account", "Quota-Bytes"))
            if quota_bytes is not None:
                info = await self._infos.account(call, call.names[0], fresh=True)
            if quota_bytes is not None and info.bytes_used + (call.body.length or 0) > quota_bytes:
                raise Refusal(413, _TEXT)
        return await inner(call)


def _check_account_change(call: Call, *, reseller: bool) -> None:
    removed = _ACCOUNT_QUOTA.replace("X-", "X-Remove-", 1) in call.headers
    if _ACCOUNT_QUOTA not in call.headers and not removed:
        return
    if not reseller:
        raise Refusal(403)
    value = call.headers.get(_ACCOUNT_QUOTA)
    if value and not value.isdigit():
        raise Refusal(400)


def _check_number(value: str | None, what: str) -> None:
    if value and not value.isdigit():
        raise Refusal(400, f"Invalid {what} quota.")


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isdigit() else None
