"""Accounts, as the proxy sees them. An account is created with its first container (account_autocreate).

An account that is not there yet looks empty. Making and deleting one by hand is for reseller admins, which `auth` sees
to (allow_account_management).
"""

from collections.abc import Mapping
from urllib.parse import urlencode

from multidict import CIMultiDict

from storage_cluster.servers.http import limits
from storage_cluster.servers.http.backend import BackendAnswer
from storage_cluster.servers.http.listings import PARAMETERS, parse_query
from storage_cluster.servers.http.messages import Call, Refusal, Reply, reply, usual_text
from storage_cluster.servers.http.metadata import metadata_in
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import AccountInfo, require

ALLOWED = {"Allow": "GET, DELETE, HEAD, POST, PUT, OPTIONS"}
"""What goes with a 405."""
METADATA_PREFIXES = ("x-account-meta-", "x-account-sysmeta-")
_SHOWN = ("x-account-", "x-container-", "x-timestamp", "x-put-timestamp", "content-type", "last-modified", "x-storage-")
_OWNER_ONLY = (
    *("x-container-read", "x-container-write", "x-container-sync-key", "x-container-sync-to"),
    *(f"x-{kind}-meta-temp-url-key{suffix}" for kind in ("account", "container") for suffix in ("", "-2")),
)


class Accounts:
    """Reads and changes accounts."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._replicas = context.replicas

    async def handle(self, call: Call, account: str) -> Reply:
        """One request to an account."""
        limits.check_name("Account", account, limits.ACCOUNT_NAME_MAX_LEN)
        if call.method in ("GET", "HEAD"):
            return await self._show(call, account)
        if call.method == "POST":
            limits.check_metadata(call.headers, "Account")
            await require_account(self._context, call, account)
            return await self._change_account(call, account)
        if call.method == "PUT":
            limits.check_metadata(call.headers, "Account")
            return await self._change_account(call, account)
        if call.method == "DELETE":
            return await self._change_account(call, account)
        raise Refusal(405, headers=ALLOWED)

    async def _show(self, call: Call, account: str) -> Reply:
        query = listing_query(call)
        found = await self._replicas.first((account,), call.method, {"X-Trans-Id": call.transaction_id}, query)
        if found.status == 404 and "X-Account-Status" in found.headers:
            raise Refusal(410, "", {"X-Account-Status": found.headers["X-Account-Status"]})
        if found.status == 404:
            return reply(200, self._empty_stat(), b"" if call.method == "HEAD" else b"[]")
        return reply_to_client(call, found)

    async def _change_account(self, call: Call, account: str) -> Reply:
        metadata = metadata_in(call.headers, "Account", METADATA_PREFIXES) if call.method != "DELETE" else {}
        found = await _change(self._context, call, account, call.method, metadata)
        self._context.infos.forget(call, account)
        return reply_to_client(call, found)

    def _empty_stat(self) -> dict[str, str]:
        now = self._context.clock.now()
        counts = {f"X-Account-{name}": "0" for name in ("Container-Count", "Object-Count", "Bytes-Used")}
        return {
            "Content-Type": "application/json; charset=utf-8",
            **counts,
            "X-Timestamp": now,
            "X-Put-Timestamp": now,
        }


async def require_account(context: ProxyContext, call: Call, account: str) -> None:
    """Create the account if it does not exist. Raises: Refusal (404 if it was deleted, 503)."""
    info = await context.infos.account(call, account)
    if info.status == 404 and "X-Account-Status" in info.headers:
        raise Refusal(404, "", {"X-Account-Status": info.headers["X-Account-Status"]})
    if info.status == 404:
        made = await _change(context, call, account, "PUT", {})
        context.infos.forget(call, account)
        info = AccountInfo(made.status)
    require(info)


async def _change(
    context: ProxyContext, call: Call, account: str, method: str, metadata: Mapping[str, str]
) -> BackendAnswer:
    headers = {**metadata, "X-Timestamp": context.clock.now(), "X-Trans-Id": call.transaction_id}
    return await context.replicas.change((account,), method, lambda _: headers)


def listing_query(call: Call) -> str:
    """The query string of a listing, checked, with its question mark. Raises: Refusal (400, 412)."""
    if call.method != "GET":
        return ""
    query = {name: call.query[name] for name in PARAMETERS if name in call.query}
    for name, value in query.items():
        if any("\udc80" <= character <= "\udcff" for character in value):
            plain = {"Content-Type": "text/plain"} if len(call.names) == 2 else {}
            raise Refusal(400, f'"{name}" parameter not valid UTF-8', plain)
    parse_query(query)
    return f"?{urlencode(query)}" if query else ""


def reply_to_client(call: Call, found: BackendAnswer) -> Reply:
    """The reply to the client, from a storage server's answer. Raises: Refusal for an error."""
    if found.status >= 400:
        status = {name: value for name, value in found.headers.items() if name.lower() == "x-account-status"}
        raise Refusal(found.status, found.body.decode() if found.status == 400 or status else None, status)
    hidden = () if call.owner else _OWNER_ONLY
    kept = CIMultiDict(
        (name, value)
        for name, value in found.headers.items()
        if name.lower().startswith(_SHOWN) and name.lower() not in hidden
    )
    if call.method in ("GET", "HEAD"):
        kept["Accept-Ranges"] = "bytes"
        return Reply(found.status, kept, found.body)
    kept["Content-Type"] = "text/html; charset=UTF-8"
    return Reply(found.status, kept, usual_text(found.status).encode())


def without_owner_headers(call: Call) -> CIMultiDict[str]:
    """A request's headers, without those that only the account's owner may set if somebody else asks."""
    if call.owner:
        return call.headers
    return CIMultiDict((name, value) for name, value in call.headers.items() if name.lower() not in _OWNER_ONLY)
