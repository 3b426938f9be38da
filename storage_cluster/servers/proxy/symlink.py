"""Symlinks: an empty object that stands for another one, `X-Symlink-Target: container/object`.

Reads follow the link to its target, over at most two links (a pointer to a version does not count); all other requests
are about the link itself. With `X-Symlink-Target-Etag` a link is static: it is valid only while the target has that
ETag; otherwise a read is answered with 409.

The target is kept in sysmeta, and in the link's row of the container's listing.

Source: Swift, "Symlink"; swift.common.middleware.symlink; answers as observed in Swift 2.30.
"""

import dataclasses
import functools
from collections.abc import Mapping
from urllib.parse import unquote

from multidict import CIMultiDict

from storage_cluster.servers.http.content_type import split_swift_bytes
from storage_cluster.servers.http.messages import PLAIN, Call, Handler, Refusal, Reply
from storage_cluster.servers.http.values import etag_of
from storage_cluster.servers.object.updates import OVERRIDE
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.object_names import container_and_object, quote_path
from storage_cluster.servers.proxy.slo_put import SLO_ETAG, SLO_SIZE
from storage_cluster.servers.proxy.version_names import POINTER, POINTER_ETAG, open_inside

LEVELS_MAX = 2
_TARGET, _ACCOUNT = "X-Symlink-Target", "X-Symlink-Target-Account"
_ETAG, _BYTES = "X-Symlink-Target-Etag", "X-Symlink-Target-Bytes"
_ALL = (_TARGET, _ACCOUNT, _ETAG, _BYTES)
TARGET_SYSMETA = "X-Object-Sysmeta-Symlink-Target"
_SYSMETA = {name: name.replace("X-", "X-Object-Sysmeta-", 1) for name in _ALL}
ETAG_SYSMETA, BYTES_SYSMETA = _SYSMETA[_ETAG], _SYSMETA[_BYTES]
_EMPTY_ETAG = etag_of()
_FORM = f"{_TARGET} header must be of the form <container name>/<object name>"
_POSTED = "The requested POST was applied to a symlink. POST directly to the target to apply requested metadata."

Names = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Link:
    """The target of a symlink."""

    names: Names  # account, container, object
    own_account: bool = True  # the account is that of the link, and not written down
    etag: str | None = None
    size: int | None = None
    slo_etag: str | None = None  # of a large object's contents; only listings show it

    @classmethod
    def kept_in(cls, headers: Mapping[str, str], account: str) -> "Link | None":
        """The link that an object's sysmeta makes it; None if it is none."""
        names = container_and_object(headers.get(TARGET_SYSMETA, ""), reserved=True)
        if names is None:
            return None
        other, size = headers.get(_SYSMETA[_ACCOUNT]), headers.get(_SYSMETA[_BYTES])
        return cls(
            (unquote(other) if other else account, *names),
            not other,
            headers.get(_SYSMETA[_ETAG]),
            int(size) if size else None,
        )

    @property
    def location(self) -> str:
        """The target's path."""
        return "/v1/" + quote_path(*self.names)

    @property
    def headers(self) -> dict[str, str]:
        """The link as its reader sees it with `symlink=get`."""
        shown = {_TARGET: quote_path(*self.names[1:])}
        if not self.own_account:
            shown[_ACCOUNT] = quote_path(self.names[0])
        if self.etag is not None:
            shown |= {_ETAG: self.etag, _BYTES: str(self.size)}
        return shown

    @property
    def sysmeta_headers(self) -> dict[str, str]:
        """The link as sysmeta, with what the container's listing shows of it."""
        listed = f"{_EMPTY_ETAG}; symlink_path={self.location}"
        if self.etag is not None:
            large = f"slo_etag={self.slo_etag}; " if self.slo_etag else ""
            static = f"symlink_etag={self.etag}; symlink_bytes={self.size}"
            listed = f"{_EMPTY_ETAG}; {large}{static}; symlink_path={self.location}"
        return {_SYSMETA[name]: value for name, value in self.headers.items()} | {f"{OVERRIDE}Etag": listed}


