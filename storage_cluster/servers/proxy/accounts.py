"""Accounts, as the proxy sees them. One comes into being with its first container (account_autocreate)."""

from collections.abc import Mapping
from urllib.parse import urlencode

from storage_cluster.servers.backend import BackendAnswer
from storage_cluster.servers.listings import parse_query
from storage_cluster.servers.messages import Call, Refusal, Reply, reply
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import AccountInfo, required
from storage_cluster.servers.storage import metadata_headers

_EMPTY_STAT = {
    "X-Account-Container-Count": "0",
    "X-Account-Object-Count": "0",
    "X-Account-Bytes-Used": "0",
}
KEPT = ("x-account-", "x-container-", "x-object-", "x-timestamp", "x-put-timestamp", "content-type")


class Accounts:
    """Reads and changes accounts."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._replicas = context.replicas

    async def handle(self, call: Call, account: str) -> Reply:
        """One request to an account."""
        if call.method in ("GET", "HEAD"):
            return await self._show(call, account)
        if call.method == "POST":
            return await self._post(call, account)
        raise Refusal(405)

    async def _show(self, call: Call, account: str) -> Reply:
        query = listing_query(call)
        headers = {"X-Trans-Id": call.transaction_id, "Accept": call.headers.get("Accept", "*/*")}
        found = await self._replicas.first((account,), call.method, headers, query)
        if found.status == 404:  # not made yet: it looks empty
            as_json = call.method == "GET" and call.query.get("format") == "json"
            return reply(200 if as_json else 204, _EMPTY_STAT, b"[]" if as_json else b"")
        return passed_on(found)

    async def _post(self, call: Call, account: str) -> Reply:
        await require_account(self._context, call, account)
        metadata = removals_applied(call.headers, "Account") | metadata_headers(call.headers, ("x-account-meta-",))
        return passed_on(await _change(self._context, call, account, "POST", metadata))


async def require_account(context: ProxyContext, call: Call, account: str) -> None:
    """See to it that an account exists. Raises: Refusal (503)."""
    info = await context.infos.account(call, account)
    if info.status == 404:
        made = await _change(context, call, account, "PUT", {})
        context.infos.forget(call, account)
        info = AccountInfo(made.status)
    required(info)


async def _change(
    context: ProxyContext, call: Call, account: str, method: str, metadata: Mapping[str, str]
) -> BackendAnswer:
    headers = {**metadata, "X-Timestamp": context.clock.now(), "X-Trans-Id": call.transaction_id}
    return await context.replicas.change((account,), method, lambda _: headers)


def listing_query(call: Call) -> str:
    """The query string of a listing, checked, with its question mark. Raises: Refusal (412)."""
    parse_query(call.query, "")
    return f"?{urlencode(call.query)}" if call.query else ""


def passed_on(found: BackendAnswer) -> Reply:
    """A storage server's answer as the client gets it. Raises: Refusal for an error."""
    if found.status >= 400:
        raise Refusal(found.status)
    kept = {name: value for name, value in found.headers.items() if name.lower().startswith(KEPT)}
    return reply(found.status, kept, found.body)


def removals_applied(headers: Mapping[str, str], kind: str) -> dict[str, str]:
    """`X-Remove-Container-Meta-Name: x` means `X-Container-Meta-Name:` without a value."""
    prefix = f"x-remove-{kind.lower()}-"
    return {f"X-{kind}-{name[len(prefix) :].title()}": "" for name in headers if name.lower().startswith(prefix)}
