"""The auth middleware: identifies the user of a request, and checks the user's permission.

The token is looked up before anything else is done; whether its user may do what is asked is decided by whoever knows
the container's access list, through `Call.authorize`. A call that comes with a hook (a signed URL) keeps it.

In this order: a reseller admin may do everything, a reseller reader may read everything, an account's own admin
everything but make or delete the account; then the container's list decides, then the account's own
(`X-Account-Access-Control`, kept as sysmeta: any role may read, `read-write` may also change containers and objects,
`admin` is as good as the account's own).

Source: Swift, tempauth (`authorize`, `denied_response`), and the answers of Swift 2.30.1.
"""

from urllib.parse import quote

from storage_cluster.servers.auth import RESELLER_PREFIX
from storage_cluster.servers.http.messages import Call, Handler, Refusal, Reply
from storage_cluster.servers.proxy import acl
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.tokens import Tokens

ADMIN_GROUP = ".reseller_admin"
READER_GROUP = ".reseller_reader"
_READING = ("GET", "HEAD")
_LIST = "X-Account-Access-Control"
_LIST_SYSMETA = "X-Account-Sysmeta-Core-Access-Control"


class Auth:
    """Puts an identity and the authorization hook on each call."""

    def __init__(self, context: ProxyContext) -> None:
        self._infos = context.infos
        self._tokens = Tokens(context.backend)

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Identify the user and pass the call on. Raises: Refusal (401) for an invalid token."""
        if call.authorize is not None:
            return await inner(call)
        await self._identify(call)
        call.authorize = self._authorize
        if len(call.names) != 1:
            return await inner(call)
        if _LIST in call.headers and call.method in ("PUT", "POST"):
            call.headers[_LIST_SYSMETA] = acl.clean_account(call.headers[_LIST])
        reply = await inner(call)
        if call.owner and _LIST_SYSMETA in reply.headers:
            reply.headers[_LIST] = reply.headers[_LIST_SYSMETA]
        return reply

    async def _identify(self, call: Call) -> None:
        token = call.headers.get("X-Auth-Token") or call.headers.get("X-Storage-Token")
        if not token or not token.startswith(RESELLER_PREFIX):
            return  # a token of somebody else's is no token
        call.identity = await self._tokens.identity_of(token, call.transaction_id)
        if call.identity is None:
            raise Refusal(401, headers=challenge(call))

    async def _authorize(self, call: Call, access_list: str | None) -> None:
        """Check the user's permission. Raises: Refusal (401 if anonymous, else 403)."""
        account = call.names[0]
        if account.startswith(RESELLER_PREFIX):
            if _owns(call, account):
                call.owner = True
                return
            if call.method == "OPTIONS" or _is_listed(call, access_list) or await self._has_role(call, account):
                return
        if call.identity is None:
            raise Refusal(401, headers=challenge(call))
        raise Refusal(403)

    async def _has_role(self, call: Call, account: str) -> bool:
        if call.identity is None:
            return False
        groups = call.identity.groups
        if READER_GROUP in groups and call.method in _READING:
            return True
        info = await self._infos.account(call, account)
        access = acl.parse_account(info.sysmeta("Account", "Core-Access-Control") or "")
        if access.admin & groups:
            call.owner = True
            return True
        if access.read_write & groups and (call.method in _READING or len(call.names) > 1):
            return True
        return bool(access.read_only & groups) and call.method in _READING


def challenge(call: Call) -> dict[str, str]:
    """The header that accompanies a 401."""
    realm = quote(call.names[0]) if call.names else "unknown"
    return {"Www-Authenticate": f'Swift realm="{realm}"'}


def _owns(call: Call, account: str) -> bool:
    if call.identity is None:
        return False
    if ADMIN_GROUP in call.identity.groups and not account.startswith(RESELLER_PREFIX + "."):
        return account != RESELLER_PREFIX
    return call.identity.owns(account) and (len(call.names) > 1 or call.method not in ("PUT", "DELETE"))


def _is_listed(call: Call, access_list: str | None) -> bool:
    if acl.lets_everybody(access_list, call.headers.get("Referer")) and (
        len(call.names) == 3 or acl.lets_list(access_list)
    ):
        return True
    return call.identity is not None and acl.names_user(access_list, call.identity.groups)
