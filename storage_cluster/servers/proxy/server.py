"""The proxy server: who may do what, and where it is done.

`/v1/AUTH_account[/container[/object]]` is the Swift API; `/info` and `/healthcheck` are open to all; `/storage_url/…`
is what the auth server asks on behalf of a client.

Every request gets a transaction id here, which goes with everything done for it, on all hosts.
"""

import json

from aiohttp import web

from storage_cluster.servers.auth import RESELLER_PREFIX
from storage_cluster.servers.backend import Backend
from storage_cluster.servers.http import Refusal, Request, answer
from storage_cluster.servers.listings import LIMIT_MAX
from storage_cluster.servers.proxy.accounts import Accounts
from storage_cluster.servers.proxy.containers import Containers
from storage_cluster.servers.proxy.objects import MAX_OBJECT_BYTES, Objects
from storage_cluster.servers.proxy.replicas import Replicas
from storage_cluster.servers.proxy.tokens import Tokens
from storage_cluster.servers.times import TimestampMaker, is_transaction_id, new_transaction_id

PATH_SEGMENT_COUNT = 4
SWIFT_VERSION = "2.30.1"
"""The Swift whose behaviour is followed."""


class ProxyServer:
    """Answers clients."""

    def __init__(self, backend: Backend) -> None:
        replicas, clock = Replicas(backend), TimestampMaker()
        self._backend = backend
        self._tokens = Tokens(backend)
        self._accounts = Accounts(replicas, clock)
        self._containers = Containers(replicas, clock, self._accounts)
        self._objects = Objects(replicas, clock, self._accounts, self._containers)

    async def handle(self, request: Request) -> web.StreamResponse:
        """One request."""
        first, *rest = request.segments
        if first == "v1" and rest and rest[0]:
            return await self._store(request, tuple(name for name in rest if name))
        if request.method not in ("GET", "HEAD"):
            raise Refusal(405)
        if first == "info":
            return answer(200, {"Content-Type": "application/json; charset=UTF-8"}, self._info())
        if first == "healthcheck":
            return answer(200, body=b"OK")
        if first == "storage_url" and rest:
            return answer(204, {"X-Storage-Url": f"{self._url()}/v1/{rest[0]}"})
        raise Refusal(404)

    async def _store(self, request: Request, names: tuple[str, ...]) -> web.StreamResponse:
        await self._authorize(request, names[0])
        if len(names) == 1:
            return await self._accounts.handle(request, names[0])
        if len(names) == 2:
            return await self._containers.handle(request, (names[0], names[1]))
        return await self._objects.handle(request, (names[0], names[1], names[2]))

    async def _authorize(self, request: Request, account: str) -> None:
        token = request.headers.get("X-Auth-Token") or request.headers.get("X-Storage-Token")
        granted = await self._tokens.account_of(token, request.transaction_id) if token else None
        if granted is None:
            raise Refusal(401, headers={"Www-Authenticate": f'Swift realm="{account}"'})
        if granted != account:
            raise Refusal(403)

    def _info(self) -> bytes:
        swift = {
            "version": SWIFT_VERSION,
            "account_listing_limit": LIMIT_MAX,
            "container_listing_limit": LIMIT_MAX,
            "max_file_size": MAX_OBJECT_BYTES,
            "max_account_name_length": 256,
            "max_container_name_length": 256,
            "max_object_name_length": 1024,
            "policies": [{"name": "Policy-0", "aliases": "Policy-0", "default": True}],
            "strict_cors_mode": True,
        }
        return json.dumps({"swift": swift, "tempauth": {"reseller_prefixes": [RESELLER_PREFIX]}}).encode()

    def _url(self) -> str:
        service = self._backend.topology.service("proxy")
        return f"http://{service.address}:{service.port}"


def transaction_id_of(raw: web.BaseRequest) -> str:
    """A new transaction id for a client, the auth server's own where that asks."""
    given = raw.headers.get("X-Trans-Id", "")
    if raw.path.startswith("/storage_url/") and is_transaction_id(given):
        return given
    return new_transaction_id()
