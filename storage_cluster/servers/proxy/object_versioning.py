"""Versions of every object of a container, as clients switch them on with `X-Versions-Enabled: true`.

Each PUT makes a version, `X-Object-Version-Id`, in a container that is not listed (`version_names`); at the object's
own name is a pointer to the current one, a symlink that does not count as one. A DELETE makes a version as well, a
mark, and removes the pointer. `?version-id=` reads, deletes or makes current again a certain version; what was there
before versions were switched on, or came while they were off, has the id `null`.

Source: Swift, "Object Versioning"; answers as observed in Swift 2.30.
"""

import dataclasses
import functools
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import unquote

from multidict import CIMultiDict

from storage_cluster.servers.http.content_type import with_swift_bytes
from storage_cluster.servers.http.messages import PLAIN, Call, Handler, Refusal, Reply
from storage_cluster.servers.object.server import CLIENT_METADATA
from storage_cluster.servers.object.updates import OVERRIDE
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import require
from storage_cluster.servers.proxy.object_names import quote_path
from storage_cluster.servers.proxy.object_rules import apply_expiry, settle_type
from storage_cluster.servers.proxy.slo_put import SLO_ETAG, SLO_SIZE
from storage_cluster.servers.proxy.symlink import BYTES_SYSMETA, ETAG_SYSMETA, TARGET_SYSMETA
from storage_cluster.servers.proxy.version_copies import DELETED_TYPE, SOURCE, check_reply, current, may_write, put_as
from storage_cluster.servers.proxy.version_names import (
    ARCHIVE,
    ENABLED,
    POINTER,
    POINTER_BYTES,
    POINTER_ETAG,
    archive_container,
    archive_name,
    is_version_id,
    open_inside,
    split_archive_name,
)
from storage_cluster.servers.proxy.versioned_containers import VersionedContainers

ID = "X-Object-Version-Id"
_CURRENT_ID = "X-Object-Current-Version-Id"
_NULL = "null"
_EXPIRY = ("X-Delete-At", "X-Delete-After")
_OF_POINTERS = tuple(name for name in CLIENT_METADATA if name not in ("x-delete-at", "x-object-manifest"))
"""Headers that a pointer has as well as the version, by their beginnings."""

Names = tuple[str, ...]


class ObjectVersioning:
    """Makes and shows versions."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._containers = VersionedContainers(context)

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Do what concerns versions, pass on the rest. Raises: Refusal."""
        if len(call.names) == 2:
            return await self._containers.handle(call, inner)
        if len(call.names) != 3:
            return await inner(call)
        info = await self._context.infos.container(call, *call.names[:2])
        versioned, version_id = info.sysmeta("Container", ARCHIVE) is not None, call.query.get("version-id")
        if not versioned and version_id is None:
            return await inner(call)
        _check_id(call, version_id, versioned=versioned)
        call.authorize = functools.partial(open_inside, call.authorize)
        if call.method in ("GET", "HEAD"):
            return await (_read(call, inner) if version_id is None else _read_version(call, inner, version_id))
        if call.method not in ("PUT", "POST", "DELETE"):
            return await inner(call)
        require(info)
        await may_write(call, info)
        return await self._change(call, inner, info.sysmeta("Container", ENABLED) == "True", version_id)

    async def _change(self, call: Call, inner: Handler, enabled: bool, version_id: str | None) -> Reply:
        if call.method == "POST":
            return await _post(call, inner)
        if version_id == _NULL or (version_id is None and not enabled):
            return await inner(call)
        if call.method == "PUT":
            return await (self._put(call, inner) if version_id is None else _make_current(call, inner, version_id))
        return await (self._delete(call, inner) if version_id is None else _delete_version(call, inner, version_id))

    async def _put(self, call: Call, inner: Handler) -> Reply:
        """A new version, and the pointer to it. Raises: Refusal (400, 412, 413, 503)."""
        existed = await _archive_null(call, inner)
        if existed and call.headers.get("If-None-Match") == "*":
            raise Refusal(412)
        if "X-Symlink-Target" not in call.headers:
            settle_type(call, call.names[2])
        expiry = {name: call.headers.pop(name) for name in _EXPIRY if name in call.headers}
        apply_expiry(call.derive(headers=expiry))  # refused, if at all, before anything is written
        version_id = self._context.clock.now()
        put = call.derive(names=_version(call, version_id), headers=call.headers, body=call.body)
        put.headers.popall("If-None-Match", None)
        reply = await inner(put)
        if not reply.is_success:
            return reply
        etag = put.headers.get(ETAG_SYSMETA) or reply.headers["Etag"]
        size = put.headers.get(SLO_SIZE) or put.headers.get(BYTES_SYSMETA) or put.body.bytes_in
        listed = put.headers.get(f"{OVERRIDE}Etag")
        if listed and ETAG_SYSMETA in put.headers:  # a static link is listed with the ETag that it demands
            listed = "; ".join([etag, *listed.split("; ")[1:]])
        pointer = _Pointer(version_id, etag, int(size), put.headers["Content-Type"])
        pointed = await inner(pointer.put(call, listed, expiry))
        if not pointed.is_success:
            return pointed
        reply.headers[ID] = version_id
        return reply

    async def _delete(self, call: Call, inner: Handler) -> Reply:
        """A mark as the newest version, and no pointer any more. Raises: Refusal (412, 503)."""
        await _archive_null(call, inner)
        version_id = self._context.clock.now()
        headers, names = {"Content-Type": DELETED_TYPE}, _version(call, version_id)
        check_reply(await inner(call.derive(method="PUT", names=names, headers=headers, body=b"", source=SOURCE)))
        reply = await inner(call)
        reply.headers[ID] = version_id
        return reply


