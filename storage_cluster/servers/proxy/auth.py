"""The auth middleware: who asks, and whether they may.

The token is looked up before anything else is done; whether its user may do what is asked is decided by whoever knows
the container's access list, through `Call.authorize`.

Source: Swift, tempauth (`authorize`, `denied_response`).
"""

from storage_cluster.servers.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.tokens import Tokens


class Auth:
    """Puts an identity and the authorization hook on each call."""

    def __init__(self, context: ProxyContext) -> None:
        self._tokens = Tokens(context.backend)

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Find out who asks, and pass on. Raises: Refusal (401) for a token that is none."""
        token = call.headers.get("X-Auth-Token") or call.headers.get("X-Storage-Token")
        if call.authorize is None:
            if token:
                call.identity = await self._tokens.identity_of(token, call.transaction_id)
            if token and call.identity is None:
                raise Refusal(401, headers=_challenge(call))
            call.authorize = authorize
        return await inner(call)


async def authorize(call: Call, access_list: str | None) -> None:
    """Let the account's owner do everything, and nobody else anything. Raises: Refusal (401 if anonymous, else 403)."""
    if call.identity is not None and call.identity.owns(call.names[0]):
        call.owner = True
        return
    if call.identity is None:
        raise Refusal(401, headers=_challenge(call))
    raise Refusal(403)


def _challenge(call: Call) -> dict[str, str]:
    return {"Www-Authenticate": f'Swift realm="{call.names[0] if call.names else "unknown"}"'}
