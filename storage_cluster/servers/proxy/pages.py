"""What the proxy answers besides the store: `/healthcheck`, `/info`, and to the auth server `/storage_url/…`.

`/auth/…` goes on to the auth server, for clients that expect both at one address, as with Swift's tempauth.
"""

from storage_cluster.policies import Policies
from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply, reply
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.info import document

_INFO_ALLOWED = {"Allow": "HEAD, GET, OPTIONS"}
_AUTH_HEADERS = ("X-Auth-User", "X-Auth-Key", "X-Storage-User", "X-Storage-Pass")


class Pages:
    """Answers every path outside /v1/."""

    def __init__(self, context: ProxyContext) -> None:
        self._backend = context.backend

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Answer, or pass on what is about the store."""
        if call.names:
            return await inner(call)
        first, *rest = call.path[1:].split("/", 1)
        if first == "info" and not rest:
            return _info(call.method, self._backend.topology.policies)
        if first == "healthcheck" and not rest:
            return reply(200, {"Content-Type": "text/plain"}, b"OK")
        if first == "storage_url" and rest and call.method == "GET":
            return reply(204, {"X-Storage-Url": f"{_url(self._backend, call)}/v1/{rest[0]}"})
        if first == "auth" and rest and rest[0] != "token":
            return await self._of_auth(call)
        return await inner(call)

    async def _of_auth(self, call: Call) -> Reply:
        headers = {name: call.headers[name] for name in _AUTH_HEADERS if name in call.headers}
        headers["X-Trans-Id"] = call.transaction_id
        found = await self._backend.request(self._backend.topology.service("auth"), call.method, call.url_path, headers)
        shown = ("x-auth-", "x-storage-", "www-authenticate", "content-type")
        kept = {name: value for name, value in found.headers.items() if name.lower().startswith(shown)}
        return reply(found.status or 503, kept, found.body)


def _info(method: str, policies: Policies) -> Reply:
    if method == "OPTIONS":
        return reply(200, _INFO_ALLOWED)
    if method not in ("GET", "HEAD"):
        raise Refusal(405, headers=_INFO_ALLOWED)
    return reply(200, {"Content-Type": "application/json; charset=UTF-8"}, document(policies))


def _url(backend: Backend, call: Call) -> str:
    """Where clients find the store: the balancer, or else the proxy that was asked."""
    balancer = backend.topology.proxy_balancer
    return f"http://{balancer.address}:{balancer.port}" if balancer else f"http://{call.headers['Host']}"
