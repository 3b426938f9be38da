"""The outermost middleware: what servers tell each other in headers is neither taken from clients nor shown to them.

Source: Swift, "Gatekeeper" and "Metadata" (sysmeta, transient sysmeta, X-Backend-*).
"""

import re

from multidict import CIMultiDict

from storage_cluster.servers.messages import Call, Handler, Reply
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
        """Pass the call on without them."""
        _remove_internal(call.headers)
        for name in _INBOUND_ONLY:
            call.headers.popall(name, None)
        reply = await inner(call)
        _remove_internal(reply.headers)
        return reply


def _remove_internal(headers: CIMultiDict[str]) -> None:
    for name in [name for name in headers if _INTERNAL.match(name)]:
        headers.popall(name, None)
