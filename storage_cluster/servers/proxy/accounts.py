"""Accounts, as the proxy sees them. One comes into being with its first container (account_autocreate)."""

from collections.abc import Mapping

from aiohttp import web

from storage_cluster.servers.backend import BackendAnswer
from storage_cluster.servers.http import Refusal, Request, answer
from storage_cluster.servers.listings import parse_query
from storage_cluster.servers.proxy.replicas import Replicas
from storage_cluster.servers.storage import metadata_headers
from storage_cluster.servers.times import TimestampMaker

_EMPTY_STAT = {
    "X-Account-Container-Count": "0",
    "X-Account-Object-Count": "0",
    "X-Account-Bytes-Used": "0",
}
KEPT = ("x-account-", "x-container-", "x-object-", "x-timestamp", "x-put-timestamp", "content-type")


class Accounts:
    """Reads and changes accounts."""

    def __init__(self, replicas: Replicas, clock: TimestampMaker) -> None:
        self._replicas = replicas
        self._clock = clock

    async def handle(self, request: Request, account: str) -> web.StreamResponse:
        """One request to an account."""
        if request.method in ("GET", "HEAD"):
            return await self._show(request, account)
        if request.method == "POST":
            return await self._post(request, account)
        raise Refusal(405)

    async def require(self, account: str, transaction_id: str, *, create: bool = False) -> None:
        """Check that an account exists, or make it. Raises: Refusal (404, 503)."""
        found = await self._replicas.first((account,), "HEAD", {"X-Trans-Id": transaction_id})
        if found.status == 404 and create:
            found = await self._change(account, "PUT", transaction_id, {})
        if not found.succeeded:
            raise Refusal(found.status)

    async def _show(self, request: Request, account: str) -> web.Response:
        query = listing_query(request)
        headers = {"X-Trans-Id": request.transaction_id, "Accept": request.headers.get("Accept", "*/*")}
        found = await self._replicas.first((account,), request.method, headers, query)
        if found.status == 404:  # not made yet: it looks empty
            as_json = request.method == "GET" and request.query.get("format") == "json"
            return answer(200 if as_json else 204, _EMPTY_STAT, b"[]" if as_json else b"")
        return passed_on(found)

    async def _post(self, request: Request, account: str) -> web.Response:
        await self.require(account, request.transaction_id, create=True)
        metadata = removals_applied(request.headers, "Account") | metadata_headers(
            request.headers, ("x-account-meta-",)
        )
        return passed_on(await self._change(account, "POST", request.transaction_id, metadata))

    async def _change(
        self, account: str, method: str, transaction_id: str, metadata: Mapping[str, str]
    ) -> BackendAnswer:
        headers = {**metadata, "X-Timestamp": self._clock.now(), "X-Trans-Id": transaction_id}
        return await self._replicas.change((account,), method, lambda _: headers)


def listing_query(request: Request) -> str:
    """The query string of a listing, checked, with its question mark. Raises: Refusal (412)."""
    parse_query(request.query, "")
    query = request.raw.raw_path.partition("?")[2]
    return f"?{query}" if query else ""


def passed_on(found: BackendAnswer) -> web.Response:
    """A storage server's answer as the client gets it. Raises: Refusal for an error."""
    if found.status >= 400:
        raise Refusal(found.status)
    kept = {name: value for name, value in found.headers.items() if name.lower().startswith(KEPT)}
    return answer(found.status, kept, found.body)


def removals_applied(headers: Mapping[str, str], kind: str) -> dict[str, str]:
    """`X-Remove-Container-Meta-Name: x` means `X-Container-Meta-Name:` without a value."""
    prefix = f"x-remove-{kind.lower()}-"
    return {f"X-{kind}-{name[len(prefix) :].title()}": "" for name in headers if name.lower().startswith(prefix)}
