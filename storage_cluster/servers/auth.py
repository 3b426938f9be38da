"""The auth server: issues tokens for users and keys (v1 authentication, as in tempauth and swauth).

    client ─ GET /auth/v1.0 (X-Auth-User, X-Auth-Key) ─▶ auth ─ GET /storage_url/AUTH_test ─▶ proxy
    client ◀─ X-Auth-Token, X-Storage-Url ────────────── auth ◀─ X-Storage-Url ──────────────
    proxy  ─ GET /auth/token (X-Auth-Token) ─▶ auth: 200 with user, groups and remaining life, or 404

The first two lines are steps 1 to 4 of the upload flow in the paper this project comes from. Tokens live in memory;
after a restart clients get 401 and ask again, as they do when a token has run out.

Source: Swift, "Auth v1" (docs: overview_auth); figure 1 of 「オブジェクトストレージの性能の解析に関する一考察」.
"""

import dataclasses
import hmac
import time
import uuid
from collections.abc import Mapping
from urllib.parse import quote

from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import Call, Refusal, Reply, reply
from storage_cluster.servers.http.times import is_transaction_id, new_transaction_id
from storage_cluster.topology import User

PATH_SEGMENT_COUNT = 5
TOKEN_LIFE_S = 86_400
RESELLER_PREFIX = "AUTH_"


@dataclasses.dataclass(frozen=True)
class Token:
    """A proof that a user gave the right key."""

    text: str
    user: User
    expires_s: float

    @property
    def life_s(self) -> int:
        """Seconds it stays valid."""
        return int(self.expires_s - time.time())


class AuthServer:
    """Answers clients' requests for tokens, and the proxy's requests about a token."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._by_text: dict[str, Token] = {}
        self._by_user: dict[User, Token] = {}

    async def handle(self, call: Call) -> Reply:
        """One call."""
        if call.path == "/auth/token":
            return self._describe(call.headers.get("X-Auth-Token", ""))
        version, *rest = call.names[call.names[0] == "auth" :] or ("",)
        if not version:
            raise Refusal(404)
        with_account = version == "v1" and len(rest) == 2 and rest[1] == "auth"
        if not with_account and version != "v1.0":
            raise Refusal(400)
        if call.method != "GET":
            raise Refusal(405)
        return await self._grant(call, account=rest[0] if with_account else None)

    async def _grant(self, call: Call, account: str | None) -> Reply:
        """A token. The user's account is in the path (`/v1/ACCOUNT/auth`) or in the user's name (`ACCOUNT:USER`)."""
        name = call.headers.get("X-Auth-User") or call.headers.get("X-Storage-User") or ""
        user = self._user(
            f"{account}:{name}" if account and ":" not in name else name,
            call.headers.get("X-Auth-Key") or call.headers.get("X-Storage-Pass") or "",
        )
        storage_url = await self._storage_url(user, call.transaction_id)
        token = self._token(user)
        return reply(
            200,
            {
                "X-Auth-Token": token.text,
                "X-Storage-Token": token.text,
                "X-Auth-Token-Expires": str(token.life_s),
                "X-Storage-Url": storage_url,
            },
        )

    async def _storage_url(self, user: User, transaction_id: str) -> str:
        """What a proxy says; with several the first that answers. Raises: Refusal (503)."""
        path = f"/storage_url/{RESELLER_PREFIX}{user.account}"
        for proxy in self._backend.topology.proxies:
            found = await self._backend.request(proxy, "GET", path, {"X-Trans-Id": transaction_id})
            if found.is_success:
                return found.headers["X-Storage-Url"]
        raise Refusal(503)

    def _user(self, name: str, key: str) -> User:
        for user in self._backend.topology.users:
            if f"{user.account}:{user.name}" == name and hmac.compare_digest(user.key.encode(), key.encode()):
                return user
        account, colon, _ = name.partition(":")
        known = any(f"{user.account}:{user.name}" == name for user in self._backend.topology.users)
        realm = account if colon and not known else "unknown"  # as tempauth has it
        raise Refusal(401, headers={"Www-Authenticate": f'Swift realm="{realm}"'})

    def _token(self, user: User) -> Token:
        token = self._by_user.get(user)
        if token is None or token.life_s <= 0:
            if token is not None:
                del self._by_text[token.text]
            token = Token(f"{RESELLER_PREFIX}tk{uuid.uuid4().hex}", user, time.time() + TOKEN_LIFE_S)
            self._by_user[user] = self._by_text[token.text] = token
        return token

    def _describe(self, text: str) -> Reply:
        token = self._by_text.get(text)
        if token is None or token.life_s <= 0:
            raise Refusal(404)
        user = token.user
        own = (RESELLER_PREFIX + user.account,) if ".admin" in user.groups else ()
        given = (group for group in user.groups if group != ".admin")
        groups = (user.account, f"{user.account}:{user.name}", *given, *own)
        return reply(
            200,
            {
                "X-Auth-User": quote(groups[1]),
                "X-Auth-Groups": quote(",".join(groups)),
                "X-Auth-Ttl": str(token.life_s),
            },
        )


def transaction_id_of(path: str, headers: Mapping[str, str]) -> str:
    """The proxy's transaction id if it asks about a token; a new one for a client."""
    given = headers.get("X-Trans-Id", "")
    if path == "/auth/token" and is_transaction_id(given):
        return given
    return new_transaction_id()
