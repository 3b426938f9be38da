"""Versions kept in another container, as clients enable them with `X-Versions-Location` or `X-History-Location`.

Before an object is overwritten, what it was is copied to `<length in three hex digits><name>/<timestamp>` there. With
`X-Versions-Location` (a stack) a DELETE brings the last version back; with `X-History-Location` a DELETE keeps what was
there and a mark that it was deleted.

Where the copy cannot be made, the change is not made either (412, 503). Of a large object the manifest is kept.

Source: Swift, "Object Versioning" (legacy modes); answers as observed in Swift 2.30.
"""

import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from urllib.parse import unquote

from storage_cluster.servers.http.messages import PLAIN, Call, Handler, Refusal, Reply
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.version_copies import (
    DELETED_TYPE,
    SOURCE,
    Names,
    check_reply,
    current,
    may_write,
    put_as,
)

LOCATIONS = {"X-Versions-Location": "stack", "X-History-Location": "history"}
"""Headers that say where versions go, and how they are kept there."""
_SYSMETA_LOCATION = "X-Container-Sysmeta-Versions-Location"
_SYSMETA_MODE = "X-Container-Sysmeta-Versions-Mode"


class Versions:
    """Keeps the versions of objects that are overwritten or deleted."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Keep a version if the container wants it, and pass on. Raises: Refusal."""
        if len(call.names) == 2:
            return await _of_container(call, inner)
        if len(call.names) != 3 or call.method not in ("PUT", "DELETE"):
            return await inner(call)
        info = await self._context.infos.container(call, *call.names[:2])
        location = unquote(info.sysmeta("Container", "Versions-Location") or "")
        if not location:
            return await inner(call)
        await may_write(call, info)
        archive = (call.names[0], location)
        if call.method == "PUT":
            await _archive_current(call, inner, archive)
            return await inner(call)
        if info.sysmeta("Container", "Versions-Mode") == "history":
            return await self._delete_with_mark(call, inner, archive)
        return await _delete_and_restore(call, inner, archive)

    async def _delete_with_mark(self, call: Call, inner: Handler, archive: Names) -> Reply:
        await _archive_current(call, inner, archive)
        names = (*archive, _version_name(call.names[2], self._context.clock.now()))
        headers = {"Content-Type": DELETED_TYPE}
        mark = call.derive(method="PUT", names=names, headers=headers, body=b"", source=SOURCE, privileged=True)
        check_reply(await inner(mark))
        return await inner(call)


async def _archive_current(call: Call, inner: Handler, archive: Names) -> None:
    """Copy the current object, if there is one. Raises: Refusal (412, 503)."""
    found = await current(call, inner, call.names)
    if found.status == 404:
        await found.close()
        return
    check_reply(found)
    names = (*archive, _version_name(call.names[2], found.headers["X-Timestamp"]))
    check_reply(await put_as(call, inner, found, names))


async def _delete_and_restore(call: Call, inner: Handler, archive: Names) -> Reply:
    """Restore the last version; without one, delete the object.

    A mark that another mode left is a version as well: that of an object that is not there. So with an object before
    us the DELETE makes the mark current; with none it goes back behind the mark, over one version and no more.
    """
    versions = _newest_first(call, inner, archive)
    async for name, content_type in versions:
        version = (*archive, name)
        if content_type != DELETED_TYPE:
            if not await _restore(call, inner, version):
                continue
        else:
            head = await inner(call.derive(method="HEAD", source=SOURCE, privileged=True))
            if head.status != HTTPStatus.NOT_FOUND:
                check_reply(head)
                break
            await _restore_older(call, inner, archive, versions)
        return await inner(call.derive(names=version, source=SOURCE, privileged=True))
    return await inner(call)


async def _restore_older(call: Call, inner: Handler, archive: Names, versions: AsyncIterator[tuple[str, str]]) -> None:
    """Restore the newest of these versions that is there, unless it is a mark."""
    async for name, content_type in versions:
        version = (*archive, name)
        if content_type == DELETED_TYPE:
            return
        if await _restore(call, inner, version):
            deleted = await inner(call.derive(names=version, source=SOURCE, privileged=True))
            if deleted.status != HTTPStatus.NOT_FOUND:
                check_reply(deleted)
            return


async def _restore(call: Call, inner: Handler, version: Names) -> bool:
    """Make the object what a version is; False if there is none. Raises: Refusal (412, 503)."""
    found = await current(call, inner, version)
    if found.status == HTTPStatus.NOT_FOUND:
        await found.close()
        return False
    check_reply(found)
    check_reply(await put_as(call, inner, found, call.names))
    return True


async def _newest_first(call: Call, inner: Handler, archive: Names) -> AsyncIterator[tuple[str, str]]:
    """Name and type of the object's versions."""
    query = {"format": "json", "prefix": _version_name(call.names[2], ""), "reverse": "on"}
    while True:
        listing = await inner(call.derive(method="GET", names=archive, query=query, source=SOURCE, privileged=True))
        entries = json.loads(await listing.read() or b"[]") if listing.is_success else []
        if not entries:
            return
        for entry in entries:
            yield entry["name"], entry["content_type"]
        query["marker"] = entries[-1]["name"]


def _version_name(name: str, timestamp: str) -> str:
    return f"{len(name.encode('utf-8', 'surrogateescape')):03x}{name}/{timestamp}"


async def _of_container(call: Call, inner: Handler) -> Reply:
    """Store and show the container for versions. Raises: Refusal (400, 412)."""
    if call.method in ("PUT", "POST"):
        _set_location(call)
    reply = await inner(call)
    location, mode = reply.headers.get(_SYSMETA_LOCATION), reply.headers.get(_SYSMETA_MODE)
    for header, its_mode in LOCATIONS.items():
        if location and mode == its_mode:
            reply.headers[header] = location
    return reply


def _set_location(call: Call) -> None:
    given = {header: call.headers[header] for header in LOCATIONS if call.headers.get(header)}
    if len(given) > 1:
        text = "Only one of x-versions-location or x-history-location may be specified"
        raise Refusal(400, text, PLAIN)
    removed = [
        header for header in LOCATIONS if header in call.headers or header.replace("X-", "X-Remove-", 1) in call.headers
    ]
    for header, location in given.items():
        if any(mark in unquote(location) for mark in "/\0"):
            raise Refusal(412, "Container name cannot contain slashes")
        call.headers[_SYSMETA_LOCATION], call.headers[_SYSMETA_MODE] = location, LOCATIONS[header]
    if removed and not given:
        call.headers[_SYSMETA_LOCATION] = call.headers[_SYSMETA_MODE] = ""
