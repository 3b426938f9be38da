"""The proxy server: its pipeline around the store.

`/v1/AUTH_account[/container[/object]]` is the Swift API; what else there is, the middlewares answer (`pages`). Every
request gets a transaction id here, which goes with everything done for it, on all hosts.
"""

import dataclasses
from collections.abc import Mapping

from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.http.times import is_transaction_id, new_transaction_id
from storage_cluster.servers.proxy.accounts import Accounts
from storage_cluster.servers.proxy.containers import Containers
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.objects import Objects
from storage_cluster.servers.proxy.pipeline import PIPELINE, pipeline

_ACCESS_LIST_METHODS = {2: ("GET", "HEAD"), 3: ("GET", "HEAD", "PUT", "POST", "DELETE")}
"""By the number of names: what an access list can allow to others than the owner."""


VERSIONS = ("v1", "v1.0")
"""Of the API, as the first segment of a path."""


def proxy_server(backend: Backend) -> Handler:
    """The whole proxy as one handler."""
    context = ProxyContext.over(backend)
    context.whole = pipeline([make(context) for make in PIPELINE], Store(context))
    return context.whole


class Store:
    """The innermost handler: accounts, containers, objects on the storage servers."""

    def __init__(self, context: ProxyContext) -> None:
        self._accounts = Accounts(context)
        self._containers = Containers(context)
        self._objects = Objects(context)

    async def __call__(self, call: Call) -> Reply:
        """Handle one call within its user's permissions."""
        if not call.names:
            raise _no_names(call.path)
        call = await self._admit(call)
        if len(call.names) == 1:
            return await self._accounts.handle(call, call.names[0])
        if len(call.names) == 2:
            return await self._containers.handle(call, (call.names[0], call.names[1]))
        return await self._objects.handle(call, (call.names[0], call.names[1], call.names[2]))

    async def _admit(self, call: Call) -> Call:
        """The call, authorized if its user owns the account; otherwise an access list decides later."""
        try:
            await call.check_access(None)
        except Refusal:
            if call.method not in _ACCESS_LIST_METHODS.get(len(call.names), ()):
                raise
            return call
        return dataclasses.replace(call, authorize=None)


def names_of(path: str) -> tuple[str, ...]:
    """Account, container, object of a path below a version; () for another, or if a name before the last is empty.

    Raises: Refusal (412) for a path with NUL, which servers keep for themselves.
    """
    if "\0" in path:
        raise Refusal(412, "Invalid UTF8 or contains NULL")
    version, *names = path[1:].split("/", 3)
    if version not in VERSIONS or not names:
        return ()
    while len(names) > 1 and not names[-1]:
        names.pop()
    return tuple(names) if all(names) else ()


def _no_names(path: str) -> Refusal:
    if path.startswith("//") or path == "/":
        return Refusal(404)
    segments = path.split("/", 3)
    return (
        Refusal(400) if len(segments) > 2 and segments[2] and segments[1] not in VERSIONS else Refusal(412, "Bad URL")
    )


def transaction_id_of(path: str, headers: Mapping[str, str]) -> str:
    """A new transaction id for a client, the auth server's own where that asks."""
    given = headers.get("X-Trans-Id", "")
    if path.startswith("/storage_url/") and is_transaction_id(given):
        return given
    return new_transaction_id()