@dataclasses.dataclass(frozen=True)
class _Pointer:
    """What is at an object's own name: which version is current, and what the listing shows of it."""

    version_id: str
    etag: str
    size: int
    content_type: str

    def put(self, call: Call, listed: str | None, expiry: Mapping[str, str] | None = None) -> Call:
        """The call that writes it. `listed`: what the version itself would have had listed as its ETag.

        `expiry`: headers that say when the pointer ends; the version stays.
        """
        sized = "swift_bytes" in self.content_type
        shown = (listed or self.etag).partition("; symlink_")[0]
        given = {name: value for name, value in call.headers.items() if name.lower().startswith(_OF_POINTERS)}
        headers = (
            given
            | {
                "Content-Type": self.content_type if sized else with_swift_bytes(self.content_type, self.size),
                TARGET_SYSMETA: quote_path(*_version(call, self.version_id)[1:]),
                POINTER: self.version_id,
                POINTER_ETAG: self.etag,
                POINTER_BYTES: str(self.size),
                f"{OVERRIDE}Etag": f"{shown}; symlink_path={_location(call, self.version_id)}; version_symlink=true",
            }
            | dict(expiry or {})
        )
        return call.derive(method="PUT", headers=headers, body=b"", source=SOURCE)


async def _read(call: Call, inner: Handler) -> Reply:
    """The current version, or the pointer to it (`symlink=get`)."""
    reply = await inner(call)
    version_id = reply.headers.get(POINTER, _NULL)
    if version_id != _NULL:
        shown = {"": f"{quote_path(*call.names[1:])}?version-id={version_id}", "-Etag": reply.headers[POINTER_ETAG]}
        shown["-Bytes"] = reply.headers[POINTER_BYTES]
        reply.headers.update({f"X-Symlink-Target{name}": value for name, value in shown.items()})
    inside, location = _inside(call), reply.headers.get("Content-Location", "")
    if location.startswith(inside):
        version_id = split_archive_name(unquote(location.removeprefix(inside), errors="surrogateescape"))[1]
        reply.headers["Content-Location"] = _location(call, version_id)
    reply.headers[ID] = version_id if reply.status != 404 else _NULL
    return reply


def _inside(call: Call) -> str:
    """What the locations of all versions begin with."""
    return f"/v1/{quote_path(call.names[0], archive_container(call.names[1]))}/"


async def _read_version(call: Call, inner: Handler, version_id: str) -> Reply:
    """A certain version, for the owner only: access lists open what is current. Raises: Refusal (401, 403, 404)."""
    if version_id == _NULL:
        return await _read_null(call, inner)
    await call.check_access(None)
    query = {name: value for name, value in call.query.items() if name != "version-id"}
    names = _version(call, version_id)
    reply = await inner(call.derive(names=names, query=query, headers=call.headers, source=call.source))
    if reply.status == 404:
        return reply
    reply.headers[ID] = version_id
    if reply.headers.get("Content-Type") == DELETED_TYPE:
        await reply.close()
        raise Refusal(404, headers={ID: version_id, "Content-Type": DELETED_TYPE})
    return reply


