"""Whose token is this? Asked of the auth server once, then remembered for a while."""

import dataclasses
import time

from storage_cluster.servers.backend import Backend

REMEMBER_MAX_S = 300.0


@dataclasses.dataclass(frozen=True)
class Grant:
    """An account that a token opens, until a moment of the monotonic clock."""

    account: str
    until_s: float


class Tokens:
    """Validates tokens with the auth server."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[str, Grant] = {}

    async def account_of(self, token: str, transaction_id: str) -> str | None:
        """The account a token opens; None if it opens none."""
        known = self._known.get(token)
        if known is not None and known.until_s > time.monotonic():
            return known.account
        self._known.pop(token, None)
        auth = self._backend.topology.service("auth")
        headers = {"X-Auth-Token": token, "X-Trans-Id": transaction_id}
        answer = await self._backend.request(auth, "GET", "/auth/token", headers)
        if not answer.succeeded:
            return None
        life_s = min(float(answer.headers["X-Auth-Ttl"]), REMEMBER_MAX_S)
        self._known[token] = Grant(answer.headers["X-Auth-Account"], time.monotonic() + life_s)
        return answer.headers["X-Auth-Account"]
