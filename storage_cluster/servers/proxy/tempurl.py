"""TempURL: an address that lets whoever has it do one thing to one object until a given time.

`?temp_url_sig=…&temp_url_expires=…` signs `METHOD\\nexpires\\npath`, where the path may be a prefix
(`&temp_url_prefix=…`: then `prefix:/v1/a/c/prefix` is signed), with `ip=RANGE\\n` before it if `temp_url_ip_range` says
from where it may be used. HEAD goes with what may be read or written. The object's own metadata is not shown unless it
is public.

Source: Swift, "TempURL", and the answers of Swift 2.30.1.
"""

import dataclasses
import ipaddress
import time
from email.utils import formatdate
from urllib.parse import quote

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Call, Handler, Identity, Refusal, Reply
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.signatures import Signature, keys_for, parse_expiry

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")
INCOMING_REMOVED = ("X-Timestamp",)
_FORBIDDEN = ("X-Object-Manifest", "X-Symlink-Target", "X-Copy-From")
_HIDDEN_PREFIX, _SHOWN_PREFIX = "x-object-meta-", "x-object-meta-public-"


@dataclasses.dataclass(frozen=True)
class _Claim:
    """The parameters of a signed address."""

    signature: Signature | None
    expires_s: int | None
    prefix: str | None
    ip_range: str | None

    @property
    def is_complete(self) -> bool:
        return self.signature is not None and self.expires_s is not None and self.expires_s > time.time()


class TempUrl:
    """Allows requests to signed addresses without a token."""

    def __init__(self, context: ProxyContext) -> None:
        self._infos = context.infos

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Check the signature, if there is one. Raises: Refusal (401, 400)."""
        query = call.query
        if call.method == "OPTIONS" or not {"temp_url_sig", "temp_url_expires"} & query.keys():
            return await inner(call)
        claim = _claim(call)
        if not claim.is_complete or len(call.names) != 3 or call.method not in METHODS or not _from_there(call, claim):
            raise _invalid()
        await self._authorize(call, claim)
        _check_headers(call)
        call.query = {}
        return _present(await inner(call), call, claim, query)

    async def _authorize(self, call: Call, claim: _Claim) -> None:
        assert claim.signature is not None
        signed = [f"{method}\n{claim.expires_s}\n{_signed_path(call, claim)}" for method in _signing_methods(call)]
        if claim.ip_range is not None:
            signed = [f"ip={claim.ip_range}\n{text}" for text in signed]
        key = claim.signature.key_of(signed, await keys_for(self._infos, call, *call.names[:2]))
        if key is None:
            raise _invalid()
        call.identity, call.authorize = Identity(".tempurl", frozenset()), key.hook()


def _claim(call: Call) -> _Claim:
    query = call.query
    return _Claim(
        Signature.parse(query.get("temp_url_sig", "")),
        parse_expiry(query.get("temp_url_expires", "")),
        query.get("temp_url_prefix"),
        query.get("temp_url_ip_range"),
    )


def _signed_path(call: Call, claim: _Claim) -> str:
    if claim.prefix is None:
        return call.path
    if not call.names[2].startswith(claim.prefix):
        raise _invalid()
    return "prefix:" + call.path[: len(call.path) - len(call.names[2])] + claim.prefix


def _signing_methods(call: Call) -> tuple[str, ...]:
    return ("HEAD", "GET", "POST", "PUT") if call.method == "HEAD" else (call.method,)


def _from_there(call: Call, claim: _Claim) -> bool:
    if claim.ip_range is None:
        return True
    try:
        return ipaddress.ip_address(call.peer.rpartition(":")[0]) in ipaddress.ip_network(claim.ip_range)
    except ValueError:
        return False


def _check_headers(call: Call) -> None:
    for name in INCOMING_REMOVED:
        call.headers.popall(name, None)
    for name in _FORBIDDEN:
        if name in call.headers and call.method in ("PUT", "POST"):
            raise Refusal(400, f"The header {name!r} is not allowed in this tempurl")


def _present(reply: Reply, call: Call, claim: _Claim, query: dict[str, str]) -> Reply:
    """The reply without private metadata, with a file name for whoever saves it."""
    if call.method in ("GET", "HEAD"):
        _hide_metadata(reply.headers)
        if reply.is_success:
            disposition = _disposition(call.names[2], reply.headers.get("Content-Disposition"), query)
            reply.headers["Content-Disposition"] = disposition
            reply.headers["Expires"] = formatdate(claim.expires_s, usegmt=True)
    return reply


def _hide_metadata(headers: CIMultiDict[str]) -> None:
    for name in list(headers):
        if name.lower().startswith(_HIDDEN_PREFIX) and not name.lower().startswith(_SHOWN_PREFIX):
            headers.popall(name, None)


def _disposition(object_name: str, existing: str | None, query: dict[str, str]) -> str:
    filename, inline = query.get("filename"), "inline" in query
    if not filename:
        if inline:
            return "inline"
        if existing:
            return existing
        filename = object_name.rstrip("/").rpartition("/")[2]
    kind = "inline" if inline else "attachment"
    return f"{kind}; filename=\"{quote(filename, safe=' /')}\"; filename*=UTF-8''{quote(filename)}"


def _invalid() -> Refusal:
    return Refusal(401, "401 Unauthorized: Temp URL invalid\n", {"Www-Authenticate": 'Swift realm="unknown"'})
