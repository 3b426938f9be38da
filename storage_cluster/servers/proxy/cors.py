"""Cross-origin requests: what a browser's script from another origin may do with a container.

A container names the origins it trusts in its metadata (`Access-Control-Allow-Origin`, `-Max-Age`, `-Expose-Headers`).
A preflight (OPTIONS with an Origin) is answered from that, any other OPTIONS with what methods there are. To an actual
request's reply the headers are added that let the script see it (strict mode: only for origins the container trusts).

Source: Swift, "CORS"; W3C Cross-Origin Resource Sharing; the answers of Swift 2.30.1.
"""

import dataclasses

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply, reply
from storage_cluster.servers.proxy.accounts import ALLOWED
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import ContainerInfo

_ALWAYS_EXPOSED = (
    *("cache-control", "content-language", "content-type", "expires", "last-modified", "pragma"),
    *("etag", "x-timestamp", "x-trans-id", "x-openstack-request-id"),
)
_META_PREFIXES = ("x-container-meta-", "x-object-meta-")


@dataclasses.dataclass(frozen=True)
class _Rules:
    """A container's settings for other origins."""

    origins: frozenset[str]
    max_age: str
    exposed: tuple[str, ...]

    @classmethod
    def of(cls, container: ContainerInfo) -> "_Rules":
        def setting(name: str) -> str:
            return container.meta("Container", f"Access-Control-{name}") or ""

        exposed = setting("Expose-Headers").replace(",", " ").lower().split()
        return cls(frozenset(setting("Allow-Origin").split()), setting("Max-Age"), tuple(exposed))

    def trusts(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins

    def origin_headers(self, origin: str) -> dict[str, str]:
        """The headers that inform a trusted origin."""
        if "*" in self.origins:
            return {"Access-Control-Allow-Origin": "*"}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


class Cors:
    """Answers preflights, and lets trusted origins see replies."""

    def __init__(self, context: ProxyContext) -> None:
        self._infos = context.infos

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Answer OPTIONS; pass on anything else. Raises: Refusal (401) for a preflight of an origin not trusted."""
        origin = call.headers.get("Origin")
        if call.method == "OPTIONS" and call.names:
            rules = await self._rules(call) if origin and len(call.names) > 1 else None
            return _options(call, origin or "", rules)
        reply = await inner(call)
        if origin and len(call.names) > 1:
            rules = await self._rules(call)
            if rules.trusts(origin):
                _expose(reply.headers, rules, origin)
        return reply

    async def _rules(self, call: Call) -> _Rules:
        return _Rules.of(await self._infos.container(call, *call.names[:2]))


def _options(call: Call, origin: str, rules: _Rules | None) -> Reply:
    methods = ALLOWED["Allow"] + (", COPY" if len(call.names) == 3 else "")
    if rules is None:
        return reply(200, {"Allow": methods})
    wanted = call.headers.get("Access-Control-Request-Method", "")
    if not rules.trusts(origin) or wanted not in ALLOWED["Allow"].split(", "):
        raise Refusal(401, headers=ALLOWED)
    headers = {"Allow": methods, "Access-Control-Allow-Methods": methods, **rules.origin_headers(origin)}
    if rules.max_age:
        headers["Access-Control-Max-Age"] = rules.max_age
    asked = call.headers.get("Access-Control-Request-Headers")
    if asked:
        headers["Access-Control-Allow-Headers"] = asked
        headers["Vary"] = ", ".join(filter(None, (headers.get("Vary"), "Access-Control-Request-Headers")))
    return reply(200, headers)


def _expose(headers: CIMultiDict[str], rules: _Rules, origin: str) -> None:
    shown = [name.lower() for name in headers if name.lower().startswith(_META_PREFIXES)]
    headers["Access-Control-Expose-Headers"] = ", ".join(dict.fromkeys((*_ALWAYS_EXPOSED, *shown, *rules.exposed)))
    for name, value in rules.origin_headers(origin).items():
        headers[name] = ", ".join(filter(None, (headers.get(name), value))) if name == "Vary" else value
