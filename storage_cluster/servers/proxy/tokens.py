"""The user of a token: the auth server is asked once, and the answer is cached for a while."""

import dataclasses
import time
from urllib.parse import unquote

from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import Identity

REMEMBER_MAX_S = 300.0


@dataclasses.dataclass(frozen=True)
class Grant:
    """Who a token stands for, until a moment of the monotonic clock."""

    identity: Identity
    until_s: float


class Tokens:
    """Validates tokens with the auth server."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[str, Grant] = {}

    async def identity_of(self, token: str, transaction_id: str) -> Identity | None:
        """Who a token stands for; None if for nobody."""
        known = self._known.get(token)
        if known is not None and known.until_s > time.monotonic():
            return known.identity
        self._known.pop(token, None)
        auth = self._backend.topology.service("auth")
        headers = {"X-Auth-Token": token, "X-Trans-Id": transaction_id}
        answer = await self._backend.request(auth, "GET", "/auth/token", headers)
        if not answer.is_success:
            return None
        life_s = min(float(answer.headers["X-Auth-Ttl"]), REMEMBER_MAX_S)
        groups = frozenset(unquote(answer.headers["X-Auth-Groups"]).split(","))
        identity = Identity(unquote(answer.headers["X-Auth-User"]), groups)
        self._known[token] = Grant(identity, time.monotonic() + life_s)
        return identity
