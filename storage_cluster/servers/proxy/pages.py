"""What the proxy says about itself, to anybody: `/healthcheck`, `/info`, and to the auth server `/storage_url/…`."""

import json

from storage_cluster.servers.auth import RESELLER_PREFIX
from storage_cluster.servers.listings import LIMIT_MAX
from storage_cluster.servers.messages import Call, Handler, Refusal, Reply, reply
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.objects import MAX_OBJECT_BYTES

SWIFT_VERSION = "2.30.1"
"""The Swift whose behaviour is followed."""


class Pages:
    """Answers every path outside /v1/."""

    def __init__(self, context: ProxyContext) -> None:
        self._topology = context.backend.topology

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Answer, or pass on what is about the store."""
        first, *rest = call.path[1:].split("/", 1)
        if call.names or first == "v1":
            return await inner(call)
        if call.method not in ("GET", "HEAD"):
            raise Refusal(405)
        if first == "info":
            return reply(200, {"Content-Type": "application/json; charset=UTF-8"}, self._info())
        if first == "healthcheck":
            return reply(200, {"Content-Type": "text/plain"}, b"OK")
        if first == "storage_url" and rest:
            return reply(204, {"X-Storage-Url": f"{self._url()}/v1/{rest[0]}"})
        raise Refusal(404)

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
        service = self._topology.service("proxy")
        return f"http://{service.address}:{service.port}"