class Symlink:
    """Creates, follows and shows symlinks."""

    def __init__(self, _: ProxyContext) -> None:
        pass

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Handle requests about symlinks; pass on all others. Raises: Refusal."""
        if len(call.names) != 3:
            return await inner(call)
        if call.method == "PUT" and _TARGET in call.headers:
            await _prepare(call, inner)
        if call.method == "POST":
            return await _post(call, inner)
        if call.method not in ("GET", "HEAD"):
            return await inner(call)
        if call.query.get("symlink") == "get":
            reply = await inner(call)
            link = Link.kept_in(reply.headers, call.names[0])
            reply.headers.update(link.headers if link else {})
            return reply
        return await _follow(call, inner)


async def _follow(call: Call, inner: Handler, *, static_only: bool = False) -> Reply:
    """The object to which a chain of links leads: the end of it, or the first link that is not static, if so asked.

    A static link is compared with what it points to itself: with the ETag of an object, which of a large one is that of
    its manifest; with the ETag that a static link demands in its turn; with that of the link itself, if it is another.
    Raises: Refusal (409).
    """
    reply, wanted, location, levels = await inner(call), None, "", 0
    while (link := Link.kept_in(reply.headers, call.names[0])) is not None:
        demanded = link.etag or reply.headers.get(POINTER_ETAG)
        if static_only and demanded is None:
            break
        await reply.close()
        if wanted not in (None, demanded or reply.headers.get("Etag")):
            raise Refusal(409, f"{_ETAG} headers do not match", PLAIN | {"Content-Location": location})
        if levels >= LEVELS_MAX:
            raise Refusal(409, f"Too many levels of symbolic links, maximum allowed is {LEVELS_MAX}", PLAIN)
        levels += POINTER not in reply.headers
        wanted, location = link.etag, link.location
        call = call.derive(names=link.names, query=call.query, headers=call.headers, source="SYM")
        if POINTER in reply.headers:  # who may read the object may read its versions
            call.authorize = functools.partial(open_inside, call.authorize)
        reply = await inner(call)
    if location:
        reply.headers["Content-Location"] = location
    if wanted is not None and "Etag" in reply.headers and reply.headers["Etag"].strip('"') != wanted:
        await reply.close()
        raise _mismatch(reply, wanted, location)
    return reply


async def _prepare(call: Call, inner: Handler) -> None:
    """Turn a PUT with a target into one with sysmeta. Raises: Refusal (400, 409, 412)."""
    link = _link_in_headers(call)
    if call.body.length or (call.body.length is None and await _has_bytes(call)):
        raise Refusal(400, "Symlink requests require a zero byte body", PLAIN)
    etag = call.headers.get(_ETAG, "").strip('"')
    if etag:
        link = await _check_target(call, inner, link, etag)
    elif not call.headers.get("Content-Type"):
        call.headers["Content-Type"] = "application/symlink"
    for name in _ALL:
        call.headers.popall(name, None)
    call.headers.update(link.sysmeta_headers)


async def _has_bytes(call: Call) -> bool:
    async for chunk in call.body:
        if chunk:
            return True
    return False


async def _check_target(call: Call, inner: Handler, link: Link, etag: str) -> Link:
    """The static link, with its target's current state. Raises: Refusal (409, or the answer to the target's HEAD)."""
    head = await _follow(call.derive(method="HEAD", names=link.names, source="SYM"), inner, static_only=True)
    location = head.headers.get("Content-Location", link.location)
    if head.status == 404:
        raise Refusal(409, "X-Symlink-Target does not exist", PLAIN | {"Content-Location": location})
    if not head.is_success:
        raise Refusal(head.status)
    if etag != head.headers["Etag"].strip('"'):
        raise _mismatch(head, etag, location)
    if not call.headers.get("Content-Type"):
        call.headers["Content-Type"] = split_swift_bytes(head.headers.get("Content-Type", "application/symlink"))[0]
    size = head.headers.get(SLO_SIZE) or head.headers["Content-Length"]
    return dataclasses.replace(link, etag=etag, size=int(size), slo_etag=head.headers.get(SLO_ETAG))


async def _post(call: Call, inner: Handler) -> Reply:
    if _TARGET in call.headers:
        raise Refusal(400, "A PUT request is required to set a symlink target", PLAIN)
    reply = await inner(call)
    link = Link.kept_in(reply.headers, call.names[0])
    if not reply.is_success or link is None:
        return reply
    headers = CIMultiDict({"Location": link.location})
    if link.etag is not None:
        headers[_ETAG] = link.etag
    return Reply(307, headers, _POSTED.encode())


def _link_in_headers(call: Call) -> Link:
    text = call.headers[_TARGET]
    names = None if text.startswith("/") else container_and_object(text)
    if names is None:
        raise Refusal(412, _FORM, PLAIN if text.startswith("/") else None)
    account = unquote(call.headers.get(_ACCOUNT, ""))
    if "/" in account:
        raise Refusal(412, "Account name cannot contain slashes")
    if set(call.headers.get(_ETAG, "").strip('"')) & set(';"\\'):
        raise Refusal(400, f"Bad {_ETAG} format", PLAIN)
    link = Link((account or call.names[0], *names), own_account=not account)
    if link.names == call.names:
        raise Refusal(400, "Symlink cannot target itself", PLAIN)
    return link


def _mismatch(reply: Reply, etag: str, location: str) -> Refusal:
    found = reply.headers["Etag"].strip('"')
    text = f"Object Etag '{found}' does not match {_ETAG} header '{etag}'"
    return Refusal(409, text, PLAIN | {"Content-Location": location})
