"""Server-side copy: `COPY` with `Destination`, or `PUT` with `X-Copy-From`. Both become a GET and a PUT here.

The copy has the source's metadata and what the request sets on top; with `X-Fresh-Metadata` only the latter. Conditions
and a Range in the request are about the source. A large object is copied as the bytes it stands for, or, with
`multipart-manifest=get`, as its manifest; a symlink as what it points to, or, with `symlink=get`, as itself.

Source: Swift, "Copy object"; swift.common.middleware.copy; answers as observed in Swift 2.30.
"""

from urllib.parse import unquote

from multidict import CIMultiDict

from storage_cluster.servers.http import limits
from storage_cluster.servers.http.messages import PLAIN, Call, Handler, Refusal, Reply
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.object.server import CLIENT_METADATA
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.object_names import container_and_object, quote_path

_ABOUT_SOURCE = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "Range")
_NOT_FOR_TARGET = (*_ABOUT_SOURCE, "Etag", "X-Copy-From", "X-Copy-From-Account", "Destination", "Destination-Account")
_COPIED = tuple(name for name in CLIENT_METADATA if name != "x-object-manifest")
_LINK = "x-symlink-target"
_SHOWN = ("x-object-meta-", "x-delete-at")

Names = tuple[str, ...]


class Copy:
    """Answers copies."""

    def __init__(self, _: ProxyContext) -> None:
        pass

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Copy, or pass on what is no copy."""
        if len(call.names) != 3:
            return await inner(call)
        if call.method == "COPY":
            return await _copy(call, inner, call.names, _destination(call))
        if call.method == "PUT" and call.headers.get("X-Copy-From"):
            if call.body.length:
                raise Refusal(400, "Copy requests require a zero byte body", PLAIN)
            return await _copy(call, inner, _names_in_header(call, "X-Copy-From", "X-Copy-From-Account"), call.names)
        return await inner(call)


async def _copy(call: Call, inner: Handler, source: Names, target: Names) -> Reply:
    asked = {name: call.headers[name] for name in _ABOUT_SOURCE if name in call.headers}
    query = {
        name: value for name, value in call.query.items() if name in ("multipart-manifest", "symlink", "version-id")
    }
    as_manifest = query.get("multipart-manifest") == "get"
    if as_manifest:
        query["format"] = "raw"
    found = await inner(call.derive(method="GET", names=source, query=query, headers=asked, source="COPY"))
    if found.status not in (200, 206):
        return found
    try:
        if int(found.headers.get("Content-Length", "0")) > limits.FILE_MAX_BYTES:
            raise Refusal(413, "Your request is too large.", PLAIN)
        put = call.derive(
            method="PUT",
            names=target,
            headers=_target_headers(call, found, as_manifest=as_manifest),
            body=found.as_body(),
        )
        if as_manifest and is_true(found.headers.get("X-Static-Large-Object")):
            put.query["multipart-manifest"] = "put"
        shown = {name.title(): value for name, value in put.headers.items() if name.lower().startswith(_SHOWN)}
        reply = await inner(put)
    finally:
        await found.close()
    return _describe_source(reply, shown, found, source)


def _target_headers(call: Call, found: Reply, *, as_manifest: bool) -> CIMultiDict[str]:
    headers = CIMultiDict(call.headers)
    for name in (*_NOT_FOR_TARGET, "Content-Length", "Transfer-Encoding"):
        headers.popall(name, None)
    if not headers.get("Content-Type") and "Content-Type" in found.headers:
        headers["Content-Type"] = found.headers["Content-Type"]
    if as_manifest and "X-Object-Manifest" in found.headers:
        headers["X-Object-Manifest"] = found.headers["X-Object-Manifest"]
    kept = (_LINK,) if is_true(call.headers.get("X-Fresh-Metadata")) else (*_COPIED, _LINK)
    for name, value in found.headers.items():
        if name.lower().startswith(kept):
            headers.setdefault(name, value)
    return headers


def _describe_source(reply: Reply, shown: dict[str, str], found: Reply, source: Names) -> Reply:
    if not reply.is_success:
        return reply
    reply.headers["X-Copied-From"] = quote_path(*source[1:])
    reply.headers["X-Copied-From-Account"] = quote_path(source[0])
    if "X-Object-Version-Id" in found.headers:
        reply.headers["X-Copied-From-Version-Id"] = found.headers["X-Object-Version-Id"]
    if "Last-Modified" in found.headers:
        reply.headers["X-Copied-From-Last-Modified"] = found.headers["Last-Modified"]
    reply.headers.update(shown)
    return reply


def _destination(call: Call) -> Names:
    if not call.headers.get("Destination"):
        raise Refusal(412, "Destination header required")
    return _names_in_header(call, "Destination", "Destination-Account")


def _names_in_header(call: Call, header: str, account_header: str) -> Names:
    names = container_and_object(call.headers[header])
    if names is None:
        raise Refusal(412, f"{header} header must be of the form <container name>/<object name>")
    account = unquote(call.headers.get(account_header, "")) or call.names[0]
    if "/" in account:
        raise Refusal(412, "Account name cannot contain slashes")
    return account, *names
