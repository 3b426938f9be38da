"""The outermost middleware: headers between servers are neither accepted from clients nor shown to them.

Source: Swift, "Gatekeeper" and "Metadata" (sysmeta, transient sysmeta, X-Backend-*).
"""

import re

from multidict import CIMultiDict

from storage_cluster.servers.http.content_type import split_swift_bytes
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.proxy.context import ProxyContext

_INTERNAL = re.compile(
    r"x-(account|container|object)-sysmeta-|x-object-transient-sysmeta-|x-backend|x-timestamp-type", re.IGNORECASE
)
_INBOUND_ONLY = ("X-Timestamp",)
"""Clients see it and may not set it."""


class Gatekeeper:
    """Removes internal headers both ways."""

    def __init__(self, _: ProxyContext) -> None:
        pass

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Pass the call on without them. Raises: Refusal (400) for a Content-Type with parameters of theirs."""
        _remove_internal(call.headers)
        if any(part.strip().startswith("swift_") for part in call.headers.get("Content-Type", "").split(";")[1:]):
            raise Refusal(400, "Invalid Content-Type, swift_* is not a valid parameter name.")
        for name in _INBOUND_ONLY:
            call.headers.popall(name, None)
        reply = await inner(call)
        _remove_internal(reply.headers)
        if "swift_bytes" in reply.headers.get("Content-Type", ""):
            reply.headers["Content-Type"] = split_swift_bytes(reply.headers["Content-Type"])[0]
        return reply


def _remove_internal(headers: CIMultiDict[str]) -> None:
    for name in [name for name in headers if _INTERNAL.match(name)]:
        headers.popall(name, None)