async def _read_null(call: Call, inner: Handler) -> Reply:
    """What the object is, unless a version is where its contents are. Raises: Refusal (404)."""
    reply = await inner(call)
    if reply.is_success and reply.headers.get("Content-Location", "").startswith(_inside(call)):
        await reply.close()
        raise Refusal(404)
    if reply.is_success:
        reply.headers[ID] = _NULL
    return reply


async def _post(call: Call, inner: Handler) -> Reply:
    """New metadata, for the pointer to the current version, which listings show, and for the version.

    Only the pointer expires: what was written stays, as a version.
    """
    version_id = await _current_id(call, inner)
    reply = await inner(call)
    if version_id is None or reply.status != HTTPStatus.TEMPORARY_REDIRECT:
        return reply
    await reply.close()
    kept = CIMultiDict((name, value) for name, value in call.headers.items() if name.title() not in _EXPIRY)
    return await inner(call.derive(names=_version(call, version_id), headers=kept))


async def _make_current(call: Call, inner: Handler, version_id: str) -> Reply:
    """Point to a version. Raises: Refusal (400, 404, 412, 503)."""
    if call.body.length != 0:
        raise Refusal(400, "PUT version-id requests require a zero byte body", PLAIN)
    names = _version(call, version_id)
    head = await inner(call.derive(method="HEAD", names=names, query={"symlink": "get"}, source=SOURCE))
    content_type = head.headers.get("Content-Type", "")
    if head.status == 404 or content_type == DELETED_TYPE:
        raise Refusal(404, "The specified version does not exist", PLAIN)
    check_reply(head)
    await _archive_null(call, inner)
    etag, slo_etag = head.headers["Etag"], head.headers.get(SLO_ETAG)
    pointer = _Pointer(version_id, etag, int(head.headers["Content-Length"]), content_type)
    listed = f"{etag}; slo_etag={slo_etag}" if slo_etag else None
    reply = await inner(pointer.put(call, listed))
    if reply.is_success:
        reply.headers.update({ID: version_id, "Etag": etag})
    return reply


async def _delete_version(call: Call, inner: Handler, version_id: str) -> Reply:
    """Remove a version for good, and the pointer if it was current; the owner only. Raises: Refusal (401, 403)."""
    await call.check_access(None)
    current_id = await _current_id(call, inner)
    if current_id == version_id:
        check_reply(await inner(call))
        current_id = None
    reply = await inner(call.derive(names=_version(call, version_id), source=SOURCE))
    reply.headers.update({ID: version_id, _CURRENT_ID: current_id or _NULL})
    return reply


async def _archive_null(call: Call, inner: Handler) -> bool:
    """Make a version of what was written without one. Whether there was anything. Raises: Refusal (412, 503)."""
    found = await current(call, inner, call.names)
    if found.status == 404 or POINTER in found.headers:
        await found.close()
        return found.status != 404
    check_reply(found)
    written = found.headers.get("X-Backend-Data-Timestamp") or found.headers["X-Timestamp"]  # not when it was changed
    check_reply(await put_as(call, inner, found, _version(call, written)))
    return True


async def _current_id(call: Call, inner: Handler) -> str | None:
    """The id of the version that is pointed to; None if there is no pointer."""
    head = call.derive(method="HEAD", query={"symlink": "get"}, source=SOURCE, privileged=True)
    return (await inner(head)).headers.get(POINTER)


def _check_id(call: Call, version_id: str | None, *, versioned: bool) -> None:
    if version_id is None:
        return
    if call.method == "POST":
        raise Refusal(400, "POST to a specific version is not allowed")
    if version_id != _NULL and not is_version_id(version_id):
        raise Refusal(400, "Invalid version parameter")
    if version_id != _NULL and not versioned:
        raise Refusal(400, "version-aware operations require that the container is versioned")


def _version(call: Call, version_id: str) -> Names:
    account, container, name = call.names
    return account, archive_container(container), archive_name(name, version_id)


def _location(call: Call, version_id: str) -> str:
    return f"/v1/{quote_path(*call.names)}?version-id={version_id}"
